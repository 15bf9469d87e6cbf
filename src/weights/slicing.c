#include "weights/slicing.h"

#include <stddef.h>
#include <string.h>

/* Modules whose input is cut, so that their outputs are summed over ranks ("row-parallel"). */
static const char *const input_parallel[] = {
	"o_proj",
	"down_proj",
	"out_proj",
	"wo",
	"w2",
	"fc2",
	"dense_4h_to_h",
	"linear_proj",
	"linear_fc2",
	"attention.dense",
	"self_attention.dense",
};

/* How a parameter of a linear layer is laid out. */
enum layout {
	OUT_IN, /* [..., out, in], or scales [..., out, groups of in] */
	IN_OUT, /* [..., in, out], or scales [..., groups of in, out] */
};

static const struct {
	const char *param;
	enum layout layout;
} params[] = {
	{"weight", OUT_IN},
	{"weight_packed", OUT_IN},
	{"weight_scale", OUT_IN},
	{"weight_scale_inv", OUT_IN},
	{"weight_zero_point", OUT_IN},
	{"qweight", IN_OUT}, /* GPTQ, AWQ */
	{"qzeros", IN_OUT},
	{"scales", IN_OUT},
};

/* Stacked experts that are parameters themselves, [experts, ...]. */
static const struct {
	const char *suffix;
	unsigned axis;
} stacked[] = {
	{"experts.gate_up_proj", 2},	    /* [E, in, 2 out]: Llama 4, gpt-oss in bf16 */
	{"experts.down_proj", 1},	    /* [E, in, out] */
	{"experts.gate_up_proj_bias", 1},   /* [E, 2 out] */
	{"experts.gate_up_proj_blocks", 1}, /* [E, 2 out, in / 32, 16]: gpt-oss in MXFP4 */
	{"experts.gate_up_proj_scales", 1}, /* [E, 2 out, in / 32] */
	{"experts.down_proj_blocks", 2},    /* [E, out, in / 32, 16] */
	{"experts.down_proj_scales", 2},    /* [E, out, in / 32] */
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Whether [name, name + n) ends in `suffix`, at a dot or as a whole. */
static int ends_in(const char *name, size_t n, const char *suffix)
{
	size_t m = strlen(suffix);

	return n >= m && !memcmp(name + n - m, suffix, m) && (n == m || name[n - m - 1] == '.');
}

static int is_input_parallel(const char *name, size_t n)
{
	for (size_t i = 0; i < COUNT(input_parallel); i++)
		if (ends_in(name, n, input_parallel[i]))
			return 1;
	return 0;
}

/* The axis of a parameter of a module, for rank ≥ 2. */
static unsigned linear_axis(const char *name, unsigned rank)
{
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < COUNT(params); i++) {
		int input;

		if (strcmp(dot + 1, params[i].param) != 0)
			continue;
		input = is_input_parallel(name, (size_t)(dot - name));
		if (params[i].layout == OUT_IN)
			/* Stacked ones with ".weight" are [experts, out, in]. */
			return input ? rank - 1 : rank - 2;
		return input ? rank - 2 : rank - 1;
	}
	return 0;
}

static unsigned rule(const char *name, unsigned rank)
{
	for (size_t i = 0; i < COUNT(stacked); i++)
		if (ends_in(name, strlen(name), stacked[i].suffix))
			return stacked[i].axis;
	return rank >= 2 && rank <= 3 ? linear_axis(name, rank) : 0;
}

unsigned gw_slicing_axis(const char *name, unsigned rank, const uint64_t *shape)
{
	unsigned axis = rule(name, rank);

	/* A scale of one column per row has nothing to cut there. */
	return axis < rank && shape[axis] > 1 ? axis : 0;
}
