#include "patch/tile.h"

#include <assert.h>

#include "base/num.h"

enum { SLICES = 16, SLICE_ELEMENTS_MIN = 32 * 1024 };

static int product(const uint64_t *shape, unsigned from, unsigned to, uint64_t *out)
{
	uint64_t p = 1;
	int err = 0;

	/* A zero makes the product zero, however large the others are. */
	for (unsigned i = from; i < to; i++) {
		if (!shape[i]) {
			*out = 0;
			return 0;
		}
	}
	for (unsigned i = from; !err && i < to; i++)
		err = gw_mul_u64(p, shape[i], &p);
	*out = p;
	return err;
}

/* floor(k * n / parts) without overflow, k <= parts. */
static uint64_t cut(uint64_t n, uint32_t parts, uint64_t k)
{
	return k * (n / parts) + k * (n % parts) / parts;
}

static uint32_t gcd_slices(uint64_t extent)
{
	uint32_t g = SLICES;

	while (extent % g)
		g /= 2;
	return g;
}

/* rows, cols, and how many columns an index of the slicing axis has. */
static int matrix(struct gw_tiling *t, enum gw_dtype dtype, unsigned rank, const uint64_t *shape, unsigned axis,
		  uint64_t *extent, uint64_t *inner)
{
	int packed = gw_dtype_bits(dtype) == 4, err;
	uint64_t n;

	if (packed && (!rank || shape[rank - 1] % 2)) {
		/* Rows do not begin at a byte: one row of all bytes. */
		err = product(shape, 0, rank, &n);
		t->rows = *inner = 1;
		t->cols = *extent = n / 2;
		return err ? err : n % 2 ? GW_EINVAL : 0;
	}
	err = product(shape, 0, axis, &t->rows);
	if (!err)
		err = product(shape, axis, rank, &t->cols);
	if (!err && rank)
		err = product(shape, axis + 1, rank, inner);
	if (!err)
		err = gw_mul_u64(t->rows, t->cols, &n);
	if (err)
		return err;
	*extent = rank ? shape[axis] : 1;
	if (!rank)
		*inner = 1;
	if (packed) {
		t->cols /= 2;
		if (axis == rank - 1)
			*extent /= 2;
		else
			*inner /= 2;
	}
	return 0;
}

int gw_tiling_init(struct gw_tiling *t, enum gw_dtype dtype, unsigned rank, const uint64_t *shape, unsigned axis)
{
	uint64_t extent, inner, parts, count;
	int err;

	*t = (struct gw_tiling){0};
	if (!gw_dtype_width(dtype) || axis >= (rank ? rank : 1))
		return GW_EINVAL;
	err = matrix(t, dtype, rank, shape, axis, &extent, &inner);
	if (err)
		return err;
	t->slices = 1;
	if (!t->rows || !t->cols)
		return 0;
	if (t->rows * t->cols >= (uint64_t)SLICES * SLICE_ELEMENTS_MIN)
		t->slices = gcd_slices(extent);
	t->slice_cols = t->cols / t->slices;
	if (t->slice_cols <= GW_TILE_ELEMENTS_MAX) {
		t->by_rows = 1;
		t->unit = t->slice_cols;
		parts = gw_div_up(t->rows, GW_TILE_ELEMENTS_MAX / t->slice_cols);
		count = parts;
	} else {
		t->unit = inner <= GW_TILE_ELEMENTS_MAX ? inner : 1;
		parts = gw_div_up(t->slice_cols / t->unit, GW_TILE_ELEMENTS_MAX / t->unit);
		err = gw_mul_u64(parts, t->rows, &count);
	}
	if (!err)
		err = gw_mul_u64(count, t->slices, &count);
	if (err || count > UINT32_MAX)
		return GW_ELIMIT;
	t->parts = (uint32_t)parts;
	t->count = (uint32_t)count;
	return 0;
}

void gw_tiling_rect(const struct gw_tiling *t, uint32_t tile, struct gw_tile_rect *rect)
{
	uint64_t part = tile % t->parts, row = tile / t->parts, units = t->slice_cols / t->unit, slice;

	assert(tile < t->count);
	rect->tensor_cols = t->cols;
	if (t->by_rows) {
		slice = row;
		rect->row0 = cut(t->rows, t->parts, part);
		rect->rows = cut(t->rows, t->parts, part + 1) - rect->row0;
		rect->col0 = slice * t->slice_cols;
		rect->cols = t->slice_cols;
		return;
	}
	slice = row / t->rows;
	rect->row0 = row % t->rows;
	rect->rows = 1;
	rect->col0 = cut(units, t->parts, part) * t->unit;
	rect->cols = cut(units, t->parts, part + 1) * t->unit - rect->col0;
	rect->col0 += slice * t->slice_cols;
}

uint32_t gw_tiling_bands(const struct gw_tiling *t)
{
	return t->count ? t->by_rows ? t->parts : t->count : 0;
}

void gw_tiling_band(const struct gw_tiling *t, uint32_t band, struct gw_tile_band *out)
{
	struct gw_tile_rect r;

	if (t->by_rows) {
		out->tile = band;
		out->tile_step = t->parts;
		out->tiles = t->slices;
		gw_tiling_rect(t, band, &r);
		out->first = r.row0 * t->cols;
		out->elements = r.rows * t->cols;
		return;
	}
	/* In order of elements: row, slice, part; tiles are numbered slice, row, part. */
	uint64_t part = band % t->parts, slice = band / t->parts % t->slices, row = band / t->parts / t->slices;

	out->tile = (uint32_t)((slice * t->rows + row) * t->parts + part);
	out->tile_step = 0;
	out->tiles = 1;
	gw_tiling_rect(t, out->tile, &r);
	out->first = r.row0 * t->cols + r.col0;
	out->elements = r.cols;
}
