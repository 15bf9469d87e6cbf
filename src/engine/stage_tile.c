#include "engine/stage_tile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/map.h"
#include "patch/fingerprint.h"

/* A position of the tile that a staged list names, and what memory holds there. */
struct gw_staged_place {
	uint32_t at;
	uint8_t old_bits[8];
};

static_assert((int)GW_PATCH_CHUNK >= (int)GW_TILE_ELEMENTS_MAX, "scratch for chunks is enough for tiles");

int gw_stage_worker_init(struct gw_stage_worker *w)
{
	const size_t elements = GW_PATCH_CHUNK; /* of a chunk of bytes; a tile has fewer */

	memset(w, 0, sizeof *w);
	w->view = malloc(GW_STAGE_TILE_BYTES);
	w->gather = malloc(GW_STAGE_TILE_BYTES);
	w->index = malloc(elements * sizeof *w->index);
	w->at = malloc(elements * sizeof *w->at);
	w->old_bits = malloc(GW_PATCH_CHUNK);
	w->new_bits = malloc(GW_PATCH_CHUNK);
	if (!w->view || !w->gather || !w->index || !w->at || !w->old_bits || !w->new_bits ||
	    gw_tile_decoder_new(&w->decoder)) {
		gw_stage_worker_free(w);
		return GW_ENOMEM;
	}
	return 0;
}

void gw_stage_worker_free(struct gw_stage_worker *w)
{
	gw_tile_decoder_free(w->decoder);
	free(w->view);
	free(w->gather);
	free(w->places);
	free(w->index);
	free(w->at);
	free(w->old_bits);
	free(w->new_bits);
	memset(w, 0, sizeof *w);
}

struct gathering {
	const struct gw_stage_tile *t;
	struct gw_stage_worker *w;
	uint32_t rank;
	struct gw_dev_window piece;
};

static int note_place(void *ctx, uint64_t at, const uint8_t *old_bits, const uint8_t *new_bits)
{
	struct gathering *g = ctx;
	const struct gw_tile_rect *rect = &g->t->rect;
	struct gw_stage_worker *w = g->w;
	struct gw_staged_place p = {0};
	unsigned width = g->t->tensor->width;
	uint64_t element;
	uint8_t *here;

	if (!gw_window_element(&g->piece, at, &element))
		return 0;
	p.at = (uint32_t)((element / rect->tensor_cols - rect->row0) * rect->cols + element % rect->tensor_cols -
			  rect->col0);
	here = w->view + (size_t)p.at * width;
	if (memcmp(here, old_bits, width) != 0)
		return GW_EBASE;
	memcpy(p.old_bits, old_bits, width);
	memcpy(here, new_bits, width);
	if (w->place_n == w->place_cap) {
		size_t cap = w->place_cap ? w->place_cap * 2 : 1024;
		struct gw_staged_place *v = reallocarray(w->places, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		w->places = v;
		w->place_cap = cap;
	}
	w->places[w->place_n++] = p;
	return 0;
}

static int gather_piece(void *ctx, const struct gw_dev_window *piece, uint64_t tile_at)
{
	struct gathering *g = ctx;
	const struct gw_rank_mem *m = &g->t->stage->ranks[g->rank];
	unsigned width = g->t->tensor->width;
	uint8_t *to = g->w->view + tile_at * width;
	int straight = piece->rows == 1 || piece->cols == g->t->rect.cols;
	uint8_t *got = straight ? to : g->w->gather;
	uint64_t first, last;
	int err = m->dev.ops->gather(m->dev.dev, piece, m->mem, m->segments, got);

	if (err)
		return err;
	if (!straight)
		for (uint64_t r = 0; r < piece->rows; r++)
			memcpy(to + r * g->t->rect.cols * width, got + r * piece->cols * width, piece->cols * width);
	if (!g->t->over)
		return 0;
	g->piece = *piece;
	gw_window_bytes(piece, &first, &last);
	return gw_overlay_records(&g->t->over[g->rank], piece->segment, first, last, note_place, g);
}

static int by_position(const void *a, const void *b)
{
	const struct gw_staged_place *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* The tile as the base of the patch has it, from the counted parts, and the staged places in it. */
static int gather_tile(const struct gw_stage_tile *t, struct gw_stage_worker *w)
{
	struct gathering g = {.t = t, .w = w};

	w->place_n = 0;
	if (t->only) {
		memset(w->view, 0, t->rect.rows * t->rect.cols * t->tensor->width);
		g.rank = t->only->rank;
		return gw_window_in_tile(&t->only->w, &t->rect, gather_piece, &g);
	}
	for (size_t i = 0; i < t->tensor->part_n; i++) {
		const struct gw_plan_part *p = &t->tensor->parts[i];
		int err;

		if (p->owner >= 0)
			continue;
		g.rank = p->rank;
		err = gw_window_in_tile(&p->w, &t->rect, gather_piece, &g);
		if (err)
			return err;
	}
	if (w->place_n > 1)
		qsort(w->places, w->place_n, sizeof *w->places, by_position);
	return 0;
}

/* A chunk of a WHOLE tensor: whatever differs from the view changes. */
static int diff_chunk(const struct gw_stage_tile *t, struct gw_stage_worker *w, struct gw_tile_changes *c, uint64_t lane[2])
{
	unsigned width = t->tensor->width;
	const uint8_t *p;
	size_t bytes;
	int err = gw_blob_chunk(w->decoder, t->stage->patch, &t->patch->blob, t->tile, &p, &bytes);

	if (err)
		return err;
	if (bytes != t->rect.rows * t->rect.cols * width)
		return GW_EMALFORMED;
	gw_print_run(lane, width, (uint64_t)t->tile * GW_PATCH_CHUNK / width, p, bytes / width);
	c->n = 0;
	for (size_t i = 0; i < bytes / width; i++) {
		if (memcmp(p + i * width, w->view + i * width, width) == 0)
			continue;
		w->at[c->n] = (uint32_t)i;
		memcpy(w->old_bits + c->n * width, w->view + i * width, width);
		memcpy(w->new_bits + c->n * width, p + i * width, width);
		c->n++;
	}
	c->at = w->at;
	c->old_bits = w->old_bits;
	c->new_bits = w->new_bits;
	return 0;
}

static int decode(const struct gw_stage_tile *t, struct gw_stage_worker *w, struct gw_tile_changes *c, uint64_t lane[2])
{
	int err;

	memset(c, 0, sizeof *c);
	if (!t->patch)
		return 0;
	if (t->patch->kind == GW_TENSOR_WHOLE)
		return diff_chunk(t, w, c, lane);
	err = gw_tile_decode(w->decoder, t->stage->patch, t->patch, t->tile, w->view, t->hot, c);
	if (err)
		return err;
	for (size_t i = 0; i < c->n; i++)
		w->index[i] = gw_tile_element(&t->rect, c->at[i]);
	gw_print_update(lane, t->tensor->width, w->index, c->old_bits, c->new_bits, c->n);
	return 0;
}

static void emit(const struct gw_stage_tile *t, struct gw_stage_result *out, uint32_t at, const uint8_t *old_bits,
		 const uint8_t *new_bits)
{
	unsigned width = t->tensor->width;

	if (memcmp(old_bits, new_bits, width) == 0)
		return;
	out->elements[out->n] = gw_tile_element(&t->rect, at);
	memcpy(out->old_bits + out->n * width, old_bits, width);
	memcpy(out->new_bits + out->n * width, new_bits, width);
	out->n++;
}

/* From what memory holds (staged places tell it) to what the patch says. Both are in rising order. */
static void merge(const struct gw_stage_tile *t, const struct gw_stage_worker *w, const struct gw_tile_changes *c,
		  struct gw_stage_result *out)
{
	unsigned width = t->tensor->width;
	size_t i = 0, k = 0;

	while (i < w->place_n || k < c->n) {
		const struct gw_staged_place *p = &w->places[i];

		if (k == c->n || (i < w->place_n && p->at < c->at[k])) {
			emit(t, out, p->at, p->old_bits, w->view + (size_t)p->at * width);
			i++;
		} else if (i == w->place_n || c->at[k] < p->at) {
			emit(t, out, c->at[k], c->old_bits + k * width, c->new_bits + k * width);
			k++;
		} else {
			emit(t, out, p->at, p->old_bits, c->new_bits + k * width);
			i++;
			k++;
		}
	}
}

int gw_stage_tile_run(const struct gw_stage_tile *t, struct gw_stage_worker *w, struct gw_stage_result *out)
{
	struct gw_tile_changes c;
	size_t n;
	int err;

	memset(out, 0, sizeof *out);
	err = gather_tile(t, w);
	if (!err)
		err = decode(t, w, &c, out->lane);
	if (err)
		return err;
	n = c.n + w->place_n;
	if (n == 0)
		return 0;
	out->block = malloc(n * (sizeof *out->elements + 2 * (size_t)t->tensor->width));
	if (!out->block)
		return GW_ENOMEM;
	out->elements = out->block;
	out->old_bits = (uint8_t *)(out->elements + n);
	out->new_bits = out->old_bits + n * t->tensor->width;
	merge(t, w, &c, out);
	return 0;
}

int gw_stage_tile_hot(const struct gw_stage_tile *t, struct gw_stage_worker *w, struct gw_hot *hot)
{
	struct gw_tile_changes c;
	uint64_t lane[2] = {0, 0};
	int err = gather_tile(t, w);

	if (!err)
		err = decode(t, w, &c, lane);
	for (size_t i = 0; !err && i < c.n; i++)
		gw_hot_add(hot, gw_tile_element(&t->rect, c.at[i]));
	return err;
}
