/*
 * A program of stories: each runs in a world of its own per seed. Environment: SEED=n replays one seed, SEEDS=n runs
 * that many from 1 on, STORY=name picks one, SIM_LOG=1 shows what the hosts log.
 */
#ifndef GW_TESTS_SIM_STORIES_H
#define GW_TESTS_SIM_STORIES_H

#include "sim.h"

struct story {
	const char *name;
	void (*tell)(uint64_t seed);
};

/* Runs all stories for seeds 1 … `seeds`, unless the environment says otherwise; ends with "N passed, …". */
int stories_main(const struct story *v, size_t n, unsigned seeds);

#endif
