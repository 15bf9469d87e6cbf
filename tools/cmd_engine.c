/* `godwit engine …`: the engine of this host, through its daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "cmd.h"
#include "control.h"

#define OPT_RUN CONTROL_OPTION_RUN
#define OPT_TIMEOUT {"timeout", "S", "give up after that long (default: wait)"}

static int ask(struct args *a, const struct gw_msg *request, enum gw_msg_type want, struct control *c,
	       struct gw_msg *answer)
{
	uint64_t ns = UINT64_MAX;
	int err = arg_duration(a, "timeout", &ns);

	if (!err)
		err = control_open(c, arg_value(a, "run"), &a->why);
	if (err)
		return err;
	err = control_ask(c, request, want, ns > (uint64_t)INT32_MAX * 1000000 ? -1 : (int)(ns / 1000000), answer, &a->why);
	if (err)
		control_close(c);
	return err;
}

/* --- status --- */

static json_t *json_version(uint64_t v)
{
	return v == GW_VERSION_NONE ? json_null() : json_u64(v);
}

static int print_status_json(const struct gw_m_ctl_engine *e, struct gw_diag *why)
{
	char run[33];

	return print_json(json_pack("{s:s#, s:s, s:o, s:o, s:s#, s:i, s:i, s:f, s:f, s:o, s:o, s:o, s:s#}", "state",
				    e->state.p, (int)e->state.n, "run", gw_hex(run, e->run, 16), "served",
				    json_version(e->served), "staged", json_version(e->staged), "engine", e->engine.p,
				    (int)e->engine.n, "ranks", (int)e->ranks, "ranks_wanted", (int)e->ranks_wanted,
				    "last_apply_ms", (double)e->last_apply_ns / 1e6, "last_pause_ms",
				    (double)e->last_pause_ns / 1e6, "last_records", json_u64(e->last_records), "proven",
				    json_u64(e->proven), "opaque", json_u64(e->opaque), "last_error", e->last_error.p,
				    (int)e->last_error.n),
			  why);
}

static void print_version(const char *what, uint64_t v)
{
	if (v != GW_VERSION_NONE)
		printf("%s %llu\n", what, (unsigned long long)v);
}

static int engine_status(struct args *a)
{
	struct gw_msg m = {.type = GW_MSG_ctl_status}, answer;
	const struct gw_m_ctl_engine *e = &answer.u.ctl_engine;
	struct control c;
	int err = ask(a, &m, GW_MSG_ctl_engine, &c, &answer);

	if (err)
		return err;
	if (arg_flag(a, "json")) {
		err = print_status_json(e, &a->why);
	} else {
		printf("state %.*s\n", (int)e->state.n, e->state.p);
		if (e->engine.n)
			printf("engine %.*s, %u of %u ranks\n", (int)e->engine.n, e->engine.p, e->ranks, e->ranks_wanted);
		print_version("served", e->served);
		print_version("staged", e->staged);
		printf("tensors proven %llu, not patchable %llu\n", (unsigned long long)e->proven,
		       (unsigned long long)e->opaque);
		if (e->last_apply_ns)
			printf("last apply %.1f ms, pause %.3f ms, %llu places\n", (double)e->last_apply_ns / 1e6,
			       (double)e->last_pause_ns / 1e6, (unsigned long long)e->last_records);
		if (e->last_error.n)
			printf("last error: %.*s\n", (int)e->last_error.n, e->last_error.p);
	}
	control_close(&c);
	return err;
}

const struct cmd cmd_engine_status = {
	.verb = "engine status",
	.args = "",
	.does = "what the engine of this host serves",
	.opts = (const struct opt[]){OPT_RUN, OPT_TIMEOUT, {"json", NULL, "one JSON document"}, {NULL, NULL, NULL}},
	.run = engine_status,
};

/* --- apply --- */

static int engine_apply(struct args *a)
{
	struct gw_msg m = {.type = GW_MSG_ctl_apply_file}, answer;
	struct gw_m_ctl_apply_file *f = &m.u.ctl_apply_file;
	char *path = realpath(a->pos[0], NULL);
	struct control c;
	int err;

	if (!path)
		return gw_diag_set(&a->why, GW_ENOENT, "%s: no such file", a->pos[0]);
	f->path = (struct gw_text){.p = path, .n = strlen(path)};
	f->stage_only = arg_flag(a, "stage-only") ? 1 : 0;
	if (!arg_value(a, "from") || !arg_value(a, "to")) {
		free(path);
		return gw_diag_set(&a->why, GW_EINVAL, "--from and --to say which versions the patch leads between");
	}
	err = arg_u64(a, "from", 0, UINT64_MAX - 1, &f->from);
	if (!err)
		err = arg_u64(a, "to", 0, UINT64_MAX - 1, &f->to);
	if (!err)
		err = ask(a, &m, GW_MSG_ctl_reply, &c, &answer);
	free(path);
	if (err)
		return err;
	printf("%.*s %llu\n", (int)answer.u.ctl_reply.text.n, answer.u.ctl_reply.text.p, (unsigned long long)f->to);
	control_close(&c);
	return 0;
}

const struct cmd cmd_engine_apply = {
	.verb = "engine apply",
	.args = "PATCH",
	.does = "apply a patch file to the weights in the engine's memory",
	.min = 1,
	.max = 1,
	.opts = (const struct opt[]){OPT_RUN,
				     OPT_TIMEOUT,
				     {"from", "N", "the version that the patch is from"},
				     {"to", "N", "the version that it leads to"},
				     {"stage-only", NULL, "make ready, and commit with the next one"},
				     {NULL, NULL, NULL}},
	.run = engine_apply,
};

/* --- scrub --- */

static int engine_scrub(struct args *a)
{
	struct gw_msg m = {.type = GW_MSG_ctl_scrub}, answer;
	struct control c;
	int err = ask(a, &m, GW_MSG_ctl_reply, &c, &answer);

	if (err)
		return err;
	printf("%.*s\n", (int)answer.u.ctl_reply.text.n, answer.u.ctl_reply.text.p);
	control_close(&c);
	return 0;
}

const struct cmd cmd_engine_scrub = {
	.verb = "engine scrub",
	.args = "",
	.does = "prove the weights in the engine's memory again",
	.opts = (const struct opt[]){OPT_RUN, OPT_TIMEOUT, {NULL, NULL, NULL}},
	.run = engine_scrub,
};
