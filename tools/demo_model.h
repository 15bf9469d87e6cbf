/*
 * The demonstration engine's model: a checkpoint's tensors, sharded over ranks as tensor parallelism does, in memory that
 * libgodwit shares; and computing with them.
 */
#ifndef GW_TOOLS_DEMO_MODEL_H
#define GW_TOOLS_DEMO_MODEL_H

#include <stdint.h>

#include "base/err.h"
#include "lib/godwit.h"

enum { DEMO_RANKS_MAX = 16 };

/* What one rank holds of a tensor: a rectangle of the matrix [rows, tensor_cols], packed. */
struct demo_tensor {
	char *name;
	char dtype[16];
	unsigned dims, width;
	uint64_t shape[8];
	uint64_t rows, cols, col0, tensor_cols;
	uint32_t segment; /* matrices in 0, the rest in 1 */
	uint64_t at;
};

struct demo_rank {
	uint32_t rank, ranks;
	struct demo_tensor *tensors;
	uint32_t n;
	uint64_t bytes[2]; /* of the segments */
	uint8_t *memory[2];
	struct godwit_engine *engine;
};

/* Lays out rank's share of the checkpoint: each tensor is cut along its slicing axis where that divides, else held whole.
 * Nothing is loaded yet. */
int demo_rank_plan(struct demo_rank *r, const char *checkpoint, uint32_t rank, uint32_t ranks, struct gw_diag *why);
/* Copies the rank's share into its memory. */
int demo_rank_load(struct demo_rank *r, const char *checkpoint, struct gw_diag *why);
/* Tells libgodwit all of it. */
int demo_rank_declare(struct demo_rank *r, struct gw_diag *why);
void demo_rank_free(struct demo_rank *r);

/* What a request computed: products of every matrix with a vector made from the seed, and a digest of every byte of
 * weights that went in, all ranks in order. */
struct demo_result {
	uint8_t digest[32];
	double sum;        /* of all products; NaN and infinity left out, so that any bits do */
	uint32_t matrices;
	uint64_t bytes;
};
void demo_compute(const struct demo_rank *ranks, uint32_t n, uint64_t seed, struct demo_result *out);

#endif
