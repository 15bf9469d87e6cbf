/* What the files of node share. */
#ifndef GW_NODE_INNER_H
#define GW_NODE_INNER_H

#include "base/rng.h"
#include "node/node.h"

enum {
	HEALTH_KEY = 1,	   /* low part of the timer's key */
	STATUS_BATCH = 32, /* of proto/messages.def */
	HOPS_MAX = 32,
	RELAYED_MAX = 64 * 1024, /* records passed on for one query */
};

/* Which machines have asked for the link to a host: a bit each, by enum gw_machine. */
struct gw_wishes {
	uint8_t *of;
	size_t cap;
};

/* A record kept: its texts lie behind it. */
struct gw_kept_status {
	struct gw_r_host_status r;
};

/* A query under way through this host, ours or another's. */
struct gw_query {
	uint8_t used, ours, again;
	uint8_t origin[GW_IDENTITY_BYTES];
	uint64_t number, second;   /* of the wave; of the second one, 0 while there is none */
	uint64_t key;		   /* ours: of the event */
	gw_host parent;		   /* another's: where the wave came from */
	uint64_t ask_ns, end_ns;   /* second wave; end */
	struct gw_kept_status **v; /* ours: all so far; another's: the batch to be passed on */
	size_t n, cap, relayed;
};

struct gw_node {
	uint32_t magic;
	struct gw_mesh *mesh;
	struct gw_board *board;
	struct gw_swarm *swarm;
	struct gw_rng rng;
	struct gw_wishes wishes;
	struct gw_event *queue; /* what machines tell each other, in order */
	uint8_t *queue_from;
	size_t queue_n, queue_cap;
	struct gw_kept_status *reports[GW_NODE_POLICIES_MAX];
	size_t report_count;
	struct gw_node_traffic traffic[GW_REGIONS_MAX];
	struct gw_query queries[GW_NODE_QUERIES_MAX];
	int health_timer;
};

/* --- wishes.c --- */
/* Whether the action must leave; CONNECT for a host whose link is asked for already need not. */
int gw_wish(struct gw_wishes *w, gw_host host, unsigned machine, int connect, int *err);
void gw_wishes_end(struct gw_wishes *w, gw_host host);

/* --- status.c --- */
/* A copy that owns its texts; NULL without memory. */
struct gw_kept_status *gw_status_keep(const struct gw_r_host_status *r);
/* Moves what r's texts point to into the arena. */
int gw_status_texts(struct gw_r_host_status *r, struct gw_arena *a);

/* --- health.c --- */
/* The event HEALTH, the messages 16 and 17, and the timer. */
void gw_health_step(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out);
void gw_health_free(struct gw_node *n);

#endif
