#include "daemon/verify.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/os/clock.h"

struct job {
	struct gw_job job;
	struct gw_verify *v;
	enum gw_action_kind kind;
	gw_host host;
	uint64_t key;
	union {
		struct gw_head head;
		struct gw_manifest manifest;
		struct gw_member member;
	} u;
	struct gw_diag why;
	size_t n;
	uint8_t bytes[];
};

int gw_verify_record(const struct gw_member *m, struct gw_bytes signed_bytes, struct gw_member_record **out)
{
	struct gw_member_record from = {
		.stamp_ns = m->stamp_ns,
		.expires_ns = m->expires_ns,
		.roles = m->roles,
		.name = m->name,
		.region = m->region,
		.island = m->island,
		.raw = signed_bytes,
	};

	memcpy(from.identity, m->identity, sizeof from.identity);
	memcpy(from.curve, m->curve, sizeof from.curve);
	for (uint32_t i = 0; i < m->address_count; i++)
		from.dial |= m->addresses[i].scope == GW_SCOPE_REGION ? GW_DIAL_REGION : GW_DIAL_ANY;
	return gw_member_record_new(&from, out);
}

static int work(struct gw_job *job, unsigned worker)
{
	struct job *j = (struct job *)(void *)job;
	uint64_t now = gw_clock_wall_ns();

	(void)worker;
	if (j->kind == GW_ACT_VERIFY_HEAD)
		return gw_root_open_head(j->v->root, now, j->bytes, j->n, &j->u.head, &j->why);
	if (j->kind == GW_ACT_VERIFY_MANIFEST)
		return gw_root_open_manifest(j->v->root, j->bytes, j->n, &j->u.manifest, &j->why);
	return gw_member_open(j->v->root, now, j->bytes, j->n, &j->u.member, &j->why);
}

static const char *what(enum gw_action_kind kind)
{
	return kind == GW_ACT_VERIFY_HEAD ? "head refused" : kind == GW_ACT_VERIFY_MANIFEST ? "manifest refused"
											    : "member record refused";
}

static int answer_member(struct job *j, struct gw_event *ev)
{
	int err = gw_verify_record(&j->u.member, ev->raw, &ev->record);

	if (err)
		return err;
	if (j->v->member)
		j->v->member(j->v->member_ctx, &j->u.member);
	ev->kind = GW_EV_MEMBER_RECORD;
	j->v->sink.put(j->v->sink.ctx, ev);
	gw_member_record_unref(ev->record);
	return 0;
}

static void refuse(struct gw_verify *v, gw_host host, uint64_t key, int err)
{
	struct gw_event ev = {.kind = GW_EV_REFUSED, .host = host, .key = key, .err = err};

	v->sink.put(v->sink.ctx, &ev);
}

static int may_say(const struct gw_verify *v, enum gw_action_kind kind)
{
	return !v->quiet || gw_quiet_may_say(v->quiet, what(kind), gw_clock_mono_ns());
}

static void done(struct gw_job *job, int err)
{
	struct job *j = (struct job *)(void *)job;
	struct gw_event ev = {.host = j->host, .key = j->key, .raw = {j->bytes, j->n}};

	j->v->pending--;
	if (!err && j->kind == GW_ACT_VERIFY_MEMBER)
		err = answer_member(j, &ev);
	else if (!err && j->kind == GW_ACT_VERIFY_HEAD) {
		ev.kind = GW_EV_HEAD;
		ev.head = &j->u.head;
		j->v->sink.put(j->v->sink.ctx, &ev);
	} else if (!err) {
		ev.kind = GW_EV_MANIFEST;
		ev.manifest = &j->u.manifest;
		j->v->sink.put(j->v->sink.ctx, &ev);
	}
	if (err) {
		if (err != GW_EINTR && may_say(j->v, j->kind)) /* EINTR: the process ends */
			GW_LOG(GW_LOG_WARN, what(j->kind), "error", j->why.text[0] ? j->why.text : gw_err_text(err), NULL);
		refuse(j->v, j->host, j->key, err);
	}
	free(j);
}

void gw_verify_act(struct gw_verify *v, const struct gw_action *act)
{
	struct job *j = NULL;
	int err = GW_EAGAIN;

	assert(act->kind == GW_ACT_VERIFY_HEAD || act->kind == GW_ACT_VERIFY_MANIFEST || act->kind == GW_ACT_VERIFY_MEMBER);
	if (v->pending < GW_VERIFY_MAX) {
		j = calloc(1, sizeof *j + act->data.n);
		err = j ? 0 : GW_ENOMEM;
	}
	if (j) {
		j->job.work = work;
		j->job.done = done;
		j->v = v;
		j->kind = act->kind;
		j->host = act->host;
		j->key = act->key;
		j->n = act->data.n;
		if (j->n)
			memcpy(j->bytes, act->data.p, j->n);
		err = gw_workers_submit(v->workers, &j->job);
	}
	if (err) {
		free(j);
		refuse(v, act->host, act->key, err);
		return;
	}
	v->pending++;
}
