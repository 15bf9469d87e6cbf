/*
 * Along which axis tensor parallelism cuts a tensor, judged by its name: the rule for tiles when the
 * publisher gives no hint of his own. A wrong guess costs a gather at the receivers, never exactness.
 *
 * Output-parallel layers (q, k, v, gate, up, embeddings, heads) are cut on axis 0, input-parallel ones
 * (o_proj, down_proj and their like) on their last axis; scales follow the weight they scale, where they
 * have that axis. GPTQ and AWQ store transposed weights, and so do stacked experts without ".weight"
 * (Llama 4, gpt-oss). What nobody knows is cut on axis 0. The tables stand in slicing.c.
 */
#ifndef GW_WEIGHTS_SLICING_H
#define GW_WEIGHTS_SLICING_H

#include <stdint.h>

/* Less than rank; 0 for rank 0. */
unsigned gw_slicing_axis(const char *name, unsigned rank, const uint64_t *shape);

#endif
