/*
 * One patch for several: what gw_diff would write for the first and the last version, byte for byte, without the last
 * (and those between) being there.
 *
 * gw_fold: from the base and a chain of patches, each of which starts where the one before ends. Each tile is decoded
 * from patch to patch, compared with the base's and coded. Memory is that of a diff and the decoders', some 30 MiB a
 * worker; but a tensor that travelled whole in the middle of the chain and changed after, or that the patches cut along
 * different axes, is made as a whole: then as much more as the largest such tensor has.
 *
 * gw_fold_resident: from the newest version's bits, wherever they are, and what each step since overwrote (kept undo
 * lists).
 */
#ifndef GW_PATCH_FOLD_H
#define GW_PATCH_FOLD_H

#include "patch/diff.h"
#include "patch/patch.h"

struct gw_fold_patch {
	const struct gw_patch *pt;
	const char *name; /* for messages */
};

/* base == NULL where the first patch is one from nothing; n >= 1. GW_EBASE where the base is not what the first patch
 * starts from, or a patch does not start where the one before ends; GW_EFINGERPRINT, GW_EDIGEST where what comes out is
 * not what the patches promise. Options as of gw_diff; without an axis function tensors are cut as in the patches. */
int gw_fold(const struct gw_checkpoint *base, const struct gw_fold_patch *patches, uint32_t n, struct gw_fs *fs,
	    struct gw_pool *pool, const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report,
	    struct gw_diag *why);

/* What one step from a version to the next overwrote in a tensor: n elements at rising places of the tensor, in C order,
 * and their bits before the step. */
struct gw_undo {
	const uint64_t *at;
	const uint8_t *old_bits;
	uint64_t n;
};

/* A file of the newest version, or one that is gone from it, as the patch shall tell it: patch/patch.h. */
struct gw_fold_file {
	const char *name;
	enum gw_patch_file_kind kind; /* of what a shard carries: not looked at */
	int fresh;                    /* not as in the old version: the bytes are at p */
	const uint8_t *p;
	uint64_t bytes; /* OTHER: of the file; SHARD: of the header */
	uint8_t digest[GW_FILE_DIGEST_BYTES];
	uint64_t data_bytes;                /* SHARD: behind the header */
	const struct gw_fold_file *carried; /* SHARD: the tensors it carries */
	uint32_t carried_count;
};

/* The newest version where it lies, and the steps since the old one. Both versions have the same tensors, in the same
 * forms: where one came, went or changed its form between them, there is no undo list of it. */
struct gw_resident {
	void *ctx;
	const struct gw_tensor *tensors; /* rising names; p is not looked at */
	uint32_t count;
	/* The elements of a rectangle of tensor i, row by row without holes, to out; on worker < pool->width. */
	int (*read)(void *ctx, uint32_t i, const struct gw_tile_rect *r, unsigned worker, uint8_t *out);
	uint32_t steps; /* 0 is the oldest */
	struct gw_undo (*undo)(void *ctx, uint32_t i, uint32_t step);
	const struct gw_fold_file *files;
	uint32_t file_count;
	uint64_t from_print[2], to_print[2]; /* of the two versions, as they were published */
};

/* The patch from the old version to the newest. GW_EFINGERPRINT where the resident bits are not those of to_print;
 * GW_EBASE where the undo lists do not lead back to from_print. */
int gw_fold_resident(const struct gw_resident *rs, struct gw_fs *fs, struct gw_pool *pool,
		     const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report,
		     struct gw_diag *why);

#endif
