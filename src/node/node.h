/*
 * One host: mesh, board and swarm behind one step.
 *
 * The node routes each event to the machines that want it, feeds what mesh says about members back into the
 * others (those actions never leave), tells timers and verifications of different machines apart, and keeps one
 * wish per host and link although several machines ask for it: CONNECT leaves when the first asks, DISCONNECT when
 * the last lets go, and LINK_DOWN ends all wishes.
 *
 * It also answers the health query (status.h): a wave over the standing links asks every host, the records come
 * back the way the wave went, in batches. The asker closes after all members have answered or GW_NODE_HEALTH_WAIT
 * and adds those that did not as unreachable. At most GW_NODE_QUERIES_MAX queries are under way through a host.
 *
 * Engines and the publisher report by gw_node_report; traffic is counted here from the events and actions.
 */
#ifndef GW_NODE_NODE_H
#define GW_NODE_NODE_H

#include "mesh/mesh.h"
#include "node/status.h"
#include "wire/step.h"

enum {
	GW_NODE_QUERIES_MAX = 16,
	GW_NODE_POLICIES_MAX = 8, /* records a host reports */
};
#define GW_NODE_HEALTH_WAIT (3 * GW_MESH_SECOND)

struct gw_board;
struct gw_swarm;
struct gw_node;

struct gw_node_config {
	uint64_t seed;
	struct gw_mesh_config mesh; /* its seed is not looked at */
	const char *island;         /* "" for none */
};

/* What passed through: payload of pieces, by region handle. */
struct gw_node_traffic {
	uint64_t rx_bytes, tx_bytes;
};

int gw_node_new(const struct gw_node_config *config, struct gw_node **out);
void gw_node_free(struct gw_node *n);
int gw_node_step(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out);

const struct gw_mesh *gw_node_mesh(const struct gw_node *n);
struct gw_board *gw_node_board(struct gw_node *n);
struct gw_swarm *gw_node_swarm(struct gw_node *n);

/* Sets what this host says about a policy (found by its name): state, served, staged, engine, ranks, last_*, …
 * Identity, name, region, island, bytes, head and fetched are filled in by the node. Texts are copied. */
int gw_node_report(struct gw_node *n, const struct gw_r_host_status *status);

/* Totals for a region handle; 0 is inside the own region. */
struct gw_node_traffic gw_node_traffic(const struct gw_node *n, uint32_t region);
/* Piece payload from and to all other regions. */
struct gw_node_traffic gw_node_border(const struct gw_node *n);

#endif
