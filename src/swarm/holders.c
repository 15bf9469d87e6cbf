/*
 * Who has what of an object, and the news about that.
 */
#include "base/log.h"
#include "swarm/inner.h"

enum { NEAR_MAX = 64 };

struct holder *gw_swarm_holder_get(const struct object *o, const struct peer *p)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++)
		if (o->holders[i]->peer == p)
			return o->holders[i];
	return NULL;
}

/* One whose place somebody else may have: it is of no use now. */
static struct holder *holder_spare(struct object *o, int near)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		struct holder *h = o->holders[i];

		if ((h->peer->region == 0) == near && !h->claims && !h->count && !h->whole &&
		    (!h->peer->linked || h->peer->banned || h->unknown) && !h->tells)
			return h;
	}
	return NULL;
}

struct holder *gw_swarm_holder_make(struct gw_swarm *s, struct object *o, struct peer *p)
{
	struct holder *h = gw_swarm_holder_get(o, p);
	size_t i, same = 0, max;
	int near = p->region == 0;

	if (h)
		return h;
	for (i = 0; i < o->holder_count; i++)
		same += (o->holders[i]->peer->region == 0) == near;
	max = near ? NEAR_MAX : GW_SWARM_PEERS_MAX - NEAR_MAX;
	if (same >= max || o->holder_count == GW_SWARM_PEERS_MAX) {
		h = holder_spare(o, near);
		if (h) {
			free(h->bits);
			memset(h, 0, sizeof *h);
			h->peer = p;
		}
		return h;
	}
	h = calloc(1, sizeof *h);
	if (!h) {
		s->err = GW_ENOMEM;
		return NULL;
	}
	h->peer = p;
	o->holders[o->holder_count++] = h;
	return h;
}

uint64_t gw_swarm_holder_word(const struct object *o, const struct holder *h, size_t w)
{
	return h->whole ? valid_word(o, w) : h->bits ? h->bits[w] : 0;
}

static void avail_add(struct gw_swarm *s, struct object *o, uint32_t i)
{
	if (o->avail[i]++ == 0) {
		bit_set(o->covered, i);
		o->stripes[i % GW_SWARM_STRIPES].news_ns = s->now;
		o->progress_ns = s->now;
	} else {
		bit_set(o->multi, i);
	}
}

static void avail_take(struct object *o, uint32_t i)
{
	o->avail[i]--;
	if (o->avail[i] == 0)
		bit_clear(o->covered, i);
	if (o->avail[i] <= 1)
		bit_clear(o->multi, i);
}

void gw_swarm_holder_clear(struct object *o, struct holder *h)
{
	size_t w;

	for (w = 0; h->near && o->avail && w < o->words; w++) {
		uint64_t bits = gw_swarm_holder_word(o, h, w);

		for (; bits; bits &= bits - 1)
			avail_take(o, (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits));
	}
	free(h->bits);
	h->bits = NULL;
	h->count = 0;
	h->near = h->whole = h->unknown = h->answered = 0;
	h->asked_ns = h->news_ns = h->dry = 0;
	o->change++;
	o->reconsider = 1;
}

void gw_swarm_holder_lacks(struct object *o, struct holder *h, uint32_t piece)
{
	if (h->whole) {
		gw_swarm_holder_clear(o, h); /* whole it is not: ask again */
		return;
	}
	if (!h->bits || !bit_get(h->bits, piece))
		return;
	bit_clear(h->bits, piece);
	h->count--;
	if (h->near)
		avail_take(o, piece);
	o->change++;
	o->reconsider = 1;
}

/* --- questions and news --- */

void gw_swarm_have_ask(struct gw_swarm *s, struct object *o, struct holder *h)
{
	if (!h || !h->peer->linked)
		return;
	h->asked_ns = s->now;
	memcpy(gw_swarm_send_about(s, h->peer, GW_MSG_have_ask)->u.have_ask.object, o->id.b, 32);
}

/* Words [from, to) of the bitmap, in one message; bits NULL: all of it. */
static void have_send(struct gw_swarm *s, struct object *o, struct peer *p, const uint64_t *bits, size_t from,
		      size_t to)
{
	struct gw_m_have *m = &gw_swarm_send_about(s, p, GW_MSG_have)->u.have;
	size_t w, n;
	uint8_t *text;

	memcpy(m->object, o->id.b, 32);
	m->pieces = o->n;
	m->whole = bits == NULL;
	if (!bits)
		return;
	n = gw_min_u64((o->n + 7) / 8 - from * 8, (to - from) * 8);
	text = gw_arena_alloc(&s->out->arena, (to - from) * 8);
	if (!text) {
		s->err = GW_ENOMEM;
		return;
	}
	for (w = from; w < to; w++)
		gw_put_le64(text + (w - from) * 8, bits[w]);
	m->first = (uint32_t)(from * 64);
	m->bits.p = text;
	m->bits.n = n;
}

static void have_send_span(struct gw_swarm *s, struct object *o, struct peer *p, const uint64_t *bits, size_t from,
			   size_t to)
{
	for (; from < to; from += HAVE_BITS_MAX / 8)
		have_send(s, o, p, bits, from, gw_min_u64(to, from + HAVE_BITS_MAX / 8));
}

static void push_first(struct gw_swarm *s, struct object *o, struct peer *p)
{
	uint32_t i;

	if (!s->cfg.eager_max_bytes || o->m.object_bytes > s->cfg.eager_max_bytes || p->region != 0)
		return;
	for (i = 0; i < o->n; i++)
		if (bit_get(o->first, i))
			gw_swarm_serve_push(s, o, i, p);
}

static int may_tell(const struct object *o, const struct peer *p)
{
	size_t i, far = 0;

	for (i = 0; i < o->holder_count; i++)
		far += o->holders[i]->tells && o->holders[i]->peer->region != 0;
	return p->region == 0 || far < GW_SWARM_ASKERS_MAX;
}

void gw_swarm_on_have_ask(struct gw_swarm *s, struct peer *p, const struct gw_m_have_ask *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct holder *h;

	if (!o || !o->opened || (!o->whole && !o->key && !o->have)) {
		memcpy(gw_swarm_send_about(s, p, GW_MSG_have)->u.have.object, m->object, 32); /* pieces 0 */
		return;
	}
	if (o->whole) {
		have_send(s, o, p, NULL, 0, 0);
		push_first(s, o, p);
		return;
	}
	h = gw_swarm_holder_make(s, o, p);
	if (h && may_tell(o, p))
		h->tells = 1;
	have_send_span(s, o, p, o->own, 0, o->words);
	push_first(s, o, p);
	if (p->region != 0 || !h || !gw_swarm_object_fetching(o))
		return;
	if (o->claimed)
		gw_swarm_claims_tell(s, o, p);
	if (!h->asked_ns || h->unknown) {
		h->unknown = 0;
		h->answered = 0;
		gw_swarm_have_ask(s, o, h);
	}
}

static void holder_whole(struct gw_swarm *s, struct object *o, struct holder *h)
{
	size_t w;

	for (w = 0; h->near && w < o->words; w++) {
		uint64_t bits = valid_word(o, w) & ~gw_swarm_holder_word(o, h, w);

		for (; bits; bits &= bits - 1)
			avail_add(s, o, (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits));
	}
	free(h->bits);
	h->bits = NULL;
	h->whole = 1;
	h->claims = 0;
	h->count = o->n;
}

/* The bits that are new; GW_EMALFORMED for some that are no pieces. */
static int holder_bits(struct gw_swarm *s, struct object *o, struct holder *h, const struct gw_m_have *m)
{
	size_t i;

	if (m->first % 8 || m->first > o->n || m->bits.n > (o->n - m->first + 7) / 8)
		return GW_EMALFORMED;
	if (!h->bits && m->bits.n)
		h->bits = calloc(o->words, sizeof *h->bits);
	if (!h->bits && m->bits.n)
		return GW_ENOMEM;
	for (i = 0; i < m->bits.n * 8; i++) {
		uint32_t piece = m->first + (uint32_t)i;

		if (!(m->bits.p[i / 8] >> (i % 8) & 1))
			continue;
		if (piece >= o->n)
			return GW_EMALFORMED;
		if (bit_get(h->bits, piece))
			continue;
		bit_set(h->bits, piece);
		h->count++;
		h->news_ns = s->now;
		if (h->near)
			avail_add(s, o, piece);
	}
	if (h->count == o->n)
		holder_whole(s, o, h);
	return 0;
}

void gw_swarm_on_have(struct gw_swarm *s, struct peer *p, const struct gw_m_have *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct holder *h = o ? gw_swarm_holder_get(o, p) : NULL;

	if (!h || !gw_swarm_object_fetching(o) || p->banned || !h->asked_ns)
		return;
	o->change++;
	o->reconsider = 1;
	if (!h->answered)
		h->news_ns = s->now;
	h->answered = 1;
	h->unknown = m->pieces == 0;
	if (h->unknown && (h->bits || h->whole)) {
		gw_swarm_holder_clear(o, h);
		h->asked_ns = s->now;
		h->answered = h->unknown = 1;
	}
	if (h->unknown || h->whole)
		return;
	if (m->pieces != o->n) {
		gw_swarm_peer_ban(s, p, "counts other pieces than the manifest: not asked again");
		return;
	}
	h->near = p->region == 0;
	if (m->whole) {
		holder_whole(s, o, h);
		h->news_ns = s->now;
	} else {
		switch (holder_bits(s, o, h, m)) {
		case GW_ENOMEM:
			s->err = GW_ENOMEM;
			break;
		case GW_EMALFORMED:
			gw_swarm_peer_ban(s, p, "sends a malformed list of pieces: not asked again");
			break;
		}
	}
}

static void news_send(struct gw_swarm *s, struct object *o)
{
	size_t i, from = 0, to = o->words;

	while (from < to && !o->news[from])
		from++;
	while (to > from && !o->news[to - 1])
		to--;
	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];

		if (h->tells && !h->whole && h->peer->linked)
			have_send_span(s, o, h->peer, o->news, from, to);
	}
	memset(o->news, 0, o->words * sizeof *o->news);
	o->has_news = 0;
}

void gw_swarm_news_whole(struct gw_swarm *s, struct object *o)
{
	size_t i;

	o->has_news = 0;
	for (i = 0; i < o->holder_count; i++)
		if (o->holders[i]->tells && o->holders[i]->peer->linked)
			have_send(s, o, o->holders[i]->peer, NULL, 0, 0);
}

void gw_swarm_news_flush(struct gw_swarm *s)
{
	size_t i;

	for (i = 0; i < s->object_count; i++)
		if (s->order[i]->has_news)
			news_send(s, s->order[i]);
}

/* Some more links inside the region, from a random place in its list. */
static void region_links(struct gw_swarm *s)
{
	struct region *r = &s->regions[0];
	size_t i, linked = 0, start;

	for (i = 0; i < r->n; i++)
		linked += r->members[i]->linked || r->members[i]->connecting;
	if (linked >= r->n || linked >= s->cfg.region_links)
		return;
	start = (size_t)gw_rng_below(&s->rng, r->n);
	for (i = 0; i < r->n && linked < s->cfg.region_links; i++) {
		struct peer *p = r->members[(start + i) % r->n];

		if (p->linked || p->connecting || p->banned)
			continue;
		gw_swarm_link_need(s, p);
		linked++;
	}
}

void gw_swarm_look_around(struct gw_swarm *s, struct object *o)
{
	struct region *r = &s->regions[0];
	size_t i;

	region_links(s);
	for (i = 0; i < r->n; i++) {
		struct peer *p = r->members[i];
		struct holder *h;

		if (!gw_swarm_peer_usable(s, p))
			continue;
		h = gw_swarm_holder_make(s, o, p);
		if (!h)
			break;
		if (!h->asked_ns ||
		    (!h->whole && s->now >= gw_max_u64(h->asked_ns, h->news_ns) + s->cfg.claim_timeout_ns))
			gw_swarm_have_ask(s, o, h);
	}
}
