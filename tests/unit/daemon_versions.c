/* Tables of versions, the folders that engines start from, slots that the disk refuses, and the lock. */
#include <string.h>
#include <unistd.h>

#include "daemon.h"
#include "daemon/folders.h"
#include "daemon/slots.h"
#include "daemon/versions.h"
#include "daemon_world.h"
#include "io/os/fs_os.h"
#include "io/os/lock.h"
#include "patch/diff.h"
#include "unit.h"
#include "weights/checkpoint.h"

static const uint8_t run[16] = {1, 2, 3}, other_run[16] = {9};

static struct daemon_world w;
static struct gw_versions *versions;
static struct gw_folders *folders;
static struct model model;
static struct gw_patch *anchor;
static uint8_t *patch_bytes;

static void open_versions(void)
{
	gw_versions_free(versions);
	ck_assert_int_eq(gw_versions_open(&versions, w.fs, w.dir, NULL), 0);
}

static void open_folders(void)
{
	gw_folders_free(folders);
	ck_assert_int_eq(gw_folders_open(&folders, w.fs, w.dir, "demo", versions, NULL), 0);
}

static void make_anchor(void)
{
	struct gw_checkpoint *c;
	struct gw_rng rng;
	size_t n;

	gw_rng_init(&rng, unit_seed());
	world_model(&model, &rng);
	model_write(&model, w.fs, world_path(&w, "v0"));
	ck_assert_int_eq(gw_checkpoint_open(&c, w.fs, world_path(&w, "v0"), NULL), 0);
	ck_assert_int_eq(gw_diff(NULL, c, w.fs, &w.pool, NULL, world_path(&w, "anchor"), NULL, NULL), 0);
	gw_checkpoint_close(c);
	patch_bytes = read_whole(w.fs, world_path(&w, "anchor"), &n);
	ck_assert_int_eq(gw_patch_open(&anchor, patch_bytes, n, NULL), 0);
}

static void setup(void)
{
	world_init(&w, NULL, 1);
	versions = NULL;
	folders = NULL;
	open_versions();
	make_anchor();
	open_folders();
}

static void teardown(void)
{
	gw_patch_close(anchor);
	free(patch_bytes);
	gw_folders_free(folders);
	gw_versions_free(versions);
	model_free(&model);
	world_free(&w);
}

static void keep(const uint8_t of[16], uint64_t version)
{
	const uint64_t lanes[2] = {version, 7}, shape[1] = {3};
	struct gw_table *t;

	ck_assert_int_eq(gw_table_new(&t, of, version), 0);
	ck_assert_int_eq(gw_table_add(t, "x", GW_DT_BF16, 1, shape, lanes), 0);
	ck_assert_int_eq(gw_versions_keep(versions, t, NULL), 0);
	gw_table_free(t);
}

static int knows(const uint8_t of[16], uint64_t version)
{
	struct gw_table *t = gw_versions_find(versions, of, version);

	gw_table_free(t);
	return t != NULL;
}

/* --- versions --- */

START_TEST(the_newest_versions_are_kept)
{
	struct gw_table *t;

	keep(other_run, 1);
	for (uint64_t v = 0; v < GW_VERSIONS_KEPT + 3; v++)
		keep(run, v);
	for (int again = 0; again < 2; again++) {
		for (uint64_t v = 0; v < GW_VERSIONS_KEPT + 3; v++)
			ck_assert_int_eq(knows(run, v), v >= 3);
		ck_assert(knows(other_run, 1));
		t = gw_versions_at(versions, 0);
		ck_assert_uint_eq(gw_table_version(t), GW_VERSIONS_KEPT + 2);
		gw_table_free(t);
		open_versions();
	}
	gw_folders_free(folders); /* it speaks of the old table of versions */
	folders = NULL;
}
END_TEST

START_TEST(pinned_versions_stay)
{
	gw_versions_pin(versions, run, 2);
	gw_versions_pin(versions, run, 2);
	for (uint64_t v = 0; v < 100; v++)
		keep(run, v);
	ck_assert(knows(run, 2));
	ck_assert(!knows(run, 3));
	ck_assert(knows(run, 100 - GW_VERSIONS_KEPT));
	gw_versions_unpin(versions, run, 2);
	keep(run, 100);
	ck_assert(!knows(run, 2));
	for (uint64_t v = 0; v < GW_VERSIONS_PINS_MAX + 5; v++)
		gw_versions_pin(versions, other_run, v);
	gw_versions_unpin(versions, run, 77);
}
END_TEST

START_TEST(many_runs_have_a_bound)
{
	uint8_t of[16] = {0};

	for (unsigned i = 0; i < GW_VERSIONS_MAX + 9; i++) {
		of[0] = (uint8_t)i;
		of[1] = (uint8_t)(i >> 8);
		keep(of, 0);
	}
	ck_assert_ptr_null(gw_versions_at(versions, GW_VERSIONS_MAX));
	ck_assert(knows(of, 0));
}
END_TEST

START_TEST(damaged_tables_are_skipped)
{
	uint8_t *p;
	size_t n;
	const char *path = world_path(&w, "versions/01020300000000000000000000000000-4.table");

	keep(run, 4);
	keep(run, 5);
	p = read_whole(w.fs, path, &n);
	write_whole(w.fs, path, p, n - 1);
	free(p);
	gw_folders_free(folders);
	folders = NULL;
	open_versions();
	ck_assert(!knows(run, 4));
	ck_assert(knows(run, 5));
}
END_TEST

/* --- folders --- */

static void make(const uint8_t of[16], uint64_t version)
{
	struct gw_diag why = {""};

	keep(of, version);
	ck_assert_int_eq(gw_folders_make(folders, anchor, of, version, &w.pool, &why), 0);
}

static int is_there(const uint8_t of[16], uint64_t version)
{
	char *path = gw_folders_path(folders, of, version);
	struct gw_stat st;
	int there = !gw_fs_stat(w.fs, path, &st);

	free(path);
	return there;
}

static void check_current(const uint8_t of[16], uint64_t version)
{
	char *path = gw_folders_path(folders, of, version), target[128];
	ssize_t n = readlink(world_path(&w, "checkpoints/demo/CURRENT"), target, sizeof target - 1);

	ck_assert_int_gt((int)n, 0);
	target[n] = 0;
	ck_assert_str_eq(target, strrchr(path, '/') + 1);
	ck_assert(same_tree(w.fs, world_path(&w, "v0"), path));
	free(path);
}

START_TEST(an_engine_can_go_on_reading)
{
	make(run, 3);
	check_current(run, 3);
	ck_assert(!gw_folders_has_old(folders));
	make(run, 9);
	check_current(run, 9);
	ck_assert(is_there(run, 3)); /* somebody may be reading it */
	ck_assert(gw_folders_has_old(folders));
	make(run, 12);
	ck_assert(!is_there(run, 3));
	ck_assert(is_there(run, 9));
	gw_folders_sweep(folders);
	ck_assert(!is_there(run, 9));
	check_current(run, 12);
}
END_TEST

START_TEST(the_table_of_a_folder_outlives_many_versions)
{
	make(run, 3);
	for (uint64_t v = 4; v < 100; v++)
		keep(run, v);
	ck_assert(knows(run, 3));
	open_versions();
	open_folders();
	for (uint64_t v = 100; v < 120; v++)
		keep(run, v);
	ck_assert(knows(run, 3));
	/* When the folder goes, so does its table. */
	make(run, 120);
	gw_folders_sweep(folders);
	for (uint64_t v = 121; v < 140; v++)
		keep(run, v);
	ck_assert(!knows(run, 3));
	ck_assert(knows(run, 120));
}
END_TEST

START_TEST(after_a_restart_it_knows_what_is_there)
{
	make(run, 3);
	make(run, 9);
	open_folders();
	ck_assert(gw_folders_has_old(folders));
	make(run, 3); /* nothing goes back */
	check_current(run, 9);
	make(run, 10);
	ck_assert(!is_there(run, 3));
	ck_assert(is_there(run, 9));
}
END_TEST

START_TEST(another_run_has_folders_of_its_own)
{
	make(run, 3);
	make(other_run, 0);
	check_current(other_run, 0);
	ck_assert(is_there(run, 3));
	gw_folders_sweep(folders);
	ck_assert(!is_there(run, 3));
}
END_TEST

START_TEST(strange_files_do_no_harm)
{
	make(run, 3);
	write_whole(w.fs, world_path(&w, "checkpoints/demo/notes"), "x", 1);
	write_whole(w.fs, world_path(&w, "checkpoints/demo/3-zz"), "x", 1);
	write_whole(w.fs, world_path(&w, "checkpoints/demo/03-01020300000000000000000000000000"), "x", 1);
	open_folders();
	ck_assert(!gw_folders_has_old(folders));
	make(run, 4);
	check_current(run, 4);
}
END_TEST

/* --- slots --- */

static struct gw_fs_ops shaky_ops;
static struct gw_fs shaky = {&shaky_ops};
static int rename_err;

static int shaky_rename(struct gw_fs *fs, const char *from, const char *to)
{
	return rename_err ? rename_err : gw_fs_os()->ops->rename(fs, from, to);
}

static struct gw_bytes bytes_of(const char *text)
{
	return (struct gw_bytes){(const uint8_t *)text, strlen(text)};
}

START_TEST(a_slot_is_written_again_until_it_is_durable)
{
	struct gw_store *store;
	struct gw_slots slots;
	uint8_t *p;
	size_t n;

	shaky_ops = *gw_fs_os()->ops;
	shaky_ops.rename = shaky_rename;
	ck_assert_int_eq(gw_store_open(&store, &shaky, world_path(&w, "shaky"), 0, NULL), 0);
	gw_slots_init(&slots, store, w.loop);
	ck_assert_int_eq(gw_slots_put(&slots, "board", bytes_of("one")), 0);
	rename_err = GW_ENOSPACE;
	ck_assert_int_eq(gw_slots_put(&slots, "board", bytes_of("two")), GW_ENOSPACE);
	ck_assert_int_eq(gw_slots_put(&slots, "board", bytes_of("three")), GW_ENOSPACE);
	ck_assert(gw_slots_late(&slots, "board"));
	ck_assert(!gw_slots_late(&slots, "mesh"));
	rename_err = 0;
	while (gw_slots_late(&slots, "board")) /* a second */
		ck_assert_int_eq(gw_loop_turn(w.loop, 100), 0);
	ck_assert_int_eq(gw_store_get(store, "board", &p, &n, NULL), 0);
	ck_assert_uint_eq(n, 5);
	ck_assert_mem_eq(p, "three", 5);
	free(p);
	rename_err = GW_EIO;
	ck_assert_int_eq(gw_slots_put(&slots, "mesh", bytes_of("x")), GW_EIO);
	gw_slots_end(&slots);
	rename_err = 0;
	gw_store_free(store);
}
END_TEST

START_TEST(a_state_folder_has_one_process)
{
	struct gw_diag why = {""};
	char pid[24];
	int a, b;

	ck_assert_int_eq(gw_lock_folder(w.dir, &a, &why), 0);
	ck_assert_int_eq(gw_lock_folder(w.dir, &b, &why), GW_ESTATE);
	(void)snprintf(pid, sizeof pid, "(%ld)", (long)getpid());
	ck_assert_ptr_nonnull(strstr(why.text, pid));
	ck_assert_ptr_nonnull(strstr(why.text, "--state"));
	close(a);
	ck_assert_int_eq(gw_lock_folder(w.dir, &a, NULL), 0);
	close(a);
	ck_assert_int_ne(gw_lock_folder(world_path(&w, "nowhere"), &a, &why), 0);
}
END_TEST

TCase *daemon_versions_tests(void)
{
	TCase *t = tcase_create("versions");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_newest_versions_are_kept);
	tcase_add_test(t, pinned_versions_stay);
	tcase_add_test(t, many_runs_have_a_bound);
	tcase_add_test(t, damaged_tables_are_skipped);
	tcase_add_test(t, an_engine_can_go_on_reading);
	tcase_add_test(t, the_table_of_a_folder_outlives_many_versions);
	tcase_add_test(t, after_a_restart_it_knows_what_is_there);
	tcase_add_test(t, another_run_has_folders_of_its_own);
	tcase_add_test(t, strange_files_do_no_harm);
	tcase_add_test(t, a_slot_is_written_again_until_it_is_durable);
	tcase_add_test(t, a_state_folder_has_one_process);
	return t;
}
