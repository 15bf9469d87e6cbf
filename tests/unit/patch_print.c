/*
 * Fingerprints: worked values of proto/FINGERPRINT.md, vector loops against the scalar one, and what escapes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "patch/fingerprint.h"
#include "unit.h"

static const unsigned widths[] = {1, 2, 4, 8};

static void fill(struct gw_rng *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)gw_rng_u64(r);
}

/* The page's definition, unit by unit. */
static void naive(uint64_t lane[2], unsigned width, uint64_t first, const uint8_t *p, uint64_t n)
{
	unsigned units = width == 8 ? 2 : 1, uw = width / units;

	for (uint64_t i = 0; i < n * units; i++) {
		uint32_t bits = 0;

		for (unsigned b = 0; b < uw; b++)
			bits |= (uint32_t)p[i * uw + b] << 8 * b;
		for (unsigned l = 0; l < 2; l++)
			lane[l] += gw_print_key(l, first * units + i) * bits;
	}
}

static void ck_print(const uint64_t lane[2], const char *text)
{
	char got[GW_PRINT_TEXT];
	uint64_t back[2];

	gw_print_text(got, lane);
	ck_assert_str_eq(got, text);
	ck_assert_int_eq(gw_print_parse(text, back), 0);
	ck_assert(back[0] == lane[0] && back[1] == lane[1]);
}

START_TEST(worked_values_of_the_page)
{
	static const struct {
		unsigned width;
		uint64_t first, n;
		const char *text;
	} rows[] = {
		{1, 0, 16, "d42d2c69d9de9eca55cc21892331794c"},	  {2, 0, 8, "4a7a4610fa1b316a670a80e27c39ce0c"},
		{4, 0, 4, "443a99f43b20b310b937ea6982cbb090"},	  {8, 0, 2, "443a99f43b20b310b937ea6982cbb090"},
		{1, 0, 5000, "e7386fa7888e53962f45824f1cf1c7a6"}, {2, 0, 2500, "6b751bdc3341830c298f33094c5d567e"},
		{2, 1022, 4, "f4a02ac2028926feac6b3a23ae8a04aa"}, {8, 511, 2, "952d8c35660e3b7a98aafef907a812fa"},
	};
	uint8_t data[5000];

	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7 + 3);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uint64_t lane[2] = {0, 0};

		gw_print_run(lane, rows[i].width, rows[i].first, data, rows[i].n);
		ck_print(lane, rows[i].text);
	}
	ck_assert_uint_eq(gw_print_block_key(0, 0), 0x96e422e6b28ded23);
	ck_assert_uint_eq(gw_print_block_key(1, 1), 0x62a18c7a78b39097);
	ck_assert_uint_eq(gw_print_block_key(0, (uint64_t)1 << 40), 0xaf29206719f28fe3);
	ck_assert_uint_eq(gw_print_offset_keys(1)[1023], 0x685840a740ec3251);
	ck_assert_uint_eq(gw_print_key(0, 1025), 0xe3ba427bd3c5a8a7);
}
END_TEST

START_TEST(model_is_a_sum_over_tensors)
{
	const uint64_t shape[2] = {2, 4}, zero[2] = {0, 0};
	uint64_t a[2], b[2] = {0, 0}, model[2] = {0, 0}, other[2] = {0, 0};
	uint8_t data[4] = {3, 10, 17, 24};

	ck_assert_int_eq(gw_print_parse("4a7a4610fa1b316a670a80e27c39ce0c", a), 0);
	gw_print_run(b, 4, 0, data, 1);
	gw_model_print_add(model, "a.weight", "BF16", 2, shape, a);
	ck_print(model, "5b1eba7e1e469ffb23ebb2febc21f06d");
	gw_model_print_add(model, "b.scale", "F32", 0, NULL, b);
	ck_print(model, "00ea22e9019ebaccb3725b54812aaa94");
	gw_model_print_add(other, "b.scale", "F32", 0, NULL, b);
	ck_print(other, "a5cb686ae3581ad18f86a855c508ba27");
	gw_model_print_add(other, "a.weight", "BF16", 2, shape, zero);
	gw_model_print_remove(other, "a.weight", "BF16", 2, shape, zero);
	gw_model_print_add(other, "a.weight", "BF16", 2, shape, a);
	ck_assert_mem_eq(model, other, sizeof model);
}
END_TEST

START_TEST(text_is_strict)
{
	uint64_t lane[2] = {7, 7};

	ck_assert_int_eq(gw_print_parse("", lane), GW_EMALFORMED);
	ck_assert_int_eq(gw_print_parse("4a7a4610fa1b316a670a80e27c39ce0", lane), GW_EMALFORMED);
	ck_assert_int_eq(gw_print_parse("4a7a4610fa1b316a670a80e27c39ce0c0", lane), GW_EMALFORMED);
	ck_assert_int_eq(gw_print_parse("4A7a4610fa1b316a670a80e27c39ce0c", lane), GW_EMALFORMED);
	ck_assert_int_eq(gw_print_parse("4a7a4610fa1b316a670a80e27c39ce g", lane), GW_EMALFORMED);
	ck_assert(lane[0] == 7 && lane[1] == 7);
}
END_TEST

START_TEST(all_instruction_sets_agree)
{
	static uint8_t data[40000];
	struct gw_rng r;
	enum gw_print_impl best = gw_print_used();

	gw_rng_init(&r, unit_seed());
	fill(&r, data, sizeof data);
	memset(data + 9000, 0xff, 12000); /* the largest sums */
	for (int round = 0; round < 400; round++) {
		unsigned width = widths[gw_rng_below(&r, 4)];
		uint64_t first = gw_rng_below(&r, 4) ? gw_rng_below(&r, 5000) : gw_rng_u64(&r) >> 3;
		size_t at = gw_rng_below(&r, 20000);
		uint64_t n = gw_rng_below(&r, gw_rng_below(&r, 3) ? 200 : (sizeof data - at) / width);
		uint64_t want[2] = {1, 2};

		naive(want, width, first, data + at, n);
		for (int impl = GW_PRINT_SCALAR; impl <= GW_PRINT_AVX512; impl++) {
			uint64_t got[2] = {1, 2};

			if (gw_print_use((enum gw_print_impl)impl))
				continue;
			gw_print_run(got, width, first, data + at, n);
			ck_assert_msg(!memcmp(got, want, sizeof want), "impl %d width %u first %llu n %llu", impl,
				      width, (unsigned long long)first, (unsigned long long)n);
		}
	}
	ck_assert_int_eq(gw_print_use(best), 0);
}
END_TEST

/* A tensor cut into column slices, kept transposed or with a pitch, sums up to the same. */
START_TEST(windows_add_up)
{
	enum { ROWS = 37, COLS = 3 * 64 };
	static uint8_t whole[ROWS * COLS * 8], turned[sizeof whole];
	struct gw_rng r;

	gw_rng_init(&r, unit_seed());
	for (int k = 0; k < 4; k++) {
		unsigned width = widths[k];
		uint64_t want[2] = {0, 0}, got[2] = {0, 0}, cut = gw_rng_below(&r, COLS + 1);

		fill(&r, whole, sizeof whole);
		for (size_t i = 0; i < ROWS; i++)
			for (size_t c = 0; c < COLS; c++)
				memcpy(turned + (c * ROWS + i) * width, whole + (i * COLS + c) * width, width);
		naive(want, width, 0, whole, ROWS * COLS);
		gw_print_window(got, &(struct gw_print_window){width, ROWS, cut, COLS * width, width, 0, COLS}, whole);
		gw_print_window(
			got,
			&(struct gw_print_window){width, ROWS, COLS - cut, width, (uint64_t)ROWS * width, cut, COLS},
			turned + cut * ROWS * width);
		ck_assert_mem_eq(got, want, sizeof want);
	}
}
END_TEST

START_TEST(changes_update_as_a_scan_would)
{
	enum { N = 5000 };
	static uint8_t old[N * 8], new[N * 8];
	struct gw_rng r;

	gw_rng_init(&r, unit_seed());
	for (int k = 0; k < 4; k++) {
		unsigned width = widths[k];
		uint64_t index[64], print[2] = {0, 0}, want[2] = {0, 0}, first = gw_rng_u64(&r) >> 2;
		uint8_t old_bits[64 * 8], new_bits[64 * 8];

		fill(&r, old, sizeof old);
		memcpy(new, old, sizeof new);
		for (size_t i = 0; i < 64; i++) {
			size_t at = (i * 78 + gw_rng_below(&r, 78)) * width;

			index[i] = first + at / width;
			fill(&r, new + at, width);
			memcpy(old_bits + i * width, old + at, width);
			memcpy(new_bits + i * width, new + at, width);
		}
		gw_print_run(print, width, first, old, N);
		gw_print_run(want, width, first, new, N);
		gw_print_update(print, width, index, old_bits, new_bits, 64);
		ck_assert_mem_eq(print, want, sizeof want);
		gw_print_update(print, width, index, new_bits, NULL, 64);
		gw_print_update(print, width, index, NULL, old_bits, 64);
		memset(want, 0, sizeof want);
		gw_print_run(want, width, first, old, N);
		ck_assert_mem_eq(print, want, sizeof want);
	}
}
END_TEST

static int twos(uint64_t x)
{
	return x ? __builtin_ctzll(x) : 64;
}

/* The statements of the page about the table of offset keys. */
START_TEST(equal_changes_in_a_block_never_escape)
{
	const uint64_t *b0 = gw_print_offset_keys(0), *b1 = gw_print_offset_keys(1);
	int worst = 0, worst_both = 0;

	for (int o = 0; o < GW_PRINT_BLOCK; o++) {
		ck_assert(b0[o] & 1 && b1[o] & 1);
		for (int q = 0; q < o; q++)
			for (int sign = 0; sign < 2; sign++) {
				int v0 = twos(sign ? b0[o] + b0[q] : b0[o] - b0[q]);
				int v1 = twos(sign ? b1[o] + b1[q] : b1[o] - b1[q]);

				worst = v0 > worst ? v0 : worst;
				worst = v1 > worst ? v1 : worst;
				worst_both = v0 + v1 > worst_both ? v0 + v1 : worst_both;
			}
	}
	ck_assert_int_eq(worst, 24);
	ck_assert_int_eq(worst_both, 26);
}
END_TEST

/* Two top bits of 32-bit units anywhere: k ± k' must not be a multiple of 2^33 in both lanes. Expected are 2^-m of all
 * pairs for m twos more than the one that odd keys share; lanes are independent. */
START_TEST(keys_of_distant_units_are_independent)
{
	enum { PAIRS = 1 << 16 };
	struct gw_rng r;
	int at_least[2][12] = {{0}}, both = 0;

	gw_rng_init(&r, unit_seed());
	for (int i = 0; i < PAIRS; i++) {
		uint64_t u = gw_rng_u64(&r) >> 20, v = gw_rng_u64(&r) >> 20;
		int t[2];

		for (unsigned l = 0; l < 2; l++) {
			ck_assert(gw_print_key(l, u) & 1);
			t[l] = twos(gw_print_key(l, u) - gw_print_key(l, v)) - 1;
			for (int m = 0; m < 12 && m <= t[l]; m++)
				at_least[l][m]++;
		}
		both += t[0] >= 4 && t[1] >= 4;
	}
	for (int l = 0; l < 2; l++)
		for (int m = 0; m < 8; m++) {
			double off = at_least[l][m] - (double)(PAIRS >> m);

			ck_assert_double_lt(off * off, 36.0 * (PAIRS >> m)); /* six standard deviations */
		}
	ck_assert_int_lt(abs(both - PAIRS / 256), 6 * 16);
}
END_TEST

/* Damage of the kinds that faults make: every one is seen. */
START_TEST(damage_shows)
{
	enum { N = 8192 };
	static uint8_t data[N * 4], hurt[N * 4];
	struct gw_rng r;

	gw_rng_init(&r, unit_seed());
	fill(&r, data, sizeof data);
	for (int round = 0; round < 2000; round++) {
		unsigned width = widths[gw_rng_below(&r, 3)];
		size_t a = gw_rng_below(&r, N), b = gw_rng_below(&r, N), low = a < b ? a : b, high = a < b ? b : a;
		uint64_t was[2] = {0, 0}, is[2] = {0, 0};

		memcpy(hurt, data, sizeof hurt);
		switch (round % 5) {
		case 0: /* one bit */
			hurt[a] ^= (uint8_t)(1 << gw_rng_below(&r, 8));
			break;
		case 1: /* two top bits */
			hurt[(a | 3) % N] ^= 0x80;
			hurt[(b | 3) % N] ^= 0x80;
			if ((a | 3) == (b | 3))
				continue;
			break;
		case 2: /* zeroed stretch */
			memset(hurt + low, 0, high - low + 1);
			break;
		case 3: /* shifted by one */
			memmove(hurt + low, hurt + low + 1, high - low);
			break;
		default: /* the corners of a rectangle of two blocks */
			for (int corner = 0; corner < 4; corner++)
				hurt[width * (a % 1000 + (corner & 1 ? 17u : 0) + (corner & 2 ? 1024u : 0))] ^= 0x80;
		}
		if (!memcmp(hurt, data, sizeof hurt))
			continue;
		gw_print_run(was, width, 0, data, sizeof data / width);
		gw_print_run(is, width, 0, hurt, sizeof hurt / width);
		ck_assert_uint_ne(was[0], is[0]);
		ck_assert_uint_ne(was[1], is[1]);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("patch: fingerprint");
	TCase *c = tcase_create("fingerprint");

	tcase_add_test(c, worked_values_of_the_page);
	tcase_add_test(c, model_is_a_sum_over_tensors);
	tcase_add_test(c, text_is_strict);
	tcase_add_test(c, all_instruction_sets_agree);
	tcase_add_test(c, windows_add_up);
	tcase_add_test(c, changes_update_as_a_scan_would);
	tcase_add_test(c, equal_changes_in_a_block_never_escape);
	tcase_add_test(c, keys_of_distant_units_are_independent);
	tcase_add_test(c, damage_shows);
	tcase_set_timeout(c, 60);
	suite_add_tcase(s, c);
	return s;
}

UNIT_MAIN(suite)
