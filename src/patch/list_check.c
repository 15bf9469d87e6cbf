#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "patch/list.h"
#include "patch/list_impl.h"

/* A run's stretch of its segment. */
struct span {
	uint64_t first, end;
	uint32_t segment, run;
};

/* Where a walk over a run stands. */
struct cursor {
	uint64_t place;
	struct gw_list_part part;
	unsigned i;
};

static int by_place(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static void sift_down(struct cursor *heap, size_t n, size_t at)
{
	struct cursor moved = heap[at];

	for (size_t child; (child = 2 * at + 1) < n; at = child) {
		if (child + 1 < n && heap[child + 1].place < heap[child].place)
			child++;
		if (heap[child].place >= moved.place)
			break;
		heap[at] = heap[child];
	}
	heap[at] = moved;
}

/* Merges n runs that interleave, by place. */
static int merge(const struct gw_list_header *h, const struct span *s, size_t n, struct gw_diag *why)
{
	struct cursor *heap = calloc(n, sizeof *heap);
	uint64_t free_from = 0;
	uint32_t segment = s->segment;
	int err = 0;

	if (!heap)
		return gw_diag_set(why, GW_ENOMEM, "staged list: no memory to compare %zu runs", n);
	for (size_t i = 0; i < n; i++) {
		gw_list_part(h, s[i].run, &heap[i].part);
		heap[i].place = s[i].first;
	}
	/* Spans are sorted by first place, and a sorted array is a heap. */
	while (n) {
		struct cursor *c = heap;

		if (c->place < free_from) {
			err = gw_diag_set(why, GW_EDUPLICATE, "staged list: byte %llu of segment %u is named twice",
					  (unsigned long long)c->place, segment);
			break;
		}
		free_from = c->place + c->part.width;
		if (++c->i < c->part.count)
			c->place += (uint64_t)gw_le16(c->part.gaps + 2ull * c->i) * c->part.width;
		else
			*c = heap[--n];
		sift_down(heap, n, 0);
	}
	free(heap);
	return err;
}

int gw_list_disjoint(const struct gw_list_header *h, struct gw_diag *why)
{
	struct span *spans = calloc(h->run_count ? h->run_count : 1, sizeof *spans);
	size_t n = h->run_count, i, k;
	int err = 0;

	if (!spans)
		return gw_diag_set(why, GW_ENOMEM, "staged list: no memory to compare %u runs", h->run_count);
	for (i = 0; i < n && !err; i++) {
		struct gw_list_part part;

		spans[i].run = (uint32_t)i;
		err = gw_list_part(h, (uint32_t)i, &part);
		if (!err)
			err = gw_list_part_span(&part, &spans[i].first, &spans[i].end);
		if (!err)
			spans[i].segment = part.segment;
	}
	qsort(spans, n, sizeof *spans, by_place);
	/* Only runs whose stretches overlap need a merge. */
	for (i = 0; i < n && !err; i = k) {
		uint64_t end = spans[i].end;

		for (k = i + 1; k < n && spans[k].segment == spans[i].segment && spans[k].first < end; k++)
			end = gw_max_u64(end, spans[k].end);
		if (k - i > 1)
			err = merge(h, spans + i, k - i, why);
	}
	free(spans);
	return err;
}

static int all_zero(const uint8_t *p, uint64_t n)
{
	while (n && !*p)
		p++, n--;
	return !n;
}

/* Padding behind a column of `bytes` bytes. */
static int padded(const uint8_t *column, uint64_t bytes)
{
	return all_zero(column + bytes, gw_list_pad(bytes) - bytes);
}

static int check_header(const struct gw_list_header *h, size_t n, uint32_t segments, struct gw_diag *why)
{
	if (n < sizeof *h)
		return gw_diag_set(why, GW_ETRUNC, "staged list: %zu bytes, less than a header", n);
	if (memcmp(h->magic, gw_list_magic, 7))
		return gw_diag_set(why, GW_EMALFORMED, "staged list: wrong magic");
	if (memcmp(h->magic, gw_list_magic, 8) || h->flags)
		return gw_diag_set(why, GW_EVERSION, "staged list: made by a newer version");
	if (gw_list_state(h) == GW_LIST_BUILDING)
		return gw_diag_set(why, GW_ESTATE, "staged list: was never finished");
	if (h->bytes > n)
		return gw_diag_set(why, GW_ETRUNC, "staged list: %llu bytes, of which %zu are there",
				   (unsigned long long)h->bytes, n);
	if (h->runs_at % 8 || h->runs_at < sizeof *h || h->runs_at > h->bytes ||
	    h->bytes - h->runs_at != (uint64_t)h->run_count * sizeof(struct gw_list_run))
		return gw_diag_set(why, GW_EMALFORMED, "staged list: its run table does not end it");
	if (h->segment_count > segments)
		return gw_diag_set(why, GW_EMALFORMED, "staged list: %u segments, but there are %u", h->segment_count,
				   segments);
	return 0;
}

static int check_run(const struct gw_list_header *h, uint32_t i, uint64_t data_at, const uint64_t *segment_bytes,
		     struct gw_list_part *part, struct gw_diag *why)
{
	uint64_t first, end;

	if (gw_list_part(h, i, part) || gw_list_runs(h)[i].data_at != data_at || part->segment >= h->segment_count)
		return gw_diag_set(why, GW_EMALFORMED, "staged list: run %u has an odd row", i);
	if (!padded(part->gaps, 2ull * part->count) || !padded(part->old_bits, (uint64_t)part->count * part->width) ||
	    !padded(part->new_bits, (uint64_t)part->count * part->width))
		return gw_diag_set(why, GW_EMALFORMED, "staged list: run %u has odd padding", i);
	if (gw_list_part_span(part, &first, &end))
		return gw_diag_set(why, GW_EMALFORMED, "staged list: the places of run %u do not rise", i);
	if (end > segment_bytes[part->segment])
		return gw_diag_set(
			why, GW_EMALFORMED, "staged list: run %u reaches byte %llu of segment %u, which has %llu", i,
			(unsigned long long)end, part->segment, (unsigned long long)segment_bytes[part->segment]);
	return 0;
}

static int check_runs(const struct gw_list_header *h, const uint64_t *segment_bytes, struct gw_diag *why)
{
	uint64_t records = 0, data_at = sizeof *h;
	uint32_t segments = 0;

	for (uint32_t i = 0; i < h->run_count; i++) {
		struct gw_list_part part;
		int err = check_run(h, i, data_at, segment_bytes, &part, why);

		if (err)
			return err;
		records += part.count;
		data_at += gw_list_data_bytes(part.count, part.width);
		if (part.segment >= segments)
			segments = part.segment + 1;
	}
	if (records != h->records || data_at != h->runs_at || segments != h->segment_count)
		return gw_diag_set(why, GW_EMALFORMED, "staged list: its runs and its header disagree");
	return 0;
}

int gw_list_check(const void *p, size_t n, const uint64_t *segment_bytes, uint32_t segments, struct gw_diag *why)
{
	const struct gw_list_header *h = p;
	uint64_t sum[2];
	int err;

	if ((uintptr_t)p % 8)
		return gw_diag_set(why, GW_EINVAL, "staged list: not at a multiple of 8 bytes");
	err = check_header(h, n, segments, why);
	if (err)
		return err;
	gw_list_sum(h, sum);
	if (sum[0] != h->check[0] || sum[1] != h->check[1])
		return gw_diag_set(why, GW_EDIGEST, "staged list: its check sum does not match");
	err = check_runs(h, segment_bytes, why);
	return err ? err : gw_list_disjoint(h, why);
}
