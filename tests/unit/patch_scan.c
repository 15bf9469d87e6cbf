/* The scan: every implementation against the obvious comparison, element by element. */
#include "patch/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "patch_file.h"

/* Two stretches of any alignment in memory of their own that ends where they end, so that a sanitizer sees the end. */
struct sides {
	uint8_t *old_memory, *new_memory, *old, *new_bits;
};

static void sides_init(struct sides *s, size_t bytes, size_t old_shift, size_t new_shift)
{
	s->old_memory = malloc(bytes + old_shift + 1);
	s->new_memory = malloc(bytes + new_shift + 1);
	/* The last byte of each is the stretch's last. */
	s->old = s->old_memory + old_shift + 1;
	s->new_bits = s->new_memory + new_shift + 1;
}

static void sides_free(struct sides *s)
{
	free(s->old_memory);
	free(s->new_memory);
}

static void fill(struct sides *s, struct gw_rng *rng, size_t n, unsigned width, unsigned per_mille)
{
	for (size_t i = 0; i < n * width; i++)
		s->old[i] = s->new_bits[i] = (uint8_t)gw_rng_u64(rng);
	for (size_t i = 0; i < n; i++) {
		if (gw_rng_below(rng, 1000) >= per_mille)
			continue;
		/* One bit, anywhere in it: no byte of an element is looked at less than another. */
		s->new_bits[i * width + gw_rng_below(rng, width)] ^= (uint8_t)(1 << gw_rng_below(rng, 8));
	}
}

/* Appends behind three changes that are there already. */
static void check_run(struct gw_changes_buf *b, const struct sides *s, size_t n, unsigned width, uint32_t base)
{
	size_t want = 3, got;

	memset(b->at, 0x5a, 3 * sizeof *b->at);
	memset(b->old_bits, 0x5a, 3 * (size_t)width);
	got = gw_scan_run(b, 3, s->old, s->new_bits, n, width, base);
	for (size_t i = 0; i < n; i++) {
		const uint8_t *o = s->old + i * width, *v = s->new_bits + i * width;

		if (!memcmp(o, v, width))
			continue;
		if (want >= got || b->at[want] != base + i || memcmp(b->old_bits + want * width, o, width) ||
		    memcmp(b->new_bits + want * width, v, width))
			ck_abort_msg("change %zu of %zu, at %zu, width %u", want, got, i, width);
		want++;
	}
	ck_assert_uint_eq(got, want);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_eq(b->at[i], 0x5a5a5a5a);
	for (size_t i = 0; i < 3 * (size_t)width; i++)
		ck_assert_uint_eq(b->old_bits[i], 0x5a);
}

static const unsigned densities[] = {0, 1, 3, 25, 300, 1000};
enum { DENSITIES = sizeof densities / sizeof densities[0] };

/* Lengths around the size of a vector and of a stretch of them, any alignment of either side. */
START_TEST(every_implementation_finds_the_same_changes)
{
	enum gw_scan_impl before = gw_scan_used();
	struct gw_changes_buf b;
	struct gw_rng rng;

	if (gw_scan_use((enum gw_scan_impl)_i))
		return;
	ck_assert_int_eq((int)gw_scan_used(), _i);
	gw_rng_init(&rng, test_seed());
	ck_assert_int_eq(gw_changes_buf_init(&b), 0);
	for (unsigned width = 1; width <= 8; width *= 2)
		for (unsigned round = 0; round < 20 * DENSITIES; round++) {
			static const size_t near[] = {0, 64, 128, 2048, 4096, 6000, 30000};
			size_t n = near[gw_rng_below(&rng, 7)] / width + gw_rng_below(&rng, 70);
			struct sides s;

			sides_init(&s, n * width, gw_rng_below(&rng, 64), gw_rng_below(&rng, 64));
			fill(&s, &rng, n, width, densities[round % DENSITIES]);
			check_run(&b, &s, n, width, (uint32_t)gw_rng_below(&rng, 1 << 18));
			sides_free(&s);
		}
	gw_changes_buf_free(&b);
	ck_assert_int_eq(gw_scan_use(before), 0);
}
END_TEST

/* A full tile in which all changes: the columns have just that room. */
START_TEST(a_full_tile_fits)
{
	enum gw_scan_impl before = gw_scan_used();
	struct gw_changes_buf b;
	struct sides s;

	if (gw_scan_use((enum gw_scan_impl)(_i / 4)))
		return;
	ck_assert_int_eq(gw_changes_buf_init(&b), 0);
	for (unsigned width = 1u << _i % 4, round = 0; round < 2; round++) {
		size_t bytes = (size_t)GW_TILE_ELEMENTS_MAX * width;

		sides_init(&s, bytes, round, 0);
		memset(s.old, 0, bytes);
		memset(s.new_bits, 1, bytes);
		ck_assert_uint_eq(gw_scan_run(&b, 0, s.old, s.new_bits, GW_TILE_ELEMENTS_MAX, width, 0),
				  GW_TILE_ELEMENTS_MAX);
		for (uint32_t i = 0; i < GW_TILE_ELEMENTS_MAX; i++)
			if (b.at[i] != i)
				ck_abort_msg("place %u is %u", i, b.at[i]);
		ck_assert_int_eq(memcmp(b.old_bits, s.old, bytes) | memcmp(b.new_bits, s.new_bits, bytes), 0);
		sides_free(&s);
	}
	gw_changes_buf_free(&b);
	ck_assert_int_eq(gw_scan_use(before), 0);
}
END_TEST

/* Rows of a tile that is narrower than its tensor. */
START_TEST(tiles_of_many_rows)
{
	enum gw_scan_impl before = gw_scan_used();
	struct gw_changes_buf b;
	struct gw_rng rng;

	if (gw_scan_use((enum gw_scan_impl)_i))
		return;
	gw_rng_init(&rng, test_seed());
	ck_assert_int_eq(gw_changes_buf_init(&b), 0);
	for (unsigned round = 0; round < 200; round++) {
		unsigned width = 1u << gw_rng_below(&rng, 4);
		uint64_t cols = 1 + gw_rng_below(&rng, 150), rows = 2 + gw_rng_below(&rng, 20);
		struct gw_tile_rect r = {.row0 = gw_rng_below(&rng, rows - 1), .col0 = gw_rng_below(&rng, cols)};
		struct gw_tile_changes c;
		struct sides s;
		size_t k = 0;

		r.rows = 1 + gw_rng_below(&rng, rows - r.row0);
		r.cols = 1 + gw_rng_below(&rng, cols - r.col0);
		r.tensor_cols = cols;
		sides_init(&s, rows * cols * width, round % 3, round % 5);
		fill(&s, &rng, rows * cols, width, densities[round % DENSITIES]);
		gw_scan_tile(&b, s.old, s.new_bits, width, &r, &c);
		for (uint32_t i = 0; i < r.rows * r.cols; i++) {
			uint64_t e = (r.row0 + i / r.cols) * cols + r.col0 + i % r.cols;

			if (!memcmp(s.old + e * width, s.new_bits + e * width, width))
				continue;
			ck_assert_uint_lt(k, c.n);
			ck_assert_uint_eq(c.at[k], i);
			ck_assert_mem_eq(c.old_bits + k * width, s.old + e * width, width);
			ck_assert_mem_eq(c.new_bits + k * width, s.new_bits + e * width, width);
			k++;
		}
		ck_assert_uint_eq(k, c.n);
		sides_free(&s);
	}
	gw_changes_buf_free(&b);
	ck_assert_int_eq(gw_scan_use(before), 0);
}
END_TEST

TCase *patch_scan_case(void)
{
	TCase *t = tcase_create("scan");

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, every_implementation_finds_the_same_changes, 0, 3);
	tcase_add_loop_test(t, a_full_tile_fits, 0, 12);
	tcase_add_loop_test(t, tiles_of_many_rows, 0, 3);
	return t;
}
