/*
 * One tile's share of staging, done on a worker: gather it from the ranks, lay the staged lists over it, decode it, and
 * say which elements go from what lies in memory to what. Part of stage.c.
 */
#ifndef GW_ENGINE_STAGE_TILE_H
#define GW_ENGINE_STAGE_TILE_H

#include "engine/overlay.h"
#include "engine/stage.h"

enum { GW_STAGE_TILE_BYTES = GW_TILE_ELEMENTS_MAX * 8 };

/* Scratch of one worker. */
struct gw_stage_worker {
	struct gw_tile_decoder *decoder;
	uint8_t *view;   /* the tile as the patch's base has it */
	uint8_t *gather;
	struct gw_staged_place *places; /* of the tile that staged lists name */
	size_t place_n, place_cap;
	uint64_t *index; /* positions as elements, for fingerprints */
	uint32_t *at;    /* changes of a WHOLE tensor's chunk, as gw_tile_decode gives those of a tile */
	uint8_t *old_bits, *new_bits;
};

int gw_stage_worker_init(struct gw_stage_worker *w);
void gw_stage_worker_free(struct gw_stage_worker *w);

/* What a tile says: rising elements, their bits in memory, and after. `block` holds all three. */
struct gw_stage_result {
	size_t n;
	uint64_t *elements;
	uint8_t *old_bits, *new_bits;
	void *block;
	uint64_t lane[2]; /* CHANGED: what it adds to the fingerprint; WHOLE: its share of it */
};

struct gw_stage_tile {
	const struct gw_stage *stage;
	const struct gw_overlay *over;        /* one a rank, or NULL */
	const struct gw_plan_tensor *tensor;
	const struct gw_plan_window *only;    /* not NULL: gather from that window alone; what it does not hold means nothing */
	const struct gw_patch_tensor *patch;  /* NULL: the patch leaves the tensor alone, only staged places count */
	const struct gw_hot *hot;             /* what the patch changes of the tensor's companion, if it has one */
	uint32_t tile;                        /* or chunk, of a WHOLE one */
	struct gw_tile_rect rect;
};

/* The caller frees out->block, also of an empty result (NULL). */
int gw_stage_tile_run(const struct gw_stage_tile *t, struct gw_stage_worker *w, struct gw_stage_result *out);

/* Adds what the patch changes of a CHANGED tensor's tile. */
int gw_stage_tile_hot(const struct gw_stage_tile *t, struct gw_stage_worker *w, struct gw_hot *hot);

#endif
