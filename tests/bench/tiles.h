/*
 * Coding alone: every tile compared and coded by a model that was learned from one tile of 16. No fingerprints, no
 * check words, no file: what gw_diff takes beyond it goes there, and into learning.
 */
#ifndef GW_BENCH_TILES_H
#define GW_BENCH_TILES_H

#include "clock.h"
#include "pair.h"

struct tiles_result {
	struct bench_time learn, code;
	uint64_t bytes; /* of all payloads */
};

/* Tensors of that dtype. */
int tiles_measure(const struct bench_pair *p, enum gw_dtype dtype, int runs, struct tiles_result *out);

#endif
