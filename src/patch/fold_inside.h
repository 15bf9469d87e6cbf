/* Inside a fold: fold.c plans it and gives tiles, fold_chain.c knows what each version of the chain holds. */
#ifndef GW_PATCH_FOLD_INSIDE_H
#define GW_PATCH_FOLD_INSIDE_H

#include "patch/diff_inside.h"
#include "patch/fold.h"

/* Scratch of one worker. */
struct gw_chain_worker {
	struct gw_tile_decoder *decoder;
	uint8_t *room; /* a tile */
	/* What could not be decoded; err 0: nothing. */
	int err;
	uint32_t patch, piece;
	const struct gw_patch_tensor *tensor;
};

struct gw_chain {
	const struct gw_checkpoint *base;
	const struct gw_fold_patch *patches;
	uint32_t n;
	struct gw_pool *pool;
	struct gw_chain_worker *workers; /* pool->width */
	struct gw_diag *why;
};

int gw_chain_init(struct gw_chain *c);
void gw_chain_free(struct gw_chain *c);

/* What patch k changes of t's companion; NULL where t has none. On the caller. */
int gw_chain_hot(struct gw_chain *c, uint32_t k, const struct gw_patch_tensor *t, struct gw_hot **out);
/* Decodes a tile of patch k at `bits`, its elements before the patch, and overwrites there what changed. */
int gw_chain_tile(struct gw_chain *c, unsigned worker, uint32_t k, const struct gw_patch_tensor *t, uint32_t tile,
		  const struct gw_hot *hot, uint8_t *bits);
int gw_chain_chunk(struct gw_chain *c, unsigned worker, uint32_t k, const struct gw_patch_tensor *t, uint32_t chunk,
		   const uint8_t **p);

/* A served tensor after the first k patches, as a whole: malloced, or the base's own bytes, and then *own is NULL. */
int gw_chain_tensor(struct gw_chain *c, const char *name, uint32_t k, uint8_t **own, const uint8_t **p,
		    uint64_t *bytes);
/* The same of a file's bytes (a shard's header), or of a tensor it carries, after all patches. */
int gw_chain_stored(struct gw_chain *c, const char *file, const char *carried, uint8_t **own, const uint8_t **p,
		    uint64_t *bytes);

/* Whether each patch starts where the one before ends, files included; GW_EBASE. */
int gw_chain_check(struct gw_chain *c);

#endif
