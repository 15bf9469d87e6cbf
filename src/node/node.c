#include "node/node.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "node/inner.h"

enum { MAGIC = 0x6e6f6465 };

/* Bits by enum gw_machine. */
enum {
	TO_MESH = 1 << GW_KEY_MESH,
	TO_BOARD = 1 << GW_KEY_BOARD,
	TO_SWARM = 1 << GW_KEY_SWARM,
	TO_NODE = 1 << GW_KEY_NODE,
	TO_MACHINES = TO_MESH | TO_BOARD | TO_SWARM,
};

int gw_node_new(const struct gw_node_config *config, struct gw_node **out, struct gw_diag *why)
{
	struct gw_mesh_config mesh = config->mesh;
	struct gw_board_config board = config->board;
	struct gw_swarm_config swarm = config->swarm;
	struct gw_node *n = calloc(1, sizeof *n);
	int err;

	if (!n)
		return GW_ENOMEM;
	n->magic = MAGIC;
	gw_rng_init(&n->rng, config->seed);
	mesh.seed = gw_rng_u64(&n->rng);
	board.seed = gw_rng_u64(&n->rng);
	swarm.seed = gw_rng_u64(&n->rng);
	memcpy(swarm.identity, mesh.self->identity, sizeof swarm.identity);
	swarm.region = mesh.self->region;
	err = gw_mesh_new(&mesh, &n->mesh);
	if (!err)
		err = gw_board_new(&n->board, &board, why);
	if (!err)
		err = gw_swarm_new(&n->swarm, &swarm, why);
	if (err) {
		gw_node_free(n);
		return err;
	}
	*out = n;
	return 0;
}

void gw_node_free(struct gw_node *n)
{
	if (!n)
		return;
	gw_swarm_free(n->swarm);
	gw_board_free(n->board);
	gw_mesh_free(n->mesh);
	gw_health_free(n);
	for (size_t i = 0; i < n->report_count; i++)
		free(n->reports[i]);
	free(n->wishes.of);
	free(n->queue);
	free(n->queue_from);
	free(n);
}

const struct gw_mesh *gw_node_mesh(const struct gw_node *n)
{
	return n->mesh;
}

const struct gw_board *gw_node_board(const struct gw_node *n)
{
	return n->board;
}

const struct gw_swarm *gw_node_swarm(const struct gw_node *n)
{
	return n->swarm;
}

/* --- traffic --- */

struct gw_node_traffic gw_node_traffic(const struct gw_node *n, uint32_t region)
{
	return region < GW_REGIONS_MAX ? n->traffic[region] : (struct gw_node_traffic){0, 0};
}

struct gw_node_traffic gw_node_border(const struct gw_node *n)
{
	struct gw_node_traffic sum = {0, 0};

	for (uint32_t i = 1; i < gw_mesh_roster(n->mesh)->region_count; i++) {
		sum.rx_bytes += n->traffic[i].rx_bytes;
		sum.tx_bytes += n->traffic[i].tx_bytes;
	}
	return sum;
}

static void count(struct gw_node *n, const struct gw_event *ev)
{
	const struct gw_roster_entry *e = gw_roster_at(gw_mesh_roster(n->mesh), ev->host);

	if (!e)
		return;
	if (ev->kind == GW_EV_BLOCK_SENT && !ev->err)
		n->traffic[e->region].tx_bytes += ev->bytes;
	else if (ev->kind == GW_EV_MSG && ev->msg->type == GW_MSG_block)
		n->traffic[e->region].rx_bytes += ev->msg->u.block.data.n;
}

/* --- routing --- */

static unsigned message_goes_to(unsigned type)
{
	/* Mesh sees all: whatever arrives proves its sender alive. */
	if (type == GW_MSG_status_request || type == GW_MSG_status_reply)
		return TO_MESH | TO_NODE;
	if (type >= 96 && type < 128)
		return TO_MESH | TO_SWARM;
	if (type >= 64 && type < 96)
		return TO_MESH | TO_BOARD;
	return TO_MESH;
}

static unsigned goes_to(const struct gw_event *ev)
{
	switch (ev->kind) {
	case GW_EV_TIMER:
	case GW_EV_REFUSED:
		return GW_KEY_MACHINE(ev->key) < 8 ? 1u << GW_KEY_MACHINE(ev->key) : 0;
	case GW_EV_MSG:
		return message_goes_to(ev->msg->type);
	case GW_EV_MEMBER_RECORD:
	case GW_EV_LEAVE:
		return TO_MESH;
	case GW_EV_HEALTH:
		return TO_NODE;
	case GW_EV_HEAD:
	case GW_EV_MANIFEST:
	case GW_EV_SERVED:
	case GW_EV_STAGE_FAILED:
		return TO_BOARD;
	case GW_EV_START:
	case GW_EV_LINK_UP:
	case GW_EV_LINK_DOWN:
		return TO_MACHINES;
	default:
		return TO_BOARD | TO_SWARM;
	}
}

/* Keeps what a machine tells the others for them. */
static int enqueue(struct gw_node *n, const struct gw_event *ev, unsigned from)
{
	if (n->queue_n == n->queue_cap) {
		size_t cap = n->queue_cap ? n->queue_cap * 2 : 16;
		struct gw_event *q = reallocarray(n->queue, cap, sizeof *q);
		uint8_t *f = realloc(n->queue_from, cap);

		if (q)
			n->queue = q;
		if (f)
			n->queue_from = f;
		if (!q || !f)
			return GW_ENOMEM;
		n->queue_cap = cap;
	}
	n->queue[n->queue_n] = *ev;
	n->queue_from[n->queue_n++] = (uint8_t)from;
	return 0;
}

/* Looks at what a machine has just asked for, from action `first` on: takes out what stays inside. */
static void sift(struct gw_node *n, unsigned machine, size_t first, struct gw_actions *out)
{
	size_t kept = first;
	int err = 0;

	for (size_t i = first; i < out->n && !err; i++) {
		const struct gw_action *a = &out->v[i];
		int leaves = 1;

		if (a->kind == GW_ACT_MEMBER || a->kind == GW_ACT_TELL) {
			leaves = 0;
			err = enqueue(n, &a->event, machine);
		} else if (a->kind == GW_ACT_CONNECT || a->kind == GW_ACT_DISCONNECT) {
			leaves = gw_wish(&n->wishes, a->host, machine, a->kind == GW_ACT_CONNECT, &err);
		}
		if (leaves)
			out->v[kept++] = *a;
	}
	out->n = kept;
	if (err)
		out->err = err;
}

static void feed(struct gw_node *n, const struct gw_event *ev, unsigned to, struct gw_actions *out)
{
	for (unsigned machine = GW_KEY_MESH; machine <= GW_KEY_NODE && !out->err; machine++) {
		size_t first = out->n;
		int err = 0;

		if (!(to >> machine & 1))
			continue;
		if (machine == GW_KEY_MESH)
			err = gw_mesh_step(n->mesh, ev, out);
		else if (machine == GW_KEY_BOARD)
			err = gw_board_step(n->board, ev, out);
		else if (machine == GW_KEY_SWARM)
			err = gw_swarm_step(n->swarm, ev, out);
		else if (machine == GW_KEY_NODE)
			gw_health_step(n, ev, out);
		if (err)
			out->err = err;
		sift(n, machine, first, out);
	}
}

int gw_node_step(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out)
{
	assert(n->magic == MAGIC);
	n->queue_n = 0;
	if (ev->kind == GW_EV_LINK_DOWN)
		gw_wishes_end(&n->wishes, ev->host);
	count(n, ev);
	feed(n, ev, goes_to(ev), out);
	/* The queue grows while it is read: a copy, since the array may move. */
	for (size_t i = 0; i < n->queue_n && !out->err; i++) {
		struct gw_event told = n->queue[i];

		told.now_ns = ev->now_ns;
		told.wall_ns = ev->wall_ns;
		feed(n, &told, goes_to(&told) & ~(1u << n->queue_from[i]), out);
	}
	return out->err;
}
