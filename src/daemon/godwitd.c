/*
 * godwitd: one host. Without --base a member of a mesh (daemon/core.h); with it an engine alone (daemon/alone.h).
 */
#include <config.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/log.h"
#include "daemon/alone.h"
#include "daemon/core.h"
#include "io/os/clock.h"
#include "io/os/fs_os.h"
#include "io/os/lock.h"
#include "io/os/notify.h"

#define LEAVE_NS 300000000ull /* for the words of good-bye to get out */

struct options {
	const char *config, *state, *run, *join, *base;
	uint8_t base_run[16];
	uint64_t base_version;
	int check, print_config;
};

struct host {
	struct options opt;
	struct gw_config cfg;
	struct gw_fs *fs;
	struct gw_loop *loop;
	struct gw_core *core;   /* in a mesh, */
	struct gw_alone *alone; /* or without one */
	struct gw_timer watchdog;
	int lock; /* on the state folder, for as long as the process lives */
	int ending;
};

static const char usage[] =
	"usage: godwitd [--config FILE] [--join FILE|-] [--state DIR] [--run DIR] [--check]\n"
	"       godwitd --base DIR [--base-version N] [--base-run HEX] [--state DIR] [--run DIR]\n"
	"\n"
	"  --config FILE       configuration (default: /etc/godwit/godwit.conf where it is there)\n"
	"  --join FILE|-       a token from `godwit mesh invite`: become a member first (- reads standard input)\n"
	"  --state DIR         durable state (default: host.state of the configuration)\n"
	"  --run DIR           sockets (default: host.run)\n"
	"  --check             read the configuration, say what is wrong with it, and end\n"
	"  --print-config      every key with its default, as a configuration file, and end\n"
	"  --base DIR          no mesh: engines attach with this checkpoint, patches come from files\n"
	"  --base-version N    its number (default 0)\n"
	"  --base-run HEX      its run, 32 hexadecimal digits (default: zero)\n";

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
		{"run", required_argument, NULL, 'r'},    {"join", required_argument, NULL, 'j'},
		{"base", required_argument, NULL, 'b'},   {"base-version", required_argument, NULL, 'v'},
		{"base-run", required_argument, NULL, 'u'}, {"check", no_argument, NULL, 'k'},
		{"print-config", no_argument, NULL, 'p'}, {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'c': o->config = optarg; break;
		case 's': o->state = optarg; break;
		case 'r': o->run = optarg; break;
		case 'j': o->join = optarg; break;
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
		case 'p': o->print_config = 1; break;
		case 'h':
			(void)fputs(usage, stdout);
			exit(0);
		case 'V':
			(void)puts("godwitd " PACKAGE_VERSION);
			exit(0);
		default: return gw_diag_set(why, GW_EINVAL, "`godwitd --help` lists the options"); /* getopt named the odd one */
		}
	}
	if (o->base && o->join)
		return gw_diag_set(why, GW_EINVAL, "--base is for a host without a mesh, --join for one in it");
	return optind == argc ? 0 : gw_diag_set(why, GW_EINVAL, "unexpected: %s; `godwitd --help` lists the options", argv[optind]);
}

static int take_path(char *out, size_t cap, const char *option, const char *value, struct gw_diag *why)
{
	if (value && strlen(value) >= cap)
		return gw_diag_set(why, GW_EINVAL, "%s %s: too long", option, value);
	if (value)
		(void)snprintf(out, cap, "%s", value);
	return 0;
}

/* The file that is read, or NULL where none was named and the usual one is not there. */
static const char *config_file(const struct host *h)
{
	static const char usual[] = "/etc/godwit/godwit.conf";
	struct gw_stat st;

	if (h->opt.config)
		return h->opt.config;
	return gw_fs_stat(h->fs, usual, &st) == GW_ENOENT ? NULL : usual;
}

static int load_config(const struct host *h, struct gw_config *cfg, struct gw_diag *why)
{
	const char *file = config_file(h);
	int err = 0;

	if (file)
		err = gw_config_load(cfg, h->fs, file, why);
	else
		gw_config_defaults(cfg);
	if (!err)
		err = take_path(cfg->host_state, sizeof cfg->host_state, "--state", h->opt.state, why);
	if (!err)
		err = take_path(cfg->host_run, sizeof cfg->host_run, "--run", h->opt.run, why);
	if (!err && !cfg->host_name[0] && gethostname(cfg->host_name, sizeof cfg->host_name - 1))
		err = gw_diag_set(why, GW_ECONFIG, "host.name is not set and the system has no name");
	return err;
}

static int log_level(const char *name)
{
	static const struct {
		const char *name;
		enum gw_log_level level;
	} levels[] = {{"error", GW_LOG_ERR}, {"warning", GW_LOG_WARN}, {"notice", GW_LOG_NOTICE},
		      {"info", GW_LOG_INFO}, {"debug", GW_LOG_DEBUG}};

	for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
		if (!strcmp(levels[i].name, name))
			return (int)levels[i].level;
	return -1;
}

/* Of a configuration that was checked. */
static void setup_log(const struct gw_config *cfg)
{
	int json = !strcmp(cfg->log_form, "json");

	gw_log_setup((enum gw_log_level)log_level(cfg->log_level), json ? GW_LOG_JSON : GW_LOG_TEXT, "godwitd");
}

/* For --check: also the key file, which only publishers read. */
static int check_keys(const struct host *h, struct gw_diag *why)
{
	struct gw_key release;
	int err = h->cfg.publish_policy[0] ? gw_trust_init() : 0;

	if (err || !h->cfg.publish_policy[0])
		return err;
	err = gw_identity_release_key(&release, h->fs, &h->cfg, why);
	gw_key_wipe(&release);
	return err ? gw_diag_wrap(why, err, "publish.release_key") : 0;
}

/* --- joining --- */

static int read_token(const struct host *h, uint8_t text[GW_TOKEN_TEXT_MAX + 2], size_t *n, struct gw_diag *why)
{
	uint8_t *p;
	int err;

	if (!strcmp(h->opt.join, "-")) {
		*n = fread(text, 1, GW_TOKEN_TEXT_MAX + 1, stdin);
		return ferror(stdin) ? gw_diag_set(why, GW_EIO, "cannot read the token from standard input") : 0;
	}
	err = gw_identity_read_file(h->fs, h->opt.join, GW_TOKEN_TEXT_MAX + 1, &p, n, why);
	if (err)
		return err;
	memcpy(text, p, *n);
	gw_wipe(p, *n);
	free(p);
	return 0;
}

static int join(const struct host *h, struct gw_diag *why)
{
	uint8_t text[GW_TOKEN_TEXT_MAX + 2];
	size_t n = 0;
	int err = read_token(h, text, &n, why);

	if (!err)
		err = gw_identity_join(h->fs, &h->cfg, (char *)text, n, why);
	gw_wipe(text, sizeof text);
	return err ? gw_diag_wrap(why, err, "joining") : 0;
}

/* --- signals --- */

static void stop_now(void *ctx, uint64_t key)
{
	(void)key;
	gw_loop_stop(((struct host *)ctx)->loop, 0);
}

static void on_end(void *ctx, int signo)
{
	struct host *h = ctx;

	(void)signo;
	if (h->ending++ || !h->core) {
		gw_loop_stop(h->loop, 0);
		return;
	}
	(void)gw_notify("STOPPING=1");
	gw_core_leave(h->core);
	if (gw_loop_at(h->loop, gw_loop_now_ns(h->loop) + LEAVE_NS, stop_now, h, 0))
		gw_loop_stop(h->loop, 0);
}

static void on_reload(void *ctx, int signo)
{
	struct host *h = ctx;
	struct gw_config *next = malloc(sizeof *next);
	struct gw_diag why = {""};
	char line[64];
	int err = next ? load_config(h, next, &why) : GW_ENOMEM;

	(void)signo;
	(void)snprintf(line, sizeof line, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(gw_clock_mono_ns() / 1000));
	(void)gw_notify(line);
	if (!err)
		err = gw_config_reload(&h->cfg, next, &why);
	if (!err)
		setup_log(&h->cfg);
	if (!err && h->core)
		gw_core_reconfigured(h->core);
	if (err)
		GW_LOG(GW_LOG_ERR, "configuration not reloaded, nothing changed", "error",
		       why.text[0] ? why.text : gw_err_text(err), NULL);
	else
		GW_LOG(GW_LOG_NOTICE, "configuration reloaded", NULL);
	(void)gw_notify("READY=1");
	free(next);
}

/* --- start and end --- */

/* Two daemons on one state folder would sweep away what the other is making. */
static int take_state(struct host *h, struct gw_diag *why)
{
	int err = gw_fs_mkdir(h->fs, h->cfg.host_state);

	if (err && err != GW_EEXIST)
		return gw_diag_set(why, err, "cannot make %s: %s", h->cfg.host_state, gw_err_text(err));
	return gw_lock_folder(h->cfg.host_state, &h->lock, why);
}

/* The loop turns: said at half the time that the service manager allows. */
static void watchdog(void *ctx)
{
	struct host *h = ctx;
	uint64_t within = gw_notify_watchdog_ns();

	(void)gw_notify("WATCHDOG=1");
	(void)gw_timer_set(h->loop, &h->watchdog, gw_loop_now_ns(h->loop) + within / 2);
}

static int start(struct host *h, struct gw_diag *why)
{
	struct gw_alone_config alone = {.fs = h->fs, .cfg = &h->cfg, .base = h->opt.base, .base_version = h->opt.base_version};
	int err = gw_trust_init();

	if (!err)
		err = take_state(h, why);
	if (!err && h->opt.join)
		err = join(h, why);
	if (!err)
		err = gw_loop_new(&h->loop, why);
	if (!err)
		err = gw_loop_signal(h->loop, SIGTERM, on_end, h);
	if (!err)
		err = gw_loop_signal(h->loop, SIGINT, on_end, h);
	if (!err)
		err = gw_loop_signal(h->loop, SIGHUP, on_reload, h);
	if (err)
		return err;
	alone.loop = h->loop;
	memcpy(alone.base_run, h->opt.base_run, sizeof alone.base_run);
	return h->opt.base ? gw_alone_start(&h->alone, &alone, why) : gw_core_start(&h->core, h->loop, h->fs, &h->cfg, why);
}

int main(int argc, char **argv)
{
	static struct host h;
	struct gw_diag why = {""};
	int err = parse_options(argc, argv, &h.opt, &why);

	gw_log_setup(GW_LOG_INFO, GW_LOG_TEXT, "godwitd");
	h.fs = gw_fs_os();
	if (err) {
		(void)fprintf(stderr, "godwitd: %s\n", why.text);
		return 2;
	}
	if (h.opt.print_config)
		return gw_config_print(stdout) ? 1 : 0;
	err = load_config(&h, &h.cfg, &why);
	if (!err && h.opt.check)
		err = check_keys(&h, &why);
	if (err) {
		(void)fprintf(stderr, "godwitd: %s\n", why.text[0] ? why.text : gw_err_text(err));
		return 7;
	}
	if (h.opt.check)
		return printf("%s: good\n", config_file(&h) ? config_file(&h) : "no configuration file, all at its default") < 0;
	setup_log(&h.cfg);
	umask(0077);
	(void)signal(SIGPIPE, SIG_IGN);
	err = start(&h, &why);
	if (err) {
		GW_LOG(GW_LOG_ERR, "cannot start", "error", why.text[0] ? why.text : gw_err_text(err), NULL);
	} else {
		(void)gw_notify("READY=1");
		h.watchdog = (struct gw_timer){.fire = watchdog, .ctx = &h};
		if (gw_notify_watchdog_ns())
			watchdog(&h);
		GW_LOG(GW_LOG_NOTICE, "ready", "host", h.cfg.host_name, "state", h.cfg.host_state, NULL);
		err = gw_loop_run(h.loop);
		if (err < 0)
			GW_LOG(GW_LOG_ERR, "ended", "error", gw_err_text(err), NULL);
	}
	gw_core_stop(h.core);
	gw_alone_stop(h.alone);
	if (h.loop)
		gw_loop_free(h.loop);
	return err > 0 ? 1 : gw_err_exit_code(err); /* a part that stopped the loop said why */
}
