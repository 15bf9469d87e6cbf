/*
 * The versions that this host can prove resident weights against: version tables (engine/table.h) in memory and in
 * STATE/versions. A table is kept durably before the commit that leads to its version, so that a daemon which
 * starts again knows both what was served and what may have been decided.
 *
 * Of each run the GW_VERSIONS_KEPT kept last stay, of all runs together at most GW_VERSIONS_MAX. Pinned ones stay
 * besides, whatever their age: those of checkpoint folders that an engine may start from.
 *
 * Thread-safe: the loop looks tables up while a worker keeps a new one.
 */
#ifndef GW_DAEMON_VERSIONS_H
#define GW_DAEMON_VERSIONS_H

#include <stdint.h>

#include "base/file.h"
#include "base/pool.h"
#include "engine/table.h"

enum { GW_VERSIONS_KEPT = 8, GW_VERSIONS_MAX = 256, GW_VERSIONS_PINS_MAX = 16 };

struct gw_versions;

/* Makes STATE/versions where missing and reads what is there; damaged files are reported and skipped. */
int gw_versions_open(struct gw_versions **out, struct gw_fs *fs, const char *state, struct gw_diag *why);
void gw_versions_free(struct gw_versions *v);

/* Durable when it returns 0. Replaces an equal (run, version); removes the oldest that is one too many. */
int gw_versions_keep(struct gw_versions *v, struct gw_table *t, struct gw_diag *why);
/* Pin it before it is kept, and unpin it when its folder is gone. Of more than GW_VERSIONS_PINS_MAX the first is
 * forgotten. */
void gw_versions_pin(struct gw_versions *v, const uint8_t run[16], uint64_t version);
void gw_versions_unpin(struct gw_versions *v, const uint8_t run[16], uint64_t version);
/* The table, held for the caller, or NULL. run NULL: of any run. */
struct gw_table *gw_versions_find(struct gw_versions *v, const uint8_t run[16], uint64_t version);
/* Number i, the one kept last first; NULL beyond the end. */
struct gw_table *gw_versions_at(struct gw_versions *v, uint32_t i);

/* The table of a checkpoint: reads every tensor. */
int gw_versions_scan(struct gw_fs *fs, const char *checkpoint, const uint8_t run[16], uint64_t version,
		     struct gw_pool *pool, struct gw_table **out, struct gw_diag *why);

#endif
