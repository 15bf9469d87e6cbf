#include "tools/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patch/disk.h"
#include "patch/fingerprint.h"
#include "tools/patch_report.h"

static int print_report(struct args *a, const char *where, const struct gw_disk_report *r)
{
	char text[GW_PRINT_TEXT], size[32];

	gw_print_text(text, r->to_print);
	if (arg_flag(a, "json"))
		return print_json(json_pack("{s:s, s:b, s:b, s:o, s:i, s:s}", "path", where, "already", r->already,
					    "recovered", r->recovered, "written_bytes", json_u64(r->written_bytes),
					    "files", (int)r->files, "fingerprint", text),
				  &a->why);
	if (r->recovered)
		(void)printf("finished what an interrupted run had begun\n");
	if (r->already)
		(void)printf("%s holds this version already; fingerprint %s\n", where, text);
	else
		(void)printf("%s: %u files, %s written; fingerprint %s\n", where, r->files,
			     human_bytes(size, r->written_bytes), text);
	return 0;
}

static int to_new(struct args *a, const struct gw_patch *pt, struct gw_pool *pool, const char *out,
		  struct gw_disk_report *r)
{
	struct gw_checkpoint *base = NULL;
	int err = a->count > 1 ? gw_checkpoint_open(&base, a->fs, a->pos[1], &a->why) : 0;

	if (!err)
		err = gw_disk_apply(pt, base, a->fs, pool, progress_bar("apply"), out, r, &a->why);
	gw_checkpoint_close(base);
	return err;
}

/* The log of a change in place lies beside the folder under its name: "." and links have none of their own. */
static int in_place(struct args *a, const struct gw_patch *pt, struct gw_pool *pool, struct gw_disk_report *r)
{
	char *dir;
	int err;

	if (a->count < 2)
		return gw_diag_set(&a->why, GW_EINVAL, "give the checkpoint that --in-place shall change");
	dir = realpath(a->pos[1], NULL);
	if (!dir) {
		err = gw_err_from_errno(errno);
		return gw_diag_set(&a->why, err, "%s: %s", a->pos[1], gw_err_text(err));
	}
	err = gw_disk_apply_in_place(pt, a->fs, pool, progress_bar("apply"), dir, r, &a->why);
	free(dir);
	return err;
}

static int run(struct args *a)
{
	const char *out = arg_value(a, "o");
	int place = arg_flag(a, "in-place"), err, closed;
	struct gw_disk_report r = {0};
	struct patch_file f;
	struct gw_pool *pool;

	if (!out == !place)
		return gw_diag_set(&a->why, GW_EINVAL, "give either -o NEW or --in-place");
	pool = patch_pool(a);
	if (!pool)
		return a->why.text[0] ? GW_EINVAL : GW_ENOMEM;
	err = patch_file_open(&f, a->fs, a->pos[0], &a->why);
	if (err)
		return err;
	err = place ? in_place(a, f.pt, pool, &r) : to_new(a, f.pt, pool, out, &r);
	progress_end();
	closed = patch_file_close(&f, a->pos[0], &a->why);
	if (err || closed)
		return err ? err : closed;
	return print_report(a, place ? a->pos[1] : out, &r);
}

static const struct opt opts[] = {
	{"o", "NEW", "the checkpoint to write: appears whole or not at all"},
	{"in-place", NULL, "change BASE itself, under a redo log: a run that was stopped is finished by the next"},
	{"threads", "N", "at most so many at once (default: one a core, up to 16)"},
	{"json", NULL, "say what was done as one JSON document"},
	{NULL, NULL, NULL},
};

const struct cmd cmd_apply = {
	"apply", "PATCH [BASE]", "the checkpoint after a patch (BASE is left out for a patch from nothing)", 1, 2, opts,
	run,
};
