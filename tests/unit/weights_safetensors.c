#include "tests/unit/weights.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/num.h"
#include "base/rng.h"
#include "weights/safetensors.h"

static int open_json(struct gw_safetensors **s, const char *json, size_t data_bytes, uint8_t **file,
		     struct gw_diag *why)
{
	size_t n;

	*file = file_of(json, data_bytes, &n);
	return gw_safetensors_open(s, *file, n, n, why);
}

/* What opening such a file gives; the message must not be empty where it is refused. */
static int verdict(const char *json, size_t data_bytes)
{
	struct gw_diag why = {""};
	struct gw_safetensors *s;
	uint8_t *file;
	int err = open_json(&s, json, data_bytes, &file, &why);

	ck_assert_msg(!err == !why.text[0], "%s", json);
	gw_safetensors_free(s);
	free(file);
	return err;
}

START_TEST(reads_what_stands_there)
{
	const char json[] =
		"{\"b\":{\"data_offsets\":[4,6],\"shape\":[1],\"dtype\":\"BF16\"},"
		"\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u0000\\u00e4\"},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
		"\"none\" : { \"dtype\" : \"I64\" , \"shape\" : [ 3 , 0 ] , \"data_offsets\" : [ 6 , 6 ] }}  ";
	struct gw_diag why = {""};
	struct gw_safetensors *s;
	const struct gw_safetensors_tensor *t;
	uint8_t *file;
	size_t n;

	ck_assert_msg(open_json(&s, json, 6, &file, &why) == 0, "%s", why.text);
	ck_assert_uint_eq(gw_safetensors_count(s), 3);
	t = gw_safetensors_at(s, 0);
	ck_assert_str_eq(t->name, "a");
	ck_assert_uint_eq(t->rank, 0);
	ck_assert_uint_eq(t->bytes, 4);
	t = gw_safetensors_at(s, 1);
	ck_assert_str_eq(t->name, "b");
	ck_assert_uint_eq(t->begin, 4);
	ck_assert_int_eq(t->dtype, GW_DT_BF16);
	ck_assert_uint_eq(t->shape[0], 1);
	t = gw_safetensors_at(s, 2);
	ck_assert_str_eq(t->name, "none");
	ck_assert_uint_eq(t->bytes, 0);
	ck_assert_uint_eq(t->rank, 2);
	ck_assert_ptr_null(gw_safetensors_at(s, 3));
	ck_assert_ptr_eq(gw_safetensors_find(s, "b"), gw_safetensors_at(s, 1));
	ck_assert_ptr_null(gw_safetensors_find(s, "c"));
	ck_assert_str_eq(gw_safetensors_by_name(s, 2)->name, "none");
	ck_assert_ptr_eq(gw_safetensors_header(s, &n), file);
	ck_assert_uint_eq(n, 8 + strlen(json));
	gw_safetensors_free(s);
	free(file);
}
END_TEST

static int note_pair(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	struct gw_wr *w = ctx;

	gw_wr_bytes(w, key, key_len);
	gw_wr_u8(w, '=');
	gw_wr_bytes(w, value, value_len);
	gw_wr_u8(w, ';');
	return 0;
}

START_TEST(metadata_is_kept)
{
	struct gw_safetensors *s;
	struct gw_wr w;
	uint8_t *file;

	ck_assert_int_eq(open_json(&s, "{\"__metadata__\":{\"z\":\"1\",\"a\":\"\\u0000\"}}", 0, &file, NULL), 0);
	gw_wr_init(&w, 100);
	ck_assert_int_eq(gw_safetensors_metadata(s, note_pair, &w), 0);
	ck_assert_uint_eq(w.n, 8);
	ck_assert_int_eq(memcmp(w.p, "z=1;a=\0;", 8), 0);
	gw_wr_free(&w);
	gw_safetensors_free(s);
	free(file);
}
END_TEST

#define T(name, dtype, shape, offsets)                                                                                 \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

START_TEST(refuses_whatever_is_odd)
{
	static const struct {
		int err;
		size_t data;
		const char *json;
	} rows[] = {
		{0, 0, "{}"},
		{0, 0, "{ }    "},
		{0, 2, "{" T("a", "U8", "[2]", "[0,2]") "}"},
		{0, 2, "{" T("a", "F4", "[4]", "[0,2]") "}"},
		{0, 8, "{" T("a", "C64", "[1]", "[0,8]") "}"},
		{0, 2,
		 "{" T("e", "U8", "[0]", "[2,2]") "," T("a", "U8", "[2]", "[0,2]") "," T("f", "U8", "[0]",
											 "[0,0]") "}"},
		{0, 0, "{" T("a", "U8", "[0,9223372036854775808,4]", "[0,0]") "}"},
		{0, 1, "{" T("\\u0061", "U8", "[1]", "[0,1]") "}"},
		{0, 1, "{" T("", "U8", "[1]", "[0,1]") "}"},
		{GW_ETRUNC, 0, ""},
		{GW_EMALFORMED, 0, " {}"},
		{GW_EMALFORMED, 0, "[]"},
		{GW_ETRAILING, 0, "{}\n"},
		{GW_ETRAILING, 0, "{} {}"},
		{GW_ETRAILING, 0, "{}}"},
		{GW_ETRAILING, 1, "{}"},
		{GW_ETRAILING, 3, "{" T("a", "U8", "[2]", "[0,2]") "}"},
		{GW_ETRUNC, 1, "{" T("a", "U8", "[2]", "[0,2]") "}"},
		/* holes and overlaps */
		{GW_EMALFORMED, 3, "{" T("a", "U8", "[2]", "[1,3]") "}"},
		{GW_EMALFORMED, 5, "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[3,5]") "}"},
		{GW_EMALFORMED, 3, "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[0]", "[1,1]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[0]", "[2,0]") "}"},
		/* names */
		{GW_EDUPLICATE, 4, "{" T("a", "U8", "[2]", "[0,2]") "," T("a", "U8", "[2]", "[2,4]") "}"},
		{GW_EDUPLICATE, 4, "{" T("a", "U8", "[2]", "[0,2]") "," T("\\u0061", "U8", "[2]", "[2,4]") "}"},
		{GW_EMALFORMED, 2, "{" T("a\\u0000", "U8", "[2]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a\\u001b[2J", "U8", "[2]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a\xff", "U8", "[2]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a\\ud800", "U8", "[2]", "[0,2]") "}"},
		/* fields */
		{GW_EMALFORMED, 2, "{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}"},
		{GW_EMALFORMED, 2, "{\"a\":{}}"},
		{GW_EDUPLICATE, 2, "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"},
		{GW_EDUPLICATE, 2,
		 "{\"a\":{\"dtype\":\"U8\",\"d\\u0074ype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"},
		{GW_EUNKNOWN, 2, "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"x\":1}}"},
		{GW_EUNKNOWN, 2,
		 "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"a long unknown field\":1}}"},
		{GW_EUNKNOWN, 2, "{" T("a", "u8", "[2]", "[0,2]") "}"},
		{GW_EUNKNOWN, 2, "{" T("a", "", "[2]", "[0,2]") "}"},
		{GW_EUNKNOWN, 2, "{" T("a", "a dtype with a long name", "[2]", "[0,2]") "}"},
		{GW_EUNSUP, 3, "{" T("a", "F6_E2M3", "[4]", "[0,3]") "}"},
		{GW_EUNSUP, 3, "{" T("a", "F6_E3M2", "[4]", "[0,3]") "}"},
		{GW_EMALFORMED, 2, "{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,2]}}"},
		/* numbers and sizes */
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2]", "[0,2,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2]", "[2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2]", "{}") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "2", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[-2]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2.0]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2e0]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[02]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[2,]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "U8", "[3]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "F4", "[5]", "[0,2]") "}"},
		{GW_EMALFORMED, 2, "{" T("a", "F4", "[3]", "[0,2]") "}"},
		{GW_EOVERFLOW, 2, "{" T("a", "U8", "[18446744073709551616]", "[0,2]") "}"},
		{GW_EOVERFLOW, 2, "{" T("a", "U8", "[4294967296,4294967296]", "[0,2]") "}"},
		{GW_EOVERFLOW, 0, "{" T("a", "U8", "[4294967296,4294967296,0]", "[0,0]") "}"},
		{GW_EOVERFLOW, 2, "{" T("a", "U8", "[2305843009213693952]", "[0,2]") "}"},
		{GW_ELIMIT, 1,
		 "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") "}"},
		/* metadata */
		{GW_EDUPLICATE, 0, "{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}}"},
		{GW_EDUPLICATE, 0, "{\"__metadata__\":{},\"__metadata__\":{}}"},
		{GW_EMALFORMED, 0, "{\"__metadata__\":{\"a\":1}}"},
		{GW_EMALFORMED, 0, "{\"__metadata__\":[]}"},
		{GW_EMALFORMED, 0, "{\"__metadata__\":{\"a\":null}}"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int err = verdict(rows[i].json, rows[i].data);

		ck_assert_msg(err == rows[i].err, "%s: %s, not %s", rows[i].json, gw_err_name(err),
			      gw_err_name(rows[i].err));
	}
}
END_TEST

START_TEST(lengths_are_limited_before_anything_is_read)
{
	uint8_t b[16] = {0};
	struct gw_safetensors *s;
	char *name = malloc(GW_SAFETENSORS_NAME_MAX + 100);

	ck_assert_int_eq(gw_safetensors_open(&s, b, 7, 7, NULL), GW_ETRUNC);
	ck_assert_int_eq(gw_safetensors_open(&s, b, 0, 0, NULL), GW_ETRUNC);
	memset(b, 0xff, 8);
	ck_assert_int_eq(gw_safetensors_open(&s, b, 16, 16, NULL), GW_ELIMIT);
	gw_put_le64(b, GW_SAFETENSORS_HEADER_MAX + 1);
	ck_assert_int_eq(gw_safetensors_open(&s, b, 16, UINT64_MAX, NULL), GW_ELIMIT);
	gw_put_le64(b, 9);
	ck_assert_int_eq(gw_safetensors_open(&s, b, 16, UINT64_MAX, NULL), GW_ETRUNC);
	/* The longest name, and one byte more. */
	ck_assert_ptr_nonnull(name);
	for (size_t n = GW_SAFETENSORS_NAME_MAX; n <= GW_SAFETENSORS_NAME_MAX + 1; n++) {
		memcpy(name, "{\"", 2);
		memset(name + 2, 'n', n);
		strcpy(name + 2 + n, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
		ck_assert_int_eq(verdict(name, 0), n <= GW_SAFETENSORS_NAME_MAX ? 0 : GW_ELIMIT);
	}
	free(name);
}
END_TEST

/* A file with every dtype, metadata, an empty and a 0-dimensional tensor, made by the writer. */
static uint8_t *sample(size_t *n)
{
	static const uint64_t shape[] = {2, 3, 4}, empty[] = {5, 0};
	static const struct gw_safetensors_pair metadata[] = {{"format", "pt"}, {"odd", "\"\\\n\t\xc3\xa4"}};
	struct gw_safetensors_spec specs[] = {
#define GW_DTYPE(name, number, bits, class) {"model.layers.0." #name ".weight", shape, 3, GW_DT_##name},
#include "weights/dtype.def"
#undef GW_DTYPE
		{"empty", empty, 2, GW_DT_F32},
		{"scalar", NULL, 0, GW_DT_I64},
		{"a \"quoted\" \\ name \xf0\x9f\x98\x80", shape, 1, GW_DT_U8},
	};
	struct gw_wr w;
	uint64_t data = 0, bytes;
	uint8_t *p;

	gw_wr_init(&w, 1 << 20);
	ck_assert_int_eq(gw_safetensors_write(&w, specs, sizeof specs / sizeof specs[0], metadata, 2, NULL), 0);
	ck_assert_uint_eq(w.n % 8, 0);
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		ck_assert_int_eq(gw_tensor_bytes(specs[i].dtype, specs[i].rank, specs[i].shape, &bytes), 0);
		data += bytes;
	}
	for (uint64_t i = 0; i < data; i++)
		gw_wr_u8(&w, (uint8_t)(i * 7));
	ck_assert_int_eq(gw_wr_take(&w, &p, n), 0);
	return p;
}

/* The property: refused, or all tensors lie in the file, in order, and are found by name. */
static int check_consistent(const uint8_t *p, size_t n)
{
	struct gw_safetensors *s;
	int err = gw_safetensors_open(&s, p, n, n, NULL);
	size_t header, end = 0;

	if (err)
		return err;
	ck_assert_ptr_eq(gw_safetensors_header(s, &header), p);
	for (uint32_t i = 0; i < gw_safetensors_count(s); i++) {
		const struct gw_safetensors_tensor *t = gw_safetensors_at(s, i);

		ck_assert_uint_eq(t->begin, end);
		end += t->bytes;
		ck_assert_uint_eq(strlen(t->name), t->name_len);
		ck_assert_ptr_eq(gw_safetensors_find(s, t->name), t);
	}
	ck_assert_uint_eq(header + end, n);
	gw_safetensors_free(s);
	return 0;
}

START_TEST(every_truncation_is_an_error)
{
	size_t n;
	uint8_t *p = sample(&n);

	ck_assert_int_eq(check_consistent(p, n), 0);
	for (size_t cut = 0; cut < n; cut++) {
		/* A copy of its own, so that reading past the end is seen. */
		uint8_t *copy = malloc(cut ? cut : 1);

		ck_assert_ptr_nonnull(copy);
		memcpy(copy, p, cut);
		ck_assert_int_ne(check_consistent(copy, cut), 0);
		free(copy);
	}
	free(p);
}
END_TEST

START_TEST(every_flipped_bit_is_refused_or_read_consistently)
{
	size_t n, header, refused = 0;
	uint8_t *p = sample(&n);

	header = 8 + (size_t)p[8 - 8] + ((size_t)p[1] << 8);
	for (size_t bit = 0; bit < 8 * header; bit++) {
		p[bit / 8] ^= (uint8_t)(1U << bit % 8);
		refused += check_consistent(p, n) != 0;
		p[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	/* Flips inside names and of F against I may pass; lengths, structure, numbers, fields may not. */
	ck_assert_uint_gt(refused, 8 * header / 2);
	for (size_t bit = 0; bit < 64; bit++) {
		p[bit / 8] ^= (uint8_t)(1U << bit % 8);
		ck_assert_int_ne(check_consistent(p, n), 0);
		p[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	free(p);
}
END_TEST

START_TEST(random_damage_is_survived)
{
	uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 20240611;
	struct gw_rng rng;
	size_t n;
	uint8_t *p = sample(&n), *copy = malloc(n);

	printf("seed %llu\n", (unsigned long long)seed);
	gw_rng_init(&rng, seed);
	for (int i = 0; i < 3000; i++) {
		memcpy(copy, p, n);
		for (uint64_t k = gw_rng_below(&rng, 4) + 1; k; k--) {
			static const char structure[] = "{}[]\",:0123456789 \\u-.e";
			size_t at = 8 + gw_rng_below(&rng, 1200);

			copy[at] = (uint8_t)structure[gw_rng_below(&rng, sizeof structure - 1)];
		}
		(void)check_consistent(copy, n);
	}
	free(copy);
	free(p);
}
END_TEST

START_TEST(what_is_written_is_read_back)
{
	static const uint64_t shape[] = {2, 3, 4};
	size_t n;
	uint8_t *p = sample(&n);
	struct gw_safetensors *s;
	const struct gw_safetensors_tensor *t;
	struct gw_wr w;

	ck_assert_int_eq(gw_safetensors_open(&s, p, n, n, NULL), 0);
	ck_assert_uint_eq(gw_safetensors_count(s), 23);
	t = gw_safetensors_find(s, "a \"quoted\" \\ name \xf0\x9f\x98\x80");
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->rank, 1);
	gw_wr_init(&w, 1000);
	ck_assert_int_eq(gw_safetensors_metadata(s, note_pair, &w), 0);
	gw_wr_u8(&w, 0);
	ck_assert_str_eq((char *)w.p, "format=pt;odd=\"\\\n\t\xc3\xa4;");
	gw_wr_free(&w);
	gw_safetensors_free(s);
	free(p);
	/* What the reader would refuse is not written. */
	for (int i = 0; i < 4; i++) {
		const struct gw_safetensors_spec bad[][2] = {
			{{"a", shape, 1, GW_DT_U8}, {"a", shape, 1, GW_DT_U8}},
			{{"a\xff", shape, 1, GW_DT_U8}, {"b", shape, 1, GW_DT_U8}},
			{{"a", shape + 1, 1, GW_DT_F4}, {"b", shape, 1, GW_DT_U8}},
			{{"a", shape, 1, GW_DT_NONE}, {"b", shape, 1, GW_DT_U8}},
		};

		gw_wr_init(&w, 1000);
		ck_assert_int_ne(gw_safetensors_write(&w, bad[i], 2, NULL, 0, NULL), 0);
		gw_wr_free(&w);
	}
}
END_TEST

static size_t in_use(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Headers that are dear to keep: many tensors of little text; high ranks; many pairs of metadata. */
START_TEST(memory_is_at_most_three_headers)
{
	static const char ones[] = "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1";
	enum { TENSORS = 20000 };
	char *json = malloc((size_t)TENSORS * 200);

	for (int kind = 0; kind < 3; kind++) {
		char *at = json;
		struct gw_safetensors *s;
		uint8_t *file;
		size_t before;

		*at++ = '{';
		if (kind == 2)
			at += sprintf(at, "\"__metadata__\":{");
		for (int i = 0; i < TENSORS; i++)
			at += kind == 2 ? sprintf(at, "%s\"%x\":\"\"", i ? "," : "", (unsigned)i)
					: sprintf(at,
						  "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
						  i ? "," : "", (unsigned)i, kind ? ones : "", i, i + 1);
		strcpy(at, kind == 2 ? "}}" : "}");
		before = in_use();
		ck_assert_int_eq(open_json(&s, json, kind == 2 ? 0 : TENSORS, &file, NULL), 0);
		ck_assert_uint_eq(gw_safetensors_count(s), kind == 2 ? 0 : TENSORS);
#ifndef __SANITIZE_ADDRESS__
		/* The file itself is the test's. */
		ck_assert_uint_le(in_use() - before, 3 * strlen(json) + (kind == 2 ? 0 : TENSORS) + strlen(json));
#endif
		(void)before;
		gw_safetensors_free(s);
		free(file);
	}
	free(json);
}
END_TEST

TCase *safetensors_case(void)
{
	TCase *t = tcase_create("safetensors");

	tcase_add_test(t, reads_what_stands_there);
	tcase_add_test(t, metadata_is_kept);
	tcase_add_test(t, refuses_whatever_is_odd);
	tcase_add_test(t, lengths_are_limited_before_anything_is_read);
	tcase_add_test(t, every_truncation_is_an_error);
	tcase_add_test(t, every_flipped_bit_is_refused_or_read_consistently);
	tcase_add_test(t, random_damage_is_survived);
	tcase_add_test(t, what_is_written_is_read_back);
	tcase_add_test(t, memory_is_at_most_three_headers);
	tcase_set_timeout(t, 60);
	return t;
}
