#include "daemon/core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "board/board.h"
#include "daemon/island.h"
#include "daemon/links.h"
#include "io/os/clock.h"

/* An event that waits, with copies of what it points to. Only the parts of this process give rise to such events
 * while actions are carried out, and only these kinds. */
struct gw_core_pending {
	struct gw_core_pending *next;
	struct gw_event ev;
	uint8_t run[GW_RUN_BYTES];
	uint8_t have[];
};

/* Crash-only: the machines may have lost something, the disk has not. */
static void fail(struct gw_core *c, int err)
{
	gw_logf(GW_LOG_ERR, "%s: stopping, to start again from what is on disk", gw_err_text(err));
	c->stopping = 1;
	gw_loop_stop(c->loop, 1);
}

static void wait_in_line(struct gw_core *c, const struct gw_event *ev)
{
	size_t have_n = ev->have ? ((size_t)ev->piece_count + 7) / 8 : 0;
	struct gw_core_pending *p = calloc(1, sizeof *p + have_n);

	assert(!ev->msg && !ev->head && !ev->manifest && !ev->record && !ev->identity && !ev->raw.p);
	if (!p) {
		fail(c, GW_ENOMEM);
		return;
	}
	p->ev = *ev;
	if (have_n)
		memcpy(p->have, ev->have, have_n);
	p->ev.have = have_n ? p->have : NULL;
	if (ev->run) {
		memcpy(p->run, ev->run, sizeof p->run);
		p->ev.run = p->run;
	}
	*c->last = p;
	c->last = &p->next;
}

/* --- actions --- */

static void fire(void *ctx, uint64_t key)
{
	struct gw_event ev = {.kind = GW_EV_TIMER, .key = key};

	gw_core_put(ctx, &ev);
}

static void log_action(struct gw_core *c, const struct gw_action *act)
{
	const struct gw_roster_entry *e = gw_roster_at(gw_mesh_roster(gw_node_mesh(c->node)), act->host);

	if (gw_quiet_may_say(&c->quiet, act->text, gw_clock_mono_ns()))
		GW_LOG((enum gw_log_level)act->level, act->text, "host", e && e->record ? e->record->name : "-", NULL);
}

static void answer_health(struct gw_core *c, const struct gw_action *act)
{
	for (size_t i = 0; i < GW_CORE_QUERIES_MAX; i++) {
		struct gw_core_query q = c->queries[i];

		if (!q.answer || q.key != act->key)
			continue;
		memset(&c->queries[i], 0, sizeof c->queries[i]);
		q.answer(q.ctx, act->msg ? &act->msg->u.status_reply : NULL);
		return;
	}
}

/* Returns 0, or an error after which what relies on the value must not happen. */
static int persist(struct gw_core *c, const struct gw_action *act)
{
	int err = gw_slots_put(&c->slots, act->slot, act->data);

	if (err == GW_ENOMEM)
		fail(c, err);
	return err;
}

int gw_core_heads_durable(const struct gw_core *c)
{
	return !gw_slots_late(&c->slots, "board");
}

/* What the board says relies on its counters, in later steps too. That the mesh's incarnation is not durable
 * matters to a restart alone: then others know a higher one and the host hears of it. */
static int may_say(const struct gw_core *c, const struct gw_msg *m)
{
	return m->type < GW_MSG_head || m->type > GW_MSG_head_ask || gw_core_heads_durable(c);
}

static void act_on(struct gw_core *c, const struct gw_action *act, int *not_durable)
{
	switch (act->kind) {
	case GW_ACT_TIMER:
		if (gw_loop_at(c->loop, act->at_ns, fire, c, act->key))
			fail(c, GW_ENOMEM);
		break;
	case GW_ACT_SEND:
		if (!*not_durable && may_say(c, act->msg))
			gw_links_send(c->links, act->host, act->msg, act->bulk);
		break;
	case GW_ACT_CONNECT:
		gw_links_connect(c->links, act->host);
		break;
	case GW_ACT_DISCONNECT:
		gw_links_disconnect(c->links, act->host);
		break;
	case GW_ACT_PERSIST:
		*not_durable |= persist(c, act);
		break;
	case GW_ACT_VERIFY_HEAD:
	case GW_ACT_VERIFY_MANIFEST:
	case GW_ACT_VERIFY_MEMBER:
		gw_verify_act(&c->verify, act);
		break;
	case GW_ACT_OBJECT_OPEN:
	case GW_ACT_OBJECT_DROP:
	case GW_ACT_BLOCK_SEND:
	case GW_ACT_BLOCK_STORE:
	case GW_ACT_PIECE_CHECK:
		gw_objects_act(c->objects, act);
		break;
	case GW_ACT_PATH:
		gw_island_path(c->island, &act->object, act->version);
		break;
	case GW_ACT_HEALTH:
		answer_health(c, act);
		break;
	case GW_ACT_LOG:
		log_action(c, act);
		break;
	case GW_ACT_MEMBER:
	case GW_ACT_TELL:
		assert(0 && "actions that never leave the node");
	}
}

static void step(struct gw_core *c, const struct gw_event *given)
{
	struct gw_event ev = *given;
	int err, not_durable = 0;

	ev.now_ns = gw_clock_mono_ns();
	ev.wall_ns = gw_clock_wall_ns();
	gw_actions_reset(&c->actions);
	err = gw_node_step(c->node, &ev, &c->actions);
	if (err || c->actions.err) {
		fail(c, err ? err : c->actions.err);
		return;
	}
	for (size_t i = 0; i < c->actions.n; i++)
		act_on(c, &c->actions.v[i], &not_durable);
}

void gw_core_put(struct gw_core *c, const struct gw_event *ev)
{
	if (c->stopping)
		return; /* the workers are being let go: what they still answer has nowhere to lead */
	if (c->busy) {
		wait_in_line(c, ev);
		return;
	}
	c->busy = 1;
	step(c, ev);
	while (c->first) {
		struct gw_core_pending *p = c->first;

		c->first = p->next;
		if (!c->first)
			c->last = &c->first;
		if (!c->stopping)
			step(c, &p->ev);
		free(p);
	}
	c->busy = 0;
	gw_members_look(c);
}

void gw_core_drop_pending(struct gw_core *c)
{
	while (c->first) {
		struct gw_core_pending *p = c->first;

		c->first = p->next;
		free(p);
	}
	c->last = &c->first;
}

static void sink_put(void *ctx, const struct gw_event *ev)
{
	gw_core_put(ctx, ev);
}

struct gw_sink gw_core_sink(struct gw_core *c)
{
	return (struct gw_sink){c, sink_put};
}

/* --- health --- */

int gw_core_health(struct gw_core *c, void (*answer)(void *ctx, const struct gw_m_status_reply *reply), void *ctx)
{
	for (size_t i = 0; i < GW_CORE_QUERIES_MAX; i++) {
		struct gw_event ev = {.kind = GW_EV_HEALTH, .key = ++c->next_query};

		if (c->queries[i].answer)
			continue;
		c->queries[i] = (struct gw_core_query){ev.key, answer, ctx};
		gw_island_report(c->island);
		gw_core_put(c, &ev);
		return 0;
	}
	return GW_EAGAIN;
}

void gw_core_health_cancel(struct gw_core *c, const void *ctx)
{
	for (size_t i = 0; i < GW_CORE_QUERIES_MAX; i++)
		if (c->queries[i].answer && c->queries[i].ctx == ctx)
			memset(&c->queries[i], 0, sizeof c->queries[i]);
}

struct gw_publisher *gw_core_publisher(struct gw_core *c, const char *policy)
{
	if (!policy || !policy[0])
		return c->publisher_count == 1 ? c->publishers[0] : NULL;
	for (uint32_t i = 0; i < c->publisher_count; i++)
		if (!strcmp(gw_publisher_policy(c->publishers[i]), policy))
			return c->publishers[i];
	return NULL;
}

void gw_core_reconfigured(struct gw_core *c)
{
	for (uint32_t i = 0; i < c->publisher_count; i++)
		gw_publisher_pace(c->publishers[i], c->cfg->publish_head_expiry, c->cfg->publish_head_renew);
}

void gw_core_leave(struct gw_core *c)
{
	struct gw_event ev = {.kind = GW_EV_LEAVE};

	gw_core_put(c, &ev);
}
