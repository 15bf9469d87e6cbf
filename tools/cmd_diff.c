#include "tools/cmd.h"

#include "patch/diff.h"
#include "tools/patch_report.h"

static int run(struct args *a)
{
	struct gw_diff_options opt = {.replace = arg_flag(a, "force"), .watch = progress_bar("diff")};
	struct gw_checkpoint *old = NULL, *new_ = NULL;
	const char *out = arg_value(a, "o");
	struct gw_pool *pool;
	int nothing = arg_flag(a, "from-nothing"), err;

	if (!out)
		return gw_diag_set(&a->why, GW_EINVAL, "where shall the patch go? Give -o FILE");
	if (a->count != (nothing ? 1 : 2))
		return gw_diag_set(&a->why, GW_EINVAL, "%s",
				   nothing ? "with --from-nothing only NEW is given" : "give OLD and NEW");
	pool = patch_pool(a);
	if (!pool)
		return a->why.text[0] ? GW_EINVAL : GW_ENOMEM;
	err = nothing ? 0 : gw_checkpoint_open(&old, a->fs, a->pos[0], &a->why);
	if (!err)
		err = gw_checkpoint_open(&new_, a->fs, a->pos[nothing ? 0 : 1], &a->why);
	if (!err)
		err = gw_diff(old, new_, a->fs, pool, &opt, out, NULL, &a->why);
	progress_end();
	gw_checkpoint_close(old);
	gw_checkpoint_close(new_);
	return err ? err : patch_told(a, out);
}

static const struct opt opts[] = {
	{"o", "FILE", "the patch file to write"},
	{"from-nothing", NULL, "no OLD: a patch that holds the whole of NEW"},
	{"force", NULL, "replace FILE if it is there"},
	{"threads", "N", "at most so many at once (default: one a core, up to 16)"},
	{"json", NULL, "say what changed as one JSON document"},
	{NULL, NULL, NULL},
};

const struct cmd cmd_diff = {
	"diff", "OLD NEW", "make a patch file from two checkpoints (folders or .safetensors files)", 1, 2, opts, run,
};
