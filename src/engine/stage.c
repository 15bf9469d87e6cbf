#include "engine/stage.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/map.h"
#include "engine/stage_tile.h"

enum { BATCH_PER_WORKER = 4 };

struct staging {
	struct gw_stage *s;
	uint32_t ranks;
	struct gw_list_build **builds; /* one a rank */
	struct gw_overlay *over;       /* one a rank, or NULL */
	struct gw_pool pool;           /* serial where the devices are not row 0 */
	struct gw_stage_worker *workers;
	const struct gw_plan_window *only; /* the window that is staged by itself, or NULL: all that hold a change */
	/* the batch at hand */
	struct gw_stage_tile *tiles;
	struct gw_stage_result *results;
	size_t batch_max;
	/* scratch of put */
	struct change *put;
	size_t put_cap;
	uint64_t *put_at;
	uint8_t *put_old, *put_new;
};

/* --- what may not be patched in place --- */

static int same_everywhere(const struct gw_stage *s, const struct gw_patch_tensor *p)
{
	const struct gw_table_row *r = s->base ? gw_table_find(s->base, p->name) : NULL;

	return p->kind == GW_TENSOR_WHOLE && !s->unknown && r && gw_table_row_is(r, p->dtype, p->rank, p->shape) &&
	       r->print[0] == p->print_new[0] && r->print[1] == p->print_new[1];
}

static int check_patched(const struct gw_stage *s, struct gw_refusal *no)
{
	struct gw_patch_info info;

	gw_patch_info(s->patch, &info);
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *p = gw_patch_tensor(s->patch, i);
		const struct gw_plan_tensor *t = gw_plan_find(s->plan, p->name);
		enum gw_opaque_reason why = t ? t->opaque : GW_OPAQUE_UNMAPPED;

		if (why == GW_OPAQUE_NONE || why == GW_OPAQUE_UNUSED || same_everywhere(s, p))
			continue;
		return gw_refuse(no, GW_EOPAQUE, p->name,
				 "tensor %s changes in version %llu and cannot be patched in place: %s; the engine must reload",
				 p->name, (unsigned long long)s->to, gw_opaque_text(why));
	}
	return 0;
}

/* Every mapped tensor is there after the patch, as the engine holds it. */
static int check_kept(const struct gw_stage *s, struct gw_refusal *no)
{
	for (uint32_t i = 0; i < gw_plan_tensors(s->plan); i++) {
		const struct gw_plan_tensor *t = gw_plan_tensor(s->plan, i);
		const struct gw_table_row *r = gw_table_find(s->table, t->name);

		if (t->opaque != GW_OPAQUE_NONE || (r && gw_table_row_is(r, t->dtype, t->dims, t->shape)))
			continue;
		return gw_refuse(no, GW_EOPAQUE, t->name, "tensor %s %s in version %llu; the engine must reload", t->name,
				 r ? "has another dtype or shape" : "is gone", (unsigned long long)s->to);
	}
	return 0;
}

/* --- lists --- */

struct change {
	uint64_t at;
	const uint8_t *old_bits, *new_bits;
};

static int by_address(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int put_room(struct staging *g, size_t n)
{
	size_t cap = n < 4096 ? 4096 : n;

	if (n <= g->put_cap)
		return 0;
	free(g->put);
	free(g->put_at);
	free(g->put_old);
	free(g->put_new);
	g->put = calloc(cap, sizeof *g->put);
	g->put_at = calloc(cap, sizeof *g->put_at);
	g->put_old = calloc(cap, 8);
	g->put_new = calloc(cap, 8);
	g->put_cap = g->put && g->put_at && g->put_old && g->put_new ? cap : 0;
	return g->put_cap ? 0 : GW_ENOMEM;
}

/* The changes that window w holds, as records of its rank's list. */
static int put_window(struct staging *g, const struct gw_plan_window *pw, const struct gw_stage_result *r)
{
	const struct gw_dev_window *w = &pw->w;
	uint64_t first, last;
	int sorted = 1;
	size_t n = 0;

	gw_window_span(w, &first, &last);
	if (r->n == 0 || r->elements[r->n - 1] < first || r->elements[0] > last)
		return 0;
	for (size_t i = 0; i < r->n; i++) {
		struct change *c = &g->put[n];

		if (!gw_window_place(w, r->elements[i], &c->at))
			continue;
		c->old_bits = r->old_bits + i * w->width;
		c->new_bits = r->new_bits + i * w->width;
		sorted &= n == 0 || c->at > c[-1].at;
		n++;
	}
	if (n == 0)
		return 0;
	if (!sorted) /* a transpose */
		qsort(g->put, n, sizeof *g->put, by_address);
	for (size_t i = 0; i < n; i++) {
		g->put_at[i] = g->put[i].at;
		memcpy(g->put_old + i * w->width, g->put[i].old_bits, w->width);
		memcpy(g->put_new + i * w->width, g->put[i].new_bits, w->width);
	}
	g->s->records += n;
	return gw_list_add(g->builds[pw->rank], w->segment, w->width, g->put_at, g->put_old, g->put_new, n);
}

static int put_result(struct staging *g, const struct gw_plan_tensor *t, const struct gw_stage_result *r)
{
	int err = put_room(g, r->n);

	if (!err && g->only)
		return put_window(g, g->only, r);
	for (size_t i = 0; !err && i < t->window_n; i++)
		err = put_window(g, &t->windows[i], r);
	return err;
}

/* --- tensors --- */

static int run_tile(void *arg, size_t i, unsigned worker)
{
	struct staging *g = arg;

	return gw_stage_tile_run(&g->tiles[i], &g->workers[worker], &g->results[i]);
}

/* n tiles side by side, then their changes into the lists, in order. */
static int run_batch(struct staging *g, const struct gw_plan_tensor *t, size_t n, uint64_t lane[2])
{
	int err;

	memset(g->results, 0, n * sizeof *g->results);
	err = g->pool.run(&g->pool, n, run_tile, g);
	for (size_t i = 0; i < n; i++) {
		if (!err)
			err = put_result(g, t, &g->results[i]);
		lane[0] += g->results[i].lane[0];
		lane[1] += g->results[i].lane[1];
		free(g->results[i].block);
	}
	return err;
}

/* Chunk i of a WHOLE tensor as a rectangle: rows of the parts' length where it is cut so, else one long row. */
static void chunk_rect(const struct gw_plan_tensor *t, uint32_t i, struct gw_tile_rect *r)
{
	uint64_t per = GW_PATCH_CHUNK / t->width, first = (uint64_t)i * per, n = gw_min_u64(per, t->elements - first);
	uint64_t cols = t->part_n ? t->parts[0].w.tensor_cols : t->elements;

	if (first % cols == 0 && n % cols == 0)
		*r = (struct gw_tile_rect){.row0 = first / cols, .rows = n / cols, .cols = cols, .tensor_cols = cols};
	else
		*r = (struct gw_tile_rect){.rows = 1, .col0 = first, .cols = n, .tensor_cols = t->elements};
}

static int finished_lane(const struct staging *g, const struct gw_patch_tensor *p, const uint64_t lane[2],
			 struct gw_refusal *no)
{
	uint64_t want[2] = {p->print_new[0], p->print_new[1]};

	if (p->kind == GW_TENSOR_CHANGED) { /* the tiles say what is added to the old one */
		want[0] -= p->print_old[0];
		want[1] -= p->print_old[1];
	}
	if (want[0] == lane[0] && want[1] == lane[1])
		return 0;
	return gw_refuse(no, GW_EFINGERPRINT, p->name,
			 "tensor %s: what the patch makes of the resident bits is not what it promises for version %llu",
			 p->name, (unsigned long long)g->s->to);
}

/* A tile that neither the patch nor a staged list changes needs no reading. */
static int left_alone(const struct staging *g, const struct gw_patch_tensor *p, uint32_t tile)
{
	return p && !g->over && gw_tile_mode(g->s->patch, p, tile) == GW_MODE_NONE;
}

/* What the patch changes of p's companion, which is held as the tensor itself is. */
static int hot_of(struct staging *g, const struct gw_patch_tensor *p, struct gw_hot **hot, struct gw_refusal *no)
{
	const struct gw_patch_tensor *c = p ? p->companion : NULL;
	const struct gw_plan_tensor *t = c ? gw_plan_find(g->s->plan, c->name) : NULL;
	int err;

	*hot = NULL;
	if (!c)
		return 0;
	if (!t || t->opaque != GW_OPAQUE_NONE)
		return gw_refuse(no, GW_EOPAQUE, p->name,
				 "tensor %s cannot be decoded: the engine does not hold %s, on which it depends", p->name,
				 c->name);
	err = gw_hot_new(hot, c->elements);
	for (uint32_t i = 0; !err && i < c->tiles; i++) {
		struct gw_stage_tile tile = {.stage = g->s, .over = g->over, .tensor = t, .patch = c, .tile = i};

		if (gw_tile_mode(g->s->patch, c, i) == GW_MODE_NONE)
			continue;
		gw_tiling_rect(&c->tiling, i, &tile.rect);
		err = gw_stage_tile_hot(&tile, &g->workers[0], *hot);
	}
	return err ? gw_refuse(no, err, c->name, "tensor %s: %s", c->name, gw_err_text(err)) : 0;
}

static int run_tiles(struct staging *g, const struct gw_plan_tensor *t, const struct gw_patch_tensor *p,
		     const struct gw_hot *hot, struct gw_refusal *no)
{
	int whole = p && p->kind == GW_TENSOR_WHOLE;
	struct gw_tiling tiling;
	uint32_t tiles;
	uint64_t lane[2] = {0, 0};
	size_t n = 0;
	int err = 0;

	if (t->elements == 0)
		return 0;
	if (p && !whole)
		tiling = p->tiling;
	else if (!whole)
		err = gw_tiling_init(&tiling, t->dtype, t->dims, t->shape, 0);
	if (err)
		return gw_refuse(no, err, t->name, "tensor %s: %s", t->name, gw_err_text(err));
	tiles = whole ? p->blob.chunks : tiling.count;
	for (uint32_t i = 0; !err && i < tiles; i++) {
		if (whole || !left_alone(g, p, i)) {
			struct gw_stage_tile *tile = &g->tiles[n++];

			*tile = (struct gw_stage_tile){.stage = g->s, .over = g->over, .tensor = t,
						       .only = g->only, .patch = p, .hot = hot, .tile = i};
			if (whole)
				chunk_rect(t, i, &tile->rect);
			else
				gw_tiling_rect(&tiling, i, &tile->rect);
		}
		if (n == g->batch_max || (n > 0 && i + 1 == tiles)) {
			err = run_batch(g, t, n, lane);
			n = 0;
		}
	}
	if (err)
		return gw_refuse(no, err, t->name, "tensor %s: %s", t->name, gw_err_text(err));
	return p ? finished_lane(g, p, lane, no) : 0;
}

static int run_tensor(struct staging *g, const struct gw_plan_tensor *t, const struct gw_patch_tensor *p,
		      struct gw_refusal *no)
{
	struct gw_hot *hot;
	int err = hot_of(g, p, &hot, no);

	if (!err)
		err = run_tiles(g, t, p, hot, no);
	gw_hot_free(hot);
	return err;
}

static int staged_places(const struct staging *g, const struct gw_plan_tensor *t)
{
	for (size_t i = 0; g->over && i < t->part_n; i++) {
		const struct gw_plan_part *p = &t->parts[i];
		uint64_t first, last;

		gw_window_bytes(&p->w, &first, &last);
		if (gw_overlay_touches(&g->over[p->rank], p->w.segment, first, last))
			return 1;
	}
	return 0;
}

/* Where nobody knows what memory holds, copies may differ from their owners: each window is compared by itself. */
static int run_windows(struct staging *g, const struct gw_plan_tensor *t, const struct gw_patch_tensor *p,
		       struct gw_refusal *no)
{
	int err = 0;

	if (!g->s->unknown)
		return run_tensor(g, t, p, no);
	for (size_t i = 0; !err && i < t->window_n; i++) {
		g->only = &t->windows[i];
		err = run_tensor(g, t, p, no);
	}
	g->only = NULL;
	return err;
}

static int run_tensors(struct staging *g, struct gw_refusal *no)
{
	const struct gw_stage *s = g->s;

	for (uint32_t i = 0; i < gw_plan_tensors(s->plan); i++) {
		const struct gw_plan_tensor *t = gw_plan_tensor(s->plan, i);
		const struct gw_patch_tensor *p = gw_patch_find(s->patch, t->name);
		int err;

		if (t->opaque != GW_OPAQUE_NONE || (!p && !staged_places(g, t)))
			continue;
		err = run_windows(g, t, p, no);
		if (err)
			return err;
	}
	return 0;
}

/* --- all of it --- */

static int make_lists(struct staging *g, struct gw_refusal *no)
{
	for (uint32_t i = 0; i < g->ranks; i++) {
		struct gw_diag why = {""};
		int err = gw_list_finish(g->builds[i], &g->s->lists[i], &why);

		if (err)
			return gw_refuse(no, err, NULL, "the list of rank %u: %s", i, why.text[0] ? why.text : gw_err_text(err));
	}
	return 0;
}

static int init(struct staging *g)
{
	struct gw_stage *s = g->s;
	int err = 0;

	g->ranks = gw_plan_ranks(s->plan);
	g->pool = gw_rank_mem_parallel(s->ranks, g->ranks) ? *s->pool : gw_pool_serial();
	g->batch_max = (size_t)g->pool.width * BATCH_PER_WORKER;
	g->builds = calloc(g->ranks, sizeof *g->builds);
	g->workers = calloc(g->pool.width, sizeof *g->workers);
	g->tiles = calloc(g->batch_max, sizeof *g->tiles);
	g->results = calloc(g->batch_max, sizeof *g->results);
	if (s->over)
		g->over = calloc(g->ranks, sizeof *g->over);
	if (!g->builds || !g->workers || !g->tiles || !g->results || (s->over && !g->over))
		return GW_ENOMEM;
	for (uint32_t i = 0; !err && i < g->ranks; i++) {
		err = gw_list_build_new(&g->builds[i], s->mem[i], s->run, s->from, s->to, s->list_max_bytes);
		if (!err && s->over)
			err = gw_overlay_init(&g->over[i], s->over[i]);
	}
	for (unsigned i = 0; !err && i < g->pool.width; i++)
		err = gw_stage_worker_init(&g->workers[i]);
	return err;
}

static void fini(struct staging *g)
{
	for (uint32_t i = 0; i < g->ranks; i++) {
		if (g->builds)
			gw_list_build_free(g->builds[i]);
		if (g->over)
			gw_overlay_free(&g->over[i]);
	}
	for (unsigned i = 0; g->workers && i < g->pool.width; i++)
		gw_stage_worker_free(&g->workers[i]);
	free(g->builds);
	free(g->over);
	free(g->workers);
	free(g->tiles);
	free(g->results);
	free(g->put);
	free(g->put_at);
	free(g->put_old);
	free(g->put_new);
}

int gw_stage_run(struct gw_stage *s, struct gw_refusal *no)
{
	struct staging g = {.s = s};
	struct gw_diag why = {""};
	int err;

	memset(no, 0, sizeof *no);
	s->records = 0;
	s->table = NULL;
	err = gw_table_patched(s->base, s->patch, s->run, s->to, &s->table, &why);
	if (err)
		return gw_refuse(no, err, NULL, "%s", why.text[0] ? why.text : gw_err_text(err));
	err = check_patched(s, no);
	if (!err)
		err = check_kept(s, no);
	if (!err) {
		err = init(&g);
		if (!err)
			err = run_tensors(&g, no);
		if (!err)
			err = make_lists(&g, no);
		fini(&g);
	}
	if (err) {
		gw_refuse(no, err, NULL, "%s", gw_err_text(err));
		gw_table_free(s->table);
		s->table = NULL;
	}
	return err;
}
