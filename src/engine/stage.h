/*
 * Staging: a patch becomes one list of (place, old bits, new bits) for each rank, while the engine serves.
 *
 * Each tile is gathered from resident memory (through the ranks' parts; no rank need hold a whole tile),
 * decoded, and its changes are put through every window that holds them. With lists already staged, their
 * new bits are laid over what is gathered, and the result is one list from the resident version to the new
 * one, which replaces them: old bits are always those that lie in memory.
 *
 * Checked on the way: the patch's old fingerprints against the table; the old bits that the memory holds
 * under each change plus the changes against the patch's new fingerprints.
 */
#ifndef GW_ENGINE_STAGE_H
#define GW_ENGINE_STAGE_H

#include <stdint.h>

#include "base/pool.h"
#include "engine/plan.h"
#include "engine/proof.h"
#include "engine/table.h"
#include "patch/list.h"
#include "patch/patch.h"

struct gw_stage {
	const struct gw_plan *plan;
	const struct gw_rank_mem *ranks;
	struct gw_pool *pool;
	const struct gw_table *base;          /* what the patch is from: what memory holds, or what is staged over it */
	int unknown;                          /* nobody knows what memory holds (only for an anchor) */
	const struct gw_list_header *const *over; /* lists staged over the memory, one a rank; or NULL */
	const struct gw_patch *patch;
	const uint8_t *run;                   /* 16 bytes */
	uint64_t from;                        /* what memory holds, for the lists' headers */
	uint64_t to;
	uint64_t list_max_bytes;              /* of one rank */
	const struct gw_list_mem *mem;        /* one a rank: where its list grows */
	/* results */
	const struct gw_list_header **lists;  /* one a rank, the caller's array */
	struct gw_table *table;               /* of version `to`; the caller frees */
	uint64_t records;                     /* over all ranks */
};

/* On error *no names the tensor where it is about one; the lists' memory holds nothing of use. GW_EOPAQUE: a
 * tensor that changes cannot be patched in place; GW_EBASE: wrong base; GW_EFINGERPRINT: what the tiles say is not
 * what the patch promises. */
int gw_stage_run(struct gw_stage *s, struct gw_refusal *no);

#endif
