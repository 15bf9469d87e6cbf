/*
 * A staged list as a view: finding its records by place. Part of staging (stage.h); kept until the staging that uses
 * it is done. Runs may interleave in memory, so they are kept by first byte with the highest last byte so far.
 */
#ifndef GW_ENGINE_OVERLAY_H
#define GW_ENGINE_OVERLAY_H

#include <stddef.h>
#include <stdint.h>

#include "patch/list.h"

struct gw_overlay_run {
	uint32_t segment, run;
	uint64_t first, last, reach; /* bytes; reach: the highest last of this and the runs before, same segment */
};

struct gw_overlay {
	const struct gw_list_header *list;
	struct gw_overlay_run *runs;
	size_t n;
};

/* The list has been checked and stays. */
int gw_overlay_init(struct gw_overlay *o, const struct gw_list_header *list);
void gw_overlay_free(struct gw_overlay *o);

/* Calls each for every record whose place begins in [first, last] of the segment, run by run. Stops at the first
 * non-zero. */
int gw_overlay_records(const struct gw_overlay *o, uint32_t segment, uint64_t first, uint64_t last,
		       int (*each)(void *ctx, uint64_t at, const uint8_t *old_bits, const uint8_t *new_bits), void *ctx);
/* Whether there may be any. */
int gw_overlay_touches(const struct gw_overlay *o, uint32_t segment, uint64_t first, uint64_t last);

#endif
