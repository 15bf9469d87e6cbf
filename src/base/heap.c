#include "base/heap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void gw_heap_init(struct gw_heap *h)
{
	memset(h, 0, sizeof *h);
}

void gw_heap_free(struct gw_heap *h)
{
	free(h->items);
	gw_heap_init(h);
}

static int before(const struct gw_heap_item *a, const struct gw_heap_item *b)
{
	return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->seq < b->seq;
}

int gw_heap_push(struct gw_heap *h, uint64_t when_ns, uint64_t key, void *ptr)
{
	struct gw_heap_item item = {when_ns, h->seq, key, ptr};
	size_t i = h->n;

	if (h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 16;
		struct gw_heap_item *items = reallocarray(h->items, cap, sizeof *items);

		if (!items)
			return GW_ENOMEM;
		h->items = items;
		h->cap = cap;
	}
	h->seq++;
	h->n++;
	for (; i && before(&item, &h->items[(i - 1) / 2]); i = (i - 1) / 2)
		h->items[i] = h->items[(i - 1) / 2];
	h->items[i] = item;
	return 0;
}

const struct gw_heap_item *gw_heap_top(const struct gw_heap *h)
{
	return h->n ? &h->items[0] : NULL;
}

struct gw_heap_item gw_heap_pop(struct gw_heap *h)
{
	struct gw_heap_item top, last;
	size_t i = 0;

	assert(h->n);
	top = h->items[0];
	last = h->items[--h->n];
	for (size_t kid; (kid = 2 * i + 1) < h->n; i = kid) {
		if (kid + 1 < h->n && before(&h->items[kid + 1], &h->items[kid]))
			kid++;
		if (!before(&h->items[kid], &last))
			break;
		h->items[i] = h->items[kid];
	}
	h->items[i] = last;
	return top;
}
