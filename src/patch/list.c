#include "patch/list.h"

#include <assert.h>
#include <string.h>

#include "base/num.h"
#include "patch/fingerprint.h"
#include "patch/list_impl.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lists are used as they lie in memory");
_Static_assert(sizeof(struct gw_list_header) == 96 && sizeof(struct gw_list_run) == 24, "proto/LIST.md");

const uint8_t gw_list_magic[8] = {'G', 'W', 'L', 'I', 'S', 'T', '1', 0};

void gw_list_sum(const struct gw_list_header *h, uint64_t sum[2])
{
	const uint8_t *p = (const uint8_t *)h;
	const size_t state = offsetof(struct gw_list_header, state), flags = offsetof(struct gw_list_header, flags);
	const size_t check = offsetof(struct gw_list_header, check), body = sizeof *h;

	sum[0] = sum[1] = 0;
	gw_print_run(sum, 4, 0, p, state / 4);
	gw_print_run(sum, 4, flags / 4, p + flags, (check - flags) / 4);
	gw_print_run(sum, 4, body / 4, p + body, (h->bytes - body) / 4);
}

const struct gw_list_run *gw_list_runs(const struct gw_list_header *h)
{
	return (const struct gw_list_run *)((const uint8_t *)h + h->runs_at);
}

enum gw_list_state gw_list_state(const struct gw_list_header *h)
{
	uint32_t s = __atomic_load_n(&h->state, __ATOMIC_ACQUIRE);

	return s <= GW_LIST_UNDONE ? (enum gw_list_state)s : GW_LIST_BUILDING;
}

static int may_move(enum gw_list_state from, enum gw_list_state to)
{
	switch (to) {
	case GW_LIST_WRITING:
		return from == GW_LIST_STAGED || from == GW_LIST_UNDONE || from == GW_LIST_UNDOING;
	case GW_LIST_WRITTEN:
		return from == GW_LIST_WRITING;
	case GW_LIST_UNDOING:
		return from == GW_LIST_STAGED || from == GW_LIST_WRITING || from == GW_LIST_WRITTEN;
	case GW_LIST_UNDONE:
		return from == GW_LIST_UNDOING;
	default:
		return 0;
	}
}

int gw_list_set_state(struct gw_list_header *h, enum gw_list_state s)
{
	uint32_t from = gw_list_state(h);

	if (!may_move((enum gw_list_state)from, s) ||
	    !__atomic_compare_exchange_n(&h->state, &from, (uint32_t)s, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return GW_ESTATE;
	return 0;
}

int gw_list_part(const struct gw_list_header *h, uint32_t i, struct gw_list_part *part)
{
	const struct gw_list_run *r;
	uint64_t column;

	if (h->runs_at % 8 || h->bytes > SIZE_MAX || h->runs_at > h->bytes || i >= (h->bytes - h->runs_at) / sizeof *r)
		return GW_EMALFORMED;
	r = gw_list_runs(h) + i;
	if (!r->count || r->count > GW_LIST_RUN_MAX || !gw_list_width_ok(r->width) || r->pad || r->data_at % 8)
		return GW_EMALFORMED;
	if (r->data_at > h->runs_at || gw_list_data_bytes(r->count, r->width) > h->runs_at - r->data_at)
		return GW_EMALFORMED;
	column = gw_list_pad((uint64_t)r->count * r->width);
	part->gaps = (const uint8_t *)h + r->data_at;
	part->old_bits = part->gaps + gw_list_pad(2ull * r->count);
	part->new_bits = part->old_bits + column;
	part->base = r->base;
	part->segment = r->segment;
	part->count = r->count;
	part->width = r->width;
	return 0;
}

/* Rising and without overflow, or GW_EMALFORMED. */
int gw_list_part_span(const struct gw_list_part *part, uint64_t *first, uint64_t *end)
{
	uint64_t steps = 0;

	for (unsigned i = 1; i < part->count; i++) {
		uint16_t gap = gw_le16(part->gaps + 2 * i);

		if (!gap)
			return GW_EMALFORMED;
		steps += gap;
	}
	/* At most 4096 * 65535 * 8 bytes: only the base can overflow. */
	if (gw_add_u64(part->base, (uint64_t)gw_le16(part->gaps) * part->width, first) ||
	    gw_add_u64(*first, (steps + 1) * part->width, end))
		return GW_EMALFORMED;
	return 0;
}
