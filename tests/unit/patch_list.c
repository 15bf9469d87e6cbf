/*
 * The staged list: against a naive model, and against hostile bytes. Reading back is by tests/py/list_ref.py too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "patch/list.h"
#include "tests/apply/lists.h"
#include "unit.h"

static int check(const struct lists *l, const void *p, size_t n)
{
	return gw_list_check(p, n, l->bytes, LISTS_SEGMENTS, NULL);
}

START_TEST(holds_what_was_added)
{
	struct lists l;

	for (unsigned round = 0; round < 20; round++) {
		size_t seen = 0;

		lists_make(&l, unit_seed() + round, 20000 * (round % 4 == 0) + 500);
		ck_assert_int_eq(check(&l, l.h, l.h->bytes), 0);
		ck_assert_uint_eq(l.h->records, l.n);
		ck_assert_int_eq(gw_list_state(l.h), GW_LIST_STAGED);
		for (uint32_t i = 0; i < l.h->run_count; i++) {
			struct gw_list_part part;
			uint64_t place;

			ck_assert_int_eq(gw_list_part(l.h, i, &part), 0);
			place = part.base;
			for (unsigned k = 0; k < part.count; k++, seen++) {
				const struct lists_record *want = &l.records[seen];

				place += (uint64_t)gw_le16(part.gaps + 2 * k) * part.width;
				ck_assert_uint_eq(place, want->at);
				ck_assert_uint_eq(part.segment, want->segment);
				ck_assert_uint_eq(part.width, want->width);
				ck_assert_mem_eq(part.old_bits + k * part.width, want->old_bits, part.width);
				ck_assert_mem_eq(part.new_bits + k * part.width, want->new_bits, part.width);
			}
		}
		ck_assert_uint_eq(seen, l.n);
		lists_free(&l);
	}
}
END_TEST

START_TEST(an_empty_list_is_fine)
{
	struct lists l;

	lists_make(&l, 1, 0);
	ck_assert_int_eq(check(&l, l.h, l.h->bytes), 0);
	ck_assert_uint_eq(l.h->bytes, sizeof *l.h);
	lists_free(&l);
}
END_TEST

START_TEST(truncation_at_every_byte_is_refused)
{
	struct lists l;

	lists_make(&l, unit_seed(), 60);
	for (size_t n = 0; n < l.h->bytes; n++) {
		/* An allocation of the exact size, so that a sanitizer sees any read behind it. */
		void *p = malloc(n ? n : 1);

		memcpy(p, l.h, n);
		ck_assert_int_ne(check(&l, p, n), 0);
		free(p);
	}
	lists_free(&l);
}
END_TEST

START_TEST(every_flipped_bit_is_refused)
{
	struct lists l;
	uint8_t *p;
	size_t n;

	lists_make(&l, unit_seed(), 40);
	p = (uint8_t *)l.h;
	n = l.h->bytes;
	for (size_t i = 0; i < 8 * n; i++) {
		size_t state = offsetof(struct gw_list_header, state);
		uint32_t s;

		p[i / 8] ^= (uint8_t)(1 << i % 8);
		memcpy(&s, p + state, sizeof s);
		/* The state word is outside of the sum: another state of a finished list is a list. */
		if (s == GW_LIST_STAGED || s == GW_LIST_BUILDING || s > GW_LIST_UNDONE)
			ck_assert_int_ne(check(&l, p, n), 0);
		p[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	ck_assert_int_eq(check(&l, p, n), 0);
	lists_free(&l);
}
END_TEST

/* Flips with the sum made good again: the structure is checked by itself, and an accepted list is one that can be
 * walked inside its bounds. */
START_TEST(hostile_lists_are_refused_or_sound)
{
	struct lists l;
	struct gw_rng r;
	unsigned accepted = 0, refused = 0;

	gw_rng_init(&r, unit_seed());
	lists_make(&l, unit_seed(), 30);
	for (int round = 0; round < 20000; round++) {
		size_t n = l.h->bytes;
		uint8_t *p = malloc(n);
		struct gw_list_header *h = (struct gw_list_header *)p;
		int err;

		memcpy(p, l.h, n);
		for (uint64_t k = gw_rng_below(&r, 3) + 1; k; k--) {
			size_t at = gw_rng_below(&r, 3) ? gw_rng_below(&r, n) : h->runs_at % n;
			p[gw_rng_below(&r, 2) ? at : gw_rng_below(&r, sizeof *h)] ^=
				(uint8_t)(1 << gw_rng_below(&r, 8));
		}
		if (h->bytes <= n && h->bytes >= sizeof *h)
			lists_seal(h);
		err = check(&l, p, n);
		if (err)
			refused++;
		else
			accepted++;
		for (uint32_t i = 0; !err && i < h->run_count; i++) {
			struct gw_list_part part;

			ck_assert_int_eq(gw_list_part(h, i, &part), 0);
			ck_assert(part.new_bits + (size_t)part.count * part.width <= p + n);
			ck_assert_uint_lt(part.segment, LISTS_SEGMENTS);
		}
		free(p);
	}
	ck_assert_uint_gt(accepted, 100); /* changed bits, versions, … */
	ck_assert_uint_gt(refused, 1000);
	lists_free(&l);
}
END_TEST

static int add_at(struct gw_list_build *b, uint32_t segment, unsigned width, uint64_t at)
{
	static const uint8_t zero[8], one[8] = {1};

	return gw_list_add(b, segment, width, &at, zero, one, 1);
}

START_TEST(a_byte_named_twice_is_refused)
{
	static const struct {
		uint32_t segment;
		unsigned width;
		uint64_t at;
		int err;
	} again[] = {
		{0, 2, 100, GW_EDUPLICATE},
		{0, 1, 101, GW_EDUPLICATE},
		{0, 4, 98, GW_EDUPLICATE},
		{0, 8, 93, GW_EDUPLICATE},
		{0, 2, 104, GW_EDUPLICATE},
		{0, 2, 102, 0},
		{1, 2, 100, 0},
		{0, 1, 99, 0},
	};

	for (size_t i = 0; i < sizeof again / sizeof again[0]; i++) {
		struct lists_memory m = {0};
		struct gw_list_build *b;
		const struct gw_list_header *h;
		struct gw_diag why = {""};

		ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), (uint8_t[16]){0}, 1, 2, 1 << 20), 0);
		ck_assert_int_eq(add_at(b, 0, 2, 100), 0);
		ck_assert_int_eq(add_at(b, 0, 2, 104), 0);
		ck_assert_int_eq(add_at(b, 0, 2, 50), 0);
		ck_assert_int_eq(add_at(b, again[i].segment, again[i].width, again[i].at), 0);
		ck_assert_int_eq(gw_list_finish(b, &h, &why), again[i].err);
		ck_assert_int_eq(gw_list_state((void *)m.p), again[i].err ? GW_LIST_BUILDING : GW_LIST_STAGED);
		if (again[i].err)
			ck_assert_ptr_nonnull(strstr(why.text, "named twice"));
		gw_list_build_free(b);
		free(m.p);
	}
}
END_TEST

START_TEST(the_builder_refuses_what_it_must)
{
	struct lists_memory m = {0};
	struct gw_list_build *b;
	const struct gw_list_header *h;
	const uint64_t falling[2] = {8, 4}, close[2] = {8, 11};
	const uint8_t bits[16] = {0};

	ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), (uint8_t[16]){0}, 1, 2, 50), GW_ELIMIT);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), (uint8_t[16]){0}, 1, 2, 300), 0);
		if (i == 0)
			ck_assert_int_eq(gw_list_add(b, 0, 4, falling, bits, bits, 2), GW_EINVAL);
		if (i == 1)
			ck_assert_int_eq(gw_list_add(b, 0, 4, close, bits, bits, 2), GW_EINVAL);
		if (i == 2)
			ck_assert_int_eq(add_at(b, 0, 3, 0), GW_EINVAL);
		if (i == 3)
			ck_assert_int_eq(add_at(b, 0, 8, UINT64_MAX - 3), GW_EINVAL);
		for (uint64_t k = 0; i == 4 && k < 20; k++)
			(void)add_at(b, 0, 1, k * 100000);
		ck_assert_int_eq(gw_list_finish(b, &h, NULL), i == 4 ? GW_ELIMIT : GW_EINVAL);
		ck_assert_int_eq(gw_list_state((void *)m.p), GW_LIST_BUILDING);
		gw_list_build_free(b);
	}
	ck_assert_uint_le(m.n, 300);
	m.fail = 1;
	free(m.p);
	m.p = NULL;
	ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), (uint8_t[16]){0}, 1, 2, 300), GW_ENOMEM);
}
END_TEST

/* A gap that does not fit starts a run; so do another segment, another width, another alignment, and the 4097th record.
 */
START_TEST(runs_are_cut_where_they_must_be)
{
	static const struct {
		uint64_t at[2];
		uint32_t segment;
		unsigned width;
		uint32_t runs;
	} rows[] = {
		{{10, 10 + 65535 * 2}, 0, 2, 1},
		{{10, 10 + 65536 * 2}, 0, 2, 2},
		{{10, 13}, 0, 2, 2},
		{{10, 12}, 1, 2, 2},
		{{10, 12}, 0, 4, 2},
		{{10, 2}, 0, 2, 2},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct lists_memory m = {0};
		struct gw_list_build *b;
		const struct gw_list_header *h;
		const uint64_t bytes[2] = {1 << 20, 1 << 20};

		ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), (uint8_t[16]){0}, 1, 2, 1 << 20), 0);
		ck_assert_int_eq(add_at(b, 0, 2, rows[i].at[0]), 0);
		ck_assert_int_eq(add_at(b, rows[i].segment, rows[i].width, rows[i].at[1]), 0);
		ck_assert_int_eq(gw_list_finish(b, &h, NULL), 0);
		ck_assert_uint_eq(h->run_count, rows[i].runs);
		ck_assert_int_eq(gw_list_check(h, h->bytes, bytes, 2, NULL), 0);
		gw_list_build_free(b);
		free(m.p);
	}
}
END_TEST

START_TEST(full_runs_are_closed)
{
	struct lists_memory m = {0};
	struct gw_list_build *b;
	const struct gw_list_header *h;
	const uint64_t bytes = 5000;

	ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), (uint8_t[16]){0}, 1, 2, 1 << 20), 0);
	for (uint64_t at = 0; at < GW_LIST_RUN_MAX + 1; at++)
		ck_assert_int_eq(add_at(b, 0, 1, at), 0);
	ck_assert_int_eq(gw_list_finish(b, &h, NULL), 0);
	ck_assert_uint_eq(h->run_count, 2);
	ck_assert_uint_eq(gw_list_runs(h)[0].count, GW_LIST_RUN_MAX);
	ck_assert_int_eq(gw_list_check(h, h->bytes, &bytes, 1, NULL), 0);
	gw_list_build_free(b);
	free(m.p);
}
END_TEST

START_TEST(states_move_as_the_header_says)
{
	/* from × to */
	static const uint8_t may[6][6] = {
		{0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 1, 0}, {0, 0, 0, 1, 1, 0},
		{0, 0, 0, 0, 1, 0}, {0, 0, 1, 0, 0, 1}, {0, 0, 1, 0, 0, 0},
	};
	struct lists l;

	lists_make(&l, 1, 3);
	for (unsigned from = 0; from < 6; from++)
		for (unsigned to = 0; to < 6; to++) {
			l.h->state = from;
			ck_assert_int_eq(gw_list_set_state(l.h, (enum gw_list_state)to), may[from][to] ? 0 : GW_ESTATE);
			ck_assert_uint_eq(l.h->state, may[from][to] ? to : from);
		}
	l.h->state = 77;
	ck_assert_int_eq(gw_list_state(l.h), GW_LIST_BUILDING);
	lists_free(&l);
}
END_TEST

START_TEST(worked_bytes_of_the_page)
{
	static const uint8_t page[] = {
		0x47, 0x57, 0x4c, 0x49, 0x53, 0x54, 0x31, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
		0x29, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x2a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x02, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x87, 0xaa, 0x53, 0x3c, 0xef, 0xdd, 0x4c, 0x0a, 0xe9, 0xe5, 0x66, 0x00, 0xb5, 0x87, 0x37, 0x48,
		0x00, 0x00, 0x01, 0x00, 0xff, 0x0f, 0x00, 0x00, 0x80, 0x3f, 0x81, 0x3f, 0x80, 0xbf, 0x00, 0x00,
		0x81, 0x3f, 0x80, 0x3f, 0x7f, 0xbf, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x38, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x39, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x60, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x02, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x78, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00,
	};
	struct lists_memory m = {0};
	struct gw_list_build *b;
	const struct gw_list_header *h;
	const uint64_t at[3] = {0x1000, 0x1002, 0x3000};
	const uint16_t old_bits[3] = {0x3f80, 0x3f81, 0xbf80}, new_bits[3] = {0x3f81, 0x3f80, 0xbf7f};
	const uint8_t run[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, was = 0x38, is = 0x39;
	const uint64_t byte_at = 7;

	ck_assert_int_eq(gw_list_build_new(&b, lists_mem(&m), run, 41, 42, 1 << 20), 0);
	ck_assert_int_eq(gw_list_add(b, 0, 2, at, old_bits, new_bits, 3), 0);
	ck_assert_int_eq(gw_list_add(b, 2, 1, &byte_at, &was, &is, 1), 0);
	ck_assert_int_eq(gw_list_finish(b, &h, NULL), 0);
	ck_assert_uint_eq(h->bytes, sizeof page);
	ck_assert_mem_eq(h, page, sizeof page);
	gw_list_build_free(b);
	free(m.p);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("patch: staged list");
	TCase *c = tcase_create("list");

	tcase_add_test(c, holds_what_was_added);
	tcase_add_test(c, an_empty_list_is_fine);
	tcase_add_test(c, truncation_at_every_byte_is_refused);
	tcase_add_test(c, every_flipped_bit_is_refused);
	tcase_add_test(c, hostile_lists_are_refused_or_sound);
	tcase_add_test(c, a_byte_named_twice_is_refused);
	tcase_add_test(c, the_builder_refuses_what_it_must);
	tcase_add_test(c, runs_are_cut_where_they_must_be);
	tcase_add_test(c, full_runs_are_closed);
	tcase_add_test(c, states_move_as_the_header_says);
	tcase_add_test(c, worked_bytes_of_the_page);
	tcase_set_timeout(c, 60);
	suite_add_tcase(s, c);
	return s;
}

UNIT_MAIN(suite)
