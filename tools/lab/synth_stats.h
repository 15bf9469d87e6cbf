/*
 * The numbers in a synthetic checkpoint: weights and steps whose bf16 versions change as those of reinforcement
 * learning do. A weight is 0.02 × row scale × N(0,1) in fp32 (the master); a step adds rate × tensor factor × row
 * factor × clip(N(0,1), ±3), as Adam's normalised updates do; versions are the masters cast to bf16, rounded to
 * nearest even. Three rows of four of the embedding stand still.
 *
 * What this gives, as real steps do: an element changes with probability min(1, |step| / ulp), which doubles with each
 * exponent step down; steps of one ulp except in the smallest weights; even signs; rows and tensors that differ. What
 * it does not give: any history. Steps are independent, so coding by earlier changes gains nothing here.
 *
 * Every number is a function of (seed, tensor, element, step): any part can be made alone, in any order. Only IEEE
 * additions, multiplications, divisions and conversions are used, never libm nor fused operations, so a seed gives the
 * same bytes on every machine.
 */
#ifndef GW_LAB_SYNTH_STATS_H
#define GW_LAB_SYNTH_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "synth_model.h"

enum { SYNTH_QUANTILES = 2048, SYNTH_SCALES = 256 };

struct synth_stats {
	uint64_t seed;
	float rate;			    /* effective rate: the scale of a step */
	float normal[SYNTH_QUANTILES + 1];  /* quantiles of |N(0,1)|, at equal steps of probability */
	float clipped[SYNTH_QUANTILES + 1]; /* the same, at most 3 */
	float row_scale[SYNTH_SCALES], row_factor[SYNTH_SCALES], tensor_factor[SYNTH_SCALES];
};

void synth_stats_init(struct synth_stats *s, uint64_t seed);

/* Solves for the rate at which `density` of all elements (fp8: of those in fp8) change in a step: bisection over the
 * expected changes of a million sampled elements, mean of min(1, |step as fp32 rounds it| / ulp). For fp8 the ulp is
 * that under a typical scale, so what comes is near the density, not at it. Returns the density expected. GW_EINVAL
 * where no rate gives that much. */
int synth_stats_solve(struct synth_stats *s, const struct synth_model *m, double density, double *expected);

/* Masters of n elements from element `first` of a tensor, before any step. */
void synth_masters(const struct synth_stats *s, const struct synth_model *m, uint32_t tensor, uint64_t first, size_t n,
		   float *out);
/* Adds step number `step` (1, 2, …). */
void synth_step(const struct synth_stats *s, const struct synth_model *m, uint32_t tensor, uint64_t first, size_t n,
		uint64_t step, float *masters);
/* To bf16, little-endian. */
void synth_cast(const float *masters, size_t n, uint8_t *out);
/* To fp8: rows x cols elements, row by row, rows at most SYNTH_SCALE_BLOCK, are cast to bf16 and then, in blocks of
 * SYNTH_SCALE_BLOCK columns, divided by scales[block], the block's largest magnitude over 448, and rounded to nearest
 * even. As trainers do that hold a bf16 copy: scales hardly ever change, since large weights do not. */
void synth_quantise(const float *masters, size_t rows, size_t cols, uint8_t *out, float *scales);

#endif
