#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/heap.h"
#include "base/hex.h"
#include "base/map.h"
#include "base/num.h"
#include "base/publish.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "unit.h"

START_TEST(errors_have_one_row_each)
{
	int seen[256] = {0};
#define GW_ERR(num, name, text, whose, retry) \
	ck_assert_int_lt(num, 0); \
	ck_assert_int_eq(seen[-(num)]++, 0); \
	ck_assert_str_eq(gw_err_text(GW_E##name), text); \
	ck_assert_str_eq(gw_err_name(GW_E##name), #name);
#include "base/err.def"
#undef GW_ERR
	ck_assert_str_eq(gw_err_text(-9999), "unknown error");
	ck_assert_int_eq(gw_err_from_errno(ENOSPC), GW_ENOSPACE);
	ck_assert_int_ne(gw_err_from_errno(0), 0);
	ck_assert_int_eq(gw_err_exit_code(GW_EBASE), 6);
	ck_assert_int_eq(gw_err_exit_code(GW_EMALFORMED), 1);
}
END_TEST

START_TEST(diag_keeps_the_innermost)
{
	struct gw_diag d = {""};

	ck_assert_int_eq(gw_diag_set(&d, GW_EIO, "inner %d", 1), GW_EIO);
	ck_assert_int_eq(gw_diag_set(&d, GW_EIO, "outer"), GW_EIO);
	ck_assert_int_eq(gw_diag_wrap(&d, GW_EIO, "file x"), GW_EIO);
	ck_assert_str_eq(d.text, "file x: inner 1");
	ck_assert_int_eq(gw_diag_set(NULL, GW_EIO, "nobody listens"), GW_EIO);
}
END_TEST

START_TEST(reader_is_bounded_and_sticky)
{
	const uint8_t b[] = {1, 2, 3, 4, 5};
	struct gw_rd r, sub;

	gw_rd_init(&r, b, sizeof b);
	ck_assert_uint_eq(gw_rd_u8(&r), 1);
	gw_rd_sub(&r, 2, &sub);
	ck_assert_uint_eq(gw_rd_u16(&sub), 0x0302);
	ck_assert_uint_eq(gw_rd_u8(&sub), 0);
	ck_assert_int_eq(sub.err, GW_ETRUNC);
	ck_assert_int_eq(gw_rd_end(&r), GW_ETRAILING);
	ck_assert_uint_eq(gw_rd_u32(&r), 0);
	ck_assert_uint_eq(gw_rd_u8(&r), 0); /* sticky, though a byte is left */
	ck_assert_int_eq(gw_rd_end(&r), GW_ETRUNC);
	ck_assert_ptr_null(gw_rd_bytes(&r, 0));
}
END_TEST

START_TEST(varints_round_trip_and_only_in_shortest_form)
{
	const uint64_t v[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX - 1, UINT64_MAX};
	const uint8_t bad[][11] = {{0x80, 0x00}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
				   {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}};
	struct gw_wr w;
	struct gw_rd r;

	gw_wr_init(&w, 4096);
	for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
		gw_wr_varint(&w, v[i]);
	ck_assert_int_eq(w.err, 0);
	gw_rd_init(&r, w.p, w.n);
	for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
		ck_assert_uint_eq(gw_rd_varint(&r), v[i]);
	ck_assert_int_eq(gw_rd_end(&r), 0);
	gw_wr_free(&w);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		gw_rd_init(&r, bad[i], sizeof bad[i]);
		(void)gw_rd_varint(&r);
		ck_assert_int_eq(r.err, GW_EMALFORMED);
	}
}
END_TEST

START_TEST(writer_stops_at_its_limit)
{
	struct gw_wr w;
	uint8_t *p;
	size_t n;

	gw_wr_init(&w, 10);
	gw_wr_u64(&w, 1);
	gw_wr_u16(&w, 2);
	ck_assert_int_eq(w.err, 0);
	gw_wr_u8(&w, 3);
	ck_assert_int_eq(w.err, GW_ELIMIT);
	ck_assert_int_eq(gw_wr_take(&w, &p, &n), GW_ELIMIT);
	ck_assert_ptr_null(p);
}
END_TEST

START_TEST(arena_has_a_limit)
{
	struct gw_arena a;

	gw_arena_init(&a, 1000);
	ck_assert_ptr_nonnull(gw_arena_alloc(&a, 0));
	ck_assert_ptr_nonnull(gw_arena_copy(&a, "abc", 3));
	ck_assert_ptr_null(gw_arena_alloc(&a, 1000));
	ck_assert_ptr_null(gw_arena_alloc(&a, SIZE_MAX));
	ck_assert_ptr_null(gw_arena_array(&a, SIZE_MAX, 2));
	gw_arena_reset(&a);
	ck_assert_ptr_nonnull(gw_arena_alloc(&a, 900));
	gw_arena_reset(&a);
}
END_TEST

START_TEST(heap_sorts_and_keeps_order_of_equals)
{
	struct gw_heap h;
	struct gw_rng rng;
	uint64_t last_when = 0, last_key = 0;

	gw_heap_init(&h);
	gw_rng_init(&rng, 7);
	for (uint64_t i = 0; i < 5000; i++)
		ck_assert_int_eq(gw_heap_push(&h, gw_rng_below(&rng, 50), i, NULL), 0);
	while (gw_heap_top(&h)) {
		struct gw_heap_item it = gw_heap_pop(&h);

		ck_assert_uint_ge(it.when_ns, last_when);
		if (it.when_ns == last_when)
			ck_assert(it.key >= last_key);
		last_when = it.when_ns;
		last_key = it.key;
	}
	gw_heap_free(&h);
}
END_TEST

START_TEST(map_agrees_with_an_array)
{
	enum { KEYS = 500 };
	static int values[KEYS];
	int present[KEYS] = {0};
	size_t count = 0, at = 0;
	struct gw_map m;
	struct gw_rng rng;

	gw_map_init(&m, 1);
	gw_rng_init(&rng, 3);
	for (int i = 0; i < 20000; i++) {
		uint32_t k = (uint32_t)gw_rng_below(&rng, KEYS);

		if (gw_rng_below(&rng, 2)) {
			ck_assert_int_eq(gw_map_put(&m, &k, sizeof k, &values[k], NULL), 0);
			count += !present[k];
			present[k] = 1;
		} else {
			ck_assert_ptr_eq(gw_map_del(&m, &k, sizeof k), present[k] ? &values[k] : NULL);
			count -= (size_t)present[k];
			present[k] = 0;
		}
		ck_assert_uint_eq(gw_map_count(&m), count);
	}
	for (uint32_t k = 0; k < KEYS; k++)
		ck_assert_ptr_eq(gw_map_get(&m, &k, sizeof k), present[k] ? &values[k] : NULL);
	while (gw_map_next(&m, &at))
		count--;
	ck_assert_uint_eq(count, 0);
	gw_map_free(&m, NULL);
}
END_TEST

START_TEST(hex_refuses_what_is_not_hex)
{
	uint8_t b[4];
	char t[9];

	ck_assert_int_eq(gw_unhex(b, 4, "00ff10Ab"), 0);
	ck_assert_str_eq(gw_hex(t, b, 4), "00ff10ab");
	ck_assert_int_eq(gw_unhex(b, 4, "00ff10a"), GW_EMALFORMED);
	ck_assert_int_eq(gw_unhex(b, 4, "00ff10abc"), GW_EMALFORMED);
	ck_assert_int_eq(gw_unhex(b, 4, "00ff10ag"), GW_EMALFORMED);
}
END_TEST

START_TEST(any_bytes_become_text)
{
	static const char odd[] = "a\xff\xc3\xa4\xe2\x82\xac\n\xf0\x9f";
	char out[16];

	ck_assert_uint_eq(gw_utf8_clean(out, sizeof out, odd), 10);
	ck_assert_str_eq(out, "a?\xc3\xa4\xe2\x82\xac???");
	for (size_t cap = 1; cap < sizeof out; cap++) {
		size_t n = gw_utf8_clean(out, cap, odd);

		ck_assert_uint_lt(n, cap);
		ck_assert_uint_eq(strlen(out), n);
		ck_assert(gw_utf8_ok(out, n)); /* never cut inside a character */
	}
}
END_TEST

START_TEST(paths)
{
	char *p = gw_path_dir("a/b/c");

	ck_assert_str_eq(p, "a/b");
	free(p);
	p = gw_path_dir("c");
	ck_assert_str_eq(p, ".");
	free(p);
	p = gw_path_dir("/c");
	ck_assert_str_eq(p, "/");
	free(p);
	ck_assert_str_eq(gw_path_base("a/b/c"), "c");
	ck_assert(!gw_path_is_plain(".."));
	ck_assert(!gw_path_is_plain("a/b"));
	ck_assert(!gw_path_is_plain(""));
	ck_assert(gw_path_is_plain("model.safetensors"));
}
END_TEST

START_TEST(rng_replays)
{
	struct gw_rng a, b;

	gw_rng_init(&a, 42);
	gw_rng_init(&b, 42);
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(gw_rng_u64(&a), gw_rng_u64(&b));
		ck_assert_uint_lt(gw_rng_below(&a, 7), 7);
		(void)gw_rng_below(&b, 7);
		ck_assert(gw_rng_unit(&a) < 1.0);
		(void)gw_rng_unit(&b);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("base");
	TCase *t = tcase_create("all");

	tcase_add_test(t, errors_have_one_row_each);
	tcase_add_test(t, diag_keeps_the_innermost);
	tcase_add_test(t, reader_is_bounded_and_sticky);
	tcase_add_test(t, varints_round_trip_and_only_in_shortest_form);
	tcase_add_test(t, writer_stops_at_its_limit);
	tcase_add_test(t, arena_has_a_limit);
	tcase_add_test(t, heap_sorts_and_keeps_order_of_equals);
	tcase_add_test(t, map_agrees_with_an_array);
	tcase_add_test(t, hex_refuses_what_is_not_hex);
	tcase_add_test(t, any_bytes_become_text);
	tcase_add_test(t, paths);
	tcase_add_test(t, rng_replays);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
