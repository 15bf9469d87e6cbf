/*
 * What must hold of any pair of checkpoints: diff and apply, into a new folder and in place, give the new one byte for
 * byte; the patch is never much longer than the new bits; it has the same bytes with any number of threads and any
 * vectors; and a base with one wrong bit is refused. Seeded: SEED=N replays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../crash/crash_fs.h"
#include "base/buf.h"
#include "base/publish.h"
#include "io/os/fs_os.h"
#include "io/os/pool.h"
#include "model.h"
#include "patch/coder_inside.h"
#include "patch/diff.h"
#include "patch/disk.h"
#include "patch/element.h"
#include "patch/fingerprint.h"
#include "patch/inside.h"
#include "patch/scan.h"
#include "unit.h"

static const enum gw_dtype dtypes[] = {
#define GW_DTYPE(name, number, bits, class) GW_DT_##name,
#include "weights/dtype.def"
#undef GW_DTYPE
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* A file system in memory, or a real folder, with both checkpoints in it as "a" and "b". */
struct world {
	struct crash_fs *c;
	struct gw_fs *fs;
	struct gw_pool pool;
	char dir[64];
	struct gw_diag why;
};

static void world_init(struct world *w)
{
	memset(w, 0, sizeof *w);
	w->c = crash_fs_new(unit_seed());
	w->fs = crash_fs_table(w->c);
	w->pool = gw_pool_serial();
}

static const char *at(const struct world *w, const char *name)
{
	static char path[8][128];
	static unsigned next;
	char *p = path[next++ % 8];

	(void)snprintf(p, sizeof path[0], "%s/%s", w->dir, name);
	return p;
}

#define OK(x)                                                                                                          \
	do {                                                                                                           \
		int err_ = (x);                                                                                        \
		ck_assert_msg(!err_, "%s: %d %s", #x, err_, w->why.text);                                              \
	} while (0)

/* The tensor's name ends in the digit of its axis. */
static unsigned axis_of_name(void *ctx, const char *name, unsigned rank, const uint64_t *shape)
{
	unsigned axis = (unsigned)(name[strlen(name) - 1] - '0');

	(void)ctx;
	(void)shape;
	return axis < rank ? axis : 0;
}

static void diff(struct world *w, const char *old, const char *new_, const char *patch)
{
	struct gw_diff_options opt = {.axis = axis_of_name, .replace = 1};
	struct gw_checkpoint *a, *b;

	OK(gw_checkpoint_open(&a, w->fs, at(w, old), &w->why));
	OK(gw_checkpoint_open(&b, w->fs, at(w, new_), &w->why));
	OK(gw_diff(a, b, w->fs, &w->pool, &opt, at(w, patch), NULL, &w->why));
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
}

static int apply(struct world *w, const uint8_t *p, size_t n, const char *base, const char *out)
{
	struct gw_checkpoint *c;
	struct gw_patch *pt;
	int err;

	w->why.text[0] = 0;
	OK(gw_patch_open(&pt, p, n, &w->why));
	OK(gw_checkpoint_open(&c, w->fs, at(w, base), &w->why));
	err = out ? gw_disk_apply(pt, c, w->fs, &w->pool, NULL, at(w, out), NULL, &w->why)
		  : gw_disk_apply_in_place(pt, w->fs, &w->pool, NULL, at(w, base), NULL, &w->why);
	gw_checkpoint_close(c);
	gw_patch_close(pt);
	return err;
}

static uint64_t bits_of(const struct model *m)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < m->n; i++)
		bytes += m->t[i].bytes;
	return bytes;
}

/* Into a new folder and in place; returns the patch's bytes. */
static size_t check_pair(const struct model *a, const struct model *b)
{
	struct world world, *w = &world;
	uint8_t *p;
	size_t n;

	world_init(w);
	model_write(a, w->fs, at(w, "a"));
	model_write(b, w->fs, at(w, "b"));
	diff(w, "a", "b", "p");
	p = read_whole(w->fs, at(w, "p"), &n);
	OK(apply(w, p, n, "a", "new"));
	ck_assert(same_tree(w->fs, at(w, "b"), at(w, "new")));
	OK(apply(w, p, n, "a", NULL));
	ck_assert(same_tree(w->fs, at(w, "b"), at(w, "a")));
	free(p);
	crash_fs_free(w->c);
	return n;
}

/* Room for what is no tile's body: header, rows, models. */
static void check_bound(const struct model *b, size_t n)
{
	uint64_t raw = bits_of(b);

	ck_assert_msg(n <= raw + raw / 200 + 4096, "a patch of %zu bytes for %llu", n, (unsigned long long)raw);
}

static void begin(struct model *a)
{
	memset(a, 0, sizeof *a);
	(void)strcpy(a->shard[0], "model.safetensors");
	model_other(a, "config.json", "{}");
}

/* --- values, densities, shapes ------------------------------------------------------------------ */

static void change_one(struct model_tensor *t, struct gw_rng *rng)
{
	if (t->bytes)
		t->p[gw_rng_below(rng, t->bytes)] ^= (uint8_t)(1 << gw_rng_below(rng, 8));
}

/* One change, few, many, nearly all, all; by steps and to any bits. */
START_TEST(any_density)
{
	static const uint64_t every[] = {0, 3000, 30, 3, 1}, shape[] = {90, 70};
	enum gw_dtype dtype = dtypes[_i];
	struct model a, b;
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed() + (uint64_t)_i);
	begin(&a);
	(void)model_add(&a, &rng, 0, "t0", dtype, 2, shape);
	for (unsigned k = 0; k < 5; k++)
		for (unsigned wild = 0; wild <= 16; wild += 8) {
			model_copy(&b, &a);
			if (every[k])
				model_change(&b.t[0], &rng, every[k], wild);
			else
				change_one(&b.t[0], &rng);
			check_bound(&b, check_pair(&a, &b));
			model_free(&b);
		}
	model_free(&a);
}
END_TEST

/* All pairs of odd values: NaNs, infinities, both zeros, subnormals, the ends of each range. */
START_TEST(odd_values)
{
	static const uint64_t odd[] = {0,
				       1,
				       2,
				       0x7f,
				       0x80,
				       0x81,
				       0xff,
				       0x7e,
				       0x7f80,
				       0x7f81,
				       0x7c00,
				       0x7c01,
				       0x7fff,
				       0x8000,
				       0x8001,
				       0xff80,
				       0xffff,
				       0x0080,
				       0x0400,
				       0x7f800000,
				       0x7f800001,
				       0x7fffffff,
				       0x80000000,
				       0x80000001,
				       0x00800000,
				       0xff800000,
				       0xffffffff,
				       0x7ff0000000000000,
				       0x7ff0000000000001,
				       0x7fffffffffffffff,
				       0x8000000000000000,
				       0x8000000000000001,
				       0x0010000000000000,
				       0xfff0000000000000,
				       0xffffffffffffffff};
	enum { N = sizeof odd / sizeof odd[0] };
	static const uint64_t shape[] = {N, N};
	struct model a, b;
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed());
	begin(&a);
	for (unsigned d = 0; d < DTYPES - 1; d++) { /* F4 has the same bytes as U8, in another shape */
		char name[8];

		(void)snprintf(name, sizeof name, "t%02u.0", d);
		(void)model_add(&a, &rng, 0, name, dtypes[d], 2, shape);
	}
	model_copy(&b, &a);
	for (unsigned d = 0; d < a.n; d++) {
		unsigned width = gw_dtype_width(a.t[d].dtype);

		for (size_t i = 0; i < (size_t)N * N; i++) {
			gw_element_store(a.t[d].p + i * width, width, odd[i / N]);
			gw_element_store(b.t[d].p + i * width, width, odd[i % N]);
		}
	}
	(void)check_pair(&a, &b);
	(void)check_pair(&b, &a);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* Shapes that are hard to cut: one element, none, none along one axis, primes, high ranks, rows longer than a tile may
 * be, stacks of experts along each axis; F4 with an odd number of bytes a row, and of values. */
static const struct odd_shape {
	enum gw_dtype dtype;
	unsigned rank;
	uint64_t shape[4];
	const char *name;
} odd_shapes[] = {
	{GW_DT_BF16, 0, {0}, "scalar"},
	{GW_DT_F64, 1, {1}, "one.0"},
	{GW_DT_F4, 1, {2}, "one.f4.0"},
	{GW_DT_BF16, 1, {0}, "empty.0"},
	{GW_DT_F32, 3, {4, 0, 3}, "empty.2"},
	{GW_DT_BF16, 2, {13, 17}, "prime.1"},
	{GW_DT_F16, 4, {3, 1, 5, 7}, "rank.2"},
	{GW_DT_F4, 2, {2, 5}, "odd.f4.1"},
	{GW_DT_F4, 3, {3, 4, 6}, "odd.f4.2"},
	{GW_DT_F4, 2, {6, 333}, "odd.f4.0"},
	{GW_DT_F8_E4M3, 2, {1, 786433}, "huge.row.0"},
	{GW_DT_F8_E4M3, 2, {2, 300007}, "huge.rows.0"},
	{GW_DT_F8_E5M2, 2, {2, 524289}, "huge.row.1"},
	{GW_DT_U8, 2, {524289, 1}, "column.0"},
	{GW_DT_BF16, 3, {8, 64, 1100}, "experts.0"},
	{GW_DT_BF16, 3, {8, 64, 1100}, "experts.1"},
	{GW_DT_BF16, 3, {8, 64, 1100}, "experts.2"},
	{GW_DT_F8_E4M3, 3, {24, 48, 500}, "few.experts.0"},
	{GW_DT_F8_E4M3, 3, {24, 48, 500}, "few.experts.1"},
	{GW_DT_F8_E4M3, 3, {24, 48, 500}, "few.experts.2"},
};
enum { ODD_SHAPES = sizeof odd_shapes / sizeof odd_shapes[0] };

START_TEST(odd_shape)
{
	static const uint64_t every[] = {0, 700, 20};
	const struct odd_shape *s = &odd_shapes[_i];
	struct model a, b;
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed() + (uint64_t)_i);
	begin(&a);
	(void)model_add(&a, &rng, 0, s->name, s->dtype, s->rank, s->shape);
	for (unsigned k = 0; k < 3; k++) {
		model_copy(&b, &a);
		if (every[k])
			model_change(&b.t[0], &rng, every[k], 2);
		if (b.t[0].bytes)
			b.t[0].p[b.t[0].bytes - 1] ^= 1; /* the last element of all */
		check_bound(&b, check_pair(&a, &b));
		model_free(&b);
	}
	model_free(&a);
}
END_TEST

/* A tile as large as it gets, of equal elements, which all last as long as an element can: times and gaps at their
 * largest. Nothing changed, the last one, the first, both, all alike. */
START_TEST(equal_elements)
{
	static const enum gw_dtype some[] = {GW_DT_BF16, GW_DT_F8_E4M3, GW_DT_F64, GW_DT_U8, GW_DT_I32};
	static const uint64_t shape[] = {1, GW_TILE_ELEMENTS_MAX};
	struct model a, b;
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed());
	begin(&a);
	(void)model_add(&a, &rng, 0, "t0", some[_i], 2, shape);
	memset(a.t[0].p, 0x3c, a.t[0].bytes);
	for (unsigned k = 0; k < 5; k++) {
		size_t width = gw_dtype_width(some[_i]), n;

		model_copy(&b, &a);
		if (k == 1 || k == 3)
			b.t[0].p[b.t[0].bytes - width] ^= 1;
		if (k == 2 || k == 3)
			b.t[0].p[0] ^= 2;
		if (k == 4)
			memset(b.t[0].p, 0x3d, b.t[0].bytes);
		n = check_pair(&a, &b);
		ck_assert_msg(n < (k < 4 ? 600 : 2000), "%zu bytes", n);
		model_free(&b);
	}
	model_free(&a);
}
END_TEST

/* Packed integers whose scales change too, with groups of any size, also over several tiles; and a scale that would
 * have one itself. */
START_TEST(packed_values_and_their_scales)
{
	static const struct {
		enum gw_dtype packed, scale;
		uint64_t rows, cols, groups;
	} some[] = {{GW_DT_U8, GW_DT_F8_E4M3, 96, 64, 4},
		    {GW_DT_I32, GW_DT_BF16, 64, 48, 3},
		    {GW_DT_F4, GW_DT_F8_E8M0, 50, 66, 11},
		    {GW_DT_U8, GW_DT_U8, 700, 900, 9},
		    {GW_DT_I64, GW_DT_F32, 3, 7, 7}};
	static const char *const names[][2] = {{"x_packed", "x_scale"},
					       {"x_blocks", "x_scales"},
					       {"x", "x_scale"},
					       {"x.1", "x.1_scale"},
					       {"x", "x_scale"}};
	uint64_t packed[] = {some[_i].rows, some[_i].cols}, scale[] = {some[_i].rows, some[_i].groups};
	struct model a, b;
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed() + (uint64_t)_i);
	begin(&a);
	(void)model_add(&a, &rng, 0, names[_i][0], some[_i].packed, 2, packed);
	(void)model_add(&a, &rng, 0, names[_i][1], some[_i].scale, 2, scale);
	(void)model_add(&a, &rng, 0, "x_scale_scale", GW_DT_F32, 1, &some[_i].rows);
	for (unsigned k = 0; k < 6; k++) {
		model_copy(&b, &a);
		model_change(&b.t[0], &rng, k % 2 ? 5 : 200, k);
		model_change(&b.t[1], &rng, k < 4 ? 9 : 1, k);
		if (k < 3)
			model_change(&b.t[2], &rng, 3, k);
		check_bound(&b, check_pair(&a, &b));
		model_free(&b);
	}
	model_free(&a);
}
END_TEST

/* --- never much longer ------------------------------------------------------------------------ */

/* The worst there is: everything new and random, dtype by dtype and together; half of it random; few bits random in
 * many dtypes, each of which might want a model of its own. */
START_TEST(random_bits_stay_short)
{
	static const uint64_t shape[] = {60, 250};
	static const uint64_t every[] = {1, 2, 3, 8};
	struct model a, b;
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed() + (uint64_t)_i);
	begin(&a);
	for (unsigned d = 0; d < DTYPES; d++)
		if (_i == DTYPES || (unsigned)_i == d) {
			char name[8];

			(void)snprintf(name, sizeof name, "t%02u.0", d);
			(void)model_add(&a, &rng, 0, name, dtypes[d], 2, shape);
		}
	for (unsigned k = 0; k < 4; k++) {
		model_copy(&b, &a);
		for (unsigned i = 0; i < b.n; i++)
			model_change(&b.t[i], &rng, every[k], 16);
		check_bound(&b, check_pair(&a, &b));
		model_free(&b);
	}
	model_free(&a);
}
END_TEST

/* Where a tensor is smaller than its row in the table, the bound is that of the files: a header of safetensors says
 * more of a tensor than its row. */
START_TEST(many_tiny_tensors_stay_short)
{
	struct model a, b;
	struct gw_rng rng;
	uint64_t bound = 4096;
	size_t n;

	gw_rng_init(&rng, unit_seed());
	begin(&a);
	for (unsigned i = 0; i < MODEL_TENSORS; i++) {
		static const uint64_t shapes[][2] = {{1, 2}, {2, 2}, {3, 6}, {2, 30}};
		char name[32];

		(void)snprintf(name, sizeof name, "%02u.layer.%u.weight.1", i, i);
		(void)model_add(&a, &rng, 0, name, dtypes[i % DTYPES], 2, shapes[i / DTYPES % 4]);
	}
	model_copy(&b, &a);
	for (unsigned i = 0; i < b.n; i++) {
		for (uint64_t k = 0; k < b.t[i].bytes; k++)
			b.t[i].p[k] = (uint8_t)~b.t[i].p[k];
		/* name, kind to axis, shape, fingerprints, count, length, mode and check */
		bound += b.t[i].bytes + strlen(b.t[i].name) + 2 + 4 + 2 + 32 + 1 + 1 + 5;
	}
	n = check_pair(&a, &b);
	ck_assert_uint_le(n, bound);
	model_free(&a);
	model_free(&b);
}
END_TEST

/* --- the same bytes everywhere ------------------------------------------------------------------ */

/* Vectors of all kernels at once; 0 where this machine has them. */
static int use_level(int level)
{
	return gw_survey_use((enum gw_survey_impl)level) || gw_scan_use((enum gw_scan_impl)level) ||
	       gw_print_use((enum gw_print_impl)level);
}

static void some_of_all(struct model *a, struct model *b, struct gw_rng *rng)
{
	static const uint64_t big[] = {700, 900}, small[] = {33, 41};

	begin(a);
	(void)model_add(a, rng, 0, "big.0", GW_DT_BF16, 2, big);
	(void)model_add(a, rng, 0, "big.1", GW_DT_F8_E4M3, 2, big);
	(void)model_add(a, rng, 0, "big.u8.1", GW_DT_U8, 2, big);
	for (unsigned d = 0; d < DTYPES; d++) {
		char name[16];

		(void)snprintf(name, sizeof name, "small.%02u.0", d);
		if (dtypes[d] != GW_DT_F4)
			(void)model_add(a, rng, 0, name, dtypes[d], 2, small);
	}
	model_copy(b, a);
	for (unsigned i = 0; i < b->n; i++)
		model_change(&b->t[i], rng, i % 3 ? 30 : 300, i % 5);
	model_change(&b->t[5], rng, 1, 16);
}

START_TEST(same_bytes_with_any_threads_and_vectors)
{
	static const unsigned threads[] = {1, 2, 7};
	enum gw_survey_impl survey = gw_survey_used();
	enum gw_print_impl print = gw_print_used();
	enum gw_scan_impl scan = gw_scan_used();
	struct world world, *w = &world;
	struct model a, b;
	struct gw_rng rng;
	uint8_t *first = NULL;
	size_t first_n = 0;
	int levels = 0;

	gw_rng_init(&rng, unit_seed());
	memset(w, 0, sizeof *w);
	(void)strcpy(w->dir, "/tmp/patch_property.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(w->dir));
	w->fs = gw_fs_os();
	some_of_all(&a, &b, &rng);
	model_write(&a, w->fs, at(w, "a"));
	model_write(&b, w->fs, at(w, "b"));
	for (int level = 0; level <= GW_SURVEY_AVX512; level++) {
		if (use_level(level))
			continue;
		levels++;
		for (unsigned k = 0; k < 3; k++) {
			uint8_t *p;
			size_t n;

			OK(gw_pool_threads_init(&w->pool, threads[k], &w->why));
			diff(w, "a", "b", "p");
			p = read_whole(w->fs, at(w, "p"), &n);
			if (!first) {
				first = p;
				first_n = n;
			}
			ck_assert_uint_eq(n, first_n);
			ck_assert_mem_eq(p, first, n);
			OK(apply(w, p, n, "a", "new"));
			ck_assert(same_tree(w->fs, at(w, "b"), at(w, "new")));
			OK(gw_publish_remove(w->fs, at(w, "new")));
			gw_pool_threads_free(&w->pool);
			if (p != first)
				free(p);
		}
	}
	ck_assert_int_ge(levels, 1);
	ck_assert(!gw_survey_use(survey) && !gw_print_use(print) && !gw_scan_use(scan));
	free(first);
	OK(gw_publish_remove(w->fs, at(w, "a")));
	OK(gw_publish_remove(w->fs, at(w, "b")));
	OK(gw_publish_remove(w->fs, w->dir));
	model_free(&a);
	model_free(&b);
}
END_TEST

/* --- a wrong base ------------------------------------------------------------------------------- */

/* What some elements of a real tensor are before and after a step. */
static void real_stretch(struct model *a, struct model *b, const char *name, const char *series, const char *tensor,
			 uint64_t first, uint64_t elements)
{
	struct model *side[2] = {a, b};

	for (int i = 0; i < 2; i++) {
		const char *top = getenv("top_srcdir");
		const struct gw_tensor *t;
		struct gw_checkpoint *c;
		struct model_tensor *to;
		struct gw_rng rng;
		char path[512];

		gw_rng_init(&rng, 1);
		(void)snprintf(path, sizeof path, "%s/tests/data/%s/v%d", top ? top : ".", series, i);
		ck_assert_int_eq(gw_checkpoint_open(&c, gw_fs_os(), path, NULL), 0);
		t = gw_checkpoint_find(c, tensor);
		ck_assert_msg(t != NULL, "%s: no %s", path, tensor);
		to = model_add(side[i], &rng, 0, name, (enum gw_dtype)t->dtype, 1, &elements);
		ck_assert_uint_le((first + elements) * gw_dtype_width(to->dtype), t->bytes);
		memcpy(to->p, t->p + first * gw_dtype_width(to->dtype), to->bytes);
		gw_checkpoint_close(c);
	}
}

static const uint8_t *tensor_of(const struct model *m, const char *name)
{
	for (unsigned i = 0; i < m->n; i++)
		if (!strcmp(m->t[i].name, name))
			return m->t[i].p;
	return NULL;
}

/* The coder alone, with a wrong bit: refused, or changes inside the tile; whatever it reads. */
static void check_coder_alone(struct model *a, const uint8_t *p, size_t n, uint64_t counts[2])
{
	struct gw_tile_decoder *d;
	struct gw_patch *pt;

	ck_assert_int_eq(gw_tile_decoder_new(&d), 0);
	ck_assert_int_eq(gw_patch_open(&pt, p, n, NULL), 0);
	for (unsigned i = 0; i < a->n; i++) {
		const struct gw_patch_tensor *t = gw_patch_find(pt, a->t[i].name);
		uint8_t *exact = malloc(a->t[i].bytes);
		struct gw_hot *hot = NULL;

		ck_assert_uint_eq(t->tiles, 1);
		if (t->companion)
			ck_assert_int_eq(gw_patch_hot(d, pt, t->companion, tensor_of(a, t->companion->name), &hot), 0);
		memcpy(exact, a->t[i].p, a->t[i].bytes);
		for (uint64_t bit = 0; bit < 8 * a->t[i].bytes; bit++) {
			struct gw_tile_changes c;

			exact[bit / 8] ^= (uint8_t)(1 << bit % 8);
			if (gw_tile_decode(d, pt, t, 0, exact, hot, &c)) {
				counts[0]++;
			} else {
				counts[1]++;
				for (size_t k = 0; k < c.n; k++)
					ck_assert(c.at[k] < t->elements && (!k || c.at[k] > c.at[k - 1]));
			}
			exact[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		gw_hot_free(hot);
		free(exact);
	}
	gw_patch_close(pt);
	gw_tile_decoder_free(d);
}

/* Each bit of the base's n bytes at p. What a refused run made and took away again fills the file system's short lists:
 * every so often another one. */
static void check_flips(const struct gw_patch *pt, const struct gw_checkpoint *c, uint8_t *p, uint64_t n)
{
	struct world out;
	struct gw_stat st;

	for (uint64_t bit = 0; bit < 8 * n; bit++) {
		int err;

		if (bit % 16 == 0)
			world_init(&out);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		err = gw_disk_apply(pt, c, out.fs, &out.pool, NULL, "/new", NULL, NULL);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(err == GW_EBASE, "bit %llu: %d", (unsigned long long)bit, err);
		ck_assert_int_eq(gw_fs_stat(out.fs, "/new", &st), GW_ENOENT);
		if (bit % 16 == 15)
			crash_fs_free(out.c);
	}
}

START_TEST(every_wrong_bit_of_a_real_base_is_refused)
{
	struct world world, *w = &world;
	uint64_t flips = 0, counts[2] = {0, 0};
	struct model a, b;
	struct gw_patch *pt;
	struct gw_checkpoint *c;
	uint8_t *p;
	size_t n;

	begin(&a);
	begin(&b);
	real_stretch(&a, &b, "bf16.0", "lr1e-6/bf16", "model.layers.0.self_attn.o_proj.weight", 0, 2000);
	real_stretch(&a, &b, "fp8.0", "lr1e-6/fp8", "model.layers.0.self_attn.o_proj.weight", 0, 1500);
	/* Packed values, some of whose scales change. */
	real_stretch(&a, &b, "w_packed", "lr1e-5/nvfp4", "model.layers.0.self_attn.o_proj.weight", 820 * 8, 640);
	real_stretch(&a, &b, "w_scale", "lr1e-5/nvfp4", "model.layers.0.self_attn.o_proj.weight_scale", 820, 80);
	world_init(w);
	model_write(&a, w->fs, at(w, "a"));
	model_write(&b, w->fs, at(w, "b"));
	diff(w, "a", "b", "p");
	p = read_whole(w->fs, at(w, "p"), &n);
	OK(gw_patch_open(&pt, p, n, &w->why));
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(gw_tile_mode(pt, gw_patch_find(pt, a.t[i].name), 0), GW_MODE_CODED);
	ck_assert_ptr_eq(gw_patch_find(pt, "w_packed")->companion, gw_patch_find(pt, "w_scale"));
	/* The mapping is what the file holds: flipping there is flipping the file. */
	OK(gw_checkpoint_open(&c, w->fs, at(w, "a"), &w->why));
	for (uint32_t i = 0; i < gw_checkpoint_tensors(c); i++) {
		const struct gw_tensor *t = gw_checkpoint_tensor(c, i);

		flips += 8 * t->bytes;
		check_flips(pt, c, (uint8_t *)(uintptr_t)t->p, t->bytes);
	}
	OK(gw_disk_apply(pt, c, w->fs, &w->pool, NULL, at(w, "new"), NULL, &w->why));
	ck_assert(same_tree(w->fs, at(w, "b"), at(w, "new")));
	gw_checkpoint_close(c);
	gw_patch_close(pt);
	check_coder_alone(&a, p, n, counts);
	(void)fprintf(stderr, "%llu bits flipped; the coder alone refused %llu\n", (unsigned long long)flips,
		      (unsigned long long)counts[0]);
	free(p);
	crash_fs_free(w->c);
	model_free(&a);
	model_free(&b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("patch_property");
	TCase *t = tcase_create("pairs");

	(void)unit_seed(); /* said once, before tests have processes of their own */
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, any_density, 0, DTYPES);
	tcase_add_test(t, odd_values);
	tcase_add_loop_test(t, odd_shape, 0, ODD_SHAPES);
	tcase_add_loop_test(t, equal_elements, 0, 5);
	tcase_add_loop_test(t, packed_values_and_their_scales, 0, 5);
	tcase_add_loop_test(t, random_bits_stay_short, 0, DTYPES + 1);
	tcase_add_test(t, many_tiny_tensors_stay_short);
	tcase_add_test(t, same_bytes_with_any_threads_and_vectors);
	tcase_add_test(t, every_wrong_bit_of_a_real_base_is_refused);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
