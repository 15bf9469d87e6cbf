#include "tools/cmd.h"

#include <stdlib.h>

#include "patch/fold.h"
#include "tools/patch_report.h"

static int open_all(struct args *a, struct patch_file *files, struct gw_fold_patch *patches, unsigned *opened)
{
	int err = 0;

	for (*opened = 0; !err && *opened < a->count; *opened += !err) {
		err = patch_file_open(&files[*opened], a->fs, a->pos[*opened], &a->why);
		if (!err)
			patches[*opened] = (struct gw_fold_patch){files[*opened].pt, a->pos[*opened]};
	}
	return err;
}

static int fold(struct args *a, const struct gw_fold_patch *patches, struct gw_pool *pool, const char *out)
{
	struct gw_diff_options opt = {.replace = arg_flag(a, "force"), .watch = progress_bar("fold")};
	struct gw_checkpoint *base = NULL;
	int err = arg_value(a, "base") ? gw_checkpoint_open(&base, a->fs, arg_value(a, "base"), &a->why) : 0;

	if (!err)
		err = gw_fold(base, patches, a->count, a->fs, pool, &opt, out, NULL, &a->why);
	progress_end();
	gw_checkpoint_close(base);
	return err;
}

static int run(struct args *a)
{
	const char *out = arg_value(a, "o");
	struct gw_fold_patch *patches;
	struct patch_file *files;
	struct gw_pool *pool;
	unsigned opened = 0;
	int err;

	if (!out)
		return gw_diag_set(&a->why, GW_EINVAL, "where shall the patch go? Give -o FILE");
	pool = patch_pool(a);
	if (!pool)
		return a->why.text[0] ? GW_EINVAL : GW_ENOMEM;
	files = calloc(a->count, sizeof *files);
	patches = calloc(a->count, sizeof *patches);
	err = files && patches ? open_all(a, files, patches, &opened) : GW_ENOMEM;
	if (!err)
		err = fold(a, patches, pool, out);
	for (unsigned i = 0; i < opened; i++) {
		int closed = patch_file_close(&files[i], a->pos[i], &a->why);

		err = err ? err : closed;
	}
	free(files);
	free(patches);
	return err ? err : patch_told(a, out);
}

static const struct opt opts[] = {
	{"o", "FILE", "the patch file to write"},
	{"base", "DIR", "the checkpoint that the first patch starts from (left out where that is a whole version)"},
	{"force", NULL, "replace FILE if it is there"},
	{"threads", "N", "at most so many at once (default: one a core, up to 16)"},
	{"json", NULL, "say what changed as one JSON document"},
	{NULL, NULL, NULL},
};

const struct cmd cmd_fold = {
	"fold", "PATCH PATCH…", "one patch file for a chain of them, each of which starts where the one before ends", 2, 0,
	opts, run,
};
