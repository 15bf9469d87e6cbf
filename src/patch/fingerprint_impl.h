/*
 * Inside the fingerprint: what a scan needs from an instruction set. Only fingerprint*.c include this.
 *
 * Sums inside a block leave out the block's key, which is multiplied in once: the inner loops see offsets only.
 */
#ifndef GW_PATCH_FINGERPRINT_IMPL_H
#define GW_PATCH_FINGERPRINT_IMPL_H

#include "patch/fingerprint.h"

struct gw_print_ops {
	/* Adds B[offset + i] * unit i to s, for n units of 1, 2 or 4 bytes, offset + n ≤ GW_PRINT_BLOCK. */
	void (*part)(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n);
	/* Adds `count` whole blocks, block keys included. */
	void (*blocks)(uint64_t lane[2], unsigned width, uint64_t block, const uint8_t *p, uint64_t count);
	/* Makes tables; called once. */
	void (*init)(void);
};

/* The offset keys by lane; filled before `init` and any scan. */
extern uint64_t gw_print_offset_table[2][GW_PRINT_BLOCK];

/* Whole blocks by way of `part`, for those that have nothing better. */
static inline void gw_print_blocks_by(void (*part)(uint64_t s[2], unsigned, unsigned, const uint8_t *, size_t),
				      uint64_t lane[2], unsigned width, uint64_t block, const uint8_t *p,
				      uint64_t count)
{
	for (; count; count--, block++, p += (size_t)GW_PRINT_BLOCK * width) {
		uint64_t s[2] = {0, 0};

		part(s, width, 0, p, GW_PRINT_BLOCK);
		lane[0] += gw_print_block_key(0, block) * s[0];
		lane[1] += gw_print_block_key(1, block) * s[1];
	}
}

/* NULL where the machine or the build has not got it. */
const struct gw_print_ops *gw_print_avx2(void);
const struct gw_print_ops *gw_print_avx512(void);

#endif
