#include "patch/element.h"
#include "patch/rebuild.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/fingerprint.h"
#include "patch/inside.h"
#include "patch/match.h"
#include "patch/scan.h"

enum {
	/* Of the elements made at once; a tile has 32 Ki at least, or is its whole tensor. */
	TILES_AT_ONCE = GW_REBUILD_ELEMENTS / (32 * 1024),
	CHUNKS_AT_ONCE = 8,
};

/* Scratch of one worker. */
struct worker {
	struct gw_tile_decoder *decoder;
	uint8_t *old; /* a tile, gathered; made when first needed */
};

/* A piece of work: tile, or chunk, and what came of it. */
struct piece {
	uint32_t index;
	uint64_t changed, lane[2];
	int err;
};

struct gw_rebuild {
	const struct gw_patch *pt;
	const struct gw_checkpoint *base;
	struct gw_pool *pool;
	struct gw_progress *watch;
	struct worker *workers;
	uint8_t *buffer; /* what is made at once */
	size_t buffer_bytes;
	uint64_t served; /* tensors made so far */

	/* Of the batch that runs. */
	const struct gw_patch_tensor *tensor; /* NULL for bytes that are no tensor's */
	const struct gw_patch_blob *blob;     /* chunks of it; NULL: tiles */
	const uint8_t *old;
	const struct gw_hot *hot;
	uint64_t first; /* the element, or byte, with which the buffer begins */
	struct piece pieces[TILES_AT_ONCE];
	size_t n;
};

int gw_rebuild_new(struct gw_rebuild **out, const struct gw_patch *pt, const struct gw_checkpoint *base,
		   struct gw_pool *pool, struct gw_progress *watch)
{
	struct gw_rebuild *rb = calloc(1, sizeof *rb);
	int err = 0;

	if (!rb)
		return GW_ENOMEM;
	rb->pt = pt;
	rb->base = base;
	rb->pool = pool;
	rb->watch = watch;
	rb->workers = calloc(pool->width, sizeof *rb->workers);
	for (unsigned i = 0; !err && i < pool->width; i++)
		err = rb->workers ? gw_tile_decoder_new(&rb->workers[i].decoder) : GW_ENOMEM;
	if (err) {
		gw_rebuild_free(rb);
		return err;
	}
	*out = rb;
	return 0;
}

void gw_rebuild_free(struct gw_rebuild *rb)
{
	if (!rb)
		return;
	for (unsigned i = 0; rb->workers && i < rb->pool->width; i++) {
		gw_tile_decoder_free(rb->workers[i].decoder);
		free(rb->workers[i].old);
	}
	free(rb->workers);
	free(rb->buffer);
	free(rb);
}

static int buffer_room(struct gw_rebuild *rb, size_t bytes)
{
	if (bytes <= rb->buffer_bytes)
		return 0;
	free(rb->buffer);
	rb->buffer = malloc(bytes);
	rb->buffer_bytes = rb->buffer ? bytes : 0;
	return rb->buffer ? 0 : GW_ENOMEM;
}

static int give(struct gw_rebuild *rb, const struct gw_sink *sink, uint64_t at, const uint8_t *p, uint64_t n,
		unsigned width)
{
	int err = sink->put(sink->ctx, at, p, n, width);

	gw_progress_add(rb->watch, n);
	return err;
}

/* --- pieces, on the workers ------------------------------------------------------------------- */

static int make_tile(struct gw_rebuild *rb, struct piece *p, struct worker *w)
{
	const struct gw_patch_tensor *t = rb->tensor;
	struct gw_tile_changes c;
	struct gw_tile_rect r;
	int err;

	if (!w->old)
		w->old = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
	if (!w->old)
		return GW_ENOMEM;
	gw_tiling_rect(&t->tiling, p->index, &r);
	err = gw_tile_decode(w->decoder, rb->pt, t, p->index, gw_tile_gather(rb->old, t->width, &r, w->old),
			     rb->hot, &c);
	for (size_t i = 0; !err && i < c.n; i++) {
		uint64_t e = gw_tile_element(&r, c.at[i]) - rb->first;

		gw_element_store(rb->buffer + e * t->width, t->width,
				 gw_element_load(c.new_bits + i * t->width, t->width));
	}
	p->changed = c.n;
	return err;
}

static int make_chunk(struct gw_rebuild *rb, struct piece *p, struct worker *w)
{
	uint64_t at = (uint64_t)p->index * GW_PATCH_CHUNK;
	const uint8_t *raw;
	size_t n;
	int err = gw_blob_chunk(w->decoder, rb->pt, rb->blob, p->index, &raw, &n);

	if (err)
		return err;
	memcpy(rb->buffer + (at - rb->first), raw, n);
	if (rb->tensor)
		gw_print_run(p->lane, rb->tensor->width, at / rb->tensor->width, raw, n / rb->tensor->width);
	return 0;
}

static int make_piece(void *arg, size_t i, unsigned worker)
{
	struct gw_rebuild *rb = arg;
	struct piece *p = &rb->pieces[i];

	p->err = rb->blob ? make_chunk(rb, p, &rb->workers[worker]) : make_tile(rb, p, &rb->workers[worker]);
	return p->err;
}

/* Runs the batch; what: for the message. */
static int make_all(struct gw_rebuild *rb, const char *what, struct gw_diag *why)
{
	int err = rb->pool->run(rb->pool, rb->n, make_piece, rb);

	for (size_t i = 0; err && i < rb->n; i++)
		if (rb->pieces[i].err)
			return gw_diag_set(why, err, "patch file: %s, %s %u: %s", what, rb->blob ? "chunk" : "tile",
					   rb->pieces[i].index, gw_err_text(err));
	return err;
}

static void add_piece(struct gw_rebuild *rb, uint32_t index)
{
	rb->pieces[rb->n++] = (struct piece){.index = index};
}

/* --- tensors ---------------------------------------------------------------------------------- */

static int check_print(const struct gw_patch_tensor *t, const uint64_t lane[2], struct gw_diag *why)
{
	if (lane[0] == t->print_new[0] && lane[1] == t->print_new[1])
		return 0;
	return gw_diag_set(why, GW_EFINGERPRINT, "patch file: tensor %s does not decode to its fingerprint", t->name);
}

/* As many bands from *band on as are made at once. Their range. */
static void next_bands(struct gw_rebuild *rb, const struct gw_tiling *t, uint32_t *band, uint64_t *elements)
{
	struct gw_tile_band b;

	rb->n = 0;
	*elements = 0;
	while (*band < gw_tiling_bands(t)) {
		gw_tiling_band(t, *band, &b);
		if (rb->n && (*elements + b.elements > GW_REBUILD_ELEMENTS || rb->n + b.tiles > TILES_AT_ONCE))
			break;
		if (!rb->n)
			rb->first = b.first;
		for (uint32_t i = 0; i < b.tiles; i++)
			add_piece(rb, b.tile + i * b.tile_step);
		*elements += b.elements;
		++*band;
	}
}

/* What the patch changes of t's companion. */
static int hot_of(struct gw_rebuild *rb, const struct gw_patch_tensor *t, struct gw_hot **hot, struct gw_diag *why)
{
	const struct gw_patch_tensor *c = t->companion;
	const struct gw_tensor *b = c ? gw_checkpoint_find(rb->base, c->name) : NULL;
	int err;

	*hot = NULL;
	if (!c)
		return 0;
	if (!b || b->bytes != c->bytes)
		return gw_diag_set(why, GW_EBASE, "%s: tensor %s is missing", gw_checkpoint_path(rb->base), c->name);
	err = gw_patch_hot(rb->workers[0].decoder, rb->pt, c, b->p, hot);
	return err ? gw_diag_set(why, err, "patch file: %s: %s", c->name, gw_err_text(err)) : 0;
}

static int put_bands(struct gw_rebuild *rb, const struct gw_patch_tensor *t, const uint8_t *old,
		     const struct gw_hot *hot, uint64_t at, const struct gw_sink *sink, struct gw_diag *why)
{
	uint64_t lane[2] = {0, 0}, changed = 0, elements;
	uint32_t band = 0;
	int err = 0;

	rb->tensor = t;
	rb->blob = NULL;
	rb->old = old;
	rb->hot = hot;
	while (!err && band < gw_tiling_bands(&t->tiling)) {
		next_bands(rb, &t->tiling, &band, &elements);
		err = buffer_room(rb, elements * t->width);
		if (err)
			break;
		memcpy(rb->buffer, old + rb->first * t->width, elements * t->width);
		err = make_all(rb, t->name, why);
		for (size_t i = 0; !err && i < rb->n; i++)
			changed += rb->pieces[i].changed;
		if (err)
			break;
		gw_print_run(lane, t->width, rb->first, rb->buffer, elements);
		err = give(rb, sink, at + rb->first * t->width, rb->buffer, elements * t->width, t->width);
	}
	if (err)
		return err;
	if (changed != t->changed)
		return gw_diag_set(why, GW_EMALFORMED, "patch file: tensor %s has other changes than its row says",
				   t->name);
	return check_print(t, lane, why);
}

static int put_changed(struct gw_rebuild *rb, const struct gw_patch_tensor *t, const uint8_t *old, uint64_t at,
		       const struct gw_sink *sink, struct gw_diag *why)
{
	struct gw_hot *hot;
	int err = hot_of(rb, t, &hot, why);

	if (!err)
		err = put_bands(rb, t, old, hot, at, sink, why);
	gw_hot_free(hot);
	return err;
}

/* A blob at an offset of the file: of a tensor (t), or of bytes with a digest. */
static int put_blob(struct gw_rebuild *rb, const struct gw_patch_blob *blob, const struct gw_patch_tensor *t,
		    const uint8_t *digest, const char *what, uint64_t at, const struct gw_sink *sink,
		    struct gw_diag *why)
{
	uint64_t lane[2] = {0, 0};
	uint8_t got[GW_DIGEST_BYTES];
	struct gw_hash h;
	int err = 0;

	rb->tensor = t;
	rb->blob = blob;
	gw_hash_begin(&h);
	for (uint32_t i = 0; !err && i < blob->chunks;) {
		size_t bytes = 0;

		rb->n = 0;
		rb->first = (uint64_t)i * GW_PATCH_CHUNK;
		for (; i < blob->chunks && rb->n < CHUNKS_AT_ONCE; i++) {
			bytes += gw_patch_chunk_bytes(blob->bytes, i);
			add_piece(rb, i);
		}
		err = buffer_room(rb, bytes);
		if (!err)
			err = make_all(rb, what, why);
		for (size_t k = 0; !err && k < rb->n; k++) {
			lane[0] += rb->pieces[k].lane[0];
			lane[1] += rb->pieces[k].lane[1];
		}
		if (err)
			break;
		if (digest)
			gw_hash_add(&h, rb->buffer, bytes);
		err = give(rb, sink, at + rb->first, rb->buffer, bytes, blob->width);
	}
	if (err || !digest)
		return err ? err : check_print(t, lane, why);
	gw_hash_end(&h, got);
	if (memcmp(got, digest, GW_FILE_DIGEST_BYTES))
		return gw_diag_set(why, GW_EDIGEST, "patch file: %s does not decode to its digest", what);
	return 0;
}

static int put_carried(struct gw_rebuild *rb, const struct gw_patch_file *f, const struct gw_patch_carried *c,
		       const struct gw_safetensors_tensor *s, uint64_t at, const struct gw_sink *sink,
		       struct gw_diag *why)
{
	const struct gw_safetensors_tensor *row = NULL;
	const uint8_t *p;

	if (c->bytes != s->bytes)
		return gw_diag_set(why, GW_EMALFORMED,
				   "patch file: %s: carried tensor %s has another size in the header", f->name,
				   c->name);
	if (c->fresh)
		return put_blob(rb, &c->blob, NULL, c->digest, c->name, at, sink, why);
	p = gw_match_in_shard(gw_match_shard(rb->base, f->name), c->name, &row);
	if (!p || row->bytes != c->bytes)
		return gw_diag_set(why, GW_EBASE, "%s: %s holds no carried tensor %s of that size",
				   gw_checkpoint_path(rb->base), f->name, c->name);
	return give(rb, sink, at, p, c->bytes, 1);
}

static int same_shape(unsigned rank, const uint64_t *shape, enum gw_dtype dtype, const struct gw_safetensors_tensor *s)
{
	return s->dtype == dtype && s->rank == rank && !memcmp(shape, s->shape, rank * sizeof *shape);
}

static int put_served(struct gw_rebuild *rb, const struct gw_patch_file *f, const struct gw_safetensors_tensor *s,
		      uint64_t at, const struct gw_sink *sink, struct gw_diag *why)
{
	const struct gw_patch_tensor *t = gw_patch_find(rb->pt, s->name);
	const struct gw_tensor *b = rb->base ? gw_checkpoint_find(rb->base, s->name) : NULL;

	rb->served++;
	if (t && (t->kind == GW_TENSOR_REMOVED || !same_shape(t->rank, t->shape, t->dtype, s)))
		return gw_diag_set(why, GW_EMALFORMED,
				   "patch file: %s: its header and the tensor table differ about %s", f->name, s->name);
	if (t && t->kind == GW_TENSOR_WHOLE)
		return put_blob(rb, &t->blob, t, NULL, t->name, at, sink, why);
	if (!b || !same_shape(b->rank, b->shape, (enum gw_dtype)b->dtype, s))
		return gw_diag_set(why, rb->base ? GW_EBASE : GW_EMALFORMED,
				   "patch file: %s: tensor %s is neither in the patch nor, in that form, in the base",
				   f->name, s->name);
	return t ? put_changed(rb, t, b->p, at, sink, why)
		 : give(rb, sink, at, b->p, b->bytes, gw_dtype_width((enum gw_dtype)b->dtype));
}

static const struct gw_patch_carried *find_carried(const struct gw_patch_file *f, const char *name)
{
	uint32_t lo = 0, hi = f->carried_count;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int order = strcmp(name, f->carried[mid].name);

		if (!order)
			return &f->carried[mid];
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

/* --- files ------------------------------------------------------------------------------------ */

static int put_data(struct gw_rebuild *rb, const struct gw_patch_file *f, const uint8_t *header,
		    const struct gw_sink *sink, struct gw_diag *why)
{
	struct gw_safetensors *s;
	uint32_t carried = 0;
	size_t n;
	int err = gw_safetensors_open(&s, header, f->bytes, f->bytes + f->data_bytes, why);

	if (err)
		return gw_diag_wrap(why, err, "patch file: %s", f->name);
	(void)gw_safetensors_header(s, &n);
	if (n != f->bytes)
		err = gw_diag_set(why, GW_EMALFORMED, "patch file: %s: bytes behind its header", f->name);
	for (uint32_t i = 0; !err && i < gw_safetensors_count(s); i++) {
		const struct gw_safetensors_tensor *t = gw_safetensors_at(s, i);
		const struct gw_patch_carried *c = find_carried(f, t->name);

		carried += c != NULL;
		err = c ? put_carried(rb, f, c, t, f->bytes + t->begin, sink, why)
			: put_served(rb, f, t, f->bytes + t->begin, sink, why);
	}
	if (!err && carried != f->carried_count)
		err = gw_diag_set(why, GW_EMALFORMED, "patch file: %s: a carried tensor is not in its header", f->name);
	gw_safetensors_free(s);
	return err;
}

/* Keeps the bytes that pass: a shard's header is needed as a whole. */
struct keep {
	uint8_t *p;
	const struct gw_sink *sink;
};

static int put_kept(void *ctx, uint64_t at, const uint8_t *p, uint64_t n, unsigned width)
{
	struct keep *k = ctx;

	memcpy(k->p + at, p, n);
	return k->sink->put(k->sink->ctx, at, p, n, width);
}

static int put_fresh_shard(struct gw_rebuild *rb, const struct gw_patch_file *f, const struct gw_sink *sink,
			   struct gw_diag *why)
{
	struct keep keep = {malloc(f->bytes + 1), sink};
	struct gw_sink keeper = {put_kept, &keep};
	int err = keep.p ? put_blob(rb, &f->blob, NULL, f->digest, f->name, 0, &keeper, why) : GW_ENOMEM;

	if (!err)
		err = put_data(rb, f, keep.p, sink, why);
	free(keep.p);
	return err;
}

int gw_rebuild_file(struct gw_rebuild *rb, const struct gw_patch_file *f, const struct gw_sink *sink,
		    struct gw_diag *why)
{
	const struct gw_shard *s = gw_match_shard(rb->base, f->name);
	const struct gw_other_file *o = gw_match_other(rb->base, f->name);
	const uint8_t *p;
	size_t n;
	int err;

	if (f->fresh)
		return f->kind == GW_PATCH_SHARD ? put_fresh_shard(rb, f, sink, why)
						 : put_blob(rb, &f->blob, NULL, f->digest, f->name, 0, sink, why);
	p = f->kind == GW_PATCH_SHARD ? s ? gw_safetensors_header(s->header, &n) : NULL : o ? o->p : NULL;
	if (f->kind == GW_PATCH_OTHER && o)
		n = o->bytes;
	if (!p || n != f->bytes)
		return gw_diag_set(why, GW_EBASE, "the base holds no %s of that size", f->name);
	err = give(rb, sink, 0, p, n, 1);
	return err || f->kind != GW_PATCH_SHARD ? err : put_data(rb, f, p, sink, why);
}

int gw_rebuild_check(const struct gw_rebuild *rb, struct gw_diag *why)
{
	uint64_t want = rb->base ? gw_checkpoint_tensors(rb->base) : 0;

	for (uint32_t i = 0; i < rb->pt->info.tensors; i++) {
		const struct gw_patch_tensor *t = &rb->pt->tensors[i];

		want -= t->kind == GW_TENSOR_REMOVED;
		want += t->kind == GW_TENSOR_WHOLE && !(rb->base && gw_checkpoint_find(rb->base, t->name));
	}
	return rb->served == want ? 0
				  : gw_diag_set(why, GW_EMALFORMED,
						"patch file: its files hold %llu tensors, the version has %llu",
						(unsigned long long)rb->served, (unsigned long long)want);
}
