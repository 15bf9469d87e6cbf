/*
 * What to ask of whom, what comes of it, and who is to blame.
 */
#include "base/log.h"
#include "swarm/inner.h"

enum { STALL_DOUBLINGS = 6, LATE_SHARE = 50, STALL_MAX_S = 30, REFUSALS_MAX = 8 };
#define LATE_MIN_NS (500 * MS)
#define RATE_WINDOW_NS (50 * MS)
#define REFUSAL_NS (250 * MS)

struct flight *gw_swarm_flight_find(const struct object *o, uint32_t piece)
{
	struct flight *f = o->flights;

	while (f && f->piece != piece)
		f = f->next;
	return f;
}

/* --- asking --- */

static uint64_t room_for(const struct gw_swarm *s, const struct peer *p)
{
	uint64_t window = gw_swarm_peer_window(s, p), taken = s->outstanding + s->checking, mine, all;

	mine = window > p->outstanding ? window - p->outstanding : 0;
	all = s->cfg.budget_bytes > taken ? s->cfg.budget_bytes - taken : 0;
	return gw_min_u64(mine, all);
}

/* Grants credit for more of the piece, in whole blocks. */
static void ask_more(struct gw_swarm *s, struct object *o, struct flight *f)
{
	uint64_t room = room_for(s, f->peer), left = f->size - f->asked, bytes = left;
	struct gw_m_piece_get *m;

	if (left > room)
		bytes = room / GW_BLOCK_MAX * GW_BLOCK_MAX;
	if (!bytes)
		return;
	m = &gw_swarm_send_about(s, f->peer, GW_MSG_piece_get)->u.piece_get;
	memcpy(m->object, o->id.b, 32);
	m->piece = f->piece;
	m->offset = f->asked;
	m->bytes = (uint32_t)bytes;
	if (f->peer->outstanding == 0) {
		f->probe = f->asked == 0;
		f->peer->heard_ns = f->peer->window_from_ns = s->now;
		f->peer->window_bytes = 0;
	}
	f->asked += (uint32_t)bytes;
	f->peer->outstanding += bytes;
	f->peer->asked_bytes += bytes;
	f->peer->used_ns = s->now;
	s->outstanding += bytes;
}

static struct flight *flight_add(struct gw_swarm *s, struct object *o, struct peer *p, uint32_t piece)
{
	struct flight *f = s->flight_count < GW_SWARM_FLIGHTS_MAX ? calloc(1, sizeof *f) : NULL;

	if (!f)
		return NULL;
	f->peer = p;
	f->piece = piece;
	f->size = piece_size(o, piece);
	f->began_ns = f->heard_ns = s->now;
	f->next = o->flights;
	o->flights = f;
	s->flight_count++;
	bit_set(o->busy, piece);
	return f;
}

static void owed_less(struct gw_swarm *s, struct peer *p, uint64_t bytes)
{
	assert(p->outstanding >= bytes && s->outstanding >= bytes);
	p->outstanding -= bytes;
	s->outstanding -= bytes;
}

/* Ends a flight; the piece may be asked for again unless it is here. */
static void flight_end(struct gw_swarm *s, struct object *o, struct flight *f, int cancel)
{
	struct flight **at = &o->flights;

	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	s->flight_count--;
	if (!f->pushed)
		owed_less(s, f->peer, f->asked - f->got);
	if (f->checking)
		s->checking -= f->size;
	if (cancel && !f->checking && f->peer->linked) {
		struct gw_m_piece_cancel *m = &gw_swarm_send_about(s, f->peer, GW_MSG_piece_cancel)->u.piece_cancel;

		memcpy(m->object, o->id.b, 32);
		m->piece = f->piece;
	}
	if (o->own && !bit_get(o->own, f->piece))
		bit_clear(o->busy, f->piece);
	o->change++;
	free(f);
}

void gw_swarm_flights_drop_object(struct gw_swarm *s, struct object *o, int cancel)
{
	while (o->flights)
		flight_end(s, o, o->flights, cancel);
}

void gw_swarm_flights_drop_peer(struct gw_swarm *s, struct peer *p, int cancel)
{
	size_t i;

	for (i = 0; i < s->object_count; i++) {
		struct flight *f, *next;

		for (f = s->order[i]->flights; f; f = next) {
			next = f->next;
			if (f->peer == p && !f->checking)
				flight_end(s, s->order[i], f, cancel);
		}
	}
}

/* What crosses the border first, since others wait for it; then hosts that are fetching too, so that an origin in
 * the region is asked last. */
static int turn_of(const struct holder *h)
{
	return h->peer->region != 0 ? 0 : h->whole ? 2 : 1;
}

static int goes_before(const struct holder *a, const struct holder *b)
{
	if (turn_of(a) != turn_of(b))
		return turn_of(a) < turn_of(b);
	return gw_swarm_queue_ns(a->peer, 0) < gw_swarm_queue_ns(b->peer, 0);
}

/* The holder to ask next: one that has room and may have something. */
static struct holder *next_holder(const struct gw_swarm *s, const struct object *o)
{
	struct holder *best = NULL;
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		struct holder *h = o->holders[i];

		if (h->dry == o->change || (!h->bits && !h->whole) || !gw_swarm_peer_usable(s, h->peer) ||
		    h->peer->region == UINT32_MAX || (h->peer->region != 0 && !o->claimed) ||
		    room_for(s, h->peer) < gw_min_u64(GW_BLOCK_MAX, o->m.object_bytes))
			continue;
		if (!best || goes_before(h, best))
			best = h;
	}
	return best;
}

static void object_pump(struct gw_swarm *s, struct object *o)
{
	struct flight *f;
	struct holder *h;

	for (f = o->flights; f; f = f->next)
		if (f->asked < f->size && !f->pushed)
			ask_more(s, o, f);
	while (s->flight_count < GW_SWARM_FLIGHTS_MAX && (h = next_holder(s, o))) {
		uint32_t piece = gw_swarm_pick(s, o, h);

		if (piece == NO_PIECE || gw_swarm_better_wait(s, o, h, piece)) {
			h->dry = o->change;
			continue;
		}
		f = flight_add(s, o, h->peer, piece);
		if (!f) {
			s->err = GW_ENOMEM;
			return;
		}
		ask_more(s, o, f);
		if (!f->asked) { /* a short piece's room is not a block's */
			flight_end(s, o, f, 0);
			h->dry = o->change;
		}
	}
}

void gw_swarm_fetch_pump(struct gw_swarm *s)
{
	size_t i;

	for (i = 0; i < s->object_count && s->order[i]->key; i++)
		if (gw_swarm_object_fetching(s->order[i]))
			object_pump(s, s->order[i]);
}

/* --- blocks --- */

static void measure(struct gw_swarm *s, struct peer *p, struct flight *f, uint64_t bytes)
{
	uint64_t took = s->now - p->window_from_ns;

	if (f->blocks == 0 && f->probe) {
		uint64_t rtt = gw_max_u64(s->now - f->began_ns, 1);

		if (!p->rtt_measured || rtt < p->rtt_ns)
			p->rtt_ns = rtt;
		else
			p->rtt_ns += (rtt - p->rtt_ns) / 16;
		p->rtt_measured = 1;
	}
	p->heard_ns = f->heard_ns = s->now;
	p->refusals = 0;
	p->window_bytes += bytes;
	if (took >= RATE_WINDOW_NS || p->outstanding <= bytes) {
		uint64_t now = (uint64_t)((double)p->window_bytes * 1e9 / (double)gw_max_u64(took, MS));

		/* Up at once, so that the window opens in a few round trips; down slowly. */
		p->rate = now > p->rate ? now : (3 * p->rate + now) / 4;
		p->window_from_ns = s->now;
		p->window_bytes = 0;
	}
}

static void count_block(struct gw_swarm *s, struct object *o, const struct peer *p, uint64_t n)
{
	s->total.rx_bytes += n;
	s->rate_bytes += n;
	if (p->region != 0)
		s->total.border_rx_bytes += n;
	if (!o)
		return;
	o->count.rx_bytes += n;
	if (p->region != 0)
		o->count.border_rx_bytes += n;
	gw_swarm_count_region(s, o, p->region, n);
}

static void count_duplicate(struct gw_swarm *s, struct object *o, uint64_t n)
{
	s->total.duplicate_bytes += n;
	if (o)
		o->count.duplicate_bytes += n;
}

static int may_push(const struct gw_swarm *s, const struct object *o, const struct peer *p)
{
	return p->region == 0 && o && s->cfg.eager_max_bytes && o->m.object_bytes <= s->cfg.eager_max_bytes;
}

/* The flight that a block belongs to; a pushed piece opens one. */
static struct flight *flight_of(struct gw_swarm *s, struct object *o, struct peer *p, uint32_t piece)
{
	struct flight *f = gw_swarm_flight_find(o, piece);

	if (f)
		return f->peer == p && !f->checking ? f : NULL;
	if (!may_push(s, o, p) || piece >= o->n || bit_get(o->busy, piece) || o->leaves_left)
		return NULL;
	f = flight_add(s, o, p, piece);
	if (f) {
		f->pushed = 1;
		f->asked = f->size;
	}
	return f;
}

static void take_block(struct gw_swarm *s, struct object *o, struct flight *f, const struct gw_m_block *m)
{
	uint32_t bit = 1u << (m->offset / GW_BLOCK_MAX), n = (uint32_t)m->data.n;
	struct gw_action *a;

	if (m->offset % GW_BLOCK_MAX || m->offset >= f->size || n != gw_min_u64(GW_BLOCK_MAX, f->size - m->offset) ||
	    m->offset + n > f->asked) {
		gw_swarm_peer_ban(s, f->peer, "sends malformed blocks: not asked again");
		return;
	}
	if (f->blocks & bit) {
		count_duplicate(s, o, n);
		return;
	}
	if (!f->pushed) {
		measure(s, f->peer, f, n);
		owed_less(s, f->peer, n);
	}
	f->blocks |= bit;
	f->got += n;
	a = gw_actions_add(s->out, GW_ACT_BLOCK_STORE);
	a->host = f->peer->host;
	a->object = o->id;
	a->piece = f->piece;
	a->offset = m->offset;
	a->bytes = n;
	a->data = m->data;
	if (f->got < f->size)
		return;
	f->checking = 1;
	s->checking += f->size;
	f->peer->stalls = 0;
	a = gw_actions_add(s->out, GW_ACT_PIECE_CHECK);
	a->host = f->peer->host;
	a->object = o->id;
	a->piece = f->piece;
}

void gw_swarm_on_block(struct gw_swarm *s, struct peer *p, const struct gw_m_block *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct flight *f;

	count_block(s, o, p, m->data.n);
	p->got_bytes += m->data.n;
	if (may_push(s, o, p))
		p->asked_bytes = gw_max_u64(p->asked_bytes, p->got_bytes);
	if (p->got_bytes > p->asked_bytes) {
		count_duplicate(s, o, m->data.n);
		gw_swarm_peer_ban(s, p, "sends what nobody asked for: not asked again");
		return;
	}
	f = o && gw_swarm_object_fetching(o) && !p->banned ? flight_of(s, o, p, m->piece) : NULL;
	if (f)
		take_block(s, o, f, m);
	else
		count_duplicate(s, o, m->data.n); /* given up, or here from elsewhere */
}

static void stall(struct gw_swarm *s, struct peer *p);

/* Nonzero where nothing but refusals has come for long: then what it says it has must not count, or nobody in the
 * region would get it from elsewhere. */
static int refuses_all(struct gw_swarm *s, struct peer *p)
{
	if (s->now >= p->refused_until_ns) {
		p->refused_until_ns = s->now + REFUSAL_NS;
		p->refusals++;
	}
	if (p->refusals < REFUSALS_MAX)
		return 0;
	p->refusals = 0;
	return 1;
}

void gw_swarm_on_refuse(struct gw_swarm *s, struct peer *p, const struct gw_m_piece_refuse *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct flight *f = o ? gw_swarm_flight_find(o, m->piece) : NULL;
	struct holder *h;

	if (!f || f->peer != p || f->checking)
		return;
	flight_end(s, o, f, 0);
	h = gw_swarm_holder_get(o, p);
	if (refuses_all(s, p))
		stall(s, p);
	else if (m->reason == 1 && h)
		gw_swarm_holder_lacks(o, h, m->piece);
	else
		p->stalled_until_ns = s->now + (m->reason == 2 ? REFUSAL_NS : SECOND);
}

void gw_swarm_piece_ok(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);
	struct flight *f;
	size_t i;

	if (!o || !o->opened || o->whole || ev->piece >= o->n)
		return;
	f = gw_swarm_flight_find(o, ev->piece);
	if (f && f->peer->region != 0 && s->cfg.eager_max_bytes && o->m.object_bytes <= s->cfg.eager_max_bytes) {
		bit_set(o->first, ev->piece);
		for (i = 0; i < o->holder_count; i++)
			if (o->holders[i]->tells && o->holders[i]->peer->region == 0)
				gw_swarm_serve_push(s, o, ev->piece, o->holders[i]->peer);
	}
	gw_swarm_piece_here(s, o, ev->piece);
	if (f)
		flight_end(s, o, f, !f->checking);
}

void gw_swarm_piece_bad(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);
	struct flight *f;
	struct peer *p;

	if (!o || !o->opened || o->whole || ev->piece >= o->n)
		return;
	p = gw_swarm_peer_get(s, ev->host);
	f = gw_swarm_flight_find(o, ev->piece);
	o->count.bad_bytes += piece_size(o, ev->piece);
	s->total.bad_bytes += piece_size(o, ev->piece);
	if (f && f->checking)
		flight_end(s, o, f, 0);
	o->reconsider = 1;
	if (p)
		gw_swarm_peer_ban(s, p, "sent a piece that does not match its digest: not asked again");
}

/* --- time --- */

static int stalled(const struct gw_swarm *s, const struct peer *p)
{
	uint64_t limit = 4 * p->rtt_ns + (uint64_t)((double)p->outstanding * 4e9 / (double)gw_swarm_peer_rate(p));

	limit = gw_min_u64(gw_max_u64(limit, s->cfg.stall_min_ns), STALL_MAX_S * SECOND);
	return p->outstanding && s->now > p->heard_ns + limit;
}

static void stall(struct gw_swarm *s, struct peer *p)
{
	size_t i;

	p->stalled_until_ns = s->now + (SECOND << (p->stalls < STALL_DOUBLINGS ? p->stalls : STALL_DOUBLINGS));
	p->stalls++;
	gw_swarm_log_host(s, GW_LOG_WARN, p->host, "does not send what it was asked for: left alone for a while");
	gw_swarm_flights_drop_peer(s, p, 1);
	for (i = 0; i < s->object_count; i++) {
		struct holder *h = gw_swarm_holder_get(s->order[i], p);

		if (h)
			gw_swarm_holder_clear(s->order[i], h);
	}
}

/* The last pieces of an object, where one is late: from the start, from somebody else in the region. */
static void late_one(struct gw_swarm *s, struct object *o, struct flight *f)
{
	uint64_t limit = gw_max_u64(LATE_MIN_NS, 4 * f->peer->rtt_ns);
	struct holder *best = NULL;
	uint32_t piece = f->piece;
	size_t i;

	if (f->checking || f->pushed || s->now < f->heard_ns + limit ||
	    o->late_bytes + f->asked > o->m.object_bytes / LATE_SHARE)
		return;
	for (i = 0; i < o->holder_count; i++) {
		struct holder *h = o->holders[i];

		if (h->peer != f->peer && h->peer->region == 0 && gw_swarm_peer_usable(s, h->peer) &&
		    (gw_swarm_holder_word(o, h, piece / 64) >> (piece % 64) & 1) && room_for(s, h->peer) >= f->size &&
		    (!best || gw_swarm_queue_ns(h->peer, 0) < gw_swarm_queue_ns(best->peer, 0)))
			best = h;
	}
	if (!best)
		return;
	o->late_bytes += f->asked;
	flight_end(s, o, f, 1);
	f = flight_add(s, o, best->peer, piece);
	if (f)
		ask_more(s, o, f);
}

static void late(struct gw_swarm *s, struct object *o)
{
	uint32_t in_flight = 0;
	struct flight *f, *next;

	for (f = o->flights; f; f = f->next)
		in_flight++;
	if (!in_flight || o->have + in_flight < o->n)
		return;
	for (f = o->flights; f; f = next) {
		next = f->next;
		late_one(s, o, f);
	}
}

void gw_swarm_flights_tick(struct gw_swarm *s)
{
	struct flight *f;
	size_t i;

	for (i = 0; i < s->object_count; i++) {
		f = s->order[i]->flights;
		while (f) {
			if (!f->checking && stalled(s, f->peer)) {
				stall(s, f->peer);
				f = s->order[i]->flights; /* the list has changed */
				continue;
			}
			f = f->next;
		}
		if (gw_swarm_object_fetching(s->order[i]))
			late(s, s->order[i]);
	}
}
