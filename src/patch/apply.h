/*
 * The device table: how lists and fingerprints meet memory. Row 0 is the CPU and the reference; the CUDA
 * row is loaded at run time where a driver is. Every operation of every device is cross-checked with
 * row 0 by the tests.
 *
 * A `struct gw_dev_mem` is one segment as that device addresses it (host pointer, or device pointer).
 * All functions return 0 or a negative GW_E…: GW_EINVAL where the list or window names a place outside of the
 * segments given, or an odd width; GW_EMALFORMED where a run of the list is not sound (use gw_list_check before);
 * GW_EDEVICE where the device failed. `write` finds such errors before it writes anything; after GW_EDEVICE places
 * may hold old or new bits, and the write can be repeated. One thread at a time uses a device.
 */
#ifndef GW_PATCH_APPLY_H
#define GW_PATCH_APPLY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/pool.h"
#include "patch/list.h"

struct gw_dev_mem {
	uint64_t addr; /* (uintptr_t) host pointer, or CUdeviceptr */
	uint64_t bytes;
};

/* What a check of a list against memory found. */
struct gw_list_found {
	uint64_t old_n, new_n; /* records whose place holds the old bits; the new bits (both where equal) */
	uint64_t neither_n;    /* places that hold something else */
	uint32_t bad_segment;  /* the first of those, in list order, where neither_n > 0 */
	uint64_t bad_at;       /* byte offset in the segment */
};

/* A strided window of elements in a segment (see gw_print_window): element (r, c) lies at base + r * row_pitch + c *
 * col_pitch bytes, and is element (row0 + r) * tensor_cols + col0 + c of its tensor. */
struct gw_dev_window {
	uint32_t segment;
	unsigned width; /* bytes an element: 1, 2, 4, 8 */
	uint64_t base, row_pitch, col_pitch;
	uint64_t rows, cols;
	uint64_t row0, col0, tensor_cols;
};

struct gw_device_ops {
	const char *name; /* "cpu", "cuda" */
	/* Reads every place of the list. 0 also where places hold something else: *found tells. */
	int (*check)(void *dev, const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments,
		     struct gw_list_found *found);
	/* Overwrites every place with the new bits (to_new) or the old. Plain stores, repeatable; a place at a
	 * multiple of its width is stored at once, so that a reader sees the old or the new element. */
	int (*write)(void *dev, const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments,
		     int to_new);
	/* Adds the window's contribution to a tensor fingerprint (patch/fingerprint.h) in host memory. */
	int (*print)(void *dev, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments,
		     uint64_t lane[2]);
	/* Copies the window's elements, row by row, into host memory of rows * cols * width bytes. */
	int (*gather)(void *dev, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments,
		      void *out);
	/* Returns when all that was asked before is done and visible. */
	int (*sync)(void *dev);
	void (*close)(void *dev);
};

struct gw_device {
	const struct gw_device_ops *ops;
	void *dev;
};

/* Row 0. Needs no closing. With a pool the work is spread over its workers; the pool must outlive the device. */
struct gw_device gw_device_cpu(void);
struct gw_device gw_device_cpu_pool(struct gw_pool *pool);

/* For those who write a row. Both GW_EINVAL: unless the window's width is one of four and all of it lies in its
 * segment; unless all places of the list lie in theirs (or GW_EMALFORMED for an unsound run). */
int gw_dev_window_check(const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments);
int gw_list_bounds(const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments);

#endif
