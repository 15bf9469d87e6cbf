#include "tests/unit/weights.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "weights/dtype.h"
#include "weights/slicing.h"

uint8_t *file_of(const char *json, size_t data_bytes, size_t *n)
{
	size_t header = strlen(json);
	uint8_t *p = malloc(8 + header + data_bytes);

	ck_assert_ptr_nonnull(p);
	gw_put_le64(p, header);
	memcpy(p + 8, json, header);
	for (size_t i = 0; i < data_bytes; i++)
		p[8 + header + i] = (uint8_t)i;
	*n = 8 + header + data_bytes;
	return p;
}

START_TEST(every_dtype_has_a_name_a_number_and_a_width)
{
	unsigned next = 1;

#define GW_DTYPE(name, number, bits, class)                                                                            \
	ck_assert_uint_eq(number, next++);                                                                             \
	ck_assert_str_eq(gw_dtype_name(GW_DT_##name), #name);                                                          \
	ck_assert_int_eq(gw_dtype_parse(#name, strlen(#name)), GW_DT_##name);                                          \
	ck_assert_uint_eq(gw_dtype_bits(GW_DT_##name), bits);                                                          \
	ck_assert_uint_eq(gw_dtype_width(GW_DT_##name), bits == 4 ? 1 : bits / 8);                                     \
	ck_assert_int_eq(gw_dtype_is_float(GW_DT_##name), #class[0] == 'F');
#include "weights/dtype.def"
#undef GW_DTYPE
	ck_assert_ptr_null(gw_dtype_name((enum gw_dtype)next));
	ck_assert_ptr_null(gw_dtype_name(GW_DT_NONE));
	ck_assert_uint_eq(gw_dtype_bits((enum gw_dtype)next), 0);
	ck_assert_uint_eq(gw_dtype_width(GW_DT_NONE), 0);
	ck_assert_int_eq(gw_dtype_parse("BF1", 3), GW_DT_NONE);
	ck_assert_int_eq(gw_dtype_parse("bf16", 4), GW_DT_NONE);
	ck_assert_int_eq(gw_dtype_parse("F6_E2M3", 7), GW_DT_NONE);
}
END_TEST

START_TEST(slicing_follows_the_names)
{
	static const struct {
		const char *name;
		unsigned rank;
		uint64_t shape[4];
		unsigned axis;
	} rows[] = {
		{"model.embed_tokens.weight", 2, {256, 384}, 0},
		{"lm_head.weight", 2, {256, 384}, 0},
		{"model.layers.0.input_layernorm.weight", 1, {384}, 0},
		{"model.layers.0.self_attn.q_proj.weight", 2, {384, 384}, 0},
		{"model.layers.0.self_attn.q_proj.bias", 1, {384}, 0},
		{"model.layers.0.self_attn.o_proj.weight", 2, {384, 384}, 1},
		{"model.layers.0.self_attn.o_proj.bias", 1, {384}, 0},
		{"o_proj.weight", 2, {384, 384}, 1},
		{"model.layers.0.self_attn.no_proj.weight", 2, {384, 384}, 0},
		{"model.layers.0.mlp.down_proj.weight", 2, {384, 1024}, 1},
		{"model.layers.0.mlp.down_proj.weight_scale_inv", 2, {3, 8}, 1},
		{"model.layers.0.mlp.down_proj.weight_scale", 2, {384, 1}, 0},
		{"model.layers.0.mlp.down_proj.weight_scale_2", 0, {0}, 0},
		{"model.layers.0.mlp.down_proj.weight_packed", 2, {384, 128}, 1},
		{"model.layers.0.mlp.gate_proj.weight_scale_inv", 2, {8, 3}, 0},
		{"model.layers.0.mlp.experts.7.down_proj.weight", 2, {384, 1024}, 1},
		{"model.layers.0.block_sparse_moe.experts.7.w2.weight", 2, {384, 1024}, 1},
		{"model.layers.0.mlp.down_proj.qweight", 2, {128, 384}, 0},
		{"model.layers.0.mlp.up_proj.qweight", 2, {48, 1024}, 1},
		{"model.layers.0.mlp.up_proj.scales", 2, {3, 1024}, 1},
		{"model.layers.0.mlp.experts.down_proj.weight", 3, {8, 384, 1024}, 2},
		{"model.layers.0.mlp.experts.up_proj.weight", 3, {8, 1024, 384}, 1},
		{"model.layers.0.mlp.experts.gate_up_proj", 3, {8, 384, 2048}, 2},
		{"model.layers.0.mlp.experts.down_proj", 3, {8, 1024, 384}, 1},
		{"model.layers.0.mlp.experts.gate_up_proj_blocks", 4, {8, 2048, 12, 16}, 1},
		{"model.layers.0.mlp.experts.down_proj_blocks", 4, {8, 384, 32, 16}, 2},
		{"model.layers.0.mlp.experts.down_proj_scales", 3, {8, 384, 32}, 2},
		{"model.layers.0.mlp.experts.down_proj_bias", 2, {8, 384}, 0},
		{"backbone.layers.0.mixer.conv1d.weight", 3, {512, 1, 4}, 0},
		{"", 3, {4, 4, 4}, 0},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		ck_assert_msg(gw_slicing_axis(rows[i].name, rows[i].rank, rows[i].shape) == rows[i].axis, "%s",
			      rows[i].name);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("weights");
	TCase *t = tcase_create("names");

	tcase_add_test(t, every_dtype_has_a_name_a_number_and_a_width);
	tcase_add_test(t, slicing_follows_the_names);
	suite_add_tcase(s, t);
	suite_add_tcase(s, json_case());
	suite_add_tcase(s, safetensors_case());
	suite_add_tcase(s, checkpoint_case());
	return s;
}

UNIT_MAIN(suite)
