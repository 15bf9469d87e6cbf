#include "swarm/swarm.h"

#include "swarm/inner.h"

enum { MAGIC = 0x73776172 };
#define IDLE_TICK_NS (10 * SECOND)
#define RATE_NS SECOND

static void defaults(struct gw_swarm_config *c)
{
#define DEFAULT(field, value)                                                                                          \
	if (!c->field)                                                                                                 \
	c->field = (value)
	DEFAULT(budget_bytes, 64 << 20);
	DEFAULT(window_max_bytes, 16 << 20);
	DEFAULT(claim_timeout_ns, 3 * SECOND);
	DEFAULT(ask_timeout_ns, 500 * MS);
	DEFAULT(settle_ns, 2 * SECOND);
	DEFAULT(stall_min_ns, 2 * SECOND);
	DEFAULT(have_delay_ns, 10 * MS);
	DEFAULT(region_links, 8);
#undef DEFAULT
	c->window_max_bytes = gw_max_u64(c->window_max_bytes, WINDOW_MIN);
	c->budget_bytes = gw_max_u64(c->budget_bytes, WINDOW_MIN);
}

static int costs_copy(struct gw_swarm *s, const struct gw_swarm_config *cfg)
{
	size_t i;

	s->costs = calloc(cfg->cost_count ? cfg->cost_count : 1, sizeof *s->costs);
	if (!s->costs)
		return GW_ENOMEM;
	for (i = 0; i < cfg->cost_count; i++) {
		s->costs[i].a = strdup(cfg->costs[i].a);
		s->costs[i].b = strdup(cfg->costs[i].b);
		s->costs[i].cost = cfg->costs[i].cost;
		if (!s->costs[i].a || !s->costs[i].b)
			return GW_ENOMEM;
	}
	return 0;
}

int gw_swarm_new(struct gw_swarm **out, const struct gw_swarm_config *cfg, struct gw_diag *why)
{
	struct gw_swarm *s;

	if (!cfg->region)
		return gw_diag_set(why, GW_EINVAL, "swarm: this host's region is not named");
	s = calloc(1, sizeof *s);
	if (!s)
		return GW_ENOMEM;
	s->magic = MAGIC;
	s->cfg = *cfg;
	s->cfg.costs = NULL;
	s->cfg.region = NULL;
	defaults(&s->cfg);
	gw_rng_init(&s->rng, cfg->seed);
	gw_map_init(&s->peers, gw_rng_u64(&s->rng));
	gw_map_init(&s->objects, gw_rng_u64(&s->rng));
	s->region_count = 1;
	s->regions[0].name = strdup(cfg->region);
	if (!s->regions[0].name || costs_copy(s, cfg) != 0) {
		gw_swarm_free(s);
		return GW_ENOMEM;
	}
	*out = s;
	return 0;
}

void gw_swarm_free(struct gw_swarm *s)
{
	size_t i;

	if (!s)
		return;
	assert(s->magic == MAGIC);
	gw_map_free(&s->objects, gw_swarm_object_free);
	gw_map_free(&s->peers, gw_swarm_peer_free);
	for (i = 0; i < GW_SWARM_REGIONS_MAX; i++) {
		free(s->regions[i].name);
		free(s->regions[i].members);
	}
	for (i = 0; s->costs && i < s->cfg.cost_count; i++) {
		free(s->costs[i].a);
		free(s->costs[i].b);
	}
	free(s->costs);
	free(s);
}

/* --- what the other files use --- */

void gw_swarm_timer_set(struct gw_swarm *s, enum timer which, uint64_t *slot, uint64_t at_ns)
{
	struct gw_action *a = gw_actions_add(s->out, GW_ACT_TIMER);

	a->at_ns = *slot = at_ns;
	a->key = GW_KEY(GW_KEY_SWARM, (uint64_t)which);
}

void gw_swarm_log_host(struct gw_swarm *s, int level, gw_host host, const char *text)
{
	struct gw_action *a = gw_actions_add(s->out, GW_ACT_LOG);

	a->level = level;
	a->host = host;
	a->text = text;
}

struct gw_msg *gw_swarm_send_about(struct gw_swarm *s, struct peer *p, enum gw_msg_type type)
{
	return gw_actions_send(s->out, p->host, type);
}

/* --- the step --- */

static void on_msg(struct gw_swarm *s, const struct gw_event *ev)
{
	const struct gw_msg *m = ev->msg;
	struct peer *p;

	if (m->type < GW_MSG_have_ask || m->type > GW_MSG_block)
		return;
	p = gw_swarm_peer_make(s, ev->host);
	if (!p)
		return;
	switch (m->type) {
	case GW_MSG_have_ask:
		gw_swarm_on_have_ask(s, p, &m->u.have_ask);
		break;
	case GW_MSG_have:
		gw_swarm_on_have(s, p, &m->u.have);
		break;
	case GW_MSG_claim:
		gw_swarm_on_claim(s, p, &m->u.claim);
		break;
	case GW_MSG_claim_ask:
		gw_swarm_on_claim_ask(s, p, &m->u.claim_ask);
		break;
	case GW_MSG_piece_get:
		gw_swarm_on_get(s, p, &m->u.piece_get);
		break;
	case GW_MSG_piece_cancel:
		gw_swarm_on_cancel(s, p, &m->u.piece_cancel);
		break;
	case GW_MSG_piece_refuse:
		gw_swarm_on_refuse(s, p, &m->u.piece_refuse);
		break;
	case GW_MSG_block:
		gw_swarm_on_block(s, p, &m->u.block);
		break;
	default:
		break;
	}
}

static void tick(struct gw_swarm *s)
{
	size_t i;

	for (i = 0; i < s->object_count; i++) {
		struct object *o = s->order[i];

		gw_swarm_object_retry(s, o);
		if (!gw_swarm_object_fetching(o))
			continue;
		o->change++;
		o->reconsider = 1;
		gw_swarm_look_around(s, o);
		gw_swarm_sources_find(s, o);
	}
	gw_swarm_flights_tick(s);
	gw_swarm_links_idle(s);
	if (s->now >= s->rate_from_ns + RATE_NS) {
		uint64_t now = (uint64_t)((double)s->rate_bytes * 1e9 / (double)(s->now - s->rate_from_ns));

		s->rate = (s->rate + now) / 2;
		s->rate_bytes = 0;
		s->rate_from_ns = s->now;
	}
}

static void on_timer(struct gw_swarm *s, const struct gw_event *ev)
{
	uint64_t which = ev->key & 0xff;

	if (GW_KEY_MACHINE(ev->key) != GW_KEY_SWARM)
		return;
	if (which == TIMER_TICK && s->tick_at && s->now >= s->tick_at) {
		s->tick_at = 0;
		tick(s);
	} else if (which == TIMER_NEWS && s->news_at && s->now >= s->news_at) {
		s->news_at = 0;
		gw_swarm_news_flush(s);
	} else if (which == TIMER_TOKENS && s->tokens_at && s->now >= s->tokens_at) {
		s->tokens_at = 0;
	}
}

/* Ticks come fast while something is under way, seldom while only links are to be given up, else not at all. */
static void tick_plan(struct gw_swarm *s)
{
	uint64_t at = 0;
	size_t i;

	for (i = 0; i < s->object_count && !at; i++)
		if ((s->order[i]->key && !s->order[i]->whole) || s->order[i]->retry_ns || s->order[i]->flights)
			at = s->now + TICK_NS;
	if (!at && (s->kept_links || s->rate))
		at = s->now + IDLE_TICK_NS;
	if (at && (!s->tick_at || s->tick_at > at))
		gw_swarm_timer_set(s, TIMER_TICK, &s->tick_at, at);
}

static void dispatch(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o;

	switch (ev->kind) {
	case GW_EV_START:
		s->view_ns = s->now; /* the members are only getting known */
		break;
	case GW_EV_TIMER:
		on_timer(s, ev);
		break;
	case GW_EV_MSG:
		on_msg(s, ev);
		break;
	case GW_EV_LINK_UP:
		gw_swarm_link_up(s, ev);
		break;
	case GW_EV_LINK_DOWN:
		gw_swarm_link_down(s, ev);
		break;
	case GW_EV_MEMBER_UP:
		gw_swarm_member_up(s, ev);
		break;
	case GW_EV_MEMBER_DOWN:
		gw_swarm_member_down(s, ev);
		break;
	case GW_EV_MEMBER_SUSPECT:
		gw_swarm_member_suspect(s, ev);
		break;
	case GW_EV_WANT:
		gw_swarm_object_want(s, ev);
		break;
	case GW_EV_UNWANT:
	case GW_EV_FORGET:
		o = gw_swarm_object_get(s, ev->object.b);
		if (o && ev->kind == GW_EV_UNWANT)
			gw_swarm_object_unwant(s, o);
		else if (o)
			gw_swarm_object_forget(s, o);
		break;
	case GW_EV_OBJECT_OPEN:
		gw_swarm_object_open(s, ev);
		break;
	case GW_EV_OBJECT_FAILED:
		gw_swarm_object_failed(s, ev);
		break;
	case GW_EV_PIECE_OK:
		gw_swarm_piece_ok(s, ev);
		break;
	case GW_EV_PIECE_BAD:
		gw_swarm_piece_bad(s, ev);
		break;
	case GW_EV_BLOCK_SENT:
		gw_swarm_block_sent(s, ev);
		break;
	default:
		break;
	}
}

int gw_swarm_step(struct gw_swarm *s, const struct gw_event *ev, struct gw_actions *out)
{
	size_t i;

	assert(s->magic == MAGIC);
	s->now = ev->now_ns;
	s->wall = ev->wall_ns;
	s->out = out;
	s->err = 0;
	dispatch(s, ev);
	for (i = 0; i < s->object_count; i++)
		if (s->order[i]->reconsider)
			gw_swarm_stripes_consider(s, s->order[i]);
	gw_swarm_fetch_pump(s);
	gw_swarm_serve_pump(s);
	tick_plan(s);
	s->out = NULL;
	return s->err ? s->err : out->err;
}

/* --- looking in --- */

int gw_swarm_object(const struct gw_swarm *s, const struct gw_digest *object, struct gw_swarm_object *out)
{
	const struct object *o = gw_swarm_object_get(s, object->b);
	const struct flight *f;

	if (!o)
		return GW_ENOENT;
	*out = o->count;
	out->have = o->have;
	out->claimed = o->claimed;
	out->whole = o->whole;
	out->wanted = o->key != 0;
	for (f = o->flights; f; f = f->next)
		out->in_flight++;
	return 0;
}

uint64_t gw_swarm_region_bytes(const struct gw_swarm *s, const struct gw_digest *object, uint32_t region)
{
	const struct object *o = gw_swarm_object_get(s, object->b);
	size_t i;

	for (i = 0; o && i < o->region_count; i++)
		if (o->by_region[i].region == region)
			return o->by_region[i].bytes;
	return 0;
}

void gw_swarm_totals(const struct gw_swarm *s, struct gw_swarm_totals *out)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	*out = s->total;
	out->in_flight_bytes = s->outstanding;
	out->queued = s->queued;
	out->rx_bytes_per_s = s->rate;
	while ((e = gw_map_next(&s->peers, &at)))
		out->stalled += ((const struct peer *)e->value)->stalled_until_ns > s->now;
}

uint32_t gw_swarm_rank(const struct gw_swarm *s, const struct gw_digest *object, uint32_t stripe, gw_host host)
{
	const struct peer *p = host == GW_HOST_SELF ? NULL : gw_swarm_peer_get(s, host);
	const struct region *r;
	const uint8_t *identity;
	uint64_t score, mine = gw_swarm_rendezvous(object, stripe, s->cfg.identity);
	uint32_t rank = 0;
	size_t i;

	if (host != GW_HOST_SELF && (!p || !p->up))
		return UINT32_MAX;
	identity = p ? p->identity : s->cfg.identity;
	score = gw_swarm_rendezvous(object, stripe, identity);
	r = &s->regions[p ? p->region : 0];
	for (i = 0; i < r->n; i++)
		rank += gw_swarm_rendezvous(object, stripe, r->members[i]->identity) > score;
	if (p && p->region == 0)
		rank += mine > score;
	return rank;
}

int gw_swarm_banned(const struct gw_swarm *s, gw_host host)
{
	const struct peer *p = gw_swarm_peer_get(s, host);

	return p && p->banned;
}
