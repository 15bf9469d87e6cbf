/*
 * One host: mesh, board and swarm behind one step.
 *
 * The node routes each event to the machines that want it (one with a key to that key's machine, a message to the
 * machine of its number), feeds what machines tell each other (MEMBER, TELL) back into the others, so that those
 * actions never leave, and keeps one wish per host and link although several machines ask for it: CONNECT leaves
 * when the first asks, DISCONNECT when the last lets go, and LINK_DOWN ends all wishes.
 *
 * It also answers the health query (wire/host_state.h): a wave over the standing links asks every host, the records
 * come back the way the wave went, in batches. Where some are missing after half the time a second wave asks again. The
 * asker closes when all members have answered or after GW_NODE_HEALTH_WAIT, and adds those that did not as
 * unreachable. At most GW_NODE_QUERIES_MAX queries are under way through a host; a host answers for at most
 * GW_NODE_POLICIES_MAX policies.
 *
 * Engines and the publisher report by gw_node_report. Traffic is counted here, from events: payload of pieces that
 * came in (message block) and that left (BLOCK_SENT), by region.
 */
#ifndef GW_NODE_NODE_H
#define GW_NODE_NODE_H

#include "board/board.h"
#include "mesh/mesh.h"
#include "swarm/swarm.h"
#include "wire/host_state.h"
#include "wire/step.h"

enum {
	GW_NODE_QUERIES_MAX = 16,
	GW_NODE_POLICIES_MAX = 8,
};
#define GW_NODE_HEALTH_WAIT (3 * GW_MESH_SECOND)

struct gw_node;

struct gw_node_config {
	uint64_t seed; /* those of the parts are made from it */
	struct gw_mesh_config mesh;
	struct gw_board_config board;
	struct gw_swarm_config swarm; /* identity and region are filled in from mesh.self */
};

/* Payload of pieces. */
struct gw_node_traffic {
	uint64_t rx_bytes, tx_bytes;
};

int gw_node_new(const struct gw_node_config *config, struct gw_node **out, struct gw_diag *why);
void gw_node_free(struct gw_node *n);
/* GW_ENOMEM: the actions must be dropped and the process should restart. */
int gw_node_step(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out);

const struct gw_mesh *gw_node_mesh(const struct gw_node *n);
const struct gw_board *gw_node_board(const struct gw_node *n);
const struct gw_swarm *gw_node_swarm(const struct gw_node *n);

/* Sets what this host says about a policy (found by its name): engine, ranks, staged, last_apply_ns, last_pause_ns,
 * last_error, and state where it is POISONED or SEEDING (any other is worked out from what is served). The rest is
 * filled in by the node. Texts are copied. GW_ELIMIT beyond GW_NODE_POLICIES_MAX or the limits of the message table. */
int gw_node_report(struct gw_node *n, const struct gw_r_host_status *status);

/* This host's own records, one a policy, at least one; texts live in the arena. Returns how many, at most
 * GW_NODE_POLICIES_MAX. */
size_t gw_node_status(const struct gw_node *n, uint64_t wall_ns, struct gw_arena *a,
		      struct gw_r_host_status out[GW_NODE_POLICIES_MAX]);

/* From and to a region, by its handle; 0 is the own one. */
struct gw_node_traffic gw_node_traffic(const struct gw_node *n, uint32_t region);
/* From and to all other regions. */
struct gw_node_traffic gw_node_border(const struct gw_node *n);

#endif
