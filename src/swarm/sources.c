/*
 * From which region a claimed stripe comes: the nearest that has it, there from the host that ranks first for it.
 */
#include "swarm/inner.h"

enum { REGIONS_AT_ONCE = 4 };
#define WIDEN_NS (500 * MS)
#define UNKNOWN_RETRY_NS SECOND
#define UNKNOWN_RETRY_EARLY_NS (100 * MS)

enum verdict { FINE, ASK, SKIP };

static int holds_something(const struct object *o, const struct holder *h, uint64_t stripes)
{
	size_t w;

	if (h->whole)
		return 1;
	for (w = 0; h->bits && w < o->words; w++)
		if (h->bits[w] & ~o->own[w] & ~o->covered[w] & stripes)
			return 1;
	return 0;
}

/* What is to be done about a host that might give this stripe. */
static enum verdict judge(const struct gw_swarm *s, const struct object *o, const struct peer *p, uint64_t stripe)
{
	const struct holder *h = gw_swarm_holder_get(o, p);
	uint64_t age;

	if (p->banned || p->suspect || p->stalled_until_ns > s->now)
		return SKIP;
	if (!p->linked && (p->connect_after_ns > s->now ||
			   (p->connecting && s->now > p->connect_began_ns + 2 * s->cfg.ask_timeout_ns)))
		return SKIP;
	if (!h || !h->asked_ns)
		return ASK;
	age = s->now - h->asked_ns;
	if (!h->answered)
		return age < s->cfg.ask_timeout_ns ? FINE : age < s->cfg.claim_timeout_ns ? SKIP : ASK;
	if (h->unknown) {
		int early = s->now < o->claimed_ns + s->cfg.ask_timeout_ns;

		return age < (early ? UNKNOWN_RETRY_EARLY_NS : UNKNOWN_RETRY_NS) ? SKIP : ASK;
	}
	if (holds_something(o, h, stripe) || s->now < h->news_ns + s->cfg.claim_timeout_ns)
		return FINE;
	return age < s->cfg.claim_timeout_ns ? SKIP : ASK;
}

/* The best ranked host of the region that is worth it gets asked. */
static void find_in(struct gw_swarm *s, struct object *o, const struct region *r, uint32_t stripe)
{
	enum verdict verdict = SKIP;
	struct peer *best = NULL;
	uint64_t best_score = 0;
	struct holder *h;
	size_t i;

	for (i = 0; i < r->n; i++) {
		struct peer *p = r->members[i];
		uint64_t score = gw_swarm_rendezvous(&o->id, stripe, p->identity);
		enum verdict v;

		if (best && score <= best_score)
			continue;
		v = judge(s, o, p, 1ull << stripe);
		if (v == SKIP)
			continue;
		best = p;
		best_score = score;
		verdict = v;
	}
	h = best ? gw_swarm_holder_make(s, o, best) : NULL;
	if (!h)
		return;
	h->source |= 1ull << stripe;
	if (verdict == ASK && gw_swarm_link_need(s, best))
		gw_swarm_have_ask(s, o, h);
}

/* A usable host of that region has all of it: no need to look farther. */
static int region_is_whole(const struct gw_swarm *s, const struct object *o, uint32_t region)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];

		if (h->whole && h->peer->region == region && gw_swarm_peer_usable(s, h->peer))
			return 1;
	}
	return 0;
}

void gw_swarm_sources_find(struct gw_swarm *s, struct object *o)
{
	uint8_t done[GW_SWARM_REGIONS_MAX] = {0};
	uint64_t at_once = REGIONS_AT_ONCE + (s->now - o->claimed_ns) / WIDEN_NS;
	uint32_t i, k, best;

	for (i = 0; i < o->holder_count; i++)
		o->holders[i]->source = 0;
	for (k = 0; o->claimed && k < at_once; k++) {
		best = 0;
		for (i = 1; i < s->region_count; i++)
			if (!done[i] && s->regions[i].n && (!best || s->regions[i].cost < s->regions[best].cost))
				best = i;
		if (!best)
			return;
		done[best] = 1;
		for (i = 0; i < GW_SWARM_STRIPES; i++)
			if (o->claimed >> i & 1)
				find_in(s, o, &s->regions[best], i);
		if (region_is_whole(s, o, best))
			return;
	}
}

/* Is this region on its way to have it? */
static int is_fetching(const struct gw_swarm *s, const struct object *o, uint32_t region)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];
		const struct peer *p = h->peer;

		if (p->region != region || p->banned || p->suspect || h->whole)
			continue;
		if (!h->answered || h->unknown) {
			if (s->now < o->claimed_ns + s->cfg.ask_timeout_ns)
				return 1;
		} else if (s->now < h->news_ns + s->cfg.claim_timeout_ns) {
			return 1;
		}
	}
	return 0;
}

uint64_t gw_swarm_sources_allowed(struct gw_swarm *s, struct object *o, const struct holder *h)
{
	uint32_t i, region = h->peer->region, here = gw_swarm_region_cost(s, 0, region), nearer;
	/* An origin gives what its region's other hosts are not there to give: the rest comes from these. */
	uint64_t from = h->whole ? o->claimed & h->source : o->claimed, mask = 0;

	for (nearer = 1; nearer < s->region_count; nearer++)
		if (nearer != region && gw_swarm_region_cost(s, 0, nearer) < here &&
		    gw_swarm_region_cost(s, nearer, region) < here && is_fetching(s, o, nearer))
			break;
	if (nearer == s->region_count)
		return from;
	/* Wait for it, but not for ever: a stripe without news goes the long way. */
	for (i = 0; i < GW_SWARM_STRIPES; i++)
		if (s->now >= gw_max_u64(o->stripes[i].news_ns, o->claimed_ns) + s->cfg.claim_timeout_ns)
			mask |= 1ull << i;
	return from & mask;
}
