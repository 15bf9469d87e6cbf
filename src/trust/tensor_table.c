#include "trust/tensor_table.h"

#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "trust/signed.h"

static int row_ok(const struct gw_tensor_row *row)
{
	uint64_t elements = 1;

	if (!row->name_bytes || row->name_bytes > GW_TENSOR_NAME_MAX || !gw_utf8_printable(row->name, row->name_bytes))
		return 0;
	if (!row->dtype || row->rank > GW_TENSOR_RANK_MAX || row->axis > row->rank || (row->rank && row->axis == row->rank))
		return 0;
	for (size_t i = 0; i < row->rank; i++)
		if (gw_mul_u64(elements, row->shape[i], &elements))
			return 0;
	return 1;
}

void gw_tensor_table_begin(struct gw_wr *w, uint32_t rows)
{
	gw_wr_bytes(w, GW_MAGIC_TENSORS, GW_MAGIC_BYTES);
	gw_wr_u32(w, rows);
}

int gw_tensor_table_add(struct gw_wr *w, const struct gw_tensor_row *row)
{
	if (!row_ok(row))
		return GW_EINVAL;
	gw_wr_u16(w, (uint16_t)row->name_bytes);
	gw_wr_bytes(w, row->name, row->name_bytes);
	gw_wr_u16(w, row->dtype);
	gw_wr_u8(w, row->rank);
	gw_wr_u8(w, row->axis);
	for (size_t i = 0; i < row->rank; i++)
		gw_wr_u64(w, row->shape[i]);
	gw_wr_u64(w, row->print[0]);
	gw_wr_u64(w, row->print[1]);
	return w->err;
}

static int read_row(struct gw_rd *r, struct gw_tensor_row *row)
{
	memset(row, 0, sizeof *row);
	row->name_bytes = gw_rd_u16(r);
	row->name = (const char *)gw_rd_bytes(r, row->name_bytes);
	row->dtype = gw_rd_u16(r);
	row->rank = gw_rd_u8(r);
	row->axis = gw_rd_u8(r);
	if (row->rank > GW_TENSOR_RANK_MAX)
		gw_rd_fail(r, GW_EMALFORMED);
	for (size_t i = 0; !r->err && i < row->rank; i++)
		row->shape[i] = gw_rd_u64(r);
	row->print[0] = gw_rd_u64(r);
	row->print[1] = gw_rd_u64(r);
	if (!r->err && !row_ok(row))
		gw_rd_fail(r, GW_EMALFORMED);
	return r->err;
}

/* Bytewise, a prefix first. */
static int rises(const struct gw_tensor_row *a, const struct gw_tensor_row *b)
{
	size_t n = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
	int c = memcmp(a->name, b->name, n);

	return c < 0 || (c == 0 && a->name_bytes < b->name_bytes);
}

/* Every row in turn; r ends behind the last, or with its error. */
static int walk(struct gw_tensor_table *t, struct gw_rd *r, const void *p, size_t n, struct gw_diag *why)
{
	struct gw_tensor_row row = {0}, before = {0};
	int err;

	memset(t, 0, sizeof *t);
	err = gw_magic_check(p, n, GW_MAGIC_TENSORS, "tensor table", why);
	if (err)
		return err;
	gw_rd_init(r, p, n);
	(void)gw_rd_bytes(r, GW_MAGIC_BYTES);
	t->rows = t->left = gw_rd_u32(r);
	t->at = *r;
	if (t->rows > GW_TENSOR_ROWS_MAX)
		gw_rd_fail(r, GW_ELIMIT);
	for (uint32_t i = 0; !r->err && i < t->rows; i++) {
		if (!read_row(r, &row) && i && !rises(&before, &row))
			gw_rd_fail(r, GW_EMALFORMED);
		before = row;
	}
	return 0;
}

static int refuse(struct gw_tensor_table *t, const struct gw_rd *r, int err, struct gw_diag *why)
{
	memset(t, 0, sizeof *t);
	return gw_diag_set(why, err, "tensor table refused at byte %zu: %s", r->at, gw_err_text(err));
}

int gw_tensor_table_open(struct gw_tensor_table *t, const void *p, size_t n, struct gw_diag *why)
{
	struct gw_rd r;
	int err;

	if (n > GW_TENSOR_TABLE_MAX) {
		memset(t, 0, sizeof *t);
		return gw_diag_set(why, GW_ELIMIT, "tensor table refused: %zu bytes, at most %d are allowed", n,
				   GW_TENSOR_TABLE_MAX);
	}
	err = walk(t, &r, p, n, why);
	if (err)
		return err;
	err = gw_rd_end(&r);
	return err ? refuse(t, &r, err, why) : 0;
}

int gw_tensor_table_measure(const void *p, size_t n, size_t *bytes, struct gw_diag *why)
{
	struct gw_tensor_table t;
	struct gw_rd r;
	int err = walk(&t, &r, p, n < GW_TENSOR_TABLE_MAX ? n : GW_TENSOR_TABLE_MAX, why);

	if (err)
		return err;
	if (r.err)
		return refuse(&t, &r, r.err, why);
	*bytes = r.at;
	return 0;
}

int gw_tensor_table_next(struct gw_tensor_table *t, struct gw_tensor_row *row)
{
	if (!t->left)
		return 0;
	t->left--;
	return !read_row(&t->at, row);
}
