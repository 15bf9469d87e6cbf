/* Diff and apply: any two checkpoints, byte for byte; wrong bases and damaged patches refused. */
#include "patch/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/publish.h"
#include "model.h"
#include "patch/diff.h"
#include "patch/inside.h"
#include "patch_file.h"
#include "patch_world.h"

/* Both ways, from nothing, and in place: all give b from a. */
static void check_pair(const struct model *a, const struct model *b)
{
	struct world w;

	world_init(&w);
	model_write(a, w.fs, "/a");
	model_write(b, w.fs, "/b");
	OK(make_patch(&w, "/a", "/b", "/ab"));
	OK(apply(&w, "/ab", "/a", "/b2"));
	ck_assert(same_tree(w.fs, "/b", "/b2"));
	OK(make_patch(&w, "/b", "/a", "/ba"));
	OK(apply(&w, "/ba", "/b2", "/a2"));
	ck_assert(same_tree(w.fs, "/a", "/a2"));
	OK(apply_in_place(&w, "/ab", "/a2"));
	ck_assert_int_eq(w.report.already, same_tree(w.fs, "/a", "/b"));
	ck_assert(same_tree(w.fs, "/b", "/a2"));
	OK(apply_in_place(&w, "/ab", "/a2"));
	ck_assert(w.report.already);
	OK(make_patch(&w, NULL, "/b", "/nb"));
	OK(apply(&w, "/nb", NULL, "/b3"));
	if (b->shard[0][0]) /* from nothing, a single file becomes a folder */
		ck_assert(same_tree(w.fs, "/b", "/b3"));
	world_free(&w);
}

static void two_shards(struct model *m, struct gw_rng *rng)
{
	static const uint64_t s1[] = {40, 30}, s2[] = {64}, big[] = {640, 1024};

	(void)strcpy(m->shard[0], "model-00001-of-00002.safetensors");
	(void)strcpy(m->shard[1], "model-00002-of-00002.safetensors");
	(void)model_add(m, rng, 0, "model.embed_tokens.weight", GW_DT_BF16, 2, s1);
	(void)model_add(m, rng, 0, "model.layers.0.mlp.down_proj.weight", GW_DT_BF16, 2, big);
	(void)model_add(m, rng, 0, "model.layers.0.norm.weight", GW_DT_F32, 1, s2);
	(void)model_add(m, rng, 1, "model.layers.0.mlp.up_proj.weight", GW_DT_BF16, 2, big);
	(void)model_add(m, rng, 1, "scalar", GW_DT_F32, 0, NULL);
	model_other(m, "config.json", "{\"hidden_size\": 30}\n");
	model_other(m, "tokenizer.json", "{}");
	model_other(m, GW_INDEX_NAME,
		    "{\"metadata\": {}, \"weight_map\": {"
		    "\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\","
		    "\"model.layers.0.mlp.down_proj.weight\": \"model-00001-of-00002.safetensors\"}}");
}

static const enum gw_dtype dtypes[] = {
#define GW_DTYPE(name, number, bits, class) GW_DT_##name,
#include "weights/dtype.def"
#undef GW_DTYPE
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* Every dtype, in one checkpoint, from nothing changed to everything random; with empty and scalar ones. */
START_TEST(every_dtype_and_density)
{
	static const uint64_t every[] = {UINT64_MAX, 1000, 50, 3, 1}, shape[] = {42, 50}, empty[] = {0, 7}, one[] = {1};
	struct model a = {0}, b;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	(void)strcpy(a.shard[0], "model.safetensors");
	for (unsigned i = 0; i < DTYPES; i++) {
		char name[32];

		(void)snprintf(name, sizeof name, "t%02u", i);
		(void)model_add(&a, &rng, 0, name, dtypes[i], 2, shape);
	}
	(void)model_add(&a, &rng, 0, "empty", GW_DT_BF16, 2, empty);
	(void)model_add(&a, &rng, 0, "scalar", GW_DT_F64, 0, NULL);
	(void)model_add(&a, &rng, 0, "one", GW_DT_BOOL, 1, one);
	model_copy(&b, &a);
	for (unsigned i = 0; i < b.n; i++)
		model_change(&b.t[i], &rng, every[_i / 2], _i % 2 ? 16 : 1);
	check_pair(&a, &b);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* Tensors that are cut along both axes, in rows and in columns, so that bands hold many tiles. */
START_TEST(sliced_tensors)
{
	static const uint64_t shapes[][3] = {
		{640, 1024, 1}, {1024, 16, 40}, {17, 40000, 1}, {3, 300000, 1}, {600001, 1, 1}};
	struct model a = {0}, b;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	(void)strcpy(a.shard[0], "model.safetensors");
	for (unsigned i = 0; i < 5; i++) {
		static const char *const names[] = {"q_proj.weight", "o_proj.weight", "down_proj.weight",
						    "up_proj.weight", "x"};
		char name[40];

		(void)snprintf(name, sizeof name, "model.layers.%u.%s", i, names[i]);
		(void)model_add(&a, &rng, 0, name, i == 3 ? GW_DT_F8_E4M3 : GW_DT_BF16, i == 1 ? 3 : 2, shapes[i]);
	}
	model_copy(&b, &a);
	for (unsigned i = 0; i < b.n; i++)
		model_change(&b.t[i], &rng, i ? 300 : 1, i ? 1 : 16);
	check_pair(&a, &b);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* Tensors appear, vanish, change shape and dtype, and move between shards; files appear, change and vanish; a shard
 * carries tensors that nobody is served from it, changed and unchanged. */
START_TEST(everything_moves)
{
	static const uint64_t s1[] = {30, 40}, s2[] = {9}, s3[] = {50};
	struct model a = {0}, b = {0};
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	two_shards(&a, &rng);
	model_copy(&b, &a);
	model_change(&b.t[1], &rng, 200, 1);
	model_change(&b.t[2], &rng, 5, 1); /* carried: the index does not serve it */
	check_pair(&a, &b);
	b.t[0].shard = 1;						/* moved */
	(void)strcpy(b.t[3].name, "model.layers.1.mlp.up_proj.weight"); /* gone, and new */
	memcpy(b.t[0].shape, s1, sizeof s1);				/* reshaped */
	(void)model_add(&b, &rng, 0, "new", GW_DT_U8, 1, s2);
	(void)model_add(&b, &rng, 0, "new.carried", GW_DT_I64, 1, s3);
	(void)strcpy(b.other[0].text, "{\"hidden_size\": 40}\n");
	(void)strcpy(b.other[1].name, "tokenizer.model");
	(void)strcpy(b.other[2].text, "{\"metadata\": {}, \"weight_map\": {"
				      "\"model.embed_tokens.weight\": \"model-00002-of-00002.safetensors\","
				      "\"new\": \"model-00001-of-00002.safetensors\","
				      "\"scalar\": \"model-00002-of-00002.safetensors\"}}");
	check_pair(&a, &b);
	b.others = 0; /* without an index, all are served */
	check_pair(&a, &b);
	model_free(&a);
	model_free(&b);
}
END_TEST

START_TEST(single_files)
{
	static const uint64_t s1[] = {40, 30}, s2[] = {7};
	struct model a = {0}, b;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	(void)model_add(&a, &rng, 0, "w", GW_DT_BF16, 2, s1);
	model_copy(&b, &a);
	model_change(&b.t[0], &rng, 10, 1);
	check_pair(&a, &b);
	(void)model_add(&b, &rng, 0, "x", GW_DT_BF16, 1, s2); /* another header: replaced by rename */
	check_pair(&a, &b);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* The same bytes for any pool; and never much longer than the new files. */
START_TEST(same_bytes_for_any_pool)
{
	struct gw_pool backwards = {NULL, 5, run_backwards};
	struct model a = {0}, b;
	struct world w;
	uint8_t *p[2];
	size_t n[2];

	world_init(&w);
	two_shards(&a, &w.rng);
	model_copy(&b, &a);
	model_change(&b.t[1], &w.rng, 100, 2);
	model_change(&b.t[0], &w.rng, 1, 16);
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	for (int i = 0; i < 2; i++) {
		w.pool = i ? backwards : gw_pool_serial();
		OK(make_patch(&w, "/a", "/b", "/p"));
		p[i] = read_whole(w.fs, "/p", &n[i]);
	}
	ck_assert_uint_eq(n[0], n[1]);
	ck_assert_mem_eq(p[0], p[1], n[0]);
	OK(apply(&w, "/p", "/a", "/b2"));
	ck_assert(same_tree(w.fs, "/b", "/b2"));
	free(p[0]);
	free(p[1]);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* A tensor of which only a share of the tiles is in the sample, changed everywhere or in one tile alone. */
START_TEST(models_larger_than_the_sample)
{
	static const uint64_t shape[] = {160, 256 * 1024};
	struct gw_pool backwards = {NULL, 3, run_backwards};
	struct model a = {0}, b;
	struct world w;
	uint8_t *p[2];
	size_t n[2];

	world_init(&w);
	(void)strcpy(a.shard[0], "model.safetensors");
	(void)model_add(&a, &w.rng, 0, "large", GW_DT_F8_E4M3, 2, shape);
	model_copy(&b, &a);
	if (_i)
		model_change(&b.t[0], &w.rng, 300, 1);
	else
		for (uint64_t i = 0; i < 900; i++)
			b.t[0].p[77 * 256 * 1024 + i * 290] ^= 1;
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	for (int i = 0; i < 2; i++) {
		w.pool = i ? backwards : gw_pool_serial();
		OK(make_patch(&w, "/a", "/b", "/p"));
		p[i] = read_whole(w.fs, "/p", &n[i]);
	}
	ck_assert_uint_eq(n[0], n[1]);
	ck_assert_mem_eq(p[0], p[1], n[0]);
	ck_assert_uint_lt(n[0], _i ? 300000 : 2500);
	OK(apply(&w, "/p", "/a", "/b2"));
	ck_assert(same_tree(w.fs, "/b", "/b2"));
	free(p[0]);
	free(p[1]);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* Progress rises and comes to its end: of a diff, of both ways to apply, of fingerprints. */
static void watched(void *ctx, uint64_t done, uint64_t total)
{
	uint64_t *last = ctx;

	ck_assert_uint_ge(done, *last);
	ck_assert_uint_le(done, total);
	*last = done;
}

START_TEST(progress_comes_to_its_end)
{
	uint64_t last, model[2];
	struct gw_progress p;
	struct gw_diff_options opt = {.watch = &p};
	struct gw_checkpoint *ca, *cb;
	struct model a = {0}, b;
	struct world w;

	world_init(&w);
	two_shards(&a, &w.rng);
	a.others = 0;
	model_copy(&b, &a);
	model_change(&b.t[1], &w.rng, 100, 1);
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	ck_assert_int_eq(gw_checkpoint_open(&ca, w.fs, "/a", NULL), 0);
	ck_assert_int_eq(gw_checkpoint_open(&cb, w.fs, "/b", NULL), 0);
	w.watch = &p;
	for (int i = 0; i < 4; i++) {
		last = 0;
		p = (struct gw_progress){.told = watched, .ctx = &last};
		if (i == 0)
			OK(gw_diff(ca, cb, w.fs, &w.pool, &opt, "/p", NULL, &w.why));
		if (i == 1)
			OK(apply(&w, "/p", "/a", "/out"));
		if (i == 2) {
			gw_progress_expect(&p, gw_disk_bytes(ca));
			OK(gw_disk_prints(ca, &w.pool, &p, NULL, model, &w.why));
		}
		if (i == 3)
			OK(apply_in_place(&w, "/p", "/a"));
		ck_assert_uint_gt(p.total, 0);
		ck_assert_uint_eq(last, p.total);
	}
	gw_checkpoint_close(ca);
	gw_checkpoint_close(cb);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

START_TEST(never_much_longer_than_the_new_bytes)
{
	static const uint64_t small[] = {3}, big[] = {700, 900};
	struct model a = {0}, b;
	struct world w;
	uint64_t raw = 0;

	world_init(&w);
	(void)strcpy(a.shard[0], "model.safetensors");
	for (unsigned i = 0; i < 40; i++) {
		char name[16];

		(void)snprintf(name, sizeof name, "s%u", i);
		(void)model_add(&a, &w.rng, 0, name, dtypes[i % (DTYPES - 1)], 1, small);
	}
	(void)model_add(&a, &w.rng, 0, "big", GW_DT_BF16, 2, big);
	(void)model_add(&a, &w.rng, 0, "big8", GW_DT_U8, 2, big);
	model_copy(&b, &a);
	for (unsigned i = 0; i < b.n; i++)
		model_change(&b.t[i], &w.rng, 1, 16);
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	for (int i = 0; i < 2; i++) {
		size_t n, new_n;

		OK(make_patch(&w, i ? NULL : "/a", "/b", "/p"));
		free(read_whole(w.fs, "/p", &n));
		free(read_whole(w.fs, "/b/model.safetensors", &new_n));
		raw = new_n;
		ck_assert_uint_le(n, raw + raw / 200 + 4096);
	}
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* A wrong base is refused by the name of what differs, and nothing appears. */
START_TEST(wrong_bases_are_refused_by_name)
{
	struct model a = {0}, b, c;
	struct gw_stat st;
	struct world w;
	size_t n;
	uint8_t *p;

	world_init(&w);
	two_shards(&a, &w.rng);
	model_copy(&b, &a);
	model_change(&b.t[1], &w.rng, 100, 1);
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	OK(make_patch(&w, "/a", "/b", "/p"));
	for (int i = 0; i < 6; i++) {
		static const char *const says[] = {"down_proj",	     "another tensor", "norm",
						   "tokenizer.json", "tokenizer.json", "needs the base"};

		model_copy(&c, &a);
		if (i == 0)
			c.t[1].p[77777] ^= 64; /* a tensor that the patch changes */
		if (i == 1)
			c.t[0].p[7] ^= 1; /* one that it does not */
		if (i == 2)
			c.t[2].p[5] ^= 1; /* carried */
		if (i == 3)
			c.other[1].text[0] = '['; /* another file */
		if (i == 4)
			(void)strcpy(c.other[1].name, "tokenizer.txt");
		model_write(&c, w.fs, "/c");
		ck_assert_int_eq(apply(&w, "/p", i < 5 ? "/c" : NULL, "/out"), i < 5 ? GW_EBASE : GW_EINVAL);
		ck_assert_msg(strstr(w.why.text, says[i]) != NULL, "%s", w.why.text);
		ck_assert_int_eq(gw_fs_stat(w.fs, "/out", &st), GW_ENOENT);
		if (i < 5) {
			ck_assert_int_eq(apply_in_place(&w, "/p", "/c"), GW_EBASE);
			model_write(&c, w.fs, "/c2");
			ck_assert(same_tree(w.fs, "/c", "/c2"));
			ck_assert_int_eq(gw_publish_remove(w.fs, "/c2"), 0);
		}
		ck_assert_int_eq(gw_publish_remove(w.fs, "/c"), 0);
		model_free(&c);
	}
	/* An output that is there stays as it is; an anchor takes no base. */
	ck_assert_int_eq(apply(&w, "/p", "/a", "/b"), GW_EEXIST);
	OK(make_patch(&w, NULL, "/b", "/nb"));
	ck_assert_int_eq(apply(&w, "/nb", "/a", "/out"), GW_EINVAL);
	ck_assert_int_eq(apply_in_place(&w, "/nb", "/a"), GW_EINVAL);
	OK(apply_in_place(&w, "/nb", "/b"));
	ck_assert(w.report.already);
	p = read_whole(w.fs, "/p", &n);
	p[8]++; /* version */
	ck_assert_int_eq(apply_bytes(&w, p, n, "/a", "/out"), GW_EVERSION);
	free(p);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

static int always_shrunk(struct gw_fs *fs, const struct gw_mapping *m)
{
	(void)fs;
	(void)m;
	return GW_ESHRUNK;
}

/* A checkpoint's file that is cut while it is read: nothing made of it appears. */
START_TEST(a_file_that_shrinks_is_an_error)
{
	struct gw_fs_ops shrunk;
	struct gw_checkpoint *ca, *cb;
	struct model a = {0}, b;
	struct gw_patch *pt;
	struct gw_stat st;
	struct world w;
	uint8_t *p;
	size_t n;

	world_init(&w);
	two_shards(&a, &w.rng);
	model_copy(&b, &a);
	model_change(&b.t[1], &w.rng, 100, 1);
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	OK(make_patch(&w, "/a", "/b", "/p"));
	p = read_whole(w.fs, "/p", &n);
	ck_assert_int_eq(gw_patch_open(&pt, p, n, NULL), 0);
	ck_assert_int_eq(gw_checkpoint_open(&ca, w.fs, "/a", NULL), 0);
	ck_assert_int_eq(gw_checkpoint_open(&cb, w.fs, "/b", NULL), 0);
	shrunk = *w.fs->ops;
	shrunk.mapping_check = always_shrunk;
	w.fs->ops = &shrunk;
	ck_assert_int_eq(gw_diff(ca, cb, w.fs, &w.pool, NULL, "/q", NULL, &w.why), GW_ESHRUNK);
	ck_assert_int_eq(gw_fs_stat(w.fs, "/q", &st), GW_ENOENT);
	ck_assert_int_eq(gw_disk_apply(pt, ca, w.fs, &w.pool, NULL, "/out", NULL, &w.why), GW_ESHRUNK);
	ck_assert_int_eq(gw_fs_stat(w.fs, "/out", &st), GW_ENOENT);
	ck_assert_int_eq(gw_disk_apply_in_place(pt, w.fs, &w.pool, NULL, "/a", NULL, &w.why), GW_ESHRUNK);
	gw_patch_close(pt);
	gw_checkpoint_close(ca);
	gw_checkpoint_close(cb);
	free(p);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

TCase *patch_disk_case(void)
{
	TCase *t = tcase_create("disk");

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, every_dtype_and_density, 0, 10);
	tcase_add_test(t, sliced_tensors);
	tcase_add_test(t, everything_moves);
	tcase_add_test(t, single_files);
	tcase_add_test(t, same_bytes_for_any_pool);
	tcase_add_loop_test(t, models_larger_than_the_sample, 0, 2);
	tcase_add_test(t, progress_comes_to_its_end);
	tcase_add_test(t, never_much_longer_than_the_new_bytes);
	tcase_add_test(t, wrong_bases_are_refused_by_name);
	tcase_add_test(t, a_file_that_shrinks_is_an_error);
	return t;
}
