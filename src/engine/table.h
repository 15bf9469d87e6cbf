/*
 * A version that is known: run, number, and for every tensor its dtype, shape and fingerprint
 * (patch/fingerprint.h). It is what resident weights are proven against. Made from a checkpoint folder,
 * from manifests, or from another table and a patch; written to a file (proto/ATTACH.md, "Version
 * table") it lets a restarted daemon prove an engine that went on serving.
 */
#ifndef GW_ENGINE_TABLE_H
#define GW_ENGINE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "patch/patch.h"
#include "trust/tensor_table.h"
#include "weights/dtype.h"
#include "wire/msg.h"

enum {
	GW_TABLE_DIMS_MAX = GW_TENSOR_RANK_MAX,
	GW_TABLE_NAME_MAX = GW_TENSOR_NAME_MAX,
	GW_TABLE_ROWS_MAX = GW_TENSOR_ROWS_MAX,
};

struct gw_table_row {
	char *name;
	enum gw_dtype dtype;
	unsigned dims;
	uint64_t shape[GW_TABLE_DIMS_MAX];
	uint64_t elements; /* storage elements */
	uint64_t print[2];
};

struct gw_table;

/* run may be NULL (zero). Made empty, with one holder. */
int gw_table_new(struct gw_table **out, const uint8_t run[16], uint64_t version);
struct gw_table *gw_table_hold(struct gw_table *t);
/* Drops one hold; NULL does nothing. */
void gw_table_free(struct gw_table *t);
/* GW_EDUPLICATE, GW_EINVAL for a shape or dtype that is none, GW_ELIMIT. */
int gw_table_add(struct gw_table *t, const char *name, enum gw_dtype dtype, unsigned dims, const uint64_t *shape,
		 const uint64_t print[2]);

const uint8_t *gw_table_run(const struct gw_table *t);
uint64_t gw_table_version(const struct gw_table *t);
uint32_t gw_table_rows(const struct gw_table *t);
const struct gw_table_row *gw_table_row(const struct gw_table *t, uint32_t i);
/* The row of that name, or NULL. */
const struct gw_table_row *gw_table_find(const struct gw_table *t, const char *name);
/* The whole model's fingerprint. */
void gw_table_model(const struct gw_table *t, uint64_t model[2]);

/* Storage elements of a shape: product of the dimensions (F4: bytes). GW_EOVERFLOW, GW_EINVAL. */
int gw_table_elements(enum gw_dtype dtype, unsigned dims, const uint64_t *shape, uint64_t *elements);
/* Whether a row is of that dtype and shape. */
int gw_table_row_is(const struct gw_table_row *r, enum gw_dtype dtype, unsigned dims, const uint64_t *shape);

/* The table after a patch. Refuses a patch whose old fingerprints, shapes or dtypes are not those of the
 * table (GW_EBASE, with the tensor's name), and one that does not end in the whole-model fingerprint it names
 * (GW_EFINGERPRINT). An anchor's patch needs no `from` (NULL) and ignores one. */
int gw_table_patched(const struct gw_table *from, const struct gw_patch *pt, const uint8_t run[16], uint64_t to,
		     struct gw_table **out, struct gw_diag *why);

void gw_table_write(const struct gw_table *t, struct gw_wr *w);
int gw_table_read(const void *p, size_t n, struct gw_table **out, struct gw_diag *why);

#endif
