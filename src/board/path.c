/*
 * The cheapest way to the newest version, by bytes still to be fetched (Dijkstra, 1959).
 */
#include "base/log.h"
#include "board/inner.h"

enum { NODES_MAX = GW_BOARD_MANIFESTS_MAX + 2, EDGES_MAX = GW_BOARD_MANIFESTS_MAX, HELD_SHARE = 16, STEP_COST = 4096 };
#define FAR UINT64_MAX
#define NOTHING 0 /* the node of a host that has nothing */

struct graph {
	uint64_t version[NODES_MAX]; /* of node i; node 0 is "nothing" */
	uint64_t dist[NODES_MAX];
	struct entry *via[NODES_MAX]; /* the last step to it */
	uint8_t done[NODES_MAX];
	size_t n;
	struct edge {
		size_t from, to;
		uint64_t cost;
		struct entry *entry;
	} edges[EDGES_MAX];
	size_t edge_count;
};

uint64_t gw_board_served_version(const struct gw_board *b, const uint8_t run[GW_RUN_BYTES])
{
	size_t i;

	for (i = 0; i < b->served_count; i++)
		if (memcmp(b->served[i].run, run, GW_RUN_BYTES) == 0)
			return b->served[i].version;
	return GW_VERSION_NONE;
}

static size_t node_find(const struct graph *g, uint64_t version)
{
	size_t i;

	for (i = 1; i < g->n; i++)
		if (g->version[i] == version)
			return i;
	return g->n;
}

static size_t node_of(struct graph *g, uint64_t version)
{
	size_t i = node_find(g, version);

	if (i == g->n)
		g->version[g->n++] = version;
	return i;
}

/* What is here need not be fetched, but still be staged. */
static uint64_t edge_cost(const struct entry *e)
{
	uint64_t bytes = gw_min_u64(e->m.object_bytes, FAR / (2 * NODES_MAX));

	return (e->whole ? bytes / HELD_SHARE : bytes) + STEP_COST;
}

static void graph_make(const struct gw_board *b, const struct policy *p, struct graph *g)
{
	uint64_t served = gw_board_served_version(b, p->head->run);
	const struct gw_map_entry *me;
	size_t at = 0;

	g->n = 1;
	g->edge_count = 0;
	g->version[NOTHING] = GW_VERSION_NONE;
	if (served != GW_VERSION_NONE)
		node_of(g, served);
	while ((me = gw_map_next(&b->entries, &at)) && g->n + 2 <= NODES_MAX) {
		struct entry *e = me->value;
		struct edge *edge = &g->edges[g->edge_count];

		if (!e->reachable || e->failed_until_ns > b->now || !gw_manifest_applies(&e->m) ||
		    e->m.kind == GW_KIND_ADAPTER || memcmp(e->m.run, p->head->run, GW_RUN_BYTES) != 0)
			continue;
		edge->from = e->m.kind == GW_KIND_ANCHOR ? NOTHING : node_of(g, e->m.from);
		edge->to = node_of(g, e->m.to);
		edge->cost = edge_cost(e);
		edge->entry = e;
		g->edge_count++;
	}
}

/* From the served version and from nothing at once. held: only over what is whole. */
static void shortest(const struct gw_board *b, const struct policy *p, struct graph *g, int held)
{
	uint64_t served = gw_board_served_version(b, p->head->run);
	size_t i, k;

	for (i = 0; i < g->n; i++) {
		g->dist[i] = i == NOTHING || (served != GW_VERSION_NONE && g->version[i] == served) ? 0 : FAR;
		g->via[i] = NULL;
		g->done[i] = 0;
	}
	for (;;) {
		size_t best = g->n;

		for (i = 0; i < g->n; i++)
			if (!g->done[i] && g->dist[i] != FAR && (best == g->n || g->dist[i] < g->dist[best]))
				best = i;
		if (best == g->n)
			return;
		g->done[best] = 1;
		for (k = 0; k < g->edge_count; k++) {
			const struct edge *e = &g->edges[k];

			if (e->from != best || (held && !e->entry->whole) || g->dist[best] + e->cost >= g->dist[e->to])
				continue;
			g->dist[e->to] = g->dist[best] + e->cost;
			g->via[e->to] = e->entry;
		}
	}
}

static void fetched_version(const struct gw_board *b, struct policy *p, struct graph *g)
{
	size_t i;

	shortest(b, p, g, 1);
	p->fetched = GW_VERSION_NONE;
	for (i = 1; i < g->n; i++)
		if (g->dist[i] != FAR && (p->fetched == GW_VERSION_NONE || g->version[i] > p->fetched))
			p->fetched = g->version[i];
}

/* The newest version beyond the served one to which there is a way; 0 for none. */
static size_t farthest(const struct gw_board *b, const struct policy *p, const struct graph *g)
{
	uint64_t served = gw_board_served_version(b, p->head->run);
	size_t i, best = 0;

	for (i = 1; i < g->n; i++)
		if (g->dist[i] != FAR && (served == GW_VERSION_NONE || g->version[i] > served) &&
		    (!best || g->version[i] > g->version[best]))
			best = i;
	return best;
}

/* --- telling --- */

static void want(struct gw_board *b, struct entry *e, uint64_t key)
{
	struct gw_action *a;

	if (e->told && e->key == key)
		return;
	a = gw_actions_add(b->out, GW_ACT_TELL);
	/* Its way has become another: what is half here stays, and is served. */
	a->event.kind = e->told && !key ? GW_EV_UNWANT : GW_EV_WANT;
	a->event.now_ns = b->now;
	a->event.wall_ns = b->wall;
	a->event.object = e->m.id;
	a->event.manifest = &e->m;
	a->event.raw = (struct gw_bytes){e->raw, e->n};
	a->event.key = key;
	e->told = 1;
	e->key = key;
}

static void path_action(struct gw_board *b, struct policy *p, const struct entry *first)
{
	struct gw_action *a;

	if (!first || !first->whole || gw_digest_equal(&p->path_told, &first->m.id))
		return;
	p->path_told = first->m.id;
	a = gw_actions_add(b->out, GW_ACT_PATH);
	a->object = first->m.id;
	a->version = first->m.to;
}

/* Walks the way back from the newest; the swarm gets it newest first. on_path marks what some way needs. */
static void path_one(struct gw_board *b, struct policy *p, struct graph *g, struct gw_map *on_path)
{
	struct entry *first = NULL, *e;
	size_t at, left = NODES_MAX;

	p->steps = 0;
	p->path_bytes = 0;
	p->no_path = 0;
	if (!p->head)
		return;
	graph_make(b, p, g);
	fetched_version(b, p, g);
	shortest(b, p, g, 0);
	at = node_find(g, p->head->newest);
	if (at == g->n || g->dist[at] == FAR) {
		p->no_path = 1; /* as far as one gets: a head is faster than its manifest */
		at = farthest(b, p, g);
		if (!at)
			return;
	}
	while (left-- && (e = g->via[at])) {
		if (gw_map_put(on_path, &e->m.id, sizeof e->m.id, e, NULL) != 0)
			b->err = GW_ENOMEM;
		p->steps++;
		p->path_bytes += e->whole ? 0 : e->m.object_bytes;
		first = e;
		if (e->m.kind == GW_KIND_ANCHOR)
			break;
		at = node_find(g, e->m.from);
	}
	path_action(b, p, first);
}

static void retry_timer(struct gw_board *b)
{
	const struct gw_map_entry *me;
	uint64_t next = FAR;
	size_t at = 0;

	while ((me = gw_map_next(&b->entries, &at))) {
		const struct entry *e = me->value;

		if (e->failed_until_ns > b->now)
			next = gw_min_u64(next, e->failed_until_ns);
	}
	if (next != FAR && (!b->ask_at || b->ask_at > next))
		gw_board_timer(b, TIMER_ASK, &b->ask_at, next);
}

void gw_board_paths(struct gw_board *b)
{
	struct graph *g = malloc(sizeof *g);
	const struct gw_map_entry *me;
	struct gw_map on_path;
	size_t i, at = 0;

	if (!g) {
		b->err = GW_ENOMEM;
		return;
	}
	gw_map_init(&on_path, 0);
	for (i = 0; i < b->policy_count; i++)
		path_one(b, b->policies[i], g, &on_path);
	for (at = 0; (me = gw_map_next(&on_path, &at));) {
		struct entry *e = me->value;

		want(b, e, gw_max_u64(e->m.created_ns, 1));
	}
	for (at = 0; (me = gw_map_next(&b->entries, &at));) {
		struct entry *e = me->value;

		if (!gw_map_get(&on_path, &e->m.id, sizeof e->m.id) && (e->mine || e->told))
			want(b, e, 0);
	}
	gw_map_free(&on_path, NULL);
	free(g);
	retry_timer(b);
}
