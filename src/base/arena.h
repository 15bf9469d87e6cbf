/*
 * A bump allocator with a limit: what one frame, one parse or one step needs, freed in one go.
 */
#ifndef GW_BASE_ARENA_H
#define GW_BASE_ARENA_H

#include <stddef.h>

struct gw_arena_chunk;

struct gw_arena {
	struct gw_arena_chunk *chunks;
	size_t used, max; /* bytes handed out; the most that may be */
};

void gw_arena_init(struct gw_arena *a, size_t max);
/* Zeroed, aligned for any type; NULL when over the limit or out of memory. n = 0 gives non-NULL. */
void *gw_arena_alloc(struct gw_arena *a, size_t n);
/* count * size, checked. */
void *gw_arena_array(struct gw_arena *a, size_t count, size_t size);
/* A copy of n bytes and a NUL behind them. */
void *gw_arena_copy(struct gw_arena *a, const void *p, size_t n);
/* Frees all that was handed out; the arena stays usable. */
void gw_arena_reset(struct gw_arena *a);

#endif
