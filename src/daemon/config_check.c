/* What must hold of a configuration that the limits of single keys cannot say: names, addresses, and keys together. */
#include <string.h>

#include "daemon/config.h"
#include "trust/name.h"

#define WRONG(...) gw_diag_set(why, GW_ECONFIG, __VA_ARGS__)

enum { ADDRESS = 128 };

static int check_name(const char *key, const char *value, size_t max, struct gw_diag *why)
{
	if (!value[0] || gw_name_ok(value, strlen(value), max))
		return 0;
	return WRONG("%s = %s: a name is of letters, digits, '.', '_' and '-', and begins with a letter or digit", key, value);
}

static int check_names(const struct gw_config *c, struct gw_diag *why)
{
	char list[GW_CONFIG_TEXT_MAX], *save = NULL;
	int err = check_name("host.name", c->host_name, GW_NAME_MAX, why);

	if (!err)
		err = check_name("host.region", c->host_region, GW_NAME_MAX, why);
	if (!err)
		err = check_name("host.island", c->host_island, GW_NAME_MAX, why);
	if (!err)
		err = check_name("serve.policy", c->serve_policy, sizeof c->serve_policy, why);
	for (uint32_t i = 0; !err && i < c->cost_count; i++)
		err = check_name("cost", c->costs[i].region, GW_NAME_MAX, why);
	memcpy(list, c->publish_policy, sizeof list);
	for (char *name = strtok_r(list, ", ", &save); !err && name; name = strtok_r(NULL, ", ", &save))
		err = check_name("publish.policy", name, sizeof list, why);
	return err;
}

/* --- addresses --- */

static int is_wildcard(const char *address)
{
	return !strncmp(address, "*:", 2) || !strncmp(address, "0.0.0.0:", 8) || !strncmp(address, "[::]:", 5);
}

/* Where to listen: also at every address (*), and at a port that the system chooses (*). */
static int listens(const char *text)
{
	char plain[ADDRESS + 8];
	size_t n = strlen(text);

	if (n > ADDRESS)
		return 0;
	(void)snprintf(plain, sizeof plain, "%s%s", text[0] == '*' ? "0.0.0.0" : "", text[0] == '*' ? text + 1 : text);
	n = strlen(plain);
	if (n > 2 && !strcmp(plain + n - 2, ":*"))
		plain[n - 1] = '1';
	return gw_address_ok(plain, n);
}

static int check_listen(const char *key, const char *value, struct gw_diag *why)
{
	if (!value[0] || listens(value))
		return 0;
	return WRONG("network.%s = %s: not an address to listen at, such as 10.0.0.5:7601 or 0.0.0.0:7601", key, value);
}

static int check_dialled(const char *key, const char *value, struct gw_diag *why)
{
	if (!value[0] || (gw_address_ok(value, strlen(value)) && !is_wildcard(value)))
		return 0;
	return WRONG("network.%s = %s: not an address that other hosts can reach, such as 10.0.0.5:7601", key, value);
}

static int same_socket(const char *a, const char *b)
{
	return !strcmp(a, b) && a[strlen(a) - 1] != '*';
}

static int check_listeners(const struct gw_config *c, struct gw_diag *why)
{
	int err = check_listen("control", c->network_control, why);

	if (!err)
		err = check_listen("bulk", c->network_bulk, why);
	if (!err)
		err = check_listen("join", c->network_join, why);
	if (err)
		return err;
	if (same_socket(c->network_control, c->network_bulk))
		return WRONG("network.control and network.bulk are both %s: each needs a port of its own", c->network_bulk);
	if (c->network_join[0] &&
	    (same_socket(c->network_join, c->network_control) || same_socket(c->network_join, c->network_bulk)))
		return WRONG("network.join = %s: another socket listens there; it needs a port of its own", c->network_join);
	return 0;
}

/* Who knows one socket of a host alone could not take part with it. */
static int check_pair(const char *scope, const char *control, const char *bulk, struct gw_diag *why)
{
	if (!control[0] == !bulk[0])
		return 0;
	return WRONG("network.%s%s can be reached, but network.%s%s has no address: give both, or neither",
		     control[0] ? "control" : "bulk", scope, control[0] ? "bulk" : "control", scope);
}

static const char *or_listener(const char *given, const char *listener)
{
	return given[0] ? given : is_wildcard(listener) ? "" : listener;
}

static int check_addresses(const struct gw_config *c, struct gw_diag *why)
{
	const char *control = or_listener(c->network_control_region, c->network_control);
	const char *bulk = or_listener(c->network_bulk_region, c->network_bulk);
	int err = check_listeners(c, why);

	if (!err)
		err = check_dialled("control_region", c->network_control_region, why);
	if (!err)
		err = check_dialled("bulk_region", c->network_bulk_region, why);
	if (!err)
		err = check_dialled("control_any", c->network_control_any, why);
	if (!err)
		err = check_dialled("bulk_any", c->network_bulk_any, why);
	if (!err)
		err = check_pair("_region", control, bulk, why);
	if (!err)
		err = check_pair("_any", c->network_control_any[0] ? c->network_control_any : control,
				 c->network_bulk_any[0] ? c->network_bulk_any : bulk, why);
	return err;
}

/* --- keys together --- */

static int is_one_of(const char *text, const char *const words[])
{
	for (; *words; words++)
		if (!strcmp(text, *words))
			return 1;
	return 0;
}

static int check_log(const struct gw_config *c, struct gw_diag *why)
{
	static const char *const levels[] = {"error", "warning", "notice", "info", "debug", NULL};
	static const char *const forms[] = {"text", "json", NULL};

	if (!is_one_of(c->log_level, levels))
		return WRONG("log.level = %s: not error, warning, notice, info or debug", c->log_level);
	if (!is_one_of(c->log_form, forms))
		return WRONG("log.form = %s: not text or json", c->log_form);
	return 0;
}

int gw_config_check(const struct gw_config *c, struct gw_diag *why)
{
	int err = check_names(c, why);

	if (!err)
		err = check_addresses(c, why);
	if (!err)
		err = check_log(c, why);
	if (err)
		return err;
	if (c->serve_policy[0] && !c->host_island[0])
		return WRONG("serve.policy is set, so host.island must be too: what serves one version together; for one host, "
			     "its name");
	if (c->publish_policy[0] && !c->publish_release_key[0])
		return WRONG("publish.policy is set, so publish.release_key must be too");
	if (c->publish_head_renew > c->publish_head_expiry / 2)
		return WRONG("publish.head_renew must be at most half of publish.head_expiry, or one late renewal makes every host "
			     "stale");
	return 0;
}
