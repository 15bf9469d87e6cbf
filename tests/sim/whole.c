/* The whole node as the machine under test, and the trainer that publishes. */
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/num.h"

static struct gw_bytes slot(const struct sim_host *h, const char *name)
{
	for (int i = 0; i < SIM_SLOTS; i++)
		if (h->slots[i].name && !strcmp(h->slots[i].name, name))
			return (struct gw_bytes){h->slots[i].p, h->slots[i].n};
	return (struct gw_bytes){NULL, 0};
}

/* Regions lie on a line, the trainer's at its end: what is near in the table is near in the network. */
static void set_costs(struct sim *s, struct gw_region_cost *costs, char (*names)[24], struct gw_swarm_config *c)
{
	for (int a = 0; a < s->config.regions; a++)
		snprintf(names[a], sizeof names[a], "region-%d", a);
	for (int a = 0; a < s->config.regions; a++)
		for (int b = a + 1; b < s->config.regions; b++)
			costs[c->cost_count++] = (struct gw_region_cost){names[a], names[b], (uint32_t)(b - a)};
	c->costs = costs;
}

static int make(struct sim *s, struct sim_host *h, void **out)
{
	struct gw_region_cost costs[SIM_REGIONS_MAX * SIM_REGIONS_MAX / 2];
	char names[SIM_REGIONS_MAX][24];
	struct gw_node_config c = {.seed = gw_rng_u64(&s->rng)};
	struct gw_diag why = {""};
	struct gw_node *node;
	int err;

	c.mesh = (struct gw_mesh_config){
		.self = h->record,
		.bootstrap = h->known,
		.bootstrap_count = h->known_of.in,
		.bootstrap_dead = h->known_of.dead,
		.bootstrap_left = h->known_of.left,
		.stored = slot(h, "mesh"),
	};
	c.board.persisted = slot(h, "board");
	c.swarm.eager_max_bytes = s->config.eager_max_bytes;
	set_costs(s, costs, names, &c.swarm);
	err = gw_node_new(&c, &node, &why);
	SIM_CHECK(s, h, !err, "a node cannot be made: %s", why.text);
	*out = node;
	return 0;
}

static void free_node(void *machine)
{
	gw_node_free(machine);
}

static int step(void *machine, const struct gw_event *ev, struct gw_actions *out)
{
	return gw_node_step(machine, ev, out);
}

static const struct gw_mesh *mesh_of(const void *machine)
{
	return gw_node_mesh(machine);
}

struct gw_node *sim_node(const struct sim_host *h)
{
	return h->machine;
}

static int holds_version(const struct sim *s, const struct sim_host *h, uint64_t version)
{
	for (size_t i = 0; i < s->object_count; i++)
		if (s->objects[i]->manifest.to == version && sim_whole(sim_stored(h, &s->objects[i]->manifest.id)))
			return 1;
	return 0;
}

/* After every step: heads never go back, queues stay within what the manuals promise, and nothing counts as fetched
 * that is not verified in the store. */
static void check(struct sim *s, struct sim_host *h)
{
	const struct gw_board *b = gw_node_board(h->machine);
	struct gw_swarm_totals t;
	struct gw_board_policy p;

	gw_swarm_totals(gw_node_swarm(h->machine), &t);
	SIM_CHECK(s, h, t.queued <= GW_SWARM_QUEUE_MAX, "%llu requests queued", (unsigned long long)t.queued);
	SIM_CHECK(s, h, t.in_flight_bytes <= (64 << 20) + GW_PIECE_MAX, "%llu bytes asked for",
		  (unsigned long long)t.in_flight_bytes);
	SIM_CHECK(s, h, gw_board_policy_count(b) <= 1, "more policies than there are");
	if (!gw_board_policy_count(b))
		return;
	gw_board_policy(b, 0, EPOCH_NS + s->now_ns, &p);
	if (p.fetched != GW_VERSION_NONE && p.fetched != p.served)
		SIM_CHECK(s, h, holds_version(s, h, p.fetched), "counts version %llu as fetched and does not have it",
			  (unsigned long long)p.fetched);
	if (p.head) {
		SIM_CHECK(s, h, p.head->sequence >= h->highest_head, "the head went back from %llu to %llu",
			  (unsigned long long)h->highest_head, (unsigned long long)p.head->sequence);
		h->highest_head = p.head->sequence;
	}
}

const struct sim_ops sim_node_ops = {make, free_node, step, mesh_of, check};

/* --- the trainer --- */

/* Puts signed bytes into the registry. */
static struct gw_event *registered(struct sim *s, enum gw_event_kind kind, struct gw_wr *w)
{
	struct gw_event *ev = calloc(1, sizeof *ev);
	uint8_t *signature = gw_wr_reserve(w, 64), *p;
	size_t n;

	if (!ev || !signature)
		abort();
	memset(signature, 0x5a, 64);
	if (gw_wr_take(w, &p, &n) || gw_map_put(&s->signed_records, p, n, ev, NULL))
		abort();
	ev->kind = kind;
	ev->raw = (struct gw_bytes){p, n};
	return ev;
}

struct sim_object *sim_make_object(struct sim *s, uint16_t kind, uint64_t from, uint64_t to, uint32_t pieces)
{
	struct sim_object *o = calloc(1, sizeof *o), **v = reallocarray(s->objects, s->object_count + 1, sizeof *v);
	struct gw_manifest *m;
	uint8_t *digests;
	struct gw_event *ev;
	struct gw_wr w;

	if (!o || !v)
		abort();
	s->objects = v;
	m = &o->manifest;
	m->kind = kind;
	m->encoding = GW_ENCODING_PLAIN;
	strcpy(m->policy, "policy");
	memset(m->run, 0x77, sizeof m->run);
	m->from = from;
	m->to = to;
	m->created_ns = EPOCH_NS + s->now_ns;
	m->expires_ns = m->created_ns + 30 * 24 * 3600 * SECOND;
	if (s->object_count)
		m->previous = s->objects[s->object_count - 1]->manifest.id;
	m->piece_bytes = GW_PIECE_MIN;
	m->object_bytes = (uint64_t)pieces * GW_PIECE_MIN - 1000;
	m->tensor_table_bytes = 5000;
	m->changed = 1000;
	m->elements = 100000;
	m->object_pieces = pieces;
	m->table_pieces = pieces > GW_INLINE_DIGESTS ? (uint32_t)gw_div_up(pieces * 32, GW_TABLE_LEAF_BYTES) : 0;
	m->digest_count = m->table_pieces ? m->table_pieces : pieces;
	digests = malloc((size_t)m->digest_count * 32);
	if (!digests)
		abort();
	for (uint32_t i = 0; i < m->digest_count * 32; i++)
		digests[i] = (uint8_t)gw_rng_u64(&s->rng);
	m->digests = digests;
	gw_wr_init(&w, GW_MANIFEST_MAX);
	gw_manifest_write(m, &w);
	ev = registered(s, GW_EV_MANIFEST, &w);
	gw_digest_of(ev->raw.p, ev->raw.n, &m->id);
	ev->manifest = m;
	o->raw = malloc(ev->raw.n);
	if (!o->raw)
		abort();
	o->raw_n = ev->raw.n;
	memcpy(o->raw, ev->raw.p, o->raw_n);
	o->digests = digests;
	o->published_ns = s->now_ns;
	s->objects[s->object_count++] = o;
	return o;
}

/* The head that names all there is: the newest version, the last anchor, the skips. */
const struct gw_event *sim_make_head(struct sim *s, uint64_t sequence, uint64_t lives_ns)
{
	struct gw_head *h = calloc(1, sizeof *h);
	struct gw_event *ev;
	struct gw_wr w;

	if (!h)
		abort();
	strcpy(h->policy, "policy");
	memset(h->run, 0x77, sizeof h->run);
	h->root_epoch = 1;
	h->sequence = sequence;
	h->created_ns = EPOCH_NS + s->now_ns;
	h->expires_ns = h->created_ns + lives_ns;
	for (size_t i = 0; i < s->object_count; i++) {
		const struct gw_manifest *m = &s->objects[i]->manifest;
		struct gw_head_entry e = {m->id, m->from, m->to};

		if (m->kind == GW_KIND_ANCHOR) {
			h->anchors[0] = e;
			h->anchor_count = 1;
		} else if (m->to > m->from + 1 && h->skip_count < GW_HEAD_LIST_MAX) {
			h->skips[h->skip_count++] = e;
		}
		if (m->to >= h->newest && (m->kind == GW_KIND_ANCHOR || m->to == m->from + 1)) {
			h->newest = m->to;
			h->manifest = m->id;
		}
	}
	gw_wr_init(&w, GW_HEAD_MAX);
	gw_head_write(h, &w);
	ev = registered(s, GW_EV_HEAD, &w);
	gw_digest_of(ev->raw.p, ev->raw.n, &h->id);
	ev->head = h;
	return ev;
}

static void give_head(struct sim *s, int trainer)
{
	struct gw_event ev = *sim_make_head(s, ++s->head_sequence, 180 * SECOND);

	ev.host = GW_HOST_SELF;
	sim_feed(s, trainer, &ev);
}

static void renew(struct sim *s, void *ctx)
{
	struct sim_host *trainer = ctx;

	if (trainer->running && s->head_version >= 0)
		give_head(s, trainer->index);
	sim_call_at(s, s->now_ns + 20 * SECOND, renew, ctx);
}

void sim_trainer_starts(struct sim *s, int trainer)
{
	sim_call_at(s, s->now_ns + 20 * SECOND, renew, &s->hosts[trainer]);
}

struct sim_object *sim_publish(struct sim *s, int trainer, uint16_t kind, uint64_t from, uint64_t to, uint32_t pieces)
{
	struct sim_object *o = sim_make_object(s, kind, from, to, pieces);
	struct gw_event m = {
		.kind = GW_EV_MANIFEST, .host = GW_HOST_SELF, .manifest = &o->manifest, .raw = {o->raw, o->raw_n}};
	struct gw_event served = {.kind = GW_EV_SERVED, .run = o->manifest.run, .version = to};

	sim_store_whole(&s->hosts[trainer], o);
	sim_feed(s, trainer, &m);
	if ((int64_t)to > s->head_version)
		s->head_version = (int64_t)to;
	give_head(s, trainer);
	/* The trainer computes with what it publishes. */
	s->hosts[trainer].served = (int64_t)to;
	sim_feed(s, trainer, &served);
	return o;
}

int sim_all_serve_head(struct sim *s, void *ctx)
{
	(void)ctx;
	for (int i = 0; i < s->config.hosts; i++)
		if (s->hosts[i].running && !s->hosts[i].left && s->hosts[i].served != s->head_version)
			return 0;
	return 1;
}
