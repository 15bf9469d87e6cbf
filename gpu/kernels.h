/*
 * What host code (C) and kernels (C++) agree on. Kernels are found by name in the module.
 */
#ifndef GW_GPU_KERNELS_H
#define GW_GPU_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "patch/apply.h"
#ifdef __cplusplus
}
#endif

enum {
	GW_KERNEL_THREADS = 256, /* a block; a multiple of 32 */
	GW_KERNEL_BLOCK = 1024,	 /* GW_PRINT_BLOCK: units a block of the fingerprint */
};

/* gw_kernel_check adds here; bad starts as all ones. */
struct gw_kernel_found {
	unsigned long long old_n, new_n, neither_n;
	unsigned long long bad; /* the lowest of run << 16 | record */
};

/* A window as kernels see it: in units of at most 4 bytes, `units` an element. */
struct gw_kernel_window {
	uint64_t addr; /* of element (0, 0) */
	uint64_t rows, cols, row_pitch, col_pitch;
	uint64_t first,
		row_units;	/* number of the first unit in its tensor; units from one row's start to the next's */
	uint64_t block_seed[2]; /* of the block keys */
	uint32_t unit_width, units;
};

#endif
