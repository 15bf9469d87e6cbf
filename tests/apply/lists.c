#include "lists.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/num.h"
#include "base/rng.h"
#include "patch/list_impl.h"

static void *grow(void *ctx, size_t n)
{
	struct lists_memory *m = ctx;
	uint8_t *p = m->fail ? NULL : realloc(m->p, n);

	if (p) {
		m->p = p;
		m->n = n;
	}
	return p;
}

struct gw_list_mem lists_mem(struct lists_memory *m)
{
	return (struct gw_list_mem){m, grow};
}

static size_t whole_pages(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (n + page - 1) / page * page;
}

uint8_t *lists_guarded(size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), all = whole_pages(n);
	uint8_t *p = mmap(NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert(p != MAP_FAILED);
	assert(!mprotect(p + all, page, PROT_NONE));
	return p + all - n;
}

void lists_guarded_free(uint8_t *p, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), all = whole_pages(n);

	munmap(p + n - all, all + page);
}

static void fill(struct gw_rng *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)gw_rng_u64(r);
}

uint8_t *lists_place(const struct lists *l, const struct lists_record *r)
{
	return (uint8_t *)(uintptr_t)l->mem[r->segment].addr + r->at;
}

/* One call of gw_list_add: rising free places of one segment, at a pace of its own. */
static void add_some(struct lists *l, struct gw_list_build *b, struct gw_rng *r, uint8_t **taken, size_t want)
{
	uint32_t segment = (uint32_t)gw_rng_below(r, LISTS_SEGMENTS);
	unsigned width = 1u << gw_rng_below(r, 4);
	uint64_t pace = gw_rng_below(r, 8) ? gw_rng_below(r, 40) + 1 : 70000, at = gw_rng_below(r, l->bytes[segment]);
	uint64_t places[512];
	uint8_t old_bits[512 * 8], new_bits[512 * 8];
	int aligned = gw_rng_below(r, 4) != 0;
	size_t n = 0;

	want = want < 512 ? want : 512;
	at = aligned ? at / width * width : at;
	for (; n < want && at + width <= l->bytes[segment]; at += width * (1 + gw_rng_below(r, pace))) {
		struct lists_record *rec = &l->records[l->n];

		if (memchr(taken[segment] + at, 1, width))
			continue;
		memset(taken[segment] + at, 1, width);
		*rec = (struct lists_record){.at = at, .segment = segment, .width = width};
		memcpy(rec->old_bits, lists_place(l, rec), width);
		fill(r, rec->new_bits, width);
		if (!gw_rng_below(r, 16))
			memcpy(rec->new_bits, rec->old_bits, width);
		memcpy(old_bits + n * width, rec->old_bits, width);
		memcpy(new_bits + n * width, rec->new_bits, width);
		places[n++] = at;
		l->n++;
	}
	assert(!gw_list_add(b, segment, width, places, old_bits, new_bits, n));
}

void lists_make(struct lists *l, uint64_t seed, size_t n)
{
	static const uint64_t bytes[LISTS_SEGMENTS] = {1500000, 123457, 4096};
	uint8_t *taken[LISTS_SEGMENTS], run[16];
	const struct gw_list_header *h;
	struct gw_list_build *b;
	struct gw_rng r;

	memset(l, 0, sizeof *l);
	gw_rng_init(&r, seed);
	for (int s = 0; s < LISTS_SEGMENTS; s++) {
		uint8_t *p = lists_guarded(bytes[s]);

		fill(&r, p, bytes[s]);
		l->bytes[s] = bytes[s];
		l->mem[s] = (struct gw_dev_mem){(uintptr_t)p, bytes[s]};
		taken[s] = calloc(1, bytes[s]);
		assert(taken[s]);
	}
	l->records = calloc(n ? n : 1, sizeof *l->records);
	assert(l->records);
	fill(&r, run, sizeof run);
	assert(!gw_list_build_new(&b, lists_mem(&l->memory), run, 7, 8, 1u << 28));
	for (int tries = 0; l->n < n && tries < 4000; tries++)
		add_some(l, b, &r, taken, n - l->n);
	assert(!gw_list_finish(b, &h, NULL));
	l->h = (struct gw_list_header *)l->memory.p;
	gw_list_build_free(b);
	for (int s = 0; s < LISTS_SEGMENTS; s++)
		free(taken[s]);
}

void lists_free(struct lists *l)
{
	for (int s = 0; s < LISTS_SEGMENTS; s++)
		lists_guarded_free((uint8_t *)(uintptr_t)l->mem[s].addr, l->bytes[s]);
	free(l->records);
	free(l->memory.p);
}

uint8_t *lists_snapshot(const struct lists *l, size_t *n)
{
	uint8_t *copy;

	*n = 0;
	for (int s = 0; s < LISTS_SEGMENTS; s++)
		*n += l->bytes[s];
	copy = malloc(*n);
	assert(copy);
	for (size_t s = 0, at = 0; s < LISTS_SEGMENTS; at += l->bytes[s++])
		memcpy(copy + at, (void *)(uintptr_t)l->mem[s].addr, l->bytes[s]);
	return copy;
}

void lists_seal(struct gw_list_header *h)
{
	gw_list_sum(h, h->check);
}

struct gw_dev_window lists_window(const struct lists *l, struct gw_rng *r)
{
	struct gw_dev_window w = {.segment = 0, .width = 1u << gw_rng_below(r, 4)};

	w.rows = gw_rng_below(r, 40);
	w.cols = gw_rng_below(r, 300);
	w.col_pitch = gw_rng_below(r, 2) ? w.width : w.width + gw_rng_below(r, 20);
	w.row_pitch = gw_rng_below(r, 2) ? w.cols * w.col_pitch : gw_rng_below(r, 9000);
	w.base = gw_rng_below(r, l->bytes[0] / 4);
	w.row0 = gw_rng_below(r, 1000);
	w.col0 = gw_rng_below(r, 1000);
	w.tensor_cols = w.col0 + w.cols + gw_rng_below(r, 10);
	return w;
}
