/* Disks that fail and patches that are damaged or forged: an error, and nothing half written. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/publish.h"
#include "patch/inside.h"
#include "patch_file.h"
#include "patch_world.h"

/* A patch with something of everything, as small as it goes. */
static void small_pair(struct model *a, struct model *b, struct gw_rng *rng)
{
	static const uint64_t s1[] = {8, 16}, s2[] = {5}, s3[] = {200};

	(void)strcpy(a->shard[0], "model.safetensors");
	(void)model_add(a, rng, 0, "changed", GW_DT_BF16, 2, s1);
	(void)model_add(a, rng, 0, "random", GW_DT_F8_E4M3, 2, s1);
	(void)model_add(a, rng, 0, "removed", GW_DT_I32, 1, s2);
	model_other(a, "config.json", "{}");
	model_other(a, "gone.txt", "x");
	model_copy(b, a);
	model_change(&b->t[0], rng, 6, 2);
	model_change(&b->t[1], rng, 1, 16);
	(void)strcpy(b->t[2].name, "whole");
	memset(model_add(b, rng, 0, "zeros", GW_DT_F32, 1, s3)->p, 0, 800);
	(void)strcpy(b->other[1].name, "fresh.txt");
}

static int count_temporary(void *ctx, const char *name)
{
	*(size_t *)ctx += strstr(name, ".tmp-") != NULL;
	return 0;
}

/* Decodes all of a patch: tiles against the base tensors, blobs. */
static int keep_nothing(void *ctx, uint64_t at, const void *p, size_t n)
{
	(void)ctx;
	(void)at;
	(void)p;
	(void)n;
	return 0;
}

static const uint8_t *old_of(const struct model *base, const struct gw_patch_tensor *t)
{
	for (unsigned k = 0; k < base->n; k++)
		if (!strcmp(base->t[k].name, t->name) && base->t[k].bytes == t->bytes)
			return base->t[k].p;
	return NULL;
}

static int decode_all(const struct gw_patch *pt, const struct model *base, struct gw_tile_decoder *d)
{
	struct gw_patch_info info;
	int err = 0;

	gw_patch_info(pt, &info);
	for (uint32_t i = 0; !err && i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);
		const uint8_t *old = old_of(base, t);
		struct gw_hot *hot = NULL;

		if (t->companion && old_of(base, t->companion))
			err = gw_patch_hot(d, pt, t->companion, old_of(base, t->companion), &hot);
		if (!hot != !t->companion)
			old = NULL;
		for (uint32_t k = 0; !err && old && k < t->tiles; k++) {
			struct gw_tile_changes c;

			err = gw_tile_decode(d, pt, t, k, old, hot, &c);
		}
		gw_hot_free(hot);
		if (!err && t->kind == GW_TENSOR_WHOLE)
			err = gw_patch_whole(pt, t, keep_nothing, NULL, NULL);
	}
	for (uint32_t i = 0; !err && i < info.files; i++) {
		const struct gw_patch_file *f = gw_patch_file(pt, i);

		if (f->fresh)
			err = gw_patch_blob(pt, &f->blob, keep_nothing, NULL, NULL);
	}
	return err;
}

/* The disk fails in each operation in turn: what appears is whole, and nothing else stays. */
START_TEST(failing_disks_leave_nothing)
{
	struct model a = {0}, b = {0};
	struct gw_rng rng;
	int err = 1;

	gw_rng_init(&rng, test_seed());
	small_pair(&a, &b, &rng);
	for (uint64_t op = 1; err; op++) {
		struct gw_stat st;
		struct world w;
		size_t names = 0;

		world_init(&w);
		model_write(&a, w.fs, "/a");
		model_write(&b, w.fs, "/b");
		OK(make_patch(&w, "/a", "/b", "/p"));
		settle(&w);
		crash_fs_fail_at(w.c, op, GW_ENOSPACE);
		err = apply(&w, "/p", "/a", "/out");
		ck_assert(!err || w.why.text[0]);
		if (!gw_fs_stat(w.fs, "/out", &st))
			ck_assert(same_tree(w.fs, "/b", "/out"));
		ck_assert_int_eq(gw_fs_list(w.fs, "/", count_temporary, &names), 0);
		ck_assert_uint_eq(names, 0);
		world_free(&w);
	}
	model_free(&a);
	model_free(&b);
}
END_TEST

START_TEST(any_cut_and_any_flipped_bit_is_an_error)
{
	struct gw_tile_decoder *d;
	struct model a = {0}, b = {0};
	struct gw_patch *pt;
	struct world w;
	uint8_t *p;
	size_t n;

	world_init(&w);
	small_pair(&a, &b, &w.rng);
	model_write(&a, w.fs, "/a");
	model_write(&b, w.fs, "/b");
	OK(make_patch(&w, "/a", "/b", "/p"));
	OK(apply(&w, "/p", "/a", "/b2"));
	ck_assert(same_tree(w.fs, "/b", "/b2"));
	p = read_whole(w.fs, "/p", &n);
	ck_assert_uint_lt(n, 4096);
	ck_assert_int_eq(gw_tile_decoder_new(&d), 0);
	for (size_t cut = 0; cut < n; cut++) {
		uint8_t *exact = malloc(cut + !cut); /* so that a sanitizer sees the end */

		memcpy(exact, p, cut);
		w.why.text[0] = 0;
		ck_assert_int_ne(gw_patch_open(&pt, exact, cut, &w.why), 0);
		ck_assert(w.why.text[0]);
		free(exact);
	}
	for (size_t bit = 0; bit < 8 * n; bit++) {
		int err;

		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		err = gw_patch_open(&pt, p, n, NULL);
		if (!err) {
			err = decode_all(pt, &a, d);
			gw_patch_close(pt);
		}
		ck_assert_msg(err, "bit %zu of byte %zu", bit % 8, bit / 8);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* Applying refuses too, by name, and leaves nothing. */
	for (size_t at = 0; at < n; at += 7) {
		struct gw_stat st;

		p[at] ^= 4;
		ck_assert_int_ne(apply_bytes(&w, p, n, "/a", "/out"), 0);
		ck_assert_msg(strstr(w.why.text, "patch file") || strstr(w.why.text, "other bytes"), "%s", w.why.text);
		ck_assert_int_eq(gw_fs_stat(w.fs, "/out", &st), GW_ENOENT);
		settle(&w);
		p[at] ^= 4;
	}
	OK(apply_bytes(&w, p, n, "/a", "/out"));
	free(p);
	gw_tile_decoder_free(d);
	world_free(&w);
	model_free(&a);
	model_free(&b);
}
END_TEST

static void seal(uint8_t *p, size_t n, uint64_t tables_at)
{
	struct gw_hash h;

	gw_hash_begin(&h);
	gw_hash_add(&h, p, GW_PATCH_DIGESTED);
	gw_hash_add(&h, p + tables_at, n - tables_at);
	gw_hash_end(&h, p + GW_PATCH_DIGESTED);
}

/* A header that promises another version than the rows make is refused before anything is written, also in place,
 * where a log that cannot be finished would be for ever. */
START_TEST(broken_promises_are_refused_first)
{
	static const size_t fields[] = {56, 64, 80, 88}; /* fingerprint after, elements, bytes */
	struct model a = {0}, b = {0};
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	small_pair(&a, &b, &rng);
	for (size_t i = 0; i < 2 * sizeof fields / sizeof fields[0]; i++) {
		const char *base = i % 2 ? "/a" : NULL;
		struct gw_stat st;
		struct world w;
		uint8_t *p;
		size_t n;

		world_init(&w);
		model_write(&a, w.fs, "/a");
		model_write(&a, w.fs, "/was");
		model_write(&b, w.fs, "/b");
		OK(make_patch(&w, base, "/b", "/p"));
		p = read_whole(w.fs, "/p", &n);
		p[fields[i / 2] + 5] ^= 1;
		seal(p, n, gw_le64(p + 32));
		write_whole(w.fs, "/forged", p, n);
		settle(&w);
		ck_assert_int_eq(apply_bytes(&w, p, n, base, "/out"), GW_EMALFORMED);
		ck_assert_int_eq(gw_fs_stat(w.fs, "/out", &st), GW_ENOENT);
		if (base) {
			ck_assert_int_eq(apply_in_place(&w, "/forged", "/a"), GW_EMALFORMED);
			ck_assert(same_tree(w.fs, "/a", "/was"));
			OK(apply_in_place(&w, "/p", "/a"));
			ck_assert(same_tree(w.fs, "/a", "/b"));
		}
		free(p);
		world_free(&w);
	}
	model_free(&a);
	model_free(&b);
}
END_TEST

/* Damages the tables and seals them again. */
static void forge(uint8_t *forged, const uint8_t *p, size_t n, struct gw_rng *rng)
{
	uint64_t tables_at = gw_le64(p + 32);

	memcpy(forged, p, n);
	for (uint64_t k = gw_rng_below(rng, 3) + 1; k-- > 0;) {
		uint64_t at = gw_rng_below(rng, GW_PATCH_DIGESTED + n - tables_at);

		at = at < GW_PATCH_DIGESTED ? at : tables_at + at - GW_PATCH_DIGESTED;
		forged[at] = (uint8_t)(gw_rng_below(rng, 2) ? gw_rng_u64(rng) : gw_rng_below(rng, 2) ? 255 : 0);
	}
	seal(forged, n, tables_at);
}

/* Never a crash or a large allocation. A forger can rename files (against him stands the manifest's signature), but
 * what applies has the right bits. */
START_TEST(forged_tables_never_apply_wrongly)
{
	struct model a = {0}, b = {0};
	int applied = 0;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	small_pair(&a, &b, &rng);
	for (int round = 0; round < 40; round++) {
		uint8_t *p, *forged;
		struct gw_stat st;
		struct world w;
		size_t n;

		world_init(&w);
		model_write(&a, w.fs, "/a");
		model_write(&b, w.fs, "/b");
		OK(make_patch(&w, "/a", "/b", "/p"));
		p = read_whole(w.fs, "/p", &n);
		forged = malloc(n);
		for (int k = 0; k < 20; k++) {
			forge(forged, p, n, &rng);
			settle(&w);
			if (apply_bytes(&w, forged, n, "/a", "/out"))
				continue;
			applied++;
			if (!gw_fs_stat(w.fs, "/out/model.safetensors", &st))
				ck_assert(same_tree(w.fs, "/b/model.safetensors", "/out/model.safetensors"));
			ck_assert_int_eq(gw_publish_remove(w.fs, "/out"), 0);
		}
		free(p);
		free(forged);
		world_free(&w);
	}
	ck_assert_int_lt(applied, 400);
	model_free(&a);
	model_free(&b);
}
END_TEST

TCase *patch_damage_case(void)
{
	TCase *t = tcase_create("damage");

	tcase_set_timeout(t, 240);
	tcase_add_test(t, failing_disks_leave_nothing);
	tcase_add_test(t, any_cut_and_any_flipped_bit_is_an_error);
	tcase_add_test(t, broken_promises_are_refused_first);
	tcase_add_loop_test(t, forged_tables_never_apply_wrongly, 0, 3);
	return t;
}
