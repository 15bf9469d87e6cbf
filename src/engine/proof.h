/*
 * Proof: the resident weights, gathered through the maps and summed, against the fingerprints of a
 * version; each copy against its owner. A full scan at memory speed, cut into tasks for a pool.
 */
#ifndef GW_ENGINE_PROOF_H
#define GW_ENGINE_PROOF_H

#include <stdint.h>

#include "base/pool.h"
#include "engine/plan.h"
#include "engine/table.h"
#include "patch/apply.h"

/* One rank's memory, as the device sees it. */
struct gw_rank_mem {
	struct gw_device dev;
	const struct gw_dev_mem *mem;
	uint32_t segments;
};

/* Whether several threads may use the devices at once: only row 0 lets them. */
int gw_rank_mem_parallel(const struct gw_rank_mem *ranks, uint32_t n);

/* Sums of every mapped tensor: prints[2 * i] of plan tensor i. Unmapped ones get zeros. A copy that differs from its
 * owner is refused (GW_EFINGERPRINT) with the tensor's name and ranks. */
int gw_proof_sum(const struct gw_plan *p, const struct gw_rank_mem *ranks, struct gw_pool *pool, uint64_t *prints,
		 struct gw_refusal *no);

/* The first mapped tensor that the version does not have in that dtype and shape (GW_EINVAL), or whose sum is another
 * (GW_EFINGERPRINT); or 0. */
int gw_proof_compare(const struct gw_plan *p, const struct gw_table *t, const uint64_t *prints, struct gw_refusal *no);

/* Adds to a refusal the first element of its tensor that differs from the checkpoint's bytes (all of them, in
 * order). */
void gw_proof_find(const struct gw_plan *p, const struct gw_rank_mem *ranks, const void *bytes, uint64_t n,
		   struct gw_refusal *no);

#endif
