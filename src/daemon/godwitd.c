/*
 * godwitd: so far the attach socket and the control socket of one host. Patches come from files that a tool names
 * on the control socket.
 */
#include <config.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/publish.h"
#include "daemon/attach.h"
#include "daemon/config.h"
#include "daemon/control.h"
#include "daemon/engine_requests.h"
#include "daemon/versions.h"
#include "io/os/fs_os.h"
#include "io/os/notify.h"
#include "io/os/pool.h"
#include "weights/checkpoint.h"

enum { JOBS_MAX = 4096 };

struct options {
	const char *config, *state, *run, *base;
	uint8_t base_run[16];
	uint64_t base_version;
	int check;
};

struct host {
	struct options opt;
	struct gw_config cfg;
	struct gw_fs *fs;
	struct gw_loop *loop;
	struct gw_workers *workers;
	struct gw_pool pool;
	struct gw_versions *versions;
	struct gw_attach *attach;
	struct gw_control *control;
	struct gw_engine_requests *requests;
};

static const char usage[] =
	"usage: godwitd [--config FILE] [--state DIR] [--run DIR] [--base DIR [--base-version N] [--base-run HEX]] [--check]\n"
	"\n"
	"  --config FILE       configuration (default: /etc/godwit/godwit.conf where it is there)\n"
	"  --state DIR         durable state (default: host.state of the configuration)\n"
	"  --run DIR           sockets (default: host.run)\n"
	"  --base DIR          a checkpoint folder: a version that engines may attach with\n"
	"  --base-version N    its number (default 0)\n"
	"  --base-run HEX      its run, 32 hexadecimal digits (default: zero)\n"
	"  --check             read the configuration, say what is wrong with it, and end\n";

/* --- hooks: what the attach module asks, and what it tells --- */

static struct gw_table *hook_find(void *ctx, const uint8_t run[16], uint64_t version)
{
	return gw_versions_find(((struct host *)ctx)->versions, run, version);
}

static struct gw_table *hook_at(void *ctx, uint32_t i)
{
	return gw_versions_at(((struct host *)ctx)->versions, i);
}

static int hook_keep(void *ctx, struct gw_table *t, struct gw_diag *why)
{
	return gw_versions_keep(((struct host *)ctx)->versions, t, why);
}

/* On a worker; options and the file table do not change. */
static void hook_bits(void *ctx, const struct gw_table *t, const char *tensor,
		      void (*each)(void *arg, const void *p, uint64_t n), void *arg)
{
	const struct host *h = ctx;
	const struct gw_tensor *ct;
	struct gw_checkpoint *c;

	if (!h->opt.base || gw_table_version(t) != h->opt.base_version ||
	    memcmp(gw_table_run(t), h->opt.base_run, 16) != 0 || gw_checkpoint_open(&c, h->fs, h->opt.base, NULL))
		return;
	ct = gw_checkpoint_find(c, tensor);
	if (ct)
		each(arg, ct->p, ct->bytes);
	gw_checkpoint_close(c);
}

static void hook_served(void *ctx, const uint8_t run[16], uint64_t version)
{
	(void)run;
	gw_engine_requests_served(((struct host *)ctx)->requests, version);
}

static void hook_staged(void *ctx, uint64_t version)
{
	gw_engine_requests_staged(((struct host *)ctx)->requests, version);
}

static void hook_failed(void *ctx, uint64_t version, int err, const char *text)
{
	gw_engine_requests_failed(((struct host *)ctx)->requests, version, err, text);
}

static void hook_scrubbed(void *ctx, int err, const char *text)
{
	gw_engine_requests_scrubbed(((struct host *)ctx)->requests, err, text);
}

static void hook_changed(void *ctx)
{
	struct gw_attach_status s;
	char line[64];

	gw_attach_status(((struct host *)ctx)->attach, &s);
	snprintf(line, sizeof line, "STATUS=engine %s", gw_engine_state_text(s.state));
	(void)gw_notify(line); /* nobody may be listening */
	GW_LOG(GW_LOG_DEBUG, "engine", "state", gw_engine_state_text(s.state), NULL);
}

static int hook_request(void *ctx, uint64_t who, const struct gw_msg *m)
{
	return gw_engine_requests_handle(((struct host *)ctx)->requests, who, m);
}

/* --- options --- */

static int read_u64(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno || *end || end == text || text[0] == '-' ? GW_EINVAL : 0;
}

static int parse_options(int argc, char **argv, struct options *o, struct gw_diag *why)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'}, {"state", required_argument, NULL, 's'},
		{"run", required_argument, NULL, 'r'},    {"base", required_argument, NULL, 'b'},
		{"base-version", required_argument, NULL, 'v'}, {"base-run", required_argument, NULL, 'u'},
		{"check", no_argument, NULL, 'k'},        {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'c': o->config = optarg; break;
		case 's': o->state = optarg; break;
		case 'r': o->run = optarg; break;
		case 'b': o->base = optarg; break;
		case 'v':
			if (read_u64(optarg, &o->base_version))
				return gw_diag_set(why, GW_EINVAL, "--base-version %s: not a number", optarg);
			break;
		case 'u':
			if (gw_unhex(o->base_run, 16, optarg))
				return gw_diag_set(why, GW_EINVAL, "--base-run %s: not 32 hexadecimal digits", optarg);
			break;
		case 'k': o->check = 1; break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		case 'V':
			puts("godwitd " PACKAGE_VERSION);
			exit(0);
		default: return gw_diag_set(why, GW_EINVAL, "see godwitd --help");
		}
	}
	return optind == argc ? 0 : gw_diag_set(why, GW_EINVAL, "unexpected: %s", argv[optind]);
}

static int load_config(struct host *h, struct gw_diag *why)
{
	static const char usual[] = "/etc/godwit/godwit.conf";
	struct gw_stat st;
	int err = 0;

	if (h->opt.config)
		err = gw_config_load(&h->cfg, h->fs, h->opt.config, why);
	else if (gw_fs_stat(h->fs, usual, &st) == 0)
		err = gw_config_load(&h->cfg, h->fs, usual, why);
	else
		gw_config_defaults(&h->cfg);
	if (err)
		return err;
	if (!h->opt.state)
		h->opt.state = h->cfg.host_state;
	if (!h->opt.run)
		h->opt.run = h->cfg.host_run;
	return 0;
}

/* --- start and end --- */

static int open_versions(struct host *h, struct gw_diag *why)
{
	struct gw_table *t;
	int err = gw_versions_open(&h->versions, h->fs, h->opt.state, why);

	if (err || !h->opt.base)
		return err;
	/* A base that was read before is known: engines that went on serving are not kept waiting for a scan. */
	t = gw_versions_find(h->versions, h->opt.base_run, h->opt.base_version);
	if (!t) {
		err = gw_versions_scan(h->fs, h->opt.base, h->opt.base_run, h->opt.base_version, &h->pool, &t, why);
		if (!err)
			err = gw_versions_keep(h->versions, t, why);
		if (err)
			return gw_diag_wrap(why, err, "base %s", h->opt.base);
	}
	gw_table_free(t);
	return 0;
}

static int open_sockets(struct host *h, struct gw_diag *why)
{
	struct gw_attach_config cfg = {
		.group = (gid_t)-1,
		.list_max_bytes = 1ull << 40,
		.hooks = {.ctx = h, .find = hook_find, .at = hook_at, .keep = hook_keep, .bits = hook_bits,
			  .served = hook_served, .failed = hook_failed, .staged = hook_staged, .changed = hook_changed,
			  .scrubbed = hook_scrubbed},
	};
	char *attach = gw_path_join(h->opt.run, "godwitd.sock"), *control = gw_path_join(h->opt.run, "control.sock");
	int err = attach && control ? 0 : GW_ENOMEM;

	gw_engine_limits_default(&cfg.limits);
	if (!err)
		err = gw_engine_requests_new(&h->requests, h->fs);
	cfg.path = attach;
	if (!err)
		err = gw_attach_new(&h->attach, h->loop, h->workers, &h->pool, &cfg, why);
	if (!err)
		err = gw_control_new(&h->control, h->loop, control, (gid_t)-1, hook_request, h, why);
	if (!err)
		gw_engine_requests_join(h->requests, h->attach, h->control);
	free(attach);
	free(control);
	return err;
}

static void end_signal(void *ctx, int signo)
{
	(void)signo;
	gw_loop_stop(((struct host *)ctx)->loop, 0);
}

static int start(struct host *h, struct gw_diag *why)
{
	int err = gw_loop_new(&h->loop, why);

	if (!err)
		err = gw_loop_signal(h->loop, SIGTERM, end_signal, h);
	if (!err)
		err = gw_loop_signal(h->loop, SIGINT, end_signal, h);
	if (!err)
		err = gw_pool_threads_init(&h->pool, (unsigned)h->cfg.limits_workers, why);
	if (!err)
		err = gw_workers_new(&h->workers, h->loop, h->pool.width, JOBS_MAX, why);
	if (!err)
		err = open_versions(h, why);
	return err ? err : open_sockets(h, why);
}

static void stop(struct host *h)
{
	if (h->attach)
		gw_attach_stop(h->attach);
	if (h->workers)
		gw_workers_free(h->workers); /* calls the last results back */
	gw_attach_free(h->attach);
	gw_control_free(h->control);
	gw_engine_requests_free(h->requests);
	gw_versions_free(h->versions);
	gw_pool_threads_free(&h->pool);
	if (h->loop)
		gw_loop_free(h->loop);
}

int main(int argc, char **argv)
{
	struct host h = {.fs = gw_fs_os()};
	struct gw_diag why = {""};
	int err = parse_options(argc, argv, &h.opt, &why);

	gw_log_setup(GW_LOG_INFO, GW_LOG_TEXT, "godwitd");
	if (err) {
		fprintf(stderr, "godwitd: %s\n%s", why.text, usage);
		return 2;
	}
	err = load_config(&h, &why);
	if (err || h.opt.check) {
		if (err)
			fprintf(stderr, "godwitd: %s\n", why.text[0] ? why.text : gw_err_text(err));
		return err ? 7 : 0;
	}
	umask(0077);
	err = start(&h, &why);
	if (!err) {
		(void)gw_notify("READY=1");
		GW_LOG(GW_LOG_INFO, "ready", "run", h.opt.run, "state", h.opt.state, NULL);
		err = gw_loop_run(h.loop);
	}
	if (err)
		GW_LOG(GW_LOG_ERR, "ended", "why", why.text[0] ? why.text : gw_err_text(err), NULL);
	stop(&h);
	return gw_err_exit_code(err);
}
