/*
 * Comparing old and new bits: the changes of a tile, or of any stretch of elements.
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
 * already. Returns the new count. */
size_t gw_scan_run(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits, uint64_t n,
		   unsigned width, uint32_t base);

/* The changes of a tile of two tensors, which lie at old and new_bits. */
void gw_scan_tile(struct gw_changes_buf *b, const uint8_t *old, const uint8_t *new_bits, unsigned width,
		  const struct gw_tile_rect *r, struct gw_tile_changes *out);

/* Copies a tile's elements out of a tensor, row by row. Returns where they lie: in `out`, or in the tensor where the
 * tile is one stretch of it. */
const uint8_t *gw_tile_gather(const uint8_t *tensor, unsigned width, const struct gw_tile_rect *r, uint8_t *out);

#endif
