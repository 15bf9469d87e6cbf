#include "engine/client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/op.h"

struct gw_client {
	struct gw_client_config cfg;
	uint64_t *segment_bytes;
	enum gw_client_state state;
	int connected;
	uint8_t run[16], plan[32];
	uint64_t version;          /* held, or being resumed with; GW_VERSION_NONE while nobody knows */
	struct gw_list_header *list;
	struct gw_commit_page *page;
	uint64_t to;               /* of the list */
	int answer;                /* the daemon waits for eng_resumed */
	int pause_again;           /* eng_pause came before the engine said that it goes on */
	uint64_t settle_by_ns, doubt_by_ns;
	int doubt;                 /* poisoned by the daemon's silence in a pause, and by nothing else */
	struct gw_client_actions *out;
};

int gw_client_new(struct gw_client **out, const struct gw_client_config *cfg)
{
	struct gw_client *c = calloc(1, sizeof *c);

	if (!c)
		return GW_ENOMEM;
	c->segment_bytes = calloc(cfg->segments ? cfg->segments : 1, sizeof *c->segment_bytes);
	if (!c->segment_bytes) {
		free(c);
		return GW_ENOMEM;
	}
	c->cfg = *cfg;
	for (uint32_t i = 0; i < cfg->segments; i++)
		c->segment_bytes[i] = cfg->mem[i].bytes;
	c->version = GW_VERSION_NONE;
	*out = c;
	return 0;
}

void gw_client_free(struct gw_client *c)
{
	if (!c)
		return;
	free(c->segment_bytes);
	free(c);
}

/* --- telling --- */

static struct gw_client_action *act(struct gw_client *c, enum gw_client_action_kind kind)
{
	struct gw_client_action *a = &c->out->v[c->out->n];

	assert(c->out->n < GW_CLIENT_ACTIONS_MAX);
	c->out->n++;
	memset(a, 0, sizeof *a);
	a->kind = kind;
	return a;
}

static struct gw_msg *send(struct gw_client *c, enum gw_msg_type type)
{
	struct gw_client_action *a = act(c, GW_CA_SEND);

	a->msg.type = type;
	return &a->msg;
}

static void break_off(struct gw_client *c, int err)
{
	act(c, GW_CA_CLOSE)->err = err;
}

static void drop_pair(struct gw_client *c, void *list, void *page)
{
	struct gw_client_action *a = act(c, GW_CA_DROP_LIST);

	a->list = list;
	a->page = page;
}

static void drop_list(struct gw_client *c)
{
	if (c->list)
		drop_pair(c, c->list, c->page);
	c->list = NULL;
	c->page = NULL;
	c->to = GW_VERSION_NONE;
}

static void poison(struct gw_client *c, const char *text, size_t n)
{
	struct gw_client_action *a;

	c->state = GW_CLIENT_POISONED;
	c->version = GW_VERSION_NONE;
	c->answer = c->pause_again = c->doubt = 0;
	a = act(c, GW_CA_POISONED);
	snprintf(a->text, sizeof a->text, "%.*s", (int)n, text);
}

static void poison_text(struct gw_client *c, const char *text)
{
	poison(c, text, strlen(text));
}

static void resume(struct gw_client *c, uint64_t version)
{
	c->state = GW_CLIENT_RESUMING;
	c->doubt = 0;
	c->version = version;
	act(c, GW_CA_RESUME)->version = version;
}

/* --- the memory --- */

static int op(struct gw_client *c, enum gw_engine_op what, struct gw_list_found *found)
{
	return gw_op_run(what, c->list, &c->cfg.dev, c->cfg.mem, c->cfg.segments, found);
}

/* Puts the memory where the page's decision says. 0, or why that cannot be shown. */
static int settle(struct gw_client *c, enum gw_decision d, uint64_t *version)
{
	struct gw_list_found found;
	int err;

	*version = d == GW_DECISION_NEW ? c->list->to : c->list->from;
	err = op(c, d == GW_DECISION_NEW ? GW_OP_CHECK : GW_OP_UNDO, &found);
	if (err)
		return err;
	/* Decided for new: all was written and checked before. */
	return gw_op_ok(d == GW_DECISION_NEW ? GW_OP_WRITE : GW_OP_UNDO, &found) ? 0 : GW_EPOISONED;
}

/* --- messages --- */

static void on_attach_ok(struct gw_client *c, const struct gw_m_eng_attach_ok *m)
{
	int was_poisoned = c->state == GW_CLIENT_POISONED;

	memcpy(c->plan, m->plan, sizeof c->plan);
	memcpy(c->run, m->run, sizeof c->run);
	act(c, GW_CA_ATTACHED)->version = m->version;
	if (was_poisoned) {
		resume(c, m->version);
		return;
	}
	c->version = m->version;
	if (c->state == GW_CLIENT_DETACHED)
		c->state = GW_CLIENT_SERVING;
}

static void on_refused(struct gw_client *c, const struct gw_m_eng_refused *m)
{
	act(c, GW_CA_REFUSED);
	/* Not this engine but the other instance's being there, or a daemon without a version, says nothing about the
	 * weights; that they are not what was served does. */
	if (c->state != GW_CLIENT_DETACHED && (m->err == GW_EFINGERPRINT || m->err == GW_EBASE))
		poison(c, m->text.p, m->text.n);
	break_off(c, GW_EACCESS);
}

static int look_at_list(const struct gw_client *c, const struct gw_client_event *ev, const struct gw_m_eng_stage *m)
{
	const struct gw_list_header *h = ev->list;
	int err;

	if (c->state == GW_CLIENT_PAUSING || c->state == GW_CLIENT_PAUSED || c->state == GW_CLIENT_SETTLING)
		return GW_ESTATE;
	if (!ev->list || !ev->page)
		return GW_EINVAL;
	if (memcmp(m->plan, c->plan, sizeof c->plan) != 0)
		return GW_ESTATE;
	err = gw_list_check(ev->list, ev->list_n, c->segment_bytes, c->cfg.segments, NULL);
	if (err)
		return err;
	if (gw_list_state(h) != GW_LIST_STAGED || h->from != m->from || h->to != m->to || h->records != m->records ||
	    memcmp(h->run, m->run, sizeof h->run) != 0)
		return GW_EMALFORMED;
	return gw_commit_check(ev->page, ev->page_n, m->run, m->from, m->to, c->cfg.ranks);
}

static void on_stage(struct gw_client *c, const struct gw_client_event *ev)
{
	const struct gw_m_eng_stage *m = &ev->msg->u.eng_stage;
	int err = look_at_list(c, ev, m);
	struct gw_msg *answer;

	if (err) {
		if (ev->list || ev->page)
			drop_pair(c, ev->list, ev->page);
	} else {
		drop_list(c);
		c->list = ev->list;
		c->page = ev->page;
		c->to = m->to;
	}
	answer = send(c, GW_MSG_eng_staged);
	answer->u.eng_staged.to = m->to;
	answer->u.eng_staged.err = err;
}

static void say_paused(struct gw_client *c)
{
	send(c, GW_MSG_eng_paused)->u.eng_paused.to = c->to;
}

static void on_pause(struct gw_client *c, const struct gw_m_eng_pause *m)
{
	if (!c->list || m->to != c->to) {
		break_off(c, GW_ESTATE);
	} else if (c->state == GW_CLIENT_POISONED) {
		say_paused(c);
	} else if (c->state == GW_CLIENT_RESUMING) {
		c->pause_again = 1;
	} else if (c->state == GW_CLIENT_SERVING) {
		c->state = GW_CLIENT_PAUSING;
		act(c, GW_CA_PAUSE)->version = m->to;
	} else {
		break_off(c, GW_ESTATE);
	}
}

static void on_apply(struct gw_client *c, const struct gw_m_eng_apply *m)
{
	struct gw_list_found found = {0};
	struct gw_m_eng_applied *answer;
	int err = GW_EINVAL;

	if (!c->cfg.in_process || !c->list || m->to != c->to ||
	    (c->state != GW_CLIENT_PAUSED && c->state != GW_CLIENT_POISONED)) {
		break_off(c, GW_ESTATE);
		return;
	}
	if (m->op >= GW_OP_CHECK && m->op <= GW_OP_UNDO)
		err = op(c, (enum gw_engine_op)m->op, &found);
	answer = &send(c, GW_MSG_eng_applied)->u.eng_applied;
	*answer = (struct gw_m_eng_applied){.to = m->to, .op = m->op, .err = err, .old_n = found.old_n, .new_n = found.new_n,
					    .neither_n = found.neither_n, .bad_segment = found.bad_segment,
					    .bad_at = found.bad_at};
}

static void on_resume(struct gw_client *c, const struct gw_m_eng_resume *m)
{
	if (c->state != GW_CLIENT_PAUSING && c->state != GW_CLIENT_PAUSED && c->state != GW_CLIENT_POISONED &&
	    !(c->state == GW_CLIENT_RESUMING && c->pause_again)) {
		break_off(c, GW_ESTATE);
		return;
	}
	memcpy(c->run, m->run, sizeof c->run);
	c->pause_again = 0;
	c->answer = 1;
	if (c->page)
		gw_commit_settle(c->page, c->cfg.rank);
	resume(c, m->version);
}

static void on_msg(struct gw_client *c, const struct gw_client_event *ev)
{
	const struct gw_msg *m = ev->msg;

	c->connected = 1;
	switch (m->type) {
	case GW_MSG_eng_attach_ok: on_attach_ok(c, &m->u.eng_attach_ok); break;
	case GW_MSG_eng_refused: on_refused(c, &m->u.eng_refused); break;
	case GW_MSG_eng_stage: on_stage(c, ev); break;
	case GW_MSG_eng_unstage:
		if (c->state == GW_CLIENT_PAUSING || c->state == GW_CLIENT_PAUSED)
			break_off(c, GW_ESTATE);
		else
			drop_list(c);
		break;
	case GW_MSG_eng_pause: on_pause(c, &m->u.eng_pause); break;
	case GW_MSG_eng_apply: on_apply(c, &m->u.eng_apply); break;
	case GW_MSG_eng_resume: on_resume(c, &m->u.eng_resume); break;
	case GW_MSG_eng_poison:
		memcpy(c->plan, m->u.eng_poison.plan, sizeof c->plan);
		poison(c, m->u.eng_poison.text.p, m->u.eng_poison.text.n);
		break;
	case GW_MSG_eng_ping: send(c, GW_MSG_eng_pong)->u.eng_pong.value = m->u.eng_ping.value; break;
	case GW_MSG_eng_pong: break;
	case GW_MSG_eng_bye: break_off(c, GW_ECLOSED); break;
	default: break_off(c, GW_EMALFORMED);
	}
}

/* --- the daemon is gone --- */

static void settled_yet(struct gw_client *c, uint64_t now_ns)
{
	if (gw_commit_all_settled(c->page)) {
		drop_list(c);
		resume(c, c->version);
	} else if (now_ns >= c->settle_by_ns) {
		drop_list(c);
		poison_text(c, "the daemon was lost in a pause and another rank did not settle");
	}
}

static void lost_paused(struct gw_client *c, uint64_t now_ns)
{
	uint64_t version;
	int err = settle(c, gw_commit_decide(c->page, GW_DECISION_OLD), &version);

	if (err) {
		drop_list(c);
		poison_text(c, "the daemon was lost in a pause and the weights could not be put back");
		return;
	}
	c->version = version;
	c->doubt = 0;
	c->state = GW_CLIENT_SETTLING;
	c->settle_by_ns = now_ns + c->cfg.settle_ns;
	gw_commit_settle(c->page, c->cfg.rank);
	settled_yet(c, now_ns);
}

/* A commit that was to cure a poison: only a decision for new, which stands on a proof, ends it. */
static void lost_poisoned(struct gw_client *c)
{
	uint64_t version;

	if (gw_commit_decide(c->page, GW_DECISION_OLD) == GW_DECISION_NEW && !settle(c, GW_DECISION_NEW, &version)) {
		gw_commit_settle(c->page, c->cfg.rank);
		drop_list(c);
		resume(c, version);
		return;
	}
	drop_list(c);
}

static void on_lost(struct gw_client *c, uint64_t now_ns)
{
	enum gw_decision d;

	c->connected = c->answer = c->pause_again = 0;
	if (!c->page || c->state == GW_CLIENT_SETTLING)
		return;
	if (c->state == GW_CLIENT_PAUSED || c->doubt) {
		lost_paused(c, now_ns);
		return;
	}
	if (c->state == GW_CLIENT_POISONED) {
		lost_poisoned(c);
		return;
	}
	/* Computing, or about to: with the old version unless it was told to resume with the new. */
	d = gw_commit_decide(c->page, GW_DECISION_OLD);
	gw_commit_settle(c->page, c->cfg.rank);
	if (d == GW_DECISION_NEW && c->version != c->to) {
		drop_list(c);
		poison_text(c, "a new version was decided that this rank never paused for");
		return;
	}
	drop_list(c);
	if (c->state == GW_CLIENT_PAUSING)
		resume(c, c->version);
}

/* --- the engine --- */

static void on_resumed(struct gw_client *c)
{
	if (c->state != GW_CLIENT_RESUMING)
		return;
	c->state = GW_CLIENT_SERVING;
	if (c->answer)
		send(c, GW_MSG_eng_resumed)->u.eng_resumed.version = c->version;
	c->answer = 0;
	if (c->pause_again) {
		c->pause_again = 0;
		c->state = GW_CLIENT_PAUSING;
		act(c, GW_CA_PAUSE)->version = c->to;
	}
}

static void in_doubt(struct gw_client *c)
{
	poison_text(c, "the daemon has been silent in a pause for too long");
	c->doubt = 1;
}

void gw_client_step(struct gw_client *c, const struct gw_client_event *ev, struct gw_client_actions *out)
{
	out->n = 0;
	c->out = out;
	switch (ev->kind) {
	case GW_CE_MSG:
		on_msg(c, ev);
		break;
	case GW_CE_LOST:
		on_lost(c, ev->now_ns);
		break;
	case GW_CE_PAUSED:
		if (c->state == GW_CLIENT_PAUSING) {
			c->state = GW_CLIENT_PAUSED;
			c->doubt_by_ns = ev->now_ns + c->cfg.doubt_ns;
			say_paused(c);
		}
		break;
	case GW_CE_RESUMED:
		on_resumed(c);
		break;
	case GW_CE_TICK:
		if (c->state == GW_CLIENT_SETTLING)
			settled_yet(c, ev->now_ns);
		else if (c->state == GW_CLIENT_PAUSED && ev->now_ns >= c->doubt_by_ns)
			in_doubt(c);
		break;
	}
	c->out = NULL;
}

enum gw_client_state gw_client_state(const struct gw_client *c)
{
	return c->state;
}

uint64_t gw_client_version(const struct gw_client *c)
{
	switch (c->state) {
	case GW_CLIENT_SERVING:
	case GW_CLIENT_PAUSING:
	case GW_CLIENT_RESUMING: return c->version;
	default: return GW_VERSION_NONE;
	}
}

const uint8_t *gw_client_run(const struct gw_client *c)
{
	return c->run;
}
