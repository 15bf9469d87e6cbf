#include "godwit.h"

#include <stdlib.h>
#include <string.h>

#include "patch/fingerprint.h"
#include "patch/patch.h"
#include "patch/scan.h"

struct godwit_tile {
	const struct gw_patch_tensor *tensor;
	const struct bench_tensor *base;
	uint64_t *lane;
	struct gw_hot **hot;
	uint32_t tile;
};

struct godwit_worker {
	struct gw_tile_decoder *decoder;
	uint8_t *old;
	uint64_t *index;
};

/* One run of decoding. */
struct decoding {
	struct godwit *g;
	struct gw_pool *pool;
	enum godwit_decode how;
	uint8_t *model;
};

int godwit_init(struct godwit *g, const struct bench_pair *p, unsigned width)
{
	int err = 0;

	memset(g, 0, sizeof *g);
	g->pair = p;
	g->width = width;
	bench_memfs_init(&g->file);
	g->workers = calloc(width, sizeof *g->workers);
	if (!g->workers)
		return GW_ENOMEM;
	for (unsigned i = 0; i < width && !err; i++) {
		g->workers[i].old = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		g->workers[i].index = malloc(GW_TILE_ELEMENTS_MAX * sizeof(uint64_t));
		err = g->workers[i].old && g->workers[i].index ? gw_tile_decoder_new(&g->workers[i].decoder)
							       : GW_ENOMEM;
	}
	return err;
}

static void cool(struct godwit *g)
{
	struct gw_patch_info info;

	if (!g->patch || !g->hot)
		return;
	gw_patch_info(g->patch, &info);
	for (uint32_t i = 0; i < info.tensors; i++) {
		gw_hot_free(g->hot[i]);
		g->hot[i] = NULL;
	}
}

static void shut(struct godwit *g)
{
	cool(g);
	free(g->hot);
	g->hot = NULL;
	gw_patch_close(g->patch);
	free(g->tiles);
	free(g->lanes);
	g->patch = NULL;
	g->tiles = NULL;
	g->lanes = NULL;
	g->tile_count = 0;
}

void godwit_free(struct godwit *g)
{
	shut(g);
	for (unsigned i = 0; g->workers && i < g->width; i++) {
		gw_tile_decoder_free(g->workers[i].decoder);
		free(g->workers[i].old);
		free(g->workers[i].index);
	}
	free(g->workers);
	bench_memfs_free(&g->file);
}

/* --- encoding --------------------------------------------------------------------------------------------- */

struct encoding {
	struct godwit *g;
	struct gw_pool *pool;
};

static int encode(void *ctx)
{
	static const struct gw_diff_options options = {.replace = 1};
	struct encoding *e = ctx;
	struct godwit *g = e->g;

	return gw_diff(g->pair->a, g->pair->b, &g->file.fs, e->pool, &options, "patch", &g->report, &g->why);
}

int godwit_encode(struct godwit *g, struct gw_pool *pool, int runs, struct bench_time *t)
{
	struct encoding e = {g, pool};

	shut(g);
	return bench_median(t, runs, NULL, encode, &e);
}

/* --- decoding --------------------------------------------------------------------------------------------- */

static const struct bench_tensor *base_of(const struct bench_pair *p, const char *name)
{
	uint32_t low = 0, high = p->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(name, p->tensors[middle].old->name);

		if (!order)
			return &p->tensors[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

int godwit_open(struct godwit *g)
{
	struct gw_patch_info info;
	size_t n = 0;
	int err;

	shut(g);
	err = gw_patch_open(&g->patch, g->file.p, g->file.n, &g->why);
	if (err)
		return err;
	gw_patch_info(g->patch, &info);
	for (uint32_t i = 0; i < info.tensors; i++)
		n += gw_patch_tensor(g->patch, i)->tiles;
	g->tiles = calloc(n + 1, sizeof *g->tiles);
	g->lanes = calloc((size_t)info.tensors + 1, sizeof *g->lanes);
	g->hot = calloc((size_t)info.tensors + 1, sizeof *g->hot);
	if (!g->tiles || !g->lanes || !g->hot)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(g->patch, i);
		const struct bench_tensor *base = base_of(g->pair, t->name);

		if (!base || t->kind != GW_TENSOR_CHANGED)
			return GW_EUNSUP; /* nothing of the kind in pairs that are measured */
		for (uint32_t k = 0; k < t->tiles; k++)
			g->tiles[g->tile_count++] = (struct godwit_tile){t, base, g->lanes[i], &g->hot[i], k};
	}
	return 0;
}

/* Places of a tile's changes in the tensor; changes come in rising order. */
static void to_tensor(const struct gw_tile_rect *r, const struct gw_tile_changes *c, uint64_t *index)
{
	uint64_t row = 0, end = r->cols, start = r->row0 * r->tensor_cols + r->col0;

	for (size_t i = 0; i < c->n; i++) {
		if (c->at[i] >= end) {
			row = c->at[i] / r->cols;
			end = (row + 1) * r->cols;
			start = (r->row0 + row) * r->tensor_cols + r->col0;
		}
		index[i] = start + c->at[i] - (end - r->cols);
	}
}

static void store(uint8_t *tensor, unsigned width, const uint64_t *index, const struct gw_tile_changes *c)
{
	for (size_t i = 0; i < c->n && width == 2; i++)
		memcpy(tensor + 2 * index[i], c->new_bits + 2 * i, 2);
	for (size_t i = 0; i < c->n && width != 2; i++)
		memcpy(tensor + width * index[i], c->new_bits + width * i, width);
}

static int decode_tile(void *arg, size_t i, unsigned worker)
{
	struct decoding *d = arg;
	const struct godwit_tile *t = &d->g->tiles[i];
	struct godwit_worker *w = &d->g->workers[worker];
	uint8_t *in_place = d->how == GODWIT_IN_PLACE ? d->model + t->base->first : NULL;
	const uint8_t *old = in_place ? in_place : t->base->old->p;
	unsigned width = t->tensor->width;
	struct gw_tile_changes c;
	struct gw_tile_rect r;
	int err;

	gw_tiling_rect(&t->tensor->tiling, t->tile, &r);
	err = gw_tile_decode(w->decoder, d->g->patch, t->tensor, t->tile, gw_tile_gather(old, width, &r, w->old),
			     *t->hot, &c);
	if (err || d->how == GODWIT_LIST)
		return err;
	to_tensor(&r, &c, w->index);
	if (in_place) {
		store(in_place, width, w->index, &c);
	} else {
		uint64_t lane[2] = {0, 0};

		gw_print_update(lane, width, w->index, c.old_bits, c.new_bits, c.n);
		(void)__atomic_fetch_add(&t->lane[0], lane[0], __ATOMIC_RELAXED);
		(void)__atomic_fetch_add(&t->lane[1], lane[1], __ATOMIC_RELAXED);
	}
	return 0;
}

static void before_decode(void *ctx)
{
	struct decoding *d = ctx;
	struct gw_patch_info info;

	gw_patch_info(d->g->patch, &info);
	memset(d->g->lanes, 0, info.tensors * sizeof *d->g->lanes);
	if (d->how == GODWIT_IN_PLACE)
		bench_pair_old(d->g->pair, d->model);
}

/* What companions change, which is decoded first. */
static int heat(struct godwit *g)
{
	struct gw_patch_info info;
	int err = 0;

	cool(g);
	gw_patch_info(g->patch, &info);
	for (uint32_t i = 0; !err && i < info.tensors; i++) {
		const struct gw_patch_tensor *c = gw_patch_tensor(g->patch, i)->companion;

		if (c)
			err = gw_patch_hot(g->workers[0].decoder, g->patch, c, base_of(g->pair, c->name)->old->p, &g->hot[i]);
	}
	return err;
}

static int decode(void *ctx)
{
	struct decoding *d = ctx;
	int err = heat(d->g);

	return err ? err : d->pool->run(d->pool, d->g->tile_count, decode_tile, d);
}

static int verify(const struct decoding *d)
{
	struct gw_patch_info info;

	gw_patch_info(d->g->patch, &info);
	for (uint32_t i = 0; i < info.tensors && d->how == GODWIT_PRINTS; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(d->g->patch, i);

		for (int k = 0; k < 2; k++)
			if (t->print_old[k] + d->g->lanes[i][k] != t->print_new[k])
				return GW_EFINGERPRINT;
	}
	return d->how == GODWIT_IN_PLACE && !bench_pair_is_new(d->g->pair, d->model) ? GW_EDIGEST : 0;
}

int godwit_decode(struct godwit *g, struct gw_pool *pool, enum godwit_decode how, int runs, uint8_t *model,
		  struct bench_time *t)
{
	struct decoding d = {g, pool, how, model};
	int err = bench_median(t, runs, before_decode, decode, &d);

	return err ? err : verify(&d);
}
