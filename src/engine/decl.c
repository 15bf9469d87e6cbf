#include "engine/decl.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

int gw_decl_new(struct gw_decl **out)
{
	struct gw_decl *d = calloc(1, sizeof *d);

	if (!d)
		return GW_ENOMEM;
	gw_map_init(&d->names, 0);
	*out = d;
	return 0;
}

void gw_decl_free(struct gw_decl *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->tensor_n; i++)
		free(d->tensors[i].name);
	for (size_t i = 0; i < d->opaque_n; i++)
		free(d->opaques[i].name);
	free(d->segments);
	free(d->tensors);
	free(d->maps);
	free(d->opaques);
	gw_map_free(&d->names, NULL);
	free(d);
}

int gw_decl_room(void **v, size_t n, size_t *cap, size_t size, size_t limit)
{
	size_t more = *cap ? *cap * 2 : 16;
	void *p;

	if (n >= limit)
		return GW_ELIMIT;
	if (n < *cap)
		return 0;
	p = reallocarray(*v, more, size);
	if (!p)
		return GW_ENOMEM;
	*v = p;
	*cap = more;
	return 0;
}

static void take_text(char *out, size_t size, struct gw_text t)
{
	size_t n = t.n < size ? t.n : size - 1;

	if (n)
		memcpy(out, t.p, n);
	out[n] = 0;
}

int gw_decl_hello(struct gw_decl *d, const struct gw_m_eng_hello *m, struct gw_diag *why)
{
	struct gw_decl_info *i = &d->info;

	if (d->hello)
		return gw_diag_set(why, GW_ESTATE, "the rank said hello twice");
	if (m->protocol != 1)
		return gw_diag_set(why, GW_EVERSION, "attach protocol %u; this daemon speaks 1", m->protocol);
	if (m->ranks == 0 || m->ranks > GW_PLAN_RANKS_MAX || m->rank >= m->ranks)
		return gw_diag_set(why, GW_EINVAL, "rank %u of %u (at most %d)", m->rank, m->ranks, GW_PLAN_RANKS_MAX);
	if (m->apply != 1 && m->apply != 2)
		return gw_diag_set(why, GW_EINVAL, "apply way %u; 1 is import, 2 in-process", m->apply);
	take_text(i->engine, sizeof i->engine, m->engine);
	take_text(i->engine_version, sizeof i->engine_version, m->engine_version);
	take_text(i->quantisation, sizeof i->quantisation, m->quantisation);
	take_text(i->device, sizeof i->device, m->device);
	i->pid = m->pid;
	i->start_ticks = m->start_ticks;
	i->rank = m->rank;
	i->ranks = m->ranks;
	i->in_process = m->apply == 2;
	i->version = m->version;
	memcpy(i->instance, m->instance, sizeof i->instance);
	memcpy(i->run, m->run, sizeof i->run);
	d->hello = 1;
	return 0;
}

static int ready(const struct gw_decl *d, struct gw_diag *why)
{
	if (!d->hello)
		return gw_diag_set(why, GW_ESTATE, "the rank did not say hello first");
	if (d->info.ended)
		return gw_diag_set(why, GW_ESTATE, "the rank declares more after eng_attach");
	return 0;
}

int gw_decl_segment(struct gw_decl *d, const struct gw_m_eng_segment *m, struct gw_diag *why)
{
	int err = ready(d, why);

	if (err)
		return err;
	if (m->id != d->info.segments)
		return gw_diag_set(why, GW_EINVAL, "segment %u where %u comes next", m->id, d->info.segments);
	if (m->kind != 1)
		return gw_diag_set(why, GW_EUNSUP, "segment %u is of kind %u; this daemon opens memfds (1)", m->id, m->kind);
	if (m->bytes == 0)
		return gw_diag_set(why, GW_EINVAL, "segment %u is empty", m->id);
	err = gw_decl_room((void **)&d->segments, m->id, &d->segment_cap, sizeof *d->segments, GW_PLAN_SEGMENTS_MAX);
	if (err)
		return gw_diag_set(why, err, "segment %u: %s", m->id, gw_err_text(err));
	d->segments[d->info.segments++] = m->bytes;
	return 0;
}

/* A name that neither a tensor nor an opaque of this rank has; *out is a copy. */
static int take_name(struct gw_decl *d, struct gw_text name, char **out, struct gw_diag *why)
{
	int err;

	if (name.n == 0 || name.n > GW_TABLE_NAME_MAX || memchr(name.p, 0, name.n))
		return gw_diag_set(why, GW_EINVAL, "a tensor's name is empty, too long or holds a NUL");
	if (gw_map_get(&d->names, name.p, name.n))
		return gw_diag_set(why, GW_EDUPLICATE, "tensor %.*s is declared twice", (int)name.n, name.p);
	err = gw_map_put(&d->names, name.p, name.n, d, NULL);
	if (err)
		return err;
	*out = strndup(name.p, name.n);
	if (*out)
		return 0;
	gw_map_del(&d->names, name.p, name.n);
	return GW_ENOMEM;
}

static int read_shape(struct gw_decl_tensor *t, struct gw_bytes shape)
{
	if (shape.n % 8 || shape.n / 8 > GW_TABLE_DIMS_MAX)
		return GW_EINVAL;
	t->dims = (unsigned)(shape.n / 8);
	for (unsigned i = 0; i < t->dims; i++)
		t->shape[i] = gw_le64(shape.p + 8 * i);
	return gw_table_elements(t->dtype, t->dims, t->shape, &t->elements);
}

static int add_tensor(struct gw_decl *d, const struct gw_r_eng_tensor *r, struct gw_diag *why)
{
	struct gw_decl_tensor t = {.dtype = (enum gw_dtype)r->dtype};
	int err = gw_decl_room((void **)&d->tensors, d->tensor_n, &d->tensor_cap, sizeof t, GW_PLAN_TENSORS_MAX);

	if (!err)
		err = take_name(d, r->name, &t.name, why);
	if (err)
		return gw_diag_set(why, err, "tensors: %s", gw_err_text(err));
	t.width = gw_dtype_width(t.dtype);
	/* Owned by the declaration from here on, whatever its shape. */
	d->tensors[d->tensor_n++] = t;
	err = t.width ? read_shape(&d->tensors[d->tensor_n - 1], r->shape) : GW_EINVAL;
	if (err)
		return gw_diag_set(why, err, "tensor %s: dtype or shape: %s", t.name, gw_err_text(err));
	return 0;
}

int gw_decl_tensors(struct gw_decl *d, const struct gw_m_eng_tensors *m, struct gw_diag *why)
{
	int err = ready(d, why);

	for (size_t i = 0; !err && i < m->rows.n; i++)
		err = add_tensor(d, &m->rows.v[i], why);
	return err;
}

static int add_map(struct gw_decl *d, const struct gw_r_eng_map *r, struct gw_diag *why)
{
	struct gw_decl_map m = {
		.tensor = r->tensor,
		.w = {.segment = r->segment, .base = r->base, .row_pitch = r->row_pitch, .col_pitch = r->col_pitch,
		      .rows = r->rows, .cols = r->cols, .row0 = r->row0, .col0 = r->col0, .tensor_cols = r->tensor_cols},
	};
	const struct gw_decl_tensor *t;
	int err = gw_decl_room((void **)&d->maps, d->map_n, &d->map_cap, sizeof m, GW_PLAN_MAPS_MAX);

	if (err)
		return gw_diag_set(why, err, "maps: %s", gw_err_text(err));
	if (r->tensor >= d->tensor_n || r->segment >= d->info.segments)
		return gw_diag_set(why, GW_EINVAL, "a map names tensor %u of %zu and segment %u of %u", r->tensor,
				   d->tensor_n, r->segment, d->info.segments);
	t = &d->tensors[r->tensor];
	m.w.width = t->width;
	err = gw_window_check(&m.w, t->elements, d->segments[r->segment], why);
	if (err)
		return gw_diag_wrap(why, err, "tensor %s", t->name);
	d->maps[d->map_n++] = m;
	return 0;
}

int gw_decl_maps(struct gw_decl *d, const struct gw_m_eng_maps *m, struct gw_diag *why)
{
	int err = ready(d, why);

	for (size_t i = 0; !err && i < m->rows.n; i++)
		err = add_map(d, &m->rows.v[i], why);
	return err;
}

static int add_opaque(struct gw_decl *d, const struct gw_r_eng_opaque *r, struct gw_diag *why)
{
	struct gw_decl_opaque o = {.reason = (enum gw_opaque_reason)r->reason};
	int err = gw_decl_room((void **)&d->opaques, d->opaque_n, &d->opaque_cap, sizeof o, GW_PLAN_TENSORS_MAX);

	if (!err && (r->reason < GW_OPAQUE_VALUES || r->reason > GW_OPAQUE_UNUSED))
		err = gw_diag_set(why, GW_EINVAL, "tensor %.*s: reason %u", (int)r->name.n, r->name.p, r->reason);
	if (!err)
		err = take_name(d, r->name, &o.name, why);
	if (err)
		return gw_diag_set(why, err, "opaque tensors: %s", gw_err_text(err));
	d->opaques[d->opaque_n++] = o;
	return 0;
}

int gw_decl_opaques(struct gw_decl *d, const struct gw_m_eng_opaques *m, struct gw_diag *why)
{
	int err = ready(d, why);

	for (size_t i = 0; !err && i < m->rows.n; i++)
		err = add_opaque(d, &m->rows.v[i], why);
	return err;
}

int gw_decl_end(struct gw_decl *d, const struct gw_m_eng_attach *m, struct gw_diag *why)
{
	int err = ready(d, why);

	if (err)
		return err;
	if (m->segments != d->info.segments || m->tensors != d->tensor_n || m->maps != d->map_n ||
	    m->opaques != d->opaque_n)
		return gw_diag_set(why, GW_EINVAL,
				   "the counts of eng_attach (%u, %u, %u, %u) are not what came (%u, %zu, %zu, %zu)",
				   m->segments, m->tensors, m->maps, m->opaques, d->info.segments, d->tensor_n, d->map_n,
				   d->opaque_n);
	d->info.ended = 1;
	return 0;
}

const struct gw_decl_info *gw_decl_info(const struct gw_decl *d)
{
	return &d->info;
}

uint64_t gw_decl_segment_bytes(const struct gw_decl *d, uint32_t id)
{
	return d->segments[id];
}
