/*
 * Checked arithmetic on sizes and counts that come from outside, and a few integer helpers.
 * The checked ones return 0 or GW_EOVERFLOW and leave *out alone on error.
 */
#ifndef GW_BASE_NUM_H
#define GW_BASE_NUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

static inline int gw_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t r;

	if (__builtin_add_overflow(a, b, &r))
		return GW_EOVERFLOW;
	*out = r;
	return 0;
}

static inline int gw_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t r;

	if (__builtin_mul_overflow(a, b, &r))
		return GW_EOVERFLOW;
	*out = r;
	return 0;
}

/* ceil(a / b), b > 0, without overflow. */
static inline uint64_t gw_div_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static inline uint64_t gw_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gw_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Little-endian loads and stores at any alignment. */
static inline uint16_t gw_le16(const void *p)
{
	uint16_t v;

	__builtin_memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap16(v);
#endif
	return v;
}

static inline uint32_t gw_le32(const void *p)
{
	uint32_t v;

	__builtin_memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap32(v);
#endif
	return v;
}

static inline uint64_t gw_le64(const void *p)
{
	uint64_t v;

	__builtin_memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

static inline void gw_put_le16(void *p, uint16_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap16(v);
#endif
	__builtin_memcpy(p, &v, sizeof v);
}

static inline void gw_put_le32(void *p, uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap32(v);
#endif
	__builtin_memcpy(p, &v, sizeof v);
}

static inline void gw_put_le64(void *p, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	__builtin_memcpy(p, &v, sizeof v);
}

#endif
