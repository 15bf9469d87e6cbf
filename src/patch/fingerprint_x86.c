/*
 * Vector loops of the fingerprint. They reckon in the same ring as the scalar one, so bits are equal.
 *
 * By products: a 64-bit key times a unit of at most 32 bits is two 32 by 32 products; low and high are summed apart
 * and the high sum is shifted once at the end. Widths 1, 2, 4 with AVX2; 2 and 4 with AVX-512.
 *
 * By digits, for units of 1 and 2 bytes with AVX-512 VNNI: a block is a row of units times a matrix of the keys' signed
 * digits; two blocks go side by side so that digits are loaded once for both. For bytes keys have eight digits of base
 * 256, and vpdpbusd sums 64 products of byte and digit into 16 sums of 32 bits. For words they have six digits of base
 * 2048, and vpdpwssd sums 32 products of word and digit; it takes words as signed, so 2^15 is taken from each, and
 * 2^15 times the sum of all keys of a block is given back. Faster than by products.
 */
#include "patch/fingerprint_impl.h"

#if defined(__x86_64__)

#include <assert.h>
#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define INLINE inline __attribute__((always_inline))

static void tail_sum(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits = 0;

		memcpy(&bits, p + i * width, width);
		s[0] += gw_print_offset_table[0][offset + i] * bits;
		s[1] += gw_print_offset_table[1][offset + i] * bits;
	}
}

static AVX2 INLINE __m256i load4(unsigned width, const uint8_t *p)
{
	int four;

	if (width == 4)
		return _mm256_cvtepu32_epi64(_mm_loadu_si128((const void *)p));
	if (width == 2)
		return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const void *)p));
	memcpy(&four, p, sizeof four);
	return _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
}

static AVX2 uint64_t total4(__m256i low, __m256i high)
{
	__m256i v = _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
	__m128i s = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

	return (uint64_t)_mm_cvtsi128_si64(s) + (uint64_t)_mm_extract_epi64(s, 1);
}

static AVX2 INLINE void avx2_sum(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n)
{
	const uint64_t *k0 = gw_print_offset_table[0] + offset, *k1 = gw_print_offset_table[1] + offset;
	__m256i low0 = _mm256_setzero_si256(), low1 = low0, high0 = low0, high1 = low0;
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		__m256i d = load4(width, p + i * width);
		__m256i b0 = _mm256_loadu_si256((const void *)(k0 + i)),
			b1 = _mm256_loadu_si256((const void *)(k1 + i));

		low0 = _mm256_add_epi64(low0, _mm256_mul_epu32(b0, d));
		low1 = _mm256_add_epi64(low1, _mm256_mul_epu32(b1, d));
		high0 = _mm256_add_epi64(high0, _mm256_mul_epu32(_mm256_srli_epi64(b0, 32), d));
		high1 = _mm256_add_epi64(high1, _mm256_mul_epu32(_mm256_srli_epi64(b1, 32), d));
	}
	s[0] += total4(low0, high0);
	s[1] += total4(low1, high1);
	tail_sum(s, width, offset + (unsigned)i, p + i * width, n - i);
}

static AVX2 void avx2_part(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n)
{
	if (width == 1)
		avx2_sum(s, 1, offset, p, n);
	else if (width == 2)
		avx2_sum(s, 2, offset, p, n);
	else
		avx2_sum(s, 4, offset, p, n);
}

static void avx2_blocks(uint64_t lane[2], unsigned width, uint64_t block, const uint8_t *p, uint64_t count)
{
	gw_print_blocks_by(avx2_part, lane, width, block, p, count);
}

static const struct gw_print_ops avx2_ops = {avx2_part, avx2_blocks, NULL};

const struct gw_print_ops *gw_print_avx2(void)
{
	return __builtin_cpu_supports("avx2") ? &avx2_ops : NULL;
}

/* Not _mm512_reduce_add_epi64, which some compilers write with signed additions that may overflow. */
static AVX512 uint64_t total8(__m512i v)
{
	_Alignas(64) uint64_t x[8];

	_mm512_store_si512(x, v);
	return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

/* width 2 or 4 */
static AVX512 INLINE void avx512_sum(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n)
{
	const uint64_t *k0 = gw_print_offset_table[0] + offset, *k1 = gw_print_offset_table[1] + offset;
	__m512i low0 = _mm512_setzero_si512(), low1 = low0, high0 = low0, high1 = low0;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m512i d = width == 2 ? _mm512_cvtepu16_epi64(_mm_loadu_si128((const void *)(p + i * width)))
				       : _mm512_cvtepu32_epi64(_mm256_loadu_si256((const void *)(p + i * width)));
		__m512i b0 = _mm512_loadu_si512(k0 + i), b1 = _mm512_loadu_si512(k1 + i);

		low0 = _mm512_add_epi64(low0, _mm512_mul_epu32(b0, d));
		low1 = _mm512_add_epi64(low1, _mm512_mul_epu32(b1, d));
		high0 = _mm512_add_epi64(high0, _mm512_mul_epu32(_mm512_srli_epi64(b0, 32), d));
		high1 = _mm512_add_epi64(high1, _mm512_mul_epu32(_mm512_srli_epi64(b1, 32), d));
	}
	s[0] += total8(_mm512_add_epi64(low0, _mm512_slli_epi64(high0, 32)));
	s[1] += total8(_mm512_add_epi64(low1, _mm512_slli_epi64(high1, 32)));
	tail_sum(s, width, offset + (unsigned)i, p + i * width, n - i);
}

static AVX512 void avx512_part(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n)
{
	if (width == 1)
		avx2_part(s, width, offset, p, n);
	else if (width == 2)
		avx512_sum(s, 2, offset, p, n);
	else
		avx512_sum(s, 4, offset, p, n);
}

/* Digit d of the key of byte i is digits[lane][d][i]: key = sum of digit << 8d, mod 2^64. The slack keeps rows off
 * each other's cache sets. */
enum { DIGITS = 8, SLACK = 64 };
/* The digits of both lanes and the units do not fit into the first-level cache together, and two streams that jump
 * every block are too much for some prefetchers. So units are gone through in runs that stay in the second-level cache,
 * by one lane, then by the other, and each lane fetches half of the next run. */
enum { RUN_BYTES = 64 * 1024 };

static _Alignas(64) int8_t digits[2][DIGITS][GW_PRINT_BLOCK + SLACK];

enum { WORD_DIGITS = 6, WORD_BASE = 11, WORD_HALF = 1 << (WORD_BASE - 1) };
static _Alignas(64) int16_t word_digits[2][WORD_DIGITS][GW_PRINT_BLOCK + SLACK / 2];
static uint64_t word_bias[2]; /* 2^15 times the sum of a block's keys */

static void init_words(unsigned lane)
{
	uint32_t size[WORD_DIGITS][16] = {{0}};

	word_bias[lane] = 0;
	for (unsigned i = 0; i < GW_PRINT_BLOCK; i++) {
		uint64_t k = gw_print_offset_table[lane][i];

		word_bias[lane] += k << 15;
		for (unsigned d = 0; d < WORD_DIGITS; d++) {
			int digit = (int)((k + WORD_HALF) & (2 * WORD_HALF - 1)) - WORD_HALF;

			word_digits[lane][d][i] = (int16_t)digit;
			size[d][i / 2 % 16] += (uint32_t)(digit < 0 ? -digit : digit);
			/* Modulo 2^64 there is nothing above the last digit. */
			k = (k - (uint64_t)(int64_t)digit) >> WORD_BASE;
		}
	}
	/* What a sum of 32 bits comes to at most over a block: 2^15 times this. */
	for (unsigned d = 0; d < WORD_DIGITS; d++)
		for (unsigned c = 0; c < 16; c++)
			assert(size[d][c] < 1u << 16);
}

static void avx512_init(void)
{
	init_words(0);
	init_words(1);
	for (unsigned lane = 0; lane < 2; lane++)
		for (unsigned i = 0; i < GW_PRINT_BLOCK; i++) {
			uint64_t k = gw_print_offset_table[lane][i];

			for (unsigned d = 0; d < DIGITS; d++) {
				int8_t digit = (int8_t)(k & 0xff);

				digits[lane][d][i] = digit;
				k = (k - (uint64_t)(int64_t)digit) >> 8;
			}
		}
}

/* In assembly, because gcc 12 spills the accumulators of the intrinsic, at a third of the speed. */
#define DOT(acc, bytes, digit) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(bytes), "v"(digit))

/* Sums of two neighbouring digits, each below 2^21 in size, fit in 32 bits together; then 16 columns are twice 8 of
 * 64 bits. */
static AVX512 INLINE __m512i pair(__m512i digit, __m512i next, unsigned d)
{
	__m512i both = _mm512_add_epi32(digit, _mm512_slli_epi32(next, 8));
	__m512i even = _mm512_srai_epi64(_mm512_slli_epi64(both, 32), 32), odd = _mm512_srai_epi64(both, 32);

	return _mm512_slli_epi64(_mm512_add_epi64(even, odd), d * 8);
}

static AVX512 INLINE __m512i fold(const __m512i s[DIGITS])
{
	return _mm512_add_epi64(_mm512_add_epi64(pair(s[0], s[1], 0), pair(s[2], s[3], 2)),
				_mm512_add_epi64(pair(s[4], s[5], 4), pair(s[6], s[7], 6)));
}

/* One lane of two blocks of bytes, without block keys, spread over the columns of sa and sb. */
static AVX512 INLINE void two_blocks8(unsigned lane, const uint8_t *a, const uint8_t *b, __m512i *sa, __m512i *sb)
{
	__m512i acc_a[DIGITS], acc_b[DIGITS];

#pragma GCC unroll 8
	for (int d = 0; d < DIGITS; d++)
		acc_a[d] = acc_b[d] = _mm512_setzero_si512();
	for (size_t i = 0; i < GW_PRINT_BLOCK; i += 64) {
		__m512i da = _mm512_loadu_si512(a + i), db = _mm512_loadu_si512(b + i);

		_mm_prefetch((const void *)((lane ? b : a) + i + RUN_BYTES), _MM_HINT_T1);
#pragma GCC unroll 8
		for (int d = 0; d < DIGITS; d++) {
			__m512i digit = _mm512_load_si512(digits[lane][d] + i);

			DOT(acc_a[d], da, digit);
			DOT(acc_b[d], db, digit);
		}
	}
	*sa = fold(acc_a);
	*sb = fold(acc_b);
}

#define DOT_WORDS(acc, words, digit) __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(words), "v"(digit))

static AVX512 INLINE __m512i fold_words(const __m512i s[WORD_DIGITS])
{
	__m512i sum = _mm512_setzero_si512();

#pragma GCC unroll 6
	for (unsigned d = 0; d < WORD_DIGITS; d++) {
		__m512i even = _mm512_srai_epi64(_mm512_slli_epi64(s[d], 32), 32), odd = _mm512_srai_epi64(s[d], 32);

		sum = _mm512_add_epi64(sum, _mm512_slli_epi64(_mm512_add_epi64(even, odd), WORD_BASE * d));
	}
	return sum;
}

/* As two_blocks8, of words. */
static AVX512 INLINE void two_blocks16(unsigned lane, const uint8_t *a, const uint8_t *b, __m512i *sa, __m512i *sb)
{
	const __m512i sign = _mm512_set1_epi16((short)0x8000);
	__m512i acc_a[WORD_DIGITS], acc_b[WORD_DIGITS];

#pragma GCC unroll 6
	for (int d = 0; d < WORD_DIGITS; d++)
		acc_a[d] = acc_b[d] = _mm512_setzero_si512();
	for (size_t i = 0; i < GW_PRINT_BLOCK; i += 32) {
		__m512i da = _mm512_xor_si512(_mm512_loadu_si512(a + 2 * i), sign),
			db = _mm512_xor_si512(_mm512_loadu_si512(b + 2 * i), sign);

		_mm_prefetch((const void *)((lane ? b : a) + 2 * i + RUN_BYTES), _MM_HINT_T1);
#pragma GCC unroll 6
		for (int d = 0; d < WORD_DIGITS; d++) {
			__m512i digit = _mm512_load_si512(word_digits[lane][d] + i);

			DOT_WORDS(acc_a[d], da, digit);
			DOT_WORDS(acc_b[d], db, digit);
		}
	}
	*sa = fold_words(acc_a);
	*sb = fold_words(acc_b);
}

/* An even count of blocks of bytes or words, one lane. */
static AVX512 INLINE uint64_t run(unsigned lane, unsigned width, uint64_t block, const uint8_t *p, uint64_t count)
{
	__m512i sum = _mm512_setzero_si512(), sa, sb;
	uint64_t keys = 0, bytes = (uint64_t)GW_PRINT_BLOCK * width;

	for (uint64_t i = 0; i < count; i += 2) {
		uint64_t key_a = gw_print_block_key(lane, block + i), key_b = gw_print_block_key(lane, block + i + 1);

		if (width == 1)
			two_blocks8(lane, p + i * bytes, p + (i + 1) * bytes, &sa, &sb);
		else
			two_blocks16(lane, p + i * bytes, p + (i + 1) * bytes, &sa, &sb);
		sum = _mm512_add_epi64(sum, _mm512_mullo_epi64(sa, _mm512_set1_epi64((long long)key_a)));
		sum = _mm512_add_epi64(sum, _mm512_mullo_epi64(sb, _mm512_set1_epi64((long long)key_b)));
		keys += key_a + key_b;
	}
	return total8(sum) + (width == 2 ? keys * word_bias[lane] : 0);
}

/* A run by one lane, then by the other. */
static AVX512 INLINE void runs(uint64_t lane[2], unsigned width, uint64_t block, const uint8_t *p, uint64_t count)
{
	const uint64_t most = RUN_BYTES / GW_PRINT_BLOCK / width;

	for (uint64_t i = 0; i < count; i += most)
		for (unsigned l = 0; l < 2; l++)
			lane[l] += run(l, width, block + i, p + i * GW_PRINT_BLOCK * width,
				       count - i < most ? count - i : most);
}

static AVX512 void avx512_blocks(uint64_t lane[2], unsigned width, uint64_t block, const uint8_t *p, uint64_t count)
{
	uint64_t even = width <= 2 ? count & ~(uint64_t)1 : 0;

	if (width == 1)
		runs(lane, 1, block, p, even);
	else if (width == 2)
		runs(lane, 2, block, p, even);
	gw_print_blocks_by(avx512_part, lane, width, block + even, p + even * width * GW_PRINT_BLOCK, count - even);
}

static const struct gw_print_ops avx512_ops = {avx512_part, avx512_blocks, avx512_init};

const struct gw_print_ops *gw_print_avx512(void)
{
	return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
			       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
		       ? &avx512_ops
		       : NULL;
}

#else

const struct gw_print_ops *gw_print_avx2(void)
{
	return NULL;
}

const struct gw_print_ops *gw_print_avx512(void)
{
	return NULL;
}

#endif
