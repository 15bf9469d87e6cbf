/*
 * Maps: where the elements of a checkpoint tensor lie in a rank's memory.
 *
 * A map is a window (struct gw_dev_window, patch/apply.h): the tensor is seen as a matrix with
 * tensor_cols columns, the window is a rectangle of it, and element (r, c) of the rectangle lies at
 * base + r * row_pitch + c * col_pitch bytes of one segment. That covers a contiguous range (one row, or
 * row_pitch = cols * width), a tensor-parallel slice of any one axis (rows = product of the dimensions
 * before it), a member of a fused tensor, a window of a vocabulary, and a transpose.
 *
 * All counts are 64-bit; every sum and product is checked once, by gw_window_check, and the other functions
 * rely on it.
 */
#ifndef GW_ENGINE_MAP_H
#define GW_ENGINE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "patch/apply.h"
#include "patch/patch.h"

/* Refuses an empty window, one that leaves its tensor or its segment, one in which two elements share
 * a byte, and a width that is none. */
int gw_window_check(const struct gw_dev_window *w, uint64_t tensor_elements, uint64_t segment_bytes,
		    struct gw_diag *why);

/* Element of the tensor to byte offset in the segment; 0 when the window does not hold it. */
int gw_window_place(const struct gw_dev_window *w, uint64_t element, uint64_t *at);
/* The inverse; 0 when no element of the window begins at that byte. */
int gw_window_element(const struct gw_dev_window *w, uint64_t at, uint64_t *element);

/* First and last element of the tensor that the window holds, and first and last byte it covers. */
void gw_window_span(const struct gw_dev_window *w, uint64_t *first, uint64_t *last);
void gw_window_bytes(const struct gw_dev_window *w, uint64_t *first, uint64_t *last);

/* The rectangle rows [r, r + rows), columns [c, c + cols) of the window, as a window. */
struct gw_dev_window gw_window_part(const struct gw_dev_window *w, uint64_t r, uint64_t rows, uint64_t c, uint64_t cols);

/* What a window holds of a tile, cut into windows: `each` gets a part and the position in the tile of its
 * first element; the next row of the part lies tile_cols positions on. Where window and tile see the tensor
 * with the same row length there is at most one part, else at most one a tile row and window row. Stops
 * at the first non-zero of `each`. */
int gw_window_in_tile(const struct gw_dev_window *w, const struct gw_tile_rect *tile,
		      int (*each)(void *ctx, const struct gw_dev_window *part, uint64_t tile_at), void *ctx);

#endif
