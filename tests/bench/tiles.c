#include "tiles.h"

#include <stdlib.h>
#include <string.h>

#include "patch/coder.h"
#include "patch/tile.h"
#include "weights/slicing.h"

enum { SAMPLE_ONE_IN = 16, SAMPLE_LEAST = 64 };

struct tile {
	const struct bench_tensor *tensor;
	struct gw_tile_rect rect;
};

struct tiling {
	struct tile *tiles;
	size_t count;
	enum gw_dtype dtype;
	struct gw_changes_buf changes;
	struct gw_coder *coder;
	struct gw_model *model;
	uint8_t *old, *out;
	uint64_t bytes;
};

static int add_tensor(struct tiling *t, const struct bench_tensor *b)
{
	const struct gw_tensor *n = b->new_;
	struct gw_tiling g;
	struct tile *grown;
	int err = gw_tiling_init(&g, b->dtype, n->rank, n->shape, gw_slicing_axis(n->name, n->rank, n->shape));

	if (err)
		return err;
	grown = realloc(t->tiles, (t->count + g.count + 1) * sizeof *t->tiles);
	if (!grown)
		return GW_ENOMEM;
	t->tiles = grown;
	for (uint32_t i = 0; i < g.count; i++) {
		t->tiles[t->count].tensor = b;
		gw_tiling_rect(&g, i, &t->tiles[t->count++].rect);
	}
	return 0;
}

/* The changes of a tile, and where its old bits lie. */
static const uint8_t *compare(struct tiling *t, size_t i, struct gw_tile_changes *c)
{
	const struct tile *tile = &t->tiles[i];
	const struct bench_tensor *b = tile->tensor;

	gw_scan_tile(&t->changes, b->old->p, b->new_->p, b->width, &tile->rect, c);
	return gw_tile_gather(b->old->p, b->width, &tile->rect, t->old);
}

static uint32_t elements(const struct tiling *t, size_t i)
{
	return (uint32_t)(t->tiles[i].rect.rows * t->tiles[i].rect.cols);
}

static int learn(void *ctx)
{
	struct tiling *t = ctx;
	size_t step = t->count >= (size_t)SAMPLE_LEAST * SAMPLE_ONE_IN ? SAMPLE_ONE_IN : t->count / SAMPLE_LEAST + 1;
	struct gw_tile_changes c;
	struct gw_sample *s;
	int err = gw_sample_new(&s, t->dtype);

	if (err)
		return err;
	for (size_t i = 0; i < t->count; i += step) {
		const uint8_t *old = compare(t, i, &c);

		gw_model_see(s, old, elements(t, i), NULL, &c);
	}
	gw_model_plan(s);
	for (size_t i = 0; i < t->count; i += step) {
		const uint8_t *old = compare(t, i, &c);

		gw_model_learn(t->coder, s, old, elements(t, i), NULL, &c);
	}
	gw_model_free(t->model);
	t->model = NULL;
	err = gw_model_make(&t->model, s);
	gw_sample_free(s);
	return err;
}

static int code(void *ctx)
{
	struct tiling *t = ctx;
	struct gw_tile_changes c;

	t->bytes = 0;
	for (size_t i = 0; i < t->count; i++) {
		const uint8_t *old = compare(t, i, &c);
		size_t raw = (size_t)elements(t, i) * t->tiles[i].tensor->width, n;

		if (!c.n)
			continue;
		n = gw_tile_code(t->coder, t->model, old, elements(t, i), NULL, &c, t->out, raw);
		t->bytes += n ? n : raw;
	}
	return 0;
}

int tiles_measure(const struct bench_pair *p, enum gw_dtype dtype, int runs, struct tiles_result *out)
{
	struct tiling t = {.dtype = dtype};
	int err = gw_changes_buf_init(&t.changes);

	memset(out, 0, sizeof *out);
	t.old = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
	t.out = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
	if (!err)
		err = t.old && t.out ? gw_coder_new(&t.coder) : GW_ENOMEM;
	for (uint32_t i = 0; i < p->count && !err; i++)
		if (p->tensors[i].dtype == dtype)
			err = add_tensor(&t, &p->tensors[i]);
	if (!err)
		err = bench_median(&out->learn, runs, NULL, learn, &t);
	if (!err && t.model)
		err = bench_median(&out->code, runs, NULL, code, &t);
	out->bytes = t.bytes;
	gw_model_free(t.model);
	gw_coder_free(t.coder);
	gw_changes_buf_free(&t.changes);
	free(t.tiles);
	free(t.old);
	free(t.out);
	return err;
}
