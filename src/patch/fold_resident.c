/* A patch from resident bits and undo lists: old bits are the resident ones, overlaid with what the steps overwrote. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"
#include "patch/element.h"
#include "patch/fold.h"

/* The first of v's places that is not below `at`. */
static uint64_t lower_bound(const struct gw_undo *v, uint64_t at)
{
	uint64_t lo = 0, hi = v->n;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (v->at[mid] < at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Puts the old bits of a step that lie in the rectangle over `bits`, which may be NULL: then only counts them. */
static uint64_t overlay(const struct gw_undo *v, const struct gw_tile_rect *r, unsigned width, uint8_t *bits)
{
	int joined = r->rows == 1 || r->cols == r->tensor_cols;
	uint64_t rows = joined ? 1 : r->rows, cols = joined ? r->rows * r->cols : r->cols, found = 0;

	for (uint64_t row = 0; row < rows; row++) {
		uint64_t first = (r->row0 + row) * r->tensor_cols + r->col0;

		for (uint64_t i = lower_bound(v, first); i < v->n && v->at[i] < first + cols; i++, found++)
			if (bits)
				gw_element_store(bits + (row * cols + v->at[i] - first) * width, width,
						 gw_element_load(v->old_bits + i * width, width));
	}
	return found;
}

static int resident_tile(void *ctx, const struct gw_diff_row *row, uint32_t tile, unsigned worker,
			 struct gw_diff_room *room, const uint8_t **old, const uint8_t **new_bits)
{
	const struct gw_resident *rs = ctx;
	unsigned width = gw_dtype_width((enum gw_dtype)row->new_->dtype);
	struct gw_tile_rect r;
	uint64_t found = 0;
	int err;

	gw_tiling_rect(&row->tiling, tile, &r);
	err = rs->read(rs->ctx, row->item, &r, worker, room->new_bits);
	*old = *new_bits = room->new_bits;
	if (err)
		return err;
	/* From the newest step back: what the oldest overwrote stays on top. */
	for (uint32_t step = rs->steps; step-- > 0;) {
		const struct gw_undo v = rs->undo(rs->ctx, row->item, step);

		if (!found && overlay(&v, &r, width, NULL)) {
			memcpy(room->old, room->new_bits, r.rows * r.cols * width);
			*old = room->old;
			found = 1;
		}
		if (found)
			(void)overlay(&v, &r, width, room->old);
	}
	return 0;
}

static int resident_check(void *ctx, struct gw_diff *d)
{
	const struct gw_resident *rs = ctx;

	if (memcmp(d->report.to_print, rs->to_print, sizeof rs->to_print))
		return gw_diag_set(d->why, GW_EFINGERPRINT, "the resident bits are not those of the newest version");
	if (memcmp(d->report.from_print, rs->from_print, sizeof rs->from_print))
		return gw_diag_set(d->why, GW_EBASE, "the undo lists do not lead back to the old version");
	return 0;
}

static struct gw_diff_stored stored(const struct gw_fold_file *f)
{
	struct gw_diff_stored s = {.name = f->name, .bytes = f->bytes, .fresh = f->fresh, .p = f->p};

	memcpy(s.digest, f->digest, sizeof s.digest);
	return s;
}

static int plan_files(struct gw_diff *d, const struct gw_resident *rs)
{
	d->files = calloc((size_t)rs->file_count + 1, sizeof *d->files);
	if (!d->files)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < rs->file_count; i++) {
		const struct gw_fold_file *f = &rs->files[i];
		struct gw_diff_file *to = &d->files[d->file_count++];

		*to = (struct gw_diff_file){.is = stored(f), .kind = f->kind, .data_bytes = f->data_bytes};
		if (!f->carried_count)
			continue;
		to->carried = calloc(f->carried_count, sizeof *to->carried);
		if (!to->carried)
			return GW_ENOMEM;
		for (uint32_t k = 0; k < f->carried_count; k++)
			to->carried[to->carried_count++] = stored(&f->carried[k]);
	}
	gw_diff_sort_files(d);
	return 0;
}

static int plan_rows(struct gw_diff *d, const struct gw_resident *rs)
{
	int err = 0;

	d->rows = calloc((size_t)rs->count + 1, sizeof *d->rows);
	if (!d->rows)
		return GW_ENOMEM;
	for (uint32_t i = 0; !err && i < rs->count; i++) {
		const struct gw_tensor *t = &rs->tensors[i];

		d->rows[i].item = i;
		err = gw_diff_plan_row(d, &d->rows[d->row_count++], t, t, gw_diff_axis(d, t));
	}
	return err;
}

int gw_fold_resident(const struct gw_resident *rs, struct gw_fs *fs, struct gw_pool *pool,
		     const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report,
		     struct gw_diag *why)
{
	/* The source does not write through it. */
	const struct gw_diff_source source = {(void *)(uintptr_t)rs, resident_tile, NULL, NULL, NULL, NULL, resident_check};
	struct gw_diff d = {.source = &source, .pool = pool, .opt = opt, .why = why};
	int err = plan_rows(&d, rs);

	if (!err)
		err = plan_files(&d, rs);
	if (!err)
		err = gw_diff_run(&d, fs, path);
	if (!err && report)
		*report = d.report;
	gw_diff_free(&d);
	return err ? gw_diag_set(why, err, "cannot make a patch from resident bits: %s", gw_err_text(err)) : 0;
}
