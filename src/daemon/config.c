#include "daemon/config.h"

#include <ini.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum type { TEXT, PATH, FLAG, U64, BYTES, DURATION };

static const struct key {
	const char *section, *name, *def, *help;
	enum type type;
	uint64_t min, max;
	size_t offset;
	int reload;
} keys[] = {
#define GW_CONFIG(s, k, type, def, min, max, reload, help) \
	{#s, #k, def, help, type, min, max, offsetof(struct gw_config, s##_##k), reload},
#include "daemon/config.def"
#undef GW_CONFIG
};

enum { KEYS = sizeof keys / sizeof keys[0] };

/* inih cuts longer lines without a word (ini.h: INI_MAX_LINE 200). */
enum { LINE_MAX_BYTES = 196 };

struct unit {
	const char *name;
	uint64_t scale;
};

/* From small to large; the units of a type end with a NULL name. */
static const struct unit *units_of(enum type t)
{
	static const struct unit none[] = {{"", 1}, {NULL, 0}};
	static const struct unit sizes[] = {{"", 1}, {"K", 1ull << 10}, {"M", 1ull << 20}, {"G", 1ull << 30}, {"T", 1ull << 40},
					    {NULL, 0}};
	static const struct unit times[] = {{"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000},
					    {"d", 86400000000000}, {NULL, 0}};

	return t == BYTES ? sizes : t == DURATION ? times : none;
}

static int parse_value(const struct key *k, const char *text, uint64_t *v)
{
	char *end;
	uint64_t n;

	if (k->type == FLAG) {
		*v = !strcmp(text, "yes");
		return *v || !strcmp(text, "no") ? 0 : GW_ECONFIG;
	}
	if (text[0] < '0' || text[0] > '9' || strlen(text) > 20)
		return GW_ECONFIG;
	n = strtoull(text, &end, 10);
	for (const struct unit *u = units_of(k->type); u->name; u++)
		if (!strcmp(end, u->name))
			return __builtin_mul_overflow(n, u->scale, v) ? GW_ECONFIG : 0;
	return GW_ECONFIG;
}

/* As it would be written: in the largest unit that divides it. */
static const char *format_value(char *buf, size_t cap, enum type t, uint64_t v)
{
	const struct unit *best = units_of(t);

	for (const struct unit *u = best; u->name; u++)
		if (v && v % u->scale == 0)
			best = u;
	(void)snprintf(buf, cap, "%llu%s", (unsigned long long)(v / best->scale), best->name);
	return buf;
}

static const char *type_name(enum type t)
{
	static const char *const names[] = {"text", "a path", "yes or no", "a whole number",
					    "a size such as 512K, 64M or 2G", "a duration such as 250ms, 20s, 3m or 24h"};

	return names[t];
}

static int set(struct gw_config *c, const struct key *k, const char *text, struct gw_diag *why)
{
	void *field = (char *)c + k->offset;
	char low[32], high[32];
	uint64_t v;
	size_t n = strlen(text);

	if (k->type == TEXT || k->type == PATH) {
		if (n < k->min || n > k->max || n >= GW_CONFIG_TEXT_MAX)
			return gw_diag_set(why, GW_ECONFIG, "%s.%s: %zu bytes long, but %llu to %llu are allowed", k->section,
					   k->name, n, (unsigned long long)k->min, (unsigned long long)k->max);
		memcpy(field, text, n + 1);
		return 0;
	}
	if (parse_value(k, text, &v))
		return gw_diag_set(why, GW_ECONFIG, "%s.%s = %s: not %s", k->section, k->name, text, type_name(k->type));
	if (v < k->min || v > k->max)
		return gw_diag_set(why, GW_ECONFIG, "%s.%s = %s: out of its limits, %s to %s", k->section, k->name, text,
				   format_value(low, sizeof low, k->type, k->min), format_value(high, sizeof high, k->type, k->max));
	memcpy(field, &v, sizeof v);
	return 0;
}

void gw_config_defaults(struct gw_config *c)
{
	memset(c, 0, sizeof *c);
	for (size_t i = 0; i < KEYS; i++)
		(void)set(c, &keys[i], keys[i].def, NULL);
}

struct parse {
	struct gw_config *c;
	struct gw_diag *why;
	uint8_t given[KEYS];
	int err;
};

static int set_cost(struct parse *p, const char *region, const char *value)
{
	struct gw_config *c = p->c;
	uint64_t v;
	struct key k = {.type = U64};

	if (parse_value(&k, value, &v) || v > 1000000)
		return gw_diag_set(p->why, GW_ECONFIG, "cost.%s = %s: not a whole number up to 1000000", region, value);
	for (uint32_t i = 0; i < c->cost_count; i++)
		if (!strcmp(c->costs[i].region, region))
			return gw_diag_set(p->why, GW_ECONFIG, "cost.%s: given twice", region);
	if (c->cost_count == GW_CONFIG_COSTS_MAX || strlen(region) >= sizeof c->costs[0].region)
		return gw_diag_set(p->why, GW_ECONFIG, "cost.%s: too many regions, or too long a name", region);
	(void)snprintf(c->costs[c->cost_count].region, sizeof c->costs[0].region, "%s", region);
	c->costs[c->cost_count++].cost = (uint32_t)v;
	return 0;
}

/* inih's callback: 1 goes on, 0 is an error of this line. */
static int on_pair(void *user, const char *section, const char *name, const char *value)
{
	struct parse *p = user;

	if (p->err)
		return 1;
	if (!strcmp(section, "cost")) {
		p->err = set_cost(p, name, value);
		return !p->err;
	}
	for (size_t i = 0; i < KEYS; i++) {
		if (strcmp(keys[i].section, section) || strcmp(keys[i].name, name))
			continue;
		p->err = p->given[i]++ ? gw_diag_set(p->why, GW_ECONFIG, "%s.%s: given twice", section, name)
				       : set(p->c, &keys[i], value, p->why);
		return !p->err;
	}
	p->err = section[0] ? gw_diag_set(p->why, GW_ECONFIG, "%s.%s: no such key (godwitd --print-config shows all)", section,
					  name)
			    : gw_diag_set(p->why, GW_ECONFIG, "%s stands before any [section]", name);
	return 0;
}

/* A section's name without its brackets; inih itself is silent about one that holds no key. */
static int section_known(const char *line, size_t len)
{
	const char *end = memchr(line, ']', len);
	size_t n = end ? (size_t)(end - line) - 1 : 0;

	for (size_t i = 0; i < KEYS; i++)
		if (strlen(keys[i].section) == n && !memcmp(keys[i].section, line + 1, n))
			return 1;
	return n == 4 && !memcmp("cost", line + 1, n);
}

/* "host, trust, …": those of the table, in its order, and cost. */
static const char *section_names(char *buf, size_t cap)
{
	const char *last = "";
	size_t n = 0;

	for (size_t i = 0; i < KEYS; i++) {
		if (strcmp(last, keys[i].section))
			n += (size_t)snprintf(buf + n, cap - n, "%s, ", keys[i].section);
		last = keys[i].section;
	}
	(void)snprintf(buf + n, cap - n, "cost");
	return buf;
}

/* Refuses what inih would cut, join, misread or pass over. */
static int check_lines(const char *text, size_t n, const char *name, struct gw_diag *why)
{
	unsigned number = 1;
	char all[256];

	for (size_t at = 0; at < n; number++) {
		const char *line = text + at, *end = memchr(line, '\n', n - at);
		size_t len = end ? (size_t)(end - line) : n - at;

		if (memchr(line, 0, len))
			return gw_diag_set(why, GW_ECONFIG, "%s:%u: holds a NUL byte", name, number);
		if (len > LINE_MAX_BYTES)
			return gw_diag_set(why, GW_ECONFIG, "%s:%u: longer than %d bytes", name, number, LINE_MAX_BYTES);
		if (len && line[0] == '[' && !section_known(line, len))
			return gw_diag_set(why, GW_ECONFIG, "%s:%u: no such section; there are %s", name, number,
					   section_names(all, sizeof all));
		if (len && (line[0] == ' ' || line[0] == '\t') && strspn(line, " \t\r") < len)
			return gw_diag_set(why, GW_ECONFIG, "%s:%u: starts with a space; a line may not go on another", name,
					   number);
		at += len + 1;
	}
	return 0;
}

int gw_config_parse(struct gw_config *c, const char *text, size_t n, const char *name, struct gw_diag *why)
{
	struct parse p = {.c = c, .why = why};
	char *copy;
	int err = check_lines(text, n, name, why), line;

	if (err)
		return err;
	copy = strndup(text, n);
	if (!copy)
		return GW_ENOMEM;
	gw_config_defaults(c);
	line = ini_parse_string(copy, on_pair, &p);
	free(copy);
	if (line < 0)
		return GW_ENOMEM;
	if (line > 0)
		return p.err ? gw_diag_wrap(why, p.err, "%s:%d", name, line)
			     : gw_diag_set(why, GW_ECONFIG, "%s:%d: neither [section] nor key = value", name, line);
	err = gw_config_check(c, why);
	return err ? gw_diag_wrap(why, err, "%s", name) : 0;
}

int gw_config_load(struct gw_config *c, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	struct gw_file *f;
	struct gw_stat st;
	char *text = NULL;
	int err = gw_fs_open(fs, path, GW_OPEN_READ, &f);

	if (err)
		return gw_diag_set(why, GW_ECONFIG, "cannot read %s: %s", path, gw_err_text(err));
	err = gw_fs_fstat(fs, f, &st);
	if (!err && st.size > GW_CONFIG_FILE_MAX)
		err = gw_diag_set(why, GW_ECONFIG, "%s: larger than %d bytes", path, GW_CONFIG_FILE_MAX);
	if (!err && !(text = malloc(st.size + 1)))
		err = GW_ENOMEM;
	if (!err)
		err = gw_fs_pread(fs, f, text, st.size, 0);
	gw_fs_close(fs, f);
	if (!err)
		err = gw_config_parse(c, text, st.size, path, why);
	free(text);
	return err;
}

static int differs(const struct key *k, const struct gw_config *a, const struct gw_config *b)
{
	const char *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;

	return k->type == TEXT || k->type == PATH ? strcmp(x, y) != 0 : memcmp(x, y, sizeof(uint64_t)) != 0;
}

static int costs_differ(const struct gw_config *a, const struct gw_config *b)
{
	if (a->cost_count != b->cost_count)
		return 1;
	for (uint32_t i = 0; i < a->cost_count; i++)
		if (strcmp(a->costs[i].region, b->costs[i].region) || a->costs[i].cost != b->costs[i].cost)
			return 1;
	return 0;
}

static size_t field_bytes(const struct key *k)
{
	return k->type == TEXT || k->type == PATH ? GW_CONFIG_TEXT_MAX : sizeof(uint64_t);
}

int gw_config_reload(struct gw_config *now, const struct gw_config *next, struct gw_diag *why)
{
	for (size_t i = 0; i < KEYS; i++)
		if (!keys[i].reload && differs(&keys[i], now, next))
			return gw_diag_set(why, GW_ECONFIG, "%s.%s cannot change while godwitd runs; restart it", keys[i].section,
					   keys[i].name);
	if (costs_differ(now, next))
		return gw_diag_set(why, GW_ECONFIG, "[cost] cannot change while godwitd runs; restart it");
	/* These alone: workers read the others meanwhile. */
	for (size_t i = 0; i < KEYS; i++)
		if (keys[i].reload)
			memcpy((char *)now + keys[i].offset, (const char *)next + keys[i].offset, field_bytes(&keys[i]));
	return 0;
}

int gw_config_print(FILE *to)
{
	const char *section = "";
	int n = 0;

	for (size_t i = 0; i < KEYS && n >= 0; i++) {
		const struct key *k = &keys[i];

		if (strcmp(section, k->section))
			n = fprintf(to, "%s[%s]\n", i ? "\n" : "", k->section);
		section = k->section;
		if (n >= 0)
			n = fprintf(to, "# %s%s\n#%s = %s\n", k->help, k->reload ? " (reload)" : "", k->name, k->def);
	}
	if (n >= 0)
		n = fputs("\n[cost]\n# REGION = N: what fetching from that region costs; default: 100, from one's own 0; the cheapest is "
			  "asked\n#eu-west = 10\n", to);
	return n < 0 ? GW_EIO : 0;
}
