/* Applying a patch in place: gather all that will be written into a redo log, then replay it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/publish.h"
#include "patch/disk.h"
#include "patch/inside.h"
#include "patch/match.h"
#include "patch/rebuild.h"
#include "patch/redo.h"

/* Where things are. A checkpoint that is a single file lies in its parent, among strangers. */
struct place {
	const char *path;   /* the checkpoint */
	char *folder, *log; /* where its files lie; the log */
	int single;
};

static int place_init(struct place *w, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	const char *base = gw_path_base(path);
	size_t n = strlen(base), log_cap;
	struct gw_stat st;
	char *dir, *name;
	int err = gw_fs_stat(fs, path, &st);

	*w = (struct place){.path = path};
	if (err)
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	if (st.type != GW_FILE_DIR && st.type != GW_FILE_REGULAR)
		return gw_diag_set(why, GW_EINVAL,
				   "%s is neither folder nor file: give the checkpoint itself, not a link to it", path);
	while (n > 1 && base[n - 1] == '/')
		n--;
	if ((n == 1 && (base[0] == '.' || base[0] == '/')) || (n == 2 && !strncmp(base, "..", 2)))
		return gw_diag_set(why, GW_EINVAL, "%s: give the checkpoint by its name: its redo log lies beside it",
				   path);
	w->single = st.type == GW_FILE_REGULAR;
	log_cap = n + sizeof "..godwit-redo";
	dir = gw_path_dir(path);
	name = malloc(log_cap);
	if (dir && name) {
		(void)snprintf(name, log_cap, ".%.*s.godwit-redo", (int)n, base);
		w->log = gw_path_join(dir, name);
		w->folder = w->single ? strdup(dir) : strdup(path);
	}
	free(dir);
	free(name);
	return w->log && w->folder ? 0 : GW_ENOMEM;
}

static void place_free(struct place *w)
{
	free(w->folder);
	free(w->log);
}

/* What interrupted preparations left. Nothing of it is needed once there is no log. */
static int sweep(const struct place *w, struct gw_fs *fs)
{
	int err = w->single ? gw_publish_sweep_of(fs, w->path) : gw_publish_sweep(fs, w->folder);

	return err ? err : gw_publish_sweep_of(fs, w->log);
}

/* --- replay ----------------------------------------------------------------------------------- */

/* Does what the log says. GW_ENOENT where there is none. */
static int replay(const struct place *w, struct gw_fs *fs, struct gw_disk_report *report, struct gw_redo_info *info,
		  struct gw_diag *why)
{
	struct gw_mapping map;
	struct gw_file *f;
	int err = gw_fs_open(fs, w->log, GW_OPEN_READ | GW_OPEN_NOFOLLOW, &f), gone;

	if (err == GW_ENOENT)
		return err;
	if (!err) {
		err = gw_fs_map(fs, f, &map);
		gw_fs_close(fs, f);
	}
	if (err)
		return gw_diag_set(why, err, "redo log %s: %s", w->log, gw_err_text(err));
	err = gw_redo_replay(fs, w->folder, map.p, map.n, info, why);
	if (err)
		(void)gw_diag_wrap(why, err, "redo log %s", w->log);
	gone = gw_fs_unmap(fs, &map);
	report->files = info->files;
	report->written_bytes += info->written_bytes;
	return err ? err : gone ? gw_diag_set(why, gone, "redo log %s: %s", w->log, gw_err_text(gone)) : 0;
}

/* The change is done and proven: forget it. */
static int drop_log(const struct place *w, struct gw_fs *fs, struct gw_diag *why)
{
	char *dir = gw_path_dir(w->log);
	int err = dir ? gw_fs_unlink(fs, w->log) : GW_ENOMEM;

	if (!err)
		err = gw_publish_sync_dir(fs, dir, why);
	free(dir);
	return err ? gw_diag_set(why, err, "cannot remove the redo log %s: %s", w->log, gw_err_text(err)) : 0;
}

/* Reads the model back. */
static int read_back(const struct place *w, struct gw_fs *fs, struct gw_pool *pool, const uint64_t want[2],
		     struct gw_disk_report *report, struct gw_diag *why)
{
	struct gw_checkpoint *c;
	int err = gw_checkpoint_open(&c, fs, w->path, why);

	if (err)
		return err;
	err = gw_disk_prints(c, pool, NULL, NULL, report->to_print, why);
	gw_checkpoint_close(c);
	if (!err && memcmp(want, report->to_print, sizeof report->to_print))
		err = gw_diag_set(
			why, GW_EFINGERPRINT,
			"%s: does not hold what its redo log says, though all of it was written; the log %s is kept",
			w->path, w->log);
	return err;
}

static int recover(const struct place *w, struct gw_fs *fs, struct gw_pool *pool, struct gw_disk_report *report,
		   struct gw_diag *why)
{
	struct gw_redo_info info;
	int err = replay(w, fs, report, &info, why);

	if (err == GW_ENOENT)
		return sweep(w, fs);
	if (!err)
		err = read_back(w, fs, pool, info.to_print, report, why);
	if (!err)
		err = drop_log(w, fs, why);
	report->recovered = !err;
	return err ? err : sweep(w, fs);
}

int gw_disk_recover(struct gw_fs *fs, struct gw_pool *pool, const char *dir, struct gw_disk_report *report,
		    struct gw_diag *why)
{
	struct gw_disk_report own;
	struct place w;
	int err;

	report = report ? report : &own;
	memset(report, 0, sizeof *report);
	err = place_init(&w, fs, dir, why);
	if (!err)
		err = recover(&w, fs, pool, report, why);
	place_free(&w);
	return err ? gw_diag_set(why, err, "%s: %s", dir, gw_err_text(err)) : 0;
}

/* --- the log ---------------------------------------------------------------------------------- */

struct gathering {
	const struct place *w;
	struct gw_fs *fs;
	const struct gw_checkpoint *base;
	struct gw_rebuild *rb;
	struct gw_redo_writer *log;
	struct gw_changes_buf changes;
	char **temps; /* sealed files, by paths, until the log names them durably */
	size_t temp_count;
	/* the shard that is compared */
	const char *name;
	const struct gw_shard *shard;
	int named; /* the log has a WRITE step for it */
	struct gw_diag *why;
};

/* A file's name in the folder. */
static const char *name_of(const struct gathering *g, const struct gw_patch_file *f)
{
	return g->w->single ? gw_path_base(g->w->path) : f->name;
}

static int log_run(struct gathering *g, uint64_t at, const uint8_t *p, uint64_t elements, unsigned width)
{
	struct gw_tile_changes c = {0, g->changes.at, g->changes.old_bits, g->changes.new_bits};
	int err = 0;

	c.n = gw_scan_run(&g->changes, 0, g->shard->p + at, p, elements, width, 0);
	if (!c.n)
		return 0;
	if (!g->named)
		err = gw_redo_write(g->log, g->name, g->shard->bytes);
	g->named = 1;
	if (err)
		return err;
	return c.n > elements / 2 ? gw_redo_bytes(g->log, at, p, (uint32_t)(elements * width))
				  : gw_redo_changes(g->log, at, width, &c);
}

/* Compares what shall be with what the shard holds at the same place. */
static int compare(void *ctx, uint64_t at, const uint8_t *p, uint64_t n, unsigned width)
{
	struct gathering *g = ctx;
	int err = 0;

	if (p == g->shard->p + at)
		return 0;
	for (uint64_t e = 0; !err && e < n / width; e += GW_TILE_ELEMENTS_MAX)
		err = log_run(g, at + e * width, p + e * width, gw_min_u64(GW_TILE_ELEMENTS_MAX, n / width - e), width);
	return err;
}

static int gather_shard(struct gathering *g, const struct gw_patch_file *f)
{
	struct gw_sink sink = {compare, g};

	g->name = name_of(g, f);
	g->shard = gw_match_shard(g->base, f->name);
	g->named = 0;
	if (!g->shard || g->shard->bytes != f->bytes + f->data_bytes)
		return gw_diag_set(g->why, GW_EBASE, "%s: shard %s is missing, or has another size", g->w->path,
				   f->name);
	return gw_rebuild_file(g->rb, f, &sink, g->why);
}

static int put(void *ctx, uint64_t at, const uint8_t *p, uint64_t n, unsigned width)
{
	struct gw_publish *o = ctx;

	(void)width;
	return n ? gw_fs_pwrite(o->fs, o->file, p, n, at) : 0;
}

/* A file that is replaced: written beside, sealed, and named in the log. */
static int gather_fresh(struct gathering *g, const struct gw_patch_file *f)
{
	char *path = gw_path_join(g->w->folder, name_of(g, f)), **temp = &g->temps[g->temp_count];
	struct gw_publish o;
	struct gw_sink sink = {put, &o};
	int err = path ? gw_publish_begin(&o, g->fs, path, GW_PUBLISH_REPLACE, g->why) : GW_ENOMEM;

	free(path);
	if (err)
		return err;
	err = gw_rebuild_file(g->rb, f, &sink, g->why);
	if (err) {
		gw_publish_abort(&o);
		return gw_diag_set(g->why, err, "cannot write %s: %s", f->name, gw_err_text(err));
	}
	err = gw_publish_seal(&o, temp, g->why);
	if (err)
		return err;
	g->temp_count++;
	return gw_redo_move(g->log, gw_path_base(*temp), name_of(g, f));
}

static int gather_files(struct gathering *g, const struct gw_patch *pt)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < pt->info.files; i++) {
		const struct gw_patch_file *f = &pt->files[i];

		if (g->w->single && strcmp(f->name, GW_PATCH_SINGLE))
			return gw_diag_set(g->why, GW_EINVAL,
					   "%s: a single file cannot become a version with the file %s", g->w->path,
					   f->name);
		if (f->kind == GW_PATCH_GONE)
			err = gw_redo_remove(g->log, name_of(g, f));
		else if (f->fresh)
			err = gather_fresh(g, f);
		else if (f->kind == GW_PATCH_SHARD)
			err = gather_shard(g, f);
	}
	return err;
}

/* Where the log did not come to be, nothing needs what was sealed. A log that may be there, though the disk said no,
 * does. */
static void drop_temps(struct gathering *g)
{
	struct gw_stat st;
	int needed = gw_fs_stat(g->fs, g->w->log, &st) != GW_ENOENT;

	for (size_t i = 0; i < g->temp_count; i++) {
		if (!needed)
			(void)gw_publish_remove(g->fs, g->temps[i]);
		free(g->temps[i]);
	}
	free(g->temps);
}

/* Writes the log. When it returns 0, the log is durable and all that it names. */
static int gather(const struct place *w, const struct gw_patch *pt, const struct gw_checkpoint *base, struct gw_fs *fs,
		  struct gw_pool *pool, struct gw_progress *watch, struct gw_diag *why)
{
	struct gathering g = {.w = w, .fs = fs, .base = base, .why = why};
	struct gw_publish p;
	int err;

	g.temps = calloc((size_t)pt->info.files + 1, sizeof *g.temps);
	if (!g.temps)
		return GW_ENOMEM;
	err = gw_changes_buf_init(&g.changes);
	if (err)
		goto err0;
	err = gw_rebuild_new(&g.rb, pt, base, pool, watch);
	if (err)
		goto err1;
	err = gw_publish_begin(&p, fs, w->log, 0, why);
	if (err)
		goto err2;
	err = gw_redo_begin(&g.log, &p, pt->info.from_print, pt->info.to_print);
	if (!err)
		err = gather_files(&g, pt);
	if (!err)
		err = gw_rebuild_check(g.rb, why);
	if (!err)
		err = gw_redo_end(g.log);
	if (!err)
		err = gw_checkpoint_check(base, why);
	gw_redo_free(g.log);
	if (err) {
		(void)gw_diag_set(why, err, "cannot write the redo log %s: %s", w->log, gw_err_text(err));
		gw_publish_abort(&p);
	} else {
		err = gw_publish_commit(&p, why);
	}
err2:
	gw_rebuild_free(g.rb);
err1:
	gw_changes_buf_free(&g.changes);
err0:
	if (err) {
		drop_temps(&g);
		return err;
	}
	for (size_t i = 0; i < g.temp_count; i++)
		free(g.temps[i]);
	free(g.temps);
	return 0;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Proves what is there: *already, or the base; and then writes the log. */
static int prepare(const struct place *w, const struct gw_patch *pt, struct gw_fs *fs, struct gw_pool *pool,
		   struct gw_progress *watch, struct gw_disk_report *report, struct gw_diag *why)
{
	struct gw_checkpoint *c;
	struct gw_match m;
	int err = gw_checkpoint_open(&c, fs, w->path, why);

	if (err)
		return err;
	gw_progress_expect(watch, gw_disk_bytes(c));
	err = gw_match_init(&m, c, pool, watch, why);
	if (err)
		goto err0;
	report->already = !gw_match_result(&m, pt, NULL);
	if (report->already)
		memcpy(report->to_print, m.model, sizeof m.model);
	else if (pt->info.anchor)
		err = gw_diag_set(why, GW_EINVAL,
				  "the patch holds a whole version: apply it with -o into a new folder");
	else
		err = gw_match_base(&m, pt, why);
	if (!err && !report->already) {
		gw_progress_expect(watch, 2 * pt->info.bytes);
		err = gather(w, pt, c, fs, pool, watch, why);
	}
	gw_match_free(&m);
err0:
	gw_checkpoint_close(c);
	return err;
}

int gw_disk_apply_in_place(const struct gw_patch *pt, struct gw_fs *fs, struct gw_pool *pool,
			   struct gw_progress *watch, const char *dir, struct gw_disk_report *report,
			   struct gw_diag *why)
{
	struct gw_disk_report own;
	struct gw_redo_info info;
	struct place w;
	int err;

	report = report ? report : &own;
	memset(report, 0, sizeof *report);
	err = place_init(&w, fs, dir, why);
	if (!err)
		err = recover(&w, fs, pool, report, why);
	if (!err)
		err = prepare(&w, pt, fs, pool, watch, report, why);
	if (!err && !report->already) {
		err = replay(&w, fs, report, &info, why);
		if (!err)
			err = gw_match_path(pt, fs, pool, watch, w.path, report->to_print, why);
		if (!err)
			err = drop_log(&w, fs, why);
	}
	place_free(&w);
	return err ? gw_diag_set(why, err, "%s: %s", dir, gw_err_text(err)) : 0;
}
