/* What each version of a chain of patches holds, made from the base and the patches up to it. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/element.h"
#include "patch/fingerprint.h"
#include "patch/fold_inside.h"
#include "patch/match.h"

int gw_chain_init(struct gw_chain *c)
{
	int err = 0;

	c->workers = calloc(c->pool->width, sizeof *c->workers);
	if (!c->workers)
		return GW_ENOMEM;
	for (unsigned i = 0; !err && i < c->pool->width; i++) {
		err = gw_tile_decoder_new(&c->workers[i].decoder);
		c->workers[i].room = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		if (!c->workers[i].room)
			err = GW_ENOMEM;
	}
	return err;
}

void gw_chain_free(struct gw_chain *c)
{
	for (unsigned i = 0; c->workers && i < c->pool->width; i++) {
		gw_tile_decoder_free(c->workers[i].decoder);
		free(c->workers[i].room);
	}
	free(c->workers);
}

/* --- pieces ------------------------------------------------------------------------------------- */

static int note(struct gw_chain *c, unsigned worker, uint32_t k, const struct gw_patch_tensor *t, uint32_t piece,
		int err)
{
	struct gw_chain_worker *w = &c->workers[worker];

	if (err && !w->err) {
		w->err = err;
		w->patch = k;
		w->piece = piece;
		w->tensor = t;
	}
	return err;
}

int gw_chain_tile(struct gw_chain *c, unsigned worker, uint32_t k, const struct gw_patch_tensor *t, uint32_t tile,
		  const struct gw_hot *hot, uint8_t *bits)
{
	struct gw_tile_changes v;
	int err = gw_tile_decode(c->workers[worker].decoder, c->patches[k].pt, t, tile, bits, hot, &v);

	for (size_t i = 0; !err && i < v.n; i++)
		gw_element_store(bits + (size_t)v.at[i] * t->width, t->width,
				 gw_element_load(v.new_bits + i * t->width, t->width));
	return note(c, worker, k, t, tile, err);
}

int gw_chain_chunk(struct gw_chain *c, unsigned worker, uint32_t k, const struct gw_patch_tensor *t, uint32_t chunk,
		   const uint8_t **p)
{
	size_t n;

	return note(c, worker, k, t, chunk,
		    gw_blob_chunk(c->workers[worker].decoder, c->patches[k].pt, &t->blob, chunk, p, &n));
}

/* --- whole tensors ------------------------------------------------------------------------------ */

/* A step of making a tensor: its chunks from a patch, or its tiles from one state to the next, in place. */
struct making {
	struct gw_chain *c;
	uint32_t k;
	const struct gw_patch_tensor *t;
	struct gw_hot *hot; /* what patch k changes of its companion */
	uint8_t *p;
};

static int make_chunk(void *arg, size_t i, unsigned worker)
{
	struct making *m = arg;
	const uint8_t *p;
	int err = gw_chain_chunk(m->c, worker, m->k, m->t, (uint32_t)i, &p);

	if (!err)
		memcpy(m->p + i * GW_PATCH_CHUNK, p, gw_patch_chunk_bytes(m->t->bytes, i));
	return err;
}

static int make_tile(void *arg, size_t i, unsigned worker)
{
	struct making *m = arg;
	uint8_t *room = m->c->workers[worker].room;
	unsigned width = m->t->width;
	struct gw_tile_rect r;
	const uint8_t *old;
	int err;

	if (m->t->tile_at[i] == m->t->tile_at[i + 1])
		return 0;
	gw_tiling_rect(&m->t->tiling, (uint32_t)i, &r);
	old = gw_tile_gather(m->p, width, &r, room);
	if (old != room)
		memcpy(room, old, r.rows * r.cols * width);
	err = gw_chain_tile(m->c, worker, m->k, m->t, (uint32_t)i, m->hot, room);
	for (uint64_t row = 0; !err && row < r.rows; row++)
		memcpy(m->p + ((r.row0 + row) * r.tensor_cols + r.col0) * width, room + row * r.cols * width,
		       r.cols * width);
	return err;
}

static int missing(struct gw_chain *c, const char *name, uint32_t k)
{
	return gw_diag_set(c->why, GW_EBASE, "tensor %s: not in the version after %u of the %u patches", name, k, c->n);
}

int gw_chain_hot(struct gw_chain *c, uint32_t k, const struct gw_patch_tensor *t, struct gw_hot **out)
{
	const struct gw_patch_tensor *scales = t->companion;
	uint64_t bytes;
	const uint8_t *p;
	uint8_t *own;
	int err;

	*out = NULL;
	if (!scales)
		return 0;
	/* Each patch by itself keeps companions from having companions; a chain must too, or each step would call for
	 * all before it, over and over. */
	for (uint32_t i = 0; i < c->n; i++) {
		const struct gw_patch_tensor *s = gw_patch_find(c->patches[i].pt, scales->name);

		if (s && s->companion)
			return gw_diag_set(c->why, GW_ELIMIT, "%s: tensor %s has a companion, and is one in %s: not folded",
					   c->patches[i].name, scales->name, c->patches[k].name);
	}
	/* Scales are a small part of a model: they are made as a whole. */
	err = gw_chain_tensor(c, scales->name, k, &own, &p, &bytes);
	if (!err && bytes != scales->bytes)
		err = missing(c, scales->name, k);
	if (!err)
		err = note(c, 0, k, scales, 0, gw_patch_hot(c->workers[0].decoder, c->patches[k].pt, scales, p, out));
	free(own);
	return err;
}

static int make_step(struct making *m)
{
	const struct gw_pool *pool = m->c->pool;
	int err;

	if (m->t->kind == GW_TENSOR_WHOLE)
		return pool->run(m->c->pool, m->t->blob.chunks, make_chunk, m);
	err = gw_chain_hot(m->c, m->k, m->t, &m->hot);
	if (!err)
		err = pool->run(m->c->pool, m->t->tiles, make_tile, m);
	gw_hot_free(m->hot);
	return err;
}

int gw_chain_tensor(struct gw_chain *c, const char *name, uint32_t k, uint8_t **own, const uint8_t **p, uint64_t *bytes)
{
	const struct gw_tensor *b = c->base ? gw_checkpoint_find(c->base, name) : NULL;
	struct making m = {.c = c};
	uint32_t first = 0, steps = 0;
	int err = 0, whole = 0;

	for (uint32_t i = 0; i < k; i++) {
		const struct gw_patch_tensor *t = gw_patch_find(c->patches[i].pt, name);

		if (t && t->kind != GW_TENSOR_CHANGED) {
			first = i;
			whole = t->kind == GW_TENSOR_WHOLE;
			b = NULL;
			steps = 0;
			*bytes = t->bytes;
		}
		steps += t != NULL;
	}
	*own = NULL;
	if (!b && !whole)
		return missing(c, name, k);
	*bytes = b ? b->bytes : *bytes;
	*p = b ? b->p : NULL;
	if (!steps)
		return 0;
	m.p = *own = malloc(*bytes + 1);
	if (!m.p)
		return GW_ENOMEM;
	if (b)
		memcpy(m.p, b->p, *bytes);
	for (uint32_t i = first; !err && i < k; i++) {
		m.k = i;
		m.t = gw_patch_find(c->patches[i].pt, name);
		if (m.t && m.t->bytes != *bytes)
			err = missing(c, name, i);
		else if (m.t)
			err = make_step(&m);
	}
	if (err) {
		free(*own);
		*own = NULL;
	}
	*p = *own;
	return err;
}

/* --- files -------------------------------------------------------------------------------------- */

static const struct gw_patch_carried *find_carried(const struct gw_patch_file *f, const char *name)
{
	for (uint32_t i = 0; i < f->carried_count; i++)
		if (!strcmp(f->carried[i].name, name))
			return &f->carried[i];
	return NULL;
}

/* A blob as it gathers. */
static int keep(void *ctx, uint64_t at, const void *p, size_t n)
{
	memcpy((uint8_t *)ctx + at, p, n);
	return 0;
}

static int whole_blob(struct gw_chain *c, uint32_t k, const struct gw_patch_blob *b, const uint8_t *digest, uint8_t **own,
		      const uint8_t **p)
{
	uint8_t got[GW_FILE_DIGEST_BYTES];
	int err;

	*p = *own = malloc(b->bytes + 1);
	if (!*own)
		return GW_ENOMEM;
	err = gw_patch_blob(c->patches[k].pt, b, keep, *own, c->why);
	if (err)
		return err;
	gw_hash_of(*own, b->bytes, got, sizeof got);
	return memcmp(got, digest, sizeof got)
		       ? gw_diag_set(c->why, GW_EDIGEST, "%s: a file does not decode to its digest", c->patches[k].name)
		       : 0;
}

static int base_stored(struct gw_chain *c, const char *file, const char *carried, const uint8_t **p, uint64_t *bytes)
{
	const struct gw_shard *s = gw_match_shard(c->base, file);
	const struct gw_other_file *o = gw_match_other(c->base, file);
	const struct gw_safetensors_tensor *row = NULL;
	size_t n = 0;

	if (carried) {
		*p = gw_match_in_shard(s, carried, &row);
		*bytes = row ? row->bytes : 0;
	} else {
		*p = s ? gw_safetensors_header(s->header, &n) : o ? o->p : NULL;
		*bytes = s ? n : o ? o->bytes : 0;
	}
	return *p ? 0
		  : gw_diag_set(c->why, GW_EBASE, "%s: %s%s%s is missing", c->base ? gw_checkpoint_path(c->base) : "base",
				file, carried ? ", tensor " : "", carried ? carried : "");
}

int gw_chain_stored(struct gw_chain *c, const char *file, const char *carried, uint8_t **own, const uint8_t **p,
		    uint64_t *bytes)
{
	*own = NULL;
	for (uint32_t k = c->n; k-- > 0;) {
		const struct gw_patch_file *f = gw_patch_find_file(c->patches[k].pt, file);
		const struct gw_patch_carried *t = f && carried ? find_carried(f, carried) : NULL;

		if (!f || f->kind == GW_PATCH_GONE)
			return gw_diag_set(c->why, GW_EBASE, "%s: %s is not in the version before", c->patches[k].name, file);
		/* What a patch takes over as carried may have been served in the version before. */
		if (carried && !t)
			return gw_chain_tensor(c, carried, k + 1, own, p, bytes);
		*bytes = t ? t->bytes : f->bytes;
		if (t ? t->fresh : f->fresh)
			return whole_blob(c, k, t ? &t->blob : &f->blob, t ? t->digest : f->digest, own, p);
	}
	return base_stored(c, file, carried, p, bytes);
}

/* --- whether it is a chain ---------------------------------------------------------------------- */

static int check_prints(struct gw_chain *c, uint32_t k)
{
	struct gw_patch_info a, b;
	char to[GW_PRINT_TEXT], from[GW_PRINT_TEXT];

	gw_patch_info(c->patches[k - 1].pt, &a);
	gw_patch_info(c->patches[k].pt, &b);
	if (!b.anchor && a.to_print[0] == b.from_print[0] && a.to_print[1] == b.from_print[1])
		return 0;
	if (b.anchor)
		return gw_diag_set(c->why, GW_EBASE, "%s: a patch from nothing cannot follow another", c->patches[k].name);
	gw_print_text(to, a.to_print);
	gw_print_text(from, b.from_print);
	return gw_diag_set(c->why, GW_EBASE, "%s starts from %s, but %s before it ends in %s: not a chain",
			   c->patches[k].name, from, c->patches[k - 1].name, to);
}

/* A file whose bytes patch k takes over: they are what the version before has. k = 0: the base. */
static int check_file(struct gw_chain *c, uint32_t k, const struct gw_patch_file *f)
{
	const struct gw_patch_file *was = k ? gw_patch_find_file(c->patches[k - 1].pt, f->name) : NULL;
	uint8_t digest[GW_FILE_DIGEST_BYTES];
	const uint8_t *p;
	uint64_t bytes;

	if (f->kind == GW_PATCH_GONE || f->fresh)
		return 0;
	if (k) {
		if (was && was->kind == f->kind && was->bytes == f->bytes && !memcmp(was->digest, f->digest, sizeof digest))
			return 0;
		return gw_diag_set(c->why, GW_EBASE, "%s takes over %s, but %s before it ends in another: not a chain",
				   c->patches[k].name, f->name, c->patches[k - 1].name);
	}
	if (base_stored(c, f->name, NULL, &p, &bytes))
		return GW_EBASE;
	gw_hash_of(p, bytes == f->bytes ? bytes : 0, digest, sizeof digest);
	if (bytes == f->bytes && !memcmp(digest, f->digest, sizeof digest))
		return 0;
	return gw_diag_set(c->why, GW_EBASE, "%s: %s has other bytes than %s says", gw_checkpoint_path(c->base), f->name,
			   c->patches[0].name);
}

int gw_chain_check(struct gw_chain *c)
{
	struct gw_patch_info info;
	int err = 0;

	for (uint32_t k = 0; !err && k < c->n; k++) {
		gw_patch_info(c->patches[k].pt, &info);
		if (k)
			err = check_prints(c, k);
		else if (info.anchor != !c->base)
			err = gw_diag_set(c->why, c->base ? GW_EBASE : GW_EINVAL,
					  c->base ? "%s is a patch from nothing: it takes no base" : "%s needs the base it changes",
					  c->patches[0].name);
		for (uint32_t i = 0; !err && i < info.files; i++)
			err = check_file(c, k, gw_patch_file(c->patches[k].pt, i));
	}
	return err;
}
