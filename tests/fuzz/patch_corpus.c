/*
 * Prints tests/fuzz/patch.hex: small patches that have all there is, of a base whose tensors begin with the bits of
 * patch_base.h.
 *
 *     make tests/fuzz/patch_corpus && tests/fuzz/patch_corpus >../tests/fuzz/patch.hex
 *
 * libzstd may pack other bytes in another release, so nothing compares the file with what this prints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bench/memfs.h"
#include "../unit/fakefs.h"
#include "elements.h"
#include "patch/diff.h"
#include "patch_base.h"
#include "weights/checkpoint.h"

enum { TENSORS = 8, FILE_MAX = 1 << 20 };

/* What happens to a tensor: one element in 2^n changes, or … */
enum { ALL = 0, ZERO = 100, SMALL, NEW, GONE };

struct row {
	const char *name;
	enum gw_dtype dtype;
	uint64_t rows, cols;
	int how;
};

static void must(int err, const char *what)
{
	if (!err)
		return;
	(void)fprintf(stderr, "%s: %d\n", what, err);
	exit(1);
}

static void change(uint8_t *p, const struct row *t, uint64_t bytes)
{
	struct gw_shape s = gw_shape_of(t->dtype);

	if (t->how < ZERO)
		fuzz_train((uint8_t)((unsigned)t->how | 16 * (t->rows % 16)), &s, p, (uint32_t)(bytes / s.width));
	else if (t->how == ZERO)
		memset(p, 0, bytes);
	else
		for (uint64_t i = 0; i < bytes; i++)
			p[i] = (uint8_t)(p[i] & (i % s.width ? 1 : 3));
}

/* One side's file: of the old one without those that are new, and the other way round. */
static void add_shard(struct fake_fs *fs, struct gw_wr *w, const char *path, const struct row *t, unsigned n,
		      int is_new)
{
	struct gw_safetensors_spec spec[TENSORS];
	uint64_t shape[TENSORS][2], bytes[TENSORS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		if (t[i].how == (is_new ? GONE : NEW))
			continue;
		shape[m][0] = t[i].rows;
		shape[m][1] = t[i].cols;
		must(gw_tensor_bytes(t[i].dtype, 2, shape[m], &bytes[m]), "size");
		spec[m] = (struct gw_safetensors_spec){t[i].name, shape[m], 2, t[i].dtype};
		m++;
	}
	gw_wr_init(w, FILE_MAX);
	must(gw_safetensors_write(w, spec, m, NULL, 0, NULL), "header");
	m = 0;
	for (unsigned i = 0; i < n; i++) {
		uint8_t *p;

		if (t[i].how == (is_new ? GONE : NEW))
			continue;
		p = gw_wr_reserve(w, bytes[m]);
		fuzz_base(p, bytes[m]);
		if (is_new && t[i].how != NEW)
			change(p, &t[i], bytes[m]);
		m++;
	}
	must(w->err, "file");
	(void)fake_add(fs, path, GW_FILE_REGULAR, w->p, w->n);
}

static void print(const char *what, const uint8_t *p, size_t n)
{
	printf("# %s: %zu bytes\n", what, n);
	for (size_t i = 0; i < n; i++)
		printf("%02x", p[i]);
	printf("\n");
}

static void diff(struct fake_fs *in, const char *what, const char *old, const char *new_)
{
	struct gw_diff_options opt = {.replace = 1};
	struct gw_pool pool = gw_pool_serial();
	struct gw_checkpoint *a = NULL, *b;
	struct bench_memfs out;

	bench_memfs_init(&out);
	if (old)
		must(gw_checkpoint_open(&a, &in->fs, old, NULL), old);
	must(gw_checkpoint_open(&b, &in->fs, new_, NULL), new_);
	must(gw_diff(a, b, &out.fs, &pool, &opt, "p", NULL, NULL), what);
	print(what, out.p, out.n);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	bench_memfs_free(&out);
}

static void single(const char *what, const struct row *t, unsigned n, int from_nothing)
{
	struct fake_fs in;
	struct gw_wr w[2];

	fake_init(&in);
	add_shard(&in, &w[0], "/old", t, n, 0);
	add_shard(&in, &w[1], "/new", t, n, 1);
	diff(&in, what, from_nothing ? NULL : "/old", "/new");
	gw_wr_free(&w[0]);
	gw_wr_free(&w[1]);
}

static void add_text(struct fake_fs *fs, const char *path, const char *text)
{
	(void)fake_add(fs, path, GW_FILE_REGULAR, text, strlen(text));
}

/* Files that stay, come, go and change; a shard that carries what the index serves from nowhere. */
static void folder(const char *what, int from_nothing)
{
	static const struct row one[] = {{"a", GW_DT_BF16, 4, 10, 3}},
				two[] = {{"b", GW_DT_U8, 1, 9, SMALL}, {"c", GW_DT_I16, 2, 3, 1}};
	static const char index[] = "{\"weight_map\": {\"a\": \"1.safetensors\"}}";
	struct fake_fs in;
	struct gw_wr w[4];

	fake_init(&in);
	for (int i = 0; i < 2; i++) {
		const char *const *name =
			(const char *const[2][6]){{"/o", "/o/1.safetensors", "/o/2.safetensors", "/o/" GW_INDEX_NAME,
						   "/o/config.json", "/o/gone"},
						  {"/n", "/n/1.safetensors", "/n/2.safetensors", "/n/" GW_INDEX_NAME,
						   "/n/config.json", "/n/new"}}[i];

		(void)fake_add(&in, name[0], GW_FILE_DIR, NULL, 0);
		add_shard(&in, &w[2 * i], name[1], one, 1, i);
		add_shard(&in, &w[2 * i + 1], name[2], two, 2, i);
		add_text(&in, name[3], index);
		add_text(&in, name[4], i ? "{1}" : "{}");
		add_text(&in, name[5], i ? "" : "x");
	}
	diff(&in, what, from_nothing ? NULL : "/o", "/n");
	for (int i = 0; i < 4; i++)
		gw_wr_free(&w[i]);
}

int main(void)
{
	printf("# Patches with all there is: printed by patch_corpus.c.\n");
	single("bf16 coded, few and many",
	       (const struct row[]){{"f", GW_DT_BF16, 3, 50, 4}, {"m", GW_DT_BF16, 5, 20, 1}}, 2, 0);
	single("f8 coded", (const struct row[]){{"a", GW_DT_F8_E4M3, 3, 60, 4}, {"b", GW_DT_F8_E5M2, 5, 30, 2}}, 2, 0);
	single("f16 coded", (const struct row[]){{"a", GW_DT_F16, 7, 20, 3}}, 1, 0);
	single("f32 coded", (const struct row[]){{"a", GW_DT_F32, 9, 20, 3}}, 1, 0);
	single("f64 coded", (const struct row[]){{"a", GW_DT_F64, 2, 40, 3}}, 1, 0);
	single("u8 and f4, coded", (const struct row[]){{"a", GW_DT_F4, 3, 60, 4}, {"b", GW_DT_U8, 6, 40, 4}}, 2, 0);
	single("i32 and i64, coded", (const struct row[]){{"a", GW_DT_I32, 3, 30, 3}, {"b", GW_DT_I64, 11, 9, 3}}, 2,
	       0);
	single("raw, zstd, planes",
	       (const struct row[]){{"p", GW_DT_BF16, 6, 40, ZERO},
				    {"r", GW_DT_U8, 2, 9, ALL},
				    {"s", GW_DT_F32, 3, 40, SMALL},
				    {"z", GW_DT_U8, 5, 20, SMALL}},
	       4, 0);
	single("tensors come and go",
	       (const struct row[]){{"gone", GW_DT_I16, 2, 3, GONE},
				    {"gone.too", GW_DT_F8_E8M0, 1, 1, GONE},
				    {"new", GW_DT_F32, 2, 3, NEW},
				    {"none", GW_DT_BF16, 0, 4, NEW}},
	       4, 0);
	single("packed values and their scales",
	       (const struct row[]){{"x_blocks", GW_DT_I32, 16, 4, 1},
				    {"x_scales", GW_DT_F8_E4M3, 16, 1, 2},
				    {"y", GW_DT_U8, 10, 20, 3},
				    {"y_scale", GW_DT_BF16, 10, 1, 1},
				    {"z_packed", GW_DT_F4, 8, 32, 4},
				    {"z_scale", GW_DT_F8_E4M3, 8, 2, 2}},
	       6, 0);
	folder("a folder", 0);
	folder("a folder from nothing", 1);
	return 0;
}
