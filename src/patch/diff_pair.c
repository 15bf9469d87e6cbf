/* Companions of a diff's rows: which tensors are packed and where their scales are, and what changes of those. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/diff_inside.h"

static int by_row_name(const void *name, const void *row)
{
	const struct gw_diff_row *r = row;

	return strcmp(name, (r->new_ ? r->new_ : r->old)->name);
}

static struct gw_diff_row *find(const struct gw_diff *d, const struct gw_diff_row *r, unsigned rule)
{
	char name[GW_COMPANION_NAME_MAX];
	struct gw_diff_row *c;

	if (gw_companion_name(rule, r->new_->name, name))
		return NULL;
	c = bsearch(name, d->rows, d->row_count, sizeof *d->rows, by_row_name);
	return c && c->kind == GW_TENSOR_CHANGED &&
			       !gw_companion_fits((enum gw_dtype)r->new_->dtype, r->elements, c->elements)
		       ? c
		       : NULL;
}

void gw_diff_pair(struct gw_diff *d)
{
	for (uint32_t i = 0; i < d->row_count; i++) {
		struct gw_diff_row *r = &d->rows[i];

		/* Integers of 4 bits in wider elements, with scales over 128 of them, gain 4 % only: left out. */
		for (unsigned rule = 1; r->kind == GW_TENSOR_CHANGED && gw_dtype_width((enum gw_dtype)r->new_->dtype) == 1 &&
					!r->companion && rule <= GW_COMPANION_RULES;
		     rule++) {
			r->companion = find(d, r, rule);
			r->rule = rule;
		}
	}
	/* A companion has none itself. */
	for (uint32_t i = 0; i < d->row_count; i++)
		if (d->rows[i].companion)
			d->rows[i].companion->companion = NULL;
}

static int add_tile(struct gw_diff *d, const struct gw_diff_row *c, uint32_t tile, struct gw_hot **hot)
{
	struct gw_diff_tile t;
	int err = gw_diff_look(d, c, tile, 0, &t);

	if (!err && t.changes.n && !*hot)
		err = gw_hot_new(hot, c->elements);
	for (size_t i = 0; !err && i < t.changes.n; i++)
		gw_hot_add(*hot, gw_tile_element(&t.rect, t.changes.at[i]));
	return err;
}

int gw_diff_heat(struct gw_diff *d, struct gw_diff_row *r)
{
	const struct gw_diff_source *src = d->source;
	struct gw_diff_row *c = r->companion;
	int err = 0;

	if (!c || r->heated)
		return 0;
	r->heated = 1;
	if (c->alone)
		err = src->open(src->ctx, c);
	if (err)
		return err;
	for (uint32_t i = 0; !err && i < c->tiling.count; i++)
		err = add_tile(d, c, i, &r->hot);
	if (c->alone)
		src->close(src->ctx, c);
	return err;
}

void gw_diff_cool(struct gw_diff_row *r)
{
	gw_hot_free(r->hot);
	r->hot = NULL;
	r->heated = 0;
}
