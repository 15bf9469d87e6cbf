#include "engine.h"

#include "unit.h"

static Suite *engine_suite(void)
{
	Suite *s = suite_create("engine");

	suite_add_tcase(s, engine_map_tests());
	suite_add_tcase(s, engine_plan_tests());
	suite_add_tcase(s, engine_stage_tests());
	suite_add_tcase(s, engine_story_tests());
	return s;
}

UNIT_MAIN(engine_suite)
