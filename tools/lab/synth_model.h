/*
 * Which tensors a synthetic checkpoint has: a decoder-only model with the names, shapes and config.json that
 * Hugging Face gives to Llama. Width and depth follow from the number of parameters; the vocabulary takes up what
 * is left, so that the total is met within one row of the embedding.
 *
 * Served in bf16; or in fp8, as DeepSeek-V3 is: the linear layers of the blocks F8_E4M3, each with a tensor
 * "…weight_scale_inv" of one F32 for every 128 x 128 of its elements, and all else in bf16.
 */
#ifndef GW_LAB_SYNTH_MODEL_H
#define GW_LAB_SYNTH_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "weights/dtype.h"

enum synth_view { SYNTH_VIEW_BF16, SYNTH_VIEW_FP8 };

enum synth_kind {
	SYNTH_NORM,  /* never changes, as in real steps below learning rates of 3e-6 */
	SYNTH_EMBED, /* rows of tokens that were not seen stay as they are */
	SYNTH_LINEAR,
	SYNTH_SCALE, /* of a tensor in fp8; written with it */
};

struct synth_tensor {
	char name[96];
	uint64_t shape[2];
	unsigned rank;
	enum synth_kind kind;
	enum gw_dtype dtype;
	uint32_t scale;		  /* F8_E4M3: number of the tensor with its scales */
	uint64_t elements, first; /* how many; how many lie in tensors before it */
	uint32_t shard;
	uint64_t shard_offset; /* bytes into the shard's data */
};

struct synth_model {
	enum synth_view view;
	uint64_t hidden, ffn, layers, heads, kv_heads, vocab;
	struct synth_tensor *tensors;
	uint32_t count, shards;
	uint64_t elements, bytes; /* in all */
};

enum { SYNTH_PARAMS_MIN = 100 * 1000, SYNTH_SCALE_BLOCK = 128 };

/* Data are spread over the shards in order, about evenly. GW_EINVAL for less than SYNTH_PARAMS_MIN parameters, and
 * for more shards than tensors. */
int synth_model_make(struct synth_model *m, enum synth_view view, uint64_t params, uint32_t shards,
		     struct gw_diag *why);
void synth_model_free(struct synth_model *m);

/* "model.safetensors", or "model-00002-of-00007.safetensors" where there are several. */
void synth_shard_name(const struct synth_model *m, uint32_t shard, char out[64]);
/* Length and JSON of a shard, appended. */
int synth_shard_header(const struct synth_model *m, uint32_t shard, struct gw_wr *w, struct gw_diag *why);
/* The text of model.safetensors.index.json and of config.json, appended. */
void synth_index_json(const struct synth_model *m, struct gw_wr *w);
void synth_config_json(const struct synth_model *m, struct gw_wr *w);

#endif
