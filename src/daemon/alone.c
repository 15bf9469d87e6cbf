#include "daemon/alone.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/publish.h"
#include "daemon/attach.h"
#include "daemon/control.h"
#include "daemon/engine_requests.h"
#include "daemon/versions.h"
#include "io/os/notify.h"
#include "io/os/pool.h"
#include "weights/checkpoint.h"

enum { JOBS_MAX = 4096 };

struct gw_alone {
	struct gw_alone_config cfg;
	struct gw_workers *workers;
	struct gw_pool pool;
	struct gw_versions *versions;
	struct gw_attach *attach;
	struct gw_control *control;
	struct gw_engine_requests *requests;
};

/* --- hooks: what the attach module asks, and what it tells --- */

static struct gw_table *hook_find(void *ctx, const uint8_t run[16], uint64_t version)
{
	return gw_versions_find(((struct gw_alone *)ctx)->versions, run, version);
}

static struct gw_table *hook_at(void *ctx, uint32_t i)
{
	return gw_versions_at(((struct gw_alone *)ctx)->versions, i);
}

static int hook_keep(void *ctx, struct gw_table *t, struct gw_diag *why)
{
	return gw_versions_keep(((struct gw_alone *)ctx)->versions, t, why);
}

/* On a worker; the configuration and the file table do not change. */
static void hook_bits(void *ctx, const struct gw_table *t, const char *tensor,
		      void (*each)(void *arg, const void *p, uint64_t n), void *arg)
{
	const struct gw_alone_config *cfg = &((struct gw_alone *)ctx)->cfg;
	const struct gw_tensor *found;
	struct gw_checkpoint *c;

	if (gw_table_version(t) != cfg->base_version || memcmp(gw_table_run(t), cfg->base_run, 16) != 0 ||
	    gw_checkpoint_open(&c, cfg->fs, cfg->base, NULL))
		return;
	found = gw_checkpoint_find(c, tensor);
	if (found)
		each(arg, found->p, found->bytes);
	gw_checkpoint_close(c);
}

static void hook_served(void *ctx, const uint8_t run[16], uint64_t version)
{
	(void)run;
	gw_engine_requests_served(((struct gw_alone *)ctx)->requests, version);
}

static void hook_staged(void *ctx, uint64_t version)
{
	gw_engine_requests_staged(((struct gw_alone *)ctx)->requests, version);
}

static void hook_failed(void *ctx, uint64_t version, int err, const char *text)
{
	gw_engine_requests_failed(((struct gw_alone *)ctx)->requests, version, err, text);
}

static void hook_scrubbed(void *ctx, int err, const char *text)
{
	gw_engine_requests_scrubbed(((struct gw_alone *)ctx)->requests, err, text);
}

static void hook_changed(void *ctx)
{
	struct gw_alone *a = ctx;
	struct gw_attach_status s;
	char line[64];

	gw_attach_status(a->attach, &s);
	gw_engine_requests_changed(a->requests, s.state);
	(void)snprintf(line, sizeof line, "STATUS=engine %s", gw_engine_state_text(s.state));
	(void)gw_notify(line); /* nobody may be listening */
	GW_LOG(GW_LOG_DEBUG, "engine", "state", gw_engine_state_text(s.state), NULL);
}

static int hook_request(void *ctx, uint64_t who, const struct gw_msg *m)
{
	return gw_engine_requests_handle(((struct gw_alone *)ctx)->requests, who, m);
}

/* --- start and end --- */

static int open_versions(struct gw_alone *a, struct gw_diag *why)
{
	struct gw_table *t;
	int err = gw_versions_open(&a->versions, a->cfg.fs, a->cfg.cfg->host_state, why);

	if (err)
		return err;
	/* A base that was read before is known: engines that went on serving are not kept waiting for a scan. */
	t = gw_versions_find(a->versions, a->cfg.base_run, a->cfg.base_version);
	if (!t) {
		err = gw_versions_scan(a->cfg.fs, a->cfg.base, a->cfg.base_run, a->cfg.base_version, &a->pool, &t, why);
		if (!err)
			err = gw_versions_keep(a->versions, t, why);
		if (err)
			return gw_diag_wrap(why, err, "base %s", a->cfg.base);
	}
	gw_table_free(t);
	return 0;
}

static int open_sockets(struct gw_alone *a, struct gw_diag *why)
{
	struct gw_attach_config cfg = {
		.group = (gid_t)-1,
		.list_max_bytes = 1ull << 40,
		.hooks = {.ctx = a, .find = hook_find, .at = hook_at, .keep = hook_keep, .bits = hook_bits,
			  .served = hook_served, .failed = hook_failed, .staged = hook_staged, .changed = hook_changed,
			  .scrubbed = hook_scrubbed},
	};
	const char *run = a->cfg.cfg->host_run;
	char *attach = gw_path_join(run, "godwitd.sock"), *control = gw_path_join(run, "control.sock");
	int err = attach && control ? 0 : GW_ENOMEM;

	gw_engine_limits_default(&cfg.limits);
	if (!err)
		err = gw_engine_requests_new(&a->requests, a->cfg.fs);
	cfg.path = attach;
	if (!err)
		err = gw_attach_new(&a->attach, a->cfg.loop, a->workers, &a->pool, &cfg, why);
	if (!err)
		err = gw_control_new(&a->control, a->cfg.loop, control, (gid_t)-1, hook_request, a, why);
	if (!err)
		gw_engine_requests_join(a->requests, a->attach, a->control);
	free(attach);
	free(control);
	return err;
}

int gw_alone_start(struct gw_alone **out, const struct gw_alone_config *c, struct gw_diag *why)
{
	struct gw_alone *a = calloc(1, sizeof *a);
	int err;

	if (!a)
		return GW_ENOMEM;
	a->cfg = *c;
	err = gw_pool_threads_init(&a->pool, (unsigned)c->cfg->limits_workers, why);
	if (!err)
		err = gw_workers_new(&a->workers, c->loop, a->pool.width, JOBS_MAX, why);
	if (!err)
		err = open_versions(a, why);
	if (!err)
		err = open_sockets(a, why);
	if (err) {
		gw_alone_stop(a);
		return err;
	}
	*out = a;
	return 0;
}

void gw_alone_stop(struct gw_alone *a)
{
	if (!a)
		return;
	if (a->attach)
		gw_attach_stop(a->attach);
	if (a->workers)
		gw_workers_free(a->workers); /* calls the last results back */
	gw_attach_free(a->attach);
	gw_control_free(a->control);
	gw_engine_requests_free(a->requests);
	gw_versions_free(a->versions);
	gw_pool_threads_free(&a->pool);
	free(a);
}
