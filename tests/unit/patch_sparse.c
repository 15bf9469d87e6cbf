#include "patch/sparse.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "patch/body.h"
#include "patch/scan.h"
#include "patch_file.h"

static const enum gw_dtype dtypes[] = {
#define GW_DTYPE(name, number, bits, class) GW_DT_##name,
#include "weights/dtype.def"
#undef GW_DTYPE
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

START_TEST(lengths_make_a_code)
{
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	for (int round = 0; round < 2000; round++) {
		unsigned n = 1 + (unsigned)gw_rng_below(&rng, GW_PREFIX_SYMBOLS_MAX), used = 0;
		uint64_t count[GW_PREFIX_SYMBOLS_MAX] = {0}, steep = gw_rng_below(&rng, 50);
		uint8_t len[GW_PREFIX_SYMBOLS_MAX];
		uint16_t table[1 << GW_PREFIX_BITS], code[GW_PREFIX_SYMBOLS_MAX];

		for (unsigned i = 0; i < n; i++) {
			count[i] = gw_rng_below(&rng, 3)
					   ? (gw_rng_u64(&rng) & ((1ull << 50) - 1)) >> gw_rng_below(&rng, steep + 1)
					   : 0;
			used += count[i] > 0;
		}
		gw_prefix_lengths(count, n, len);
		ck_assert_int_eq(gw_prefix_codes(len, n, code), 0);
		ck_assert_int_eq(gw_prefix_table(len, n, table), 0);
		for (unsigned i = 0; i < n; i++) {
			ck_assert_int_eq(len[i] > 0, count[i] > 0);
			if (len[i])
				ck_assert_uint_eq(table[code[i]], len[i] | i << 4);
			for (unsigned k = 0; k < i; k++)
				if (count[k] > count[i] && used > 1 && count[i])
					ck_assert_uint_le(len[k], len[i]);
		}
	}
}
END_TEST

START_TEST(lengths_are_minimal_where_short)
{
	/* Known by hand: 1 1 2 4 8 gives 4 4 3 2 1. */
	const uint64_t count[] = {8, 1, 4, 2, 1};
	const uint8_t want[] = {1, 4, 2, 3, 4};
	uint8_t len[5];

	gw_prefix_lengths(count, 5, len);
	ck_assert_mem_eq(len, want, 5);
}
END_TEST

START_TEST(lengths_that_are_no_code_are_refused)
{
	const uint8_t over[] = {1, 1, 1}, under[] = {2, 2, 2}, alone[] = {0, 2}, ok[] = {0, 1}, none[] = {0, 0},
		      long_[] = {13, 1};
	uint16_t code[3];

	ck_assert_int_eq(gw_prefix_codes(over, 3, code), GW_EMALFORMED);
	ck_assert_int_eq(gw_prefix_codes(under, 3, code), GW_EMALFORMED);
	ck_assert_int_eq(gw_prefix_codes(alone, 2, code), GW_EMALFORMED);
	ck_assert_int_eq(gw_prefix_codes(long_, 2, code), GW_EMALFORMED);
	ck_assert_int_eq(gw_prefix_codes(ok, 2, code), 0);
	ck_assert_int_eq(gw_prefix_codes(none, 2, code), 0);
}
END_TEST

struct tile {
	unsigned width;
	uint32_t n;
	uint8_t *old, *new_bits;
	struct gw_changes_buf changes, decoded;
	struct gw_tile_changes c;
	uint8_t *payload;
};

static void tile_init(struct tile *t, uint32_t n)
{
	t->n = n;
	t->old = malloc((size_t)n * 8);
	t->new_bits = malloc((size_t)n * 8);
	t->payload = malloc((size_t)n * 16 + 64);
	ck_assert_int_eq(gw_changes_buf_init(&t->changes), 0);
	ck_assert_int_eq(gw_changes_buf_init(&t->decoded), 0);
}

static void tile_free(struct tile *t)
{
	free(t->old);
	free(t->new_bits);
	free(t->payload);
	gw_changes_buf_free(&t->changes);
	gw_changes_buf_free(&t->decoded);
}

/* Random old bits; one element in `every` gets other bits, of which `wild` in 16 are any, the rest ±1 step. */
static void tile_fill(struct tile *t, struct gw_rng *rng, enum gw_dtype dtype, uint64_t every, unsigned wild)
{
	struct gw_tile_rect r = {0, 1, 0, t->n, t->n};

	t->width = gw_dtype_width(dtype);
	for (uint32_t i = 0; i < t->n; i++) {
		uint64_t o = gw_rng_u64(rng), v = o;

		if (!gw_rng_below(rng, every))
			v = gw_rng_below(rng, 16) < wild ? gw_rng_u64(rng) : gw_rng_below(rng, 2) ? o + 1 : o - 1;
		gw_element_store(t->old + (size_t)i * t->width, t->width, o);
		gw_element_store(t->new_bits + (size_t)i * t->width, t->width, v);
	}
	gw_scan_tile(&t->changes, t->old, t->new_bits, t->width, &r, &t->c);
}

static void check_round_trip(struct tile *t, enum gw_dtype dtype)
{
	static struct gw_code code, read;
	struct gw_code_counts counts = {0};
	struct gw_wr w;
	struct gw_rd r;
	size_t size, got;

	(void)gw_sparse_count(&counts, dtype, &t->c);
	gw_code_make(&code, dtype, &counts);
	gw_wr_init(&w, 4096);
	gw_code_write(&code, &w);
	gw_rd_init(&r, w.p, w.n);
	ck_assert_uint_eq(gw_rd_u8(&r), dtype);
	ck_assert_int_eq(gw_code_read(&read, dtype, &r), 0);
	ck_assert_int_eq(gw_rd_end(&r), 0);
	gw_wr_free(&w);
	size = gw_sparse_size(&code, &t->c);
	ck_assert_uint_le(size, (size_t)t->n * 16 + 64);
	gw_sparse_write(&code, &t->c, t->payload);
	ck_assert_int_eq(gw_sparse_read(&read, t->payload, size, t->old, t->n, t->decoded.at, t->decoded.old_bits,
					t->decoded.new_bits, &got),
			 0);
	ck_assert_uint_eq(got, t->c.n);
	ck_assert_mem_eq(t->decoded.at, t->c.at, got * sizeof *t->c.at);
	ck_assert_mem_eq(t->decoded.old_bits, t->c.old_bits, got * t->width);
	ck_assert_mem_eq(t->decoded.new_bits, t->c.new_bits, got * t->width);
	/* A payload that is longer or shorter is refused. */
	t->payload[size] = 0;
	ck_assert_int_ne(gw_sparse_read(&read, t->payload, size + 1, t->old, t->n, t->decoded.at, t->decoded.old_bits,
					t->decoded.new_bits, &got),
			 0);
	ck_assert_int_ne(gw_sparse_read(&read, t->payload, size - 1, t->old, t->n, t->decoded.at, t->decoded.old_bits,
					t->decoded.new_bits, &got),
			 0);
}

START_TEST(sparse_round_trips_for_every_dtype_and_density)
{
	static const uint64_t every[] = {5000, 300, 20, 2, 1};
	enum gw_dtype dtype = dtypes[_i];
	struct gw_rng rng;
	struct tile t;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	tile_init(&t, 20011);
	for (size_t k = 0; k < sizeof every / sizeof every[0]; k++)
		for (unsigned wild = 0; wild <= 16; wild += 8) {
			tile_fill(&t, &rng, dtype, every[k], wild);
			if (t.c.n)
				check_round_trip(&t, dtype);
		}
	tile_free(&t);
}
END_TEST

/* NaN payloads, both zeros, infinities, the ends of every range: all pairs of odd values. */
START_TEST(sparse_round_trips_odd_values)
{
	static const uint64_t odd[] = {0,
				       1,
				       0x7f,
				       0x80,
				       0xff,
				       0x7f80,
				       0x7fff,
				       0x8000,
				       0xff80,
				       0xffff,
				       0x7f800001,
				       0x7fffffff,
				       0x80000000,
				       0xffffffff,
				       0x7ff0000000000001,
				       0x7fffffffffffffff,
				       0x8000000000000000,
				       0xffffffffffffffff};
	enum { N = sizeof odd / sizeof odd[0] };
	enum gw_dtype dtype = dtypes[_i];
	unsigned width = gw_dtype_width(dtype);
	struct gw_tile_rect r = {0, 1, 0, (uint64_t)N * N, (uint64_t)N * N};
	struct tile t;

	tile_init(&t, N * N);
	t.width = width;
	for (size_t i = 0; i < (size_t)N * N; i++) {
		gw_element_store(t.old + i * width, width, odd[i / N]);
		gw_element_store(t.new_bits + i * width, width, odd[i % N]);
	}
	gw_scan_tile(&t.changes, t.old, t.new_bits, width, &r, &t.c);
	check_round_trip(&t, dtype);
	tile_free(&t);
}
END_TEST

/* Any bytes as a payload, and any lengths as a code, are refused or decode to changes inside the tile. */
START_TEST(sparse_takes_any_bytes)
{
	static struct gw_code code;
	struct gw_rng rng;
	struct tile t;
	int wrong = 0;

	gw_rng_init(&rng, test_seed());
	tile_init(&t, 5000);
	tile_fill(&t, &rng, GW_DT_BF16, 10, 4);
	check_round_trip(&t, GW_DT_BF16);
	for (int round = 0; round < 20000; round++) {
		struct gw_code_counts counts = {0};
		size_t size, got;

		if (round % 500 == 0) {
			(void)gw_sparse_count(&counts, GW_DT_BF16, &t.c);
			gw_code_make(&code, GW_DT_BF16, &counts);
			ck_assert_int_eq(gw_prefix_table(code.place_len, GW_PLACE_SYMBOLS, code.place_table), 0);
			ck_assert_int_eq(gw_prefix_table(code.step_len, 30, code.step_table), 0);
		}
		size = gw_sparse_size(&code, &t.c);
		gw_sparse_write(&code, &t.c, t.payload);
		size = gw_rng_below(&rng, 4) ? size : gw_rng_below(&rng, size);
		for (uint64_t k = gw_rng_below(&rng, 4) ? 1 : size / 2; size && k-- > 0;)
			t.payload[gw_rng_below(&rng, size)] ^= (uint8_t)(1 << gw_rng_below(&rng, 8));
		if (gw_sparse_read(&code, t.payload, size, t.old, t.n, t.decoded.at, t.decoded.old_bits,
				   t.decoded.new_bits, &got))
			continue;
		for (size_t i = 0; i < got; i++)
			wrong += t.decoded.at[i] >= t.n || (i && t.decoded.at[i] <= t.decoded.at[i - 1]) ||
				 !memcmp(t.decoded.old_bits + i * 2, t.decoded.new_bits + i * 2, 2);
	}
	ck_assert_int_eq(wrong, 0);
	tile_free(&t);
}
END_TEST

START_TEST(bodies_take_the_shortest_form)
{
	static struct gw_code code;
	struct gw_packer *k;
	struct gw_unpacker *u;
	struct gw_rng rng;
	struct tile t;
	uint8_t *body = malloc(200000 + GW_BODY_EXTRA), *out = malloc(200000);

	gw_rng_init(&rng, test_seed());
	ck_assert_int_eq(gw_packer_new(&k), 0);
	ck_assert_int_eq(gw_unpacker_new(&u), 0);
	tile_init(&t, 100000);
	for (unsigned i = 0; i < 4; i++) {
		/* sparse; all new and random; all new and small numbers; the same in bytes */
		static const enum gw_patch_mode want[] = {GW_MODE_SPARSE, GW_MODE_RAW, GW_MODE_PLANES, GW_MODE_ZSTD};
		enum gw_dtype dtype = i == 3 ? GW_DT_U8 : GW_DT_BF16;
		struct gw_code_counts counts = {0};
		struct gw_tile_rect r;
		const uint8_t *payload, *raw;
		enum gw_patch_mode mode;
		size_t size, bytes, n;

		tile_fill(&t, &rng, dtype, i ? 1 : 100, i ? 16 : 1);
		n = (size_t)t.n * t.width;
		for (size_t b = 0; i > 1 && b < n; b++)
			t.new_bits[b] &= i == 2 && b % 2 ? 1 : i == 3 ? 15 : 255;
		r = (struct gw_tile_rect){0, 1, 0, t.n, t.n};
		gw_scan_tile(&t.changes, t.old, t.new_bits, t.width, &r, &t.c);
		(void)gw_sparse_count(&counts, dtype, &t.c);
		gw_code_make(&code, dtype, &counts);
		ck_assert_int_eq(gw_body_pack_tile(k, &code, &t.c, t.new_bits, n, t.width, body, &size), 0);
		ck_assert_uint_le(size, n + GW_BODY_EXTRA);
		ck_assert_int_eq(gw_body_open(body, size, &mode, &payload, &bytes), 0);
		ck_assert_int_eq(mode, want[i]);
		if (mode != GW_MODE_SPARSE) {
			ck_assert_int_eq(gw_body_unpack(u, mode, payload, bytes, n, t.width, out, &raw), 0);
			ck_assert_mem_eq(raw, t.new_bits, n);
			ck_assert_int_ne(gw_body_unpack(u, mode, payload, bytes - 1, n, t.width, out, &raw), 0);
			ck_assert_int_ne(gw_body_unpack(u, mode, payload, bytes, n - t.width, t.width, out, &raw), 0);
		}
		for (int flip = 0; flip < 100; flip++) {
			uint64_t at = gw_rng_below(&rng, size * 8);

			body[at / 8] ^= (uint8_t)(1 << at % 8);
			ck_assert_int_eq(gw_body_open(body, size, &mode, &payload, &bytes), GW_EDIGEST);
			body[at / 8] ^= (uint8_t)(1 << at % 8);
		}
	}
	tile_free(&t);
	gw_packer_free(k);
	gw_unpacker_free(u);
	free(body);
	free(out);
}
END_TEST

TCase *patch_sparse_case(void)
{
	TCase *t = tcase_create("sparse");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, lengths_make_a_code);
	tcase_add_test(t, lengths_are_minimal_where_short);
	tcase_add_test(t, lengths_that_are_no_code_are_refused);
	tcase_add_loop_test(t, sparse_round_trips_for_every_dtype_and_density, 0, DTYPES);
	tcase_add_loop_test(t, sparse_round_trips_odd_values, 0, DTYPES);
	tcase_add_test(t, sparse_takes_any_bytes);
	tcase_add_test(t, bodies_take_the_shortest_form);
	return t;
}
