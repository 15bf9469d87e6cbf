/*
 * Configuration: an INI file against one table, config.def. Unknown sections and keys, values out of
 * their limits, keys given twice, and lines that the INI reader would cut are errors that name the line.
 *
 * Besides the table there is one open section, [cost]: `REGION = N` says what it costs to fetch from
 * that region, as a whole number; a region that is not listed costs 100, one's own 0.
 */
#ifndef GW_DAEMON_CONFIG_H
#define GW_DAEMON_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "base/file.h"

enum { GW_CONFIG_COSTS_MAX = 256, GW_CONFIG_FILE_MAX = 256 * 1024, GW_CONFIG_TEXT_MAX = 176 };

struct gw_config_cost {
	char region[32];
	uint32_t cost;
};

/* Field names are section_key; TEXT and PATH are char arrays, the others uint64_t. */
struct gw_config {
#define GW_CONFIG_TEXT(s, k) char s##_##k[GW_CONFIG_TEXT_MAX];
#define GW_CONFIG_PATH(s, k) char s##_##k[GW_CONFIG_TEXT_MAX];
#define GW_CONFIG_FLAG(s, k) uint64_t s##_##k;
#define GW_CONFIG_U64(s, k) uint64_t s##_##k;
#define GW_CONFIG_BYTES(s, k) uint64_t s##_##k;
#define GW_CONFIG_DURATION(s, k) uint64_t s##_##k;
#define GW_CONFIG(s, k, type, def, min, max, reload, help) GW_CONFIG_##type(s, k)
#include "daemon/config.def"
#undef GW_CONFIG
	struct gw_config_cost costs[GW_CONFIG_COSTS_MAX];
	uint32_t cost_count;
};

/* Every key at its default. */
void gw_config_defaults(struct gw_config *c);
/* Defaults, then the text. `name` stands in messages. On error *c is undefined. */
int gw_config_parse(struct gw_config *c, const char *text, size_t n, const char *name, struct gw_diag *why);
/* What the limits of single keys cannot say; parse and load do it too. */
int gw_config_check(const struct gw_config *c, struct gw_diag *why);
int gw_config_load(struct gw_config *c, struct gw_fs *fs, const char *path, struct gw_diag *why);
/* Copies into *now the keys that may change in a running daemon. Refuses, naming the key and changing
 * nothing, where another key differs. */
int gw_config_reload(struct gw_config *now, const struct gw_config *next, struct gw_diag *why);
/* The table as a commented INI file. */
int gw_config_print(FILE *to);

#endif
