#include "model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/publish.h"
#include "patch/element.h"
#include "weights/safetensors.h"

void model_free(struct model *m)
{
	for (unsigned i = 0; i < m->n; i++)
		free(m->t[i].p);
	memset(m, 0, sizeof *m);
}

struct model_tensor *model_add(struct model *m, struct gw_rng *rng, unsigned shard, const char *name,
			       enum gw_dtype dtype, unsigned rank, const uint64_t *shape)
{
	struct model_tensor *t = &m->t[m->n++];

	ck_assert_uint_le(m->n, MODEL_TENSORS);
	memset(t, 0, sizeof *t);
	(void)strcpy(t->name, name);
	t->dtype = dtype;
	t->rank = rank;
	t->shard = shard;
	if (rank)
		memcpy(t->shape, shape, rank * sizeof *shape);
	ck_assert_int_eq(gw_tensor_bytes(dtype, rank, t->shape, &t->bytes), 0);
	t->p = malloc(t->bytes + 1);
	for (uint64_t i = 0; i < t->bytes; i++)
		t->p[i] = (uint8_t)gw_rng_u64(rng);
	if (shard >= m->shards)
		m->shards = shard + 1;
	return t;
}

void model_other(struct model *m, const char *name, const char *text)
{
	(void)strcpy(m->other[m->others].name, name);
	(void)strcpy(m->other[m->others++].text, text);
}

void model_copy(struct model *to, const struct model *from)
{
	*to = *from;
	for (unsigned i = 0; i < to->n; i++) {
		to->t[i].p = malloc(to->t[i].bytes + 1);
		memcpy(to->t[i].p, from->t[i].p, to->t[i].bytes);
	}
}

void model_change(struct model_tensor *t, struct gw_rng *rng, uint64_t every, unsigned wild)
{
	unsigned width = gw_dtype_width(t->dtype);

	for (uint64_t i = 0; i < t->bytes / width; i++) {
		uint64_t v;

		if (gw_rng_below(rng, every))
			continue;
		v = gw_element_load(t->p + i * width, width);
		v = gw_rng_below(rng, 16) < wild ? gw_rng_u64(rng) : gw_rng_below(rng, 2) ? v + 1 : v - 1;
		gw_element_store(t->p + i * width, width, v);
	}
}

void write_whole(struct gw_fs *fs, const char *path, const void *p, size_t n)
{
	struct gw_file *f;

	ck_assert_int_eq(gw_fs_open(fs, path, GW_OPEN_WRITE | GW_OPEN_CREATE, &f), 0);
	ck_assert_int_eq(gw_fs_resize(fs, f, n), 0);
	if (n)
		ck_assert_int_eq(gw_fs_pwrite(fs, f, p, n, 0), 0);
	ck_assert_int_eq(gw_fs_sync(fs, f), 0);
	gw_fs_close(fs, f);
}

uint8_t *read_whole(struct gw_fs *fs, const char *path, size_t *n)
{
	struct gw_file *f;
	struct gw_stat st;
	uint8_t *p;

	ck_assert_int_eq(gw_fs_open(fs, path, GW_OPEN_READ, &f), 0);
	ck_assert_int_eq(gw_fs_fstat(fs, f, &st), 0);
	*n = st.size;
	p = malloc(*n + 1);
	ck_assert_int_eq(gw_fs_pread(fs, f, p, *n, 0), 0);
	gw_fs_close(fs, f);
	return p;
}

static void write_shard(const struct model *m, unsigned shard, struct gw_fs *fs, const char *path)
{
	struct gw_safetensors_spec specs[MODEL_TENSORS];
	size_t n = 0;
	struct gw_wr w;

	for (unsigned i = 0; i < m->n; i++)
		if (m->t[i].shard == shard)
			specs[n++] =
				(struct gw_safetensors_spec){m->t[i].name, m->t[i].shape, m->t[i].rank, m->t[i].dtype};
	gw_wr_init(&w, 64 * 1024 * 1024);
	ck_assert_int_eq(gw_safetensors_write(&w, specs, n, NULL, 0, NULL), 0);
	for (unsigned i = 0; i < m->n; i++)
		if (m->t[i].shard == shard)
			gw_wr_bytes(&w, m->t[i].p, m->t[i].bytes);
	ck_assert_int_eq(w.err, 0);
	write_whole(fs, path, w.p, w.n);
	gw_wr_free(&w);
}

static void write_in(struct gw_fs *fs, const char *dir, const char *name, const void *p, size_t n)
{
	char *path = gw_path_join(dir, name);

	write_whole(fs, path, p, n);
	free(path);
}

void model_write(const struct model *m, struct gw_fs *fs, const char *path)
{
	if (m->shards == 1 && !m->shard[0][0]) {
		write_shard(m, 0, fs, path);
		return;
	}
	ck_assert_int_eq(gw_fs_mkdir(fs, path), 0);
	for (unsigned i = 0; i < m->shards; i++) {
		char *file = gw_path_join(path, m->shard[i]);

		write_shard(m, i, fs, file);
		free(file);
	}
	for (unsigned i = 0; i < m->others; i++)
		write_in(fs, path, m->other[i].name, m->other[i].text, strlen(m->other[i].text));
	ck_assert_int_eq(gw_fs_sync_dir(fs, path), 0);
}

struct names {
	char name[64][100];
	unsigned n;
};

static int add_name(void *ctx, const char *name)
{
	struct names *v = ctx;

	ck_assert_uint_lt(v->n, 64);
	(void)strcpy(v->name[v->n++], name);
	return 0;
}

static int same_file(struct gw_fs *fs, const char *a, const char *b)
{
	size_t an, bn;
	uint8_t *ap = read_whole(fs, a, &an), *bp = read_whole(fs, b, &bn);
	int same = an == bn && !memcmp(ap, bp, an);

	free(ap);
	free(bp);
	return same;
}

int same_tree(struct gw_fs *fs, const char *a, const char *b)
{
	struct names va = {.n = 0}, vb = {.n = 0};
	struct gw_stat st;
	int same;

	ck_assert_int_eq(gw_fs_stat(fs, a, &st), 0);
	if (st.type == GW_FILE_REGULAR)
		return same_file(fs, a, b);
	ck_assert_int_eq(gw_fs_list(fs, a, add_name, &va), 0);
	ck_assert_int_eq(gw_fs_list(fs, b, add_name, &vb), 0);
	same = va.n == vb.n;
	for (unsigned i = 0; same && i < va.n; i++) {
		char *pa = gw_path_join(a, va.name[i]), *pb = gw_path_join(b, vb.name[i]);

		same = !strcmp(va.name[i], vb.name[i]) && same_file(fs, pa, pb);
		free(pa);
		free(pb);
	}
	return same;
}
