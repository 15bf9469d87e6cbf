#include "tests/unit/weights.h"

#include <string.h>

#include "base/err.h"
#include "weights/json.h"

/* The whole text as one value of any kind; nothing may follow. */
static int skip_all(const char *text)
{
	struct gw_json j;

	gw_json_init(&j, text, strlen(text));
	gw_json_skip(&j);
	if (gw_json_peek(&j) >= 0)
		(void)gw_json_fail(&j, GW_ETRAILING, "");
	return j.err;
}

START_TEST(values_as_the_standard_has_them)
{
	static const char *const good[] = {
		"0",
		"-0",
		"-1.5e+10",
		"1E5",
		"0.0",
		"true",
		"false",
		"null",
		"\"\"",
		"[]",
		"{}",
		" [ 1 , [ ] , { } ] ",
		"{\"a\":{\"b\":[1,2,{}]},\"c\":null}",
		"\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"",
		"\"\\u00e4\\ud83d\\ude00\"",
	};
	static const char *const bad[] = {
		"",
		" ",
		"01",
		"-",
		"1.",
		".5",
		"1e",
		"+1",
		"tru",
		"nul",
		"True",
		"[",
		"[1",
		"[1,",
		"[1,]",
		"[,1]",
		"[1 2]",
		"{",
		"{\"a\"",
		"{\"a\":",
		"{\"a\":1",
		"{\"a\":1,",
		"{\"a\":1,}",
		"{a:1}",
		"{\"a\" 1}",
		"{1:1}",
		"\"",
		"\"a",
		"\"\\",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u12g4\"",
		"\"\\ud800\"",
		"\"\\ud800\\u0041\"",
		"\"\\udc00\"",
		"\"\x01\"",
		"\"\n\"",
		"\"\x80\"",
		"\"\xc0\x80\"",
		"\"\xc1\xbf\"",
		"\"\xe0\x9f\xbf\"",
		"\"\xed\xa0\x80\"",
		"\"\xf0\x8f\xbf\xbf\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\xf5\x80\x80\x80\"",
		"\"\xc3\"",
		"\"\xe2\x82\"",
		"[1]]",
		"1 2",
		"'a'",
		"NaN",
		"\xef\xbb\xbf{}",
	};

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		ck_assert_msg(skip_all(good[i]) == 0, "refused: %s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ck_assert_msg(skip_all(bad[i]) != 0, "taken: %s", bad[i]);
}
END_TEST

START_TEST(depth_is_limited)
{
	char text[4 * GW_JSON_DEPTH_MAX];

	memset(text, '[', GW_JSON_DEPTH_MAX);
	memset(text + GW_JSON_DEPTH_MAX, ']', GW_JSON_DEPTH_MAX);
	text[2 * (size_t)GW_JSON_DEPTH_MAX] = 0;
	ck_assert_int_eq(skip_all(text), 0);
	memset(text, '[', sizeof text - 1);
	text[sizeof text - 1] = 0;
	ck_assert_int_eq(skip_all(text), GW_ELIMIT);
}
END_TEST

START_TEST(strings_are_decoded_and_counted_in_full)
{
	const char text[] = "\"a\\u0000\\ud83d\\ude00\\n\xc3\xa4\\\"\"";
	char out[32];
	struct gw_json j;

	gw_json_init(&j, text, sizeof text - 1);
	ck_assert_uint_eq(gw_json_string(&j, out, sizeof out), 10);
	ck_assert_int_eq(memcmp(out, "a\0\xf0\x9f\x98\x80\n\xc3\xa4\"", 10), 0);
	ck_assert_int_ne(j.control, 0);
	memset(out, 'x', sizeof out);
	gw_json_init(&j, text, sizeof text - 1);
	ck_assert_uint_eq(gw_json_string(&j, out, 3), 10);
	ck_assert_int_eq(out[3], 'x');
	gw_json_init(&j, "\"\xc2\x9b\"", 4); /* a C1 control, which some terminals obey */
	ck_assert_uint_eq(gw_json_string(&j, out, sizeof out), 2);
	ck_assert_int_ne(j.control, 0);
}
END_TEST

START_TEST(integers_are_plain)
{
	static const struct {
		const char *text;
		int err;
		uint64_t v;
	} rows[] = {
		{"0", 0, 0},
		{" 18446744073709551615", 0, UINT64_MAX},
		{"18446744073709551616", GW_EOVERFLOW, 0},
		{"99999999999999999999999999", GW_EOVERFLOW, 0},
		{"-1", GW_EMALFORMED, 0},
		{"-0", GW_EMALFORMED, 0},
		{"1.0", GW_EMALFORMED, 0},
		{"1e3", GW_EMALFORMED, 0},
		{"007", GW_EMALFORMED, 0},
		{"\"1\"", GW_EMALFORMED, 0},
		{"", GW_ETRUNC, 0},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct gw_json j;

		gw_json_init(&j, rows[i].text, strlen(rows[i].text));
		ck_assert_uint_eq(gw_json_u64(&j), rows[i].v);
		ck_assert_int_eq(j.err, rows[i].err);
	}
}
END_TEST

TCase *json_case(void)
{
	TCase *t = tcase_create("json");

	tcase_add_test(t, values_as_the_standard_has_them);
	tcase_add_test(t, depth_is_limited);
	tcase_add_test(t, strings_are_decoded_and_counted_in_full);
	tcase_add_test(t, integers_are_plain);
	return t;
}
