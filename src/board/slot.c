/*
 * The slot "board": what must survive a restart. Format, little-endian, proto/BOARD.md:
 *
 *     8    "GWBOARD1"
 *     4    policies
 *     for each:
 *       1    bytes of its name, then the name
 *       88   counters (trust/freshness.h)
 *       4    bytes of its signed head, 0 where there was no room for it; then these
 */
#include "board/inner.h"

static const char magic[] = "GWBOARD1";

enum { MAGIC_BYTES = sizeof magic - 1 };

/* Bytes of all policies without their heads: these always fit. */
static size_t bare_bytes(const struct gw_board *b)
{
	size_t i, n = MAGIC_BYTES + 4;

	for (i = 0; i < b->policy_count; i++)
		n += 1 + strlen(b->policies[i]->name) + GW_COUNTERS_BYTES + 4;
	return n;
}

void gw_board_persist(struct gw_board *b)
{
	size_t i, room = GW_BOARD_SLOT_MAX - bare_bytes(b);
	struct gw_action *a;
	struct gw_wr w;

	gw_wr_init(&w, GW_BOARD_SLOT_MAX);
	gw_wr_bytes(&w, magic, MAGIC_BYTES);
	gw_wr_u32(&w, (uint32_t)b->policy_count);
	for (i = 0; i < b->policy_count; i++) {
		const struct policy *p = b->policies[i];
		size_t n = p->head && p->n <= room ? p->n : 0;

		gw_wr_u8(&w, (uint8_t)strlen(p->name));
		gw_wr_bytes(&w, p->name, strlen(p->name));
		gw_counters_write(&p->counters, &w);
		gw_wr_u32(&w, (uint32_t)n);
		gw_wr_bytes(&w, p->raw, n);
		room -= n;
	}
	a = gw_actions_add(b->out, GW_ACT_PERSIST);
	a->slot = "board";
	a->data.p = w.err ? NULL : gw_arena_copy(&b->out->arena, w.p, w.n);
	a->data.n = w.n;
	if (!a->data.p)
		b->err = GW_ENOMEM;
	gw_wr_free(&w);
}

static int load_one(struct gw_board *b, struct gw_rd *r, struct gw_diag *why)
{
	struct policy *p = calloc(1, sizeof *p);
	const uint8_t *name, *counters, *raw;
	size_t n;

	if (!p)
		return GW_ENOMEM;
	b->policies[b->policy_count++] = p;
	p->fetched = GW_VERSION_NONE;
	n = gw_rd_u8(r);
	name = gw_rd_bytes(r, n);
	counters = gw_rd_bytes(r, GW_COUNTERS_BYTES);
	p->n = gw_rd_u32(r);
	raw = gw_rd_bytes(r, p->n);
	if (r->err || n == 0 || n > GW_POLICY_NAME_MAX || p->n > GW_HEAD_MAX + GW_TRAILER_BYTES)
		return gw_diag_set(why, GW_EMALFORMED, "the stored counters of heads (slot \"board\") are damaged");
	memcpy(p->name, name, n);
	if (p->n) {
		p->raw = malloc(p->n);
		if (!p->raw)
			return GW_ENOMEM;
		memcpy(p->raw, raw, p->n);
	}
	return gw_counters_read(&p->counters, counters, GW_COUNTERS_BYTES, why);
}

int gw_board_load(struct gw_board *b, const struct gw_bytes *slot, struct gw_diag *why)
{
	const uint8_t *head;
	struct gw_rd r;
	uint32_t n;
	int err;

	if (!slot->n)
		return 0;
	gw_rd_init(&r, slot->p, slot->n);
	head = gw_rd_bytes(&r, MAGIC_BYTES);
	n = gw_rd_u32(&r);
	if (r.err || memcmp(head, magic, MAGIC_BYTES) != 0 || n > GW_BOARD_POLICIES_MAX)
		return gw_diag_set(why, GW_EMALFORMED, "the stored counters of heads (slot \"board\") are damaged");
	while (n--) {
		err = load_one(b, &r, why);
		if (err)
			return err;
	}
	if (gw_rd_end(&r))
		return gw_diag_set(why, GW_EMALFORMED, "the stored counters of heads (slot \"board\") are damaged");
	return 0;
}

void gw_board_load_heads(struct gw_board *b)
{
	size_t i;

	for (i = 0; i < b->policy_count; i++) {
		struct policy *p = b->policies[i];
		struct gw_bytes raw = {p->raw, p->n};

		if (!p->head && p->n)
			gw_board_verify(b, NULL, &raw, 1);
	}
}
