/*
 * RESULT lines of the codec bench: what is measured, and how it is said. Figures stand in README.
 */
#ifndef GW_BENCH_RESULT_H
#define GW_BENCH_RESULT_H

#include <stdint.h>

#include "bound.h"
#include "clock.h"
#include "kernels.h"
#include "pair.h"
#include "tiles.h"

/* One block of lines. */
struct bench_block {
	const char *label, *dtype, *part; /* the last words of each line */
	const struct bench_pair *pair;
	struct bench_bound bound;
	struct bench_time ceilings[KERNEL_COUNT];
	uint64_t xor_bytes; /* of XOR with zstd -1; 0 before that is known */
};

void result_bound(const struct bench_block *b);
void result_kernel(const struct bench_block *b, enum kernel kernel);
void result_bits(const struct bench_block *b, const char *codec, uint64_t bytes);
/* way: "encode" is held against reading both versions, all others against reading one. */
void result_speed(const struct bench_block *b, const char *way, const char *codec, const struct bench_time *t);
/* What a second thread gains on the wall, beside what it gains for reading. */
void result_threads(const struct bench_block *b, const char *way, double one_s, double two_s, double read_one_s,
		    double read_two_s);
void result_tiles(const struct bench_block *b, const struct tiles_result *r);
void result_missing(const struct bench_block *b, const char *tool, const char *package);

#endif
