/*
 * Who fetches which piece from whom. A pure state machine, see wire/step.h; pieces: trust/manifest.h.
 *
 * Stripes. Piece i belongs to stripe i mod 64 (so an object of fewer pieces has one stripe a piece). In each
 * region the live members are ranked for each stripe by rendezvous hash (Thaler and Ravishankar, 1998): SipHash of
 * identity and stripe under the object's id. Rank 0 owns the stripe: it claims it inside the region, then pulls those
 * of its pieces that nobody in the region has from the nearest region that has them, there from the host that ranks
 * first for the same stripe. Everyone else waits for the owner's pieces and swarms. Rank k waits k × claim_timeout
 * without news of the stripe (not at all where all before it are down or suspected; what is only said counts for
 * 10 × claim_timeout after the last piece that verified), asks the first and the second who is fetching, and takes
 * over if neither is. An owner asks the same way first when the region's members changed within
 * settle, or when somebody else claims the stripe.
 *
 * Nearest: by configured cost between regions, then by measured rate. If a nearer region is fetching it and lies nearer
 * to the one that has it, the owner waits up to claim_timeout without news for it: so regions form chains and trees.
 * An origin is spared: while others of its region are fetching, a host that has all gives other regions only the
 * stripes that it ranks first for, and inside its region a piece that nobody else has goes to the stripe's owner alone,
 * one that fetching hosts have comes from these.
 *
 * Order. Objects by the key of WANT, largest first; the leaves of the piece table before the pieces they verify; peers
 * by least expected queue (bytes outstanding over measured rate); of what that peer has, the rarest piece in the
 * region, from a random start. A whole piece comes from one peer, so a bad one has one author. When nothing is left
 * to ask for, a late piece is asked for again elsewhere, for at most 2 % of an object's bytes.
 *
 * Flow. piece_get grants credit for the bytes it asks for; outstanding bytes per peer stay under 2 × rate × least
 * round trip (256 KiB to window_max) and all together under budget. A peer from which nothing comes in time, or
 * nothing but refusals, is left alone for 1, 2, 4, … 64 s; one that sends a bad piece, or bytes nobody asked for, is
 * not asked again. Both are logged. Serving: at most 256 requests queued a peer and 8192 in all, block by block round robin over the peers, at
 * most 1 MiB handed to one link's queue and 16 MiB to all, under upload_bytes_per_s and border_bytes_per_s.
 *
 * A restart resumes: OBJECT_OPEN says what is there, the rest is fetched. Patches of at most eager_max bytes are
 * pushed, by the one host that got a piece first, to its links inside the region.
 *
 * Limits: 256 objects; 2^18 pieces an object; bitmaps of 128 peers an object while it is incomplete (4 MiB);
 * 64 remote askers an object; 2048 pieces in flight; 16384 members; 256 regions; 4096 links.
 */
#ifndef GW_SWARM_SWARM_H
#define GW_SWARM_SWARM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/step.h"

enum {
	GW_SWARM_STRIPES = 64,
	GW_SWARM_OBJECTS_MAX = 256,
	GW_SWARM_PIECES_MAX = 1 << 18,
	GW_SWARM_PEERS_MAX = 128, /* an object */
	GW_SWARM_ASKERS_MAX = 64, /* of other regions, an object */
	GW_SWARM_FLIGHTS_MAX = 2048,
	GW_SWARM_MEMBERS_MAX = 16384,
	GW_SWARM_REGIONS_MAX = 256,
	GW_SWARM_QUEUE_PEER_MAX = 256,
	GW_SWARM_QUEUE_MAX = 8192,
};

struct gw_swarm;

/* What a byte between two regions costs, both ways, in any unit. A pair that is not listed costs 100, two hosts of one
 * region 0. The same table belongs on every host. */
struct gw_region_cost {
	const char *a, *b;
	uint32_t cost;
};

/* Zero in a field takes the value named. */
struct gw_swarm_config {
	uint64_t seed;
	uint8_t identity[32];
	const char *region;		    /* this host's; copied */
	const struct gw_region_cost *costs; /* copied */
	size_t cost_count;
	uint64_t budget_bytes;	     /* 64 MiB: asked for and not here yet, or here and not verified, in all */
	uint64_t window_max_bytes;   /* 16 MiB: the same of one peer */
	uint64_t eager_max_bytes;    /* 0: no pushes */
	uint64_t upload_bytes_per_s; /* 0: no cap */
	uint64_t border_bytes_per_s; /* 0: no cap; of what leaves the region */
	uint64_t claim_timeout_ns;   /* 3 s */
	uint64_t ask_timeout_ns;     /* 500 ms */
	uint64_t settle_ns;	     /* 2 s */
	uint64_t stall_min_ns;	     /* 2 s: a peer is never given up sooner */
	uint64_t have_delay_ns;	     /* 10 ms: news of pieces is gathered that long */
	uint32_t region_links;	     /* 8: links that it keeps inside the region while it fetches */
};

int gw_swarm_new(struct gw_swarm **out, const struct gw_swarm_config *cfg, struct gw_diag *why);
void gw_swarm_free(struct gw_swarm *s);

/* Takes START, TIMER, MSG, LINK_UP, LINK_DOWN, MEMBER_UP, MEMBER_DOWN, MEMBER_SUSPECT, WANT, UNWANT, FORGET,
 * OBJECT_OPEN, OBJECT_FAILED, PIECE_OK, PIECE_BAD, BLOCK_SENT; ignores the rest. A TELL of OBJECT_WHOLE says that an
 * object is complete. GW_ENOMEM: the actions must be dropped and the process should restart. */
int gw_swarm_step(struct gw_swarm *s, const struct gw_event *ev, struct gw_actions *out);

struct gw_swarm_object {
	uint32_t pieces, have, in_flight;
	uint64_t rx_bytes;	  /* piece payload received since new(), whatever became of it */
	uint64_t border_rx_bytes; /* of it from other regions */
	uint64_t duplicate_bytes; /* of it not needed: the piece was here or came from elsewhere */
	uint64_t bad_bytes;	  /* of it in pieces that did not verify */
	uint64_t tx_bytes, border_tx_bytes;
	uint64_t claimed; /* stripes being pulled across the border */
	int whole, wanted;
};
/* GW_ENOENT where the object is not known. */
int gw_swarm_object(const struct gw_swarm *s, const struct gw_digest *object, struct gw_swarm_object *out);
/* Piece payload of an object received from a region, by its handle. */
uint64_t gw_swarm_region_bytes(const struct gw_swarm *s, const struct gw_digest *object, uint32_t region);

/* All objects together, forgotten ones included. */
struct gw_swarm_totals {
	uint64_t rx_bytes, border_rx_bytes, duplicate_bytes, bad_bytes, tx_bytes, border_tx_bytes;
	uint64_t in_flight_bytes; /* asked for and not here yet */
	uint64_t queued;	  /* requests of others waiting */
	uint64_t rx_bytes_per_s;  /* smoothed over some seconds */
	uint32_t banned, stalled; /* hosts not asked for good, for now */
};
void gw_swarm_totals(const struct gw_swarm *s, struct gw_swarm_totals *out);
/* The rank of a host for a stripe among the members of its region, itself included: 0 owns it. UINT32_MAX where the
 * host is no live member. For status and tests. */
uint32_t gw_swarm_rank(const struct gw_swarm *s, const struct gw_digest *object, uint32_t stripe, gw_host host);
int gw_swarm_banned(const struct gw_swarm *s, gw_host host);

#endif
