#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/attach_inside.h"
#include "io/os/pidfd.h"

static const uint64_t declare_ns = 60000000000, segment_max = 1ull << 46;

/* --- ends --- */

void gw_attach_conn_free(struct gw_attach_conn *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->segment_n; i++)
		gw_shm_unmap(&c->segments[i]);
	gw_decl_free(c->decl);
	free(c->segments);
	free(c->mem);
	free(c);
}

void gw_attach_conn_refuse(struct gw_attach_conn *c, const struct gw_refusal *no)
{
	struct gw_msg m = {.type = GW_MSG_eng_refused};
	struct gw_m_eng_refused *r = &m.u.eng_refused;

	c->let_go = 1;
	if (!c->peer)
		return;
	r->err = no->err;
	r->tensor = (struct gw_text){.p = no->tensor, .n = strlen(no->tensor)};
	r->element = no->element;
	r->expected = no->expected;
	r->found = no->found;
	r->text = (struct gw_text){.p = no->why.text, .n = strlen(no->why.text)};
	(void)gw_peer_send(c->peer, &m, NULL, 0);
	gw_peer_finish(c->peer);
}

void gw_attach_conn_let_go(struct gw_attach_conn *c, const char *text)
{
	struct gw_msg m = {.type = GW_MSG_eng_bye};

	c->let_go = 1;
	if (!c->peer)
		return;
	m.u.eng_bye.text = (struct gw_text){.p = text, .n = strlen(text)};
	(void)gw_peer_send(c->peer, &m, NULL, 0);
	gw_peer_finish(c->peer);
}

static int refuse(struct gw_attach_conn *c, int err, const char *text)
{
	struct gw_refusal no = {0};

	gw_refuse(&no, err, NULL, "%s", text[0] ? text : gw_err_text(err));
	GW_LOG(GW_LOG_WARN, "engine rank refused", "why", no.why.text, NULL);
	gw_attach_conn_refuse(c, &no);
	return 0;
}

void gw_attach_conn_closed(void *ctx)
{
	struct gw_attach_conn *c = ctx;
	struct gw_attach_group *g = c->group;
	struct gw_engine_event ev = {.kind = GW_EE_RANK_DOWN, .rank = c->rank};

	c->peer = NULL;
	gw_timer_stop(c->a->loop, &c->timer);
	gw_loop_unwatch(c->pidwatch);
	c->pidwatch = NULL;
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->pidfd = -1;
	if (!g) {
		gw_attach_conn_free(c);
		return;
	}
	if (g->dead) {
		gw_attach_group_try_free(g);
		return;
	}
	if (c->let_go)
		return;
	if (c->ops) { /* the machine hears of it after what the workers found */
		c->down = 1;
		return;
	}
	(void)gw_attach_feed(c->a, &ev);
}

static void declare_late(void *ctx)
{
	refuse(ctx, GW_ETIMEOUT, "the engine did not declare itself in time");
}

/* The process is gone although its socket is not: a child holds it. */
static void process_ended(void *ctx, uint32_t events)
{
	struct gw_attach_conn *c = ctx;
	struct gw_engine_event ev = {.kind = GW_EE_RANK_DOWN, .rank = c->rank};

	(void)events;
	gw_loop_unwatch(c->pidwatch);
	c->pidwatch = NULL;
	gw_peer_finish(c->peer);
	if (c->let_go || !c->group || c->group->dead)
		return;
	c->let_go = 1;
	if (c->ops)
		c->down = 1;
	else
		(void)gw_attach_feed(c->a, &ev);
}

int gw_attach_conn_opened(void *arg, struct gw_peer *p, const struct gw_seq_peer *who, void **ctx)
{
	struct gw_attach *a = arg;
	struct gw_attach_conn *c = calloc(1, sizeof *c);
	int err;

	(void)who;
	if (!c)
		return GW_ENOMEM;
	c->a = a;
	c->peer = p;
	c->pidfd = -1;
	c->timer = (struct gw_timer){.fire = declare_late, .ctx = c};
	err = gw_decl_new(&c->decl);
	if (!err)
		err = gw_timer_set(a->loop, &c->timer, gw_loop_now_ns(a->loop) + declare_ns);
	if (err) {
		gw_attach_conn_free(c);
		return err;
	}
	/* In another PID namespace the socket's own end is the only sign. */
	if (gw_pidfd_of_peer(gw_peer_fd(p), &c->pidfd) == 0) {
		if (gw_loop_watch(a->loop, c->pidfd, EPOLLIN, process_ended, c, &c->pidwatch))
			c->pidwatch = NULL;
	} else {
		c->pidfd = -1;
	}
	*ctx = c;
	return 0;
}

/* --- declaring --- */

static int add_segment(struct gw_attach_conn *c, const struct gw_m_eng_segment *m, const int *fds, size_t nfds,
		       struct gw_diag *why)
{
	uint64_t bytes;
	int err = gw_decl_segment(c->decl, m, why);

	if (err)
		return err;
	if (nfds != 1)
		return gw_diag_set(why, GW_EINVAL, "segment %u came without its descriptor", m->id);
	err = gw_memfd_check(fds[0], GW_SEAL_SIZE, segment_max, &bytes, why);
	if (!err && bytes < m->bytes)
		err = gw_diag_set(why, GW_ETRUNC, "segment %u: the memfd has %llu of %llu bytes", m->id,
				  (unsigned long long)bytes, (unsigned long long)m->bytes);
	if (err)
		return gw_diag_wrap(why, err, "segment %u", m->id);
	if (c->segment_n == c->segment_cap) {
		uint32_t cap = c->segment_cap ? c->segment_cap * 2 : 8;
		struct gw_shm *s = reallocarray(c->segments, cap, sizeof *s);
		struct gw_dev_mem *d;

		if (s)
			c->segments = s;
		d = reallocarray(c->mem, cap, sizeof *d);
		if (d)
			c->mem = d;
		if (!s || !d)
			return GW_ENOMEM;
		c->segment_cap = cap;
	}
	err = gw_shm_map(fds[0], m->bytes, !gw_decl_info(c->decl)->in_process, &c->segments[c->segment_n]);
	if (err)
		return gw_diag_set(why, err, "segment %u: %s", m->id, gw_err_text(err));
	c->mem[c->segment_n] = (struct gw_dev_mem){.addr = (uintptr_t)c->segments[c->segment_n].p, .bytes = m->bytes};
	c->segment_n++;
	return 0;
}

static int new_group(struct gw_attach *a, const struct gw_decl_info *d)
{
	struct gw_attach_group *g = calloc(1, sizeof *g);

	if (!g)
		return GW_ENOMEM;
	g->a = a;
	g->ranks = d->ranks;
	memcpy(g->instance, d->instance, sizeof g->instance);
	g->conns = calloc(d->ranks, sizeof(*g->conns));
	g->mem = calloc(d->ranks, sizeof *g->mem);
	if (!g->conns || !g->mem) {
		free(g->conns);
		free(g->mem);
		free(g);
		return GW_ENOMEM;
	}
	a->group = g;
	return 0;
}

static int join(struct gw_attach_conn *c)
{
	const struct gw_decl_info *d = gw_decl_info(c->decl);
	struct gw_engine_event ev = {.kind = GW_EE_RANK_UP, .rank = d->rank, .ranks = d->ranks, .version = d->version,
				     .in_process = d->in_process};
	struct gw_attach *a = c->a;
	struct gw_attach_group *g;
	int err;

	if (a->group && memcmp(a->group->instance, d->instance, sizeof d->instance) != 0)
		return refuse(c, GW_EEXIST, "another engine is attached to this daemon");
	/* What was begun with the last attach is still being ended, or the rank came twice. */
	if (gw_engine_state(a->engine) != GW_ENGINE_DETACHED)
		return refuse(c, GW_EAGAIN, "the engine's last attach is not over yet");
	err = a->group ? 0 : new_group(a, d);
	if (err)
		return refuse(c, err, "");
	g = a->group;
	if (g->ranks != d->ranks)
		return refuse(c, GW_EINVAL, "the ranks do not agree on how many they are");
	if (g->conns[d->rank] && g->conns[d->rank]->peer)
		return refuse(c, GW_EEXIST, "this rank of the engine is attached already");
	gw_attach_conn_free(g->conns[d->rank]); /* of a rank that went while the others had not come yet */
	gw_timer_stop(a->loop, &c->timer);
	c->group = g;
	c->rank = d->rank;
	g->conns[d->rank] = c;
	g->mem[d->rank] = (struct gw_rank_mem){.dev = gw_device_cpu(), .mem = c->mem, .segments = c->segment_n};
	return gw_attach_feed(a, &ev);
}

static int declare(struct gw_attach_conn *c, const struct gw_msg *m, const int *fds, size_t nfds)
{
	struct gw_diag why = {""};
	int err;

	switch (m->type) {
	case GW_MSG_eng_hello: err = gw_decl_hello(c->decl, &m->u.eng_hello, &why); break;
	case GW_MSG_eng_segment: err = add_segment(c, &m->u.eng_segment, fds, nfds, &why); break;
	case GW_MSG_eng_tensors: err = gw_decl_tensors(c->decl, &m->u.eng_tensors, &why); break;
	case GW_MSG_eng_maps: err = gw_decl_maps(c->decl, &m->u.eng_maps, &why); break;
	case GW_MSG_eng_opaques: err = gw_decl_opaques(c->decl, &m->u.eng_opaques, &why); break;
	case GW_MSG_eng_attach:
		err = gw_decl_end(c->decl, &m->u.eng_attach, &why);
		return err ? refuse(c, err, why.text) : join(c);
	default: err = gw_diag_set(&why, GW_EMALFORMED, "a message that has no place before the attach");
	}
	return err ? refuse(c, err, why.text) : 0;
}

/* --- attached --- */

static void did(struct gw_attach_conn *c, const struct gw_m_eng_applied *m)
{
	struct gw_engine_event ev = {.kind = GW_EE_DID, .rank = c->rank, .op = (enum gw_engine_op)m->op,
				     .err = m->err ? GW_EDEVICE : 0};

	ev.found = (struct gw_list_found){.old_n = m->old_n, .new_n = m->new_n, .neither_n = m->neither_n,
					  .bad_segment = m->bad_segment, .bad_at = m->bad_at};
	gw_attach_note_found(c, ev.op, &ev.found);
	(void)gw_attach_feed(c->a, &ev);
}

int gw_attach_conn_message(void *ctx, const struct gw_msg *m, const int *fds, size_t nfds)
{
	struct gw_attach_conn *c = ctx;
	struct gw_engine_event ev = {.rank = c->rank};
	struct gw_msg pong = {.type = GW_MSG_eng_pong};

	if (m->type == GW_MSG_eng_bye)
		return GW_ECLOSED;
	if (m->type == GW_MSG_eng_ping) {
		pong.u.eng_pong.value = m->u.eng_ping.value;
		return gw_peer_send(c->peer, &pong, NULL, 0);
	}
	if (m->type == GW_MSG_eng_pong)
		return 0;
	if (!c->group)
		return declare(c, m, fds, nfds);
	switch (m->type) {
	case GW_MSG_eng_staged:
		ev.kind = GW_EE_TAKEN;
		ev.version = m->u.eng_staged.to;
		/* Whatever the engine side calls it, it is an error of ours to know. */
		ev.err = m->u.eng_staged.err < 0 && m->u.eng_staged.err > -1000 ? (int)m->u.eng_staged.err
										: m->u.eng_staged.err ? GW_EINVAL : 0;
		break;
	case GW_MSG_eng_paused:
		ev.kind = GW_EE_PAUSED;
		ev.version = m->u.eng_paused.to;
		break;
	case GW_MSG_eng_resumed:
		ev.kind = GW_EE_RESUMED;
		ev.version = m->u.eng_resumed.version;
		break;
	case GW_MSG_eng_applied:
		did(c, &m->u.eng_applied);
		return 0;
	default: return GW_EMALFORMED;
	}
	(void)gw_attach_feed(c->a, &ev); /* out of place: an answer to what no longer matters */
	return 0;
}
