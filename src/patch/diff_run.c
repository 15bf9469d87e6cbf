/* A diff from its plan on, whatever its source: workers, sample, pass, publication. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"

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
		w->room.old = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		w->room.new_bits = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		w->body = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8 + GW_BODY_EXTRA);
		if (!w->room.old || !w->room.new_bits || !w->body)
			err = GW_ENOMEM;
	}
	return err;
}

void gw_diff_free(struct gw_diff *d)
{
	for (unsigned i = 0; d->workers && i < d->pool->width; i++) {
		struct gw_diff_worker *w = &d->workers[i];

		gw_packer_free(w->packer);
		gw_changes_buf_free(&w->changes);
		free(w->room.old);
		free(w->room.new_bits);
		free(w->body);
		for (unsigned k = 0; k < GW_PATCH_DTYPES; k++)
			gw_sample_free(w->sample[k]);
	}
	for (unsigned i = 0; i < GW_PATCH_DTYPES; i++)
		gw_model_free(d->model[i]);
	for (uint32_t i = 0; i < d->row_count; i++)
		gw_diff_cool(&d->rows[i]);
	for (uint32_t i = 0; i < d->file_count; i++)
		free(d->files[i].carried);
	free(d->workers);
	free(d->rows);
	free(d->files);
}

int gw_diff_look(struct gw_diff *d, const struct gw_diff_row *r, uint32_t tile, unsigned worker,
		 struct gw_diff_tile *out)
{
	struct gw_diff_worker *w = &d->workers[worker];
	struct gw_changes_buf *b = &w->changes;
	int err;

	gw_tiling_rect(&r->tiling, tile, &out->rect);
	out->width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	out->changes = (struct gw_tile_changes){0, b->at, b->old_bits, b->new_bits};
	out->hot = gw_hot_tile(r->hot, r->elements, &out->rect, w->hot);
	err = d->source->tile(d->source->ctx, r, tile, worker, &w->room, &out->old, &out->new_bits);
	if (!err && out->old != out->new_bits)
		out->changes.n = gw_scan_run(b, 0, out->old, out->new_bits, out->rect.rows * out->rect.cols, out->width, 0);
	return err;
}

static uint64_t pass_bytes(const struct gw_diff *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->row_count; i++) {
		const struct gw_diff_row *r = &d->rows[i];

		sum += r->new_ ? r->new_->bytes : 0;
		sum += r->old && r->kind != GW_TENSOR_CHANGED ? r->old->bytes : 0;
	}
	return sum;
}

int gw_diff_run(struct gw_diff *d, struct gw_fs *fs, const char *path)
{
	struct gw_publish out;
	int err = make_workers(d);

	gw_diff_pair(d);
	gw_progress_expect(gw_diff_watch(d), pass_bytes(d));
	if (!err)
		err = gw_publish_begin(&out, fs, path, d->opt && d->opt->replace ? GW_PUBLISH_REPLACE : 0, d->why);
	if (err)
		return err;
	err = gw_diff_learn(d);
	if (!err)
		err = gw_diff_write(d, fs, out.file);
	if (!err)
		err = d->source->check(d->source->ctx, d);
	if (err) {
		gw_publish_abort(&out);
		return err;
	}
	return gw_publish_commit(&out, d->why);
}
