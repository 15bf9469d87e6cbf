/*
 * The bulletin board: the newest head and the manifests of every run that this host has heard of, spread by
 * flooding over the standing links and healed by anti-entropy; and the cheapest way from the version that is
 * served to the newest one. A pure state machine, see wire/step.h; formats of what it carries: trust/manifest.h.
 *
 * Flooding: what comes in is known by the digest of its signed bytes. Known ones are dropped unread; new ones go to
 * a worker (VERIFY_HEAD, VERIFY_MANIFEST) before anything in them is believed or passed on. A head whose counters
 * trust/freshness.h accepts is persisted (slot "board"), then sent to every link but those that sent it here. A head
 * with lower counters than seen is refused, counted and logged, and its sender gets the newer one. Manifests travel
 * with a head where they are small, else on request; a host asks for all that its head reaches: the newest, the listed
 * anchors and skips, and whatever `previous` leads back to, up to `retain` versions and to the newest anchor. Every digest_interval one link,
 * at random, is told which heads are known here (the comparison goes both ways).
 *
 * Path: versions are nodes; transitions, skips (edges) and anchors (edges from nothing) weigh the bytes still to be
 * fetched, what is whole here weighs nothing. Dijkstra's cheapest path from the served version, or from nothing, to
 * the newest is told to the swarm as WANT, newest first (as far as one gets, while a manifest is missing); when its first step is whole, PATH says so. A step whose
 * staging failed is avoided for stage_retry, while another way exists. A host that serves nothing fetches an
 * anchor and the chain: so it relays what its region needs.
 *
 * START: feed it after new(). Feed MANIFEST with host GW_HOST_SELF for every object in the store, then, as always,
 * what the VERIFY actions ask for; the heads found in the persisted slot come back as VERIFY_HEAD of GW_HOST_SELF.
 *
 * Limits: 64 policies with one run each at a time; 1024 manifests (of 32 KiB: 32 MiB at most) of which 256 not yet
 * reached from a head; 1024 links; 256 verifications under way; 2048 ids remembered as refused; 64 manifests asked
 * for at a time; 128 KiB of answers to one request.
 */
#ifndef GW_BOARD_BOARD_H
#define GW_BOARD_BOARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trust/manifest.h"
#include "wire/step.h"

enum {
	GW_BOARD_POLICIES_MAX = 64,
	GW_BOARD_MANIFESTS_MAX = 1024,
	GW_BOARD_LOOSE_MAX = 256,
	GW_BOARD_LINKS_MAX = 1024,
	GW_BOARD_VERIFY_MAX = 256,
	GW_BOARD_REFUSED_MAX = 2048,
	GW_BOARD_ASKS_MAX = 64,
	GW_BOARD_SLOT_MAX = 60 * 1024, /* bytes that PERSIST may carry */
};

struct gw_board;

/* Zero in a field takes the value named. */
struct gw_board_config {
	uint64_t seed;
	struct gw_bytes persisted;   /* the slot "board" as stored; empty on a fresh host. Copied. */
	uint64_t freshness_floor_ns; /* 24 h: how long expired a head may be for a host without counters */
	uint64_t digest_interval_ns; /* 10 s */
	uint64_t ask_timeout_ns;     /* 2 s: then another link is asked for a manifest */
	uint64_t stage_retry_ns;     /* 60 s */
	uint32_t retain;	     /* 64: versions behind the newest that are kept, besides those since the newest anchor */
};

/* GW_EMALFORMED with a message where the persisted slot is damaged: counters must not be lost silently. */
int gw_board_new(struct gw_board **out, const struct gw_board_config *cfg, struct gw_diag *why);
void gw_board_free(struct gw_board *b);

/* Takes START, TIMER, MSG, LINK_UP, LINK_DOWN, HEAD, MANIFEST, REFUSED, OBJECT_WHOLE, SERVED, STAGE_FAILED; ignores the
 * rest. GW_ENOMEM: the actions must be dropped and the process should restart. */
int gw_board_step(struct gw_board *b, const struct gw_event *ev, struct gw_actions *out);

struct gw_board_policy {
	const char *policy;
	const uint8_t *run;	    /* 16 bytes */
	const struct gw_head *head; /* NULL while none is known */
	int stale;		    /* the head is expired, or there is none */
	uint64_t served;	    /* versions, or GW_VERSION_NONE */
	uint64_t fetched;	    /* the newest version for which a whole path is here */
	uint32_t steps;		    /* left on the path; 0 when there is none or nothing to do */
	uint64_t path_bytes;	    /* of the objects on it that are not whole */
	int no_path;		    /* the newest cannot be reached with the manifests known */
};

size_t gw_board_policy_count(const struct gw_board *b);
/* The i-th in order of first mention. Pointers hold until the next step. */
void gw_board_policy(const struct gw_board *b, size_t i, uint64_t wall_ns, struct gw_board_policy *out);

/* NULL where it is not known; *raw (may be NULL) its signed bytes. Both hold until the next step. */
const struct gw_manifest *gw_board_manifest(const struct gw_board *b, const struct gw_digest *id, struct gw_bytes *raw);
/* The manifest of that run that ends in this version: a transition rather than a skip or an anchor. */
const struct gw_manifest *gw_board_version(const struct gw_board *b, const uint8_t run[16], uint64_t version);
/* Walks all manifests: *at starts at 0, NULL ends. */
const struct gw_manifest *gw_board_next(const struct gw_board *b, size_t *at, struct gw_bytes *raw);

/* Since new(); monotonic. */
struct gw_board_counts {
	uint64_t heads_accepted, heads_known, heads_rolled_back, heads_refused;
	uint64_t manifests_accepted, manifests_refused, manifests_unasked;
	uint64_t heads_sent, manifests_sent, digests_sent;
};
void gw_board_counts(const struct gw_board *b, struct gw_board_counts *out);

#endif
