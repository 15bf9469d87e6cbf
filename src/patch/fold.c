/* A fold: which tensors and files the last version of the chain has, as a diff plans them, and their bits. */
#include "patch/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "patch/fold_inside.h"
#include "patch/match.h"

/* How the new bits of a row come about. */
enum fold_kind {
	FOLD_BASE,  /* no patch names it: as in the base */
	FOLD_TILES, /* tile by tile from the base */
	FOLD_BLOB,  /* chunk by chunk from the patch that holds it whole */
	FOLD_MADE,  /* made as a whole when its turn comes */
};

struct fold_item {
	enum fold_kind kind;
	uint32_t blob;                        /* patch that holds it whole */
	const struct gw_patch_tensor **steps; /* n of them, NULL where a patch does not name it; TILES, BLOB */
	struct gw_hot **hot;                  /* by step, while it is open: of companions */
	uint8_t *made;
	const uint8_t *p; /* while it is open */
};

struct fold {
	struct gw_chain chain;
	struct gw_arena arena;
	struct fold_item *items;
	uint8_t *stored; /* the bytes given last */
};

/* --- bits --------------------------------------------------------------------------------------- */

static int fold_tile(void *ctx, const struct gw_diff_row *r, uint32_t tile, unsigned worker, struct gw_diff_room *room,
		     const uint8_t **old, const uint8_t **new_bits)
{
	struct fold *f = ctx;
	const struct fold_item *it = &f->items[r->item];
	unsigned width = gw_dtype_width((enum gw_dtype)r->new_->dtype);
	struct gw_tile_rect t;
	int err = 0, copied = 0;

	gw_tiling_rect(&r->tiling, tile, &t);
	*old = *new_bits = gw_tile_gather(r->old->p, width, &t, room->old);
	if (it->kind == FOLD_MADE)
		*new_bits = gw_tile_gather(it->p, width, &t, room->new_bits);
	for (uint32_t k = 0; !err && it->kind == FOLD_TILES && k < f->chain.n; k++) {
		const struct gw_patch_tensor *s = it->steps[k];

		if (!s || s->tile_at[tile] == s->tile_at[tile + 1])
			continue;
		if (!copied++)
			memcpy(room->new_bits, *old, t.rows * t.cols * width);
		*new_bits = room->new_bits;
		err = gw_chain_tile(&f->chain, worker, k, s, tile, it->hot[k], room->new_bits);
	}
	return err;
}

static int fold_chunk(void *ctx, const struct gw_diff_row *r, uint64_t at, size_t n, unsigned worker,
		      struct gw_diff_room *room, const uint8_t **p)
{
	struct fold *f = ctx;
	const struct fold_item *it = &f->items[r->item];

	(void)n;
	(void)room;
	if (it->kind == FOLD_BLOB)
		return gw_chain_chunk(&f->chain, worker, it->blob, it->steps[it->blob], (uint32_t)(at / GW_PATCH_CHUNK),
				      p);
	*p = it->p + at;
	return 0;
}

static void cool(struct fold *f, struct fold_item *it)
{
	for (uint32_t k = 0; k < f->chain.n; k++) {
		gw_hot_free(it->hot[k]);
		it->hot[k] = NULL;
	}
}

/* A packed tensor wants to know what each step changes of its scales; one that is made, to be made. */
static int fold_open(void *ctx, const struct gw_diff_row *r)
{
	struct fold *f = ctx;
	struct fold_item *it = &f->items[r->item];
	uint64_t bytes;
	int err = 0;

	for (uint32_t k = 0; !err && it->kind == FOLD_TILES && k < f->chain.n; k++)
		err = it->steps[k] ? gw_chain_hot(&f->chain, k, it->steps[k], &it->hot[k]) : 0;
	if (err)
		cool(f, it);
	if (err || it->kind == FOLD_TILES)
		return err;
	err = gw_chain_tensor(&f->chain, r->new_->name, f->chain.n, &it->made, &it->p, &bytes);
	return err ? err : bytes == r->new_->bytes ? 0 : GW_EMALFORMED;
}

static void fold_close(void *ctx, const struct gw_diff_row *r)
{
	struct fold *f = ctx;

	free(f->items[r->item].made);
	f->items[r->item].made = NULL;
	cool(f, &f->items[r->item]);
}

static int fold_stored(void *ctx, const struct gw_diff_file *file, const struct gw_diff_stored *carried,
		       const uint8_t **p)
{
	struct fold *f = ctx;
	const struct gw_diff_stored *s = carried ? carried : &file->is;
	uint8_t digest[GW_FILE_DIGEST_BYTES];
	uint64_t bytes = 0;
	int err;

	free(f->stored);
	err = gw_chain_stored(&f->chain, file->is.name, carried ? carried->name : NULL, &f->stored, p, &bytes);
	if (err)
		return err;
	gw_hash_of(*p, bytes == s->bytes ? bytes : 0, digest, sizeof digest);
	if (bytes == s->bytes && !memcmp(digest, s->digest, sizeof digest))
		return 0;
	return gw_diag_set(f->chain.why, GW_EDIGEST, "%s: %s%s is not what the patches say", file->is.name,
			   carried ? "tensor " : "its bytes", carried ? carried->name : "");
}

/* --- tensors ------------------------------------------------------------------------------------ */

static int same_form(const struct gw_tensor *a, const struct gw_patch_tensor *b)
{
	return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape);
}

/* What the steps make of a tensor: *t has the form before, and gets the form after; *there whether it is there. */
static int follow(struct fold *f, const char *name, struct gw_tensor *t, int *there, struct fold_item *it)
{
	struct gw_chain *c = &f->chain;

	for (uint32_t k = 0; k < c->n; k++) {
		const struct gw_patch_tensor *s = it->steps[k];

		if (!s)
			continue;
		if (s->kind != GW_TENSOR_WHOLE && (!*there || !same_form(t, s)))
			return gw_diag_set(c->why, GW_EBASE, "%s changes tensor %s, which is not there in that form",
					   c->patches[k].name, name);
		*there = s->kind != GW_TENSOR_REMOVED;
		if (s->kind != GW_TENSOR_WHOLE) {
			if (it->kind == FOLD_BLOB)
				it->kind = FOLD_MADE;
			if (it->kind == FOLD_BASE)
				it->kind = FOLD_TILES;
			continue;
		}
		it->kind = FOLD_BLOB;
		it->blob = k;
		*t = (struct gw_tensor){.name = s->name,
					.shape = s->shape,
					.bytes = s->bytes,
					.rank = (uint8_t)s->rank,
					.dtype = (uint8_t)s->dtype};
	}
	return 0;
}

/* As the patches cut a tensor of that form, the last one first; else as names say. */
static unsigned fold_axis(const struct gw_diff *d, const struct gw_chain *c, const struct fold_item *it,
			  const struct gw_tensor *t)
{
	for (uint32_t k = c->n; !(d->opt && d->opt->axis) && k-- > 0;)
		if (it->steps[k] && same_form(t, it->steps[k]))
			return it->steps[k]->axis;
	return gw_diff_axis(d, t);
}

static int plan_row(struct gw_diff *d, struct fold *f, const char *name)
{
	struct gw_chain *c = &f->chain;
	const struct gw_tensor *old = c->base ? gw_checkpoint_find(c->base, name) : NULL;
	struct fold_item *it = &f->items[d->row_count];
	struct gw_diff_row *r = &d->rows[d->row_count];
	struct gw_tensor *t = gw_arena_alloc(&f->arena, sizeof *t);
	int there = old != NULL, err;

	it->steps = gw_arena_array(&f->arena, c->n, sizeof(const struct gw_patch_tensor *));
	it->hot = gw_arena_array(&f->arena, c->n, sizeof *it->hot);
	if (!t || !it->steps || !it->hot)
		return GW_ENOMEM;
	for (uint32_t k = 0; k < c->n; k++)
		it->steps[k] = gw_patch_find(c->patches[k].pt, name);
	if (old)
		*t = *old;
	err = follow(f, name, t, &there, it);
	if (err || (!old && !there))
		return err;
	r->item = d->row_count++;
	err = gw_diff_plan_row(d, r, old, there ? t : NULL, fold_axis(d, c, it, there ? t : old));
	if (err || !there)
		return err;
	for (uint32_t k = 0; it->kind == FOLD_TILES && k < c->n; k++)
		if (it->steps[k] && it->steps[k]->axis != r->axis)
			it->kind = FOLD_MADE;
	if (it->kind == FOLD_BLOB && r->kind == GW_TENSOR_CHANGED)
		it->kind = FOLD_MADE;
	r->alone = it->kind == FOLD_MADE;
	for (uint32_t k = 0; it->kind == FOLD_TILES && k < c->n; k++)
		r->alone |= it->steps[k] && it->steps[k]->companion;
	return 0;
}

/* The names of base and patches rise: the lowest that is left in any, until none is. */
static int plan_rows(struct gw_diff *d, struct fold *f)
{
	struct gw_chain *c = &f->chain;
	uint32_t base = 0, base_n = c->base ? gw_checkpoint_tensors(c->base) : 0;
	uint32_t *next = calloc((size_t)c->n + 1, sizeof *next);
	size_t max = base_n;
	int err = next ? 0 : GW_ENOMEM;

	for (uint32_t k = 0; k < c->n; k++) {
		struct gw_patch_info info;

		gw_patch_info(c->patches[k].pt, &info);
		max += info.tensors;
	}
	d->rows = calloc(max + 1, sizeof *d->rows);
	f->items = calloc(max + 1, sizeof *f->items);
	if (!d->rows || !f->items)
		err = GW_ENOMEM;
	while (!err) {
		const char *name = base < base_n ? gw_checkpoint_tensor(c->base, base)->name : NULL;

		for (uint32_t k = 0; k < c->n; k++) {
			struct gw_patch_info info;

			gw_patch_info(c->patches[k].pt, &info);
			if (next[k] == info.tensors)
				continue;
			if (!name || strcmp(gw_patch_tensor(c->patches[k].pt, next[k])->name, name) < 0)
				name = gw_patch_tensor(c->patches[k].pt, next[k])->name;
		}
		if (!name)
			break;
		memset(&f->items[d->row_count], 0, sizeof *f->items);
		err = plan_row(d, f, name);
		base += base < base_n && !strcmp(gw_checkpoint_tensor(c->base, base)->name, name);
		for (uint32_t k = 0; k < c->n; k++) {
			struct gw_patch_info info;

			gw_patch_info(c->patches[k].pt, &info);
			next[k] += next[k] < info.tensors &&
				   !strcmp(gw_patch_tensor(c->patches[k].pt, next[k])->name, name);
		}
	}
	free(next);
	return err;
}

/* --- files -------------------------------------------------------------------------------------- */

static struct gw_diff_stored stored(const char *name, uint64_t bytes, const uint8_t *digest, const uint8_t *old,
				    uint64_t old_bytes)
{
	struct gw_diff_stored s = {.name = name, .bytes = bytes, .fresh = 1};
	uint8_t is[GW_FILE_DIGEST_BYTES];

	memcpy(s.digest, digest, sizeof s.digest);
	if (old && old_bytes == bytes) {
		gw_hash_of(old, old_bytes, is, sizeof is);
		s.fresh = memcmp(is, digest, sizeof is) != 0;
	}
	return s;
}

static int plan_file(struct gw_diff *d, const struct gw_checkpoint *base, const struct gw_patch_file *f)
{
	struct gw_diff_file *to = &d->files[d->file_count];
	const struct gw_shard *was = gw_match_shard(base, f->name);
	const struct gw_other_file *o = gw_match_other(base, f->name);
	size_t n = 0;
	const uint8_t *header = was ? gw_safetensors_header(was->header, &n) : NULL;

	if (f->kind == GW_PATCH_GONE)
		return 0;
	d->file_count++;
	to->kind = f->kind;
	to->data_bytes = f->data_bytes;
	to->is = f->kind == GW_PATCH_SHARD
			 ? stored(f->name, f->bytes, f->digest, header, n)
			 : stored(f->name, f->bytes, f->digest, o ? o->p : NULL, o ? o->bytes : 0);
	if (!f->carried_count)
		return 0;
	to->carried = calloc(f->carried_count, sizeof *to->carried);
	if (!to->carried)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < f->carried_count; i++) {
		const struct gw_patch_carried *c = &f->carried[i];
		const struct gw_safetensors_tensor *row = NULL;
		const uint8_t *p = gw_match_in_shard(was, c->name, &row);

		to->carried[to->carried_count++] = stored(c->name, c->bytes, c->digest, p, row ? row->bytes : 0);
	}
	return 0;
}

static void plan_gone(struct gw_diff *d, const struct gw_patch *last, const char *name)
{
	const struct gw_patch_file *f = gw_patch_find_file(last, name);

	if (!f || f->kind == GW_PATCH_GONE)
		d->files[d->file_count++] = (struct gw_diff_file){.is = {.name = name}, .kind = GW_PATCH_GONE};
}

static int plan_files(struct gw_diff *d, const struct gw_chain *c)
{
	const struct gw_patch *last = c->patches[c->n - 1].pt;
	uint32_t shards = c->base ? gw_checkpoint_shards(c->base) : 0, others = c->base ? gw_checkpoint_others(c->base) : 0;
	struct gw_patch_info info;
	int err = 0;

	gw_patch_info(last, &info);
	d->files = calloc((size_t)info.files + shards + others + 1, sizeof *d->files);
	if (!d->files)
		return GW_ENOMEM;
	for (uint32_t i = 0; !err && i < info.files; i++)
		err = plan_file(d, c->base, gw_patch_file(last, i));
	for (uint32_t i = 0; i < shards; i++)
		plan_gone(d, last, gw_match_shard_name(c->base, gw_checkpoint_shard(c->base, i)));
	for (uint32_t i = 0; i < others; i++)
		plan_gone(d, last, gw_checkpoint_other(c->base, i)->name);
	gw_diff_sort_files(d);
	return err;
}

/* --- whether it can be believed ----------------------------------------------------------------- */

/* The base by its fingerprints: what differs, by name. 0 where nothing does. */
static int blame_base(const struct gw_chain *c)
{
	struct gw_match m;
	int err;

	if (!c->base)
		return 0;
	err = gw_match_init(&m, c->base, c->pool, NULL, c->why);
	if (err)
		return err;
	err = gw_match_base(&m, c->patches[0].pt, c->why);
	gw_match_free(&m);
	return err;
}

static int fold_check(void *ctx, struct gw_diff *d)
{
	struct fold *f = ctx;
	struct gw_chain *c = &f->chain;
	struct gw_patch_info first, last;
	int err = c->base ? gw_checkpoint_check(c->base, c->why) : 0;

	if (err)
		return err;
	gw_patch_info(c->patches[0].pt, &first);
	gw_patch_info(c->patches[c->n - 1].pt, &last);
	if (memcmp(d->report.from_print, first.from_print, sizeof first.from_print)) {
		err = blame_base(c);
		return err ? err : gw_diag_set(c->why, GW_EBASE, "the base is not what %s starts from", c->patches[0].name);
	}
	if (memcmp(d->report.to_print, last.to_print, sizeof last.to_print) || d->report.elements != last.elements)
		return gw_diag_set(c->why, GW_EFINGERPRINT, "the patches do not decode to the fingerprint that %s ends in",
				   c->patches[c->n - 1].name);
	return 0;
}

/* After a piece that could not be decoded: the base is wrong, or a patch is damaged. */
static int blame(struct gw_chain *c, int err)
{
	for (unsigned i = 0; c->workers && i < c->pool->width; i++) {
		const struct gw_chain_worker *w = &c->workers[i];
		int wrong;

		if (!w->err || (c->why && c->why->text[0]))
			continue;
		wrong = blame_base(c);
		if (wrong)
			return wrong;
		return gw_diag_set(c->why, w->err, "%s: tensor %s, %s %u: %s", c->patches[w->patch].name, w->tensor->name,
				   w->tensor->kind == GW_TENSOR_WHOLE ? "chunk" : "tile", w->piece, gw_err_text(w->err));
	}
	return err;
}

int gw_fold(const struct gw_checkpoint *base, const struct gw_fold_patch *patches, uint32_t n, struct gw_fs *fs,
	    struct gw_pool *pool, const struct gw_diff_options *opt, const char *path, struct gw_diff_report *report,
	    struct gw_diag *why)
{
	struct gw_diag own = {""};
	struct fold f = {.chain = {.base = base, .patches = patches, .n = n, .pool = pool, .why = why ? why : &own}};
	const struct gw_diff_source source = {&f, fold_tile, fold_chunk, fold_open, fold_close, fold_stored, fold_check};
	struct gw_diff d = {.source = &source, .pool = pool, .opt = opt, .anchor = !base, .why = f.chain.why};
	int err = n ? gw_chain_init(&f.chain) : GW_EINVAL;

	gw_arena_init(&f.arena, SIZE_MAX);
	if (!err)
		err = gw_chain_check(&f.chain);
	if (!err)
		err = plan_rows(&d, &f);
	if (!err)
		err = plan_files(&d, &f.chain);
	if (!err) {
		err = gw_diff_run(&d, fs, path);
		if (err)
			err = blame(&f.chain, err);
	}
	if (!err && report)
		*report = d.report;
	gw_diff_free(&d);
	gw_chain_free(&f.chain);
	gw_arena_reset(&f.arena);
	free(f.items);
	free(f.stored);
	return err ? gw_diag_set(f.chain.why, err, "cannot fold the patches: %s", gw_err_text(err)) : 0;
}
