#include "daemon/island.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/publish.h"
#include "base/utf8.h"
#include "board/board.h"
#include "daemon/attach.h"
#include "daemon/core.h"
#include "daemon/engine_requests.h"
#include "daemon/folders.h"
#include "daemon/versions.h"
#include "weights/checkpoint.h"

#define RETRY_NS 100000000ull         /* where something else is under way */
#define RETRY_FAILED_NS 1000000000ull /* where the engine or this host failed */

/* An object in use: mapped, and held so that it cannot be dropped meanwhile. */
struct held {
	struct gw_attach_patch patch; /* first: attach gives it back */
	struct gw_island *island;
	struct gw_object *object;
	struct gw_object_view view;
	struct gw_digest id;
	char policy[GW_POLICY_NAME_MAX + 1];
};

/* Makes an anchor's folder and table, on a worker; without `held` it removes the folders of older ones. */
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
	struct gw_folders *folders;  /* NULL where this host serves no policy */
	struct build *building;      /* or sweeping */
	struct held *staging;        /* being read by attach */
	struct gw_digest step;       /* what was handed to attach last, */
	uint64_t step_version;       /* … which leads to this version; GW_VERSION_NONE: all came to an end */
	struct gw_digest again;      /* a PATH to take up again, */
	uint64_t again_version;      /* … to this version */
	int has_again;
	struct gw_timer retry;
	struct gw_digest anchor;     /* of the last PATH that began with one, … */
	uint64_t anchor_version;     /* … to this version, or GW_VERSION_NONE */
	int poisoned;
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

static int build_work(struct gw_job *job, unsigned worker)
{
	struct build *b = (struct build *)(void *)job;
	const struct held *h = b->held;
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
		err = gw_folders_make(b->island->folders, pt, h->patch.run, h->patch.to, &b->island->core->pool, &b->why);
	gw_table_free(table);
	gw_patch_close(pt);
	if (gw_object_view_check(&h->view) && !err)
		err = GW_ESHRUNK;
	return err;
}

static void stage(struct gw_island *i, struct held *h);

static void build_failed(struct gw_island *i, const struct build *b, int err)
{
	(void)snprintf(i->error, sizeof i->error, "anchor %llu: %.200s", (unsigned long long)b->held->patch.to,
		       b->why.text[0] ? b->why.text : gw_err_text(err));
	if (err != GW_EINTR) /* the process ends */
		GW_LOG(GW_LOG_ERR, "an anchor cannot be written", "error", i->error, NULL);
	put_stage_failed(i, &b->held->id, err);
}

/* An engine that is there takes the anchor in memory, one that comes loads the folder; and one that was found to serve
 * that version, or a later one of the run, while the folder was written never goes back. */
static int is_for_engine(const struct gw_island *i, const struct held *h)
{
	struct gw_attach_status st;

	gw_attach_status(i->attach, &st);
	return st.ranks && (i->served == GW_VERSION_NONE || i->served < h->patch.to ||
			    memcmp(i->served_run, h->patch.run, sizeof i->served_run));
}

static void build_done(struct gw_job *job, int err)
{
	struct build *b = (struct build *)(void *)job;
	struct gw_island *i = b->island;
	struct held *h = b->held;
	char version[24];

	i->building = NULL;
	i->error[0] = 0;
	if (err) {
		build_failed(i, b, err);
		let_go(h);
	} else {
		(void)snprintf(version, sizeof version, "%llu", (unsigned long long)h->patch.to);
		GW_LOG(GW_LOG_NOTICE, "a checkpoint is ready for engines", "policy", h->policy, "version", version, NULL);
		if (is_for_engine(i, h))
			stage(i, h);
		else
			let_go(h);
	}
	free(b);
}

static int sweep_work(struct gw_job *job, unsigned worker)
{
	(void)worker;
	gw_folders_sweep(((struct build *)(void *)job)->island->folders);
	return 0;
}

static void sweep_done(struct gw_job *job, int err)
{
	struct build *b = (struct build *)(void *)job;

	(void)err; /* what is left goes another time */
	b->island->building = NULL;
	free(b);
}

/* An engine serves, so none is reading the older folders. */
static void sweep(struct gw_island *i)
{
	struct build *b = i->building || !gw_folders_has_old(i->folders) ? NULL : calloc(1, sizeof *b);

	if (!b)
		return;
	b->job.work = sweep_work;
	b->job.done = sweep_done;
	b->island = i;
	if (gw_workers_submit(i->core->workers, &b->job))
		free(b);
	else
		i->building = b;
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

static void later(struct gw_island *i, const struct gw_digest *id, uint64_t version, uint64_t after_ns)
{
	i->again = *id;
	i->again_version = version;
	i->has_again = 1;
	(void)gw_timer_set(i->core->loop, &i->retry, gw_loop_now_ns(i->core->loop) + after_ns);
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
	i->step = id;
	i->step_version = to;
	err = gw_attach_stage(i->attach, &h->patch, 1, &why);
	if (!err)
		return;
	i->step_version = GW_VERSION_NONE;
	/* Released by now. Without an engine, or with one that came to another version meanwhile, there is nothing to do: PATH
	 * comes again with what it serves. */
	if (err == GW_EAGAIN)
		later(i, &id, to, RETRY_NS);
	else if (err != GW_ENOTREADY && err != GW_EBASE) {
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
	if (i->building || i->staging || !gw_core_heads_durable(i->core)) {
		later(i, object, version, RETRY_NS);
		return;
	}
	anchor = m->kind == GW_KIND_ANCHOR;
	if (anchor) {
		i->anchor = *object;
		i->anchor_version = version;
	}
	h = hold(i, object);
	if (!h)
		later(i, object, version, RETRY_NS);
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
	char *path = i->folders ? gw_folders_path(i->folders, gw_table_run(t), gw_table_version(t)) : NULL;
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
	if (i->step_version == version)
		i->step_version = GW_VERSION_NONE;
	if (i->folders)
		sweep(i);
	(void)snprintf(text, sizeof text, "%llu", (unsigned long long)version);
	GW_LOG(GW_LOG_NOTICE, "engine serves", "version", text, NULL);
	gw_engine_requests_served(i->core->engine_requests, version);
	gw_island_report(i);
	gw_core_put(i->core, &ev);
}

/* Its patch may have been given back already. What is not the patch's fault is tried again; the board would look for
 * another way. */
static void step_failed(struct gw_island *i, int err)
{
	struct gw_attach_status st;
	uint64_t version = i->step_version;

	i->step_version = GW_VERSION_NONE;
	gw_attach_status(i->attach, &st);
	if (st.state == GW_ENGINE_DETACHED)
		return; /* what the next engine serves decides */
	if (!gw_err_retryable(err))
		put_stage_failed(i, &i->step, err);
	else if (!i->has_again)
		later(i, &i->step, version, RETRY_FAILED_NS);
}

static void hook_failed(void *ctx, uint64_t version, int err, const char *text)
{
	struct gw_island *i = ctx;
	char number[24];

	(void)snprintf(number, sizeof number, "%llu", (unsigned long long)version);
	GW_LOG(GW_LOG_ERR, "a version did not come into service", "version", number, "error", text, NULL);
	gw_engine_requests_failed(i->core->engine_requests, version, err, text);
	if (i->step_version == version)
		step_failed(i, err);
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
	struct gw_event ev = {.kind = GW_EV_SERVED, .run = i->served_run, .version = GW_VERSION_NONE};

	gw_attach_status(i->attach, &st);
	/* One that came with weights of no version changes nothing for the board: it has said what leads to the first. */
	if (st.state == GW_ENGINE_POISONED && !i->poisoned && i->served == GW_VERSION_NONE && i->anchor_version != GW_VERSION_NONE)
		later(i, &i->anchor, i->anchor_version, RETRY_NS);
	i->poisoned = st.state == GW_ENGINE_POISONED;
	if ((st.state == GW_ENGINE_DETACHED || st.state == GW_ENGINE_POISONED) && i->served != GW_VERSION_NONE) {
		/* What a poisoned engine computes with is nothing: an anchor cures it. */
		i->served = i->step_version = GW_VERSION_NONE;
		GW_LOG(GW_LOG_NOTICE, st.state == GW_ENGINE_DETACHED ? "engine is gone" : "engine serves nothing", NULL);
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

static struct gw_text text_of(const char *s)
{
	return (struct gw_text){s, strlen(s)};
}

static void report_served(struct gw_island *i)
{
	struct gw_r_host_status s = {.staged = -1};
	struct gw_attach_status st;
	char engine[65], error[257]; /* the message's limits */

	gw_attach_status(i->attach, &st);
	(void)gw_utf8_clean(engine, sizeof engine, st.engine);
	(void)gw_utf8_clean(error, sizeof error, st.last_error[0] ? st.last_error : i->error);
	s.policy = text_of(i->core->cfg->serve_policy);
	s.engine = text_of(engine);
	s.ranks = st.ranks;
	s.staged = st.staged == GW_VERSION_NONE ? -1 : (int64_t)st.staged;
	s.last_apply_ns = st.last_apply_ns;
	s.last_pause_ns = st.last_pause_ns;
	s.last_error = text_of(error);
	s.state = st.state == GW_ENGINE_POISONED ? GW_HOST_POISONED : GW_HOST_IDLE;
	(void)gw_node_report(i->core->node, &s);
}

void gw_island_report(struct gw_island *i)
{
	for (uint32_t k = 0; k < i->core->publisher_count; k++) {
		struct gw_r_host_status s = {.staged = -1, .state = GW_HOST_SEEDING};

		s.policy = text_of(gw_publisher_policy(i->core->publishers[k]));
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
	i->served = i->step_version = i->anchor_version = GW_VERSION_NONE;
	i->retry.fire = retry;
	i->retry.ctx = i;
	err = gw_versions_open(&i->versions, core->fs, core->cfg->host_state, why);
	if (!err && core->cfg->serve_policy[0])
		err = gw_folders_open(&i->folders, core->fs, core->cfg->host_state, core->cfg->serve_policy, i->versions, why);
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
	gw_folders_free(i->folders);
	gw_versions_free(i->versions);
	free(i);
}
