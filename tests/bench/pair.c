#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/publish.h"
#include "io/os/fs_os.h"

enum { STRETCH = 64 * 1024 }; /* elements; they stay in the cache nearest the core */

static int add_tensors(struct bench_pair *p)
{
	uint32_t n = gw_checkpoint_tensors(p->b);

	p->tensors = calloc((size_t)n + 1, sizeof *p->tensors);
	if (!p->tensors)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		const struct gw_tensor *b = gw_checkpoint_tensor(p->b, i), *a = gw_checkpoint_find(p->a, b->name);
		unsigned width = gw_dtype_width((enum gw_dtype)b->dtype);

		if (!a || a->dtype != b->dtype || a->bytes != b->bytes)
			continue;
		p->tensors[p->count++] =
			(struct bench_tensor){a, b, (enum gw_dtype)b->dtype, width, b->bytes / width, p->bytes};
		p->elements += b->bytes / width;
		p->bytes += b->bytes;
	}
	return 0;
}

/* The file itself, or the only shard of the folder. */
static char *only_file(const struct gw_checkpoint *c)
{
	if (gw_checkpoint_is_file(c))
		return strdup(gw_checkpoint_path(c));
	return gw_checkpoint_shards(c) == 1 ? gw_path_join(gw_checkpoint_path(c), gw_checkpoint_shard(c, 0)->name)
					    : NULL;
}

int bench_pair_open(struct bench_pair *p, const char *old, const char *new_, struct gw_diag *why)
{
	int err;

	memset(p, 0, sizeof *p);
	err = gw_checkpoint_open(&p->a, gw_fs_os(), old, why);
	if (!err)
		err = gw_checkpoint_open(&p->b, gw_fs_os(), new_, why);
	if (!err)
		err = add_tensors(p);
	if (err) {
		bench_pair_close(p);
		return err;
	}
	p->paths[0] = only_file(p->a);
	p->paths[1] = only_file(p->b);
	return 0;
}

void bench_pair_close(struct bench_pair *p)
{
	gw_checkpoint_close(p->a);
	gw_checkpoint_close(p->b);
	free(p->paths[0]);
	free(p->paths[1]);
	free(p->tensors);
	memset(p, 0, sizeof *p);
}

int bench_each_change(const struct bench_tensor *t, struct gw_changes_buf *b,
		      void (*each)(void *ctx, const struct bench_tensor *t, uint64_t first,
				   const struct gw_tile_changes *c),
		      void *ctx)
{
	for (uint64_t first = 0; first < t->elements; first += STRETCH) {
		uint64_t n = gw_min_u64(STRETCH, t->elements - first), at = first * t->width;
		struct gw_tile_changes c = {.at = b->at, .old_bits = b->old_bits, .new_bits = b->new_bits};

		c.n = gw_scan_run(b, 0, t->old->p + at, t->new_->p + at, n, t->width, 0);
		if (c.n)
			each(ctx, t, first, &c);
	}
	return 0;
}

static void count_change(void *ctx, const struct bench_tensor *t, uint64_t first, const struct gw_tile_changes *c)
{
	uint64_t *changed = ctx;

	(void)first;
	changed[t->dtype % BENCH_DTYPES] += c->n;
}

int bench_pair_changed(const struct bench_pair *p, uint64_t changed[BENCH_DTYPES])
{
	struct gw_changes_buf b;
	int err = gw_changes_buf_init(&b);

	memset(changed, 0, BENCH_DTYPES * sizeof changed[0]);
	for (uint32_t i = 0; !err && i < p->count; i++)
		err = bench_each_change(&p->tensors[i], &b, count_change, changed);
	gw_changes_buf_free(&b);
	return err;
}

/* --- cutting ------------------------------------------------------------------------------------------- */

/* Rows of the first dimension that fit into so many bytes. */
static uint64_t fitting(const struct gw_tensor *t, uint64_t limit)
{
	return t->bytes <= limit || !t->rank || !t->shape[0] ? 0 : limit / (t->bytes / t->shape[0]);
}

static int choose(const struct bench_pair *p, enum gw_dtype dtype, uint64_t limit, struct gw_safetensors_spec *specs,
		  uint64_t (*shapes)[8], uint32_t *which, size_t *count)
{
	size_t n = 0;

	for (uint32_t i = 0; i < p->count && limit; i++) {
		const struct gw_tensor *t = p->tensors[i].new_;
		uint64_t rows;

		if ((dtype && p->tensors[i].dtype != dtype) || t->rank > 8)
			continue;
		rows = fitting(t, limit);
		if (t->bytes > limit && !rows)
			continue;
		memcpy(shapes[n], t->shape, t->rank * sizeof t->shape[0]);
		if (rows)
			shapes[n][0] = rows;
		limit = rows ? 0 : limit - t->bytes;
		which[n] = i;
		specs[n] = (struct gw_safetensors_spec){t->name, shapes[n], t->rank, p->tensors[i].dtype};
		n++;
	}
	*count = n;
	return n ? 0 : GW_ENOENT;
}

static int write_cut(const struct bench_pair *p, int new_, const char *path, const struct gw_safetensors_spec *specs,
		     const uint32_t *which, size_t n, struct gw_diag *why)
{
	struct gw_fs *fs = gw_fs_os();
	struct gw_file *f;
	struct gw_wr header;
	uint64_t at, bytes;
	int err;

	gw_wr_init(&header, GW_SAFETENSORS_HEADER_MAX);
	err = gw_safetensors_write(&header, specs, n, NULL, 0, why);
	if (!err)
		err = gw_fs_open(fs, path, GW_OPEN_WRITE | GW_OPEN_CREATE, &f);
	if (err) {
		gw_wr_free(&header);
		return err;
	}
	err = gw_fs_resize(fs, f, 0);
	if (!err)
		err = gw_fs_pwrite(fs, f, header.p, header.n, 0);
	at = header.n;
	for (size_t i = 0; i < n && !err; i++) {
		const struct bench_tensor *t = &p->tensors[which[i]];

		err = gw_tensor_bytes(specs[i].dtype, specs[i].rank, specs[i].shape, &bytes);
		if (!err)
			err = gw_fs_pwrite(fs, f, (new_ ? t->new_ : t->old)->p, bytes, at);
		at += bytes;
	}
	gw_fs_close(fs, f);
	gw_wr_free(&header);
	return err;
}

int bench_pair_cut(const struct bench_pair *p, enum gw_dtype dtype, uint64_t limit, const char *old, const char *new_,
		   struct gw_diag *why)
{
	struct gw_safetensors_spec *specs = calloc((size_t)p->count + 1, sizeof *specs);
	uint64_t(*shapes)[8] = calloc((size_t)p->count + 1, sizeof *shapes);
	uint32_t *which = calloc((size_t)p->count + 1, sizeof *which);
	size_t n = 0;
	int err = specs && shapes && which ? choose(p, dtype, limit, specs, shapes, which, &n) : GW_ENOMEM;

	if (!err)
		err = write_cut(p, 0, old, specs, which, n, why);
	if (!err)
		err = write_cut(p, 1, new_, specs, which, n, why);
	free(specs);
	free(shapes);
	free(which);
	return err;
}

/* --- in one piece ---------------------------------------------------------------------------------------- */

void bench_pair_old(const struct bench_pair *p, uint8_t *model)
{
	for (uint32_t i = 0; i < p->count; i++)
		memcpy(model + p->tensors[i].first, p->tensors[i].old->p, p->tensors[i].old->bytes);
}

int bench_pair_is_new(const struct bench_pair *p, const uint8_t *model)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (memcmp(model + p->tensors[i].first, p->tensors[i].new_->p, p->tensors[i].new_->bytes))
			return 0;
	return 1;
}
