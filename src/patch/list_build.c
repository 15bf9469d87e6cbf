#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "patch/list.h"
#include "patch/list_impl.h"

struct gw_list_build {
	struct gw_list_mem mem;
	uint8_t *p;	       /* the memory given */
	uint64_t cap, at, max; /* bytes of it granted; used; the most the list may have */
	struct gw_list_run *runs;
	size_t run_cap;
	struct gw_list_header h; /* what the header will be */
	int err;
	/* The run being filled, its columns apart until it is closed. */
	struct gw_list_run open;
	uint64_t last; /* place of its last record */
	uint16_t gaps[GW_LIST_RUN_MAX];
	uint8_t old_bits[GW_LIST_RUN_MAX * 8], new_bits[GW_LIST_RUN_MAX * 8];
};

static int need(struct gw_list_build *b, uint64_t bytes)
{
	uint64_t cap = b->cap;
	void *p;

	if (bytes > b->max)
		return GW_ELIMIT;
	if (bytes <= cap)
		return 0;
	cap = gw_min_u64(gw_max_u64(bytes, gw_max_u64(2 * cap, 4096)), b->max);
	p = b->mem.grow(b->mem.ctx, cap);
	if (!p)
		return GW_ENOMEM;
	assert((uintptr_t)p % 8 == 0);
	b->p = p;
	b->cap = cap;
	return 0;
}

int gw_list_build_new(struct gw_list_build **out, struct gw_list_mem mem, const uint8_t run[16], uint64_t from,
		      uint64_t to, uint64_t max_bytes)
{
	struct gw_list_build *b = calloc(1, sizeof *b);
	int err;

	if (!b)
		return GW_ENOMEM;
	b->mem = mem;
	b->max = gw_min_u64(max_bytes, SIZE_MAX / 4);
	err = need(b, sizeof b->h);
	if (err) {
		free(b);
		return err;
	}
	memcpy(b->h.magic, gw_list_magic, sizeof b->h.magic);
	memcpy(b->h.run, run, sizeof b->h.run);
	b->h.from = from;
	b->h.to = to;
	b->at = sizeof b->h;
	/* Whoever finds the memory now reads BUILDING. */
	memcpy(b->p, &b->h, sizeof b->h);
	*out = b;
	return 0;
}

void gw_list_build_free(struct gw_list_build *b)
{
	if (b)
		free(b->runs);
	free(b);
}

static int push_run(struct gw_list_build *b, const struct gw_list_run *r)
{
	if (b->h.run_count == UINT32_MAX)
		return GW_ELIMIT;
	if (b->h.run_count == b->run_cap) {
		size_t cap = b->run_cap ? 2 * b->run_cap : 64;
		struct gw_list_run *runs = realloc(b->runs, cap * sizeof *runs);

		if (!runs)
			return GW_ENOMEM;
		b->runs = runs;
		b->run_cap = cap;
	}
	b->runs[b->h.run_count++] = *r;
	return 0;
}

static void put_column(struct gw_list_build *b, const void *p, uint64_t bytes)
{
	memset(b->p + b->at + gw_list_pad(bytes) - 8, 0, 8); /* the padding; bytes > 0 */
	memcpy(b->p + b->at, p, bytes);
	b->at += gw_list_pad(bytes);
}

static int close_run(struct gw_list_build *b)
{
	struct gw_list_run *r = &b->open;
	uint64_t end = b->at + gw_list_data_bytes(r->count, r->width);
	int err;

	if (!r->count)
		return 0;
	/* The table of runs must fit too, when it comes. */
	if (end > b->max || (b->h.run_count + 1ull) * sizeof *r > b->max - end)
		return GW_ELIMIT;
	err = need(b, end);
	if (err)
		return err;
	r->data_at = b->at;
	err = push_run(b, r);
	if (err)
		return err;
	put_column(b, b->gaps, 2ull * r->count);
	put_column(b, b->old_bits, (uint64_t)r->count * r->width);
	put_column(b, b->new_bits, (uint64_t)r->count * r->width);
	b->h.records += r->count;
	if (r->segment >= b->h.segment_count)
		b->h.segment_count = r->segment + 1;
	r->count = 0;
	return 0;
}

/* Whether a place can go on the open run; *gap in units. */
static int goes_on(const struct gw_list_build *b, uint32_t segment, unsigned width, uint64_t at, uint16_t *gap)
{
	uint64_t distance = at - b->last;

	if (!b->open.count || b->open.count == GW_LIST_RUN_MAX || b->open.segment != segment || b->open.width != width)
		return 0;
	if (at <= b->last || distance % width || distance / width > UINT16_MAX)
		return 0;
	*gap = (uint16_t)(distance / width);
	return 1;
}

static void put_bits(uint8_t *column, unsigned i, const uint8_t *bits, unsigned width)
{
	switch (width) { /* constant sizes become single moves */
	case 1:
		column[i] = *bits;
		break;
	case 2:
		memcpy(column + 2 * i, bits, 2);
		break;
	case 4:
		memcpy(column + 4 * i, bits, 4);
		break;
	default:
		memcpy(column + 8 * i, bits, 8);
	}
}

static int add(struct gw_list_build *b, uint32_t segment, unsigned width, const uint64_t *at, const uint8_t *old_bits,
	       const uint8_t *new_bits, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t gap = 0;
		int err;

		if (at[i] > UINT64_MAX - width || (i && at[i] < at[i - 1] + width))
			return GW_EINVAL;
		if (!goes_on(b, segment, width, at[i], &gap)) {
			err = close_run(b);
			if (err)
				return err;
			b->open = (struct gw_list_run){.base = at[i], .segment = segment, .width = (uint8_t)width};
		}
		b->gaps[b->open.count] = gap;
		put_bits(b->old_bits, b->open.count, old_bits + i * width, width);
		put_bits(b->new_bits, b->open.count, new_bits + i * width, width);
		b->open.count++;
		b->last = at[i];
	}
	return 0;
}

int gw_list_add(struct gw_list_build *b, uint32_t segment, unsigned width, const uint64_t *at, const void *old_bits,
		const void *new_bits, size_t n)
{
	if (!b->err)
		b->err = gw_list_width_ok(width) && segment < UINT32_MAX
				 ? add(b, segment, width, at, old_bits, new_bits, n)
				 : GW_EINVAL;
	return b->err;
}

int gw_list_finish(struct gw_list_build *b, const struct gw_list_header **out, struct gw_diag *why)
{
	struct gw_list_header *h;
	uint64_t table;

	if (!b->err)
		b->err = close_run(b);
	table = (uint64_t)b->h.run_count * sizeof *b->runs;
	if (!b->err)
		b->err = need(b, b->at + table);
	if (b->err)
		return gw_diag_set(why, b->err, "staged list of %llu records: %s (at most %llu bytes)",
				   (unsigned long long)b->h.records, gw_err_text(b->err), (unsigned long long)b->max);
	if (table)
		memcpy(b->p + b->at, b->runs, table);
	b->h.runs_at = b->at;
	b->h.bytes = b->at + table;
	memcpy(b->p, &b->h, sizeof b->h);
	h = (struct gw_list_header *)b->p;
	b->err = gw_list_disjoint(h, why);
	if (b->err)
		return b->err;
	gw_list_sum(h, h->check);
	__atomic_store_n(&h->state, (uint32_t)GW_LIST_STAGED, __ATOMIC_RELEASE);
	b->err = GW_ESTATE; /* finished: nothing more can be added */
	*out = h;
	return 0;
}
