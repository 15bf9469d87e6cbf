/*
 * What the files of this folder share. board.h is the manual; here is how it is kept.
 */
#ifndef GW_BOARD_INNER_H
#define GW_BOARD_INNER_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/num.h"
#include "base/rng.h"
#include "board/board.h"
#include "trust/freshness.h"

enum {
	LINK_IDS = 8,
	LINK_OWED = 32,
	SMALL_MANIFEST = 4096, /* rides along with its head */
	BACK_MAX = 16,	       /* predecessors asked for along with a manifest */
	ASK_IDS_MAX = 32,
	DIGEST_HEADS_MAX = 64,
	TIMER_DIGEST = 1,
	TIMER_ASK = 2,
};

#define MS 1000000ull
#define SECOND 1000000000ull

/* Another host's end of a link. */
struct link {
	gw_host host;
	struct gw_digest known[LINK_IDS]; /* ids of heads it has for certain: a ring */
	uint8_t known_at, owed_at;
	struct gw_digest owed[LINK_OWED]; /* manifests it asked for before they were here: a ring */
	uint8_t refused;		  /* bad signatures in a row */
	uint16_t verifying;
	uint64_t muted_until_ns;
};

/* A manifest and what is known about its object. */
struct entry {
	struct gw_manifest m;
	uint8_t *raw;
	size_t n;
	uint8_t mine; /* its object is in this host's store */
	uint8_t whole;
	uint8_t reachable, was_reachable;
	uint8_t told; /* the swarm knows the object */
	uint64_t key; /* as the swarm was told */
	uint64_t failed_until_ns;
};

struct policy {
	char name[GW_POLICY_NAME_MAX + 1];
	struct gw_counters counters;
	struct gw_head *head; /* NULL: only the counters are known */
	uint8_t *raw;
	size_t n;
	gw_host from;
	uint64_t stale_ns; /* monotonic: from then on the head has expired, whatever the wall clock says */
	struct gw_digest path_told; /* the step of the last PATH; zero for none */
	uint64_t fetched, path_bytes;
	uint32_t steps;
	int no_path;
	uint8_t chain_known; /* all that the head reaches is here: what it does not reach is over */
};

struct verifying {
	uint64_t key; /* 0 free */
	struct gw_digest id;
	gw_host host;
	uint8_t is_head;
};

struct asking {
	struct gw_digest id;
	gw_host host; /* GW_HOST_NONE: nobody yet */
	uint64_t at_ns;
};

struct served {
	uint8_t run[GW_RUN_BYTES];
	uint64_t version;
};

struct gw_board {
	uint32_t magic;
	struct gw_board_config cfg;
	struct gw_rng rng;
	struct policy *policies[GW_BOARD_POLICIES_MAX];
	size_t policy_count;
	struct gw_map entries; /* by id */
	size_t loose;	       /* of them never reached */
	struct gw_map links;   /* by host */
	struct gw_map refused; /* id to error, as a pointer to one of the ring's */
	struct refusal {
		struct gw_digest id;
		int err;
	} refusals[GW_BOARD_REFUSED_MAX];
	size_t refusal_at;
	struct verifying verifying[GW_BOARD_VERIFY_MAX];
	uint64_t verify_key;
	struct asking asks[GW_BOARD_ASKS_MAX];
	size_t ask_count;
	struct served served[GW_BOARD_POLICIES_MAX];
	size_t served_count;
	uint64_t digest_at, ask_at; /* timers set; 0 none */
	struct gw_board_counts counts;

	/* of the step under way */
	uint64_t now, wall;
	struct gw_actions *out;
	int err;
	uint8_t reconsider; /* something changed: reach, asks, path */
};

/* --- board.c --- */
void gw_board_log(struct gw_board *b, int level, gw_host host, const char *text);
void gw_board_timer(struct gw_board *b, uint64_t which, uint64_t *slot, uint64_t at_ns);
struct link *gw_board_link(const struct gw_board *b, gw_host host);
int gw_board_link_knows(const struct link *l, const struct gw_digest *id);
void gw_board_link_learn(struct link *l, const struct gw_digest *id);
/* A link at random, another than `but` where there is one; NULL where there is none. */
struct link *gw_board_link_any(struct gw_board *b, gw_host but);
/* Hands bytes to a worker, unless they are known, refused, being verified, or there is no room. */
void gw_board_verify(struct gw_board *b, struct link *l, const struct gw_bytes *raw, int is_head);
/* Not to be looked at again. */
void gw_board_refuse(struct gw_board *b, const struct gw_digest *id, int err);
int gw_board_is_zero(const struct gw_digest *id);

/* --- heads.c --- */
struct policy *gw_board_policy_of_run(const struct gw_board *b, const uint8_t run[GW_RUN_BYTES]);
struct policy *gw_board_policy_of_head(const struct gw_board *b, const struct gw_digest *id);
void gw_board_on_head(struct gw_board *b, const struct gw_event *ev);
void gw_board_on_digest(struct gw_board *b, struct link *l, const struct gw_m_board_digest *m);
void gw_board_on_head_ask(struct gw_board *b, struct link *l, const struct gw_m_head_ask *m);
void gw_board_send_head(struct gw_board *b, struct policy *p, struct link *l);
void gw_board_send_digest(struct gw_board *b, struct link *l);

/* --- slot.c --- */
void gw_board_persist(struct gw_board *b);
int gw_board_load(struct gw_board *b, const struct gw_bytes *slot, struct gw_diag *why);
/* The heads of the slot go to a worker like any other. */
void gw_board_load_heads(struct gw_board *b);

/* --- shelf.c --- */
struct entry *gw_board_entry(const struct gw_board *b, const struct gw_digest *id);
void gw_board_entry_free(void *entry);
void gw_board_on_manifest(struct gw_board *b, const struct gw_event *ev);
void gw_board_on_manifest_ask(struct gw_board *b, struct link *l, const struct gw_m_manifest_ask *m);
/* Marks what the heads reach, drops what they do not any more, asks for what is missing. */
void gw_board_reach(struct gw_board *b);
void gw_board_ask_again(struct gw_board *b);
void gw_board_asked_done(struct gw_board *b, const struct gw_digest *id);

/* --- path.c --- */
/* Chooses the way for every policy and tells the swarm and, where a step is whole, the engine room. */
void gw_board_paths(struct gw_board *b);
uint64_t gw_board_served_version(const struct gw_board *b, const uint8_t run[GW_RUN_BYTES]);

#endif
