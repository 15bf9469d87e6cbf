/*
 * The sparse coding of a tile's changes: places by gaps and steps by value order, in prefix codes whose lengths
 * stand once in the patch for each dtype. Format: proto/PATCH.md, "Sparse".
 */
#ifndef GW_PATCH_SPARSE_H
#define GW_PATCH_SPARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/num.h"
#include "patch/patch.h"
#include "patch/prefix.h"

enum {
	GW_PLACE_BUCKETS = 19, /* of ⌊log2(gap + 1)⌋ in a tile of 2^18 elements */
	GW_PLACE_SYMBOLS = 3 * GW_PLACE_BUCKETS,
	GW_STEP_SYMBOLS_MAX = 2 * 63,
};

struct gw_code_counts {
	uint64_t place[GW_PLACE_SYMBOLS], step[GW_STEP_SYMBOLS_MAX];
};

/* The code of one dtype, ready for both directions. */
struct gw_code {
	enum gw_dtype dtype;
	uint8_t place_len[GW_PLACE_SYMBOLS], step_len[GW_STEP_SYMBOLS_MAX];
	uint16_t place_code[GW_PLACE_SYMBOLS], step_code[GW_STEP_SYMBOLS_MAX];
	uint16_t place_table[1 << GW_PREFIX_BITS], step_table[1 << GW_PREFIX_BITS];
};

/* Adds the symbols of a tile's changes; old and new bits must differ. Returns how many bits a code of no
 * particular statistics would take: to leave out tiles that will not be sparse. */
uint64_t gw_sparse_count(struct gw_code_counts *counts, enum gw_dtype dtype, const struct gw_tile_changes *c);

void gw_code_make(struct gw_code *code, enum gw_dtype dtype, const struct gw_code_counts *counts);
void gw_code_write(const struct gw_code *code, struct gw_wr *w);
/* Reads what follows the dtype. GW_EMALFORMED for lengths that are no code. */
int gw_code_read(struct gw_code *code, enum gw_dtype dtype, struct gw_rd *r);

/* Bytes of the payload; SIZE_MAX where the code lacks a symbol. */
size_t gw_sparse_size(const struct gw_code *code, const struct gw_tile_changes *c);
/* Writes exactly so many. */
void gw_sparse_write(const struct gw_code *code, const struct gw_tile_changes *c, uint8_t *out);

/* Decodes a payload of n bytes for a tile of `elements` at old; at, old_bits, new_bits have room for all of them. */
int gw_sparse_read(const struct gw_code *code, const uint8_t *p, size_t n, const uint8_t *old, uint32_t elements,
		   uint32_t *at, uint8_t *old_bits, uint8_t *new_bits, size_t *changes);

/* One storage element, little-endian, at any alignment. */
static inline uint64_t gw_element_load(const void *p, unsigned width)
{
	switch (width) {
	case 1:
		return *(const uint8_t *)p;
	case 2:
		return gw_le16(p);
	case 4:
		return gw_le32(p);
	default:
		return gw_le64(p);
	}
}

static inline void gw_element_store(void *p, unsigned width, uint64_t v)
{
	switch (width) {
	case 1:
		*(uint8_t *)p = (uint8_t)v;
		break;
	case 2:
		gw_put_le16(p, (uint16_t)v);
		break;
	case 4:
		gw_put_le32(p, (uint32_t)v);
		break;
	default:
		gw_put_le64(p, v);
	}
}

#endif
