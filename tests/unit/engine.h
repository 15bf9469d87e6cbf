/* The parts of the engine room's unit tests. */
#ifndef GW_TESTS_ENGINE_H
#define GW_TESTS_ENGINE_H

#include <check.h>

TCase *engine_map_tests(void);
TCase *engine_plan_tests(void);
TCase *engine_stage_tests(void);
TCase *engine_story_tests(void);

#endif
