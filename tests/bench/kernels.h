/*
 * What memory gives and what our scans take of it, on the tensors of a pair.
 */
#ifndef GW_BENCH_KERNELS_H
#define GW_BENCH_KERNELS_H

#include "base/pool.h"
#include "clock.h"
#include "pair.h"

enum kernel {
	KERNEL_COPY,	 /* memcpy of the old version */
	KERNEL_READ,	 /* reading one version: the best shape of ceiling.h */
	KERNEL_READ_TWO, /* reading both */
	KERNEL_SCAN,	 /* gw_scan_run of both */
	KERNEL_PRINT,	 /* gw_print_run of one */
	KERNEL_COUNT
};

extern const char *const kernel_names[KERNEL_COUNT];

/* copy: as many bytes as the pair has, for KERNEL_COPY. */
int kernel_measure(const struct bench_pair *p, enum kernel kernel, struct gw_pool *pool, int runs, uint8_t *copy,
		   struct bench_time *t);

#endif
