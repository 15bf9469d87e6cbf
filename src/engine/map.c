#include "engine/map.h"

#include "base/num.h"

/* Bytes from the first byte of the window to the last; everything after relies on its having fitted. */
static int extent(const struct gw_dev_window *w, uint64_t *bytes)
{
	uint64_t down, across;
	int err = 0;

	err |= gw_mul_u64(w->rows - 1, w->row_pitch, &down);
	err |= gw_mul_u64(w->cols - 1, w->col_pitch, &across);
	if (err)
		return GW_EOVERFLOW;
	err |= gw_add_u64(down, across, bytes);
	err |= gw_add_u64(*bytes, w->width, bytes);
	return err ? GW_EOVERFLOW : 0;
}

/* No two elements share a byte: the inner pitch is at least an element, the outer one at least an inner line. */
static int disjoint(const struct gw_dev_window *w)
{
	uint64_t inner = w->col_pitch, outer = w->row_pitch, inner_n = w->cols, outer_n = w->rows;

	if (w->rows > 1 && (w->cols == 1 || w->row_pitch < w->col_pitch)) {
		inner = w->row_pitch;
		outer = w->col_pitch;
		inner_n = w->rows;
		outer_n = w->cols;
	}
	if (inner_n > 1 && inner < w->width)
		return 0;
	return outer_n == 1 || outer >= (inner_n - 1) * inner + w->width;
}

static int holds(const char *what, uint64_t from, uint64_t n, uint64_t limit, struct gw_diag *why)
{
	uint64_t end;

	if (gw_add_u64(from, n, &end) || end > limit)
		return gw_diag_set(why, GW_EINVAL, "the window's %s %llu + %llu leave the %llu there are", what,
				   (unsigned long long)from, (unsigned long long)n, (unsigned long long)limit);
	return 0;
}

int gw_window_check(const struct gw_dev_window *w, uint64_t tensor_elements, uint64_t segment_bytes,
		    struct gw_diag *why)
{
	uint64_t bytes = 0;
	int err;

	if (w->width != 1 && w->width != 2 && w->width != 4 && w->width != 8)
		return gw_diag_set(why, GW_EINVAL, "elements of %u bytes", w->width);
	if (w->rows == 0 || w->cols == 0 || w->tensor_cols == 0)
		return gw_diag_set(why, GW_EINVAL, "the window is empty");
	if (tensor_elements % w->tensor_cols != 0)
		return gw_diag_set(why, GW_EINVAL, "rows of %llu elements do not divide the tensor's %llu",
				   (unsigned long long)w->tensor_cols, (unsigned long long)tensor_elements);
	err = holds("columns", w->col0, w->cols, w->tensor_cols, why);
	if (!err)
		err = holds("rows", w->row0, w->rows, tensor_elements / w->tensor_cols, why);
	if (err)
		return err;
	if (extent(w, &bytes))
		return gw_diag_set(why, GW_EOVERFLOW, "the window's pitches overflow");
	err = holds("bytes", w->base, bytes, segment_bytes, why);
	if (err)
		return err;
	if (!disjoint(w))
		return gw_diag_set(why, GW_EINVAL, "the window's pitches lay elements over each other");
	return 0;
}

int gw_window_place(const struct gw_dev_window *w, uint64_t element, uint64_t *at)
{
	uint64_t r = element / w->tensor_cols, c = element % w->tensor_cols;

	if (r < w->row0 || r - w->row0 >= w->rows || c < w->col0 || c - w->col0 >= w->cols)
		return 0;
	*at = w->base + (r - w->row0) * w->row_pitch + (c - w->col0) * w->col_pitch;
	return 1;
}

int gw_window_element(const struct gw_dev_window *w, uint64_t at, uint64_t *element)
{
	uint64_t r = 0, c = 0, left;
	int rows_outer = w->rows > 1 && (w->cols == 1 || w->row_pitch >= w->col_pitch);

	if (at < w->base)
		return 0;
	left = at - w->base;
	if (rows_outer) {
		r = left / w->row_pitch;
		left %= w->row_pitch;
	}
	if (w->cols > 1) {
		c = left / w->col_pitch;
		left %= w->col_pitch;
	}
	if (!rows_outer && w->rows > 1) {
		r = left / w->row_pitch;
		left %= w->row_pitch;
	}
	if (left != 0 || r >= w->rows || c >= w->cols)
		return 0;
	*element = (w->row0 + r) * w->tensor_cols + w->col0 + c;
	return 1;
}

void gw_window_span(const struct gw_dev_window *w, uint64_t *first, uint64_t *last)
{
	*first = w->row0 * w->tensor_cols + w->col0;
	*last = (w->row0 + w->rows - 1) * w->tensor_cols + w->col0 + w->cols - 1;
}

void gw_window_bytes(const struct gw_dev_window *w, uint64_t *first, uint64_t *last)
{
	*first = w->base;
	*last = w->base + (w->rows - 1) * w->row_pitch + (w->cols - 1) * w->col_pitch + w->width - 1;
}

struct gw_dev_window gw_window_part(const struct gw_dev_window *w, uint64_t r, uint64_t rows, uint64_t c, uint64_t cols)
{
	struct gw_dev_window part = *w;

	part.base += r * w->row_pitch + c * w->col_pitch;
	part.row0 += r;
	part.col0 += c;
	part.rows = rows;
	part.cols = cols;
	return part;
}

typedef int part_fn(void *ctx, const struct gw_dev_window *part, uint64_t tile_at);

/* Both see the tensor with rows of one length: the parts are one rectangle. */
static int same_view(const struct gw_dev_window *w, const struct gw_tile_rect *t, part_fn *each, void *ctx)
{
	uint64_t r0 = gw_max_u64(w->row0, t->row0), r1 = gw_min_u64(w->row0 + w->rows, t->row0 + t->rows);
	uint64_t c0 = gw_max_u64(w->col0, t->col0), c1 = gw_min_u64(w->col0 + w->cols, t->col0 + t->cols);
	struct gw_dev_window part;

	if (r0 >= r1 || c0 >= c1)
		return 0;
	part = gw_window_part(w, r0 - w->row0, r1 - r0, c0 - w->col0, c1 - c0);
	return each(ctx, &part, (r0 - t->row0) * t->cols + c0 - t->col0);
}

/* The window's rows that meet the elements [from, to), which lie in one row of the tile at position tile_at. */
static int one_line(const struct gw_dev_window *w, uint64_t from, uint64_t to, uint64_t tile_at, part_fn *each, void *ctx)
{
	uint64_t r = gw_max_u64(from / w->tensor_cols, w->row0);
	uint64_t r_end = gw_min_u64((to - 1) / w->tensor_cols + 1, w->row0 + w->rows);

	for (; r < r_end; r++) {
		uint64_t line = r * w->tensor_cols;
		uint64_t a = gw_max_u64(from, line + w->col0), b = gw_min_u64(to, line + w->col0 + w->cols);
		struct gw_dev_window part;
		int err;

		if (a >= b)
			continue;
		part = gw_window_part(w, r - w->row0, 1, a - line - w->col0, b - a);
		err = each(ctx, &part, tile_at + (a - from));
		if (err)
			return err;
	}
	return 0;
}

int gw_window_in_tile(const struct gw_dev_window *w, const struct gw_tile_rect *t, part_fn *each, void *ctx)
{
	uint64_t first, last;

	gw_window_span(w, &first, &last);
	if (last < t->row0 * t->tensor_cols + t->col0 ||
	    first > (t->row0 + t->rows - 1) * t->tensor_cols + t->col0 + t->cols - 1)
		return 0;
	if (w->tensor_cols == t->tensor_cols)
		return same_view(w, t, each, ctx);
	for (uint64_t r = 0; r < t->rows; r++) {
		uint64_t from = (t->row0 + r) * t->tensor_cols + t->col0;
		int err = one_line(w, from, from + t->cols, r * t->cols, each, ctx);

		if (err)
			return err;
	}
	return 0;
}
