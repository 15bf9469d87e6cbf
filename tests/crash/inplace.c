/*
 * A change in place under every cut. The process dies, or the power fails, inside every single operation of it in turn,
 * and again inside the recovery. What the next run leaves is the old checkpoint or the new one, to the byte; and
 * applying again ends in the new one.
 */
#include <stdio.h>
#include <string.h>

#include "../unit/model.h"
#include "../unit/unit.h"
#include "base/publish.h"
#include "crash_fs.h"
#include "patch/diff.h"
#include "patch/disk.h"

struct world {
	struct crash_fs *c;
	struct gw_fs *fs;
	struct gw_pool pool;
	struct gw_diag why;
	uint8_t *patch;
	size_t patch_bytes;
};

static void make_folders(struct model *a, struct model *b, struct gw_rng *rng)
{
	static const uint64_t s1[] = {60, 40}, s2[] = {11}, s3[] = {500};

	(void)strcpy(a->shard[0], "model-00001-of-00003.safetensors");
	(void)strcpy(a->shard[1], "model-00002-of-00003.safetensors");
	(void)strcpy(a->shard[2], "model-00003-of-00003.safetensors");
	(void)model_add(a, rng, 0, "a", GW_DT_BF16, 2, s1);
	(void)model_add(a, rng, 0, "b", GW_DT_F32, 1, s3);
	(void)model_add(a, rng, 1, "c", GW_DT_BF16, 2, s1);
	(void)model_add(a, rng, 2, "d", GW_DT_U8, 1, s3);
	model_other(a, "config.json", "{}");
	model_other(a, "gone.json", "{}");
	model_copy(b, a);
	model_change(&b->t[0], rng, 20, 1); /* overwritten in place */
	model_change(&b->t[3], rng, 1, 16);
	(void)model_add(b, rng, 1, "e", GW_DT_I8, 1, s2); /* another header: replaced */
	(void)strcpy(b->other[0].text, "{\"new\": 1}");
	(void)strcpy(b->other[1].name, "made.json");
}

static void make_files(struct model *a, struct model *b, struct gw_rng *rng, int new_header)
{
	static const uint64_t s1[] = {60, 40}, s2[] = {11};

	(void)model_add(a, rng, 0, "a", GW_DT_BF16, 2, s1);
	model_copy(b, a);
	model_change(&b->t[0], rng, 20, 1);
	if (new_header)
		(void)model_add(b, rng, 0, "e", GW_DT_I8, 1, s2);
}

/* /w/m is the old checkpoint, /a and /b both, for comparing. */
static void world_init(struct world *w, const struct model *a, const struct model *b, uint64_t seed)
{
	struct gw_checkpoint *ca, *cb;

	memset(w, 0, sizeof *w);
	w->c = crash_fs_new(seed);
	w->fs = crash_fs_table(w->c);
	w->pool = gw_pool_serial();
	model_write(a, w->fs, "/a");
	model_write(b, w->fs, "/b");
	ck_assert_int_eq(gw_checkpoint_open(&ca, w->fs, "/a", &w->why), 0);
	ck_assert_int_eq(gw_checkpoint_open(&cb, w->fs, "/b", &w->why), 0);
	ck_assert_int_eq(gw_diff(ca, cb, w->fs, &w->pool, NULL, "/p", NULL, &w->why), 0);
	gw_checkpoint_close(ca);
	gw_checkpoint_close(cb);
	w->patch = read_whole(w->fs, "/p", &w->patch_bytes);
	ck_assert_int_eq(gw_fs_mkdir(w->fs, "/w"), 0);
	model_write(a, w->fs, "/w/m");
	ck_assert_int_eq(gw_fs_sync_dir(w->fs, "/w"), 0);
	ck_assert_int_eq(gw_fs_sync_dir(w->fs, "/"), 0);
	crash_fs_reboot(w->c, 1);
}

static void world_free(struct world *w)
{
	free(w->patch);
	crash_fs_free(w->c);
}

static int apply(struct world *w)
{
	struct gw_patch *pt;
	int err;

	w->why.text[0] = 0;
	ck_assert_int_eq(gw_patch_open(&pt, w->patch, w->patch_bytes, NULL), 0);
	err = gw_disk_apply_in_place(pt, w->fs, &w->pool, NULL, "/w/m", NULL, &w->why);
	gw_patch_close(pt);
	return err;
}

static int count(void *ctx, const char *name)
{
	(void)name;
	++*(int *)ctx;
	return 0;
}

/* Nothing but the checkpoint is left. */
static void check_clean(struct world *w)
{
	int n = 0;

	ck_assert_int_eq(gw_fs_list(w->fs, "/w", count, &n), 0);
	ck_assert_int_eq(n, 1);
}

/* Dies in operation `at` of a change; returns 0 where it ended before. */
static int one_cut(const struct model *a, const struct model *b, uint64_t at, int power_cut)
{
	struct gw_rng rng;
	struct world w;
	int died, err;

	gw_rng_init(&rng, at);
	world_init(&w, a, b, at);
	crash_fs_die_at(w.c, at);
	err = apply(&w);
	died = crash_fs_dead(w.c);
	ck_assert_msg(died || !err, "%s", w.why.text);
	crash_fs_reboot(w.c, power_cut);
	/* A third of the recoveries die too. */
	if (gw_rng_below(&rng, 3) == 0) {
		crash_fs_die_at(w.c, 1 + gw_rng_below(&rng, 12));
		(void)gw_disk_recover(w.fs, &w.pool, "/w/m", NULL, NULL);
		crash_fs_reboot(w.c, power_cut);
	}
	w.why.text[0] = 0;
	err = gw_disk_recover(w.fs, &w.pool, "/w/m", NULL, &w.why);
	ck_assert_msg(!err, "op %llu: %s", (unsigned long long)at, w.why.text);
	ck_assert_msg(same_tree(w.fs, "/a", "/w/m") || same_tree(w.fs, "/b", "/w/m"), "op %llu: neither old nor new",
		      (unsigned long long)at);
	ck_assert(died || same_tree(w.fs, "/b", "/w/m"));
	err = apply(&w);
	ck_assert_msg(!err, "op %llu: %s", (unsigned long long)at, w.why.text);
	ck_assert(same_tree(w.fs, "/b", "/w/m"));
	check_clean(&w);
	world_free(&w);
	return died;
}

static void all_cuts(const struct model *a, const struct model *b, int power_cut)
{
	uint64_t at = 1;

	while (one_cut(a, b, at, power_cut))
		at++;
	ck_assert_uint_gt(at, 5);
}

START_TEST(folders)
{
	struct model a = {0}, b = {0};
	struct gw_rng rng;

	gw_rng_init(&rng, 1);
	make_folders(&a, &b, &rng);
	all_cuts(&a, &b, _i);
	model_free(&a);
	model_free(&b);
}
END_TEST

START_TEST(single_files)
{
	struct model a = {0}, b = {0};
	struct gw_rng rng;

	gw_rng_init(&rng, 2);
	make_files(&a, &b, &rng, _i / 2);
	all_cuts(&a, &b, _i % 2);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* Each operation fails once, the process living on: the error is said, and a second run ends in the new one. */
START_TEST(failing_disks)
{
	static const int errs[] = {GW_EIO, GW_ENOSPACE};
	struct model a = {0}, b = {0};
	struct gw_rng rng;
	uint64_t ops = 0;

	gw_rng_init(&rng, 3);
	make_folders(&a, &b, &rng);
	for (uint64_t at = 1; !ops || at <= ops; at++) {
		struct world w;
		int err;

		world_init(&w, &a, &b, at);
		crash_fs_fail_at(w.c, at, errs[at % 2]);
		err = apply(&w);
		if (!err)
			ops = crash_fs_ops(w.c);
		else
			ck_assert(w.why.text[0]);
		crash_fs_fail_at(w.c, 0, 0);
		err = apply(&w);
		ck_assert_msg(!err, "op %llu: %s", (unsigned long long)at, w.why.text);
		ck_assert(same_tree(w.fs, "/b", "/w/m"));
		check_clean(&w);
		world_free(&w);
	}
	model_free(&a);
	model_free(&b);
}
END_TEST

/* A log that was damaged is refused by name, before anything is written. */
START_TEST(damaged_logs)
{
	struct model a = {0}, b = {0};
	struct gw_rng rng;
	struct world w;
	uint64_t at = 0;
	struct gw_stat st;
	int err;

	gw_rng_init(&rng, 4);
	make_folders(&a, &b, &rng);
	/* The first operation after which the log is there. */
	do {
		world_init(&w, &a, &b, 5);
		crash_fs_die_at(w.c, ++at);
		(void)apply(&w);
		crash_fs_reboot(w.c, 0);
		err = gw_fs_stat(w.fs, "/w/.m.godwit-redo", &st);
		if (err)
			world_free(&w);
	} while (err);
	crash_fs_damage(w.c, "/w/.m.godwit-redo", st.size / 2);
	w.why.text[0] = 0;
	ck_assert_int_eq(apply(&w), GW_EDIGEST);
	ck_assert(strstr(w.why.text, "godwit-redo") != NULL);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("inplace");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, folders, 0, 2);
	tcase_add_loop_test(t, single_files, 0, 4);
	tcase_add_test(t, failing_disks);
	tcase_add_test(t, damaged_logs);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
