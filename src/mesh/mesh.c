#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "mesh/inner.h"

enum { MAGIC = 0x6d657368 };

static int add_bootstrap(struct gw_mesh *m, struct gw_member_record *r, enum gw_member_state state)
{
	struct gw_roster_entry *e;
	int err = gw_roster_add(&m->roster, r, state, 0, &e); /* whoever lives has a higher incarnation */

	if (err == GW_EEXIST)
		return 0;
	if (!err)
		e->score = gw_mesh_score(m, r->identity);
	return err;
}

static int add_bootstraps(struct gw_mesh *m, const struct gw_mesh_config *c)
{
	size_t dead = c->bootstrap_count, left = dead + c->bootstrap_dead, end = left + c->bootstrap_left;
	int err = 0;

	for (size_t i = 0; !err && i < end; i++)
		err = add_bootstrap(m, c->bootstrap[i], i < dead ? GW_MEMBER_ALIVE : i < left ? GW_MEMBER_DEAD : GW_MEMBER_LEFT);
	return err;
}

int gw_mesh_new(const struct gw_mesh_config *config, struct gw_mesh **out)
{
	struct gw_mesh *m = calloc(1, sizeof *m);
	int err;

	if (!m)
		return GW_ENOMEM;
	m->magic = MAGIC;
	gw_rng_init(&m->rng, config->seed);
	m->sync_again = GW_HOST_NONE;
	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++)
		m->links[i].host = GW_HOST_NONE;
	for (size_t i = 0; i < GW_MESH_ERRANDS_MAX; i++)
		m->errands[i].target = GW_HOST_NONE;
	err = gw_roster_init(&m->roster, config->seed, config->self);
	if (err)
		goto err0;
	m->self = gw_roster_at(&m->roster, GW_HOST_SELF);
	err = add_bootstraps(m, config);
	if (err)
		goto err0;
	/* A damaged or lost number is no harm: the others remember a higher one and say so. */
	if (config->stored.n == 8)
		m->self->incarnation = gw_le64(config->stored.p);
	gw_roster_set(&m->roster, m->self, GW_MEMBER_ALIVE, m->self->incarnation);
	*out = m;
	return 0;
err0:
	gw_mesh_free(m);
	return err;
}

void gw_mesh_free(struct gw_mesh *m)
{
	if (!m)
		return;
	gw_roster_free(&m->roster);
	free(m->suspects);
	free(m);
}

const struct gw_roster *gw_mesh_roster(const struct gw_mesh *m)
{
	return &m->roster;
}

size_t gw_mesh_neighbours(const struct gw_mesh *m, gw_host *out, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < GW_MESH_LINKS_MAX && n < max; i++)
		if (gw_mesh_link_standing(&m->links[i]))
			out[n++] = m->links[i].host;
	return n;
}

unsigned gw_mesh_local_health(const struct gw_mesh *m)
{
	return m->health;
}

void gw_mesh_tell(struct gw_mesh *m, struct gw_actions *out, enum gw_event_kind kind, const struct gw_roster_entry *e)
{
	struct gw_event *ev = &gw_actions_add(out, GW_ACT_MEMBER)->event;
	const char *region = gw_roster_region_name(&m->roster, e->region);

	ev->kind = kind;
	ev->now_ns = m->last_ns;
	ev->wall_ns = m->wall_ns;
	ev->host = e->host;
	ev->region = e->region;
	ev->region_name = (struct gw_text){region, strlen(region)};
	ev->identity = e->record->identity;
}

void gw_mesh_note(struct gw_actions *out, int level, const char *text, gw_host host)
{
	struct gw_action *a = gw_actions_add(out, GW_ACT_LOG);

	a->level = level;
	a->text = text;
	a->host = host;
}

static void set_timer(struct gw_actions *out, uint64_t at, uint64_t key)
{
	struct gw_action *a = gw_actions_add(out, GW_ACT_TIMER);

	a->at_ns = at;
	a->key = GW_KEY(GW_KEY_MESH, key);
}

static void start(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out)
{
	m->started = 1;
	m->picks_dirty = 1;
	m->sync_ns = ev->now_ns + gw_rng_below(&m->rng, GW_MESH_SYNC);
	m->revive_ns = ev->now_ns + REVIVE_EVERY;
	m->expiry_ns = ev->now_ns;
	gw_mesh_reincarnate(m, m->self->incarnation, ev->now_ns, out);
	for (gw_host h = 1; h < m->roster.n; h++)
		if (gw_roster_is_in(m->roster.at[h]))
			gw_mesh_tell(m, out, GW_EV_MEMBER_UP, m->roster.at[h]);
	gw_mesh_links_tick(m, ev->now_ns, out);
	set_timer(out, ev->now_ns + gw_rng_below(&m->rng, GW_MESH_TICK), TICK_KEY);
}

/* Members whose record has expired are out; long after that they are forgotten. */
static void expire(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	if (now < m->expiry_ns || !m->wall_ns)
		return;
	m->expiry_ns = now + EXPIRY_EVERY;
	for (gw_host h = 1; h < m->roster.n; h++) {
		struct gw_roster_entry *e = m->roster.at[h];

		if (!e || e->record->expires_ns > m->wall_ns)
			continue;
		if (gw_roster_is_in(e)) {
			struct gw_statement s = {GW_MEMBER_LEFT, e->incarnation, NULL};

			gw_mesh_note(out, GW_LOG_NOTICE, "membership expired", h);
			gw_mesh_apply(m, e, &s, GW_HOST_SELF, 0, now, out);
		} else if (m->wall_ns - e->record->expires_ns > FORGET_AFTER && e->link < 0) {
			gw_roster_forget(&m->roster, e);
		}
	}
}

static void tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	if (m->leaving)
		return;
	gw_mesh_probe_tick(m, now, out);
	gw_mesh_suspicion_tick(m, now, out);
	expire(m, now, out);
	gw_mesh_links_tick(m, now, out);
	gw_mesh_verify_tick(m, now, out);
	gw_mesh_sync_tick(m, now, out);
	set_timer(out, now + GW_MESH_TICK, TICK_KEY);
}

static void leave(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	m->leaving = 1;
	gw_roster_set(&m->roster, m->self, GW_MEMBER_LEFT, m->self->incarnation);
	gw_roster_news(&m->roster, m->self, GW_HOST_NONE);
	gw_mesh_flush(m, now, out);
}

static void message(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out)
{
	const struct gw_msg *msg = ev->msg;
	uint64_t now = ev->now_ns;

	gw_mesh_heard(m, ev->host, now, out);
	switch ((int)msg->type) {
	case GW_MSG_ping:
		gw_actions_send(out, ev->host, GW_MSG_ack)->u.ack.seq = msg->u.ping.seq;
		break;
	case GW_MSG_probe_request:
		gw_mesh_probe_request(m, ev->host, &msg->u.probe_request, now, out);
		break;
	case GW_MSG_probe_reply:
		gw_mesh_probe_reply(m, ev->host, &msg->u.probe_reply, now, out);
		break;
	case GW_MSG_link_hello:
		gw_mesh_hello(m, ev->host, &msg->u.link_hello, now, out);
		break;
	case GW_MSG_link_answer:
		gw_mesh_answer(m, ev->host, msg->u.link_answer.accepted, now, out);
		break;
	case GW_MSG_neighbours:
		gw_mesh_peers(m, ev->host, &msg->u.neighbours);
		break;
	case GW_MSG_member_news:
		gw_mesh_news(m, ev->host, &msg->u.member_news, now, out);
		break;
	case GW_MSG_member_ask:
		gw_mesh_asked(m, ev->host, &msg->u.member_ask, out);
		break;
	case GW_MSG_table_digest:
		gw_mesh_sync_digest(m, ev->host, &msg->u.table_digest, out);
		break;
	case GW_MSG_table_buckets:
		gw_mesh_sync_buckets(m, ev->host, &msg->u.table_buckets, out);
		break;
	case GW_MSG_table_lines:
		gw_mesh_sync_lines(m, ev->host, &msg->u.table_lines, now, out);
		break;
	default: /* an ack has done its work by being heard; the rest is not ours */
		break;
	}
}

/* A jump of the clock between steps means that this host did not run; ticks see to it that steps are frequent. */
static void look_at_clock(struct gw_mesh *m, const struct gw_event *ev)
{
	if (m->started && ev->now_ns > m->last_ns + CLOCK_JUMP) {
		gw_mesh_forgive(m, ev->now_ns - m->last_ns);
		gw_mesh_health(m, 1);
	}
	if (ev->now_ns > m->last_ns)
		m->last_ns = ev->now_ns;
	if (ev->wall_ns)
		m->wall_ns = ev->wall_ns;
}

int gw_mesh_step(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out)
{
	assert(m->magic == MAGIC);
	look_at_clock(m, ev);
	switch ((int)ev->kind) {
	case GW_EV_START:
		start(m, ev, out);
		break;
	case GW_EV_TIMER:
		if (ev->key == GW_KEY(GW_KEY_MESH, TICK_KEY))
			tick(m, ev->now_ns, out);
		else if (ev->key == GW_KEY(GW_KEY_MESH, FLUSH_KEY))
			gw_mesh_flush(m, ev->now_ns, out);
		break;
	case GW_EV_MSG:
		if (gw_roster_at(&m->roster, ev->host))
			message(m, ev, out);
		break;
	case GW_EV_LINK_UP:
		gw_mesh_link_up(m, ev->host, ev->now_ns, out);
		break;
	case GW_EV_LINK_DOWN:
		gw_mesh_link_down(m, ev->host, ev->now_ns);
		break;
	case GW_EV_MEMBER_RECORD:
		gw_mesh_record(m, ev, out);
		break;
	case GW_EV_REFUSED:
		gw_mesh_refused(m, ev, out);
		break;
	case GW_EV_LEAVE:
		leave(m, ev->now_ns, out);
		break;
	default:
		break;
	}
	return out->err;
}
