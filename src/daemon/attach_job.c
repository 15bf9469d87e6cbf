#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/attach_inside.h"
#include "engine/stage.h"

/* --- proving --- */

struct prove_job {
	struct gw_job job;
	struct gw_attach_group *g;
	uint64_t key;
	struct gw_table **tables; /* to be tried in this order; held */
	size_t n, cap, match;
	struct gw_refusal no;
};

static int add_table(struct prove_job *j, struct gw_table *t)
{
	if (j->n == j->cap) {
		size_t cap = j->cap ? j->cap * 2 : 8;
		struct gw_table **v = reallocarray(j->tables, cap, sizeof(*v));

		if (!v) {
			gw_table_free(t);
			return GW_ENOMEM;
		}
		j->tables = v;
		j->cap = cap;
	}
	j->tables[j->n++] = t;
	return 0;
}

/* What the weights may be: what is being committed or was served, for a version by number what the engine says of its
 * run, and where nobody says a number, all that is known. */
static int collect(struct prove_job *j, uint64_t version)
{
	static const uint8_t no_run[16];
	const struct gw_attach_hooks *h = &j->g->a->cfg.hooks;
	const struct gw_decl_info *d = gw_decl_info(j->g->conns[0]->decl);
	const struct gw_attach_staged *s = j->g->staged;
	struct gw_table *t;
	int err = 0;

	if (version != GW_VERSION_NONE && s && s->to == version)
		return add_table(j, gw_table_hold(s->table));
	if (version != GW_VERSION_NONE && j->g->table && gw_table_version(j->g->table) == version)
		return add_table(j, gw_table_hold(j->g->table));
	if (version != GW_VERSION_NONE) {
		t = h->find(h->ctx, memcmp(d->run, no_run, 16) ? d->run : NULL, version);
		return t ? add_table(j, t) : 0;
	}
	for (uint32_t i = 0; !err && (t = h->at(h->ctx, i)); i++)
		err = add_table(j, t);
	return err;
}

struct finding {
	struct gw_attach_group *g;
	struct gw_refusal *no;
};

static void find_first(void *arg, const void *p, uint64_t n)
{
	struct finding *f = arg;

	gw_proof_find(f->g->plan, f->g->mem, p, n, f->no);
}

static int compare(struct prove_job *j, const uint64_t *prints)
{
	const struct gw_attach_hooks *h = &j->g->a->cfg.hooks;
	struct finding f = {.g = j->g, .no = &j->no};

	for (size_t i = 0; i < j->n; i++) {
		struct gw_refusal no = {0};

		if (gw_proof_compare(j->g->plan, j->tables[i], prints, &no) == 0) {
			j->match = i;
			memset(&j->no, 0, sizeof j->no);
			return 0;
		}
		if (i == 0)
			j->no = no;
	}
	if (j->n == 0)
		return gw_refuse(&j->no, GW_ENOENT, NULL, "this daemon does not know the version that the weights are said to be");
	if (j->no.err == GW_EFINGERPRINT && h->bits)
		h->bits(h->ctx, j->tables[0], j->no.tensor, find_first, &f);
	return j->no.err;
}

static int make_plan(struct gw_attach_group *g, struct gw_refusal *no)
{
	const struct gw_decl **decls;
	int err;

	if (g->plan)
		return 0;
	decls = calloc(g->ranks, sizeof(*decls));
	if (!decls)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < g->ranks; i++)
		decls[i] = g->conns[i]->decl;
	err = gw_plan_new(&g->plan, decls, g->ranks, no);
	free(decls);
	return err;
}

static int prove_work(struct gw_job *job, unsigned worker)
{
	struct prove_job *j = (struct prove_job *)job;
	uint64_t *prints;
	int err = make_plan(j->g, &j->no);

	(void)worker;
	if (err)
		return err;
	prints = calloc((size_t)gw_plan_tensors(j->g->plan) * 2 + 1, sizeof *prints);
	if (!prints)
		return GW_ENOMEM;
	err = gw_proof_sum(j->g->plan, j->g->mem, j->g->a->pool, prints, &j->no);
	if (!err)
		err = compare(j, prints);
	free(prints);
	return err;
}

static void count_tensors(struct gw_attach_group *g)
{
	g->proven = g->opaque = 0;
	for (uint32_t i = 0; i < gw_table_rows(g->table); i++) {
		const struct gw_plan_tensor *t = gw_plan_find(g->plan, gw_table_row(g->table, i)->name);

		if (t && t->opaque == GW_OPAQUE_NONE)
			g->proven++;
		else if (!t || t->opaque != GW_OPAQUE_UNUSED)
			g->opaque++;
	}
}

static void job_over(struct gw_attach_group *g)
{
	g->jobs--;
	gw_attach_group_try_free(g);
}

static void prove_done(struct gw_job *job, int err)
{
	struct prove_job *j = (struct prove_job *)job;
	struct gw_attach_group *g = j->g;
	struct gw_attach *a = g->a;
	struct gw_engine_event ev = {.kind = GW_EE_PROVED, .key = j->key, .err = err};
	int scrubbed = a->scrubbing && !g->dead;

	if (!err) {
		gw_table_free(g->table);
		g->table = gw_table_hold(j->tables[j->match]);
		ev.version = gw_table_version(g->table);
		count_tensors(g);
	}
	g->no = j->no;
	if (scrubbed)
		a->scrubbing = 0;
	if (!g->dead)
		(void)gw_attach_feed(a, &ev);
	if (scrubbed && a->cfg.hooks.scrubbed)
		a->cfg.hooks.scrubbed(a->cfg.hooks.ctx, err, err ? j->no.err ? j->no.why.text : gw_err_text(err) : "");
	for (size_t i = 0; i < j->n; i++)
		gw_table_free(j->tables[i]);
	free(j->tables);
	free(j);
	job_over(g);
}

int gw_attach_job_prove(struct gw_attach_group *g, uint64_t key, uint64_t version)
{
	struct prove_job *j = calloc(1, sizeof *j);
	int err;

	if (!j)
		return GW_ENOMEM;
	j->job = (struct gw_job){.work = prove_work, .done = prove_done};
	j->g = g;
	j->key = key;
	err = collect(j, version);
	if (!err)
		err = gw_workers_submit(g->a->workers, &j->job);
	if (err) {
		for (size_t i = 0; i < j->n; i++)
			gw_table_free(j->tables[i]);
		free(j->tables);
		free(j);
		return err;
	}
	g->jobs++;
	return 0;
}

/* --- staging --- */

struct stage_job {
	struct gw_job job;
	struct gw_attach_group *g;
	uint64_t key;
	struct gw_attach_patch *patch;
	struct gw_attach_staged *made;
	struct gw_refusal no;
	int unknown;
};

static int make_page(struct gw_attach_staged *s)
{
	int err = gw_memfd_new("godwit-commit", &s->page_fd);

	if (err) {
		s->page_fd = -1;
		return err;
	}
	err = gw_memfd_resize(s->page_fd, GW_COMMIT_PAGE_BYTES);
	if (!err)
		err = gw_memfd_seal(s->page_fd, GW_SEAL_SIZE);
	if (!err)
		err = gw_shm_map(s->page_fd, GW_COMMIT_PAGE_BYTES, 1, &s->page);
	return err ? err : gw_commit_init(s->page.p, s->run, s->from, s->to, s->ranks);
}

static int make_lists(struct stage_job *j, const struct gw_patch *pt)
{
	struct gw_attach_staged *s = j->made;
	const struct gw_attach_staged *over = j->unknown ? NULL : j->g->staged;
	struct gw_list_mem *mem = calloc(s->ranks, sizeof *mem);
	struct gw_stage st = {.plan = j->g->plan, .ranks = j->g->mem, .pool = j->g->a->pool, .patch = pt, .run = s->run,
			      .from = s->from, .to = s->to, .list_max_bytes = j->g->a->cfg.list_max_bytes,
			      .unknown = j->unknown, .lists = s->lists, .mem = mem,
			      .base = over ? over->table : j->g->table, .over = over ? over->lists : NULL};
	int err = mem ? 0 : GW_ENOMEM;

	for (uint32_t i = 0; !err && i < s->ranks; i++) {
		err = gw_memfd_grow_init(&s->grow[i], "godwit-list", st.list_max_bytes);
		if (!err)
			mem[i] = gw_memfd_list_mem(&s->grow[i]);
	}
	if (!err)
		err = gw_stage_run(&st, &j->no);
	free(mem);
	s->table = st.table;
	s->records = st.records;
	for (uint32_t i = 0; !err && i < s->ranks; i++) {
		err = gw_memfd_grow_seal(&s->grow[i], s->lists[i]->bytes);
		s->lists[i] = (const struct gw_list_header *)s->grow[i].p;
	}
	return err;
}

static int stage_work(struct gw_job *job, unsigned worker)
{
	struct stage_job *j = (struct stage_job *)job;
	const struct gw_attach_hooks *h = &j->g->a->cfg.hooks;
	struct gw_diag why = {""};
	struct gw_patch_info info;
	struct gw_patch *pt;
	int err = gw_patch_open(&pt, j->patch->p, j->patch->n, &why);

	(void)worker;
	if (!err) {
		gw_patch_info(pt, &info);
		if (info.anchor != j->patch->anchor)
			err = gw_diag_set(&why, GW_EINVAL, "the patch is %s", info.anchor ? "an anchor" : "not an anchor");
		else
			err = make_lists(j, pt);
		gw_patch_close(pt);
	}
	if (j->patch->check && j->patch->check(j->patch))
		err = gw_diag_set(&why, GW_ESHRUNK, "the patch file shrank while it was read");
	if (!err)
		err = make_page(j->made);
	if (!err)
		err = h->keep(h->ctx, j->made->table, &why);
	if (err)
		gw_refuse(&j->no, err, NULL, "%s", why.text[0] ? why.text : gw_err_text(err));
	return err;
}

static void stage_done(struct gw_job *job, int err)
{
	struct stage_job *j = (struct stage_job *)job;
	struct gw_attach_group *g = j->g;
	struct gw_engine_event ev = {.kind = GW_EE_LISTED, .key = j->key, .err = err};

	j->patch->release(j->patch);
	g->no = j->no;
	if (err || g->dead) {
		gw_attach_staged_free(j->made);
	} else {
		gw_attach_staged_free(g->staged);
		g->staged = j->made;
	}
	if (!g->dead)
		(void)gw_attach_feed(g->a, &ev);
	free(j);
	job_over(g);
}

int gw_attach_job_stage(struct gw_attach_group *g, uint64_t key, struct gw_attach_patch *patch)
{
	struct stage_job *j = calloc(1, sizeof *j);
	struct gw_attach_staged *s = calloc(1, sizeof *s);
	int err = GW_ENOMEM;

	if (!j || !s)
		goto err0;
	s->page_fd = -1;
	s->ranks = g->ranks;
	memcpy(s->run, patch->run, 16);
	s->from = gw_engine_served(g->a->engine);
	s->to = patch->to;
	s->grow = calloc(g->ranks, sizeof *s->grow);
	s->lists = calloc(g->ranks, sizeof(*s->lists));
	if (!s->grow || !s->lists)
		goto err0;
	for (uint32_t i = 0; i < g->ranks; i++)
		s->grow[i].fd = -1;
	*j = (struct stage_job){.job = {.work = stage_work, .done = stage_done}, .g = g, .key = key, .patch = patch,
				.made = s, .unknown = s->from == GW_VERSION_NONE};
	err = gw_workers_submit(g->a->workers, &j->job);
	if (err)
		goto err0;
	g->jobs++;
	return 0;
err0:
	gw_attach_staged_free(s);
	free(j);
	return err;
}

/* --- check, write, undo --- */

struct op_job {
	struct gw_job job;
	struct gw_attach_conn *c;
	enum gw_engine_op op;
	struct gw_list_header *list;
	struct gw_list_found found;
};

static int op_work(struct gw_job *job, unsigned worker)
{
	struct op_job *j = (struct op_job *)job;
	const struct gw_rank_mem *m = &j->c->group->mem[j->c->rank];
	/* All cores for the pause: the lists of several ranks take turns on the pool. */
	struct gw_device dev = gw_device_cpu_pool(j->c->a->pool);

	(void)worker;
	return gw_op_run(j->op, j->list, &dev, m->mem, m->segments, &j->found);
}

static void op_done(struct gw_job *job, int err)
{
	struct op_job *j = (struct op_job *)job;
	struct gw_attach_conn *c = j->c;
	struct gw_attach_group *g = c->group;
	struct gw_engine_event ev = {.kind = GW_EE_DID, .rank = c->rank, .op = j->op, .err = err, .found = j->found};

	c->ops--;
	if (c->down) /* it went away meanwhile: what the work found does not matter any more */
		ev.kind = GW_EE_RANK_DOWN;
	else if (!err)
		gw_attach_note_found(c, j->op, &j->found);
	free(j);
	if (!g->dead)
		(void)gw_attach_feed(g->a, &ev);
	job_over(g);
}

int gw_attach_job_op(struct gw_attach_conn *c, enum gw_engine_op op)
{
	struct gw_attach_group *g = c->group;
	struct op_job *j = calloc(1, sizeof *j);
	int err;

	if (!j)
		return GW_ENOMEM;
	*j = (struct op_job){.job = {.work = op_work, .done = op_done}, .c = c, .op = op,
			     .list = (struct gw_list_header *)g->staged->grow[c->rank].p};
	err = gw_workers_submit(g->a->workers, &j->job);
	if (err) {
		free(j);
		return err;
	}
	g->jobs++;
	c->ops++;
	return 0;
}
