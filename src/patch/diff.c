/* The first pass of a diff: which tensors and files there are, what changed in them, and the code tables. */
#include "patch/diff.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"
#include "patch/fingerprint.h"
#include "patch/match.h"
#include "weights/slicing.h"

enum {
	RUN_ELEMENTS = 512 * 1024, /* of a tensor that is only summed */
	JOBS = 1024,		   /* given to the pool at once */
};

enum job_kind { JOB_COMPARE, JOB_LEARN, JOB_SUM_OLD, JOB_SUM_NEW };

/* A tile that is compared, or a stretch that is summed. */
struct job {
	uint32_t row;
	enum job_kind kind;
	uint64_t index; /* tile, or stretch */
	uint64_t changed, print_old[2], print_new[2];
};

struct batch {
	struct gw_diff *d;
	struct job jobs[JOBS];
	size_t n;
};

static uint32_t tensors_of(const struct gw_checkpoint *c)
{
	return c ? gw_checkpoint_tensors(c) : 0;
}

static int same_shape(const struct gw_tensor *a, const struct gw_tensor *b)
{
	return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape);
}

static int fill_row(struct gw_diff *d, struct gw_diff_row *r, const struct gw_tensor *old, const struct gw_tensor *new_)
{
	const struct gw_tensor *t = new_ ? new_ : old;
	const struct gw_diff_options *o = d->opt;
	int err;

	r->old = old;
	r->new_ = new_;
	r->kind = !new_ ? GW_TENSOR_REMOVED : old && same_shape(old, new_) ? GW_TENSOR_CHANGED : GW_TENSOR_WHOLE;
	r->axis = o && o->axis ? o->axis(o->ctx, t->name, t->rank, t->shape)
			       : gw_slicing_axis(t->name, t->rank, t->shape);
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

/* Both lists of tensors rise by name: one walk along both. */
static int plan_rows(struct gw_diff *d)
{
	uint32_t a = tensors_of(d->old), b = tensors_of(d->new_), i = 0, k = 0;
	int err = 0;

	d->rows = calloc((size_t)a + b + 1, sizeof *d->rows);
	if (!d->rows)
		return GW_ENOMEM;
	while (!err && (i < a || k < b)) {
		const struct gw_tensor *old = i < a ? gw_checkpoint_tensor(d->old, i) : NULL;
		const struct gw_tensor *new_ = k < b ? gw_checkpoint_tensor(d->new_, k) : NULL;
		int order = !old ? 1 : !new_ ? -1 : strcmp(old->name, new_->name);

		err = fill_row(d, &d->rows[d->row_count++], order <= 0 ? old : NULL, order >= 0 ? new_ : NULL);
		i += order <= 0;
		k += order >= 0;
	}
	return err;
}

static int same_bytes(const uint8_t *a, uint64_t a_bytes, const uint8_t *b, uint64_t b_bytes)
{
	return a_bytes == b_bytes && !memcmp(a, b, a_bytes);
}

static void plan_shard(struct gw_diff *d, struct gw_diff_file *f, const struct gw_shard *s)
{
	size_t n, old_n = 0;
	const uint8_t *old;

	f->name = gw_match_shard_name(d->new_, s);
	f->kind = GW_PATCH_SHARD;
	f->shard = s;
	f->old_shard = gw_match_shard(d->old, f->name);
	f->p = gw_safetensors_header(s->header, &n);
	f->bytes = n;
	old = f->old_shard ? gw_safetensors_header(f->old_shard->header, &old_n) : NULL;
	f->fresh = !old || !same_bytes(old, old_n, f->p, n);
}

static void plan_other(struct gw_diff *d, struct gw_diff_file *f, const struct gw_other_file *o)
{
	const struct gw_other_file *old = gw_match_other(d->old, o->name);

	*f = (struct gw_diff_file){.name = o->name, .kind = GW_PATCH_OTHER, .p = o->p, .bytes = o->bytes};
	f->fresh = !old || !same_bytes(old->p, old->bytes, o->p, o->bytes);
}

static int by_file_name(const void *a, const void *b)
{
	return strcmp(((const struct gw_diff_file *)a)->name, ((const struct gw_diff_file *)b)->name);
}

static int is_new_name(const struct gw_diff *d, const char *name)
{
	return gw_match_shard(d->new_, name) || gw_match_other(d->new_, name);
}

static int plan_files(struct gw_diff *d)
{
	const struct gw_checkpoint *sides[] = {d->new_, d->old};
	size_t max = 1;

	for (int i = 0; i < 2; i++)
		max += sides[i] ? (size_t)gw_checkpoint_shards(sides[i]) + gw_checkpoint_others(sides[i]) : 0;
	d->files = calloc(max, sizeof *d->files);
	if (!d->files)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < gw_checkpoint_shards(d->new_); i++)
		plan_shard(d, &d->files[d->file_count++], gw_checkpoint_shard(d->new_, i));
	for (uint32_t i = 0; i < gw_checkpoint_others(d->new_); i++)
		plan_other(d, &d->files[d->file_count++], gw_checkpoint_other(d->new_, i));
	for (uint32_t i = 0; d->old && i < gw_checkpoint_shards(d->old); i++) {
		const char *name = gw_match_shard_name(d->old, gw_checkpoint_shard(d->old, i));

		if (!is_new_name(d, name))
			d->files[d->file_count++] = (struct gw_diff_file){.name = name, .kind = GW_PATCH_GONE};
	}
	for (uint32_t i = 0; d->old && i < gw_checkpoint_others(d->old); i++) {
		const char *name = gw_checkpoint_other(d->old, i)->name;

		if (!is_new_name(d, name))
			d->files[d->file_count++] = (struct gw_diff_file){.name = name, .kind = GW_PATCH_GONE};
	}
	qsort(d->files, d->file_count, sizeof *d->files, by_file_name);
	return 0;
}

static int make_workers(struct gw_diff *d)
{
	int err = 0;

	d->workers = calloc(d->pool->width, sizeof *d->workers);
	if (!d->workers)
		return GW_ENOMEM;
	for (unsigned i = 0; !err && i < d->pool->width; i++) {
		struct gw_diff_worker *w = &d->workers[i];

		err = gw_packer_new(&w->packer);
		if (!err)
			err = gw_changes_buf_init(&w->changes);
		w->old = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		w->new_ = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		if (!w->old || !w->new_)
			err = GW_ENOMEM;
	}
	return err;
}

static void free_diff(struct gw_diff *d)
{
	for (unsigned i = 0; d->workers && i < d->pool->width; i++) {
		gw_packer_free(d->workers[i].packer);
		gw_changes_buf_free(&d->workers[i].changes);
		free(d->workers[i].old);
		free(d->workers[i].new_);
		for (unsigned k = 0; k < GW_PATCH_DTYPES; k++)
			gw_sample_free(d->workers[i].sample[k]);
	}
	for (unsigned i = 0; i < GW_PATCH_DTYPES; i++)
		gw_model_free(d->model[i]);
	free(d->workers);
	free(d->rows);
	free(d->files);
}

/* Moves the sums of a tile from old to new bits. */
static void update_print(uint64_t lane[2], unsigned width, const struct gw_tile_rect *r,
			 const struct gw_tile_changes *c)
{
	enum { STEP = 512 };
	uint64_t index[STEP];

	for (size_t i = 0; i < c->n; i += STEP) {
		size_t n = c->n - i < STEP ? c->n - i : STEP;

		for (size_t k = 0; k < n; k++)
			index[k] =
				(r->row0 + c->at[i + k] / r->cols) * r->tensor_cols + r->col0 + c->at[i + k] % r->cols;
		gw_print_update(lane, width, index, c->old_bits + i * width, c->new_bits + i * width, n);
	}
}

static int sample_of(struct gw_diff_worker *w, unsigned dtype, struct gw_sample **out)
{
	int err = w->sample[dtype] ? 0 : gw_sample_new(&w->sample[dtype], (enum gw_dtype)dtype);

	*out = w->sample[dtype];
	return err;
}

static int learn_tile(struct gw_diff *d, const struct job *j, struct gw_diff_worker *w)
{
	const struct gw_diff_row *r = &d->rows[j->row];
	unsigned width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	struct gw_tile_changes c;
	struct gw_tile_rect t;
	struct gw_sample *s;
	int err = sample_of(w, r->new_->dtype, &s);

	if (err)
		return err;
	gw_tiling_rect(&r->tiling, (uint32_t)j->index, &t);
	gw_scan_tile(&w->changes, r->old->p, r->new_->p, width, &t, &c);
	gw_model_learn(gw_packer_coder(w->packer), s, gw_tile_gather(r->old->p, width, &t, w->old),
		       (uint32_t)(t.rows * t.cols), &c);
	return 0;
}

static int compare_tile(struct gw_diff *d, struct job *j, struct gw_diff_worker *w)
{
	const struct gw_diff_row *r = &d->rows[j->row];
	unsigned width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	struct gw_print_window window;
	struct gw_tile_changes c;
	struct gw_tile_rect t;
	struct gw_sample *s;
	int err = sample_of(w, r->new_->dtype, &s);

	if (err)
		return err;
	gw_tiling_rect(&r->tiling, (uint32_t)j->index, &t);
	window = (struct gw_print_window){
		.width = width,
		.rows = t.rows,
		.cols = t.cols,
		.row_pitch = t.tensor_cols * width,
		.col_pitch = width,
		.first = t.row0 * t.tensor_cols + t.col0,
		.tensor_cols = t.tensor_cols,
	};
	gw_print_window(j->print_old, &window, r->old->p + window.first * width);
	gw_scan_tile(&w->changes, r->old->p, r->new_->p, width, &t, &c);
	memcpy(j->print_new, j->print_old, sizeof j->print_new);
	update_print(j->print_new, width, &t, &c);
	j->changed = c.n;
	gw_model_see(s, gw_tile_gather(r->old->p, width, &t, w->old), (uint32_t)(t.rows * t.cols), &c);
	return 0;
}

static int do_job(void *arg, size_t i, unsigned worker)
{
	struct batch *b = arg;
	struct job *j = &b->jobs[i];
	const struct gw_diff_row *r = &b->d->rows[j->row];
	const struct gw_tensor *t = j->kind == JOB_SUM_OLD ? r->old : r->new_;
	unsigned width = gw_dtype_width((enum gw_dtype)t->dtype);
	uint64_t first = j->index * RUN_ELEMENTS;

	if (j->kind == JOB_COMPARE)
		return compare_tile(b->d, j, &b->d->workers[worker]);
	if (j->kind == JOB_LEARN)
		return learn_tile(b->d, j, &b->d->workers[worker]);
	gw_print_run(j->kind == JOB_SUM_OLD ? j->print_old : j->print_new, width, first, t->p + first * width,
		     gw_min_u64(RUN_ELEMENTS, t->bytes / width - first));
	return 0;
}

static int run_batch(struct batch *b)
{
	int err = b->d->pool->run(b->d->pool, b->n, do_job, b);

	for (size_t i = 0; !err && i < b->n; i++) {
		const struct job *j = &b->jobs[i];
		struct gw_diff_row *r = &b->d->rows[j->row];

		r->changed += j->changed;
		for (int k = 0; k < 2; k++) {
			r->print_old[k] += j->print_old[k];
			r->print_new[k] += j->print_new[k];
		}
	}
	b->n = 0;
	return err;
}

static int add_jobs(struct batch *b, uint32_t row, enum job_kind kind, uint64_t count)
{
	int err = 0;

	for (uint64_t i = 0; !err && i < count; i++) {
		b->jobs[b->n++] = (struct job){.row = row, .kind = kind, .index = i};
		if (b->n == JOBS)
			err = run_batch(b);
	}
	return err;
}

static uint64_t stretches(const struct gw_tensor *t)
{
	return t ? gw_div_up(t->bytes / gw_dtype_width((enum gw_dtype)t->dtype), RUN_ELEMENTS) : 0;
}

static int measure(struct gw_diff *d)
{
	struct batch *b = malloc(sizeof *b);
	int err = 0;

	if (!b)
		return GW_ENOMEM;
	b->d = d;
	b->n = 0;
	for (uint32_t i = 0; !err && i < d->row_count; i++) {
		const struct gw_diff_row *r = &d->rows[i];

		if (r->kind == GW_TENSOR_CHANGED) {
			err = add_jobs(b, i, JOB_COMPARE, r->tiling.count);
			continue;
		}
		err = add_jobs(b, i, JOB_SUM_OLD, stretches(r->old));
		if (!err)
			err = add_jobs(b, i, JOB_SUM_NEW, stretches(r->new_));
	}
	if (!err)
		err = run_batch(b);
	free(b);
	return err;
}

static void add_print(uint64_t model[2], const struct gw_tensor *t, const uint64_t lane[2])
{
	if (t)
		gw_model_print_add(model, t->name, gw_dtype_name((enum gw_dtype)t->dtype), t->rank, t->shape, lane);
}

static void sum_up(struct gw_diff *d)
{
	struct gw_diff_report *p = &d->report;

	for (uint32_t i = 0; i < d->row_count; i++) {
		const struct gw_diff_row *r = &d->rows[i];

		add_print(p->from_print, r->old, r->print_old);
		add_print(p->to_print, r->new_, r->print_new);
		p->changed += r->changed;
		p->tensors_changed += r->kind == GW_TENSOR_CHANGED && r->changed;
		p->tensors_whole += r->kind == GW_TENSOR_WHOLE;
		p->tensors_removed += r->kind == GW_TENSOR_REMOVED;
	}
}

/* What all workers counted of a dtype, in the first one's sample; NULL where there is none. */
static int sum_samples(struct gw_diff *d, unsigned dtype, struct gw_sample **out)
{
	struct gw_sample *sum = NULL;
	int err = 0;

	for (unsigned i = 0; !err && i < d->pool->width; i++) {
		struct gw_sample *s = d->workers[i].sample[dtype];

		if (!s)
			continue;
		if (i) {
			err = sample_of(&d->workers[0], dtype, &sum);
			if (!err)
				gw_sample_add(sum, s);
		} else {
			sum = s;
		}
	}
	*out = sum;
	return err;
}

static int plan_models(struct gw_diff *d)
{
	int err = 0;

	for (unsigned dtype = 0; !err && dtype < GW_PATCH_DTYPES; dtype++) {
		struct gw_sample *sum, *s;

		err = sum_samples(d, dtype, &sum);
		if (err || !sum)
			continue;
		gw_model_plan(sum);
		for (unsigned i = 1; !err && i < d->pool->width; i++) {
			err = sample_of(&d->workers[i], dtype, &s);
			if (!err)
				gw_sample_take_plan(s, sum);
		}
	}
	return err;
}

static int make_models(struct gw_diff *d)
{
	struct batch *b = malloc(sizeof *b);
	int err = b ? plan_models(d) : GW_ENOMEM;

	if (!err) {
		b->d = d;
		b->n = 0;
	}
	for (uint32_t i = 0; !err && i < d->row_count; i++)
		if (d->rows[i].kind == GW_TENSOR_CHANGED && d->rows[i].changed)
			err = add_jobs(b, i, JOB_LEARN, d->rows[i].tiling.count);
	if (!err)
		err = run_batch(b);
	free(b);
	for (unsigned dtype = 0; !err && dtype < GW_PATCH_DTYPES; dtype++) {
		struct gw_sample *sum;

		err = sum_samples(d, dtype, &sum);
		if (!err && sum)
			err = gw_model_make(&d->model[dtype], sum);
	}
	return err;
}

static int write_out(struct gw_diff *d, struct gw_fs *fs, const char *path)
{
	struct gw_publish out;
	int err = gw_publish_begin(&out, fs, path, d->opt && d->opt->replace ? GW_PUBLISH_REPLACE : 0, d->why);

	if (err)
		return err;
	err = gw_diff_write(d, fs, out.file);
	/* What shrank meanwhile has been read as zeros. */
	if (!err && d->old)
		err = gw_checkpoint_check(d->old, d->why);
	if (!err)
		err = gw_checkpoint_check(d->new_, d->why);
	if (err) {
		gw_publish_abort(&out);
		return gw_diag_set(d->why, err, "cannot write %s: %s", path, gw_err_text(err));
	}
	return gw_publish_commit(&out, d->why);
}

int gw_diff(const struct gw_checkpoint *old, const struct gw_checkpoint *new_, struct gw_fs *fs, struct gw_pool *pool,
	    const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report, struct gw_diag *why)
{
	struct gw_diff d = {.old = old, .new_ = new_, .pool = pool, .opt = opt, .why = why};
	int err = plan_rows(&d);

	if (!err)
		err = plan_files(&d);
	if (!err)
		err = make_workers(&d);
	if (!err)
		err = measure(&d);
	if (!err) {
		sum_up(&d);
		err = make_models(&d);
	}
	if (!err)
		err = write_out(&d, fs, path);
	if (!err && report)
		*report = d.report;
	free_diff(&d);
	return err ? gw_diag_set(why, err, "cannot compare the checkpoints: %s", gw_err_text(err)) : 0;
}
