/*
 * Which piece to ask of a host: allowed ones, the rarest in the region first.
 */
#include "swarm/inner.h"

enum { SAMPLE = 256 };
#define PATIENCE_NS (100 * MS)

/* Nanoseconds until a piece asked of it now would be here. */
uint64_t gw_swarm_queue_ns(const struct peer *p, uint32_t bytes)
{
	return p->rtt_ns / 2 + (uint64_t)((double)(p->outstanding + bytes) * 1e9 / (double)gw_swarm_peer_rate(p));
}

/* Words whose pieces may be asked for now: while leaves of the piece table are missing only these. */
static uint64_t leaf_word(const struct object *o, size_t w)
{
	uint32_t left;

	if (!o->leaves_left)
		return ~0ull;
	if (o->leaves <= w * 64)
		return 0;
	left = o->leaves - (uint32_t)w * 64;
	return left >= 64 ? ~0ull : (1ull << left) - 1;
}

/* Pieces that a nearer region offers. */
static uint64_t nearer_word(const struct gw_swarm *s, const struct object *o, uint32_t cost, size_t w)
{
	uint64_t bits = 0;
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];

		if (h->peer->region != 0 && gw_swarm_region_cost(s, 0, h->peer->region) < cost &&
		    gw_swarm_peer_usable(s, h->peer))
			bits |= gw_swarm_holder_word(o, h, w);
	}
	return bits;
}

/* Pieces that hosts of the region which are fetching too can give about as soon as this whole one. */
static uint64_t others_word(const struct gw_swarm *s, const struct object *o, const struct holder *whole, size_t w)
{
	uint64_t bits = 0, patience = 4 * gw_swarm_queue_ns(whole->peer, o->m.piece_bytes) + PATIENCE_NS;
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];

		if (h->bits && h->peer->region == 0 && gw_swarm_peer_usable(s, h->peer) &&
		    gw_swarm_queue_ns(h->peer, o->m.piece_bytes) < patience)
			bits |= h->bits[w];
	}
	return bits;
}

struct choice {
	uint64_t stripes; /* allowed ones */
	int near;
	int whole; /* an origin, or as good as one: only `stripes`, and what no fetching host can give */
	uint32_t cost;
};

static uint64_t choice_word(const struct gw_swarm *s, const struct object *o, const struct holder *h,
			    const struct choice *c, size_t w)
{
	uint64_t bits = gw_swarm_holder_word(o, h, w) & ~o->busy[w] & leaf_word(o, w);

	if (!bits)
		return 0;
	if (c->near)
		return c->whole ? bits & (c->stripes | (o->multi[w] & ~others_word(s, o, h, w))) : bits;
	bits &= ~o->covered[w] & c->stripes;
	return bits ? bits & ~nearer_word(s, o, c->cost, w) : 0;
}

/* Of up to SAMPLE candidates from a random start, the one that the fewest in the region have. */
uint32_t gw_swarm_pick(struct gw_swarm *s, struct object *o, const struct holder *h)
{
	struct choice c = {.near = h->peer->region == 0, .cost = gw_swarm_region_cost(s, 0, h->peer->region)};
	uint32_t best = NO_PIECE, seen = 0;
	size_t k, words = o->leaves_left ? (o->leaves + 63) / 64 : o->words, start;
	unsigned turn;

	if (c.near && s->cfg.eager_max_bytes && o->m.object_bytes <= s->cfg.eager_max_bytes &&
	    s->now < h->news_ns + EAGER_WAIT_NS)
		return NO_PIECE; /* it comes by itself */
	c.whole = c.near && h->whole;
	if (c.near)
		c.stripes = c.whole ? gw_swarm_stripes_first_from(s, o, h->peer) : ~0ull;
	else
		c.stripes = gw_swarm_sources_allowed(s, o, h);
	if (!c.stripes && !c.near)
		return NO_PIECE;
	start = (size_t)gw_rng_below(&s->rng, words);
	turn = (unsigned)gw_rng_below(&s->rng, 64);
	for (k = 0; k < words && seen < SAMPLE; k++) {
		size_t w = (start + k) % words;
		uint64_t bits = choice_word(s, o, h, &c, w);

		/* From a random bit on, so that hosts that start together do not all take the same. */
		bits = bits >> turn | (turn ? bits << (64 - turn) : 0);
		for (; bits; bits &= bits - 1, seen++) {
			uint32_t i = (uint32_t)(w * 64) + (((uint32_t)__builtin_ctzll(bits) + turn) & 63);

			if (best == NO_PIECE || o->avail[i] < o->avail[best])
				best = i;
		}
	}
	return best;
}

/* Another that might be asked in this one's place: as near, and not an origin that gives other stripes. */
static int may_stand_in(const struct gw_swarm *s, const struct object *o, const struct holder *q,
			const struct holder *h, uint32_t piece)
{
	if (q == h || !gw_swarm_peer_usable(s, q->peer) ||
	    !(gw_swarm_holder_word(o, q, piece / 64) >> (piece % 64) & 1))
		return 0;
	if (h->peer->region == 0)
		return q->peer->region == 0 && !q->whole;
	return q->peer->region != 0 && (!q->whole || q->source >> (piece % GW_SWARM_STRIPES) & 1) &&
	       gw_swarm_region_cost(s, 0, q->peer->region) == gw_swarm_region_cost(s, 0, h->peer->region);
}

/* Another one has it too and, though its window is full, would bring it in less than half the time. */
int gw_swarm_better_wait(const struct gw_swarm *s, const struct object *o, const struct holder *h, uint32_t piece)
{
	uint64_t mine = gw_swarm_queue_ns(h->peer, piece_size(o, piece));
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		const struct holder *q = o->holders[i];

		if (may_stand_in(s, o, q, h, piece) && q->peer->rate &&
		    gw_swarm_queue_ns(q->peer, piece_size(o, piece)) < mine / 2)
			return 1;
	}
	return 0;
}
