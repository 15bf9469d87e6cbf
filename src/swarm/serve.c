/*
 * What others ask of this host: bounded queues, block by block in turn, under the caps.
 */
#include "swarm/inner.h"

enum { REFUSE_NOT_HERE = 1, REFUSE_BUSY = 2, REFUSE_SENSELESS = 3 };
#define BURST_NS (50 * MS) /* of tokens that may pile up */

static void refuse(struct gw_swarm *s, struct peer *p, const uint8_t object[32], uint32_t piece, uint8_t reason)
{
	struct gw_m_piece_refuse *m = &gw_swarm_send_about(s, p, GW_MSG_piece_refuse)->u.piece_refuse;

	memcpy(m->object, object, 32);
	m->piece = piece;
	m->reason = reason;
}

/* --- the ring of peers that wait --- */

static void ring_add(struct gw_swarm *s, struct peer *p)
{
	if (p->next_serving)
		return;
	if (!s->serving) {
		s->serving = p->next_serving = p;
		return;
	}
	p->next_serving = s->serving->next_serving;
	s->serving->next_serving = p;
	s->serving = p;
}

static void ring_drop(struct gw_swarm *s, struct peer *p)
{
	struct peer *before = p;

	if (!p->next_serving)
		return;
	while (before->next_serving != p)
		before = before->next_serving;
	before->next_serving = p->next_serving;
	if (s->serving == p)
		s->serving = before == p ? NULL : before;
	p->next_serving = NULL;
}

static int queue_add(struct gw_swarm *s, struct peer *p, struct object *o, uint32_t piece, uint32_t at, uint32_t end)
{
	struct serve *last;

	if (!p->queue)
		p->queue = calloc(GW_SWARM_QUEUE_PEER_MAX, sizeof *p->queue);
	if (!p->queue)
		return GW_ENOMEM;
	last = &p->queue[(p->q_at + p->q_n + GW_SWARM_QUEUE_PEER_MAX - 1) % GW_SWARM_QUEUE_PEER_MAX];
	if (p->q_n && last->object == o && last->piece == piece && last->end == at) {
		last->end = end;
		return 0;
	}
	if (p->q_n == GW_SWARM_QUEUE_PEER_MAX || s->queued == GW_SWARM_QUEUE_MAX)
		return GW_ELIMIT;
	p->queue[(p->q_at + p->q_n++) % GW_SWARM_QUEUE_PEER_MAX] =
		(struct serve){.object = o, .piece = piece, .at = at, .end = end};
	s->queued++;
	ring_add(s, p);
	return 0;
}

/* Takes out what `gone` says; the order of the rest stays. piece UINT32_MAX: all of the object; object NULL: all. */
static void queue_drop(struct gw_swarm *s, struct peer *p, const struct object *o, uint32_t piece)
{
	uint32_t i, kept = 0;

	for (i = 0; i < p->q_n; i++) {
		struct serve *e = &p->queue[(p->q_at + i) % GW_SWARM_QUEUE_PEER_MAX];

		if (!o || (e->object == o && (piece == UINT32_MAX || e->piece == piece)))
			continue;
		p->queue[(p->q_at + kept++) % GW_SWARM_QUEUE_PEER_MAX] = *e;
	}
	s->queued -= p->q_n - kept;
	p->q_n = kept;
	if (!p->q_n)
		ring_drop(s, p);
}

void gw_swarm_serve_drop_peer(struct gw_swarm *s, struct peer *p)
{
	queue_drop(s, p, NULL, 0);
	s->handed -= p->handed;
	p->handed = 0;
}

void gw_swarm_serve_drop_object(struct gw_swarm *s, struct object *o)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	while ((e = gw_map_next(&s->peers, &at)))
		queue_drop(s, e->value, o, UINT32_MAX);
}

/* --- requests --- */

static int is_here(const struct object *o, uint32_t piece)
{
	return o->opened && piece < o->n && (o->whole || bit_get(o->own, piece));
}

void gw_swarm_on_get(struct gw_swarm *s, struct peer *p, const struct gw_m_piece_get *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	uint32_t size;

	if (!o || !is_here(o, m->piece)) {
		refuse(s, p, m->object, m->piece, REFUSE_NOT_HERE);
		return;
	}
	size = piece_size(o, m->piece);
	if (m->offset % GW_BLOCK_MAX || m->offset >= size || m->bytes == 0 || m->bytes > size - m->offset ||
	    (m->bytes % GW_BLOCK_MAX && m->offset + m->bytes != size)) {
		refuse(s, p, m->object, m->piece, REFUSE_SENSELESS);
		return;
	}
	p->used_ns = s->now;
	switch (queue_add(s, p, o, m->piece, m->offset, m->offset + m->bytes)) {
	case 0:
		break;
	case GW_ENOMEM:
		s->err = GW_ENOMEM;
		break;
	default:
		refuse(s, p, m->object, m->piece, REFUSE_BUSY);
	}
}

void gw_swarm_on_cancel(struct gw_swarm *s, struct peer *p, const struct gw_m_piece_cancel *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);

	if (o)
		queue_drop(s, p, o, m->piece);
}

void gw_swarm_serve_push(struct gw_swarm *s, struct object *o, uint32_t piece, struct peer *p)
{
	if (p->linked)
		queue_add(s, p, o, piece, 0, piece_size(o, piece)); /* where there is no room it asks by itself */
}

void gw_swarm_block_sent(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);
	struct peer *p = gw_swarm_peer_get(s, ev->host);
	uint64_t n;

	if (!p)
		return;
	n = gw_min_u64(ev->bytes, p->handed); /* after a broken link the count began anew */
	p->handed -= n;
	s->handed -= n;
	if (ev->err) {
		/* Control reaches it and bulk does not yet, as after a start: better told than waited for. */
		refuse(s, p, ev->object.b, ev->piece, REFUSE_BUSY);
		return;
	}
	s->total.tx_bytes += ev->bytes;
	if (p->region != 0)
		s->total.border_tx_bytes += ev->bytes;
	if (!o)
		return;
	o->count.tx_bytes += ev->bytes;
	if (p->region != 0)
		o->count.border_tx_bytes += ev->bytes;
}

/* --- sending --- */

static uint64_t refill(uint64_t tokens, uint64_t per_s, uint64_t ns)
{
	uint64_t most = gw_max_u64((uint64_t)((double)per_s * BURST_NS / 1e9), GW_BLOCK_MAX);

	return gw_min_u64(tokens + (uint64_t)((double)per_s * (double)gw_min_u64(ns, SECOND) / 1e9), most);
}

static void tokens_refill(struct gw_swarm *s)
{
	uint64_t ns = s->now - s->tokens_ns;

	if (ns < MS)
		return; /* so that rounding loses little */
	s->tokens_ns = s->now;
	s->tokens = refill(s->tokens, s->cfg.upload_bytes_per_s, ns);
	s->border_tokens = refill(s->border_tokens, s->cfg.border_bytes_per_s, ns);
}

/* May a block go to this peer now? *dry is set where only tokens are missing. */
static int may_send(const struct gw_swarm *s, const struct peer *p, uint32_t bytes, int *dry)
{
	if (p->handed + bytes > HANDED_PEER_MAX)
		return 0;
	if ((s->cfg.upload_bytes_per_s && s->tokens < bytes) ||
	    (s->cfg.border_bytes_per_s && p->region != 0 && s->border_tokens < bytes)) {
		*dry = 1;
		return 0;
	}
	return 1;
}

static void send_block(struct gw_swarm *s, struct peer *p, uint32_t bytes)
{
	struct serve *e = &p->queue[p->q_at];
	struct gw_action *a = gw_actions_add(s->out, GW_ACT_BLOCK_SEND);

	a->host = p->host;
	a->object = e->object->id;
	a->piece = e->piece;
	a->offset = e->at;
	a->bytes = bytes;
	a->bulk = 1;
	p->handed += bytes;
	s->handed += bytes;
	if (s->cfg.upload_bytes_per_s)
		s->tokens -= bytes;
	if (s->cfg.border_bytes_per_s && p->region != 0)
		s->border_tokens -= bytes;
	e->at += bytes;
	if (e->at < e->end)
		return;
	p->q_at = (p->q_at + 1) % GW_SWARM_QUEUE_PEER_MAX;
	p->q_n--;
	s->queued--;
	if (!p->q_n)
		ring_drop(s, p);
}

void gw_swarm_serve_pump(struct gw_swarm *s)
{
	struct peer *idle_from = NULL;
	int dry = 0;

	tokens_refill(s);
	while (s->serving && s->handed < HANDED_MAX) {
		struct peer *p = s->serving->next_serving;
		const struct serve *e = &p->queue[p->q_at];
		uint32_t bytes = (uint32_t)gw_min_u64(GW_BLOCK_MAX, e->end - e->at);

		if (may_send(s, p, bytes, &dry)) {
			s->serving = p; /* the next one's turn after it */
			idle_from = NULL;
			send_block(s, p, bytes);
			continue;
		}
		if (idle_from == p)
			break;
		if (!idle_from)
			idle_from = p;
		s->serving = p;
	}
	if (dry && !s->tokens_at)
		gw_swarm_timer_set(s, TIMER_TOKENS, &s->tokens_at, s->now + BURST_NS / 10);
}
