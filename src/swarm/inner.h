/*
 * What the files of this folder share. swarm.h is the manual; here is how it is kept.
 *
 * A peer is a host this one may talk to; a holder is a peer's part in one object (what it has, what it claims,
 * whether it wants news); a flight is one piece asked of one peer. Bitmaps are 64-bit words, so that the bit of a word
 * is the stripe of its piece: a mask of stripes selects pieces by one AND a word.
 */
#ifndef GW_SWARM_INNER_H
#define GW_SWARM_INNER_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/num.h"
#include "base/rng.h"
#include "swarm/swarm.h"
#include "trust/manifest.h"

enum {
	PEERS_MAX = GW_SWARM_MEMBERS_MAX + 4096,
	HAVE_BITS_MAX = 16384, /* bytes of bitmap in one message */
	BLOCKS_MAX = GW_PIECE_MAX / GW_BLOCK_MAX,
	WINDOW_MIN = 2 * GW_BLOCK_MAX,
	WINDOW_START = 8 * GW_BLOCK_MAX,
	HANDED_PEER_MAX = 1 << 20,
	HANDED_MAX = 16 << 20,
	RATE_GUESS = 32 << 20, /* bytes per second, of a peer not measured yet */
};

#define MS 1000000ull
#define SECOND 1000000000ull
#define TICK_NS (100 * MS)
#define LINK_IDLE_NS (60 * SECOND)
#define EAGER_WAIT_NS (200 * MS)

enum timer { TIMER_TICK = 1, TIMER_NEWS, TIMER_TOKENS };

struct region {
	char *name;
	uint32_t cost;	       /* from this host's */
	struct peer **members; /* alive ones, in order of arrival */
	size_t n, cap;
};

/* A request of a peer, waiting to be sent: bytes [at, end) of a piece. */
struct serve {
	struct object *object;
	uint32_t piece, at, end;
};

struct peer {
	gw_host host;
	uint32_t region;
	uint8_t identity[32];
	uint8_t up, suspect, linked, connecting, kept, banned;
	uint64_t connect_after_ns, connect_began_ns, used_ns; /* no new attempt before; last attempt; last need */
	unsigned connect_failures;

	uint64_t outstanding;		 /* bytes asked for and not here */
	uint64_t asked_bytes, got_bytes; /* in all */
	uint64_t rate, rtt_ns;		 /* bytes per second, 0 unknown; the least seen, or a guess */
	uint8_t rtt_measured;
	uint64_t heard_ns;		       /* last block, or the moment it first owed us one */
	uint64_t window_from_ns, window_bytes; /* of the rate being measured */
	uint64_t stalled_until_ns, refused_until_ns; /* refusals count once until then */
	unsigned stalls, refusals; /* refusals: since the last block */

	struct serve *queue; /* GW_SWARM_QUEUE_PEER_MAX, a ring */
	uint32_t q_at, q_n;
	uint64_t handed;	   /* bytes given to BLOCK_SEND and not yet sent */
	struct peer *next_serving; /* ring of peers with a queue */
};

struct holder {
	struct peer *peer;
	uint64_t *bits; /* NULL: nothing yet */
	uint32_t count;
	uint8_t near;				 /* what it has counts for the region */
	uint8_t whole, unknown, answered, tells; /* unknown: it said it has no part in it; tells: it wants our news */
	uint64_t claims;
	uint64_t source; /* stripes for which it is the one to ask in its region */
	uint64_t asked_ns, news_ns;
	uint64_t dry; /* the object's `change` when nothing was left to ask of it; 0 never */
};

struct stripe {
	uint32_t rank;	       /* ours, 0 best */
	gw_host first, second; /* among the others, best first; GW_HOST_NONE */
	uint64_t news_ns;      /* last piece of it that came into the region, or the last reason to wait */
	uint64_t ask_until_ns;
	gw_host asked[3];
	uint8_t asks, answered, fetching, defers; /* asked so far; bits: who answered, and said that it is fetching */
	uint8_t yields; /* to others who claimed it too */
};

struct flight {
	struct flight *next;
	struct peer *peer;
	uint32_t piece, size, asked, got; /* bytes */
	uint32_t blocks;		  /* which have come */
	uint8_t checking, pushed, probe;  /* probe: nothing else was owed when it was asked for */
	uint64_t began_ns, heard_ns;
};

struct region_bytes {
	uint32_t region;
	uint64_t bytes;
};

struct object {
	struct gw_digest id;
	struct gw_manifest m; /* digests is NULL */
	struct gw_bytes raw;  /* ours */
	uint64_t key;	      /* 0: not to be fetched */
	uint32_t n, leaves, have;
	size_t words;
	uint8_t opened, opening, whole, claim_news, has_news, reconsider;
	uint64_t opened_ns, retry_ns;
	unsigned failures; /* of the store */

	uint64_t *own;		   /* kept while incomplete; NULL when whole */
	uint64_t *busy;		   /* own, or in flight */
	uint64_t *covered, *multi; /* some, or several, of the region have it */
	uint64_t *news;		   /* verified and not announced yet */
	uint64_t *first;	   /* small patches: this host brought it into the region */
	uint8_t *avail;		   /* how many of the region have it */
	uint32_t leaves_left;
	uint64_t change; /* rises when something may have become possible to ask for */
	uint64_t progress_ns, here_ns; /* of the region, as it says; the last piece that was verified here */

	struct holder *holders[GW_SWARM_PEERS_MAX];
	size_t holder_count;
	struct stripe stripes[GW_SWARM_STRIPES];
	uint64_t claimed, claimed_ns, ranks_view;
	struct flight *flights;
	uint64_t late_bytes; /* given up in the endgame */

	struct gw_swarm_object count;
	struct region_bytes *by_region;
	size_t region_count;
};

struct cost {
	char *a, *b;
	uint32_t cost;
};

struct gw_swarm {
	uint32_t magic;
	struct gw_swarm_config cfg;
	struct cost *costs;
	struct gw_rng rng;
	struct region regions[GW_SWARM_REGIONS_MAX]; /* by handle */
	uint32_t region_count;
	struct gw_map peers;			    /* by host */
	struct gw_map objects;			    /* by id */
	struct object *order[GW_SWARM_OBJECTS_MAX]; /* by key, largest first */
	size_t object_count;
	uint64_t view, view_ns; /* of the own region's members: rises with each change; the last */

	uint64_t outstanding;
	uint64_t checking; /* bytes of pieces that are all here and not verified yet: the workers hold them in memory */
	uint32_t flight_count, kept_links;
	struct peer *serving; /* the last served of the ring */
	uint32_t queued;
	uint64_t handed;
	uint64_t tokens, border_tokens, tokens_ns;
	uint64_t tick_at, news_at, tokens_at;	 /* timers set; 0 none */
	uint64_t rate_from_ns, rate_bytes, rate; /* of all that comes in */
	struct gw_swarm_totals total;

	/* of the step under way */
	uint64_t now, wall;
	struct gw_actions *out;
	int err;
};

/* --- bitmaps --- */

static inline int bit_get(const uint64_t *w, uint32_t i)
{
	return (int)(w[i / 64] >> (i % 64) & 1);
}

static inline void bit_set(uint64_t *w, uint32_t i)
{
	w[i / 64] |= 1ull << (i % 64);
}

static inline void bit_clear(uint64_t *w, uint32_t i)
{
	w[i / 64] &= ~(1ull << (i % 64));
}

static inline uint32_t piece_size(const struct object *o, uint32_t i)
{
	return (uint32_t)gw_manifest_piece_size(&o->m, i);
}

/* The bits of word w that are pieces. */
static inline uint64_t valid_word(const struct object *o, size_t w)
{
	uint32_t left = o->n - (uint32_t)w * 64;

	return left >= 64 ? ~0ull : (1ull << left) - 1;
}

/* --- peers.c: hosts, regions, links, rank --- */
struct peer *gw_swarm_peer_get(const struct gw_swarm *s, gw_host host);
struct peer *gw_swarm_peer_make(struct gw_swarm *s, gw_host host);
void gw_swarm_peer_free(void *p);
void gw_swarm_member_up(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_member_down(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_member_suspect(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_link_up(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_link_down(struct gw_swarm *s, const struct gw_event *ev);
/* Sees to it that there will be a link; nonzero when there is one now. */
int gw_swarm_link_need(struct gw_swarm *s, struct peer *p);
void gw_swarm_links_idle(struct gw_swarm *s);
uint32_t gw_swarm_region_cost(const struct gw_swarm *s, uint32_t a, uint32_t b);
uint64_t gw_swarm_rendezvous(const struct gw_digest *object, uint32_t stripe, const uint8_t identity[32]);
/* Not to be asked now: no link, banned or stalled. */
int gw_swarm_peer_usable(const struct gw_swarm *s, const struct peer *p);
uint64_t gw_swarm_peer_rate(const struct peer *p);
uint64_t gw_swarm_peer_window(const struct gw_swarm *s, const struct peer *p);
/* Named in the log, and never asked again. */
void gw_swarm_peer_ban(struct gw_swarm *s, struct peer *p, const char *why);

/* --- objects.c: from WANT to FORGET --- */
struct object *gw_swarm_object_get(const struct gw_swarm *s, const uint8_t id[32]);
void gw_swarm_object_want(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_object_unwant(struct gw_swarm *s, struct object *o);
void gw_swarm_object_forget(struct gw_swarm *s, struct object *o);
void gw_swarm_object_free(void *o);
void gw_swarm_object_open(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_object_failed(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_object_retry(struct gw_swarm *s, struct object *o);
int gw_swarm_object_fetching(const struct object *o);
void gw_swarm_piece_here(struct gw_swarm *s, struct object *o, uint32_t piece);
void gw_swarm_count_region(struct gw_swarm *s, struct object *o, uint32_t region, uint64_t bytes);

/* --- holders.c: who has what, news --- */
struct holder *gw_swarm_holder_get(const struct object *o, const struct peer *p);
struct holder *gw_swarm_holder_make(struct gw_swarm *s, struct object *o, struct peer *p);
/* It is gone, stalled, or not to be believed: what it had does not count until it is asked again. */
void gw_swarm_holder_clear(struct object *o, struct holder *h);
/* It does not have this piece after all. */
void gw_swarm_holder_lacks(struct object *o, struct holder *h, uint32_t piece);
void gw_swarm_have_ask(struct gw_swarm *s, struct object *o, struct holder *h);
void gw_swarm_on_have_ask(struct gw_swarm *s, struct peer *p, const struct gw_m_have_ask *m);
void gw_swarm_on_have(struct gw_swarm *s, struct peer *p, const struct gw_m_have *m);
void gw_swarm_news_flush(struct gw_swarm *s);
/* All of it is here: tells those who want to know. */
void gw_swarm_news_whole(struct gw_swarm *s, struct object *o);
uint64_t gw_swarm_holder_word(const struct object *o, const struct holder *h, size_t w);
/* Links and questions inside the region, while the object is fetched. */
void gw_swarm_look_around(struct gw_swarm *s, struct object *o);

/* --- stripes.c: who crosses the border --- */
void gw_swarm_on_claim(struct gw_swarm *s, struct peer *p, const struct gw_m_claim *m);
void gw_swarm_on_claim_ask(struct gw_swarm *s, struct peer *p, const struct gw_m_claim_ask *m);
void gw_swarm_claims_tell(struct gw_swarm *s, struct object *o, struct peer *p);
void gw_swarm_stripes_consider(struct gw_swarm *s, struct object *o);
void gw_swarm_stripes_rank(struct gw_swarm *s, struct object *o);
/* Stripes of pieces that only `p` has in the region, which this host may take from it. */
uint64_t gw_swarm_stripes_first_from(struct gw_swarm *s, struct object *o, const struct peer *p);

/* --- sources.c: from which region --- */
void gw_swarm_sources_find(struct gw_swarm *s, struct object *o);
/* Claimed stripes of which this host of another region may give pieces now. */
uint64_t gw_swarm_sources_allowed(struct gw_swarm *s, struct object *o, const struct holder *h);

/* --- pick.c: which piece --- */
#define NO_PIECE UINT32_MAX
uint32_t gw_swarm_pick(struct gw_swarm *s, struct object *o, const struct holder *h);
/* Nanoseconds until so many bytes asked of it now would be here. */
uint64_t gw_swarm_queue_ns(const struct peer *p, uint32_t bytes);
/* Another one has it too and, though its window is full, would bring it in less than half the time. */
int gw_swarm_better_wait(const struct gw_swarm *s, const struct object *o, const struct holder *h, uint32_t piece);

/* --- fetch.c: what was asked of whom --- */
void gw_swarm_fetch_pump(struct gw_swarm *s);
void gw_swarm_on_block(struct gw_swarm *s, struct peer *p, const struct gw_m_block *m);
void gw_swarm_on_refuse(struct gw_swarm *s, struct peer *p, const struct gw_m_piece_refuse *m);
void gw_swarm_piece_ok(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_piece_bad(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_flights_drop_peer(struct gw_swarm *s, struct peer *p, int cancel);
void gw_swarm_flights_drop_object(struct gw_swarm *s, struct object *o, int cancel);
void gw_swarm_flights_tick(struct gw_swarm *s);
struct flight *gw_swarm_flight_find(const struct object *o, uint32_t piece);

/* --- serve.c: what others ask of us --- */
void gw_swarm_on_get(struct gw_swarm *s, struct peer *p, const struct gw_m_piece_get *m);
void gw_swarm_on_cancel(struct gw_swarm *s, struct peer *p, const struct gw_m_piece_cancel *m);
void gw_swarm_block_sent(struct gw_swarm *s, const struct gw_event *ev);
void gw_swarm_serve_push(struct gw_swarm *s, struct object *o, uint32_t piece, struct peer *p);
void gw_swarm_serve_pump(struct gw_swarm *s);
void gw_swarm_serve_drop_peer(struct gw_swarm *s, struct peer *p);
void gw_swarm_serve_drop_object(struct gw_swarm *s, struct object *o);

/* --- swarm.c --- */
void gw_swarm_timer_set(struct gw_swarm *s, enum timer which, uint64_t *slot, uint64_t at_ns);
void gw_swarm_log_host(struct gw_swarm *s, int level, gw_host host, const char *text);
struct gw_msg *gw_swarm_send_about(struct gw_swarm *s, struct peer *p, enum gw_msg_type type);

#endif
