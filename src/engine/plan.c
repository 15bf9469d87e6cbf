#include "engine/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/num.h"
#include "engine/decl.h"
#include "trust/manifest.h"

struct gw_plan {
	uint32_t ranks;
	struct gw_plan_tensor *tensors;
	size_t n, cap;
	struct gw_map by_name; /* to index + 1 */
	struct gw_digest digest;
};

const char *gw_opaque_text(enum gw_opaque_reason r)
{
	switch (r) {
	case GW_OPAQUE_NONE: return "mapped";
	case GW_OPAQUE_VALUES: return "the engine changes its values on load";
	case GW_OPAQUE_OPERATION: return "the engine's loader does something that is not a map";
	case GW_OPAQUE_MOVES: return "the engine moves it at run time";
	case GW_OPAQUE_UNUSED: return "the engine does not use it";
	case GW_OPAQUE_UNMAPPED: return "no rank mapped it";
	}
	return "unknown reason";
}

int gw_refuse(struct gw_refusal *no, int err, const char *tensor, const char *fmt, ...)
{
	va_list ap;

	if (!no || no->err)
		return err;
	memset(no, 0, sizeof *no);
	no->err = err;
	no->element = GW_VERSION_NONE;
	if (tensor)
		strncpy(no->tensor, tensor, GW_TABLE_NAME_MAX);
	va_start(ap, fmt);
	vsnprintf(no->why.text, sizeof no->why.text, fmt, ap);
	va_end(ap);
	return err;
}

/* --- tensors of all ranks under one name --- */

static struct gw_plan_tensor *lookup(const struct gw_plan *p, const char *name)
{
	uintptr_t i = (uintptr_t)gw_map_get(&p->by_name, name, strlen(name));

	return i ? &p->tensors[i - 1] : NULL;
}

static int mention(struct gw_plan *p, const char *name, struct gw_plan_tensor **out)
{
	struct gw_plan_tensor *t = lookup(p, name);
	int err;

	if (t) {
		*out = t;
		return 0;
	}
	err = gw_decl_room((void **)&p->tensors, p->n, &p->cap, sizeof *t, GW_PLAN_TENSORS_MAX);
	if (err)
		return err;
	t = &p->tensors[p->n];
	memset(t, 0, sizeof *t);
	t->name = strdup(name);
	if (!t->name)
		return GW_ENOMEM;
	p->n++;
	*out = t;
	return gw_map_put(&p->by_name, name, strlen(name), (void *)(uintptr_t)p->n, NULL);
}

static int merge_tensor(struct gw_plan *p, const struct gw_decl_tensor *d, uint32_t rank, struct gw_refusal *no)
{
	struct gw_plan_tensor *t;
	int err = mention(p, d->name, &t);

	if (err)
		return gw_refuse(no, err, d->name, "tensor %s: %s", d->name, gw_err_text(err));
	if (t->width && (t->dtype != d->dtype || t->dims != d->dims ||
			 memcmp(t->shape, d->shape, sizeof t->shape) != 0))
		return gw_refuse(no, GW_EINVAL, d->name, "tensor %s: rank %u declares another dtype or shape than a rank before",
				 d->name, rank);
	t->dtype = d->dtype;
	t->width = d->width;
	t->dims = d->dims;
	t->elements = d->elements;
	memcpy(t->shape, d->shape, sizeof t->shape);
	return 0;
}

static int merge_opaque(struct gw_plan *p, const struct gw_decl_opaque *o, struct gw_refusal *no)
{
	struct gw_plan_tensor *t;
	int err = mention(p, o->name, &t);

	if (err)
		return gw_refuse(no, err, o->name, "tensor %s: %s", o->name, gw_err_text(err));
	/* What one rank cannot patch, nobody can; "not used" only counts where no rank uses it. */
	if (t->opaque == GW_OPAQUE_NONE || t->opaque == GW_OPAQUE_UNUSED)
		t->opaque = o->reason;
	return 0;
}

static int add_window(struct gw_plan_tensor *t, uint32_t rank, const struct gw_dev_window *w)
{
	int err = gw_decl_room((void **)&t->windows, t->window_n, &t->window_cap, sizeof *t->windows, GW_PLAN_WINDOWS_MAX);

	if (!err)
		t->windows[t->window_n++] = (struct gw_plan_window){.rank = rank, .w = *w};
	return err;
}

static int merge(struct gw_plan *p, const struct gw_decl *d, uint32_t rank, struct gw_refusal *no)
{
	int err = 0;

	for (size_t i = 0; !err && i < d->tensor_n; i++)
		err = merge_tensor(p, &d->tensors[i], rank, no);
	for (size_t i = 0; !err && i < d->opaque_n; i++)
		err = merge_opaque(p, &d->opaques[i], no);
	for (size_t i = 0; !err && i < d->map_n; i++) {
		const char *name = d->tensors[d->maps[i].tensor].name;

		err = add_window(lookup(p, name), rank, &d->maps[i].w);
		if (err)
			gw_refuse(no, err, name, "tensor %s: more than %d windows", name, GW_PLAN_WINDOWS_MAX);
	}
	return err;
}

/* --- one counted owner for each element --- */

/* The view (row length) that all windows of a tensor can be seen in: that of the first one that is not whole rows. */
static uint64_t common_cols(const struct gw_plan_tensor *t)
{
	for (size_t i = 0; i < t->window_n; i++)
		if (t->windows[i].w.cols != t->windows[i].w.tensor_cols)
			return t->windows[i].w.tensor_cols;
	return t->windows[0].w.tensor_cols;
}

/* A run of whole rows without gaps may be cut into rows of another length. */
static int change_view(struct gw_dev_window *w, uint64_t cols)
{
	uint64_t first = w->row0 * w->tensor_cols, n = w->rows * w->cols;

	if (w->tensor_cols == cols)
		return 0;
	if (w->cols != w->tensor_cols || (w->cols > 1 && w->col_pitch != w->width) ||
	    (w->rows > 1 && w->row_pitch != w->cols * w->width) || first % cols || n % cols)
		return GW_EINVAL;
	w->tensor_cols = cols;
	w->row0 = first / cols;
	w->rows = n / cols;
	w->cols = cols;
	w->row_pitch = cols * w->width;
	w->col_pitch = w->width;
	return 0;
}

static int add_part(struct gw_plan_tensor *t, uint32_t rank, int64_t owner, const struct gw_dev_window *w)
{
	int err = gw_decl_room((void **)&t->parts, t->part_n, &t->part_cap, sizeof *t->parts, GW_PLAN_PARTS_MAX);

	if (!err)
		t->parts[t->part_n++] = (struct gw_plan_part){.rank = rank, .owner = owner, .w = *w};
	return err;
}

struct rect {
	uint64_t r0, r1, c0, c1;
};

struct rects {
	struct rect *v;
	size_t n, cap;
};

static int add_rect(struct rects *s, uint64_t r0, uint64_t r1, uint64_t c0, uint64_t c1)
{
	int err;

	if (r0 >= r1 || c0 >= c1)
		return 0;
	err = gw_decl_room((void **)&s->v, s->n, &s->cap, sizeof *s->v, GW_PLAN_PARTS_MAX);
	if (!err)
		s->v[s->n++] = (struct rect){r0, r1, c0, c1};
	return err;
}

static struct gw_dev_window cut(const struct gw_dev_window *w, const struct rect *r)
{
	return gw_window_part(w, r->r0 - w->row0, r->r1 - r->r0, r->c0 - w->col0, r->c1 - r->c0);
}

/* Takes the owner's region out of the rectangles of `left`; what was there becomes a copy part of window w. */
static int take_out(struct gw_plan_tensor *t, size_t owner, uint32_t rank, const struct gw_dev_window *w,
		    struct rects *left)
{
	struct gw_dev_window o = t->parts[owner].w;
	size_t n = left->n;

	for (size_t i = 0; i < n;) {
		struct rect a = left->v[i];
		struct rect in = {gw_max_u64(a.r0, o.row0), gw_min_u64(a.r1, o.row0 + o.rows),
				  gw_max_u64(a.c0, o.col0), gw_min_u64(a.c1, o.col0 + o.cols)};
		struct gw_dev_window part;
		int err;

		if (in.r0 >= in.r1 || in.c0 >= in.c1) {
			i++;
			continue;
		}
		part = cut(w, &in);
		err = add_part(t, rank, (int64_t)owner, &part);
		if (!err)
			err = add_rect(left, a.r0, in.r0, a.c0, a.c1);
		if (!err)
			err = add_rect(left, in.r1, a.r1, a.c0, a.c1);
		if (!err)
			err = add_rect(left, in.r0, in.r1, a.c0, in.c0);
		if (!err)
			err = add_rect(left, in.r0, in.r1, in.c1, a.c1);
		if (err)
			return err;
		/* The last of the old ones takes its place, and the last of all the place of that one. */
		left->v[i] = left->v[--n];
		left->v[n] = left->v[--left->n];
	}
	return 0;
}

static int split_window(struct gw_plan_tensor *t, const struct gw_plan_window *pw, uint64_t cols, uint64_t *counted)
{
	struct gw_dev_window w = pw->w;
	struct rects left = {NULL, 0, 0};
	size_t before = t->part_n;
	int err = change_view(&w, cols);

	if (!err)
		err = add_rect(&left, w.row0, w.row0 + w.rows, w.col0, w.col0 + w.cols);
	for (size_t i = 0; !err && i < before; i++)
		if (t->parts[i].owner < 0)
			err = take_out(t, i, pw->rank, &w, &left);
	for (size_t i = 0; !err && i < left.n; i++) {
		struct gw_dev_window part = cut(&w, &left.v[i]);

		err = add_part(t, pw->rank, -1, &part);
		*counted += part.rows * part.cols;
	}
	free(left.v);
	return err;
}

static int split_tensor(struct gw_plan_tensor *t, struct gw_refusal *no)
{
	uint64_t counted = 0, cols = t->window_n ? common_cols(t) : 1;

	if (t->window_n && t->opaque == GW_OPAQUE_UNUSED)
		t->opaque = GW_OPAQUE_NONE;
	if (t->opaque != GW_OPAQUE_NONE)
		return 0;
	for (size_t i = 0; i < t->window_n; i++) {
		int err = split_window(t, &t->windows[i], cols, &counted);

		if (err == GW_EINVAL)
			return gw_refuse(no, err, t->name, "tensor %s: rank %u cuts it along another axis than a rank before",
					 t->name, t->windows[i].rank);
		if (err)
			return gw_refuse(no, err, t->name, "tensor %s: its windows overlap in too many ways", t->name);
	}
	if (counted != t->elements)
		return gw_refuse(no, GW_EINVAL, t->name, "tensor %s: its windows cover %llu of %llu elements", t->name,
				 (unsigned long long)counted, (unsigned long long)t->elements);
	return 0;
}

/* --- digest --- */

static void put_name(struct gw_wr *w, const char *name)
{
	size_t n = strlen(name);

	gw_wr_u16(w, (uint16_t)n);
	gw_wr_bytes(w, name, n);
}

static void put_map(struct gw_wr *w, const struct gw_decl_map *m)
{
	gw_wr_u32(w, m->tensor);
	gw_wr_u32(w, m->w.segment);
	gw_wr_u64(w, m->w.base);
	gw_wr_u64(w, m->w.row_pitch);
	gw_wr_u64(w, m->w.col_pitch);
	gw_wr_u64(w, m->w.rows);
	gw_wr_u64(w, m->w.cols);
	gw_wr_u64(w, m->w.row0);
	gw_wr_u64(w, m->w.col0);
	gw_wr_u64(w, m->w.tensor_cols);
}

static void put_decl(struct gw_wr *w, const struct gw_decl *d)
{
	gw_wr_u32(w, d->info.rank);
	gw_wr_u32(w, d->info.ranks);
	gw_wr_u32(w, d->info.segments);
	for (uint32_t i = 0; i < d->info.segments; i++)
		gw_wr_u64(w, d->segments[i]);
	gw_wr_u32(w, (uint32_t)d->tensor_n);
	for (size_t i = 0; i < d->tensor_n; i++) {
		put_name(w, d->tensors[i].name);
		gw_wr_u16(w, (uint16_t)d->tensors[i].dtype);
		gw_wr_u8(w, (uint8_t)d->tensors[i].dims);
		for (unsigned k = 0; k < d->tensors[i].dims; k++)
			gw_wr_u64(w, d->tensors[i].shape[k]);
	}
	gw_wr_u32(w, (uint32_t)d->map_n);
	for (size_t i = 0; i < d->map_n; i++)
		put_map(w, &d->maps[i]);
	gw_wr_u32(w, (uint32_t)d->opaque_n);
	for (size_t i = 0; i < d->opaque_n; i++) {
		put_name(w, d->opaques[i].name);
		gw_wr_u8(w, (uint8_t)d->opaques[i].reason);
	}
}

static int digest(struct gw_plan *p, const struct gw_decl *const *decls)
{
	struct gw_wr w;

	gw_wr_init(&w, SIZE_MAX);
	for (uint32_t i = 0; i < p->ranks; i++)
		put_decl(&w, decls[i]);
	if (!w.err)
		gw_digest_of(w.p, w.n, &p->digest);
	gw_wr_free(&w);
	return w.err;
}

/* --- the plan --- */

int gw_plan_new(struct gw_plan **out, const struct gw_decl *const *decls, uint32_t ranks, struct gw_refusal *no)
{
	struct gw_plan *p = calloc(1, sizeof *p);
	int err = 0;

	memset(no, 0, sizeof *no);
	if (!p)
		return gw_refuse(no, GW_ENOMEM, NULL, "out of memory");
	gw_map_init(&p->by_name, 0);
	p->ranks = ranks;
	for (uint32_t i = 0; !err && i < ranks; i++)
		err = merge(p, decls[i], i, no);
	for (size_t i = 0; !err && i < p->n; i++)
		err = split_tensor(&p->tensors[i], no);
	if (!err)
		err = digest(p, decls);
	if (err) {
		gw_refuse(no, err, NULL, "%s", gw_err_text(err));
		gw_plan_free(p);
		return err;
	}
	*out = p;
	return 0;
}

void gw_plan_free(struct gw_plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++) {
		free(p->tensors[i].name);
		free(p->tensors[i].windows);
		free(p->tensors[i].parts);
	}
	free(p->tensors);
	gw_map_free(&p->by_name, NULL);
	free(p);
}

uint32_t gw_plan_ranks(const struct gw_plan *p)
{
	return p->ranks;
}

uint32_t gw_plan_tensors(const struct gw_plan *p)
{
	return (uint32_t)p->n;
}

const struct gw_plan_tensor *gw_plan_tensor(const struct gw_plan *p, uint32_t i)
{
	return &p->tensors[i];
}

const struct gw_plan_tensor *gw_plan_find(const struct gw_plan *p, const char *name)
{
	return lookup(p, name);
}

const struct gw_digest *gw_plan_digest(const struct gw_plan *p)
{
	return &p->digest;
}
