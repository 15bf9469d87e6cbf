/*
 * Inside the staged list: what building, checking and applying share. Only src/patch includes this.
 */
#ifndef GW_PATCH_LIST_IMPL_H
#define GW_PATCH_LIST_IMPL_H

#include "patch/list.h"

extern const uint8_t gw_list_magic[8];

static inline uint64_t gw_list_pad(uint64_t bytes)
{
	return (bytes + 7) & ~7ull;
}

static inline int gw_list_width_ok(unsigned width)
{
	return width == 1 || width == 2 || width == 4 || width == 8;
}

/* The three columns of a run, padded. */
static inline uint64_t gw_list_data_bytes(unsigned count, unsigned width)
{
	return gw_list_pad(2ull * count) + 2 * gw_list_pad((uint64_t)count * width);
}

/* What `check` in the header must be. h->bytes must be true. */
void gw_list_sum(const struct gw_list_header *h, uint64_t sum[2]);

/* Byte offsets of the first place, and behind the last one. GW_EMALFORMED where places do not rise or overflow. */
int gw_list_part_span(const struct gw_list_part *part, uint64_t *first, uint64_t *end);

/* GW_EDUPLICATE where two runs name the same byte. Runs must be sound. O(n log k) for k interleaved runs. */
int gw_list_disjoint(const struct gw_list_header *h, struct gw_diag *why);

#endif
