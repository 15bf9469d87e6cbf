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
		{"[hots]\nname = a\n", "t.conf:1: no such section; there are host, trust, network, serve, publish, limits, log, cost"},
		{"name = a\n", "t.conf:1: name stands before any [section]"},
		{"[host]\nname = a\nname = b\n", "t.conf:3: host.name: given twice"},
		{"[hots]\n", "t.conf:1: no such section"},
		{"[host\n", "t.conf:1: no such section"},
		{"[limits]\nmemory = lots\n", "t.conf:2: limits.memory = lots: not a size"},
		{"[limits]\nmemory = 1\n", "t.conf:2: limits.memory = 1: out of its limits, 16M to 1T"},
		{"[limits]\nmemory = 99999999999T\n", "t.conf:2: limits.memory = 99999999999T: not a size"},
		{"[limits]\nworkers = -1\n", "t.conf:2: limits.workers = -1: not a whole number"},
		{"[publish]\nhead_renew = 20\n", "t.conf:2: publish.head_renew = 20: not a duration"},
		{"[host]\nname\n", "t.conf:2: neither"},
		{"[host]\n name = a\n", "t.conf:2: starts with a space"},
		{"[publish]\nhead_expiry = 2h\n", "t.conf:2: publish.head_expiry = 2h: out of its limits, 1s to 1h"},
		{"[limits]\nworkers = 999\n", "t.conf:2: limits.workers = 999: out of its limits, 0 to 256"},
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

START_TEST(keys_must_fit_together)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"[host]\nname = a b\n", "t.conf: host.name = a b: a name is of letters"},
		{"[host]\nregion = -eu\n", "t.conf: host.region = -eu: a name"},
		{"[host]\nisland = a/b\n", "t.conf: host.island = a/b: a name"},
		{"[cost]\ne u = 1\n", "t.conf: cost = e u: a name"},
		{"[publish]\nrelease_key = k\npolicy = good, b$d\n", "t.conf: publish.policy = b$d: a name"},
		{"[network]\ncontrol = 7601\n", "t.conf: network.control = 7601: not an address to listen at"},
		{"[network]\nbulk = 10.0.0.1:99999\n", "t.conf: network.bulk = 10.0.0.1:99999: not an address to listen"},
		{"[network]\nbulk = 0.0.0.0:7601\n", "t.conf: network.control and network.bulk are both 0.0.0.0:7601"},
		{"[network]\njoin = 0.0.0.0:7602\n", "t.conf: network.join = 0.0.0.0:7602: another socket listens there"},
		{"[network]\ncontrol_any = 0.0.0.0:7601\nbulk_any = 1.2.3.4:1\n", "t.conf: network.control_any = 0.0.0.0:7601: not"},
		{"[network]\nbulk_any = 1.2.3.4:7602\n", "t.conf: network.bulk_any can be reached, but network.control_any has no"},
		{"[network]\ncontrol = 10.0.0.1:7601\n", "t.conf: network.control_region can be reached, but network.bulk_region"},
		{"[serve]\npolicy = p\n", "t.conf: serve.policy is set, so host.island must be too"},
		{"[publish]\npolicy = p\n", "t.conf: publish.policy is set, so publish.release_key must be too"},
		{"[publish]\nhead_renew = 100s\n", "t.conf: publish.head_renew must be at most half"},
		{"[log]\nlevel = loud\n", "t.conf: log.level = loud: not error, warning"},
		{"[log]\nform = xml\n", "t.conf: log.form = xml: not text or json"},
	};
	static const char *const good[] = {
		"[network]\ncontrol = 10.0.0.1:7601\nbulk = 10.0.0.1:7602\njoin = *:7603\n",
		"[network]\ncontrol = 127.0.0.1:*\nbulk = 127.0.0.1:*\n",
		"[network]\ncontrol = [::]:7601\nbulk = host.example:7602\nbulk_region = b:1\ncontrol_region = [fe80::1]:2\n",
		"[host]\nname = a\nregion = eu-west.1\nisland = i_1\n[serve]\npolicy = p\n[publish]\npolicy = p, q\nrelease_key = k\n",
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		ck_assert_int_eq(parse(bad[i].text), GW_ECONFIG);
		ck_assert_msg(!strncmp(why.text, bad[i].says, strlen(bad[i].says)), "%s", why.text);
	}
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		ck_assert_msg(!parse(good[i]), "%s", why.text);
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
	/* What a running daemon would not take over is refused, not passed over. */
	why.text[0] = 0;
	ck_assert_int_eq(gw_config_parse(&next, "[cost]\nus = 5\n", 14, "n", NULL), 0);
	ck_assert_int_eq(gw_config_reload(&c, &next, &why), GW_ECONFIG);
	ck_assert_ptr_nonnull(strstr(why.text, "[cost]"));
	ck_assert_uint_eq(c.cost_count, 0);
}
END_TEST

START_TEST(heads_are_renewed_before_they_expire)
{
	ck_assert_int_eq(parse("[publish]\nhead_expiry = 2s\nhead_renew = 1s\n"), 0);
	why.text[0] = 0;
	ck_assert_int_eq(parse("[publish]\nhead_expiry = 2s\n"), GW_ECONFIG);
	ck_assert_ptr_nonnull(strstr(why.text, "publish.head_renew"));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("all");

	tcase_add_test(t, defaults_fit_their_own_limits);
	tcase_add_test(t, values_of_each_type);
	tcase_add_test(t, refusals_name_the_line_and_the_key);
	tcase_add_test(t, keys_must_fit_together);
	tcase_add_test(t, the_longest_value_survives_the_reader);
	tcase_add_test(t, reload_is_all_or_nothing);
	tcase_add_test(t, heads_are_renewed_before_they_expire);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
