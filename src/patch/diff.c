/* A diff of two checkpoints: which tensors and files there are; and what all makers of patches share. */
#include "patch/diff.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"
#include "patch/match.h"
#include "weights/slicing.h"

static int same_shape(const struct gw_tensor *a, const struct gw_tensor *b)
{
	return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape);
}

unsigned gw_diff_axis(const struct gw_diff *d, const struct gw_tensor *t)
{
	const struct gw_diff_options *o = d->opt;

	return o && o->axis ? o->axis(o->ctx, t->name, t->rank, t->shape)
			    : gw_slicing_axis(t->name, t->rank, t->shape);
}

int gw_diff_plan_row(struct gw_diff *d, struct gw_diff_row *r, const struct gw_tensor *old, const struct gw_tensor *new_,
		     unsigned axis)
{
	const struct gw_tensor *t = new_ ? new_ : old;
	int err;

	r->old = old;
	r->new_ = new_;
	r->kind = !new_ ? GW_TENSOR_REMOVED : old && same_shape(old, new_) ? GW_TENSOR_CHANGED : GW_TENSOR_WHOLE;
	r->axis = axis;
	err = gw_tiling_init(&r->tiling, (enum gw_dtype)t->dtype, t->rank, t->shape, r->axis);
	if (err)
		return gw_diag_set(d->why, err, "tensor %s: cannot be cut along axis %u: %s", t->name, r->axis,
				   gw_err_text(err));
	r->elements = r->tiling.rows * r->tiling.cols;
	if (r->kind == GW_TENSOR_WHOLE)
		r->changed = r->elements;
	if (new_) {
		d->report.elements += r->elements;
		d->report.bytes += new_->bytes;
	}
	return 0;
}

static int by_stored_name(const void *a, const void *b)
{
	return strcmp(((const struct gw_diff_stored *)a)->name, ((const struct gw_diff_stored *)b)->name);
}

static int by_file_name(const void *a, const void *b)
{
	return by_stored_name(&((const struct gw_diff_file *)a)->is, &((const struct gw_diff_file *)b)->is);
}

void gw_diff_sort_files(struct gw_diff *d)
{
	qsort(d->files, d->file_count, sizeof *d->files, by_file_name);
	for (uint32_t i = 0; i < d->file_count; i++)
		if (d->files[i].carried_count)
			qsort(d->files[i].carried, d->files[i].carried_count, sizeof *d->files[i].carried, by_stored_name);
}

/* --- two checkpoints ---------------------------------------------------------------------------- */

struct two {
	const struct gw_checkpoint *old, *new_;
};

static int two_tile(void *ctx, const struct gw_diff_row *r, uint32_t tile, unsigned worker, struct gw_diff_room *room,
		    const uint8_t **old, const uint8_t **new_bits)
{
	unsigned width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	struct gw_tile_rect t;

	(void)ctx;
	(void)worker;
	gw_tiling_rect(&r->tiling, tile, &t);
	*old = gw_tile_gather(r->old->p, width, &t, room->old);
	*new_bits = gw_tile_gather(r->new_->p, width, &t, room->new_bits);
	return 0;
}

static int two_chunk(void *ctx, const struct gw_diff_row *r, uint64_t at, size_t n, unsigned worker,
		     struct gw_diff_room *room, const uint8_t **p)
{
	(void)ctx;
	(void)n;
	(void)worker;
	(void)room;
	*p = r->new_->p + at;
	return 0;
}

/* What shrank meanwhile has been read as zeros. */
static int two_check(void *ctx, struct gw_diff *d)
{
	struct two *two = ctx;
	int err = two->old ? gw_checkpoint_check(two->old, d->why) : 0;

	return err ? err : gw_checkpoint_check(two->new_, d->why);
}

static uint32_t tensors_of(const struct gw_checkpoint *c)
{
	return c ? gw_checkpoint_tensors(c) : 0;
}

/* Both lists of tensors rise by name: one walk along both. */
static int plan_rows(struct gw_diff *d, const struct two *two)
{
	uint32_t a = tensors_of(two->old), b = tensors_of(two->new_), i = 0, k = 0;
	int err = 0;

	d->rows = calloc((size_t)a + b + 1, sizeof *d->rows);
	if (!d->rows)
		return GW_ENOMEM;
	while (!err && (i < a || k < b)) {
		const struct gw_tensor *old = i < a ? gw_checkpoint_tensor(two->old, i) : NULL;
		const struct gw_tensor *new_ = k < b ? gw_checkpoint_tensor(two->new_, k) : NULL;
		int order = !old ? 1 : !new_ ? -1 : strcmp(old->name, new_->name);

		old = order <= 0 ? old : NULL;
		new_ = order >= 0 ? new_ : NULL;
		err = gw_diff_plan_row(d, &d->rows[d->row_count++], old, new_, gw_diff_axis(d, new_ ? new_ : old));
		i += order <= 0;
		k += order >= 0;
	}
	return err;
}

static struct gw_diff_stored stored(const char *name, const uint8_t *p, uint64_t bytes, const uint8_t *old,
				    uint64_t old_bytes)
{
	struct gw_diff_stored s = {.name = name, .p = p, .bytes = bytes};

	gw_hash_of(p, bytes, s.digest, sizeof s.digest);
	s.fresh = !old || old_bytes != bytes || memcmp(old, p, bytes);
	return s;
}

static int plan_shard(const struct two *two, struct gw_diff_file *f, const struct gw_shard *s)
{
	const char *name = gw_match_shard_name(two->new_, s);
	const struct gw_shard *was = gw_match_shard(two->old, name);
	size_t n, old_n = 0;
	const uint8_t *p = gw_safetensors_header(s->header, &n),
		      *old = was ? gw_safetensors_header(was->header, &old_n) : NULL;

	f->kind = GW_PATCH_SHARD;
	f->is = stored(name, p, n, old, old_n);
	f->data_bytes = s->bytes - n;
	if (!s->carried_count)
		return 0;
	f->carried = calloc(s->carried_count, sizeof *f->carried);
	if (!f->carried)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < s->carried_count; i++) {
		const struct gw_tensor *t = &s->carried[i];
		const struct gw_safetensors_tensor *row = NULL;

		old = gw_match_in_shard(was, t->name, &row);
		f->carried[f->carried_count++] = stored(t->name, t->p, t->bytes, old, row ? row->bytes : 0);
	}
	return 0;
}

static void plan_other(const struct two *two, struct gw_diff_file *f, const struct gw_other_file *o)
{
	const struct gw_other_file *old = gw_match_other(two->old, o->name);

	f->kind = GW_PATCH_OTHER;
	f->is = stored(o->name, o->p, o->bytes, old ? old->p : NULL, old ? old->bytes : 0);
}

static void plan_gone(struct gw_diff *d, const struct two *two, const char *name)
{
	if (!gw_match_shard(two->new_, name) && !gw_match_other(two->new_, name))
		d->files[d->file_count++] = (struct gw_diff_file){.is = {.name = name}, .kind = GW_PATCH_GONE};
}

static int plan_files(struct gw_diff *d, const struct two *two)
{
	const struct gw_checkpoint *sides[] = {two->new_, two->old};
	size_t max = 1;
	int err = 0;

	for (int i = 0; i < 2; i++)
		max += sides[i] ? (size_t)gw_checkpoint_shards(sides[i]) + gw_checkpoint_others(sides[i]) : 0;
	d->files = calloc(max, sizeof *d->files);
	if (!d->files)
		return GW_ENOMEM;
	for (uint32_t i = 0; !err && i < gw_checkpoint_shards(two->new_); i++)
		err = plan_shard(two, &d->files[d->file_count++], gw_checkpoint_shard(two->new_, i));
	for (uint32_t i = 0; !err && i < gw_checkpoint_others(two->new_); i++)
		plan_other(two, &d->files[d->file_count++], gw_checkpoint_other(two->new_, i));
	for (uint32_t i = 0; !err && two->old && i < gw_checkpoint_shards(two->old); i++)
		plan_gone(d, two, gw_match_shard_name(two->old, gw_checkpoint_shard(two->old, i)));
	for (uint32_t i = 0; !err && two->old && i < gw_checkpoint_others(two->old); i++)
		plan_gone(d, two, gw_checkpoint_other(two->old, i)->name);
	gw_diff_sort_files(d);
	return err;
}

int gw_diff(const struct gw_checkpoint *old, const struct gw_checkpoint *new_, struct gw_fs *fs, struct gw_pool *pool,
	    const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report, struct gw_diag *why)
{
	struct two two = {old, new_};
	const struct gw_diff_source source = {&two, two_tile, two_chunk, NULL, NULL, NULL, two_check};
	struct gw_diff d = {.source = &source, .pool = pool, .opt = opt, .anchor = !old, .why = why};
	int err = plan_rows(&d, &two);

	if (!err)
		err = plan_files(&d, &two);
	if (!err)
		err = gw_diff_run(&d, fs, path);
	if (!err && report)
		*report = d.report;
	gw_diff_free(&d);
	return err ? gw_diag_set(why, err, "cannot compare the checkpoints: %s", gw_err_text(err)) : 0;
}
