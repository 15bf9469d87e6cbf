#include "daemon/config.h"

#include <string.h>

#include "unit.h"

static struct gw_config c;
static struct gw_diag why;

static int parse(const char *text)
{
	memset(&why, 0, sizeof why);
	return gw_config_parse(&c, text, strlen(text), "t.conf", &why);
}

START_TEST(defaults_fit_their_own_limits)
{
	ck_assert_int_eq(parse(""), 0);
	ck_assert_str_eq(c.host_state, "/var/lib/godwit");
	ck_assert_uint_eq(c.limits_eager_max, 128 * 1024);
	ck_assert_uint_eq(c.publish_head_renew, 20000000000u);
	ck_assert_str_eq(c.log_level, "info");
}
END_TEST

START_TEST(values_of_each_type)
{
	ck_assert_int_eq(parse("# c\n[host]\nname = a\nregion=eu\n[limits]\nmemory = 1G\nworkers = 3\n"
			       "[publish]\nhead_expiry = 2m\n[cost]\nus = 7\nasia = 20\n"),
			 0);
	ck_assert_str_eq(c.host_region, "eu");
	ck_assert_uint_eq(c.limits_memory, 1u << 30);
	ck_assert_uint_eq(c.publish_head_expiry, 120000000000u);
	ck_assert_uint_eq(c.cost_count, 2);
	ck_assert_uint_eq(c.costs[1].cost, 20);
}
END_TEST

START_TEST(refusals_name_the_line_and_the_key)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"[host]\nnmae = a\n", "t.conf:2: host.nmae: no such key"},
		{"[hots]\nname = a\n", "t.conf:1: no such section"},
		{"[host]\nname = a\nname = b\n", "t.conf:3: host.name: given twice"},
		{"[hots]\n", "t.conf:1: no such section"},
		{"[host\n", "t.conf:1: no such section"},
		{"[limits]\nmemory = lots\n", "t.conf:2: limits.memory = lots: not a size"},
		{"[limits]\nmemory = 1\n", "t.conf:2: limits.memory = 1: out of its limits"},
		{"[limits]\nmemory = 99999999999T\n", "t.conf:2: limits.memory = 99999999999T: not a size"},
		{"[limits]\nworkers = -1\n", "t.conf:2: limits.workers = -1: not a whole number"},
		{"[publish]\nhead_renew = 20\n", "t.conf:2: publish.head_renew = 20: not a duration"},
		{"[host]\nname\n", "t.conf:2: neither"},
		{"[host]\n name = a\n", "t.conf:2: starts with a space"},
		{"[cost]\nus = x\n", "t.conf:2: cost.us = x: not a whole number"},
		{"[cost]\nus = 1\nus = 2\n", "t.conf:3: cost.us: given twice"},
	};
	char line[512];

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		ck_assert_int_eq(parse(bad[i].text), GW_ECONFIG);
		ck_assert_msg(!strncmp(why.text, bad[i].says, strlen(bad[i].says)), "%s", why.text);
	}
	memset(line, 'x', sizeof line);
	memcpy(line, "[host]\nname = ", 14);
	line[sizeof line - 1] = 0;
	ck_assert_int_eq(parse(line), GW_ECONFIG);
	ck_assert_str_eq(why.text, "t.conf:2: longer than 196 bytes");
	ck_assert_int_eq(gw_config_parse(&c, "[host]\0", 7, "t.conf", NULL), GW_ECONFIG);
}
END_TEST

START_TEST(the_longest_value_survives_the_reader)
{
	char text[256], value[161];

	memset(value, 'p', 160);
	value[160] = 0;
	(void)snprintf(text, sizeof text, "[trust]\ncertificate = %s\n", value);
	ck_assert_int_eq(parse(text), 0);
	ck_assert_str_eq(c.trust_certificate, value);
}
END_TEST

START_TEST(reload_is_all_or_nothing)
{
	static struct gw_config next;

	ck_assert_int_eq(parse("[log]\nlevel = info\n"), 0);
	ck_assert_int_eq(gw_config_parse(&next, "[log]\nlevel = debug\n", 20, "n", NULL), 0);
	ck_assert_int_eq(gw_config_reload(&c, &next, NULL), 0);
	ck_assert_str_eq(c.log_level, "debug");
	ck_assert_int_eq(gw_config_parse(&next, "[host]\nname = z\n", 16, "n", NULL), 0);
	ck_assert_int_eq(gw_config_reload(&c, &next, &why), GW_ECONFIG);
	ck_assert_str_eq(c.log_level, "debug");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("all");

	tcase_add_test(t, defaults_fit_their_own_limits);
	tcase_add_test(t, values_of_each_type);
	tcase_add_test(t, refusals_name_the_line_and_the_key);
	tcase_add_test(t, the_longest_value_survives_the_reader);
	tcase_add_test(t, reload_is_all_or_nothing);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
