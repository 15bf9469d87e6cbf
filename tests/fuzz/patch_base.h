/* The bits that every tensor of the base begins with, for the target of whole patches and for what makes its corpus. */
#ifndef GW_TESTS_FUZZ_PATCH_BASE_H
#define GW_TESTS_FUZZ_PATCH_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

static inline void fuzz_base(uint8_t *p, size_t n)
{
	uint64_t state = 1;

	for (size_t i = 0; i < n; i += 8)
		for (uint64_t v = gw_splitmix64(&state), k = 0; k < 8 && i + k < n; k++, v >>= 8)
			p[i + k] = (uint8_t)v;
}

#endif
