/*
 * A binary heap of timers: (when, key) pairs, smallest `when` first, ties by order of insertion so
 * that replays are exact. Cancelling is lazy: owners keep a generation in `key` and ignore old ones.
 */
#ifndef GW_BASE_HEAP_H
#define GW_BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct gw_heap_item {
	uint64_t when_ns;
	uint64_t seq; /* set by push */
	uint64_t key; /* the owner's */
	void *ptr;    /* the owner's */
};

struct gw_heap {
	struct gw_heap_item *items;
	size_t n, cap;
	uint64_t seq;
};

void gw_heap_init(struct gw_heap *h);
void gw_heap_free(struct gw_heap *h);
int gw_heap_push(struct gw_heap *h, uint64_t when_ns, uint64_t key, void *ptr);
/* The first item, or NULL; valid until the next push or pop. */
const struct gw_heap_item *gw_heap_top(const struct gw_heap *h);
/* Removes the first item; the heap must not be empty. */
struct gw_heap_item gw_heap_pop(struct gw_heap *h);

#endif
