/*
 * Comparing old and new bits: the changes of a tile, or of any stretch of elements, at the speed of memory. Memory may
 * lie at any alignment. Uses AVX-512 or AVX2 where the machine has it; all give the same changes.
 */
#ifndef GW_PATCH_SCAN_H
#define GW_PATCH_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "patch/patch.h"
#include "patch/tile.h"

/* Room for the changes of one tile, whatever they are; one a thread. */
struct gw_changes_buf {
	uint32_t *at;
	uint8_t *old_bits, *new_bits;
};
int gw_changes_buf_init(struct gw_changes_buf *b);
void gw_changes_buf_free(struct gw_changes_buf *b);

/* The changes between two stretches of n elements, numbered from `base`; appended behind the `count` that are in b
 * already. Returns the new count. count + n is at most GW_TILE_ELEMENTS_MAX. */
size_t gw_scan_run(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits, uint64_t n,
		   unsigned width, uint32_t base);

/* The changes of a tile of two tensors, which lie at old and new_bits. */
void gw_scan_tile(struct gw_changes_buf *b, const uint8_t *old, const uint8_t *new_bits, unsigned width,
		  const struct gw_tile_rect *r, struct gw_tile_changes *out);

/* Copies a tile's elements out of a tensor, row by row. Returns where they lie: in `out`, or in the tensor where the
 * tile is one stretch of it. */
const uint8_t *gw_tile_gather(const uint8_t *tensor, unsigned width, const struct gw_tile_rect *r, uint8_t *out);

/* Which implementation scans use. The first use picks the fastest this machine has; tests and benchmarks choose.
 * GW_EUNSUP where this machine or build lacks it. Not while another thread scans. */
enum gw_scan_impl { GW_SCAN_SCALAR, GW_SCAN_AVX2, GW_SCAN_AVX512 };
int gw_scan_use(enum gw_scan_impl impl);
enum gw_scan_impl gw_scan_used(void);

#endif
