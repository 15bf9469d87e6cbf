/* Folding chains of patches: byte for byte the patch that a diff of the first and the last version is. */
#include "patch/fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/publish.h"
#include "patch_file.h"
#include "patch_world.h"

enum { CHAIN_MAX = 6 };

/* Versions v0, v1, … in a file system, and the patches p1, p2, … between them. */
struct chain {
	struct crash_fs *c;
	struct gw_fs *fs;
	struct gw_pool pool;
	struct gw_diag why;
	unsigned versions;
};

static void chain_init(struct chain *h)
{
	memset(h, 0, sizeof *h);
	h->c = crash_fs_new(test_seed());
	h->fs = crash_fs_table(h->c);
	h->pool = gw_pool_serial();
}

static void chain_free(struct chain *h)
{
	crash_fs_free(h->c);
}

static const char *name_of(char *buf, char kind, unsigned i)
{
	(void)snprintf(buf, 16, "/%c%u", kind, i);
	return buf;
}

/* from < 0: from nothing */
static int diff_to(struct chain *h, int from, unsigned to, const struct gw_diff_options *opt, const char *path)
{
	struct gw_checkpoint *a = NULL, *b;
	char buf[16];
	int err;

	if (from >= 0)
		ck_assert_int_eq(gw_checkpoint_open(&a, h->fs, name_of(buf, 'v', (unsigned)from), &h->why), 0);
	ck_assert_int_eq(gw_checkpoint_open(&b, h->fs, name_of(buf, 'v', to), &h->why), 0);
	err = gw_diff(a, b, h->fs, &h->pool, opt, path, NULL, &h->why);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	return err;
}

static void add_version(struct chain *h, const struct model *m, const struct gw_diff_options *opt)
{
	char buf[16];

	model_write(m, h->fs, name_of(buf, 'v', h->versions));
	if (h->versions++)
		ck_assert_msg(!diff_to(h, (int)h->versions - 2, h->versions - 1, opt, name_of(buf, 'p', h->versions - 1)),
			      "%s", h->why.text);
}

/* The patches p[first] to p[last] over the version `base` (< 0: none). */
static int fold(struct chain *h, int base, unsigned first, unsigned last, const struct gw_diff_options *opt,
		const char *path, struct gw_diff_report *report)
{
	struct gw_fold_patch patches[CHAIN_MAX] = {{NULL, NULL}};
	char names[CHAIN_MAX][16], buf[16];
	uint8_t *bytes[CHAIN_MAX];
	struct gw_checkpoint *c = NULL;
	uint32_t n = 0;
	int err;

	h->why.text[0] = 0;
	for (unsigned i = first; i <= last; i++, n++) {
		struct gw_patch *pt;
		size_t size;

		bytes[n] = read_whole(h->fs, name_of(names[n], 'p', i), &size);
		ck_assert_msg(!gw_patch_open(&pt, bytes[n], size, &h->why), "%s", h->why.text);
		patches[n] = (struct gw_fold_patch){pt, names[n]};
	}
	if (base >= 0)
		ck_assert_int_eq(gw_checkpoint_open(&c, h->fs, name_of(buf, 'v', (unsigned)base), &h->why), 0);
	err = gw_fold(c, patches, n, h->fs, &h->pool, opt, path, report, &h->why);
	gw_checkpoint_close(c);
	while (n-- > 0) {
		gw_patch_close((struct gw_patch *)(uintptr_t)patches[n].pt);
		free(bytes[n]);
	}
	return err;
}

static void check_same(struct chain *h, const char *a, const char *b)
{
	size_t an, bn;
	uint8_t *ap = read_whole(h->fs, a, &an), *bp = read_whole(h->fs, b, &bn);

	ck_assert_uint_eq(an, bn);
	ck_assert_int_eq(memcmp(ap, bp, an), 0);
	free(ap);
	free(bp);
}

/* All of the chain, its parts, and the chain from nothing; with several workers too. */
static void check_chain(struct chain *h, const struct gw_diff_options *opt)
{
	struct gw_pool backwards = {NULL, 3, run_backwards};
	struct gw_diff_options replace = opt ? *opt : (struct gw_diff_options){0};
	unsigned last = h->versions - 1;

	replace.replace = 1;
	for (unsigned first = 0; first < last; first++) {
		ck_assert_int_eq(diff_to(h, (int)first, last, &replace, "/direct"), 0);
		h->pool = first % 2 ? gw_pool_serial() : backwards;
		ck_assert_msg(!fold(h, (int)first, first + 1, last, &replace, "/folded", NULL), "%s", h->why.text);
		h->pool = gw_pool_serial();
		check_same(h, "/direct", "/folded");
	}
	ck_assert_int_eq(diff_to(h, -1, 0, &replace, "/p0"), 0);
	ck_assert_int_eq(diff_to(h, -1, last, &replace, "/direct"), 0);
	ck_assert_msg(!fold(h, -1, 0, last, &replace, "/folded", NULL), "%s", h->why.text);
	check_same(h, "/direct", "/folded");
}

/* --- versions ----------------------------------------------------------------------------------- */

static const enum gw_dtype dtypes[] = {GW_DT_BF16, GW_DT_F16, GW_DT_F32, GW_DT_F8_E4M3, GW_DT_F4, GW_DT_I64};

static unsigned axis_of_last(void *ctx, const char *name, unsigned rank, const uint64_t *shape)
{
	(void)ctx;
	(void)name;
	(void)shape;
	return rank ? rank - 1 : 0;
}

/* Every dtype, changed a little in every step, some of it back again. */
START_TEST(values_that_change)
{
	static const uint64_t shape[] = {42, 50}, sliced[] = {640, 1024};
	struct gw_diff_options last_axis = {.axis = axis_of_last};
	struct model m = {0};
	struct chain h;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	chain_init(&h);
	(void)strcpy(m.shard[0], _i % 2 ? "" : "model.safetensors");
	for (unsigned i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
		char name[16];

		(void)snprintf(name, sizeof name, "t%u", i);
		(void)model_add(&m, &rng, 0, name, dtypes[i], 2, shape);
	}
	(void)model_add(&m, &rng, 0, "down_proj.weight", GW_DT_BF16, 2, sliced);
	(void)model_add(&m, &rng, 0, "scalar", GW_DT_F32, 0, NULL);
	(void)model_add(&m, &rng, 0, "unchanged", GW_DT_BF16, 2, shape);
	for (int v = 0; v < 4; v++) {
		add_version(&h, &m, _i == 2 ? &last_axis : NULL);
		for (unsigned i = 0; i + 1 < m.n; i++)
			model_change(&m.t[i], &rng, 40, i % 3);
		m.t[0].p[v] ^= 1;
	}
	if (_i % 2 == 0)
		check_chain(&h, _i == 2 ? &last_axis : NULL);
	for (unsigned first = 0; _i % 2 && first < 3; first++) {
		ck_assert_int_eq(diff_to(&h, (int)first, 3, NULL, "/direct"), 0);
		ck_assert_int_eq(fold(&h, (int)first, first + 1, 3, NULL, "/folded", NULL), 0);
		check_same(&h, "/direct", "/folded");
		ck_assert_int_eq(gw_publish_remove(h.fs, "/direct") | gw_publish_remove(h.fs, "/folded"), 0);
	}
	chain_free(&h);
	model_free(&m);
}
END_TEST

/* Patches that cut a tensor along different axes; folded along either. */
START_TEST(axes_that_differ)
{
	static const uint64_t sliced[] = {640, 1024};
	struct gw_diff_options last_axis = {.axis = axis_of_last};
	struct model m = {0};
	struct chain h;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	chain_init(&h);
	(void)strcpy(m.shard[0], "model.safetensors");
	(void)model_add(&m, &rng, 0, "up_proj.weight", GW_DT_BF16, 2, sliced);
	for (int v = 0; v < 4; v++) {
		add_version(&h, &m, v % 2 ? &last_axis : NULL);
		model_change(&m.t[0], &rng, 100, 1);
	}
	for (int i = 0; i < 2; i++) {
		struct gw_diff_options opt = {.axis = i ? axis_of_last : NULL, .replace = 1};

		/* Without a function the last patch says: its axis was the last one. */
		ck_assert_int_eq(diff_to(&h, 0, 3, &last_axis, "/direct"), i ? GW_EEXIST : 0);
		ck_assert_msg(!fold(&h, 0, 1, 3, &opt, "/folded", NULL), "%s", h.why.text);
		check_same(&h, "/direct", "/folded");
	}
	chain_free(&h);
	model_free(&m);
}
END_TEST

/* Up to six tensors, each in one of two shards or in both, served from the one that the index names or from none. */
enum { NAMES = 6 };

struct state {
	struct model m;
	int served[NAMES]; /* shard, or < 0 */
};

static struct model_tensor *find(struct model *m, unsigned name, unsigned shard)
{
	char text[16];

	(void)snprintf(text, sizeof text, "n%u", name);
	for (unsigned i = 0; i < m->n; i++)
		if (!strcmp(m->t[i].name, text) && m->t[i].shard == shard)
			return &m->t[i];
	return NULL;
}

static void drop(struct model *m, struct model_tensor *t)
{
	free(t->p);
	memmove(t, t + 1, (size_t)(&m->t[--m->n] - t) * sizeof *t);
}

static void add(struct model *m, struct gw_rng *rng, unsigned name, unsigned shard)
{
	const struct model_tensor *twin = find(m, name, !shard);
	uint64_t shape[2] = {1 + gw_rng_below(rng, 40), 1 + gw_rng_below(rng, 60)};
	struct model_tensor *t;
	char text[16];

	(void)snprintf(text, sizeof text, "n%u", name);
	if (!gw_rng_below(rng, 6))
		shape[0] = 600, shape[1] = 1000;
	/* A copy of the other shard's, or anything. */
	if (twin && gw_rng_below(rng, 2)) {
		t = model_add(m, rng, shard, text, twin->dtype, 2, twin->shape);
		memcpy(t->p, twin->p, t->bytes);
	} else {
		(void)model_add(m, rng, shard, text, dtypes[gw_rng_below(rng, 4)], 2, shape);
	}
}

static void mutate_tensor(struct model *m, struct gw_rng *rng, unsigned name, unsigned shard)
{
	struct model_tensor *t = find(m, name, shard);
	uint64_t dice = gw_rng_below(rng, 12), swap;

	if (!t && dice < 3)
		add(m, rng, name, shard);
	else if (!t)
		return;
	else if (dice < 4)
		model_change(t, rng, 1 + gw_rng_below(rng, 100), (unsigned)gw_rng_below(rng, 16));
	else if (dice == 4)
		drop(m, t);
	else if (dice == 5)
		swap = t->shape[0], t->shape[0] = t->shape[1], t->shape[1] = swap;
	else if (dice == 6 && gw_dtype_width(t->dtype) == 2)
		t->dtype = t->dtype == GW_DT_BF16 ? GW_DT_F16 : GW_DT_BF16;
}

static void write_index(struct state *s)
{
	char *text = s->m.other[0].text;
	size_t n = (size_t)snprintf(text, 256, "{\"metadata\":{},\"weight_map\":{\"k0\":\"s0.safetensors\"");

	for (unsigned i = 0; i < NAMES; i++)
		if (s->served[i] >= 0)
			n += (size_t)snprintf(text + n, 256 - n, ",\"n%u\":\"s%d.safetensors\"", i, s->served[i]);
	(void)snprintf(text + n, 256 - n, "}}");
}

static void mutate(struct state *s, struct gw_rng *rng)
{
	for (unsigned i = 0; i < NAMES; i++) {
		unsigned shard = (unsigned)gw_rng_below(rng, 2);

		for (unsigned k = 0; k < 2; k++)
			mutate_tensor(&s->m, rng, i, k);
		if (s->served[i] < 0 || !find(&s->m, i, (unsigned)s->served[i]) || !gw_rng_below(rng, 5))
			s->served[i] = find(&s->m, i, shard) ? (int)shard : -1;
	}
	for (unsigned i = 1; i < s->m.others; i++) {
		if (!gw_rng_below(rng, 3))
			s->m.other[i].text[0] = (char)('a' + gw_rng_below(rng, 3));
		if (!gw_rng_below(rng, 3))
			(void)snprintf(s->m.other[i].name, 48, "file%u.%u", i, (unsigned)gw_rng_below(rng, 2));
	}
	write_index(s);
}

START_TEST(everything_moves)
{
	static const uint64_t shape[] = {20, 30};
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	for (int round = 0; round < 6; round++) {
		struct state s = {0};
		struct chain h;

		chain_init(&h);
		(void)strcpy(s.m.shard[0], "s0.safetensors");
		(void)strcpy(s.m.shard[1], "s1.safetensors");
		(void)model_add(&s.m, &rng, 0, "k0", GW_DT_BF16, 2, shape);
		(void)model_add(&s.m, &rng, 1, "k1", GW_DT_BF16, 2, shape);
		model_other(&s.m, GW_INDEX_NAME, "");
		model_other(&s.m, "file1.0", "a text");
		model_other(&s.m, "file2.0", "a text");
		for (unsigned i = 0; i < NAMES; i++)
			s.served[i] = -1;
		mutate(&s, &rng);
		for (unsigned v = 0; v < 2 + (unsigned)round % 4; v++) {
			add_version(&h, &s.m, NULL);
			mutate(&s, &rng);
		}
		if (h.versions > 1)
			check_chain(&h, NULL);
		chain_free(&h);
		model_free(&s.m);
	}
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------- */

static void four_versions(struct chain *h, struct gw_rng *rng)
{
	static const uint64_t big[] = {640, 1024}, small[] = {64};
	struct model m = {0};

	(void)strcpy(m.shard[0], "model.safetensors");
	(void)model_add(&m, rng, 0, "big", GW_DT_BF16, 2, big);
	(void)model_add(&m, rng, 0, "small", GW_DT_F32, 1, small);
	(void)model_add(&m, rng, 0, "still", GW_DT_F32, 1, small);
	model_other(&m, "config.json", "{}");
	model_other(&m, "fresh.json", "0");
	for (int v = 0; v < 4; v++) {
		add_version(h, &m, NULL);
		model_change(&m.t[0], rng, 100, 1);
		model_change(&m.t[1], rng, 4, 1);
		m.other[1].text[0]++;
	}
	model_free(&m);
}

static void check_refused(struct chain *h, int got, int want, const char *says)
{
	struct gw_stat st;

	ck_assert_msg(got == want, "%d for %d: %s", got, want, h->why.text);
	ck_assert_msg(strstr(h->why.text, says) != NULL, "%s", h->why.text);
	ck_assert_int_eq(gw_fs_stat(h->fs, "/out", &st), GW_ENOENT);
}

static void flip(struct chain *h, const char *path, size_t at, int from_end)
{
	size_t n;
	uint8_t *p = read_whole(h->fs, path, &n);

	p[from_end ? n - at : at] ^= 16;
	write_whole(h->fs, path, p, n);
	free(p);
}

START_TEST(what_is_no_chain_is_refused)
{
	struct chain h;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	chain_init(&h);
	four_versions(&h, &rng);
	/* Another base; a gap; the wrong order; a patch from nothing in the middle, and with a base. */
	check_refused(&h, fold(&h, 1, 1, 3, NULL, "/out", NULL), GW_EBASE, "tensor big");
	check_refused(&h, fold(&h, 0, 2, 3, NULL, "/out", NULL), GW_EBASE, "tensor big");
	ck_assert_int_eq(gw_fs_rename(h.fs, "/p2", "/p9"), 0);
	ck_assert_int_eq(diff_to(&h, 2, 1, NULL, "/p2"), 0);
	check_refused(&h, fold(&h, 0, 1, 2, NULL, "/out", NULL), GW_EBASE, "/p2 starts from");
	ck_assert_int_eq(gw_publish_remove(h.fs, "/p2"), 0);
	ck_assert_int_eq(diff_to(&h, -1, 2, NULL, "/p2"), 0);
	check_refused(&h, fold(&h, 0, 1, 3, NULL, "/out", NULL), GW_EBASE, "from nothing");
	check_refused(&h, fold(&h, 1, 2, 3, NULL, "/out", NULL), GW_EBASE, "takes no base");
	ck_assert_int_eq(gw_publish_remove(h.fs, "/p2"), 0);
	ck_assert_int_eq(gw_fs_rename(h.fs, "/p9", "/p2"), 0);
	check_refused(&h, fold(&h, -1, 1, 3, NULL, "/out", NULL), GW_EINVAL, "needs the base");
	/* The same weights, another file: the last two patches do not meet. */
	flip(&h, "/v2/config.json", 1, 0);
	ck_assert_int_eq(gw_publish_remove(h.fs, "/p3"), 0);
	ck_assert_int_eq(gw_publish_remove(h.fs, "/v3/config.json"), 0);
	write_whole(h.fs, "/v3/config.json", "{m", 2);
	ck_assert_int_eq(diff_to(&h, 2, 3, NULL, "/p3"), 0);
	check_refused(&h, fold(&h, 0, 1, 3, NULL, "/out", NULL), GW_EBASE, "config.json");
	chain_free(&h);
}
END_TEST

/* One bit of the base, wherever it is: named. */
START_TEST(a_wrong_base_is_named)
{
	static const char *const says[] = {"tensor big", "tensor small", "another tensor", "config.json"};
	struct chain h;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	chain_init(&h);
	four_versions(&h, &rng);
	/* Data lie in the order big, small, still, at the file's end. */
	if (_i == 3)
		flip(&h, "/v0/config.json", 0, 0);
	else
		flip(&h, "/v0/model.safetensors", _i == 0 ? 300000 : _i == 1 ? 500 : 100, 1);
	check_refused(&h, fold(&h, 0, 1, 3, NULL, "/out", NULL), GW_EBASE, says[_i]);
	chain_free(&h);
}
END_TEST

/* A damaged body is told from a wrong base, and by patch and tensor. */
START_TEST(a_damaged_patch_is_named)
{
	struct chain h;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	chain_init(&h);
	four_versions(&h, &rng);
	flip(&h, "/p2", 5000, 0);
	check_refused(&h, fold(&h, 0, 1, 3, NULL, "/out", NULL), GW_EDIGEST, "/p2: tensor big, tile");
	chain_free(&h);
}
END_TEST

START_TEST(the_report_is_that_of_a_diff)
{
	struct gw_diff_report direct, folded;
	struct gw_checkpoint *a, *b;
	struct chain h;
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	chain_init(&h);
	four_versions(&h, &rng);
	ck_assert_int_eq(gw_checkpoint_open(&a, h.fs, "/v0", NULL) | gw_checkpoint_open(&b, h.fs, "/v3", NULL), 0);
	ck_assert_int_eq(gw_diff(a, b, h.fs, &h.pool, NULL, "/direct", &direct, NULL), 0);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	ck_assert_int_eq(fold(&h, 0, 1, 3, NULL, "/folded", &folded), 0);
	ck_assert_mem_eq(&direct, &folded, sizeof direct);
	ck_assert_int_eq(fold(&h, 0, 1, 3, NULL, "/folded", NULL), GW_EEXIST);
	chain_free(&h);
}
END_TEST

/* --- resident ----------------------------------------------------------------------------------- */

/* Four versions of some tensors in memory, and what each step overwrote. */
enum { RESIDENT = 5, STEPS = 3 };

struct resident_world {
	struct model m;
	struct gw_tensor tensors[RESIDENT];
	struct gw_undo undo[RESIDENT][STEPS];
};

static int read_resident(void *ctx, uint32_t i, const struct gw_tile_rect *r, unsigned worker, uint8_t *out)
{
	struct resident_world *w = ctx;
	unsigned width = gw_dtype_width(w->m.t[i].dtype);

	(void)worker;
	for (uint64_t row = 0; row < r->rows; row++)
		memcpy(out + row * r->cols * width,
		       w->m.t[i].p + ((r->row0 + row) * r->tensor_cols + r->col0) * width, r->cols * width);
	return 0;
}

static struct gw_undo undo_of(void *ctx, uint32_t i, uint32_t step)
{
	return ((struct resident_world *)ctx)->undo[i][step];
}

static void keep_undo(struct gw_undo *u, const uint8_t *before, const struct model_tensor *t)
{
	unsigned width = gw_dtype_width(t->dtype);
	uint64_t elements = t->bytes / width, *at = malloc(8 * elements + 8);
	uint8_t *old_bits = malloc(t->bytes + 1);

	*u = (struct gw_undo){at, old_bits, 0};
	for (uint64_t e = 0; e < elements; e++)
		if (memcmp(before + e * width, t->p + e * width, width)) {
			at[u->n] = e;
			memcpy(old_bits + u->n++ * width, before + e * width, width);
		}
}

/* As the patch itself tells its files. */
static uint32_t files_of(const struct gw_patch *pt, const struct gw_checkpoint *c, struct gw_fold_file *out)
{
	struct gw_patch_info info;

	gw_patch_info(pt, &info);
	for (uint32_t i = 0; i < info.files; i++) {
		const struct gw_patch_file *f = gw_patch_file(pt, i);

		out[i] = (struct gw_fold_file){
			.name = f->name, .kind = f->kind, .fresh = f->fresh, .bytes = f->bytes, .data_bytes = f->data_bytes};
		memcpy(out[i].digest, f->digest, sizeof f->digest);
		for (uint32_t k = 0; k < gw_checkpoint_others(c); k++)
			if (!strcmp(gw_checkpoint_other(c, k)->name, f->name))
				out[i].p = gw_checkpoint_other(c, k)->p;
	}
	return info.files;
}

static void make_steps(struct chain *h, struct resident_world *w, struct gw_rng *rng)
{
	static const uint64_t shapes[RESIDENT][2] = {{640, 1024}, {40, 30}, {3, 300000}, {0, 3}, {1, 1}};

	(void)strcpy(w->m.shard[0], "model.safetensors");
	for (unsigned i = 0; i < RESIDENT; i++) {
		char name[24];

		(void)snprintf(name, sizeof name, "%u.o_proj.weight", i);
		(void)model_add(&w->m, rng, 0, name, dtypes[i % 4], 2, shapes[i]);
	}
	model_other(&w->m, "config.json", "{}");
	model_other(&w->m, "steps.json", "0");
	for (unsigned v = 0; v <= STEPS; v++) {
		add_version(h, &w->m, NULL);
		for (unsigned i = 0; v < STEPS && i < RESIDENT; i++) {
			uint8_t *before = malloc(w->m.t[i].bytes + 1);

			memcpy(before, w->m.t[i].p, w->m.t[i].bytes);
			/* Places that change in several steps, and back. */
			model_change(&w->m.t[i], rng, i == 1 ? 2 : 200, 1);
			keep_undo(&w->undo[i][v], before, &w->m.t[i]);
			free(before);
		}
		w->m.other[1].text[0]++;
	}
	for (unsigned i = 0; i < RESIDENT; i++)
		w->tensors[i] = (struct gw_tensor){.name = w->m.t[i].name,
						   .shape = w->m.t[i].shape,
						   .bytes = w->m.t[i].bytes,
						   .rank = (uint8_t)w->m.t[i].rank,
						   .dtype = (uint8_t)w->m.t[i].dtype};
}

START_TEST(resident_bits_and_undo_lists)
{
	struct resident_world w = {0};
	struct gw_resident rs = {&w, w.tensors, RESIDENT, read_resident, STEPS, undo_of, NULL, 0, {0}, {0}};
	struct gw_fold_file files[8];
	struct gw_patch_info info;
	struct gw_checkpoint *c;
	struct gw_patch *pt;
	struct chain h;
	struct gw_rng rng;
	uint8_t *p;
	size_t n;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	chain_init(&h);
	make_steps(&h, &w, &rng);
	ck_assert_int_eq(diff_to(&h, 0, STEPS, NULL, "/direct"), 0);
	p = read_whole(h.fs, "/direct", &n);
	ck_assert_int_eq(gw_patch_open(&pt, p, n, NULL) | gw_checkpoint_open(&c, h.fs, "/v3", NULL), 0);
	gw_patch_info(pt, &info);
	memcpy(rs.from_print, info.from_print, sizeof rs.from_print);
	memcpy(rs.to_print, info.to_print, sizeof rs.to_print);
	rs.files = files;
	rs.file_count = files_of(pt, c, files);
	h.pool = _i ? (struct gw_pool){NULL, 3, run_backwards} : h.pool;
	ck_assert_msg(!gw_fold_resident(&rs, h.fs, &h.pool, NULL, "/folded", NULL, &h.why), "%s", h.why.text);
	check_same(&h, "/direct", "/folded");

	/* A place that a list lacks, and a resident bit that flipped. */
	w.undo[0][1].n--;
	check_refused(&h, gw_fold_resident(&rs, h.fs, &h.pool, NULL, "/out", NULL, &h.why), GW_EBASE, "undo lists");
	w.undo[0][1].n++;
	h.why.text[0] = 0;
	w.m.t[2].p[777] ^= 1;
	check_refused(&h, gw_fold_resident(&rs, h.fs, &h.pool, NULL, "/out", NULL, &h.why), GW_EFINGERPRINT, "resident");
	for (unsigned i = 0; i < RESIDENT; i++)
		for (unsigned s = 0; s < STEPS; s++) {
			free((void *)(uintptr_t)w.undo[i][s].at);
			free((void *)(uintptr_t)w.undo[i][s].old_bits);
		}
	gw_patch_close(pt);
	gw_checkpoint_close(c);
	free(p);
	chain_free(&h);
	model_free(&w.m);
}
END_TEST

TCase *patch_fold_case(void)
{
	TCase *t = tcase_create("fold");

	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, values_that_change, 0, 4);
	tcase_add_test(t, axes_that_differ);
	tcase_add_loop_test(t, everything_moves, 0, 8);
	tcase_add_test(t, what_is_no_chain_is_refused);
	tcase_add_loop_test(t, a_wrong_base_is_named, 0, 4);
	tcase_add_test(t, a_damaged_patch_is_named);
	tcase_add_loop_test(t, resident_bits_and_undo_lists, 0, 2);
	tcase_add_test(t, the_report_is_that_of_a_diff);
	return t;
}
