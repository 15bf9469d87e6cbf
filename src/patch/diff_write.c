/*
 * The second pass of a diff: bodies are coded side by side, in batches, and written in order; table rows grow in memory
 * meanwhile, in the same order, since a row holds the lengths of its bodies.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"
#include "patch/match.h"

enum { SLOTS_PER_WORKER = 2, SLOTS_MIN = 4 };

/* A body to be made, and where. */
struct slot {
	const struct gw_diff_row *row; /* a tile of it; else bytes */
	uint32_t tile;
	const uint8_t *p;
	size_t n;
	unsigned width;
	uint8_t *out;
	size_t cap, size;
};

struct writing {
	struct gw_diff *d;
	struct gw_fs *fs;
	struct gw_file *file;
	uint64_t at; /* of the next body */
	struct gw_wr table;
	struct slot *slots;
	size_t slot_count, used;
};

static int code_tile(struct writing *w, struct slot *s, struct gw_diff_worker *k)
{
	const struct gw_diff_row *r = s->row;
	struct gw_tile_changes c;
	struct gw_tile_rect t;
	const uint8_t *old, *raw;

	gw_tiling_rect(&r->tiling, s->tile, &t);
	gw_scan_tile(&k->changes, r->old->p, r->new_->p, s->width, &t, &c);
	s->size = 0;
	if (!c.n)
		return 0;
	old = gw_tile_gather(r->old->p, s->width, &t, k->old);
	raw = gw_tile_gather(r->new_->p, s->width, &t, k->new_);
	return gw_body_pack_tile(k->packer, w->d->model[r->new_->dtype], &c, old, raw, s->n, s->width, s->out,
				 &s->size);
}

static int code_slot(void *arg, size_t i, unsigned worker)
{
	struct writing *w = arg;
	struct slot *s = &w->slots[i];
	struct gw_diff_worker *k = &w->d->workers[worker];

	if (s->cap < s->n + GW_BODY_EXTRA) {
		free(s->out);
		s->cap = s->n + GW_BODY_EXTRA;
		s->out = malloc(s->cap);
		if (!s->out) {
			s->cap = 0;
			return GW_ENOMEM;
		}
	}
	return s->row ? code_tile(w, s, k) : gw_body_pack(k->packer, s->p, s->n, s->width, s->out, &s->size);
}

/* Codes what is in the slots, writes the bodies, and their lengths into the table. */
static int flush(struct writing *w)
{
	int err = w->d->pool->run(w->d->pool, w->used, code_slot, w);

	for (size_t i = 0; !err && i < w->used; i++) {
		gw_wr_varint(&w->table, w->slots[i].size);
		if (w->slots[i].size)
			err = gw_fs_pwrite(w->fs, w->file, w->slots[i].out, w->slots[i].size, w->at);
		w->at += w->slots[i].size;
	}
	w->used = 0;
	return err;
}

static int add(struct writing *w, struct slot what)
{
	struct slot *s = &w->slots[w->used++];

	what.out = s->out;
	what.cap = s->cap;
	*s = what;
	return w->used == w->slot_count ? flush(w) : 0;
}

static int add_tiles(struct writing *w, const struct gw_diff_row *r)
{
	unsigned width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	int err = 0;

	for (uint32_t i = 0; !err && i < r->tiling.count; i++) {
		struct gw_tile_rect t;

		gw_tiling_rect(&r->tiling, i, &t);
		err = add(w, (struct slot){.row = r, .tile = i, .n = t.rows * t.cols * width, .width = width});
	}
	return err ? err : flush(w);
}

static int add_blob(struct writing *w, const uint8_t *p, uint64_t bytes, unsigned width)
{
	int err = 0;

	for (uint64_t i = 0; !err && i < gw_patch_chunks(bytes); i++)
		err = add(w, (struct slot){
				     .p = p + i * GW_PATCH_CHUNK, .n = gw_patch_chunk_bytes(bytes, i), .width = width});
	return err ? err : flush(w);
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

static int write_row(struct writing *w, const struct gw_diff_row *r, const char *last)
{
	const struct gw_tensor *t = r->new_ ? r->new_ : r->old;

	put_name(&w->table, last, t->name);
	gw_wr_u8(&w->table, (uint8_t)r->kind);
	gw_wr_u8(&w->table, t->dtype);
	gw_wr_u8(&w->table, t->rank);
	gw_wr_u8(&w->table, (uint8_t)r->axis);
	for (unsigned i = 0; i < t->rank; i++)
		gw_wr_varint(&w->table, t->shape[i]);
	if (r->kind != GW_TENSOR_WHOLE)
		put_print(&w->table, r->print_old);
	if (r->kind != GW_TENSOR_REMOVED)
		put_print(&w->table, r->print_new);
	switch (r->kind) {
	case GW_TENSOR_CHANGED:
		gw_wr_varint(&w->table, r->changed);
		return add_tiles(w, r);
	case GW_TENSOR_WHOLE:
		return add_blob(w, t->p, t->bytes, gw_dtype_width((enum gw_dtype)t->dtype));
	default:
		return 0;
	}
}

/* fresh, size, digest, and the blob. */
static int write_stored(struct writing *w, int fresh, const uint8_t *p, uint64_t bytes)
{
	uint8_t digest[GW_FILE_DIGEST_BYTES];

	gw_hash_of(p, bytes, digest, sizeof digest);
	gw_wr_u8(&w->table, fresh ? 1 : 0);
	gw_wr_varint(&w->table, bytes);
	gw_wr_bytes(&w->table, digest, sizeof digest);
	return fresh ? add_blob(w, p, bytes, 1) : 0;
}

static int by_carried_name(const void *a, const void *b)
{
	return strcmp((*(const struct gw_tensor *const *)a)->name, (*(const struct gw_tensor *const *)b)->name);
}

/* Whether the base's shard has the same bytes under that name. */
static int carried_alike(const struct gw_shard *old, const struct gw_tensor *t)
{
	const struct gw_safetensors_tensor *row = NULL;
	const uint8_t *p = gw_match_in_shard(old, t->name, &row);

	return p && row->bytes == t->bytes && !memcmp(p, t->p, t->bytes);
}

static int write_carried(struct writing *w, const struct gw_diff_file *f)
{
	uint32_t n = f->shard->carried_count;
	const struct gw_tensor **sorted = malloc((n + 1) * sizeof *sorted);
	int err = sorted ? 0 : GW_ENOMEM;

	gw_wr_varint(&w->table, f->shard->bytes - f->bytes);
	gw_wr_varint(&w->table, n);
	for (uint32_t i = 0; sorted && i < n; i++)
		sorted[i] = &f->shard->carried[i];
	if (sorted)
		qsort(sorted, n, sizeof *sorted, by_carried_name);
	for (uint32_t i = 0; !err && i < n; i++) {
		size_t name = strlen(sorted[i]->name);

		gw_wr_varint(&w->table, name);
		gw_wr_bytes(&w->table, sorted[i]->name, name);
		err = write_stored(w, !carried_alike(f->old_shard, sorted[i]), sorted[i]->p, sorted[i]->bytes);
	}
	free(sorted);
	return err;
}

static int write_file(struct writing *w, const struct gw_diff_file *f, const char *last)
{
	int err;

	put_name(&w->table, last, f->name);
	gw_wr_u8(&w->table, (uint8_t)f->kind);
	if (f->kind == GW_PATCH_GONE)
		return 0;
	err = write_stored(w, f->fresh, f->p, f->bytes);
	return err || f->kind != GW_PATCH_SHARD ? err : write_carried(w, f);
}

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

static void put_header(struct writing *w, uint8_t out[GW_PATCH_HEADER], uint32_t tensors, uint32_t models)
{
	const struct gw_diff_report *p = &w->d->report;
	struct gw_hash h;

	memset(out, 0, GW_PATCH_HEADER);
	memcpy(out, GW_PATCH_MAGIC, sizeof GW_PATCH_MAGIC);
	gw_put_le16(out + 8, GW_PATCH_VERSION);
	gw_put_le16(out + 10, w->d->old ? 0 : GW_PATCH_FROM_NOTHING);
	gw_put_le32(out + 12, tensors);
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
	const char *last = NULL;
	uint32_t tensors = 0, models = write_models(w);
	int err = 0;

	for (uint32_t i = 0; !err && i < d->row_count; i++) {
		const struct gw_diff_row *r = &d->rows[i];

		if (r->kind == GW_TENSOR_CHANGED && !r->changed)
			continue;
		err = write_row(w, r, last);
		last = (r->new_ ? r->new_ : r->old)->name;
		tensors++;
	}
	last = NULL;
	for (uint32_t i = 0; !err && i < d->file_count; i++) {
		err = write_file(w, &d->files[i], last);
		last = d->files[i].name;
	}
	if (!err && w->table.err)
		err = w->table.err == GW_ELIMIT
			      ? gw_diag_set(d->why, GW_ELIMIT, "the patch's tables grow over %d bytes",
					    GW_PATCH_TABLES_MAX)
			      : w->table.err;
	if (err)
		return err;
	d->report.patch_bytes = w->at + w->table.n;
	put_header(w, header, tensors, models);
	err = gw_fs_pwrite(w->fs, w->file, w->table.p, w->table.n, w->at);
	return err ? err : gw_fs_pwrite(w->fs, w->file, header, sizeof header, 0);
}

int gw_diff_write(struct gw_diff *d, struct gw_fs *fs, struct gw_file *f)
{
	struct writing w = {.d = d, .fs = fs, .file = f, .at = GW_PATCH_HEADER};
	int err;

	gw_wr_init(&w.table, GW_PATCH_TABLES_MAX);
	w.slot_count = gw_max_u64(SLOTS_MIN, (uint64_t)SLOTS_PER_WORKER * d->pool->width);
	w.slots = calloc(w.slot_count, sizeof *w.slots);
	err = w.slots ? write_all(&w) : GW_ENOMEM;
	for (size_t i = 0; w.slots && i < w.slot_count; i++)
		free(w.slots[i].out);
	free(w.slots);
	gw_wr_free(&w.table);
	return err;
}
