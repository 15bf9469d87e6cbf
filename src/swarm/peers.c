#include "base/log.h"
#include "swarm/inner.h"

enum { LINK_RETRY_NS = 1000000000, LINK_RETRY_DOUBLINGS = 5, RTT_GUESS_NEAR = 1000000, RTT_GUESS_FAR = 100000000 };

struct peer *gw_swarm_peer_get(const struct gw_swarm *s, gw_host host)
{
	return gw_map_get(&s->peers, &host, sizeof host);
}

struct peer *gw_swarm_peer_make(struct gw_swarm *s, gw_host host)
{
	struct peer *p = gw_swarm_peer_get(s, host);

	if (p || host == GW_HOST_SELF || host == GW_HOST_NONE || gw_map_count(&s->peers) >= PEERS_MAX)
		return p;
	p = calloc(1, sizeof *p);
	if (!p || gw_map_put(&s->peers, &host, sizeof host, p, NULL) != 0) {
		free(p);
		s->err = GW_ENOMEM;
		return NULL;
	}
	p->host = host;
	p->region = UINT32_MAX;
	return p;
}

void gw_swarm_peer_free(void *v)
{
	struct peer *p = v;

	free(p->queue);
	free(p);
}

int gw_swarm_peer_usable(const struct gw_swarm *s, const struct peer *p)
{
	return p->linked && !p->banned && p->stalled_until_ns <= s->now;
}

uint64_t gw_swarm_peer_rate(const struct peer *p)
{
	return p->rate ? p->rate : RATE_GUESS;
}

uint64_t gw_swarm_peer_window(const struct gw_swarm *s, const struct peer *p)
{
	uint64_t w = WINDOW_START;

	if (p->rate)
		w = (uint64_t)(2.0 * (double)p->rate * (double)p->rtt_ns / 1e9);
	return gw_min_u64(gw_max_u64(w, WINDOW_MIN), s->cfg.window_max_bytes);
}

/* Its part in every object is over. */
static void forget_holdings(struct gw_swarm *s, const struct peer *p)
{
	size_t i;

	for (i = 0; i < s->object_count; i++) {
		struct holder *h = gw_swarm_holder_get(s->order[i], p);

		if (!h)
			continue;
		gw_swarm_holder_clear(s->order[i], h);
		h->claims = 0;
		h->tells = 0;
	}
}

void gw_swarm_peer_ban(struct gw_swarm *s, struct peer *p, const char *why)
{
	if (p->banned)
		return;
	p->banned = 1;
	s->total.banned++;
	gw_swarm_log_host(s, GW_LOG_ERR, p->host, why);
	gw_swarm_flights_drop_peer(s, p, 1);
	forget_holdings(s, p);
}

/* --- regions --- */

static int name_is(const char *a, const struct gw_text *b)
{
	return a && strlen(a) == b->n && (b->n == 0 || memcmp(a, b->p, b->n) == 0);
}

static uint32_t cost_by_name(const struct gw_swarm *s, const char *a, const char *b)
{
	size_t i;

	for (i = 0; i < s->cfg.cost_count; i++) {
		const struct cost *c = &s->costs[i];

		if ((!strcmp(c->a, a) && !strcmp(c->b, b)) || (!strcmp(c->a, b) && !strcmp(c->b, a)))
			return c->cost;
	}
	return 100;
}

uint32_t gw_swarm_region_cost(const struct gw_swarm *s, uint32_t a, uint32_t b)
{
	if (a == b)
		return 0;
	if (a >= s->region_count || b >= s->region_count || !s->regions[a].name || !s->regions[b].name)
		return 100;
	if (a == 0)
		return s->regions[b].cost;
	if (b == 0)
		return s->regions[a].cost;
	return cost_by_name(s, s->regions[a].name, s->regions[b].name);
}

/* 0 where the region cannot be known: too many of them. */
static int region_learn(struct gw_swarm *s, uint32_t handle, const struct gw_text *name)
{
	struct region *r;

	if (handle >= GW_SWARM_REGIONS_MAX)
		return 0;
	r = &s->regions[handle];
	if (handle >= s->region_count)
		s->region_count = handle + 1;
	if (!r->name || (handle != 0 && !name_is(r->name, name))) {
		free(r->name);
		r->name = strndup(name->n ? name->p : "", name->n);
		if (!r->name) {
			s->err = GW_ENOMEM;
			return 0;
		}
		r->cost = handle == 0 ? 0 : cost_by_name(s, s->regions[0].name, r->name);
	}
	return 1;
}

static void view_changed(struct gw_swarm *s, uint32_t region)
{
	size_t i;

	if (region != 0)
		return;
	s->view++;
	s->view_ns = s->now;
	for (i = 0; i < s->object_count; i++) {
		s->order[i]->change++;
		s->order[i]->reconsider = 1;
	}
}

static void region_leave(struct gw_swarm *s, struct peer *p)
{
	struct region *r;
	size_t i;

	if (!p->up)
		return;
	r = &s->regions[p->region];
	for (i = 0; i < r->n && r->members[i] != p; i++)
		;
	if (i < r->n) {
		memmove(&r->members[i], &r->members[i + 1], (r->n - i - 1) * sizeof *r->members);
		r->n--;
	}
	p->up = 0;
	view_changed(s, p->region);
}

static void region_enter(struct gw_swarm *s, struct peer *p, uint32_t handle)
{
	struct region *r = &s->regions[handle];

	if (r->n == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 8;
		struct peer **v = reallocarray(r->members, cap, sizeof *v);

		if (!v) {
			s->err = GW_ENOMEM;
			return;
		}
		r->members = v;
		r->cap = cap;
	}
	r->members[r->n++] = p;
	p->region = handle;
	p->up = 1;
	if (!p->rtt_ns)
		p->rtt_ns = handle == 0 ? RTT_GUESS_NEAR : RTT_GUESS_FAR;
	view_changed(s, handle);
}

void gw_swarm_member_up(struct gw_swarm *s, const struct gw_event *ev)
{
	struct peer *p = gw_swarm_peer_make(s, ev->host);

	if (!p || !ev->identity || !region_learn(s, ev->region, &ev->region_name))
		return;
	if (p->suspect) {
		p->suspect = 0;
		view_changed(s, p->region);
	}
	if (p->up && p->region == ev->region)
		return;
	region_leave(s, p);
	if (p->region != UINT32_MAX)
		forget_holdings(s, p); /* what it has counts for another region now */
	memcpy(p->identity, ev->identity, sizeof p->identity);
	region_enter(s, p, ev->region);
}

void gw_swarm_member_down(struct gw_swarm *s, const struct gw_event *ev)
{
	struct peer *p = gw_swarm_peer_get(s, ev->host);

	if (!p)
		return;
	gw_swarm_flights_drop_peer(s, p, 0);
	gw_swarm_serve_drop_peer(s, p);
	forget_holdings(s, p);
	region_leave(s, p);
	p->suspect = 0;
}

void gw_swarm_member_suspect(struct gw_swarm *s, const struct gw_event *ev)
{
	struct peer *p = gw_swarm_peer_get(s, ev->host);

	if (!p || p->suspect || !p->up)
		return;
	p->suspect = 1;
	view_changed(s, p->region);
}

/* --- links --- */

void gw_swarm_link_up(struct gw_swarm *s, const struct gw_event *ev)
{
	struct peer *p = gw_swarm_peer_make(s, ev->host);
	size_t i;

	if (!p)
		return;
	p->linked = 1;
	p->connecting = 0;
	p->connect_failures = 0;
	p->used_ns = s->now;
	for (i = 0; i < s->object_count; i++) {
		struct object *o = s->order[i];
		struct holder *h = gw_swarm_holder_get(o, p);

		o->reconsider = 1; /* it may have to be asked who is fetching */
		if (gw_swarm_object_fetching(o) && (h || (p->up && p->region == 0)))
			gw_swarm_have_ask(s, o, h ? h : gw_swarm_holder_make(s, o, p));
	}
}

void gw_swarm_link_down(struct gw_swarm *s, const struct gw_event *ev)
{
	struct peer *p = gw_swarm_peer_get(s, ev->host);
	unsigned doublings;

	if (!p)
		return;
	gw_swarm_flights_drop_peer(s, p, 0);
	gw_swarm_serve_drop_peer(s, p);
	forget_holdings(s, p);
	doublings = p->connect_failures < LINK_RETRY_DOUBLINGS ? p->connect_failures : LINK_RETRY_DOUBLINGS;
	p->connect_after_ns =
		s->now + ((uint64_t)LINK_RETRY_NS << doublings) / 2 + gw_rng_below(&s->rng, LINK_RETRY_NS);
	p->connect_failures++;
	p->linked = 0;
	p->connecting = 0;
	s->kept_links -= p->kept;
	p->kept = 0;
}

int gw_swarm_link_need(struct gw_swarm *s, struct peer *p)
{
	p->used_ns = s->now;
	if (p->linked || p->connecting || p->connect_after_ns > s->now)
		return p->linked;
	gw_actions_add(s->out, GW_ACT_CONNECT)->host = p->host;
	p->connecting = 1;
	p->connect_began_ns = s->now;
	p->kept = 1;
	s->kept_links++;
	return 0;
}

/* Gives up the links that it asked for and did not use for a while. */
void gw_swarm_links_idle(struct gw_swarm *s)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	while (s->kept_links && (e = gw_map_next(&s->peers, &at))) {
		struct peer *p = e->value;

		if (!p->kept || !p->linked || p->outstanding || p->q_n || p->used_ns + LINK_IDLE_NS > s->now)
			continue;
		gw_actions_add(s->out, GW_ACT_DISCONNECT)->host = p->host;
		p->kept = 0;
		s->kept_links--;
	}
}

/* --- rank --- */

uint64_t gw_swarm_rendezvous(const struct gw_digest *object, uint32_t stripe, const uint8_t identity[32])
{
	uint8_t text[36];

	gw_put_le32(text, stripe);
	memcpy(text + 4, identity, 32);
	return gw_siphash13(gw_le64(object->b), gw_le64(object->b + 8), text, sizeof text);
}
