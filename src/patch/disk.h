/*
 * Patches and checkpoint folders on disk.
 *
 * gw_disk_apply writes a new checkpoint; gw_disk_apply_in_place changes a folder under a redo log, as
 * proto/REDO.md says. Both prove the base first (a fingerprint for every tensor that the patch names, the
 * model's for the rest), prove the result where it lies, by reading it again, and refuse a wrong base by the
 * tensor's or file's name: GW_EBASE. A patch that does not decode to what it promises is GW_EFINGERPRINT or
 * GW_EDIGEST. Memory is a few MiB a worker and one band of tiles (at most 32 MiB).
 *
 * watch, where it is not NULL, sees bytes of the checkpoints go by: those of the base as it is proven, of the new version as it
 * is made and as it is read back.
 */
#ifndef GW_PATCH_DISK_H
#define GW_PATCH_DISK_H

#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/progress.h"
#include "patch/patch.h"
#include "weights/checkpoint.h"

struct gw_disk_report {
	int already;              /* in place: the folder held the new version before anything was done */
	int recovered;            /* in place: a log of an interrupted run was found and finished first */
	uint64_t to_print[2];     /* whole model, as read back */
	uint64_t written_bytes;
	uint32_t files;           /* written or changed */
};

/* base: NULL for a patch from nothing. out must not exist. It becomes a file where base is a single file and the
 * version is one too, else a folder; it appears whole or not at all. */
int gw_disk_apply(const struct gw_patch *pt, const struct gw_checkpoint *base, struct gw_fs *fs, struct gw_pool *pool,
		  struct gw_progress *watch, const char *out, struct gw_disk_report *report, struct gw_diag *why);

/* Changes the checkpoint at `dir` (a folder or a single file). First finishes what an interrupted run left.
 * Returns 0 with report->already set where the new version is there. Stopped at any moment, the checkpoint is old,
 * new, or between, with a log beside it that the next call, or gw_disk_recover, finishes. */
int gw_disk_apply_in_place(const struct gw_patch *pt, struct gw_fs *fs, struct gw_pool *pool,
			   struct gw_progress *watch, const char *dir, struct gw_disk_report *report,
			   struct gw_diag *why);

/* Finishes an interrupted change in place; does nothing where there is no log. */
int gw_disk_recover(struct gw_fs *fs, struct gw_pool *pool, const char *dir, struct gw_disk_report *report,
		    struct gw_diag *why);

/* Bytes of all served tensors: what gw_disk_prints goes through. */
uint64_t gw_disk_bytes(const struct gw_checkpoint *c);

/* Fingerprints of all served tensors of a checkpoint. lanes: two words for each, in the checkpoint's order, or
 * NULL; model: their sum. Ends with gw_checkpoint_check. */
int gw_disk_prints(const struct gw_checkpoint *c, struct gw_pool *pool, struct gw_progress *watch, uint64_t (*lanes)[2],
		   uint64_t model[2], struct gw_diag *why);

#endif
