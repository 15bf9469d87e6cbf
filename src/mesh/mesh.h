/*
 * Membership and liveness: every host knows all members, and which of them are alive.
 *
 * Sources: SWIM (Das, Gupta, Motivala, DSN 2002): probes, indirect probes, suspicion, incarnations. Lifeguard
 * (Dadgar, Phillips, Currey, 2018): local health, suspicions that shorten with independent witnesses.
 * HyParView (Leitão, Pereira, Rodrigues, DSN 2007): a small standing set of links. What differs, because a link
 * costs a handshake: probes run over the standing links only, never to random members.
 *
 * Links. Each host dials GW_MESH_NEAR members of its region and GW_MESH_FAR of others, those with the highest
 * rendezvous weight for it, and accepts as many from others: about twice that in all. One that cannot be dialled
 * opens twice as many instead. Losses are repaired by the next in order. A host turns down what goes beyond
 * GW_MESH_STANDING_MAX.
 *
 * Liveness. Any message over a link proves its sender alive. A link silent for GW_MESH_QUIET is pinged; no ack in
 * time: up to three of the silent host's other neighbours are asked to probe it (each host tells its neighbours who
 * its neighbours are, so this works also for hosts that cannot be dialled); still nothing: it is accused. Accusations
 * are flooded; the accused refutes with a higher incarnation; without that it is dead after GW_MESH_LONE, or
 * GW_MESH_SURE when three have seen the silence. The times are such that a host starved for 8 s is never declared dead
 * and one silent for 20 s always is. Who was starved itself (its clock jumped) or fails to get answers accuses
 * later; who hears from nobody accuses nobody. The dead are dialled again now and then, so that partitions heal; and so
 * are those that left, since a host that comes back cannot dial those without an address.
 *
 * Spreading. What changes is flooded over the standing links with dedupe (news is what changed the table); each
 * link has one number for its backlog. Every GW_MESH_SYNC a neighbour, every third time a random member, is
 * compared with by digests. Signed records come along when they are new; verifying
 * them is an action. A member whose record has expired is out until it brings a newer one, and forgotten a day later.
 *
 * Limits: GW_MEMBERS_MAX members; GW_MESH_LINKS_MAX links known to mesh; GW_MESH_PENDING_MAX records being
 * verified; GW_MESH_ERRANDS_MAX probes on behalf of others or by them. Beyond them news is dropped and anti-entropy
 * brings it again. Persistent: one slot "mesh" of 8 bytes, this host's incarnation; and the members that it knows, which
 * the owner keeps (gw_mesh_known): a host that starts without one that others count on can neither dial it nor let it in.
 */
#ifndef GW_MESH_MESH_H
#define GW_MESH_MESH_H

#include "mesh/roster.h"
#include "wire/step.h"

enum {
	GW_MESH_NEAR = 3,
	GW_MESH_FAR = 2,
	GW_MESH_STANDING_MAX = 24,
	GW_MESH_LINKS_MAX = 128,
	GW_MESH_PENDING_MAX = 512,
	GW_MESH_ERRANDS_MAX = 64,
};

#define GW_MESH_SECOND UINT64_C(1000000000)
#define GW_MESH_TICK (GW_MESH_SECOND / 2)
#define GW_MESH_QUIET (2 * GW_MESH_SECOND)
#define GW_MESH_SURE (8 * GW_MESH_SECOND)
#define GW_MESH_LONE (9 * GW_MESH_SECOND)
#define GW_MESH_SYNC (10 * GW_MESH_SECOND)

struct gw_mesh_config {
	uint64_t seed;
	struct gw_member_record *self;
	/* Verified records of members to begin with, as of gw_mesh_known; ours may be among them. First those that were in,
	 * then the dead, then those that had left: the last two are let in, and dialled now and then. */
	struct gw_member_record *const *bootstrap;
	size_t bootstrap_count, bootstrap_dead, bootstrap_left;
	struct gw_bytes stored; /* what was persisted in slot "mesh", or empty */
};

struct gw_mesh;

/* Takes references of the records. Nothing happens before the event START. */
int gw_mesh_new(const struct gw_mesh_config *config, struct gw_mesh **out);
void gw_mesh_free(struct gw_mesh *m);

/* 0, or GW_ENOMEM: then the state is sound and the actions incomplete. */
int gw_mesh_step(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out);

const struct gw_roster *gw_mesh_roster(const struct gw_mesh *m);
/* Hosts with which a standing link is up: at most `max` of them; returns how many. */
size_t gw_mesh_neighbours(const struct gw_mesh *m, gw_host *out, size_t max);
/* What the next start shall begin with: records, at most `max` of them, in the order that gw_mesh_config wants, and how
 * many of each kind. Where nobody is in, all count as if they were: alone now does not mean that there was nobody. */
struct gw_mesh_kinds {
	size_t in, dead, left;
};
struct gw_mesh_kinds gw_mesh_known(const struct gw_mesh *m, struct gw_member_record **v, size_t max);
/* From when on a change of the table is to be kept, after `n` records were kept at kept_ns. Who knows few must be quick,
 * since none of them may be there later; who knows many need not, and shall not rewrite a long list all the time. */
uint64_t gw_mesh_keep_at(uint64_t kept_ns, size_t n);
/* How much this host distrusts its own sense of time: 0 (well) to 2. */
unsigned gw_mesh_local_health(const struct gw_mesh *m);

#endif
