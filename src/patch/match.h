/*
 * Whether a checkpoint is what a patch starts from, or ends in: its names against the patch's, its bits against the
 * fingerprints and digests that the patch holds.
 */
#ifndef GW_PATCH_MATCH_H
#define GW_PATCH_MATCH_H

#include <stdint.h>

#include "base/pool.h"
#include "base/progress.h"
#include "patch/patch.h"
#include "weights/checkpoint.h"

/* The name a shard has in patches: its own, or "model.safetensors" for a checkpoint that is a single file. */
const char *gw_match_shard_name(const struct gw_checkpoint *c, const struct gw_shard *s);
/* By name; NULL where there is none, also for c == NULL. */
const struct gw_shard *gw_match_shard(const struct gw_checkpoint *c, const char *name);
const struct gw_other_file *gw_match_other(const struct gw_checkpoint *c, const char *name);
/* Any tensor of a shard, served or carried: where it lies and its row in the header; or NULL. */
const uint8_t *gw_match_in_shard(const struct gw_shard *s, const char *name, const struct gw_safetensors_tensor **row);

/* A checkpoint and the fingerprints of all its served tensors, once for several questions. */
struct gw_match {
	const struct gw_checkpoint *c;
	uint64_t (*lanes)[2]; /* in the checkpoint's order */
	uint64_t model[2];
};
/* watch: may be NULL; its expectation is the caller's, here and below. */
int gw_match_init(struct gw_match *m, const struct gw_checkpoint *c, struct gw_pool *pool, struct gw_progress *watch,
		  struct gw_diag *why);
void gw_match_free(struct gw_match *m);

/* 0 where it is what the patch starts from: every tensor that the patch changes or removes, every file whose bytes
 * it takes over, and the model as a whole. Else GW_EBASE, naming what differs. */
int gw_match_base(const struct gw_match *m, const struct gw_patch *pt, struct gw_diag *why);

/* 0 where the patch's rows make of the base (NULL: of nothing) what its header says: fingerprint and size after. Else
 * GW_EMALFORMED. gw_match_base asks it too. */
int gw_match_promise(const struct gw_match *m, const struct gw_patch *pt, struct gw_diag *why);

/* 0 where it is what the patch ends in (files that the patch does not name aside). Else GW_EFINGERPRINT or
 * GW_EDIGEST, naming what differs. */
int gw_match_result(const struct gw_match *m, const struct gw_patch *pt, struct gw_diag *why);

/* Opens the checkpoint at path and asks the same: what was written is proven where it lies. model: its fingerprint. */
int gw_match_path(const struct gw_patch *pt, struct gw_fs *fs, struct gw_pool *pool, struct gw_progress *watch,
		  const char *path, uint64_t model[2], struct gw_diag *why);

#endif
