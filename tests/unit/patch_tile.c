#include "patch/tile.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "patch_file.h"

static uint64_t count_of(unsigned rank, const uint64_t *shape)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < rank; i++)
		n *= shape[i];
	return n;
}

/* Every element lies in exactly one tile, and the bands are the tensor in order. */
static void check_cover(const struct gw_tiling *t, uint64_t elements)
{
	uint8_t *seen = calloc(elements + 1, 1);
	uint64_t next = 0, in_bands = 0, twice = 0, never = 0;

	for (uint32_t i = 0; i < t->count; i++) {
		struct gw_tile_rect r;

		gw_tiling_rect(t, i, &r);
		ck_assert_uint_le(r.rows * r.cols, GW_TILE_ELEMENTS_MAX);
		if (t->count > 1)
			ck_assert_uint_ge(r.rows * r.cols, 32 * 1024);
		for (uint64_t y = 0; y < r.rows; y++)
			for (uint64_t x = 0; x < r.cols; x++)
				twice += seen[(r.row0 + y) * r.tensor_cols + r.col0 + x]++;
	}
	for (uint64_t i = 0; i < elements; i++)
		never += !seen[i];
	ck_assert_uint_eq(twice, 0);
	ck_assert_uint_eq(never, 0);
	for (uint32_t b = 0; b < gw_tiling_bands(t); b++) {
		struct gw_tile_band band;
		uint64_t sum = 0;

		gw_tiling_band(t, b, &band);
		ck_assert_uint_eq(band.first, next);
		for (uint32_t i = 0; i < band.tiles; i++) {
			struct gw_tile_rect r;

			gw_tiling_rect(t, band.tile + i * band.tile_step, &r);
			ck_assert_uint_ge(r.row0 * r.tensor_cols + r.col0, band.first);
			ck_assert_uint_le((r.row0 + r.rows - 1) * r.tensor_cols + r.col0 + r.cols,
					  band.first + band.elements);
			sum += r.rows * r.cols;
		}
		ck_assert_uint_eq(sum, band.elements);
		next += band.elements;
		in_bands += band.tiles;
	}
	ck_assert_uint_eq(next, elements);
	ck_assert_uint_eq(in_bands, t->count);
	free(seen);
}

START_TEST(tiles_cover_a_tensor_once)
{
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	for (int round = 0; round < 60; round++) {
		unsigned rank = (unsigned)gw_rng_below(&rng, 5), axis = rank ? (unsigned)gw_rng_below(&rng, rank) : 0;
		uint64_t shape[5] = {1, 1, 1, 1, 1};
		struct gw_tiling t;

		for (uint64_t left = 3000000, i = 0; i < rank; i++) {
			shape[i] = 1 + gw_rng_below(&rng, gw_rng_below(&rng, 2) ? left : left < 300 ? left : 300);
			if (gw_rng_below(&rng, 2) && shape[i] > 64)
				shape[i] = shape[i] / 64 * 64;
			left /= shape[i];
			if (!left)
				left = 1;
		}
		ck_assert_int_eq(gw_tiling_init(&t, GW_DT_BF16, rank, shape, axis), 0);
		ck_assert_uint_eq(t.rows * t.cols, count_of(rank, shape));
		check_cover(&t, t.rows * t.cols);
	}
}
END_TEST

/* Tiles lie inside the slices of 2, 4, 8 and 16 ranks, as far as the axis divides. */
START_TEST(tiles_lie_inside_slices)
{
	const uint64_t shape[] = {48, 4096, 40};

	for (unsigned axis = 0; axis < 3; axis++) {
		uint64_t inner = axis == 0 ? 4096 * 40 : axis == 1 ? 40 : 1;
		struct gw_tiling t;

		ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F32, 3, shape, axis), 0);
		for (unsigned ranks = 2; ranks <= 16; ranks *= 2) {
			if (shape[axis] % ranks)
				continue;
			for (uint32_t i = 0; i < t.count; i++) {
				uint64_t slice = shape[axis] / ranks * inner;
				struct gw_tile_rect r;

				gw_tiling_rect(&t, i, &r);
				ck_assert_uint_eq(r.col0 / slice, (r.col0 + r.cols - 1) / slice);
			}
		}
	}
}
END_TEST

/* The table of proto/PATCH.md. */
START_TEST(tiles_of_the_page)
{
	static const struct {
		unsigned rank, axis;
		uint64_t shape[2];
		uint32_t slices, parts, count, tile;
		struct gw_tile_rect rect;
	} rows[] = {
		{2, 0, {4096, 4096}, 16, 4, 64, 5, {0, 1, 1310720, 262144, 16777216}},
		{2, 1, {4096, 4096}, 16, 4, 64, 5, {1024, 1024, 256, 256, 4096}},
		{2, 0, {1000, 600}, 8, 1, 8, 7, {0, 1, 525000, 75000, 600000}},
		{2, 1, {300, 1500}, 1, 2, 2, 1, {150, 150, 0, 1500, 1500}},
		{2, 0, {151936, 896}, 16, 33, 528, 1, {0, 1, 257152, 258048, 136134656}},
		{2, 0, {2, 600000}, 2, 3, 6, 5, {0, 1, 1000000, 200000, 1200000}},
		{0, 0, {0}, 1, 1, 1, 0, {0, 1, 0, 1, 1}},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct gw_tiling t;
		struct gw_tile_rect r;

		ck_assert_int_eq(gw_tiling_init(&t, GW_DT_BF16, rows[i].rank, rows[i].shape, rows[i].axis), 0);
		ck_assert_uint_eq(t.slices, rows[i].slices);
		ck_assert_uint_eq(t.parts, rows[i].parts);
		ck_assert_uint_eq(t.count, rows[i].count);
		gw_tiling_rect(&t, rows[i].tile, &r);
		ck_assert_mem_eq(&r, &rows[i].rect, sizeof r);
	}
}
END_TEST

START_TEST(tiles_of_odd_tensors)
{
	const uint64_t empty[] = {0, 5}, packed[] = {6, 10}, odd[] = {2, 3}, huge[] = {1ull << 40, 1ull << 40},
		       many[] = {1ull << 60};
	struct gw_tiling t;

	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F32, 2, empty, 1), 0);
	ck_assert_uint_eq(t.count, 0);
	ck_assert_uint_eq(gw_tiling_bands(&t), 0);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F4, 2, packed, 1), 0);
	ck_assert_uint_eq(t.rows, 6);
	ck_assert_uint_eq(t.cols, 5);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F4, 2, packed, 0), 0);
	ck_assert_uint_eq(t.cols, 30);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F4, 2, odd, 1), 0);
	ck_assert_uint_eq(t.rows * t.cols, 3);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F4, 0, NULL, 0), GW_EINVAL);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_F32, 2, packed, 2), GW_EINVAL);
	ck_assert_int_eq(gw_tiling_init(&t, (enum gw_dtype)99, 2, packed, 0), GW_EINVAL);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_U8, 2, huge, 0), GW_EOVERFLOW);
	ck_assert_int_eq(gw_tiling_init(&t, GW_DT_U8, 1, many, 0), GW_ELIMIT);
}
END_TEST

TCase *patch_tile_case(void)
{
	TCase *t = tcase_create("tile");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, tiles_cover_a_tensor_once);
	tcase_add_test(t, tiles_lie_inside_slices);
	tcase_add_test(t, tiles_of_the_page);
	tcase_add_test(t, tiles_of_odd_tensors);
	return t;
}
