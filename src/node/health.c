/*
 * The health query: an echo wave (Chang, "Echo algorithms", 1982) over the standing links. Each host passes the
 * question on once, answers to where it came from, and hands on what comes back, gathered for a moment. Nobody waits
 * for the branches below: the asker counts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "node/inner.h"

#define GATHER (GW_MESH_SECOND / 20)
#define RELAY_FOR (2 * GW_NODE_HEALTH_WAIT)

static void clear(struct gw_query *q)
{
	for (size_t i = 0; i < q->n; i++)
		free(q->v[i]);
	free(q->v);
	memset(q, 0, sizeof *q);
}

void gw_health_free(struct gw_node *n)
{
	for (size_t i = 0; i < GW_NODE_QUERIES_MAX; i++)
		clear(&n->queries[i]);
}

static struct gw_query *find(struct gw_node *n, const uint8_t origin[GW_IDENTITY_BYTES], uint64_t number)
{
	for (size_t i = 0; i < GW_NODE_QUERIES_MAX; i++) {
		struct gw_query *q = &n->queries[i];

		if (q->used && (q->number == number || (q->second && q->second == number)) &&
		    !memcmp(q->origin, origin, GW_IDENTITY_BYTES))
			return q;
	}
	return NULL;
}

static struct gw_query *fresh(struct gw_node *n)
{
	for (size_t i = 0; i < GW_NODE_QUERIES_MAX; i++)
		if (!n->queries[i].used)
			return &n->queries[i];
	return NULL;
}

static void set_timer(struct gw_node *n, uint64_t now, struct gw_actions *out)
{
	struct gw_action *a;

	if (n->health_timer)
		return;
	n->health_timer = 1;
	a = gw_actions_add(out, GW_ACT_TIMER);
	a->at_ns = now + GATHER;
	a->key = GW_KEY(GW_KEY_NODE, HEALTH_KEY);
}

static int keep(struct gw_query *q, const struct gw_r_host_status *r)
{
	struct gw_kept_status *k;

	if (q->n == q->cap) {
		size_t cap = q->cap ? q->cap * 2 : 16;
		struct gw_kept_status **v = reallocarray(q->v, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		q->v = v;
		q->cap = cap;
	}
	k = gw_status_keep(r);
	if (!k)
		return GW_ENOMEM;
	q->v[q->n++] = k;
	return 0;
}

/* Hands the batch on to where the wave came from. */
static void pass_on(struct gw_query *q, struct gw_actions *out)
{
	struct gw_m_status_reply *r;

	if (!q->n)
		return;
	r = &gw_actions_send(out, q->parent, GW_MSG_status_reply)->u.status_reply;
	memcpy(r->origin, q->origin, sizeof r->origin);
	r->query = q->number;
	r->hosts.v = gw_arena_array(&out->arena, q->n, sizeof *r->hosts.v);
	if (!r->hosts.v) {
		out->err = GW_ENOMEM;
		return;
	}
	for (size_t i = 0; i < q->n; i++) {
		struct gw_r_host_status *to = &r->hosts.v[r->hosts.n++];

		*to = q->v[i]->r;
		if (gw_status_texts(to, &out->arena))
			out->err = GW_ENOMEM;
		free(q->v[i]);
	}
	q->relayed += q->n;
	q->n = 0;
}

static void keep_own(struct gw_node *n, struct gw_query *q, uint64_t wall_ns, struct gw_actions *out)
{
	struct gw_r_host_status own[GW_NODE_POLICIES_MAX];
	size_t k = gw_node_status(n, wall_ns, &out->arena, own);

	for (size_t i = 0; i < k; i++)
		if (keep(q, &own[i]))
			out->err = GW_ENOMEM;
}

static void wave(struct gw_node *n, const uint8_t origin[GW_IDENTITY_BYTES], uint64_t number, uint8_t hops,
		 gw_host except, struct gw_actions *out)
{
	gw_host v[GW_MESH_LINKS_MAX];
	size_t k = gw_mesh_neighbours(n->mesh, v, GW_MESH_LINKS_MAX);

	for (size_t i = 0; i < k; i++) {
		struct gw_m_status_request *r;

		if (v[i] == except)
			continue;
		r = &gw_actions_send(out, v[i], GW_MSG_status_request)->u.status_request;
		memcpy(r->origin, origin, sizeof r->origin);
		r->query = number;
		r->hops = hops;
	}
}

static void asked(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out)
{
	const struct gw_m_status_request *r = &ev->msg->u.status_request;
	struct gw_query *q = find(n, r->origin, r->query);

	if (q || r->hops >= HOPS_MAX || !gw_roster_at(gw_mesh_roster(n->mesh), ev->host))
		return;
	q = fresh(n);
	if (!q) /* too many at once: the asker will see us as unreachable, or ask again */
		return;
	q->used = 1;
	memcpy(q->origin, r->origin, sizeof q->origin);
	q->number = r->query;
	q->parent = ev->host;
	q->end_ns = ev->now_ns + RELAY_FOR;
	wave(n, r->origin, r->query, (uint8_t)(r->hops + 1), ev->host, out);
	keep_own(n, q, ev->wall_ns, out);
	set_timer(n, ev->now_ns, out);
}

/* --- ours --- */

static void begin(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out)
{
	const uint8_t *self = gw_roster_at(gw_mesh_roster(n->mesh), GW_HOST_SELF)->record->identity;
	struct gw_query *q = fresh(n);
	struct gw_action *a;

	if (!q) {
		a = gw_actions_add(out, GW_ACT_HEALTH);
		a->key = ev->key;
		a->msg = gw_arena_alloc(&out->arena, sizeof *a->msg);
		if (a->msg)
			a->msg->type = GW_MSG_status_reply;
		else
			out->err = GW_ENOMEM;
		return;
	}
	q->used = q->ours = 1;
	q->key = ev->key;
	memcpy(q->origin, self, sizeof q->origin);
	q->number = gw_rng_u64(&n->rng) | 1;
	q->ask_ns = ev->now_ns + GW_NODE_HEALTH_WAIT / 2;
	q->end_ns = ev->now_ns + GW_NODE_HEALTH_WAIT;
	keep_own(n, q, ev->wall_ns, out);
	wave(n, q->origin, q->number, 0, GW_HOST_NONE, out);
	set_timer(n, ev->now_ns, out);
}

static int same_record(const struct gw_r_host_status *a, const struct gw_r_host_status *b)
{
	return !memcmp(a->identity, b->identity, sizeof a->identity) && a->policy.n == b->policy.n &&
	       (!a->policy.n || !memcmp(a->policy.p, b->policy.p, a->policy.n));
}

/* A record that came for our own query: of a member, once per policy. */
static void collect(struct gw_node *n, struct gw_query *q, const struct gw_r_host_status *r, struct gw_actions *out)
{
	size_t of_host = 0;

	if (!gw_roster_find(gw_mesh_roster(n->mesh), r->identity) || r->state >= GW_HOST_STATES_COUNT)
		return;
	for (size_t i = 0; i < q->n; i++) {
		if (memcmp(q->v[i]->r.identity, r->identity, sizeof r->identity) != 0)
			continue;
		if (++of_host == GW_NODE_POLICIES_MAX || same_record(&q->v[i]->r, r))
			return;
	}
	if (keep(q, r))
		out->err = GW_ENOMEM;
}

static void answered(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out)
{
	const struct gw_m_status_reply *r = &ev->msg->u.status_reply;
	struct gw_query *q = find(n, r->origin, r->query);

	for (size_t i = 0; q && i < r->hosts.n; i++) {
		if (q->ours) {
			collect(n, q, &r->hosts.v[i], out);
			continue;
		}
		if (q->relayed + q->n >= RELAYED_MAX)
			return;
		if (keep(q, &r->hosts.v[i]))
			out->err = GW_ENOMEM;
		if (q->n == STATUS_BATCH)
			pass_on(q, out);
	}
	if (q)
		set_timer(n, ev->now_ns, out);
}

/* Marks who has answered; returns how many members have not. `there` is by handle. */
static size_t missing(const struct gw_node *n, const struct gw_query *q, uint8_t *there)
{
	const struct gw_roster *r = gw_mesh_roster(n->mesh);
	size_t count = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct gw_roster_entry *e = gw_roster_find(r, q->v[i]->r.identity);

		if (e)
			there[e->host] = 1;
	}
	for (gw_host h = 0; h < r->n; h++)
		count += r->at[h] && !there[h] && gw_roster_is_in(r->at[h]);
	return count;
}

static void put_absent(const struct gw_roster_entry *e, struct gw_r_host_status *to)
{
	memset(to, 0, sizeof *to);
	memcpy(to->identity, e->record->identity, sizeof to->identity);
	to->name = (struct gw_text){e->record->name, strlen(e->record->name)};
	to->region = (struct gw_text){e->record->region, strlen(e->record->region)};
	to->island = (struct gw_text){e->record->island, strlen(e->record->island)};
	to->state = e->state == GW_MEMBER_SUSPECT ? GW_HOST_SUSPECT : GW_HOST_UNREACHABLE;
	to->head = to->served = to->staged = to->fetched = -1;
}

/* Hands the records over, with the absent, the dead among them, added. What they point to lives until the query is
 * cleared: texts are copied. */
static void deliver(const struct gw_node *n, struct gw_query *q, const uint8_t *there, struct gw_actions *out)
{
	const struct gw_roster *r = gw_mesh_roster(n->mesh);
	struct gw_action *a = gw_actions_add(out, GW_ACT_HEALTH);
	struct gw_m_status_reply *reply;

	a->key = q->key;
	a->msg = gw_arena_alloc(&out->arena, sizeof *a->msg);
	if (!a->msg) {
		out->err = GW_ENOMEM;
		return;
	}
	a->msg->type = GW_MSG_status_reply;
	reply = &a->msg->u.status_reply;
	memcpy(reply->origin, q->origin, sizeof reply->origin);
	reply->query = q->number;
	reply->hosts.v = gw_arena_array(&out->arena, q->n + r->n, sizeof *reply->hosts.v);
	if (!reply->hosts.v) {
		out->err = GW_ENOMEM;
		return;
	}
	for (size_t i = 0; i < q->n; i++)
		reply->hosts.v[reply->hosts.n++] = q->v[i]->r;
	for (gw_host h = 0; h < r->n; h++)
		if (r->at[h] && !there[h] && r->at[h]->state != GW_MEMBER_LEFT)
			put_absent(r->at[h], &reply->hosts.v[reply->hosts.n++]);
	for (size_t i = 0; i < reply->hosts.n; i++)
		if (gw_status_texts(&reply->hosts.v[i], &out->arena))
			out->err = GW_ENOMEM;
}

static void tick_ours(struct gw_node *n, struct gw_query *q, uint64_t now, struct gw_actions *out)
{
	uint8_t *there = gw_arena_alloc(&out->arena, gw_mesh_roster(n->mesh)->n);
	size_t absent;

	if (!there) {
		out->err = GW_ENOMEM;
		return;
	}
	absent = missing(n, q, there);
	if (!absent || now >= q->end_ns) {
		deliver(n, q, there, out);
		clear(q);
	} else if (now >= q->ask_ns && !q->second) {
		q->second = gw_rng_u64(&n->rng) | 1;
		wave(n, q->origin, q->second, 0, GW_HOST_NONE, out);
	}
}

static void tick(struct gw_node *n, uint64_t now, struct gw_actions *out)
{
	int busy = 0;

	n->health_timer = 0;
	for (size_t i = 0; i < GW_NODE_QUERIES_MAX; i++) {
		struct gw_query *q = &n->queries[i];

		if (!q->used)
			continue;
		if (q->ours) {
			tick_ours(n, q, now, out);
		} else {
			pass_on(q, out);
			if (now >= q->end_ns)
				clear(q);
		}
		busy |= q->used;
	}
	if (busy)
		set_timer(n, now, out);
}

void gw_health_step(struct gw_node *n, const struct gw_event *ev, struct gw_actions *out)
{
	if (ev->kind == GW_EV_HEALTH)
		begin(n, ev, out);
	else if (ev->kind == GW_EV_MSG && ev->msg->type == GW_MSG_status_request)
		asked(n, ev, out);
	else if (ev->kind == GW_EV_MSG && ev->msg->type == GW_MSG_status_reply)
		answered(n, ev, out);
	else if (ev->kind == GW_EV_TIMER && ev->key == GW_KEY(GW_KEY_NODE, HEALTH_KEY))
		tick(n, ev->now_ns, out);
}
