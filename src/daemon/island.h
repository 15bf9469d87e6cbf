/*
 * What this host does with versions that are whole in its store: an anchor becomes a checkpoint folder that an
 * engine can start from, a transition goes into the attached engine's memory; and what it says about itself for
 * the health query. The folders: daemon/folders.h.
 */
#ifndef GW_DAEMON_ISLAND_H
#define GW_DAEMON_ISLAND_H

#include "base/err.h"
#include "wire/step.h"

struct gw_attach;
struct gw_core;
struct gw_island;

int gw_island_new(struct gw_island **out, struct gw_core *core, struct gw_diag *why);
/* Lets the engine go; before the workers end. */
void gw_island_stop(struct gw_island *i);
void gw_island_free(struct gw_island *i);
struct gw_attach *gw_island_attach(struct gw_island *i);

/* The action PATH. */
void gw_island_path(struct gw_island *i, const struct gw_digest *object, uint64_t version);
/* Brings the node's record of this host up to date. */
void gw_island_report(struct gw_island *i);

#endif
