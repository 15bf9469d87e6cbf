/*
 * A handful of swarm machines in one process, with virtual time: links with a delay, an uplink with a rate, a store
 * that only counts. What crosses a border is counted here apart from the machines' own counters.
 */
#ifndef GW_TESTS_SWARM_NET_H
#define GW_TESTS_SWARM_NET_H

#include "base/heap.h"
#include "base/rng.h"
#include "swarm/swarm.h"
#include "trust/manifest.h"

enum { NET_HOSTS = 24, NET_OBJECTS = 4, NET_PIECES = 2048, NET_REGIONS = 4, NET_LOGS = 64 };

#define NET_MS 1000000ull
#define NET_S 1000000000ull

struct net_object {
	struct gw_manifest m;
	uint32_t pieces;
};

struct net_store {
	uint8_t have[NET_PIECES / 8];
	uint32_t got[NET_PIECES]; /* bytes stored of a piece that is not checked yet */
	uint8_t bad[NET_PIECES];
	int open, whole;
};

struct net;

/* Answers in the place of a swarm machine: a host that is up to something. */
typedef void net_puppet(struct net *n, int host, int from, const struct gw_msg *m);

struct net_host {
	net_puppet *puppet;
	struct gw_swarm *swarm;
	uint8_t identity[32];
	int region;
	int alive, mute, liar; /* mute: takes requests and sends nothing; liar: sends wrong bytes */
	uint8_t linked[NET_HOSTS];
	struct net_store store[NET_OBJECTS];
	uint64_t uplink_free_ns;
	uint64_t blocks_out;
	const char *logs[NET_LOGS];
	gw_host log_host[NET_LOGS];
	size_t log_count;
	uint64_t sent[256]; /* messages by type */
	uint64_t asked_near_bytes, asked_far_bytes, most_in_flight;
};

struct net {
	struct net_host hosts[NET_HOSTS];
	int n;
	struct net_object objects[NET_OBJECTS];
	struct gw_heap events;
	struct gw_actions out;
	struct gw_rng rng;
	uint64_t now, steps, trace; /* trace: a hash over all that was sent */
	uint64_t uplink_bytes_per_s, near_ns, far_ns;
	int no_links; /* nobody but the swarm itself makes any */
	uint64_t border_bytes[NET_OBJECTS][NET_REGIONS][NET_REGIONS]; /* object, from, to */
	int crossed_by[NET_OBJECTS][NET_PIECES];		      /* host + 1 that pulled it first across */
	int crossings[NET_OBJECTS][NET_PIECES][NET_REGIONS];
	struct gw_swarm_config cfg; /* of hosts added from now on */
};

void net_init(struct net *n, uint64_t seed);
void net_free(struct net *n);
/* Host index; nobody knows it yet. */
int net_add(struct net *n, int region);
/* Everybody alive learns of everybody alive; links inside regions come up. */
void net_meet(struct net *n);
/* One host becomes known to, and linked with, its region, and known to the rest. */
void net_join(struct net *n, int host);
void net_object(struct net *n, int object, uint32_t pieces, uint32_t leaves, uint32_t piece_bytes);
void net_give(struct net *n, int host, int object, uint32_t pieces); /* the first so many */
void net_want(struct net *n, int host, int object, uint64_t key);
void net_want_all(struct net *n, int object);
/* What the store has survives. */
void net_kill(struct net *n, int host);
void net_restart(struct net *n, int host);
void net_event(struct net *n, int host, struct gw_event *ev);
/* What a puppet says. */
void net_say(struct net *n, int from, int to, const struct gw_msg *m);
void net_suspect(struct net *n, int host);
void net_down(struct net *n, int host);
/* Runs until nothing is left to do, `until`, or all alive hosts are whole; nonzero in the last case. */
int net_run(struct net *n, int object, uint64_t until_ns);
int net_whole(const struct net *n, int host, int object);
uint64_t net_payload(const struct net *n, int object);
uint64_t net_into(const struct net *n, int object, int region);
const char *net_region_name(int region);
gw_host net_handle(int host);
int net_logged(const struct net *n, int host, const char *part, int about);
struct gw_swarm_object net_count(const struct net *n, int host, int object);

#endif
