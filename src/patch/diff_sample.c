/*
 * The models of a patch, learned from a sample of its tiles before the pass that codes them all. Which tiles are in the
 * sample depends on the tensors alone: all of a dtype that has up to SAMPLE_ELEMENTS, else a share of them down to one in
 * STRIDE_MAX, spread evenly by the golden ratio (so that no slicing of tensors falls into step with the choice). Where
 * that shows fewer than CHANGES_MIN changes of a dtype, as when one tensor alone has changed, all its tiles are looked at.
 * Each tile of the sample is seen, and when all are, learned from: patch/coder.h.
 */
#include <stdlib.h>

#include "base/err.h"
#include "patch/diff_inside.h"

enum {
	SAMPLE_ELEMENTS = 64 * GW_TILE_ELEMENTS_MAX,
	STRIDE_MAX = 16,
	CHANGES_MIN = 4096,
	JOBS = 1024, /* given to the pool at once */
};

/* How the tiles of one dtype are chosen. */
struct choice {
	uint32_t limit; /* a tile is in the share where its scattered number is below */
	int rest;       /* and the others too */
	uint64_t changes;
};

struct job {
	uint32_t row, tile;
	uint64_t bytes, changes;
};

struct sampling {
	struct gw_diff *d;
	struct choice of[GW_PATCH_DTYPES];
	enum { SEE, SEE_REST, LEARN } round;
	struct job jobs[JOBS];
	size_t n;
	uint32_t current; /* the row at hand: UINT32_MAX when none is */
};

static int is_wanted(const struct sampling *s, const struct choice *c, uint32_t number)
{
	int in_share = c->limit == UINT32_MAX || number * 0x9e3779b9u < c->limit;

	switch (s->round) {
	case SEE:
		return in_share;
	case SEE_REST:
		return c->rest && !in_share;
	default:
		return c->rest || in_share;
	}
}

static int sample_of(struct gw_diff_worker *w, unsigned dtype, struct gw_sample **out)
{
	int err = w->sample[dtype] ? 0 : gw_sample_new(&w->sample[dtype], (enum gw_dtype)dtype);

	*out = w->sample[dtype];
	return err;
}

static int look(void *arg, size_t i, unsigned worker)
{
	struct sampling *s = arg;
	struct gw_diff_worker *w = &s->d->workers[worker];
	const struct gw_diff_row *r = &s->d->rows[s->jobs[i].row];
	struct gw_sample *sample;
	struct gw_diff_tile t;
	uint32_t elements;
	int err = gw_diff_look(s->d, r, s->jobs[i].tile, worker, &t);

	if (!err)
		err = sample_of(w, r->new_->dtype, &sample);
	if (err)
		return err;
	elements = (uint32_t)(t.rect.rows * t.rect.cols);
	if (s->round == LEARN)
		gw_model_learn(gw_packer_coder(w->packer), sample, t.old, elements, t.hot, &t.changes);
	else
		gw_model_see(sample, t.old, elements, t.hot, &t.changes);
	s->jobs[i].changes = t.changes.n;
	return 0;
}

static int flush(struct sampling *s)
{
	struct gw_diff *d = s->d;
	int err = d->pool->run(d->pool, s->n, look, s);

	for (size_t i = 0; i < s->n; i++)
		if (s->jobs[i].row != s->current)
			gw_diff_cool(&d->rows[s->jobs[i].row]);
	for (size_t i = 0; !err && i < s->n; i++) {
		s->of[d->rows[s->jobs[i].row].new_->dtype].changes += s->jobs[i].changes;
		if (s->round == SEE_REST)
			gw_progress_expect(gw_diff_watch(d), 2 * s->jobs[i].bytes);
		gw_progress_add(gw_diff_watch(d), s->jobs[i].bytes);
	}
	s->n = 0;
	return err;
}

static int add(struct sampling *s, uint32_t row, uint32_t tile)
{
	const struct gw_diff_row *r = &s->d->rows[row];
	struct gw_tile_rect t;

	gw_tiling_rect(&r->tiling, tile, &t);
	s->jobs[s->n++] = (struct job){
		.row = row, .tile = tile, .bytes = t.rows * t.cols * gw_dtype_width((enum gw_dtype)r->new_->dtype)};
	return s->n == JOBS ? flush(s) : 0;
}

/* The row's tiles that are wanted; number: of its first tile within the dtype. */
static int add_row(struct sampling *s, uint32_t row, uint32_t number)
{
	struct gw_diff_row *r = &s->d->rows[row];
	const struct gw_diff_source *src = s->d->source;
	const struct choice *c = &s->of[r->new_->dtype];
	int err = 0, open = 0;

	for (uint32_t i = 0; !err && i < r->tiling.count; i++) {
		if (!is_wanted(s, c, number + i))
			continue;
		if (!open && !r->heated && (r->alone || (r->companion && r->companion->alone)))
			err = flush(s);
		if (!err && !open)
			err = gw_diff_heat(s->d, r);
		if (!err && r->alone && !open) {
			err = src->open(src->ctx, r);
			open = !err;
		}
		if (!err)
			err = add(s, row, i);
	}
	if (open) {
		err = err ? err : flush(s);
		src->close(src->ctx, r);
	}
	return err;
}

static int look_at_all(struct sampling *s)
{
	uint32_t number[GW_PATCH_DTYPES] = {0};
	int err = 0;

	for (uint32_t i = 0; !err && i < s->d->row_count; i++) {
		const struct gw_diff_row *r = &s->d->rows[i];

		if (r->kind != GW_TENSOR_CHANGED)
			continue;
		s->current = i;
		err = add_row(s, i, number[r->new_->dtype]);
		number[r->new_->dtype] += r->tiling.count;
	}
	s->current = UINT32_MAX;
	return err ? err : flush(s);
}

/* What all workers counted of a dtype, in the first one's sample; NULL where there is none. */
static int sum_samples(struct gw_diff *d, unsigned dtype, struct gw_sample **out)
{
	int err = 0;

	*out = d->workers[0].sample[dtype];
	for (unsigned i = 1; !err && i < d->pool->width; i++) {
		if (!d->workers[i].sample[dtype])
			continue;
		err = sample_of(&d->workers[0], dtype, out);
		if (!err)
			gw_sample_add(*out, d->workers[i].sample[dtype]);
	}
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
	int err = 0;

	for (unsigned dtype = 0; !err && dtype < GW_PATCH_DTYPES; dtype++) {
		struct gw_sample *sum;

		err = sum_samples(d, dtype, &sum);
		if (!err && sum)
			err = gw_model_make(&d->model[dtype], sum);
	}
	return err;
}

static void choose(struct sampling *s)
{
	uint64_t elements[GW_PATCH_DTYPES] = {0};

	for (uint32_t i = 0; i < s->d->row_count; i++)
		if (s->d->rows[i].kind == GW_TENSOR_CHANGED)
			elements[s->d->rows[i].new_->dtype] += s->d->rows[i].elements;
	for (unsigned k = 0; k < GW_PATCH_DTYPES; k++) {
		uint64_t stride = gw_min_u64(STRIDE_MAX, elements[k] / SAMPLE_ELEMENTS);

		s->of[k].limit = stride > 1 ? UINT32_MAX / (uint32_t)stride : UINT32_MAX;
		gw_progress_expect(gw_diff_watch(s->d),
				   2 * elements[k] * gw_dtype_width((enum gw_dtype)k) / (stride ? stride : 1));
	}
}

int gw_diff_learn(struct gw_diff *d)
{
	struct sampling *s = calloc(1, sizeof *s);
	int err;

	if (!s)
		return GW_ENOMEM;
	s->d = d;
	choose(s);
	err = look_at_all(s);
	s->round = SEE_REST;
	for (unsigned k = 0; k < GW_PATCH_DTYPES; k++)
		s->of[k].rest = s->of[k].changes < CHANGES_MIN && s->of[k].limit != UINT32_MAX;
	if (!err)
		err = look_at_all(s);
	if (!err)
		err = plan_models(d);
	s->round = LEARN;
	if (!err)
		err = look_at_all(s);
	if (!err)
		err = make_models(d);
	free(s);
	return err;
}
