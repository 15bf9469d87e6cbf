#include "daemon/attach.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/attach_inside.h"

/* --- memory --- */

void gw_attach_staged_free(struct gw_attach_staged *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->grow && i < s->ranks; i++)
		gw_memfd_grow_free(&s->grow[i]);
	gw_shm_unmap(&s->page);
	if (s->page_fd >= 0)
		close(s->page_fd);
	gw_table_free(s->table);
	free(s->grow);
	free(s->lists);
	free(s);
}

void gw_attach_group_try_free(struct gw_attach_group *g)
{
	if (!g->dead || g->jobs)
		return;
	for (uint32_t i = 0; i < g->ranks; i++)
		if (g->conns[i] && g->conns[i]->peer)
			return;
	for (uint32_t i = 0; i < g->ranks; i++)
		gw_attach_conn_free(g->conns[i]);
	gw_attach_staged_free(g->staged);
	gw_plan_free(g->plan);
	gw_table_free(g->table);
	free(g->conns);
	free(g->mem);
	free(g);
}

void gw_attach_note_found(struct gw_attach_conn *c, enum gw_engine_op op, const struct gw_list_found *found)
{
	static const char *const after[] = {"", "before the write", "after the write", "after the undo"};

	if (gw_op_ok(op, found))
		return;
	memset(&c->group->no, 0, sizeof c->group->no);
	gw_refuse(&c->group->no, op == GW_OP_CHECK ? GW_EBASE : GW_EDEVICE, NULL,
		  "rank %u: %s %llu places hold other bits than they should, %llu of them neither old nor new, the first at "
		  "byte %llu of segment %u",
		  c->rank, after[op], (unsigned long long)(found->neither_n + (op == GW_OP_WRITE ? found->old_n : found->new_n)),
		  (unsigned long long)found->neither_n, (unsigned long long)found->bad_at, found->bad_segment);
}

/* --- telling the rest of the daemon, after the machine has come to rest --- */

static struct gw_attach_note *note(struct gw_attach *a, enum gw_attach_note_kind kind)
{
	struct gw_attach_note *n;

	if (a->note_n == a->note_cap) {
		size_t cap = a->note_cap ? a->note_cap * 2 : 8;
		struct gw_attach_note *v = reallocarray(a->notes, cap, sizeof *v);
		static struct gw_attach_note lost;

		if (!v) /* the state that status tells stays right */
			return &lost;
		a->notes = v;
		a->note_cap = cap;
	}
	n = &a->notes[a->note_n++];
	memset(n, 0, sizeof *n);
	n->kind = kind;
	return n;
}

static void tell(struct gw_attach *a, const struct gw_attach_note *n)
{
	const struct gw_attach_hooks *h = &a->cfg.hooks;

	switch (n->kind) {
	case GW_NOTE_SERVED:
		if (h->served && a->group)
			h->served(h->ctx, gw_table_run(a->group->table), n->version);
		break;
	case GW_NOTE_STAGED:
		if (h->staged)
			h->staged(h->ctx, n->version);
		break;
	case GW_NOTE_FAILED:
		if (h->failed)
			h->failed(h->ctx, n->version, n->err, n->text);
		break;
	case GW_NOTE_CHANGED:
		if (h->changed)
			h->changed(h->ctx);
		break;
	case GW_NOTE_SCRUBBED:
		if (h->scrubbed)
			h->scrubbed(h->ctx, n->err, n->text);
		break;
	}
}

static void tell_all(struct gw_attach *a)
{
	while (a->note_n > 0) {
		struct gw_attach_note n = a->notes[0];

		memmove(a->notes, a->notes + 1, --a->note_n * sizeof *a->notes);
		tell(a, &n);
	}
}

/* --- carrying out what the machine says --- */

static int push(struct gw_attach *a, const struct gw_engine_event *ev, int first)
{
	if (a->event_n == a->event_cap) {
		size_t cap = a->event_cap ? a->event_cap * 2 : 16;
		struct gw_engine_event *v = reallocarray(a->events, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		a->events = v;
		a->event_cap = cap;
	}
	if (first) {
		memmove(a->events + 1, a->events, a->event_n * sizeof *a->events);
		a->events[0] = *ev;
	} else {
		a->events[a->event_n] = *ev;
	}
	a->event_n++;
	return 0;
}

/* An event that must not be lost: without memory for it the machine would wait for ever. */
static void push_surely(struct gw_attach *a, const struct gw_engine_event *ev, int first)
{
	if (push(a, ev, first)) {
		GW_LOG(GW_LOG_ERR, "out of memory in the middle of a commit", NULL);
		abort(); /* crash-only: the engine side puts the memory right, and a new daemon proves it */
	}
}

static void send_to(struct gw_attach *a, uint32_t rank, const struct gw_msg *m, const int *fds, size_t nfds)
{
	struct gw_attach_conn *c = a->group ? a->group->conns[rank] : NULL;

	if (c && c->peer && !c->let_go)
		(void)gw_peer_send(c->peer, m, fds, nfds); /* a broken one is closed, and that is an event */
}

static void send_all(struct gw_attach *a, const struct gw_msg *m)
{
	for (uint32_t i = 0; a->group && i < a->group->ranks; i++)
		send_to(a, i, m, NULL, 0);
}

static void do_attach_ok(struct gw_attach *a, uint64_t version)
{
	struct gw_msg m = {.type = GW_MSG_eng_attach_ok};

	memcpy(m.u.eng_attach_ok.plan, gw_plan_digest(a->group->plan)->b, 32);
	memcpy(m.u.eng_attach_ok.run, gw_table_run(a->group->table), 16);
	m.u.eng_attach_ok.version = version;
	send_all(a, &m);
}

static void do_refuse(struct gw_attach *a, int err)
{
	gw_refuse(&a->group->no, err, NULL, "%s", gw_err_text(err));
	snprintf(a->last_error, sizeof a->last_error, "%s", a->group->no.why.text);
	GW_LOG(GW_LOG_WARN, "engine refused", "why", a->last_error, NULL);
	for (uint32_t i = 0; i < a->group->ranks; i++)
		if (a->group->conns[i])
			gw_attach_conn_refuse(a->group->conns[i], &a->group->no);
}

static void do_hand(struct gw_attach *a, uint32_t rank)
{
	const struct gw_attach_staged *s = a->group->staged;
	struct gw_msg m = {.type = GW_MSG_eng_stage};
	int fds[2] = {s->grow[rank].fd, s->page_fd};

	memcpy(m.u.eng_stage.run, s->run, 16);
	memcpy(m.u.eng_stage.plan, gw_plan_digest(a->group->plan)->b, 32);
	m.u.eng_stage.from = s->from;
	m.u.eng_stage.to = s->to;
	m.u.eng_stage.list_bytes = s->lists[rank]->bytes;
	m.u.eng_stage.records = s->lists[rank]->records;
	send_to(a, rank, &m, fds, 2);
}

static void do_unstage(struct gw_attach *a)
{
	struct gw_msg m = {.type = GW_MSG_eng_unstage};

	if (!a->group || !a->group->staged)
		return;
	m.u.eng_unstage.to = a->group->staged->to;
	send_all(a, &m);
	gw_attach_staged_free(a->group->staged);
	a->group->staged = NULL;
}

static void do_op(struct gw_attach *a, uint32_t rank, enum gw_engine_op op)
{
	struct gw_engine_event ev = {.kind = GW_EE_DID, .rank = rank, .op = op};
	struct gw_attach_conn *c = a->group->conns[rank];
	struct gw_msg m = {.type = GW_MSG_eng_apply};

	if (gw_decl_info(c->decl)->in_process) {
		m.u.eng_apply.to = a->group->staged->to;
		m.u.eng_apply.op = (uint8_t)op;
		send_to(a, rank, &m, NULL, 0);
		return;
	}
	ev.err = gw_attach_job_op(c, op);
	if (ev.err)
		push_surely(a, &ev, 0);
}

static void do_decide(struct gw_attach *a, enum gw_decision d)
{
	struct gw_engine_event ev = {.kind = GW_EE_DECIDED};

	assert(a->group->staged);
	ev.decision = gw_commit_decide((struct gw_commit_page *)a->group->staged->page.p, d);
	push_surely(a, &ev, 1);
}

static void do_resume(struct gw_attach *a, uint32_t rank, uint64_t version)
{
	struct gw_msg m = {.type = GW_MSG_eng_resume};
	struct gw_attach_group *g = a->group;

	if (g->staged && g->staged->to == version && g->table != g->staged->table) {
		gw_table_free(g->table);
		g->table = gw_table_hold(g->staged->table);
	}
	memcpy(m.u.eng_resume.run, gw_table_run(g->table), 16);
	m.u.eng_resume.version = version;
	send_to(a, rank, &m, NULL, 0);
}

static void do_poison(struct gw_attach *a, int err)
{
	struct gw_msg m = {.type = GW_MSG_eng_poison};
	const char *text = a->group->no.err ? a->group->no.why.text : gw_err_text(err);

	snprintf(a->last_error, sizeof a->last_error, "poisoned: %.480s", text);
	GW_LOG(GW_LOG_ERR, "engine poisoned", "why", text, NULL);
	memcpy(m.u.eng_poison.plan, gw_plan_digest(a->group->plan)->b, 32);
	m.u.eng_poison.text = (struct gw_text){.p = text, .n = strlen(text)};
	send_all(a, &m);
	a->told_served = GW_VERSION_NONE;
}

static void do_failed(struct gw_attach *a, uint64_t version, int err)
{
	struct gw_attach_note *n = note(a, GW_NOTE_FAILED);
	const char *text = a->group && a->group->no.err == err ? a->group->no.why.text : gw_err_text(err);

	n->version = version;
	n->err = err;
	snprintf(n->text, sizeof n->text, "%s", text);
	snprintf(a->last_error, sizeof a->last_error, "version %llu: %.480s", (unsigned long long)version, text);
	GW_LOG(GW_LOG_WARN, "version not applied", "why", a->last_error, NULL);
}

static void do_served(struct gw_attach *a, const struct gw_engine_action *act)
{
	char version[24], pause[24];

	a->last_apply_ns = act->apply_ns;
	a->last_pause_ns = act->pause_ns;
	a->last_error[0] = 0;
	snprintf(version, sizeof version, "%llu", (unsigned long long)act->version);
	snprintf(pause, sizeof pause, "%.3f", (double)act->pause_ns / 1e6);
	GW_LOG(GW_LOG_INFO, "version served", "version", version, "pause_ms", pause, NULL);
}

static void timer_fired(void *ctx, uint64_t key)
{
	struct gw_engine_event ev = {.kind = GW_EE_TIMER, .key = key};

	(void)gw_attach_feed(ctx, &ev);
}

static void do_prove(struct gw_attach *a, uint64_t key, uint64_t version)
{
	struct gw_engine_event ev = {.kind = GW_EE_PROVED, .key = key};

	ev.err = gw_attach_job_prove(a->group, key, version);
	if (ev.err)
		push_surely(a, &ev, 0);
}

static void do_stage(struct gw_attach *a, uint64_t key)
{
	struct gw_engine_event ev = {.kind = GW_EE_LISTED, .key = key};

	ev.err = gw_attach_job_stage(a->group, key, a->patch);
	if (ev.err) {
		a->patch->release(a->patch);
		push_surely(a, &ev, 0);
	}
	a->patch = NULL;
}

static void act(struct gw_attach *a, const struct gw_engine_action *x)
{
	struct gw_msg m = {0};

	switch (x->kind) {
	case GW_EA_PROVE: do_prove(a, x->key, x->version); break;
	case GW_EA_ATTACH_OK: do_attach_ok(a, x->version); break;
	case GW_EA_REFUSE: do_refuse(a, x->err); break;
	case GW_EA_STAGE: do_stage(a, x->key); break;
	case GW_EA_HAND: do_hand(a, x->rank); break;
	case GW_EA_UNSTAGE: do_unstage(a); break;
	case GW_EA_PAUSE:
		m.type = GW_MSG_eng_pause;
		m.u.eng_pause.to = x->version;
		send_to(a, x->rank, &m, NULL, 0);
		a->last_records = a->group->staged->records;
		break;
	case GW_EA_OP: do_op(a, x->rank, x->op); break;
	case GW_EA_DECIDE: do_decide(a, x->decision); break;
	case GW_EA_RESUME: do_resume(a, x->rank, x->version); break;
	case GW_EA_POISON: do_poison(a, x->err); break;
	case GW_EA_LET_GO:
		if (a->group->conns[x->rank])
			gw_attach_conn_let_go(a->group->conns[x->rank], "another rank of the engine is gone");
		break;
	case GW_EA_TIMER:
		if (gw_loop_at(a->loop, x->at_ns, timer_fired, a, x->key))
			GW_LOG(GW_LOG_WARN, "no timer for the engine", NULL);
		break;
	case GW_EA_STATE:
		note(a, GW_NOTE_CHANGED);
		if (gw_engine_state(a->engine) == GW_ENGINE_STAGED)
			note(a, GW_NOTE_STAGED)->version = gw_engine_staged(a->engine);
		break;
	case GW_EA_SERVED: do_served(a, x); break;
	case GW_EA_FAILED: do_failed(a, x->version, x->err); break;
	}
}

static void came_to_rest(struct gw_attach *a)
{
	struct gw_attach_group *g = a->group;

	/* The machine has let go of the engine: so do we, when the last job and connection are gone. */
	if (g && gw_engine_ranks_wanted(a->engine) == 0) {
		g->dead = 1;
		a->group = NULL;
		a->told_served = GW_VERSION_NONE;
		if (a->scrubbing) {
			struct gw_attach_note *n = note(a, GW_NOTE_SCRUBBED);

			n->err = GW_ECLOSED;
			snprintf(n->text, sizeof n->text, "the engine went away");
			a->scrubbing = 0;
		}
		gw_attach_group_try_free(g);
	}
	if (a->group && gw_engine_state(a->engine) == GW_ENGINE_SERVING &&
	    gw_engine_served(a->engine) != a->told_served) {
		a->told_served = gw_engine_served(a->engine);
		note(a, GW_NOTE_SERVED)->version = a->told_served;
	}
}

static int step(struct gw_attach *a, const struct gw_engine_event *ev)
{
	struct gw_engine_event e = *ev;
	int err;

	e.now_ns = gw_loop_now_ns(a->loop);
	a->actions.n = 0;
	err = gw_engine_step(a->engine, &e, &a->actions);
	if (a->actions.err) {
		GW_LOG(GW_LOG_ERR, "out of memory in the engine's machine", NULL);
		abort(); /* as in push_surely */
	}
	/* Actions may push events, never step: the array stays. */
	for (size_t i = 0; !err && i < a->actions.n; i++)
		act(a, &a->actions.v[i]);
	return err;
}

int gw_attach_feed(struct gw_attach *a, const struct gw_engine_event *ev)
{
	int err;

	if (a->ending)
		return GW_ESTATE;
	if (a->running) {
		push_surely(a, ev, 0);
		return 0;
	}
	a->running = 1;
	err = step(a, ev);
	while (a->event_n > 0) {
		struct gw_engine_event next = a->events[0];

		memmove(a->events, a->events + 1, --a->event_n * sizeof *a->events);
		(void)step(a, &next); /* out of place: an answer that no longer matters */
	}
	came_to_rest(a);
	a->running = 0;
	tell_all(a);
	return err;
}

/* --- for the rest of the daemon --- */

int gw_attach_new(struct gw_attach **out, struct gw_loop *loop, struct gw_workers *workers, struct gw_pool *pool,
		  const struct gw_attach_config *cfg, struct gw_diag *why)
{
	struct gw_attach *a = calloc(1, sizeof *a);
	struct gw_server_config server = {.path = cfg->path, .group = cfg->group, .peers_max = GW_PLAN_RANKS_MAX + 16,
					  .fds_max = 1, .opened = gw_attach_conn_opened,
					  .message = gw_attach_conn_message, .closed = gw_attach_conn_closed, .arg = a};
	int err = GW_ENOMEM;

	if (!a)
		return GW_ENOMEM;
	a->cfg = *cfg;
	a->cfg.path = NULL; /* the server's copy counts */
	a->loop = loop;
	a->workers = workers;
	a->pool = pool;
	a->told_served = GW_VERSION_NONE;
	err = gw_engine_new(&a->engine, &cfg->limits);
	if (err)
		goto err0;
	err = gw_server_new(&a->server, loop, &server, why);
	if (err)
		goto err1;
	*out = a;
	return 0;
err1:
	gw_engine_free(a->engine);
err0:
	free(a);
	return err;
}

void gw_attach_stop(struct gw_attach *a)
{
	a->ending = 1;
}

void gw_attach_free(struct gw_attach *a)
{
	if (!a)
		return;
	gw_server_free(a->server);
	if (a->group) {
		a->group->dead = 1;
		gw_attach_group_try_free(a->group);
	}
	gw_engine_free(a->engine);
	free(a->actions.v);
	free(a->events);
	free(a->notes);
	free(a);
}

static int can_stage(struct gw_attach *a, const struct gw_attach_patch *p, struct gw_diag *why)
{
	enum gw_engine_state s = gw_engine_state(a->engine);
	uint64_t base = gw_engine_staged(a->engine);

	if (s == GW_ENGINE_DETACHED || (s == GW_ENGINE_PROVING && gw_engine_served(a->engine) == GW_VERSION_NONE))
		return gw_diag_set(why, GW_ENOTREADY, "no engine is attached and proven; start it, then try again");
	if (s == GW_ENGINE_POISONED && !p->anchor)
		return gw_diag_set(why, GW_EPOISONED, "the engine is poisoned (%s); only an anchor can cure it", a->last_error);
	if (s != GW_ENGINE_SERVING && s != GW_ENGINE_STAGED && s != GW_ENGINE_POISONED)
		return gw_diag_set(why, GW_EAGAIN, "the engine is %s; try again", gw_engine_state_text(s));
	if (base == GW_VERSION_NONE)
		base = gw_engine_served(a->engine);
	if (!p->anchor && p->from != base)
		return gw_diag_set(why, GW_EBASE, "the patch is from version %llu, the engine %s version %llu",
				   (unsigned long long)p->from, s == GW_ENGINE_STAGED ? "has staged" : "serves",
				   (unsigned long long)base);
	if (p->to == gw_engine_served(a->engine) || p->to == GW_VERSION_NONE)
		return gw_diag_set(why, GW_EINVAL, "version %llu is served already", (unsigned long long)p->to);
	return 0;
}

int gw_attach_stage(struct gw_attach *a, struct gw_attach_patch *p, int commit, struct gw_diag *why)
{
	struct gw_engine_event ev = {.kind = GW_EE_STAGE, .version = p->to, .anchor = p->anchor};
	int err = can_stage(a, p, why);

	assert(!a->running);
	if (!err) {
		a->patch = p;
		err = gw_attach_feed(a, &ev);
		if (err) /* proving: the machine says no although its state would allow it */
			gw_diag_set(why, err = GW_EAGAIN, "the engine's weights are being proven; try again");
	}
	if (err) {
		a->patch = NULL;
		p->release(p);
		return err;
	}
	return commit ? gw_attach_commit(a, why) : 0;
}

int gw_attach_commit(struct gw_attach *a, struct gw_diag *why)
{
	struct gw_engine_event ev = {.kind = GW_EE_COMMIT};

	return gw_attach_feed(a, &ev) ? gw_diag_set(why, GW_EAGAIN, "nothing is staged, or it is being committed") : 0;
}

int gw_attach_scrub(struct gw_attach *a, struct gw_diag *why)
{
	struct gw_engine_event ev = {.kind = GW_EE_SCRUB};

	if (gw_attach_feed(a, &ev))
		return gw_diag_set(why, GW_EAGAIN, "the engine is %s; it can be proven again while serving",
				   gw_engine_state_text(gw_engine_state(a->engine)));
	a->scrubbing = 1;
	return 0;
}

void gw_attach_status(const struct gw_attach *a, struct gw_attach_status *s)
{
	const struct gw_attach_group *g = a->group;

	memset(s, 0, sizeof *s);
	s->state = gw_engine_state(a->engine);
	s->served = gw_engine_served(a->engine);
	s->staged = gw_engine_staged(a->engine);
	s->ranks = gw_engine_ranks(a->engine);
	s->ranks_wanted = gw_engine_ranks_wanted(a->engine);
	s->last_apply_ns = a->last_apply_ns;
	s->last_pause_ns = a->last_pause_ns;
	s->last_records = a->last_records;
	memcpy(s->last_error, a->last_error, sizeof s->last_error);
	if (!g)
		return;
	s->proven = g->proven;
	s->opaque = g->opaque;
	if (g->table)
		memcpy(s->run, gw_table_run(g->table), 16);
	for (uint32_t i = 0; i < g->ranks; i++)
		if (g->conns[i]) {
			const struct gw_decl_info *d = gw_decl_info(g->conns[i]->decl);

			snprintf(s->engine, sizeof s->engine, "%s %s", d->engine, d->engine_version);
			break;
		}
}
