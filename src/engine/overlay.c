#include "engine/overlay.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static int by_place(const void *a, const void *b)
{
	const struct gw_overlay_run *x = a, *y = b;

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->run < y->run ? -1 : x->run > y->run;
}

int gw_overlay_init(struct gw_overlay *o, const struct gw_list_header *list)
{
	o->list = list;
	o->n = list->run_count;
	o->runs = calloc(o->n ? o->n : 1, sizeof *o->runs);
	if (!o->runs)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < o->n; i++) {
		struct gw_list_part p;
		uint64_t at;
		int err = gw_list_part(list, i, &p);

		if (err) {
			gw_overlay_free(o);
			return err;
		}
		at = p.base;
		o->runs[i] = (struct gw_overlay_run){.segment = p.segment, .run = i};
		for (unsigned k = 0; k < p.count; k++) {
			at += (uint64_t)gw_le16(p.gaps + 2 * k) * p.width;
			if (k == 0)
				o->runs[i].first = at;
		}
		o->runs[i].last = at;
	}
	qsort(o->runs, o->n, sizeof *o->runs, by_place);
	for (size_t i = 0; i < o->n; i++) {
		o->runs[i].reach = o->runs[i].last;
		if (i > 0 && o->runs[i - 1].segment == o->runs[i].segment)
			o->runs[i].reach = gw_max_u64(o->runs[i].last, o->runs[i - 1].reach);
	}
	return 0;
}

void gw_overlay_free(struct gw_overlay *o)
{
	free(o->runs);
	o->runs = NULL;
	o->n = 0;
}

/* The first run of the segment that can reach `first`: reach rises within a segment. */
static size_t start(const struct gw_overlay *o, uint32_t segment, uint64_t first)
{
	size_t lo = 0, hi = o->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct gw_overlay_run *r = &o->runs[mid];

		if (r->segment < segment || (r->segment == segment && r->reach < first))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

typedef int record_fn(void *ctx, uint64_t at, const uint8_t *old_bits, const uint8_t *new_bits);

static int one_run(const struct gw_overlay *o, uint32_t run, uint64_t first, uint64_t last, record_fn *each, void *ctx)
{
	struct gw_list_part p;
	uint64_t at;
	int err = gw_list_part(o->list, run, &p);

	if (err)
		return err;
	at = p.base;
	for (unsigned k = 0; k < p.count; k++) {
		at += (uint64_t)gw_le16(p.gaps + 2 * k) * p.width;
		if (at > last)
			return 0;
		if (at < first)
			continue;
		err = each(ctx, at, p.old_bits + (size_t)k * p.width, p.new_bits + (size_t)k * p.width);
		if (err)
			return err;
	}
	return 0;
}

int gw_overlay_records(const struct gw_overlay *o, uint32_t segment, uint64_t first, uint64_t last, record_fn *each,
		       void *ctx)
{
	for (size_t i = start(o, segment, first); i < o->n; i++) {
		const struct gw_overlay_run *r = &o->runs[i];
		int err;

		if (r->segment != segment || r->first > last)
			break;
		if (r->last < first)
			continue;
		err = one_run(o, r->run, first, last, each, ctx);
		if (err)
			return err;
	}
	return 0;
}

int gw_overlay_touches(const struct gw_overlay *o, uint32_t segment, uint64_t first, uint64_t last)
{
	for (size_t i = start(o, segment, first); i < o->n; i++) {
		const struct gw_overlay_run *r = &o->runs[i];

		if (r->segment != segment || r->first > last)
			return 0;
		if (r->last >= first)
			return 1;
	}
	return 0;
}
