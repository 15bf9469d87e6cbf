#include "synth_model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "weights/safetensors.h"

enum { TENSORS_PER_LAYER = 9, TENSORS_OUTSIDE = 3, LINEAR_PER_LAYER = 7, VOCAB_MIN = 32 };

static uint64_t kv_width(const struct synth_model *m)
{
	return m->hidden / m->heads * m->kv_heads;
}

static uint64_t layer_elements(const struct synth_model *m)
{
	return 2 * m->hidden * m->hidden + 2 * m->hidden * kv_width(m) + 3 * m->hidden * m->ffn + 2 * m->hidden;
}

/* Everything that follows from the width. */
static void set_width(struct synth_model *m, uint64_t hidden)
{
	m->hidden = hidden;
	m->ffn = gw_div_up(8 * hidden / 3, 64) * 64;
	m->heads = gw_max_u64(4, hidden / 128);
	m->kv_heads = m->heads / 4;
}

/* The narrowest model that is not deeper than its width allows. */
static int choose(struct synth_model *m, uint64_t params)
{
	static const uint64_t widths[] = {64,	128,  256,  512,  1024, 1536,  2048,
					  3072, 4096, 5120, 6144, 8192, 12288, 16384};
	uint64_t rest;

	for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
		set_width(m, widths[i]);
		m->layers = params / 5 * 4 / layer_elements(m);
		if (m->layers <= m->hidden / 64)
			break;
	}
	if (!m->layers)
		m->layers = 1;
	rest = m->layers * layer_elements(m) + m->hidden;
	if (params < SYNTH_PARAMS_MIN || params < rest || (params - rest) / (2 * m->hidden) < VOCAB_MIN)
		return GW_EINVAL;
	m->vocab = (params - rest) / (2 * m->hidden);
	return 0;
}

static void add(struct synth_model *m, enum synth_kind kind, uint64_t rows, uint64_t cols, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* cols = 0: one dimension. */
static void add(struct synth_model *m, enum synth_kind kind, uint64_t rows, uint64_t cols, const char *fmt, ...)
{
	struct synth_tensor *t = &m->tensors[m->count++];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(t->name, sizeof t->name, fmt, ap);
	va_end(ap);
	t->kind = kind;
	t->dtype = kind == SYNTH_SCALE ? GW_DT_F32 : GW_DT_BF16;
	t->shape[0] = rows;
	t->shape[1] = cols;
	t->rank = cols ? 2 : 1;
	t->elements = rows * (cols ? cols : 1);
	t->first = m->elements;
	m->elements += t->elements;
}

static void add_layer(struct synth_model *m, unsigned long long i)
{
	uint64_t h = m->hidden, kv = kv_width(m);

	add(m, SYNTH_NORM, h, 0, "model.layers.%llu.input_layernorm.weight", i);
	add(m, SYNTH_LINEAR, h, h, "model.layers.%llu.self_attn.q_proj.weight", i);
	add(m, SYNTH_LINEAR, kv, h, "model.layers.%llu.self_attn.k_proj.weight", i);
	add(m, SYNTH_LINEAR, kv, h, "model.layers.%llu.self_attn.v_proj.weight", i);
	add(m, SYNTH_LINEAR, h, h, "model.layers.%llu.self_attn.o_proj.weight", i);
	add(m, SYNTH_NORM, h, 0, "model.layers.%llu.post_attention_layernorm.weight", i);
	add(m, SYNTH_LINEAR, m->ffn, h, "model.layers.%llu.mlp.gate_proj.weight", i);
	add(m, SYNTH_LINEAR, m->ffn, h, "model.layers.%llu.mlp.up_proj.weight", i);
	add(m, SYNTH_LINEAR, h, m->ffn, "model.layers.%llu.mlp.down_proj.weight", i);
}

/* Makes the linear layers so far fp8. Scales go behind all other tensors: numbers of tensors, from which their weights
 * are drawn, are the same in both views. */
static void quantise(struct synth_model *m)
{
	uint32_t count = m->count;

	for (uint32_t i = 0; i < count; i++) {
		struct synth_tensor *t = &m->tensors[i];

		if (t->kind != SYNTH_LINEAR || strncmp(t->name, "model.layers.", strlen("model.layers.")) != 0)
			continue;
		t->dtype = GW_DT_F8_E4M3;
		t->scale = m->count;
		add(m, SYNTH_SCALE, gw_div_up(t->shape[0], SYNTH_SCALE_BLOCK),
		    gw_div_up(t->shape[1], SYNTH_SCALE_BLOCK), "%s_scale_inv", t->name);
	}
}

/* In order; a tensor begins a new shard where its share of the total is full, and where no fewer tensors may be
 * left than shards. */
static void spread(struct synth_model *m)
{
	uint32_t shard = 0;
	uint64_t in_shard = 0;

	for (uint32_t i = 0; i < m->count; i++) {
		struct synth_tensor *t = &m->tensors[i];
		int full = t->first / gw_div_up(m->elements, m->shards) > shard;

		if (i && shard + 1 < m->shards && in_shard && (full || m->count - i < m->shards - shard)) {
			shard++;
			in_shard = 0;
		}
		t->shard = shard;
		t->shard_offset = in_shard;
		in_shard += t->elements * gw_dtype_width(t->dtype);
		m->bytes += t->elements * gw_dtype_width(t->dtype);
	}
}

int synth_model_make(struct synth_model *m, enum synth_view view, uint64_t params, uint32_t shards, struct gw_diag *why)
{
	uint64_t per_layer = TENSORS_PER_LAYER, most;

	memset(m, 0, sizeof *m);
	if (choose(m, params))
		return gw_diag_set(why, GW_EINVAL, "%" PRIu64 " parameters are too few for a model; the least is %d",
				   params, SYNTH_PARAMS_MIN);
	if (view == SYNTH_VIEW_FP8)
		per_layer += LINEAR_PER_LAYER;
	most = m->layers * per_layer + TENSORS_OUTSIDE;
	if (!shards || shards > most)
		return gw_diag_set(why, GW_EINVAL, "%u shards for %" PRIu64 " tensors", shards, most);
	m->view = view;
	m->shards = shards;
	m->tensors = calloc(most, sizeof *m->tensors);
	if (!m->tensors)
		return GW_ENOMEM;
	add(m, SYNTH_EMBED, m->vocab, m->hidden, "model.embed_tokens.weight");
	for (uint64_t i = 0; i < m->layers; i++)
		add_layer(m, i);
	add(m, SYNTH_NORM, m->hidden, 0, "model.norm.weight");
	add(m, SYNTH_LINEAR, m->vocab, m->hidden, "lm_head.weight");
	if (view == SYNTH_VIEW_FP8)
		quantise(m);
	spread(m);
	return 0;
}

void synth_model_free(struct synth_model *m)
{
	free(m->tensors);
	memset(m, 0, sizeof *m);
}

void synth_shard_name(const struct synth_model *m, uint32_t shard, char out[64])
{
	if (m->shards == 1)
		(void)snprintf(out, 64, "model.safetensors");
	else
		(void)snprintf(out, 64, "model-%05u-of-%05u.safetensors", shard + 1, m->shards);
}

int synth_shard_header(const struct synth_model *m, uint32_t shard, struct gw_wr *w, struct gw_diag *why)
{
	static const struct gw_safetensors_pair metadata = {"format", "pt"};
	struct gw_safetensors_spec *specs = calloc(m->count, sizeof *specs);
	size_t n = 0;
	int err;

	if (!specs)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < m->count; i++) {
		const struct synth_tensor *t = &m->tensors[i];

		if (t->shard == shard)
			specs[n++] = (struct gw_safetensors_spec){t->name, t->shape, t->rank, t->dtype};
	}
	err = gw_safetensors_write(w, specs, n, &metadata, 1, why);
	free(specs);
	return err;
}

static void print(struct gw_wr *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void print(struct gw_wr *w, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	gw_wr_bytes(w, line, strlen(line));
}

void synth_index_json(const struct synth_model *m, struct gw_wr *w)
{
	char shard[64];

	print(w, "{\n \"metadata\": {\n  \"total_size\": %" PRIu64 "\n },\n \"weight_map\": {", m->bytes);
	for (uint32_t i = 0; i < m->count; i++) {
		synth_shard_name(m, m->tensors[i].shard, shard);
		print(w, "%s\n  \"%s\": \"%s\"", i ? "," : "", m->tensors[i].name, shard);
	}
	print(w, "\n }\n}\n");
}

void synth_config_json(const struct synth_model *m, struct gw_wr *w)
{
	print(w, "{\n \"architectures\": [\n  \"LlamaForCausalLM\"\n ],\n \"model_type\": \"llama\",\n "
		 "\"torch_dtype\": \"bfloat16\",\n");
	print(w, " \"hidden_size\": %" PRIu64 ",\n \"intermediate_size\": %" PRIu64 ",\n", m->hidden, m->ffn);
	print(w, " \"num_hidden_layers\": %" PRIu64 ",\n \"num_attention_heads\": %" PRIu64 ",\n", m->layers, m->heads);
	print(w, " \"num_key_value_heads\": %" PRIu64 ",\n \"vocab_size\": %" PRIu64 ",\n", m->kv_heads, m->vocab);
	if (m->view == SYNTH_VIEW_FP8)
		print(w,
		      " \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
		      "\"weight_block_size\": [%d, %d]},\n",
		      SYNTH_SCALE_BLOCK, SYNTH_SCALE_BLOCK);
	print(w, " \"tie_word_embeddings\": false\n}\n");
}
