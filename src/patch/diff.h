/*
 * Making a patch file from two checkpoints.
 *
 * Both versions are read once: each tile is compared, summed and coded while it is in the cache. Only a sample of the
 * tiles (all of a small model, one in sixteen of a large one) is read before, twice, to learn the models from; where that
 * shows next to no change, all of them. Tasks run on the pool; memory is 15 MiB a worker for elements of 2 bytes, 30 for
 * those of 8, whatever the size of the model. The same two checkpoints give the same bytes
 * for any pool (and any machine that has the same release of libzstd).
 *
 * Tensors are matched by name: one that moved to another shard is not a change. A patch from a chain of patches is
 * patch/fold.h's.
 */
#ifndef GW_PATCH_DIFF_H
#define GW_PATCH_DIFF_H

#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/progress.h"
#include "weights/checkpoint.h"

struct gw_diff_options {
	/* The slicing axis of a tensor, less than rank (0 for rank 0); NULL: gw_slicing_axis (for a fold: as the
	 * patches have it). */
	unsigned (*axis)(void *ctx, const char *name, unsigned rank, const uint64_t *shape);
	void *ctx;
	int replace; /* an existing output is replaced; else GW_EEXIST */
	struct gw_progress *watch; /* may be NULL */
};

struct gw_diff_report {
	uint64_t from_print[2], to_print[2];
	uint32_t tensors_changed, tensors_whole, tensors_removed;
	uint64_t changed;         /* elements, whole tensors included */
	uint64_t elements, bytes; /* of the new version */
	uint64_t patch_bytes;
};

/* old == NULL: a patch from nothing (an anchor). opt and report may be NULL. GW_ESHRUNK where a checkpoint's
 * file changed its size meanwhile. */
int gw_diff(const struct gw_checkpoint *old, const struct gw_checkpoint *new_, struct gw_fs *fs, struct gw_pool *pool,
	    const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report, struct gw_diag *why);

#endif
