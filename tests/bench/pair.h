/*
 * Two versions of a checkpoint, as codecs see them: tensors that both have in one dtype and shape.
 */
#ifndef GW_BENCH_PAIR_H
#define GW_BENCH_PAIR_H

#include <stdint.h>

#include "patch/scan.h"
#include "weights/checkpoint.h"

struct bench_tensor {
	const struct gw_tensor *old, *new_;
	enum gw_dtype dtype;
	unsigned width;
	uint64_t elements;
	uint64_t first; /* bytes of the tensors before it */
};

struct bench_pair {
	struct gw_checkpoint *a, *b;
	char *paths[2]; /* the two files (of a folder: its one shard); NULL where there are several */
	struct bench_tensor *tensors;
	uint32_t count;
	uint64_t elements, bytes;
};

int bench_pair_open(struct bench_pair *p, const char *old, const char *new_, struct gw_diag *why);
void bench_pair_close(struct bench_pair *p);

/* How many elements of each dtype differ. */
enum { BENCH_DTYPES = 32 };
int bench_pair_changed(const struct bench_pair *p, uint64_t changed[BENCH_DTYPES]);

/* Writes the tensors of a dtype (GW_DT_NONE: all) as two single files, at most `limit` bytes of them: whole tensors in
 * the order of their names, the last cut to whole rows. */
int bench_pair_cut(const struct bench_pair *p, enum gw_dtype dtype, uint64_t limit, const char *old, const char *new_,
		   struct gw_diag *why);

/* Calls `each` with the changes of stretches of a tensor, whose first element is number `first`. */
int bench_each_change(const struct bench_tensor *t, struct gw_changes_buf *b,
		      void (*each)(void *ctx, const struct bench_tensor *t, uint64_t first,
				   const struct gw_tile_changes *c),
		      void *ctx);

/* The old bits, in one piece. */
void bench_pair_old(const struct bench_pair *p, uint8_t *model);
/* 1 where the model is the new one. */
int bench_pair_is_new(const struct bench_pair *p, const uint8_t *model);

#endif
