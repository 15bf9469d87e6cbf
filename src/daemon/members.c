#include "daemon/members.h"

#include <stdlib.h>

#include "daemon/core.h"

static const struct gw_roster *roster(const struct gw_core *c)
{
	return gw_mesh_roster(gw_node_mesh(c->node));
}

static void digest_of(const struct gw_bytes *v, size_t n, struct gw_wr *w, struct gw_digest *out)
{
	for (size_t i = 0; i < n; i++) {
		struct gw_digest one;

		gw_digest_of(v[i].p, v[i].n, &one);
		gw_wr_bytes(w, one.b, sizeof one.b);
	}
	gw_digest_of(w->p, w->n, out);
}

static int keep_these(struct gw_core *c, const struct gw_bytes *v, size_t n, struct gw_diag *why)
{
	struct gw_digest all;
	struct gw_wr w;
	int err;

	gw_wr_init(&w, (GW_MEMBERS_KEPT + GW_IDENTITY_STATES) * sizeof all.b);
	digest_of(v, n, &w, &all);
	err = w.err;
	gw_wr_free(&w);
	if (!err && gw_digest_equal(&all, &c->members.file))
		return 0;
	if (!err)
		err = gw_identity_save_members(c->fs, c->cfg, v, n, why);
	if (!err)
		c->members.file = all;
	return err;
}

/* The records as the file has them: an empty one between two kinds. */
static size_t with_marks(struct gw_member_record *const *v, struct gw_mesh_kinds k, struct gw_bytes *out)
{
	const size_t of[GW_IDENTITY_STATES] = {k.in, k.dead, k.left};
	size_t n = 0, at = 0;

	for (int i = 0; i < GW_IDENTITY_STATES; i++) {
		if (i)
			out[n++] = (struct gw_bytes){NULL, 0};
		for (size_t j = 0; j < of[i]; j++)
			out[n++] = v[at++]->raw;
	}
	return n;
}

int gw_members_keep(struct gw_core *c, struct gw_diag *why)
{
	struct gw_member_record **v = calloc(GW_MEMBERS_KEPT, sizeof *v);
	struct gw_bytes *raw = calloc(GW_MEMBERS_KEPT + GW_IDENTITY_STATES, sizeof *raw);
	uint64_t table = roster(c)->digest;
	int err = v && raw ? 0 : GW_ENOMEM;

	if (!err) {
		struct gw_mesh_kinds k = gw_mesh_known(gw_node_mesh(c->node), v, GW_MEMBERS_KEPT);

		c->members.n = k.in + k.dead + k.left;
		if (c->members.n)
			err = keep_these(c, raw, with_marks(v, k, raw), why);
	}
	c->members.kept_ns = gw_loop_now_ns(c->loop);
	if (!err)
		c->members.table = table;
	free(v);
	free(raw);
	return err;
}

static void fire(void *ctx)
{
	struct gw_core *c = ctx;

	(void)gw_members_keep(c, NULL);
	gw_members_look(c);
}

void gw_members_begin(struct gw_core *c)
{
	c->members.timer.fire = fire;
	c->members.timer.ctx = c;
}

void gw_members_look(struct gw_core *c)
{
	struct gw_members *m = &c->members;

	/* Without memory for the timer the next step sets it. */
	if (m->timer.fire && !m->timer.node && roster(c)->digest != m->table)
		(void)gw_timer_set(c->loop, &m->timer, m->kept_ns ? gw_mesh_keep_at(m->kept_ns, m->n) : 0);
}

void gw_members_end(struct gw_core *c)
{
	if (!c->members.timer.fire)
		return;
	gw_timer_stop(c->loop, &c->members.timer);
	c->members.timer.fire = NULL;
	(void)gw_members_keep(c, NULL);
}
