/*
 * Packed weights and their scales. Values of 4 bits keep no trace of how near they were to a change, but when the scale
 * of a group changed, its values are likely to: a fifth of all changes of a step lie in a few groups in a thousand. So a tensor
 * may name a companion, the tensor of its scales in the same patch: elements of the groups whose scale changed are hot
 * (patch/coder.h). Measured on the real series: 6 to 18 % of the packed tensors' bytes of NVFP4,
 * 5 % of MXFP4; 4 % of int4 in words, where it is not used. Format: proto/PATCH.md,
 * "Companions".
 *
 * Element i of a packed tensor with P elements belongs to element i / (P / C) of a companion with C. To decode a tile one
 * must know which elements of the companion change, so its tiles are decoded first.
 */
#ifndef GW_PATCH_COMPANION_H
#define GW_PATCH_COMPANION_H

#include <stdint.h>

#include "patch/tile.h"

/* How a companion's name comes from the tensor's: by number, as the format has it. */
enum { GW_COMPANION_NONE, GW_COMPANION_RULES = 3, GW_COMPANION_NAME_MAX = 4096 + 8 };

/* The name by that rule, NUL-terminated, into out; GW_EINVAL where the rule does not fit the tensor's name. */
int gw_companion_name(unsigned rule, const char *name, char out[GW_COMPANION_NAME_MAX]);

/* Whether tensors of these elements can be packed one and companion: 0, or GW_EINVAL. */
int gw_companion_fits(enum gw_dtype packed, uint64_t packed_elements, uint64_t companion_elements);

/* Which elements of a companion change. */
struct gw_hot;
int gw_hot_new(struct gw_hot **out, uint64_t companion_elements);
void gw_hot_free(struct gw_hot *h);
void gw_hot_add(struct gw_hot *h, uint64_t element);

/* The hot elements of a tile of the packed tensor: a bit each, in words of 64, the last word's rest 0. Returns bits, or
 * NULL where none is hot or h is NULL. */
const uint64_t *gw_hot_tile(const struct gw_hot *h, uint64_t packed_elements, const struct gw_tile_rect *r,
			    uint64_t bits[GW_TILE_ELEMENTS_MAX / 64]);

#endif
