/*
 * The tensor table of a manifest: one row for every tensor that the object changes (for an anchor, every tensor),
 * in rising byte order of names: what each is after it. Format: proto/MANIFEST.md. It stands at the start of the
 * object, and the manifest holds its digest. Tensors that vanish have no row: the whole-model fingerprint, which
 * the manifest holds too, tells.
 */
#ifndef GW_TRUST_TENSOR_TABLE_H
#define GW_TRUST_TENSOR_TABLE_H

#include "base/buf.h"
#include "base/err.h"

enum {
	GW_TENSOR_RANK_MAX = 32,
	GW_TENSOR_NAME_MAX = 4096,             /* bytes */
	GW_TENSOR_ROWS_MAX = 1024 * 1024,
	GW_TENSOR_TABLE_MAX = 256 * 1024 * 1024, /* bytes */
};

struct gw_tensor_row {
	const char *name; /* UTF-8 without control characters; not NUL-terminated: points into the table */
	size_t name_bytes;
	uint16_t dtype;   /* number in weights/dtype.def; not checked here */
	uint8_t rank, axis; /* slicing axis, below rank; 0 for rank 0 */
	uint64_t shape[GW_TENSOR_RANK_MAX];
	uint64_t print[2]; /* fingerprint after, patch/fingerprint.h */
};

/* Writing: the count first, then that many rows in order. GW_EINVAL for a row that the reader would refuse. */
void gw_tensor_table_begin(struct gw_wr *w, uint32_t rows);
int gw_tensor_table_add(struct gw_wr *w, const struct gw_tensor_row *row);

/* Reading. open checks every row (names rise, sizes do not overflow, nothing trails); after it, next cannot fail.
 * The bytes stay the caller's. */
struct gw_tensor_table {
	struct gw_rd at;
	uint32_t rows, left;
};

int gw_tensor_table_open(struct gw_tensor_table *t, const void *p, size_t n, struct gw_diag *why);
/* How many of the n bytes are the table, checked as open does; the payload of the object is behind it. */
int gw_tensor_table_measure(const void *p, size_t n, size_t *bytes, struct gw_diag *why);
/* 1 and the next row, or 0 at the end. */
int gw_tensor_table_next(struct gw_tensor_table *t, struct gw_tensor_row *row);

#endif
