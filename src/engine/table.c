#include "engine/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/num.h"
#include "patch/fingerprint.h"
#include "trust/manifest.h"

struct gw_table {
	uint8_t run[16];
	uint64_t version;
	uint32_t holders; /* atomic: workers let go of tables too */
	struct gw_table_row *rows;
	uint32_t n, cap;
	struct gw_map by_name; /* to index + 1 */
};

static const uint8_t magic[8] = "GWVERS1";

int gw_table_new(struct gw_table **out, const uint8_t run[16], uint64_t version)
{
	struct gw_table *t = calloc(1, sizeof *t);

	if (!t)
		return GW_ENOMEM;
	if (run)
		memcpy(t->run, run, sizeof t->run);
	t->version = version;
	t->holders = 1;
	gw_map_init(&t->by_name, 0);
	*out = t;
	return 0;
}

struct gw_table *gw_table_hold(struct gw_table *t)
{
	__atomic_add_fetch(&t->holders, 1, __ATOMIC_RELAXED);
	return t;
}

void gw_table_free(struct gw_table *t)
{
	if (!t || __atomic_sub_fetch(&t->holders, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (uint32_t i = 0; i < t->n; i++)
		free(t->rows[i].name);
	free(t->rows);
	gw_map_free(&t->by_name, NULL);
	free(t);
}

int gw_table_elements(enum gw_dtype dtype, unsigned dims, const uint64_t *shape, uint64_t *elements)
{
	uint64_t n = 1;

	if (gw_dtype_width(dtype) == 0)
		return GW_EINVAL;
	for (unsigned i = 0; i < dims; i++)
		if (shape[i] == 0) {
			*elements = 0;
			return 0;
		}
	for (unsigned i = 0; i < dims; i++)
		if (gw_mul_u64(n, shape[i], &n))
			return GW_EOVERFLOW;
	if (gw_dtype_bits(dtype) == 4) {
		if (n % 2)
			return GW_EINVAL;
		n /= 2;
	}
	if (n > UINT64_MAX / gw_dtype_width(dtype))
		return GW_EOVERFLOW;
	*elements = n;
	return 0;
}

int gw_table_row_is(const struct gw_table_row *r, enum gw_dtype dtype, unsigned dims, const uint64_t *shape)
{
	return r->dtype == dtype && r->dims == dims && memcmp(r->shape, shape, dims * sizeof *shape) == 0;
}

static int grow(struct gw_table *t)
{
	uint32_t cap = t->cap ? t->cap * 2 : 64;
	struct gw_table_row *rows;

	if (t->n < t->cap)
		return 0;
	if (t->n >= GW_TABLE_ROWS_MAX)
		return GW_ELIMIT;
	rows = reallocarray(t->rows, cap, sizeof *rows);
	if (!rows)
		return GW_ENOMEM;
	t->rows = rows;
	t->cap = cap;
	return 0;
}

int gw_table_add(struct gw_table *t, const char *name, enum gw_dtype dtype, unsigned dims, const uint64_t *shape,
		 const uint64_t print[2])
{
	struct gw_table_row row = {.dtype = dtype, .dims = dims, .print = {print[0], print[1]}};
	size_t n = strlen(name);
	int err;

	if (n == 0 || n > GW_TABLE_NAME_MAX || dims > GW_TABLE_DIMS_MAX)
		return GW_EINVAL;
	err = gw_table_elements(dtype, dims, shape, &row.elements);
	if (err)
		return err;
	if (gw_map_get(&t->by_name, name, n))
		return GW_EDUPLICATE;
	err = grow(t);
	if (err)
		return err;
	if (dims > 0)
		memcpy(row.shape, shape, dims * sizeof *shape);
	row.name = strdup(name);
	if (!row.name)
		return GW_ENOMEM;
	err = gw_map_put(&t->by_name, name, n, (void *)((uintptr_t)t->n + 1), NULL);
	if (err) {
		free(row.name);
		return err;
	}
	t->rows[t->n++] = row;
	return 0;
}

const uint8_t *gw_table_run(const struct gw_table *t)
{
	return t->run;
}

uint64_t gw_table_version(const struct gw_table *t)
{
	return t->version;
}

uint32_t gw_table_rows(const struct gw_table *t)
{
	return t->n;
}

const struct gw_table_row *gw_table_row(const struct gw_table *t, uint32_t i)
{
	return &t->rows[i];
}

const struct gw_table_row *gw_table_find(const struct gw_table *t, const char *name)
{
	uintptr_t i = (uintptr_t)gw_map_get(&t->by_name, name, strlen(name));

	return i ? &t->rows[i - 1] : NULL;
}

void gw_table_model(const struct gw_table *t, uint64_t model[2])
{
	model[0] = model[1] = 0;
	for (uint32_t i = 0; i < t->n; i++) {
		const struct gw_table_row *r = &t->rows[i];

		gw_model_print_add(model, r->name, gw_dtype_name(r->dtype), r->dims, r->shape, r->print);
	}
}

/* --- after a patch --- */

static int same_base(const struct gw_table *from, const struct gw_patch_tensor *pt, struct gw_diag *why)
{
	const struct gw_table_row *r = gw_table_find(from, pt->name);

	if (!r)
		return gw_diag_set(why, GW_EBASE, "tensor %s: the patch changes it, version %llu has none of that name",
				   pt->name, (unsigned long long)from->version);
	if (!gw_table_row_is(r, pt->dtype, pt->rank, pt->shape))
		return gw_diag_set(why, GW_EBASE, "tensor %s: dtype or shape differ from version %llu", pt->name,
				   (unsigned long long)from->version);
	if (r->print[0] != pt->print_old[0] || r->print[1] != pt->print_old[1])
		return gw_diag_set(why, GW_EBASE, "tensor %s: the patch is from other bits than those of version %llu",
				   pt->name, (unsigned long long)from->version);
	return 0;
}

/* Rows that the patch leaves alone. */
static int carry_rows(const struct gw_table *from, const struct gw_patch *pt, struct gw_table *t)
{
	for (uint32_t i = 0; i < from->n; i++) {
		const struct gw_table_row *r = &from->rows[i];
		int err;

		if (gw_patch_find(pt, r->name))
			continue;
		err = gw_table_add(t, r->name, r->dtype, r->dims, r->shape, r->print);
		if (err)
			return err;
	}
	return 0;
}

static int patch_rows(const struct gw_table *from, const struct gw_patch *pt, uint32_t n, struct gw_table *t,
		      struct gw_diag *why)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct gw_patch_tensor *p = gw_patch_tensor(pt, i);
		int err = 0;

		if (p->kind == GW_TENSOR_CHANGED)
			err = same_base(from, p, why);
		if (!err && p->kind == GW_TENSOR_REMOVED && !gw_table_find(from, p->name))
			err = gw_diag_set(why, GW_EBASE, "tensor %s: the patch removes it, version %llu has none of that name",
					  p->name, (unsigned long long)from->version);
		if (!err && p->kind != GW_TENSOR_REMOVED)
			err = gw_table_add(t, p->name, p->dtype, p->rank, p->shape, p->print_new);
		if (err)
			return gw_diag_set(why, err, "tensor %s: %s", p->name, gw_err_text(err));
	}
	return 0;
}

int gw_table_patched(const struct gw_table *from, const struct gw_patch *pt, const uint8_t run[16], uint64_t to,
		     struct gw_table **out, struct gw_diag *why)
{
	struct gw_table *t = NULL, *nothing = NULL;
	struct gw_patch_info info;
	uint64_t model[2] = {0, 0};
	int err;

	gw_patch_info(pt, &info);
	err = gw_table_new(&nothing, NULL, GW_VERSION_NONE);
	if (!err)
		err = gw_table_new(&t, run, to);
	if (err)
		goto out;
	if (info.anchor || !from)
		from = nothing;
	if (!info.anchor)
		gw_table_model(from, model);
	err = patch_rows(from, pt, info.tensors, t, why);
	if (!err && !info.anchor && (model[0] != info.from_print[0] || model[1] != info.from_print[1]))
		err = gw_diag_set(why, GW_EBASE, "the patch is from another model than version %llu",
				  (unsigned long long)from->version);
	if (!err)
		err = carry_rows(from, pt, t);
	if (err)
		goto out;
	gw_table_model(t, model);
	if (model[0] != info.to_print[0] || model[1] != info.to_print[1]) {
		err = gw_diag_set(why, GW_EFINGERPRINT,
				  "the patch does not end in the whole-model fingerprint that it names");
		goto out;
	}
	*out = t;
	t = NULL;
out:
	gw_table_free(t);
	gw_table_free(nothing);
	return err;
}

/* --- as a file --- */

static int by_name(const void *a, const void *b)
{
	const struct gw_table_row *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static void write_row(struct gw_wr *w, const struct gw_table_row *r)
{
	struct gw_tensor_row row = {.name = r->name, .name_bytes = strlen(r->name), .dtype = (uint16_t)r->dtype,
				    .rank = (uint8_t)r->dims, .print = {r->print[0], r->print[1]}};

	memcpy(row.shape, r->shape, sizeof row.shape);
	if (gw_tensor_table_add(w, &row) && !w->err)
		w->err = GW_EINVAL;
}

void gw_table_write(const struct gw_table *t, struct gw_wr *w)
{
	const struct gw_table_row **sorted = calloc(t->n ? t->n : 1, sizeof *sorted);
	size_t start = w->n, length_at, body;
	struct gw_digest d;

	if (!sorted) {
		w->err = w->err ? w->err : GW_ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < t->n; i++)
		sorted[i] = &t->rows[i];
	qsort(sorted, t->n, sizeof *sorted, by_name);
	gw_wr_bytes(w, magic, sizeof magic);
	gw_wr_bytes(w, t->run, sizeof t->run);
	gw_wr_u64(w, t->version);
	length_at = w->n;
	gw_wr_u64(w, 0);
	body = w->n;
	gw_tensor_table_begin(w, t->n);
	for (uint32_t i = 0; i < t->n; i++)
		write_row(w, sorted[i]);
	free(sorted);
	if (w->err)
		return;
	gw_put_le64(w->p + length_at, w->n - body);
	gw_digest_of(w->p + start, w->n - start, &d);
	gw_wr_bytes(w, d.b, sizeof d.b);
}

static int read_rows(struct gw_table *t, const uint8_t *p, size_t n, struct gw_diag *why)
{
	struct gw_tensor_table rows;
	struct gw_tensor_row row;
	int err = gw_tensor_table_open(&rows, p, n, why);

	while (!err && gw_tensor_table_next(&rows, &row)) {
		char name[GW_TENSOR_NAME_MAX + 1];

		memcpy(name, row.name, row.name_bytes);
		name[row.name_bytes] = 0;
		err = gw_table_add(t, name, (enum gw_dtype)row.dtype, row.rank, row.shape, row.print);
		if (err)
			gw_diag_set(why, err, "tensor %s: %s", name, gw_err_text(err));
	}
	return err;
}

int gw_table_read(const void *p, size_t n, struct gw_table **out, struct gw_diag *why)
{
	const uint8_t *m, *run, *body;
	struct gw_table *t = NULL;
	uint64_t version, bytes;
	struct gw_digest want, have;
	struct gw_rd r;
	int err;

	gw_rd_init(&r, p, n);
	m = gw_rd_bytes(&r, sizeof magic);
	if (m && memcmp(m, magic, sizeof magic) != 0)
		return gw_diag_set(why, GW_EVERSION, "no version table, or one of another release");
	run = gw_rd_bytes(&r, 16);
	version = gw_rd_u64(&r);
	bytes = gw_rd_u64(&r);
	body = gw_rd_bytes(&r, bytes > n ? n : (size_t)bytes);
	gw_rd_copy(&r, want.b, sizeof want.b);
	err = gw_rd_end(&r);
	if (err)
		return gw_diag_set(why, err, "version table: %s", gw_err_text(err));
	gw_digest_of(p, n - sizeof want.b, &have);
	if (memcmp(&want, &have, sizeof want) != 0)
		return gw_diag_set(why, GW_EDIGEST, "version table: damaged, its digest does not match");
	err = gw_table_new(&t, run, version);
	if (!err)
		err = read_rows(t, body, (size_t)bytes, why);
	if (err) {
		gw_table_free(t);
		return gw_diag_set(why, err, "version table: %s", gw_err_text(err));
	}
	*out = t;
	return 0;
}
