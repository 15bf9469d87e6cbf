/* Windows: place and element are inverse, tiles are cut into the same elements, whatever the view. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine.h"
#include "engine/map.h"
#include "unit.h"

static const unsigned widths[] = {1, 2, 4, 8};

/* A random window that is right; *elements and *bytes are its tensor's and segment's. */
static struct gw_dev_window random_window(struct gw_rng *r, uint64_t *elements, uint64_t *bytes)
{
	struct gw_dev_window w = {.width = widths[gw_rng_below(r, 4)]};
	uint64_t rows = 1 + gw_rng_below(r, 9), extent;

	w.tensor_cols = 1 + gw_rng_below(r, 12);
	*elements = rows * w.tensor_cols;
	w.row0 = gw_rng_below(r, rows);
	w.rows = 1 + gw_rng_below(r, rows - w.row0);
	w.col0 = gw_rng_below(r, w.tensor_cols);
	w.cols = 1 + gw_rng_below(r, w.tensor_cols - w.col0);
	w.base = gw_rng_below(r, 40);
	if (gw_rng_below(r, 3)) {
		w.col_pitch = w.width + gw_rng_below(r, 3);
		w.row_pitch = w.cols * w.col_pitch + gw_rng_below(r, 9);
	} else { /* transposed */
		w.row_pitch = w.width + gw_rng_below(r, 3);
		w.col_pitch = w.rows * w.row_pitch + gw_rng_below(r, 9);
	}
	extent = (w.rows - 1) * w.row_pitch + (w.cols - 1) * w.col_pitch + w.width;
	*bytes = w.base + extent + gw_rng_below(r, 5);
	return w;
}

START_TEST(place_and_element_are_inverse)
{
	struct gw_rng r;

	gw_rng_init(&r, (uint64_t)_i);
	for (int n = 0; n < 300; n++) {
		uint64_t elements, bytes, held = 0, first, last, lo, hi;
		struct gw_dev_window w = random_window(&r, &elements, &bytes);
		uint8_t *taken = calloc(bytes, 1);

		ck_assert_int_eq(gw_window_check(&w, elements, bytes, NULL), 0);
		gw_window_span(&w, &first, &last);
		gw_window_bytes(&w, &lo, &hi);
		for (uint64_t e = 0; e < elements; e++) {
			uint64_t at, back;

			if (!gw_window_place(&w, e, &at))
				continue;
			held++;
			ck_assert(e >= first && e <= last && at >= lo && at + w.width - 1 <= hi);
			for (unsigned k = 0; k < w.width; k++)
				ck_assert_uint_eq(taken[at + k]++, 0);
			ck_assert_int_eq(gw_window_element(&w, at, &back), 1);
			ck_assert_uint_eq(back, e);
		}
		ck_assert_uint_eq(held, w.rows * w.cols);
		/* No other byte begins an element. */
		for (uint64_t at = 0, found = 0; at < bytes + 8; at++) {
			uint64_t e, place;

			if (gw_window_element(&w, at, &e)) {
				found++;
				ck_assert_int_eq(gw_window_place(&w, e, &place), 1);
				ck_assert_uint_eq(place, at);
			}
			ck_assert(at + 1 < bytes + 8 || found == w.rows * w.cols);
		}
		free(taken);
	}
}
END_TEST

struct seen {
	const struct gw_tile_rect *t;
	uint8_t *count;
	const struct gw_dev_window *whole;
};

static int note(void *ctx, const struct gw_dev_window *part, uint64_t tile_at)
{
	struct seen *s = ctx;

	for (uint64_t r = 0; r < part->rows; r++)
		for (uint64_t c = 0; c < part->cols; c++) {
			uint64_t e = (part->row0 + r) * part->tensor_cols + part->col0 + c, at, want;
			uint64_t pos = tile_at + r * s->t->cols + c;
			uint64_t te = (s->t->row0 + pos / s->t->cols) * s->t->tensor_cols + s->t->col0 + pos % s->t->cols;

			ck_assert_uint_eq(e, te);
			ck_assert_int_eq(gw_window_place(part, e, &at), 1);
			ck_assert_int_eq(gw_window_place(s->whole, e, &want), 1);
			ck_assert_uint_eq(at, want);
			s->count[e]++;
		}
	return 0;
}

START_TEST(tiles_of_any_view)
{
	struct gw_rng r;

	gw_rng_init(&r, (uint64_t)_i);
	for (int n = 0; n < 500; n++) {
		uint64_t elements, bytes;
		struct gw_dev_window w = random_window(&r, &elements, &bytes);
		struct gw_tile_rect t;
		uint8_t *count;

		do
			t.tensor_cols = 1 + gw_rng_below(&r, elements);
		while (elements % t.tensor_cols);
		if (gw_rng_below(&r, 2))
			t.tensor_cols = w.tensor_cols;
		t.row0 = gw_rng_below(&r, elements / t.tensor_cols);
		t.rows = 1 + gw_rng_below(&r, elements / t.tensor_cols - t.row0);
		t.col0 = gw_rng_below(&r, t.tensor_cols);
		t.cols = 1 + gw_rng_below(&r, t.tensor_cols - t.col0);
		count = calloc(elements, 1);
		ck_assert_int_eq(gw_window_in_tile(&w, &t, note, &(struct seen){&t, count, &w}), 0);
		for (uint64_t e = 0; e < elements; e++) {
			uint64_t row = e / t.tensor_cols, col = e % t.tensor_cols, at;
			int in = row >= t.row0 && row - t.row0 < t.rows && col >= t.col0 && col - t.col0 < t.cols;

			ck_assert_uint_eq(count[e], in && gw_window_place(&w, e, &at));
		}
		free(count);
	}
}
END_TEST

START_TEST(what_is_refused)
{
	const struct gw_dev_window ok = {.width = 2, .base = 4, .row_pitch = 20, .col_pitch = 2, .rows = 3, .cols = 5,
					 .row0 = 1, .col0 = 2, .tensor_cols = 10};
	struct gw_dev_window w = ok;

	/* Last byte: 4 + 2 * 20 + 4 * 2 + 1 = 53. */
	ck_assert_int_eq(gw_window_check(&ok, 40, 54, NULL), 0);
	ck_assert_int_ne(gw_window_check(&ok, 40, 53, NULL), 0);
	ck_assert_int_ne(gw_window_check(&ok, 30, 54, NULL), 0); /* rows 1 to 3 of 3 */
	ck_assert_int_ne(gw_window_check(&ok, 45, 54, NULL), 0);
#define BAD(field, value) \
	w = ok; \
	w.field = (value); \
	ck_assert_int_ne(gw_window_check(&w, 40, 1000, NULL), 0);
	BAD(width, 3)
	BAD(width, 0)
	BAD(rows, 0)
	BAD(cols, 0)
	BAD(tensor_cols, 0)
	BAD(col0, 6)
	BAD(row0, 2)
	BAD(rows, UINT64_MAX)
	BAD(cols, UINT64_MAX)
	BAD(row0, UINT64_MAX)
	BAD(col0, UINT64_MAX)
	BAD(base, UINT64_MAX)
	BAD(row_pitch, UINT64_MAX)
	BAD(col_pitch, UINT64_MAX / 2)
	BAD(row_pitch, 8)  /* rows over each other */
	BAD(row_pitch, 0)
	BAD(col_pitch, 1)
	BAD(col_pitch, 0)
#undef BAD
	/* Beyond 2^32 and near 2^64 without wrapping. */
	w = ok;
	w.row_pitch = 1ull << 40;
	ck_assert_int_eq(gw_window_check(&w, 40, 1ull << 42, NULL), 0);
	w.row_pitch = 1ull << 63;
	ck_assert_int_ne(gw_window_check(&w, 40, UINT64_MAX, NULL), 0);
}
END_TEST

TCase *engine_map_tests(void)
{
	TCase *t = tcase_create("map");

	tcase_add_loop_test(t, place_and_element_are_inverse, 0, 4);
	tcase_add_loop_test(t, tiles_of_any_view, 0, 4);
	tcase_add_test(t, what_is_refused);
	return t;
}
