/*
 * The bytes of the new version's files, from a patch and its base (which gw_match_base has proven): streamed to a
 * sink in rising offsets. Tiles and chunks decode side by side on the pool, up to GW_REBUILD_ELEMENTS of one tensor at
 * once. Every tensor that the patch names is summed as it is made; one that does not come to its fingerprint is
 * GW_EFINGERPRINT.
 */
#ifndef GW_PATCH_REBUILD_H
#define GW_PATCH_REBUILD_H

#include <stdint.h>

#include "base/pool.h"
#include "base/progress.h"
#include "patch/patch.h"
#include "weights/checkpoint.h"

enum { GW_REBUILD_ELEMENTS = 4 * 1024 * 1024 };

struct gw_rebuild;

/* base may be NULL for a patch from nothing; watch (may be NULL) sees the bytes of files go by; all of them outlive the rebuild. */
int gw_rebuild_new(struct gw_rebuild **out, const struct gw_patch *pt, const struct gw_checkpoint *base,
		   struct gw_pool *pool, struct gw_progress *watch);
void gw_rebuild_free(struct gw_rebuild *rb);

/* n bytes at offset `at` of the file, elements of that width. They are the base's own bytes, in its mapping, where
 * nothing changed. A non-zero return ends the rebuild with that error. */
struct gw_sink {
	int (*put)(void *ctx, uint64_t at, const uint8_t *p, uint64_t n, unsigned width);
	void *ctx;
};

/* A file that is not GONE: all of its bytes. */
int gw_rebuild_file(struct gw_rebuild *rb, const struct gw_patch_file *f, const struct gw_sink *sink,
		    struct gw_diag *why);

/* When all files are made: 0 where they hold every tensor of the version, once; else GW_EMALFORMED. */
int gw_rebuild_check(const struct gw_rebuild *rb, struct gw_diag *why);

#endif
