/*
 * What the files of mesh share. One struct gw_mesh; each file owns the functions named after it.
 */
#ifndef GW_MESH_INNER_H
#define GW_MESH_INNER_H

#include "base/rng.h"
#include "mesh/mesh.h"

enum {
	TICK_KEY = 1,
	FLUSH_KEY = 2,
	PEERS_MAX = 32, /* neighbours of a neighbour remembered */
	WITNESSES_ASKED = 3,
	NEWS_BATCH = 64, /* of proto/messages.def */
	LINES_BATCH = 512,
	SYNC_NEWS_MAX = 4 * NEWS_BATCH, /* members sent in answer to one comparison */
	HEALTH_MAX = 2,
	REFUSALS_MAX = 3, /* records of one host that did not verify, before it is left alone */
};

#define FLUSH_DELAY (GW_MESH_SECOND / 20)
#define PROBE_WAIT GW_MESH_SECOND	/* each of the two phases, before local health */
#define CLOCK_JUMP (2 * GW_MESH_SECOND) /* a step so late means that this host was starved */
#define TELL_EVERY (GW_MESH_SECOND / 10)
#define DEAF_FOR (60 * GW_MESH_SECOND)
#define TEMP_LINK (5 * GW_MESH_SECOND)
#define WATCH_AFTER_LOSS (30 * GW_MESH_SECOND)
#define REVIVE_EVERY (5 * GW_MESH_SECOND)
#define REPICK_EVERY (10 * GW_MESH_SECOND)
#define EXPIRY_EVERY (60 * GW_MESH_SECOND)
#define FORGET_AFTER (24 * 3600 * GW_MESH_SECOND)
#define PENDING_WAIT (30 * GW_MESH_SECOND)
/* Others' word may raise a host's incarnation by so much at once. */
#define GW_MESH_INCARNATION_JUMP (UINT64_C(1) << 32)

enum probe_phase { PROBE_IDLE, PROBE_DIRECT, PROBE_INDIRECT, PROBE_ACCUSED };

/* A host that mesh wants, gossips over, or watches a link to; other links are known by the roster alone. */
struct gw_mesh_link {
	gw_host host;	   /* GW_HOST_NONE: free slot */
	uint8_t up, asked; /* asked: CONNECT is out or in force */
	uint8_t want;	   /* a standing link that we picked */
	uint8_t theirs;	   /* the other end picked us */
	uint8_t muted;	   /* the host counts as dead or left, whatever the link says */
	uint64_t temp_until_ns;	 /* wanted for an errand until then */
	uint64_t watch_until_ns; /* its silence matters until then, though the link is gone */
	uint64_t heard_ns, phase_ns, pinged_ns, told_ns;
	uint64_t quiet_ns; /* silence before the next ping, jittered */
	enum probe_phase phase;
	uint32_t seq; /* of the last ping, and of the question to witnesses */
	uint8_t asked_witnesses, answered_witnesses;
	uint64_t sent_seq; /* news up to here has gone over it */
	uint32_t peer_count;
	gw_host peers[PEERS_MAX]; /* its neighbours: the witnesses for it */
};

/* A probe of `target` for another host (relay), or a question that waits for a link to a witness. */
struct gw_mesh_errand {
	gw_host target; /* GW_HOST_NONE: free slot */
	gw_host other;	/* relay: who asked; question: the witness */
	uint8_t relay, sent;
	uint32_t seq;
	uint64_t deadline_ns;
};

/* A signed record at the verifying worker, and what was said of its host. */
struct gw_mesh_pending {
	uint8_t identity[GW_IDENTITY_BYTES];
	uint32_t generation;
	uint8_t used;
	enum gw_member_state state;
	uint64_t incarnation, deadline_ns;
	gw_host from;
};

struct gw_mesh {
	uint32_t magic;
	struct gw_rng rng;
	struct gw_roster roster;
	struct gw_roster_entry *self;
	uint64_t last_ns, wall_ns;
	uint64_t sync_ns, revive_ns, expiry_ns, repick_ns; /* next */
	uint32_t sync_round, mark;
	gw_host sync_again; /* compare with it once more when the pending records are through */
	unsigned health, health_good;
	uint8_t started, leaving, picks_dirty, neighbours_dirty, flush_set;
	uint32_t seq;
	struct gw_mesh_link links[GW_MESH_LINKS_MAX];
	struct gw_mesh_errand errands[GW_MESH_ERRANDS_MAX];
	struct gw_mesh_pending pending[GW_MESH_PENDING_MAX];
	unsigned pending_count;
	gw_host *suspects; /* hosts in state suspect */
	size_t suspect_count, suspect_cap;
};

/* --- mesh.c --- */
void gw_mesh_tell(struct gw_mesh *m, struct gw_actions *out, enum gw_event_kind kind, const struct gw_roster_entry *e);
void gw_mesh_note(struct gw_actions *out, int level, const char *text, gw_host host);

/* --- links.c --- */
struct gw_mesh_link *gw_mesh_link_of(struct gw_mesh *m, gw_host host);
/* NULL where all slots are taken. */
struct gw_mesh_link *gw_mesh_link_get(struct gw_mesh *m, gw_host host);
int gw_mesh_link_standing(const struct gw_mesh_link *l);
/* Whether the host's silence means something: standing, or lost lately. */
int gw_mesh_link_watched(const struct gw_mesh_link *l, uint64_t now);
/* Dials for an errand; the link is let go by itself. Returns it, or NULL where that cannot be. */
struct gw_mesh_link *gw_mesh_link_borrow(struct gw_mesh *m, gw_host host, uint64_t now, struct gw_actions *out);
void gw_mesh_links_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out);
void gw_mesh_link_up(struct gw_mesh *m, gw_host host, uint64_t now, struct gw_actions *out);
void gw_mesh_link_down(struct gw_mesh *m, gw_host host, uint64_t now);
void gw_mesh_hello(struct gw_mesh *m, gw_host from, const struct gw_m_link_hello *h, uint64_t now,
		   struct gw_actions *out);
void gw_mesh_answer(struct gw_mesh *m, gw_host from, int accepted, uint64_t now, struct gw_actions *out);
void gw_mesh_peers(struct gw_mesh *m, gw_host from, const struct gw_m_neighbours *n);
/* The member came back. */
void gw_mesh_link_unmute(struct gw_mesh *m, struct gw_roster_entry *e);
/* The member is gone: lets go of its link. */
void gw_mesh_link_drop(struct gw_mesh *m, struct gw_roster_entry *e, struct gw_actions *out);
uint64_t gw_mesh_score(const struct gw_mesh *m, const uint8_t identity[GW_IDENTITY_BYTES]);

/* --- probe.c --- */
/* Anything came from that host. */
void gw_mesh_heard(struct gw_mesh *m, gw_host from, uint64_t now, struct gw_actions *out);
void gw_mesh_probe_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out);
/* A link came up: errands that waited for it. */
void gw_mesh_probe_link_up(struct gw_mesh *m, gw_host host, struct gw_actions *out);
void gw_mesh_ping(struct gw_mesh *m, gw_host host, uint32_t seq, struct gw_actions *out);
void gw_mesh_probe_request(struct gw_mesh *m, gw_host from, const struct gw_m_probe_request *q, uint64_t now,
			   struct gw_actions *out);
void gw_mesh_probe_reply(struct gw_mesh *m, gw_host from, const struct gw_m_probe_reply *r, uint64_t now,
			 struct gw_actions *out);
/* Local health: worse (1) or better (-1). */
void gw_mesh_health(struct gw_mesh *m, int change);
/* This host was starved for that long: nobody is silent because of it. */
void gw_mesh_forgive(struct gw_mesh *m, uint64_t gap);

/* --- news.c --- */
struct gw_statement {
	enum gw_member_state state;
	uint64_t incarnation;
	const uint8_t *by; /* 16 bytes, or NULL */
};
/* What is said of a known member. `from` said it, GW_HOST_SELF for own observations. A comparison's dead are only
 * suspects where we hold them alive. */
void gw_mesh_apply(struct gw_mesh *m, struct gw_roster_entry *e, const struct gw_statement *s, gw_host from,
		   int compared, uint64_t now, struct gw_actions *out);
void gw_mesh_news(struct gw_mesh *m, gw_host from, const struct gw_m_member_news *n, uint64_t now,
		  struct gw_actions *out);
void gw_mesh_asked(struct gw_mesh *m, gw_host from, const struct gw_m_member_ask *a, struct gw_actions *out);
/* Tells one host about some members; with their signed records where asked. */
void gw_mesh_send_news(struct gw_mesh *m, gw_host to, struct gw_roster_entry *const *v, size_t n, int records,
		       struct gw_actions *out);
void gw_mesh_flush(struct gw_mesh *m, uint64_t now, struct gw_actions *out);
void gw_mesh_flush_soon(struct gw_mesh *m, uint64_t now, struct gw_actions *out);
/* A higher incarnation of this host, stored and told at once. */
void gw_mesh_reincarnate(struct gw_mesh *m, uint64_t above, uint64_t now, struct gw_actions *out);
void gw_mesh_suspicion_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out);
void gw_mesh_ask_for(struct gw_actions *out, gw_host to, const uint8_t (*ids)[GW_IDENTITY_BYTES], size_t n);

/* --- verify.c --- */
/* A record came along with news: to the worker with it. */
void gw_mesh_verify(struct gw_mesh *m, gw_host from, const struct gw_r_member_news *n, uint64_t now,
		    struct gw_actions *out);
void gw_mesh_record(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out);
void gw_mesh_refused(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out);
void gw_mesh_verify_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out);

/* --- sync.c --- */
void gw_mesh_sync_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out);
void gw_mesh_compare(struct gw_mesh *m, gw_host with, struct gw_actions *out);
void gw_mesh_sync_digest(struct gw_mesh *m, gw_host from, const struct gw_m_table_digest *d, struct gw_actions *out);
void gw_mesh_sync_buckets(struct gw_mesh *m, gw_host from, const struct gw_m_table_buckets *b, struct gw_actions *out);
void gw_mesh_sync_lines(struct gw_mesh *m, gw_host from, const struct gw_m_table_lines *l, uint64_t now,
			struct gw_actions *out);

#endif
