/* `godwit inspect`: a patch file, an object as hosts keep it, or the manifest that signs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patch/fingerprint.h"
#include "tools/manifest_report.h"
#include "tools/patch_report.h"
#include "tools/records.h"

static void print_of(const char *what, const uint64_t lane[2])
{
	char text[GW_PRINT_TEXT];

	gw_print_text(text, lane);
	(void)printf("%s %s\n", what, text);
}

static void show_patch(const struct gw_patch *pt)
{
	struct gw_patch_info info;

	gw_patch_info(pt, &info);
	patch_table(pt);
	if (!info.anchor)
		print_of("before", info.from_print);
	print_of("after ", info.to_print);
	patch_summary(pt);
}

static int inspect_patch(struct args *a)
{
	struct patch_file f;
	int err = patch_file_open(&f, a->fs, a->pos[0], &a->why), closed;

	if (err)
		return err;
	if (arg_flag(a, "json"))
		err = print_json(patch_json(f.pt), &a->why);
	else
		show_patch(f.pt);
	closed = patch_file_close(&f, a->pos[0], &a->why);
	return err ? err : closed;
}

/* Nothing of it is read before its signature is. */
static int inspect_manifest(struct args *a)
{
	struct gw_root *root = malloc(sizeof *root);
	struct gw_manifest m;
	uint8_t *p = NULL;
	json_t *doc;
	size_t n = 0;
	int err = root ? gw_trust_init() : GW_ENOMEM;

	if (!err)
		err = record_root(a, NULL, root);
	if (!err)
		err = record_read(a, a->pos[0], GW_MANIFEST_MAX, &p, &n);
	if (!err) {
		err = gw_root_open_manifest(root, p, n, &m, &a->why);
		if (err)
			err = gw_diag_wrap(&a->why, err, "%s", a->pos[0]);
	}
	if (!err && arg_flag(a, "json")) {
		doc = manifest_json(&m);
		if (doc)
			(void)json_object_set_new(doc, "format", json_string("manifest"));
		err = print_json(doc, &a->why);
	} else if (!err) {
		manifest_show(&m);
	}
	free(p);
	free(root);
	return err;
}

static int begins_as_manifest(struct args *a, int *yes)
{
	char start[GW_MAGIC_BYTES];
	struct gw_stat st = {0};
	struct gw_file *f;
	int err = gw_fs_open(a->fs, a->pos[0], GW_OPEN_READ, &f);

	*yes = 0;
	if (err)
		return gw_diag_set(&a->why, err, "cannot read %s: %s", a->pos[0], gw_err_text(err));
	err = gw_fs_fstat(a->fs, f, &st);
	if (!err && st.size >= sizeof start)
		err = gw_fs_pread(a->fs, f, start, sizeof start, 0);
	gw_fs_close(a->fs, f);
	if (err)
		return gw_diag_set(&a->why, err, "cannot read %s: %s", a->pos[0], gw_err_text(err));
	/* The last byte is the version of the format, which the reader checks. */
	*yes = st.size >= sizeof start && !memcmp(start, GW_MAGIC_MANIFEST, sizeof start - 1);
	return 0;
}

static int run(struct args *a)
{
	int manifest, err = begins_as_manifest(a, &manifest);

	if (err)
		return err;
	return manifest ? inspect_manifest(a) : inspect_patch(a);
}

static const struct opt opts[] = {
	{"root", "FILE", "the root record to believe (needed for a manifest)"},
	{"json", NULL, "as one JSON document"},
	{NULL, NULL, NULL},
};

const struct cmd cmd_inspect = {
	"inspect", "FILE", "what a patch file holds, by tensor, or what a signed manifest says", 1, 1, opts, run,
};
