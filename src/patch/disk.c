#include "patch/disk.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/publish.h"
#include "patch/inside.h"
#include "patch/match.h"
#include "patch/rebuild.h"

struct output {
	struct gw_fs *fs;
	struct gw_file *file;
	uint64_t *written;
};

static int put(void *ctx, uint64_t at, const uint8_t *p, uint64_t n, unsigned width)
{
	struct output *o = ctx;

	(void)width;
	*o->written += n;
	return n ? gw_fs_pwrite(o->fs, o->file, p, n, at) : 0;
}

/* One file of the version into an open file. */
static int write_file(struct gw_rebuild *rb, const struct gw_patch_file *f, struct gw_fs *fs, struct gw_file *file,
		      struct gw_disk_report *report, struct gw_diag *why)
{
	struct output o = {fs, file, &report->written_bytes};
	struct gw_sink sink = {put, &o};
	int err = gw_rebuild_file(rb, f, &sink, why);

	report->files++;
	return err ? gw_diag_set(why, err, "cannot write %s: %s", f->name, gw_err_text(err)) : 0;
}

static int write_folder(struct gw_rebuild *rb, const struct gw_patch *pt, struct gw_fs *fs, const char *dir,
			struct gw_disk_report *report, struct gw_diag *why)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < pt->info.files; i++) {
		const struct gw_patch_file *f = &pt->files[i];
		struct gw_file *file;
		char *path;

		if (f->kind == GW_PATCH_GONE)
			continue;
		path = gw_path_join(dir, f->name);
		err = path ? gw_fs_open(fs, path, GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_EXCL, &file) : GW_ENOMEM;
		free(path);
		if (err)
			return gw_diag_set(why, err, "cannot write %s: %s", f->name, gw_err_text(err));
		err = write_file(rb, f, fs, file, report, why);
		if (!err)
			err = gw_publish_sync(fs, file, why);
		gw_fs_close(fs, file);
	}
	return err;
}

/* The one file of a version that is a single file; NULL where it is a folder. */
static const struct gw_patch_file *single_file(const struct gw_patch *pt)
{
	const struct gw_patch_file *only = NULL;

	for (uint32_t i = 0; i < pt->info.files; i++) {
		if (pt->files[i].kind == GW_PATCH_GONE)
			continue;
		if (only)
			return NULL;
		only = &pt->files[i];
	}
	return only && only->kind == GW_PATCH_SHARD && !strcmp(only->name, GW_PATCH_SINGLE) ? only : NULL;
}

static int prove_base(const struct gw_patch *pt, const struct gw_checkpoint *base, struct gw_pool *pool,
		      struct gw_progress *watch, struct gw_diag *why)
{
	struct gw_match m;
	int err;

	if (pt->info.anchor)
		return base ? gw_diag_set(why, GW_EINVAL, "the patch holds a whole version: it takes no base")
			    : gw_match_promise(NULL, pt, why);
	if (!base)
		return gw_diag_set(why, GW_EINVAL, "the patch is a change: it needs the base that it was made from");
	err = gw_match_init(&m, base, pool, watch, why);
	if (err)
		return err;
	err = gw_match_base(&m, pt, why);
	gw_match_free(&m);
	return err;
}

int gw_disk_apply(const struct gw_patch *pt, const struct gw_checkpoint *base, struct gw_fs *fs, struct gw_pool *pool,
		  struct gw_progress *watch, const char *out, struct gw_disk_report *report, struct gw_diag *why)
{
	const struct gw_patch_file *single = base && gw_checkpoint_is_file(base) ? single_file(pt) : NULL;
	struct gw_disk_report own;
	struct gw_rebuild *rb;
	struct gw_publish p;
	int err;

	report = report ? report : &own;
	memset(report, 0, sizeof *report);
	err = single ? gw_publish_begin(&p, fs, out, 0, why) : gw_publish_begin_dir(&p, fs, out, why);
	if (err)
		return err;
	/* Headers and other files aside. */
	gw_progress_expect(watch, (base ? gw_disk_bytes(base) : 0) + 2 * pt->info.bytes);
	err = prove_base(pt, base, pool, watch, why);
	if (err)
		goto err1;
	err = gw_rebuild_new(&rb, pt, base, pool, watch);
	if (err)
		goto err1;
	err = single ? write_file(rb, single, fs, p.file, report, why) : write_folder(rb, pt, fs, p.temp, report, why);
	gw_rebuild_free(rb);
	/* What shrank meanwhile was read as zeros: name it, rather than what came of it. */
	if (base && gw_checkpoint_check(base, NULL)) {
		if (why)
			why->text[0] = 0;
		err = gw_checkpoint_check(base, why);
	}
	if (!err)
		err = gw_match_path(pt, fs, pool, watch, p.temp, report->to_print, why);
	if (err)
		goto err1;
	return gw_publish_commit(&p, why);
err1:
	gw_publish_abort(&p);
	return gw_diag_set(why, err, "cannot write %s: %s", out, gw_err_text(err));
}
