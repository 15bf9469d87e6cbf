#include "tools/cmd.h"

#include <stdio.h>

#include "patch/fingerprint.h"
#include "tools/patch_report.h"

static void print_of(const char *what, const uint64_t lane[2])
{
	char text[GW_PRINT_TEXT];

	gw_print_text(text, lane);
	(void)printf("%s %s\n", what, text);
}

static int run(struct args *a)
{
	struct gw_patch_info info;
	struct patch_file f;
	int err = patch_file_open(&f, a->fs, a->pos[0], &a->why), closed;

	if (err)
		return err;
	if (arg_flag(a, "json")) {
		err = print_json(patch_json(f.pt), &a->why);
	} else {
		gw_patch_info(f.pt, &info);
		patch_table(f.pt);
		if (!info.anchor)
			print_of("before", info.from_print);
		print_of("after ", info.to_print);
		patch_summary(f.pt);
	}
	closed = patch_file_close(&f, a->pos[0], &a->why);
	return err ? err : closed;
}

static const struct opt opts[] = {
	{"json", NULL, "as one JSON document"},
	{NULL, NULL, NULL},
};

const struct cmd cmd_inspect = {
	"inspect", "FILE", "what a patch file holds, by tensor", 1, 1, opts, run,
};
