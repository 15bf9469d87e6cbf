#include "daemon/island.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/publish.h"
#include "board/board.h"
#include "daemon/attach.h"
#include "daemon/core.h"
#include "daemon/engine_requests.h"
#include "daemon/versions.h"
#include "io/os/clock.h"
#include "patch/disk.h"

#define RETRY_NS 100000000ull

/* An object in use: mapped, and held so that it cannot be dropped meanwhile. */
struct held {
	struct gw_attach_patch patch; /* first: attach gives it back */
	struct gw_island *island;
	struct gw_object *object;
	struct gw_object_view view;
	struct gw_digest id;
	char policy[GW_POLICY_NAME_MAX + 1];
};

/* Makes an anchor's folder and table, on a worker. */
struct build {
	struct gw_job job;
	struct gw_island *island;
	struct held *held;
	struct gw_diag why;
};

struct gw_island {
	struct gw_core *core;
	struct gw_versions *versions;
	struct gw_attach *attach;
	struct build *building;
	struct held *staging;        /* being read by attach */
	struct gw_digest asked;      /* what attach was asked to bring into service, until it tells the outcome */
	int has_asked;
	struct gw_digest again;      /* a PATH to take up again, */
	uint64_t again_version;      /* … to this version */
	int has_again;
	struct gw_timer retry;
	uint8_t served_run[GW_RUN_BYTES];
	uint64_t served;
	char error[256];             /* of building; attach keeps its own */
};

/* --- objects in use --- */

static void let_go(struct held *h)
{
	struct gw_core *c = h->island->core;

	if (h->view.object)
		(void)gw_object_unmap(&h->view);
	gw_objects_put(c->objects, h->object);
	free(h);
}

static struct held *hold(struct gw_island *i, const struct gw_digest *id)
{
	const struct gw_manifest *m = gw_board_manifest(gw_node_board(i->core->node), id, NULL);
	struct held *h = m ? calloc(1, sizeof *h) : NULL;

	if (!h)
		return NULL;
	h->island = i;
	h->id = *id;
	h->object = gw_objects_get(i->core->objects, id);
	if (!h->object) {
		free(h);
		return NULL;
	}
	if (gw_object_map(h->object, &h->view)) {
		h->view.object = NULL;
		let_go(h);
		return NULL;
	}
	(void)snprintf(h->policy, sizeof h->policy, "%s", m->policy);
	h->patch.p = h->view.payload;
	h->patch.n = h->view.payload_bytes;
	memcpy(h->patch.run, m->run, sizeof h->patch.run);
	h->patch.from = m->from;
	h->patch.to = m->to;
	h->patch.anchor = m->kind == GW_KIND_ANCHOR;
	return h;
}

static void put_stage_failed(struct gw_island *i, const struct gw_digest *id, int err)
{
	struct gw_event ev = {.kind = GW_EV_STAGE_FAILED, .object = *id, .err = err};

	gw_core_put(i->core, &ev);
}

/* --- anchors: a folder that engines start from --- */

static char *policy_dir(const struct gw_island *i, const char *policy)
{
	char *all = gw_path_join(i->core->cfg->host_state, "checkpoints"), *dir = all ? gw_path_join(all, policy) : NULL;

	free(all);
	return dir;
}

static char *version_dir(const struct gw_island *i, const char *policy, uint64_t version)
{
	char *dir = policy_dir(i, policy), leaf[32], *path;

	(void)snprintf(leaf, sizeof leaf, "%llu", (unsigned long long)version);
	path = dir ? gw_path_join(dir, leaf) : NULL;
	free(dir);
	return path;
}

static int make_parents(struct gw_island *i, const char *policy)
{
	char *all = gw_path_join(i->core->cfg->host_state, "checkpoints"), *dir = policy_dir(i, policy);
	int err = all && dir ? gw_fs_mkdir(i->core->fs, all) : GW_ENOMEM;

	if (!err || err == GW_EEXIST)
		err = gw_fs_mkdir(i->core->fs, dir);
	free(all);
	free(dir);
	return err == GW_EEXIST ? 0 : err;
}

static int set_current(struct gw_island *i, const char *policy, uint64_t version, struct gw_diag *why)
{
	char *dir = policy_dir(i, policy), *link = dir ? gw_path_join(dir, "CURRENT") : NULL, target[32];
	int err = GW_ENOMEM;

	(void)snprintf(target, sizeof target, "%llu", (unsigned long long)version);
	if (link)
		err = gw_publish_link(i->core->fs, target, link, why);
	free(dir);
	free(link);
	return err;
}

struct sweep {
	struct gw_island *island;
	char *dir, keep[32];
};

static int sweep_version(void *ctx, const char *name)
{
	struct sweep *s = ctx;
	char *path;

	if (!strcmp(name, s->keep) || !strcmp(name, "CURRENT"))
		return 0;
	path = gw_path_join(s->dir, name);
	if (path)
		(void)gw_publish_remove(s->island->core->fs, path);
	free(path);
	return 0;
}

static void sweep_old(struct gw_island *i, const char *policy, uint64_t version)
{
	struct sweep s = {.island = i, .dir = policy_dir(i, policy)};

	(void)snprintf(s.keep, sizeof s.keep, "%llu", (unsigned long long)version);
	if (s.dir)
		(void)gw_fs_list(i->core->fs, s.dir, sweep_version, &s);
	free(s.dir);
}

static int build_folder(struct build *b, const struct gw_patch *pt)
{
	struct gw_island *i = b->island;
	struct held *h = b->held;
	char *path = version_dir(i, h->policy, h->patch.to);
	struct gw_stat st;
	int err = path ? make_parents(i, h->policy) : GW_ENOMEM;

	if (!err && gw_fs_stat(i->core->fs, path, &st) == GW_ENOENT)
		err = gw_disk_apply(pt, NULL, i->core->fs, &i->core->pool, path, NULL, &b->why);
	if (!err)
		err = set_current(i, h->policy, h->patch.to, &b->why);
	if (!err)
		sweep_old(i, h->policy, h->patch.to);
	free(path);
	return err;
}

static int build_work(struct gw_job *job, unsigned worker)
{
	struct build *b = (struct build *)(void *)job;
	struct held *h = b->held;
	struct gw_patch *pt = NULL;
	struct gw_table *table = NULL;
	int err = gw_patch_open(&pt, h->patch.p, h->patch.n, &b->why);

	(void)worker;
	if (!err)
		err = gw_table_patched(NULL, pt, h->patch.run, h->patch.to, &table, &b->why);
	/* Known before the folder shows, since an engine may start from it at once. */
	if (!err)
		err = gw_versions_keep(b->island->versions, table, &b->why);
	if (!err)
		err = build_folder(b, pt);
	gw_table_free(table);
	gw_patch_close(pt);
	if (gw_object_view_check(&h->view) && !err)
		err = GW_ESHRUNK;
	return err;
}

static void stage(struct gw_island *i, struct held *h);

static void build_done(struct gw_job *job, int err)
{
	struct build *b = (struct build *)(void *)job;
	struct gw_island *i = b->island;
	struct gw_attach_status st;
	struct held *h = b->held;
	char version[24];

	i->building = NULL;
	i->error[0] = 0;
	if (err) {
		(void)snprintf(i->error, sizeof i->error, "anchor %llu: %.200s", (unsigned long long)h->patch.to,
			       b->why.text[0] ? b->why.text : gw_err_text(err));
		GW_LOG(GW_LOG_ERR, "an anchor cannot be written", "error", i->error, NULL);
		put_stage_failed(i, &h->id, err);
		let_go(h);
	} else {
		(void)snprintf(version, sizeof version, "%llu", (unsigned long long)h->patch.to);
		GW_LOG(GW_LOG_NOTICE, "a checkpoint is ready for engines", "policy", h->policy, "version", version, NULL);
		/* An engine that is there already takes it in memory; one that comes loads the folder. */
		gw_attach_status(i->attach, &st);
		if (st.ranks)
			stage(i, h);
		else
			let_go(h);
	}
	free(b);
}

static void build(struct gw_island *i, struct held *h)
{
	struct build *b = calloc(1, sizeof *b);

	if (b) {
		b->job.work = build_work;
		b->job.done = build_done;
		b->island = i;
		b->held = h;
	}
	if (!b || gw_workers_submit(i->core->workers, &b->job)) {
		free(b);
		put_stage_failed(i, &h->id, GW_EAGAIN);
		let_go(h);
		return;
	}
	i->building = b;
}

/* --- transitions: into memory --- */

static void later(struct gw_island *i, const struct gw_digest *id, uint64_t version)
{
	i->again = *id;
	i->again_version = version;
	i->has_again = 1;
	(void)gw_timer_set(i->core->loop, &i->retry, gw_loop_now_ns(i->core->loop) + RETRY_NS);
}

static void retry(void *ctx)
{
	struct gw_island *i = ctx;

	if (i->has_again) {
		i->has_again = 0;
		gw_island_path(i, &i->again, i->again_version);
	}
}

static int patch_check(struct gw_attach_patch *p)
{
	return gw_object_view_check(&((struct held *)(void *)p)->view);
}

static void patch_release(struct gw_attach_patch *p)
{
	struct held *h = (struct held *)(void *)p;

	if (h->island->staging == h)
		h->island->staging = NULL;
	let_go(h);
}

static void stage(struct gw_island *i, struct held *h)
{
	struct gw_diag why = {""};
	struct gw_digest id = h->id;
	uint64_t to = h->patch.to;
	int err;

	h->patch.check = patch_check;
	h->patch.release = patch_release;
	i->staging = h;
	i->asked = id;
	i->has_asked = 1;
	err = gw_attach_stage(i->attach, &h->patch, 1, &why);
	if (!err)
		return;
	i->has_asked = 0;
	/* Released by now. Without an engine there is nothing to do: PATH comes again with what it will serve. */
	if (err == GW_EAGAIN)
		later(i, &id, to);
	else if (err != GW_ENOTREADY) {
		GW_LOG(GW_LOG_ERR, "a version cannot be staged", "error", why.text[0] ? why.text : gw_err_text(err), NULL);
		put_stage_failed(i, &id, err);
	}
}

void gw_island_path(struct gw_island *i, const struct gw_digest *object, uint64_t version)
{
	const struct gw_manifest *m = gw_board_manifest(gw_node_board(i->core->node), object, NULL);
	struct held *h;
	int anchor;

	if (!m || !i->core->cfg->serve_policy[0] || strcmp(m->policy, i->core->cfg->serve_policy))
		return; /* this host relays it */
	if (i->building || i->staging) {
		later(i, object, version);
		return;
	}
	anchor = m->kind == GW_KIND_ANCHOR;
	h = hold(i, object);
	if (!h)
		later(i, object, version);
	else if (anchor)
		build(i, h);
	else
		stage(i, h);
}

/* --- what attach asks and tells --- */

static struct gw_table *hook_find(void *ctx, const uint8_t run[16], uint64_t version)
{
	struct gw_island *i = ctx;

	return gw_versions_find(i->versions, run, version);
}

static struct gw_table *hook_at(void *ctx, uint32_t n)
{
	struct gw_island *i = ctx;

	return gw_versions_at(i->versions, n);
}

static int hook_keep(void *ctx, struct gw_table *t, struct gw_diag *why)
{
	struct gw_island *i = ctx;

	return gw_versions_keep(i->versions, t, why);
}

/* The folder of that version, where this host has it. */
static void hook_bits(void *ctx, const struct gw_table *t, const char *tensor,
		      void (*each)(void *arg, const void *p, uint64_t n), void *arg)
{
	struct gw_island *i = ctx;
	char *path = version_dir(i, i->core->cfg->serve_policy, gw_table_version(t));
	struct gw_checkpoint *c = NULL;
	const struct gw_tensor *x;

	if (path && !gw_checkpoint_open(&c, i->core->fs, path, NULL)) {
		x = gw_checkpoint_find(c, tensor);
		if (x)
			each(arg, x->p, x->bytes);
	}
	gw_checkpoint_close(c);
	free(path);
}

static void hook_served(void *ctx, const uint8_t run[16], uint64_t version)
{
	struct gw_island *i = ctx;
	struct gw_event ev = {.kind = GW_EV_SERVED, .run = run, .version = version};
	char text[24];

	memcpy(i->served_run, run, sizeof i->served_run);
	i->served = version;
	i->has_asked = 0;
	(void)snprintf(text, sizeof text, "%llu", (unsigned long long)version);
	GW_LOG(GW_LOG_NOTICE, "engine serves", "version", text, NULL);
	gw_engine_requests_served(i->core->engine_requests, version);
	gw_island_report(i);
	gw_core_put(i->core, &ev);
}

static void hook_failed(void *ctx, uint64_t version, int err, const char *text)
{
	struct gw_island *i = ctx;
	char number[24];

	(void)snprintf(number, sizeof number, "%llu", (unsigned long long)version);
	GW_LOG(GW_LOG_ERR, "a version did not come into service", "version", number, "error", text, NULL);
	gw_engine_requests_failed(i->core->engine_requests, version, err, text);
	/* An engine that went away is no fault of the step: it is taken up again when one is there. */
	if (i->has_asked && err != GW_ECLOSED)
		put_stage_failed(i, &i->asked, err);
	i->has_asked = 0;
	gw_island_report(i);
}

static void hook_staged(void *ctx, uint64_t version)
{
	struct gw_island *i = ctx;

	gw_engine_requests_staged(i->core->engine_requests, version);
	gw_island_report(i);
}

static void hook_changed(void *ctx)
{
	struct gw_island *i = ctx;
	struct gw_attach_status st;
	struct gw_event ev = {.kind = GW_EV_SERVED, .run = i->served_run, .version = GW_BOARD_NO_VERSION};

	gw_attach_status(i->attach, &st);
	gw_engine_requests_changed(i->core->engine_requests, st.state);
	if (st.state == GW_ENGINE_DETACHED && i->served != GW_VERSION_NONE) {
		i->served = GW_VERSION_NONE;
		GW_LOG(GW_LOG_NOTICE, "engine is gone", NULL);
		gw_core_put(i->core, &ev);
	}
	gw_island_report(i);
}

static void hook_scrubbed(void *ctx, int err, const char *text)
{
	gw_engine_requests_scrubbed(((struct gw_island *)ctx)->core->engine_requests, err, text);
	if (err)
		GW_LOG(GW_LOG_ERR, "resident weights are not what they should be", "error", text, NULL);
}

/* --- what this host says about itself --- */

static struct gw_text text_of(const char *s, size_t max)
{
	size_t n = strlen(s);

	return (struct gw_text){s, n < max ? n : max};
}

static void report_served(struct gw_island *i)
{
	struct gw_r_host_status s = {.staged = -1};
	struct gw_attach_status st;

	gw_attach_status(i->attach, &st);
	s.policy = text_of(i->core->cfg->serve_policy, 64);
	s.engine = text_of(st.engine, 64);
	s.ranks = st.ranks;
	s.staged = st.staged == GW_VERSION_NONE ? -1 : (int64_t)st.staged;
	s.last_apply_ns = st.last_apply_ns;
	s.last_pause_ns = st.last_pause_ns;
	s.last_error = text_of(st.last_error[0] ? st.last_error : i->error, 255);
	s.state = st.state == GW_ENGINE_POISONED ? GW_HOST_POISONED : GW_HOST_IDLE;
	(void)gw_node_report(i->core->node, &s);
}

void gw_island_report(struct gw_island *i)
{
	for (uint32_t k = 0; k < i->core->publisher_count; k++) {
		struct gw_r_host_status s = {.staged = -1, .state = GW_HOST_SEEDING};

		s.policy = text_of(gw_publisher_policy(i->core->publishers[k]), 64);
		(void)gw_node_report(i->core->node, &s);
	}
	if (i->core->cfg->serve_policy[0])
		report_served(i);
}

/* --- life --- */

static int attach_new(struct gw_island *i, struct gw_diag *why)
{
	struct gw_core *c = i->core;
	char *path = gw_path_join(c->cfg->host_run, "godwitd.sock");
	struct gw_attach_config cfg = {
		.path = path,
		.group = (gid_t)-1,
		.list_max_bytes = UINT64_MAX,
		.hooks = {i, hook_find, hook_at, hook_keep, hook_bits, hook_served, hook_failed, hook_staged, hook_changed,
			  hook_scrubbed},
	};
	int err = path ? 0 : GW_ENOMEM;

	gw_engine_limits_default(&cfg.limits);
	if (!err)
		err = gw_attach_new(&i->attach, c->loop, c->workers, &c->pool, &cfg, why);
	free(path);
	return err;
}

int gw_island_new(struct gw_island **out, struct gw_core *core, struct gw_diag *why)
{
	struct gw_island *i = calloc(1, sizeof *i);
	int err;

	if (!i)
		return GW_ENOMEM;
	i->core = core;
	i->served = GW_VERSION_NONE;
	i->retry.fire = retry;
	i->retry.ctx = i;
	err = gw_versions_open(&i->versions, core->fs, core->cfg->host_state, why);
	if (!err)
		err = attach_new(i, why);
	if (err) {
		gw_island_free(i);
		return err;
	}
	*out = i;
	return 0;
}

void gw_island_stop(struct gw_island *i)
{
	if (i)
		gw_attach_stop(i->attach);
}

struct gw_attach *gw_island_attach(struct gw_island *i)
{
	return i->attach;
}

void gw_island_free(struct gw_island *i)
{
	if (!i)
		return;
	gw_timer_stop(i->core->loop, &i->retry);
	gw_attach_free(i->attach);
	gw_versions_free(i->versions);
	free(i);
}
