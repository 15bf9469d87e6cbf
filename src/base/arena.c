#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024 };

struct gw_arena_chunk {
	struct gw_arena_chunk *next;
	size_t at, cap;
	_Alignas(max_align_t) unsigned char bytes[];
};

void gw_arena_init(struct gw_arena *a, size_t max)
{
	a->chunks = NULL;
	a->used = 0;
	a->max = max;
}

static struct gw_arena_chunk *chunk_new(size_t need)
{
	size_t cap = need > CHUNK_BYTES ? need : CHUNK_BYTES;
	struct gw_arena_chunk *c;

	if (cap > SIZE_MAX - sizeof *c)
		return NULL;
	c = malloc(sizeof *c + cap);
	if (c) {
		c->at = 0;
		c->cap = cap;
	}
	return c;
}

void *gw_arena_alloc(struct gw_arena *a, size_t n)
{
	const size_t align = _Alignof(max_align_t);
	struct gw_arena_chunk *c = a->chunks;
	void *p;

	if (n > a->max || n > SIZE_MAX - align)
		return NULL;
	n = n ? (n + align - 1) / align * align : align;
	if (a->used > a->max || n > a->max - a->used)
		return NULL;
	if (!c || n > c->cap - c->at) {
		c = chunk_new(n);
		if (!c)
			return NULL;
		c->next = a->chunks;
		a->chunks = c;
	}
	p = c->bytes + c->at;
	c->at += n;
	a->used += n;
	return memset(p, 0, n);
}

void *gw_arena_array(struct gw_arena *a, size_t count, size_t size)
{
	size_t n;

	return __builtin_mul_overflow(count, size, &n) ? NULL : gw_arena_alloc(a, n);
}

void *gw_arena_copy(struct gw_arena *a, const void *p, size_t n)
{
	char *q = n < SIZE_MAX ? gw_arena_alloc(a, n + 1) : NULL;

	if (q && n)
		memcpy(q, p, n);
	return q;
}

void gw_arena_reset(struct gw_arena *a)
{
	while (a->chunks) {
		struct gw_arena_chunk *next = a->chunks->next;

		free(a->chunks);
		a->chunks = next;
	}
	a->used = 0;
}
