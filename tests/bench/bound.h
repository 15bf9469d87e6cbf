/*
 * How few bits a stateless coder could take that knows the old bits: the plug-in entropy of what changed. The
 * formula stands in README. Classes of an element: its old exponent (floats of 2 bytes or more), its old code
 * without the sign (floats of one byte), one class for all (anything else); pooled over all tensors of a dtype.
 */
#ifndef GW_BENCH_BOUND_H
#define GW_BENCH_BOUND_H

#include "pair.h"

struct bench_bound {
	uint64_t elements, changed;
	double place_bits, step_bits; /* in all */
	double parameter_bits;	      /* what the shares themselves would cost: half a log of n each */
};

/* Added up over all dtypes of the pair. */
int bench_bound(const struct bench_pair *p, struct bench_bound *out);

#endif
