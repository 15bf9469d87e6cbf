/* `godwit seed publish`: hands a checkpoint to this host's daemon, which encodes, signs and seeds it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "tools/cmd.h"
#include "tools/control.h"

static struct gw_text text(const char *s)
{
	return (struct gw_text){s ? s : "", s ? strlen(s) : 0};
}

static int request(struct args *a, struct gw_m_ctl_publish *p, char **path)
{
	int err;

	memset(p, 0, sizeof *p);
	p->policy = text(arg_value(a, "policy"));
	p->anchor = (uint8_t)arg_flag(a, "anchor");
	p->has_version = (uint8_t)arg_flag(a, "version");
	err = arg_u64(a, "version", 0, INT64_MAX, &p->version);
	if (err)
		return err;
	/* The daemon has another working directory. */
	*path = realpath(a->pos[0], NULL);
	if (!*path)
		return gw_diag_set(&a->why, GW_ENOENT, "%s: no such checkpoint", a->pos[0]);
	if (strlen(*path) > 1024)
		return gw_diag_set(&a->why, GW_EINVAL, "%s: the path is too long", *path);
	p->path = text(*path);
	return 0;
}

static int show_json(struct args *a, const struct gw_m_ctl_published *p)
{
	char run[33], manifest[65];

	return print_json(
		json_pack("{s:s%, s:s, s:o, s:o, s:b, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:f, s:I, s:f}", "policy", p->policy.p,
			  p->policy.n, "run", gw_hex(run, p->run, sizeof p->run), "from", json_u64(p->from), "version",
			  json_u64(p->version), "anchor", p->anchor, "already", p->already, "manifest",
			  gw_hex(manifest, p->manifest, sizeof p->manifest), "patch_bytes", json_u64(p->patch_bytes),
			  "object_bytes", json_u64(p->object_bytes), "full_bytes", json_u64(p->full_bytes), "changed",
			  json_u64(p->changed), "elements", json_u64(p->elements), "bits_per_change",
			  p->changed ? 8.0 * (double)p->patch_bytes / (double)p->changed : 0.0, "pieces", (json_int_t)p->pieces,
			  "took_s", (double)p->took_ns / 1e9),
		&a->why);
}

static void show(const struct gw_m_ctl_published *p)
{
	char patch[32], full[32];

	if (p->already) {
		(void)printf("version %llu of %.*s has just this content; nothing was published\n",
			     (unsigned long long)p->version, (int)p->policy.n, p->policy.p);
		return;
	}
	(void)printf("published version %llu of %.*s: ", (unsigned long long)p->version, (int)p->policy.n, p->policy.p);
	(void)human_bytes(patch, p->patch_bytes);
	(void)human_bytes(full, p->full_bytes);
	if (p->anchor)
		(void)printf("an anchor, %s for %s of weights", patch, full);
	else
		(void)printf("%llu of %llu elements changed, a patch of %s (1/%.0f of %s)", (unsigned long long)p->changed,
			     (unsigned long long)p->elements, patch,
			     p->patch_bytes ? (double)p->full_bytes / (double)p->patch_bytes : 0.0, full);
	if (!p->anchor && p->changed)
		(void)printf(", %.2f bits a change", 8.0 * (double)p->patch_bytes / (double)p->changed);
	(void)printf("; %u piece%s, %.2f s\n", p->pieces, p->pieces == 1 ? "" : "s", (double)p->took_ns / 1e9);
}

static int run_publish(struct args *a)
{
	struct gw_msg q = {.type = GW_MSG_ctl_publish}, r;
	struct control c;
	char *path = NULL;
	int err = request(a, &q.u.ctl_publish, &path);

	if (!err)
		err = control_open(&c, arg_value(a, "run"), &a->why);
	if (err) {
		free(path);
		return err;
	}
	err = control_ask(&c, &q, GW_MSG_ctl_published, -1, &r, &a->why);
	if (!err && arg_flag(a, "json"))
		err = show_json(a, &r.u.ctl_published);
	else if (!err)
		show(&r.u.ctl_published);
	control_close(&c);
	free(path);
	return err;
}

static const struct opt publish_opts[] = {
	{"policy", "NAME", "which policy, where this host publishes several"},
	{"version", "N", "the version's number (default: the next)"},
	{"anchor", NULL, "publish it whole, as a point that newcomers start from"},
	{"json", NULL, "as one JSON document"},
	CONTROL_OPTION_RUN,
	{NULL, NULL, NULL},
};

const struct cmd cmd_seed_publish = {
	"seed publish", "DIR", "publish a checkpoint as the next version of a policy", 1, 1, publish_opts, run_publish,
};
