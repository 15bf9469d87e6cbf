/*
 * Tiles: the rectangles of a tensor that are coded and decoded by themselves. The rule is fixed, with worked
 * examples, in proto/PATCH.md; here is its arithmetic, for any tensor, without a patch.
 *
 * A tensor with slicing axis a is seen as a matrix of rows = product of shape[0…a) and cols = product of
 * shape[a…), counted in storage elements. Tiles lie whole inside the slices that 2, 4, 8 or 16 tensor-parallel
 * ranks take of axis a, as far as it divides, and hold at most GW_TILE_ELEMENTS_MAX elements.
 */
#ifndef GW_PATCH_TILE_H
#define GW_PATCH_TILE_H

#include <stdint.h>

#include "weights/dtype.h"

enum { GW_TILE_ELEMENTS_MAX = 256 * 1024 };

struct gw_tiling {
	uint64_t rows, cols;
	uint64_t slice_cols; /* columns of one slice; cols / slice_cols slices */
	uint64_t unit;       /* where a row is cut: at multiples of so many columns */
	uint32_t slices;     /* 1, 2, 4, 8 or 16 */
	uint32_t parts;      /* of a slice's rows (by_rows), or of each row of a slice */
	uint32_t count;      /* tiles; 0 for an empty tensor */
	uint8_t by_rows;
};

/* A tile's rectangle, in elements. Element i of the tile is element
 * (row0 + i / cols) * tensor_cols + col0 + i % cols of the tensor. */
struct gw_tile_rect {
	uint64_t row0, rows, col0, cols, tensor_cols;
};

/* Element i of a tile as an element of its tensor. */
static inline uint64_t gw_tile_element(const struct gw_tile_rect *r, uint32_t i)
{
	return (r->row0 + i / r->cols) * r->tensor_cols + r->col0 + i % r->cols;
}

/* GW_EINVAL where the axis is none of the tensor's (rank 0: only 0) or the dtype is unknown; GW_EOVERFLOW,
 * GW_ELIMIT for more elements or tiles than can be counted. */
int gw_tiling_init(struct gw_tiling *t, enum gw_dtype dtype, unsigned rank, const uint64_t *shape, unsigned axis);

/* tile < count. */
void gw_tiling_rect(const struct gw_tiling *t, uint32_t tile, struct gw_tile_rect *rect);

/* A band: the smallest groups of tiles that together are one contiguous range of the tensor, for those who read
 * or write files. Bands come in rising order of elements and cover the tensor. */
struct gw_tile_band {
	uint64_t first, elements;         /* of the tensor */
	uint32_t tile, tile_step, tiles;  /* tile, tile + tile_step, … */
};
uint32_t gw_tiling_bands(const struct gw_tiling *t);
void gw_tiling_band(const struct gw_tiling *t, uint32_t band, struct gw_tile_band *out);

#endif
