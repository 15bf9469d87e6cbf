#include "patch/companion.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"

/* compressed-tensors; MXFP4 as published; modelopt's NVFP4. */
static const struct {
	const char *end, *companion;
} rules[GW_COMPANION_RULES + 1] = {{NULL, NULL}, {"_packed", "_scale"}, {"_blocks", "_scales"}, {"", "_scale"}};

int gw_companion_name(unsigned rule, const char *name, char out[GW_COMPANION_NAME_MAX])
{
	size_t n = strlen(name), end;

	if (rule == GW_COMPANION_NONE || rule > GW_COMPANION_RULES)
		return GW_EINVAL;
	end = strlen(rules[rule].end);
	if (n < end || strcmp(name + n - end, rules[rule].end) ||
	    n - end + strlen(rules[rule].companion) >= GW_COMPANION_NAME_MAX)
		return GW_EINVAL;
	memcpy(out, name, n - end);
	memcpy(out + n - end, rules[rule].companion, strlen(rules[rule].companion) + 1);
	return 0;
}

int gw_companion_fits(enum gw_dtype packed, uint64_t packed_elements, uint64_t companion_elements)
{
	return gw_dtype_is_float(packed) || !companion_elements || packed_elements % companion_elements ? GW_EINVAL : 0;
}

struct gw_hot {
	uint64_t elements;
	uint64_t bits[];
};

int gw_hot_new(struct gw_hot **out, uint64_t companion_elements)
{
	struct gw_hot *h = companion_elements / 64 < SIZE_MAX / 16
				   ? calloc(1, sizeof *h + (size_t)gw_div_up(companion_elements, 64) * sizeof *h->bits)
				   : NULL;

	if (!h)
		return GW_ENOMEM;
	h->elements = companion_elements;
	*out = h;
	return 0;
}

void gw_hot_free(struct gw_hot *h)
{
	free(h);
}

void gw_hot_add(struct gw_hot *h, uint64_t element)
{
	assert(element < h->elements);
	h->bits[element / 64] |= 1ull << element % 64;
}

/* Marks elements from … to - 1 of the tile. */
static void mark(uint64_t *bits, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		bits[i / 64] |= 1ull << i % 64;
}

const uint64_t *gw_hot_tile(const struct gw_hot *h, uint64_t packed_elements, const struct gw_tile_rect *r,
			    uint64_t bits[GW_TILE_ELEMENTS_MAX / 64])
{
	uint64_t group, any = 0;

	if (!h)
		return NULL;
	group = packed_elements / h->elements;
	memset(bits, 0, gw_div_up(r->rows * r->cols, 64) * sizeof *bits);
	for (uint64_t row = 0; row < r->rows; row++) {
		uint64_t first = (r->row0 + row) * r->tensor_cols + r->col0, end = first + r->cols;

		for (uint64_t g = first / group; g * group < end; g++) {
			if (!(h->bits[g / 64] >> g % 64)) {
				g |= 63; /* nothing more in this word */
				continue;
			}
			if (!(h->bits[g / 64] >> g % 64 & 1))
				continue;
			any = 1;
			mark(bits, row * r->cols + gw_max_u64(g * group, first) - first,
			     row * r->cols + gw_min_u64((g + 1) * group, end) - first);
		}
	}
	return any ? bits : NULL;
}
