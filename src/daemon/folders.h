/*
 * The checkpoint folders that engines start from, made of anchors:
 *
 *     STATE/checkpoints/POLICY/VERSION-RUN   a complete checkpoint; RUN is 32 hexadecimal digits
 *     STATE/checkpoints/POLICY/CURRENT       a link to the newest of them
 *
 * An engine resolves CURRENT once and reads that folder. So the folder that CURRENT named before is not removed when
 * a newer one is made, but by gw_folders_sweep, when an engine is known to be through; older ones go at once. The tables
 * of all folders that are there are pinned in `versions`, however many versions later an engine starts from one.
 *
 * Not thread-safe, but for gw_folders_path: the caller lets one job at a time make or sweep.
 */
#ifndef GW_DAEMON_FOLDERS_H
#define GW_DAEMON_FOLDERS_H

#include "base/file.h"
#include "base/pool.h"
#include "daemon/versions.h"
#include "patch/patch.h"

struct gw_folders;

/* Looks at what is there; makes nothing. */
int gw_folders_open(struct gw_folders **out, struct gw_fs *fs, const char *state, const char *policy,
		    struct gw_versions *versions, struct gw_diag *why);
void gw_folders_free(struct gw_folders *f);

/* The folder of a version, malloced, whether it is there or not. */
char *gw_folders_path(const struct gw_folders *f, const uint8_t run[16], uint64_t version);
/* Writes the folder of an anchor unless it is there, and sets CURRENT. Takes as long as writing a model. Does nothing
 * where CURRENT names a newer version of the run. */
int gw_folders_make(struct gw_folders *f, const struct gw_patch *anchor, const uint8_t run[16], uint64_t version,
		    struct gw_pool *pool, struct gw_diag *why);
/* Whether there are folders besides CURRENT's; and removes them. */
int gw_folders_has_old(const struct gw_folders *f);
void gw_folders_sweep(struct gw_folders *f);

#endif
