#include "patch_world.h"

#include <stdlib.h>
#include <string.h>

#include "patch/diff.h"
#include "patch_file.h"

/* A pool that claims several workers and runs its tasks in an order of its own. */
int run_backwards(struct gw_pool *pool, size_t n, int (*task)(void *arg, size_t i, unsigned worker), void *arg)
{
	int err = 0;

	for (size_t i = n; i-- > 0;) {
		int e = task(arg, i, (unsigned)(i % pool->width));

		err = e ? e : err;
	}
	return err;
}


void world_init(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->c = crash_fs_new(test_seed());
	w->fs = crash_fs_table(w->c);
	w->pool = gw_pool_serial();
	gw_rng_init(&w->rng, test_seed());
}

void world_free(struct world *w)
{
	crash_fs_free(w->c);
}

/* old NULL: from nothing. */
int make_patch(struct world *w, const char *old, const char *new_, const char *path)
{
	struct gw_diff_options opt = {.replace = 1};
	struct gw_checkpoint *a = NULL, *b;
	int err;

	w->why.text[0] = 0;
	if (old)
		ck_assert_int_eq(gw_checkpoint_open(&a, w->fs, old, &w->why), 0);
	ck_assert_int_eq(gw_checkpoint_open(&b, w->fs, new_, &w->why), 0);
	err = gw_diff(a, b, w->fs, &w->pool, &opt, path, NULL, &w->why);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	return err;
}

int apply_bytes(struct world *w, const uint8_t *p, size_t n, const char *base, const char *out)
{
	struct gw_checkpoint *c = NULL;
	struct gw_patch *pt;
	int err;

	w->why.text[0] = 0;
	err = gw_patch_open(&pt, p, n, &w->why);
	if (err)
		return err;
	if (base)
		ck_assert_int_eq(gw_checkpoint_open(&c, w->fs, base, &w->why), 0);
	err = gw_disk_apply(pt, c, w->fs, &w->pool, w->watch, out, &w->report, &w->why);
	gw_checkpoint_close(c);
	gw_patch_close(pt);
	return err;
}

/* The file system keeps a short list of what is not synced: a power cut empties it. */
void settle(struct world *w)
{
	ck_assert_int_eq(gw_fs_sync_dir(w->fs, "/"), 0);
	crash_fs_reboot(w->c, 1);
}

int apply(struct world *w, const char *patch, const char *base, const char *out)
{
	size_t n;
	uint8_t *p = read_whole(w->fs, patch, &n);
	int err = apply_bytes(w, p, n, base, out);

	free(p);
	return err;
}

int apply_in_place(struct world *w, const char *patch, const char *dir)
{
	struct gw_patch *pt;
	size_t n;
	uint8_t *p = read_whole(w->fs, patch, &n);
	int err;

	w->why.text[0] = 0;
	ck_assert_int_eq(gw_patch_open(&pt, p, n, &w->why), 0);
	err = gw_disk_apply_in_place(pt, w->fs, &w->pool, w->watch, dir, &w->report, &w->why);
	gw_patch_close(pt);
	free(p);
	return err;
}
