/*
 * Who pulls a stripe across the border: rank, claims, questions, taking over.
 */
#include "swarm/inner.h"

enum { DEFERS_MAX = 3, YIELDS_MAX = 3, PATIENCE_RANKS_MAX = 7, HEARSAY_TIMEOUTS = 10 };

/* a before b? Equal scores (not to be expected) go by identity. */
static int better(uint64_t score_a, const uint8_t *id_a, uint64_t score_b, const uint8_t *id_b)
{
	if (score_a != score_b)
		return score_a > score_b;
	return memcmp(id_a, id_b, 32) < 0;
}

static void rank_one(struct gw_swarm *s, struct object *o, uint32_t i)
{
	struct stripe *st = &o->stripes[i];
	uint64_t mine = gw_swarm_rendezvous(&o->id, i, s->cfg.identity);
	struct peer *top[2] = {NULL, NULL};
	uint64_t score[2] = {0, 0};
	size_t k;

	st->rank = 0;
	for (k = 0; k < s->regions[0].n; k++) {
		struct peer *p = s->regions[0].members[k];
		uint64_t v = gw_swarm_rendezvous(&o->id, i, p->identity);

		if (better(v, p->identity, mine, s->cfg.identity))
			st->rank++;
		if (!top[0] || better(v, p->identity, score[0], top[0]->identity)) {
			top[1] = top[0];
			score[1] = score[0];
			top[0] = p;
			score[0] = v;
		} else if (!top[1] || better(v, p->identity, score[1], top[1]->identity)) {
			top[1] = p;
			score[1] = v;
		}
	}
	st->first = top[0] ? top[0]->host : GW_HOST_NONE;
	st->second = top[1] ? top[1]->host : GW_HOST_NONE;
}

void gw_swarm_stripes_rank(struct gw_swarm *s, struct object *o)
{
	uint32_t i, n = o->n < GW_SWARM_STRIPES ? o->n : GW_SWARM_STRIPES;

	if (o->ranks_view == s->view)
		return;
	o->ranks_view = s->view;
	for (i = 0; i < n; i++)
		rank_one(s, o, i);
}

/* How many of those ranked before us are not suspected. Only the first two are known by name, which is enough:
 * with more before us the wait is long anyway. */
static uint32_t rank_unsuspected(struct gw_swarm *s, const struct stripe *st)
{
	uint32_t r = st->rank;
	const struct peer *a = gw_swarm_peer_get(s, st->first), *b = gw_swarm_peer_get(s, st->second);

	if (st->rank >= 1 && a && a->suspect)
		r--;
	if (st->rank >= 2 && b && b->suspect)
		r--;
	return r;
}

/* Is that host of the region getting pieces, or about to? */
static int advances(const struct gw_swarm *s, const struct object *o, gw_host host)
{
	const struct peer *p = gw_swarm_peer_get(s, host);
	const struct holder *h = p ? gw_swarm_holder_get(o, p) : NULL;

	if (!h || h->whole || p->suspect || !gw_swarm_peer_usable(s, p))
		return 0;
	if (!h->answered)
		return h->asked_ns && s->now < h->asked_ns + s->cfg.ask_timeout_ns;
	if (h->unknown)
		return s->now < o->opened_ns + s->cfg.ask_timeout_ns;
	return s->now < h->news_ns + s->cfg.claim_timeout_ns;
}

uint64_t gw_swarm_stripes_first_from(struct gw_swarm *s, struct object *o, const struct peer *p)
{
	uint32_t i, n = o->n < GW_SWARM_STRIPES ? o->n : GW_SWARM_STRIPES;
	uint64_t mask = 0;

	gw_swarm_stripes_rank(s, o);
	for (i = 0; i < n; i++) {
		const struct stripe *st = &o->stripes[i];
		int after = st->first == p->host; /* the owner is whoever comes first without p */

		if (st->rank <= (uint32_t)after || !advances(s, o, after ? st->second : st->first))
			mask |= 1ull << i;
	}
	return mask;
}

/* --- claims --- */

void gw_swarm_claims_tell(struct gw_swarm *s, struct object *o, struct peer *p)
{
	struct gw_m_claim *m = &gw_swarm_send_about(s, p, GW_MSG_claim)->u.claim;

	memcpy(m->object, o->id.b, sizeof m->object);
	m->stripes = o->claimed;
}

static void claims_tell_all(struct gw_swarm *s, struct object *o)
{
	size_t i;

	if (!o->claim_news)
		return;
	o->claim_news = 0;
	for (i = 0; i < s->regions[0].n; i++) {
		struct peer *p = s->regions[0].members[i];

		if (p->linked)
			gw_swarm_claims_tell(s, o, p);
	}
}

void gw_swarm_on_claim_ask(struct gw_swarm *s, struct peer *p, const struct gw_m_claim_ask *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct gw_m_claim *answer;

	if (o) {
		gw_swarm_claims_tell(s, o, p);
		return;
	}
	answer = &gw_swarm_send_about(s, p, GW_MSG_claim)->u.claim;
	memcpy(answer->object, m->object, sizeof answer->object);
}

/* Both claim it: the one that ranks worse, as we see it, leaves it to the other. */
static void yield_to(struct gw_swarm *s, struct object *o, const struct peer *p, uint64_t stripes)
{
	uint32_t i;

	for (i = 0; i < GW_SWARM_STRIPES; i++) {
		if (!(o->claimed & stripes & 1ull << i) || o->stripes[i].yields == YIELDS_MAX)
			continue;
		if (!better(gw_swarm_rendezvous(&o->id, i, p->identity), p->identity,
			    gw_swarm_rendezvous(&o->id, i, s->cfg.identity), s->cfg.identity))
			continue;
		o->claimed &= ~(1ull << i);
		o->claim_news = 1;
		o->stripes[i].yields++;
		o->stripes[i].news_ns = s->now;
	}
}

static void answer_in(struct stripe *st, gw_host host, int fetching)
{
	uint8_t i;

	for (i = 0; st->ask_until_ns && i < st->asks; i++) {
		if (st->asked[i] != host)
			continue;
		st->answered |= (uint8_t)(1u << i);
		st->fetching |= (uint8_t)((unsigned)fetching << i);
	}
}

void gw_swarm_on_claim(struct gw_swarm *s, struct peer *p, const struct gw_m_claim *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct holder *h;
	uint32_t i;

	if (!o || !gw_swarm_object_fetching(o) || !p->up || p->region != 0)
		return;
	h = gw_swarm_holder_make(s, o, p);
	if (!h)
		return;
	for (i = 0; i < GW_SWARM_STRIPES; i++) {
		/* A claim that ends is news too: mostly its pieces are here, and the word of them is on its way. */
		if ((m->stripes ^ h->claims) & 1ull << i)
			o->stripes[i].news_ns = s->now;
		answer_in(&o->stripes[i], p->host, (int)(m->stripes >> i & 1));
	}
	yield_to(s, o, p, m->stripes & ~h->claims);
	h->claims = m->stripes;
	o->change++;
	o->reconsider = 1;
}

/* --- deciding --- */

/* Stripes with pieces that nobody in the region has. */
static uint64_t uncovered(const struct object *o)
{
	uint64_t mask = 0;
	size_t w;

	for (w = 0; w < o->words; w++)
		mask |= valid_word(o, w) & ~o->own[w] & ~o->covered[w];
	return mask;
}

static gw_host claimant(const struct object *o, uint32_t i)
{
	size_t k;

	for (k = 0; k < o->holder_count; k++) {
		const struct holder *h = o->holders[k];

		if ((h->claims >> i & 1) && h->peer->up && !h->peer->suspect && !h->peer->banned)
			return h->peer->host;
	}
	return GW_HOST_NONE;
}

static void take(struct object *o, uint32_t i)
{
	o->claimed |= 1ull << i;
	o->claim_news = 1;
	o->stripes[i].ask_until_ns = 0;
	o->stripes[i].defers = 0;
	o->change++;
}

/* Questions gathered while the stripes are gone through: one message a host. */
struct questions {
	struct {
		struct peer *peer;
		uint64_t stripes;
	} v[GW_SWARM_PEERS_MAX];
	size_t n;
};

static void ask_one(struct gw_swarm *s, struct questions *q, struct stripe *st, uint32_t i, gw_host host)
{
	struct peer *p = gw_swarm_peer_get(s, host);
	size_t k;

	for (k = 0; k < st->asks; k++)
		if (st->asked[k] == host)
			return;
	if (!p || st->asks == sizeof st->asked / sizeof st->asked[0] || !gw_swarm_link_need(s, p))
		return;
	for (k = 0; k < q->n && q->v[k].peer != p; k++)
		;
	if (k == GW_SWARM_PEERS_MAX)
		return;
	if (k == q->n) {
		q->v[q->n].peer = p;
		q->v[q->n++].stripes = 0;
	}
	q->v[k].stripes |= 1ull << i;
	st->asked[st->asks++] = host;
}

/* Asks the first and the second in hash order, and whoever claims it; those without a link yet when that is up.
 * Nonzero when all have answered. */
static int ask(struct gw_swarm *s, struct questions *q, struct object *o, uint32_t i, gw_host claims_it)
{
	struct stripe *st = &o->stripes[i];
	const gw_host whom[3] = {st->first, st->second, claims_it};
	size_t k, wanted = 0;

	for (k = 0; k < 3; k++) {
		if (whom[k] == GW_HOST_NONE)
			continue;
		ask_one(s, q, st, i, whom[k]);
		wanted += k < 2 || (claims_it != st->first && claims_it != st->second);
	}
	return st->asks >= wanted && st->answered == (1u << st->asks) - 1;
}

static void questions_send(struct gw_swarm *s, const struct object *o, const struct questions *q)
{
	size_t k;

	for (k = 0; k < q->n; k++) {
		struct gw_m_claim_ask *m = &gw_swarm_send_about(s, q->v[k].peer, GW_MSG_claim_ask)->u.claim_ask;

		memcpy(m->object, o->id.b, sizeof m->object);
		m->stripes = q->v[k].stripes;
	}
}

static void heed_answers(struct gw_swarm *s, struct questions *q, struct object *o, uint32_t i, gw_host claims_it)
{
	struct stripe *st = &o->stripes[i];
	int all = ask(s, q, o, i, claims_it);

	if (st->fetching && st->defers < DEFERS_MAX) {
		st->defers++;
		st->ask_until_ns = 0;
		st->news_ns = s->now; /* somebody is at it: wait once more */
	} else if (all || s->now >= st->ask_until_ns) {
		take(o, i);
	}
}

/* The last news of a stripe. What is only said, by claims that come and go, counts for so long after the last piece
 * that came in and verified. */
static uint64_t last_news(const struct gw_swarm *s, const struct object *o, const struct stripe *st)
{
	return gw_min_u64(st->news_ns, gw_max_u64(o->here_ns, o->opened_ns) + HEARSAY_TIMEOUTS * s->cfg.claim_timeout_ns);
}

static void consider_one(struct gw_swarm *s, struct questions *q, struct object *o, uint32_t i)
{
	struct stripe *st = &o->stripes[i];
	gw_host other = claimant(o, i);
	uint32_t r = rank_unsuspected(s, st);
	uint64_t patience = s->cfg.claim_timeout_ns * gw_min_u64(r, PATIENCE_RANKS_MAX);
	int settled = s->now >= s->view_ns + s->cfg.settle_ns;

	if (st->ask_until_ns) {
		heed_answers(s, q, o, i, other);
		return;
	}
	if (other != GW_HOST_NONE)
		patience += s->cfg.claim_timeout_ns;
	if (s->now < last_news(s, o, st) + patience)
		return;
	if (settled && st->rank == 0 && other == GW_HOST_NONE) {
		take(o, i);
		return;
	}
	if (s->regions[0].n == 0)
		return; /* just started: others may be found yet */
	st->asks = st->answered = st->fetching = 0;
	st->ask_until_ns = s->now + s->cfg.ask_timeout_ns;
	ask(s, q, o, i, other); /* who cannot be reached does not answer */
}

/* Region first: nothing is pulled across before the neighbours have said what they have. */
static int looking_around(const struct gw_swarm *s, const struct object *o)
{
	size_t i, linked = 0;

	if (s->now >= o->opened_ns + s->cfg.ask_timeout_ns)
		return 0;
	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];

		if (h->peer->region != 0 || !h->peer->linked || h->peer->banned)
			continue;
		if (!h->answered)
			return 1;
		linked++;
	}
	return s->regions[0].n > 0 && linked == 0;
}

void gw_swarm_stripes_consider(struct gw_swarm *s, struct object *o)
{
	struct questions q = {.n = 0};
	uint64_t open, kept;
	uint32_t i;

	o->reconsider = 0;
	if (!gw_swarm_object_fetching(o) || looking_around(s, o))
		return;
	gw_swarm_stripes_rank(s, o);
	open = uncovered(o);
	kept = o->claimed & open;
	if (kept != o->claimed)
		o->claim_news = 1;
	if (!o->claimed)
		o->claimed_ns = s->now;
	o->claimed = kept;
	for (i = 0; i < GW_SWARM_STRIPES; i++)
		if (open & ~o->claimed & 1ull << i)
			consider_one(s, &q, o, i);
	questions_send(s, o, &q);
	if (o->claim_news)
		gw_swarm_sources_find(s, o);
	claims_tell_all(s, o);
}
