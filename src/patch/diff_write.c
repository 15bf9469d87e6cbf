/*
 * The pass of a diff: each tile is compared, summed and coded at once, in slots that are worked on side by side. They are
 * taken in order: bodies go to the file, and the rows of the tables grow in memory, since a row holds what came of all
 * its tiles. Slots hold tiles of as many tensors as it takes to fill them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"
#include "patch/fingerprint.h"

enum {
	SLOTS_PER_WORKER = 16,
	BATCH_PER_WORKER = 4 * 1024 * 1024, /* bytes of bodies that slots may come to hold, as a rule */
	RUN_ELEMENTS = 512 * 1024,          /* of a tensor that is only summed */
	PENDING = 256 * 1024,               /* bytes of bodies that go to the file together */
};

enum slot_kind {
	SLOT_TILE,
	SLOT_CHUNK,   /* of a whole tensor */
	SLOT_SUM_OLD, /* a stretch of a tensor that goes */
	SLOT_BYTES,   /* a chunk of a file */
	SLOT_NOTHING, /* of a row without any of these */
};

/* A piece of work, and what came of it. */
struct slot {
	enum slot_kind kind;
	int ends_row;
	struct gw_diff_row *row;
	uint64_t index; /* tile, chunk, stretch */
	const uint8_t *p; /* BYTES */
	uint64_t raw;     /* bytes gone through */
	uint8_t *body;
	size_t size, cap;
	uint64_t changed, print_old[2], print_new[2];
};

struct writing {
	struct gw_diff *d;
	struct gw_fs *fs;
	struct gw_file *file;
	uint64_t at;      /* where the next body goes */
	uint64_t written; /* where what is pending goes */
	uint8_t *pending;
	size_t pending_bytes;
	struct gw_wr table, lengths; /* lengths: of the row that is being made */
	struct gw_wr *into;          /* where lengths of bodies go */
	const char *last;            /* name of the row before */
	uint32_t tensors;
	struct slot *slots;
	size_t slot_count, used;
	uint64_t held; /* bytes that the used slots may come to hold */
};

/* --- on the workers ----------------------------------------------------------------------------- */

/* Moves the sums of a tile from old to new bits. */
static void update_print(uint64_t lane[2], unsigned width, const struct gw_tile_rect *r,
			 const struct gw_tile_changes *c)
{
	enum { STEP = 512 };
	uint64_t index[STEP];

	for (size_t i = 0; i < c->n; i += STEP) {
		size_t n = c->n - i < STEP ? c->n - i : STEP;

		for (size_t k = 0; k < n; k++)
			index[k] = gw_tile_element(r, c->at[i + k]);
		gw_print_update(lane, width, index, c->old_bits + i * width, c->new_bits + i * width, n);
	}
}

static void sum_tile(struct slot *s, const struct gw_diff_tile *t)
{
	const struct gw_print_window window = {
		.width = t->width,
		.rows = t->rect.rows,
		.cols = t->rect.cols,
		.row_pitch = t->rect.cols * t->width,
		.col_pitch = t->width,
		.first = t->rect.row0 * t->rect.tensor_cols + t->rect.col0,
		.tensor_cols = t->rect.tensor_cols,
	};

	gw_print_window(s->print_old, &window, t->old);
	memcpy(s->print_new, s->print_old, sizeof s->print_new);
	update_print(s->print_new, t->width, &t->rect, &t->changes);
}

static int do_tile(struct gw_diff *d, struct slot *s, unsigned worker)
{
	struct gw_diff_worker *w = &d->workers[worker];
	struct gw_diff_tile t;
	int err = gw_diff_look(d, s->row, (uint32_t)s->index, worker, &t);

	if (err)
		return err;
	sum_tile(s, &t);
	s->changed = t.changes.n;
	if (!t.changes.n)
		return 0;
	return gw_body_pack_tile(w->packer, d->model[s->row->new_->dtype], &t.changes, t.old, t.new_bits, t.hot,
				 t.rect.rows * t.rect.cols * t.width, t.width, w->body, &s->size);
}

static int do_chunk(struct gw_diff *d, struct slot *s, unsigned worker)
{
	struct gw_diff_worker *w = &d->workers[worker];
	unsigned width = gw_dtype_width((enum gw_dtype)s->row->new_->dtype);
	uint64_t at = s->index * GW_PATCH_CHUNK;
	const uint8_t *p;
	int err = d->source->chunk(d->source->ctx, s->row, at, s->raw, worker, &w->room, &p);

	if (err)
		return err;
	gw_print_run(s->print_new, width, at / width, p, s->raw / width);
	return gw_body_pack(w->packer, p, s->raw, width, w->body, &s->size);
}

static void sum_old(struct slot *s)
{
	const struct gw_tensor *t = s->row->old;
	unsigned width = gw_dtype_width((enum gw_dtype)t->dtype);
	uint64_t first = s->index * RUN_ELEMENTS;

	gw_print_run(s->print_old, width, first, t->p + first * width, s->raw / width);
}

/* The body was made in the worker's room: the slot keeps as much as it is. */
static int keep_body(struct slot *s, const uint8_t *body)
{
	if (s->size > s->cap || s->cap > 2 * s->size + 4096) {
		free(s->body);
		s->cap = s->size;
		s->body = s->size ? malloc(s->size) : NULL;
		if (s->size && !s->body) {
			s->cap = 0;
			return GW_ENOMEM;
		}
	}
	if (s->size)
		memcpy(s->body, body, s->size);
	return 0;
}

static int do_slot(void *arg, size_t i, unsigned worker)
{
	struct writing *w = arg;
	struct slot *s = &w->slots[i];
	struct gw_diff_worker *k = &w->d->workers[worker];
	int err = 0;

	switch (s->kind) {
	case SLOT_TILE:
		err = do_tile(w->d, s, worker);
		break;
	case SLOT_CHUNK:
		err = do_chunk(w->d, s, worker);
		break;
	case SLOT_SUM_OLD:
		sum_old(s);
		break;
	case SLOT_BYTES:
		err = gw_body_pack(k->packer, s->p, s->raw, 1, k->body, &s->size);
		break;
	case SLOT_NOTHING:
		break;
	}
	return err ? err : keep_body(s, k->body);
}

/* --- in order ----------------------------------------------------------------------------------- */

static int write_at(struct writing *w, const void *p, size_t n, uint64_t at)
{
	int err = n ? gw_fs_pwrite(w->fs, w->file, p, n, at) : 0;

	return err ? gw_diag_set(w->d->why, err, "cannot write the patch: %s", gw_err_text(err)) : 0;
}

static int write_pending(struct writing *w)
{
	int err = write_at(w, w->pending, w->pending_bytes, w->written);

	w->written += w->pending_bytes;
	w->pending_bytes = 0;
	return err;
}

static int put_body(struct writing *w, const uint8_t *p, size_t n)
{
	int err = n > PENDING - w->pending_bytes ? write_pending(w) : 0;

	w->at += n;
	if (err)
		return err;
	if (n > PENDING) {
		err = write_at(w, p, n, w->written);
		w->written += n;
		return err;
	}
	if (n)
		memcpy(w->pending + w->pending_bytes, p, n);
	w->pending_bytes += n;
	return 0;
}

static void put_name(struct gw_wr *w, const char *last, const char *name)
{
	size_t shared = 0, n = strlen(name);

	while (last && last[shared] && last[shared] == name[shared])
		shared++;
	gw_wr_varint(w, shared);
	gw_wr_varint(w, n - shared);
	gw_wr_bytes(w, name + shared, n - shared);
}

static void put_print(struct gw_wr *w, const uint64_t lane[2])
{
	gw_wr_u64(w, lane[0]);
	gw_wr_u64(w, lane[1]);
}

static void add_print(uint64_t model[2], const struct gw_tensor *t, const uint64_t lane[2])
{
	if (t)
		gw_model_print_add(model, t->name, gw_dtype_name((enum gw_dtype)t->dtype), t->rank, t->shape, lane);
}


static void write_row(struct writing *w, const struct gw_diff_row *r)
{
	const struct gw_tensor *t = r->new_ ? r->new_ : r->old;

	put_name(&w->table, w->last, t->name);
	w->last = t->name;
	w->tensors++;
	gw_wr_u8(&w->table, (uint8_t)(r->kind | (r->hot ? r->rule << 4 : 0)));
	gw_wr_u8(&w->table, t->dtype);
	gw_wr_u8(&w->table, t->rank);
	gw_wr_u8(&w->table, (uint8_t)r->axis);
	for (unsigned i = 0; i < t->rank; i++)
		gw_wr_varint(&w->table, t->shape[i]);
	if (r->kind != GW_TENSOR_WHOLE)
		put_print(&w->table, r->print_old);
	if (r->kind != GW_TENSOR_REMOVED)
		put_print(&w->table, r->print_new);
	if (r->kind == GW_TENSOR_CHANGED)
		gw_wr_varint(&w->table, r->changed);
	gw_wr_bytes(&w->table, w->lengths.p, w->lengths.n);
}

static void end_row(struct writing *w, struct gw_diff_row *r)
{
	struct gw_diff_report *p = &w->d->report;

	add_print(p->from_print, r->old, r->print_old);
	add_print(p->to_print, r->new_, r->print_new);
	p->changed += r->changed;
	p->tensors_changed += r->kind == GW_TENSOR_CHANGED && r->changed;
	p->tensors_whole += r->kind == GW_TENSOR_WHOLE;
	p->tensors_removed += r->kind == GW_TENSOR_REMOVED;
	if (r->kind != GW_TENSOR_CHANGED || r->changed)
		write_row(w, r);
	gw_diff_cool(r);
	w->lengths.n = 0;
}

static int take_slot(struct writing *w, struct slot *s)
{
	struct gw_diff_row *r = s->row;
	int err = 0;

	if (s->kind == SLOT_TILE || s->kind == SLOT_CHUNK || s->kind == SLOT_BYTES) {
		gw_wr_varint(w->into, s->size);
		err = put_body(w, s->body, s->size);
	}
	if (r) {
		r->changed += s->changed;
		for (int k = 0; k < 2; k++) {
			r->print_old[k] += s->print_old[k];
			r->print_new[k] += s->print_new[k];
		}
	}
	if (!err && s->ends_row)
		end_row(w, r);
	return err;
}

/* Works on what is in the slots, and takes it. */
static int flush(struct writing *w)
{
	uint64_t raw = 0;
	int err = w->d->pool->run(w->d->pool, w->used, do_slot, w);

	for (size_t i = 0; !err && i < w->used; i++) {
		raw += w->slots[i].kind == SLOT_BYTES ? 0 : w->slots[i].raw;
		err = take_slot(w, &w->slots[i]);
	}
	w->used = 0;
	w->held = 0;
	if (!err)
		gw_progress_add(gw_diff_watch(w->d), raw);
	return err;
}

static int add(struct writing *w, struct slot what)
{
	struct slot *s = &w->slots[w->used++];

	what.body = s->body;
	what.cap = s->cap;
	*s = what;
	/* Bodies of changed tiles are short, unless everything changed. */
	w->held += what.kind == SLOT_TILE ? what.raw / 4 : what.kind == SLOT_SUM_OLD ? 0 : what.raw;
	return w->used == w->slot_count || w->held >= (uint64_t)BATCH_PER_WORKER * w->d->pool->width ? flush(w) : 0;
}

/* --- rows --------------------------------------------------------------------------------------- */

static int add_tiles(struct writing *w, struct gw_diff_row *r)
{
	unsigned width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	int err = 0;

	for (uint32_t i = 0; !err && i < r->tiling.count; i++) {
		struct gw_tile_rect t;

		gw_tiling_rect(&r->tiling, i, &t);
		err = add(w, (struct slot){.kind = SLOT_TILE,
					   .row = r,
					   .index = i,
					   .raw = t.rows * t.cols * width,
					   .ends_row = i + 1 == r->tiling.count});
	}
	return err;
}

/* The old bits of a tensor that goes, the new ones of one that comes. */
static int add_stretches(struct writing *w, struct gw_diff_row *r)
{
	uint64_t run = r->old ? (uint64_t)RUN_ELEMENTS * gw_dtype_width((enum gw_dtype)r->old->dtype) : 1;
	uint64_t olds = r->old ? gw_div_up(r->old->bytes, run) : 0, news = r->new_ ? gw_patch_chunks(r->new_->bytes) : 0;
	int err = 0;

	for (uint64_t i = 0; !err && i < olds; i++)
		err = add(w, (struct slot){.kind = SLOT_SUM_OLD,
					   .row = r,
					   .index = i,
					   .raw = gw_min_u64(run, r->old->bytes - i * run),
					   .ends_row = i + 1 == olds && !news});
	for (uint64_t i = 0; !err && i < news; i++)
		err = add(w, (struct slot){.kind = SLOT_CHUNK,
					   .row = r,
					   .index = i,
					   .raw = gw_patch_chunk_bytes(r->new_->bytes, i),
					   .ends_row = i + 1 == news});
	return err;
}

static int add_pieces(struct writing *w, struct gw_diff_row *r)
{
	int any = r->kind == GW_TENSOR_CHANGED ? r->tiling.count > 0
					       : (r->old && r->old->bytes) || (r->new_ && r->new_->bytes);

	if (!any)
		return add(w, (struct slot){.kind = SLOT_NOTHING, .row = r, .ends_row = 1});
	return r->kind == GW_TENSOR_CHANGED ? add_tiles(w, r) : add_stretches(w, r);
}

static int add_row(struct writing *w, struct gw_diff_row *r)
{
	const struct gw_diff_source *src = w->d->source;
	int err;

	err = r->alone || (r->companion && r->companion->alone) ? flush(w) : 0;
	if (!err)
		err = gw_diff_heat(w->d, r);
	if (err || !r->alone)
		return err ? err : add_pieces(w, r);
	err = src->open(src->ctx, r);
	if (err)
		return err;
	err = add_pieces(w, r);
	if (!err)
		err = flush(w);
	src->close(src->ctx, r);
	return err;
}

/* --- files -------------------------------------------------------------------------------------- */

/* fresh, size, digest, and the blob. */
static int write_stored(struct writing *w, const struct gw_diff_file *f, const struct gw_diff_stored *s)
{
	const struct gw_diff_source *src = w->d->source;
	const uint8_t *p = s->p;
	int err = 0;

	gw_wr_u8(&w->table, s->fresh ? 1 : 0);
	gw_wr_varint(&w->table, s->bytes);
	gw_wr_bytes(&w->table, s->digest, sizeof s->digest);
	if (!s->fresh)
		return 0;
	if (src->stored)
		err = src->stored(src->ctx, f, s == &f->is ? NULL : s, &p);
	for (uint64_t i = 0; !err && i < gw_patch_chunks(s->bytes); i++)
		err = add(w, (struct slot){.kind = SLOT_BYTES,
					   .p = p + i * GW_PATCH_CHUNK,
					   .raw = gw_patch_chunk_bytes(s->bytes, i)});
	return err ? err : flush(w);
}

static int write_file(struct writing *w, const struct gw_diff_file *f)
{
	int err;

	put_name(&w->table, w->last, f->is.name);
	w->last = f->is.name;
	gw_wr_u8(&w->table, (uint8_t)f->kind);
	if (f->kind == GW_PATCH_GONE)
		return 0;
	err = write_stored(w, f, &f->is);
	if (err || f->kind != GW_PATCH_SHARD)
		return err;
	gw_wr_varint(&w->table, f->data_bytes);
	gw_wr_varint(&w->table, f->carried_count);
	for (uint32_t i = 0; !err && i < f->carried_count; i++) {
		const struct gw_diff_stored *c = &f->carried[i];
		size_t n = strlen(c->name);

		gw_wr_varint(&w->table, n);
		gw_wr_bytes(&w->table, c->name, n);
		err = write_stored(w, f, c);
	}
	return err;
}

/* --- the whole ---------------------------------------------------------------------------------- */

static uint32_t write_models(struct writing *w)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < GW_PATCH_DTYPES; i++) {
		if (!w->d->model[i])
			continue;
		gw_model_write(w->d->model[i], &w->table);
		n++;
	}
	return n;
}

static void put_header(struct writing *w, uint8_t out[GW_PATCH_HEADER], uint32_t models)
{
	const struct gw_diff_report *p = &w->d->report;
	struct gw_hash h;

	memset(out, 0, GW_PATCH_HEADER);
	memcpy(out, GW_PATCH_MAGIC, sizeof GW_PATCH_MAGIC);
	gw_put_le16(out + 8, GW_PATCH_VERSION);
	gw_put_le16(out + 10, w->d->anchor ? GW_PATCH_FROM_NOTHING : 0);
	gw_put_le32(out + 12, w->tensors);
	gw_put_le32(out + 16, w->d->file_count);
	gw_put_le32(out + 20, models);
	gw_put_le64(out + 24, p->patch_bytes);
	gw_put_le64(out + 32, w->at);
	for (int i = 0; i < 2; i++) {
		gw_put_le64(out + 40 + 8 * i, p->from_print[i]);
		gw_put_le64(out + 56 + 8 * i, p->to_print[i]);
	}
	gw_put_le64(out + 72, p->changed);
	gw_put_le64(out + 80, p->elements);
	gw_put_le64(out + 88, p->bytes);
	gw_hash_begin(&h);
	gw_hash_add(&h, out, GW_PATCH_DIGESTED);
	gw_hash_add(&h, w->table.p, w->table.n);
	gw_hash_end(&h, out + GW_PATCH_DIGESTED);
}

static int write_all(struct writing *w)
{
	struct gw_diff *d = w->d;
	uint8_t header[GW_PATCH_HEADER];
	uint32_t models = write_models(w);
	int err = 0;

	w->into = &w->lengths;
	for (uint32_t i = 0; !err && i < d->row_count; i++)
		err = add_row(w, &d->rows[i]);
	if (!err)
		err = flush(w);
	w->into = &w->table;
	w->last = NULL;
	for (uint32_t i = 0; !err && i < d->file_count; i++)
		err = write_file(w, &d->files[i]);
	if (!err)
		err = write_pending(w);
	if (!err && (w->table.err || w->lengths.err))
		err = w->table.err == GW_ELIMIT || w->lengths.err == GW_ELIMIT
			      ? gw_diag_set(d->why, GW_ELIMIT, "the patch's tables grow over %d bytes",
					    GW_PATCH_TABLES_MAX)
			      : GW_ENOMEM;
	if (err)
		return err;
	d->report.patch_bytes = w->at + w->table.n;
	put_header(w, header, models);
	err = write_at(w, w->table.p, w->table.n, w->at);
	return err ? err : write_at(w, header, sizeof header, 0);
}

int gw_diff_write(struct gw_diff *d, struct gw_fs *fs, struct gw_file *f)
{
	struct writing w = {.d = d, .fs = fs, .file = f, .at = GW_PATCH_HEADER, .written = GW_PATCH_HEADER};
	int err;

	gw_wr_init(&w.table, GW_PATCH_TABLES_MAX);
	gw_wr_init(&w.lengths, GW_PATCH_TABLES_MAX);
	w.slot_count = (size_t)SLOTS_PER_WORKER * d->pool->width;
	w.slots = calloc(w.slot_count, sizeof *w.slots);
	w.pending = malloc(PENDING);
	err = w.slots && w.pending ? write_all(&w) : GW_ENOMEM;
	for (size_t i = 0; w.slots && i < w.slot_count; i++)
		free(w.slots[i].body);
	free(w.slots);
	free(w.pending);
	gw_wr_free(&w.table);
	gw_wr_free(&w.lengths);
	return err;
}
