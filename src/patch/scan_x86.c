/*
 * Vector loops of the scan. Each stretch is gone through twice: first all its vectors are compared, and those that
 * differ are noted without a branch, so that reading never waits for a branch that was guessed wrong; then the noted
 * ones, still in the nearest cache, are looked at again and their changes appended.
 */
#include "patch/scan_impl.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,bmi")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")))
#define INLINE inline __attribute__((always_inline))

enum {
	VECTOR = 64,  /* bytes of each side looked at together */
	STRETCH = 64, /* so many of them to a stretch */
	AHEAD = 2048, /* bytes behind a stretch */
	ASKED = 8,    /* vectors of each side that are asked for there */
	FEW = 4,      /* changes of a vector that are stored in a narrower way */
};

/* What memory shall bring while a stretch's changes are appended. Never a fault, also where addresses are nobody's. */
static INLINE void ask(const uint8_t *old, const uint8_t *new_bits)
{
	for (uintptr_t at = AHEAD; at < AHEAD + ASKED * VECTOR; at += VECTOR) {
		_mm_prefetch((const char *)((uintptr_t)old + at), _MM_HINT_T1);
		_mm_prefetch((const char *)((uintptr_t)new_bits + at), _MM_HINT_T1);
	}
}

/* One bit a byte, set where the elements at p and q differ; all bits of an element alike. */
static AVX2 INLINE uint64_t differ64(unsigned width, const uint8_t *p, const uint8_t *q)
{
	__m256i a = _mm256_loadu_si256((const void *)p), b = _mm256_loadu_si256((const void *)q);
	__m256i c = _mm256_loadu_si256((const void *)(p + 32)), d = _mm256_loadu_si256((const void *)(q + 32));
	__m256i e = width == 1	 ? _mm256_cmpeq_epi8(a, b)
		    : width == 2 ? _mm256_cmpeq_epi16(a, b)
		    : width == 4 ? _mm256_cmpeq_epi32(a, b)
				 : _mm256_cmpeq_epi64(a, b);
	__m256i f = width == 1	 ? _mm256_cmpeq_epi8(c, d)
		    : width == 2 ? _mm256_cmpeq_epi16(c, d)
		    : width == 4 ? _mm256_cmpeq_epi32(c, d)
				 : _mm256_cmpeq_epi64(c, d);

	return ~((uint64_t)(uint32_t)_mm256_movemask_epi8(e) | (uint64_t)(uint32_t)_mm256_movemask_epi8(f) << 32);
}

static AVX2 INLINE size_t append64(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits,
				   uint64_t differ, unsigned width, uint32_t base)
{
	while (differ) {
		unsigned at = (unsigned)__builtin_ctzll(differ);

		b->at[count] = base + at / width;
		memcpy(b->old_bits + count * width, old + at, width);
		memcpy(b->new_bits + count * width, new_bits + at, width);
		count++;
		differ &= ~((((uint64_t)1 << width) - 1) << at);
	}
	return count;
}

static AVX2 INLINE size_t avx2_width(struct gw_changes_buf *b, size_t count, const uint8_t *old,
				     const uint8_t *new_bits, size_t n, unsigned width, uint32_t base)
{
	const size_t each = VECTOR / width;
	size_t i = 0;

	while (n - i >= each) {
		size_t vectors = (n - i) / each < STRETCH ? (n - i) / each : STRETCH, noted = 0;
		uint64_t differ[STRETCH];
		uint8_t where[STRETCH];

		for (size_t v = 0; v < vectors; v++) {
			size_t at = (i + v * each) * width;

			differ[noted] = differ64(width, old + at, new_bits + at);
			where[noted] = (uint8_t)v;
			noted += differ[noted] != 0;
		}
		if (noted)
			ask(old + (i + vectors * each) * width, new_bits + (i + vectors * each) * width);
		for (size_t k = 0; k < noted; k++) {
			size_t first = i + where[k] * each;

			count = append64(b, count, old + first * width, new_bits + first * width, differ[k], width,
					 base + (uint32_t)first);
		}
		i += vectors * each;
	}
	return gw_scan_scalar(b, count, old + i * width, new_bits + i * width, n - i, width, base + (uint32_t)i);
}

static AVX2 size_t avx2_run(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits,
			    size_t n, unsigned width, uint32_t base)
{
	switch (width) {
	case 1:
		return avx2_width(b, count, old, new_bits, n, 1, base);
	case 2:
		return avx2_width(b, count, old, new_bits, n, 2, base);
	case 4:
		return avx2_width(b, count, old, new_bits, n, 4, base);
	default:
		return avx2_width(b, count, old, new_bits, n, 8, base);
	}
}

gw_scan_fn *gw_scan_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") ? avx2_run : NULL;
}

/* One bit an element. */
static AVX512 INLINE uint64_t differ512(unsigned width, __m512i a, __m512i b)
{
	return width == 1   ? _mm512_cmpneq_epi8_mask(a, b)
	       : width == 2 ? _mm512_cmpneq_epi16_mask(a, b)
	       : width == 4 ? _mm512_cmpneq_epi32_mask(a, b)
			    : _mm512_cmpneq_epi64_mask(a, b);
}

static AVX512 INLINE __m512i pack512(unsigned width, uint64_t differ, __m512i v)
{
	return width == 1   ? _mm512_maskz_compress_epi8(differ, v)
	       : width == 2 ? _mm512_maskz_compress_epi16((__mmask32)differ, v)
	       : width == 4 ? _mm512_maskz_compress_epi32((__mmask16)differ, v)
			    : _mm512_maskz_compress_epi64((__mmask8)differ, v);
}

/* Which of its elements each lane of that width is. */
static AVX512 INLINE __m512i lanes512(unsigned width)
{
	const __m512i bytes = _mm512_set_epi8(
		63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38,
		37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12,
		11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);

	return width == 1   ? bytes
	       : width == 2 ? _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes))
	       : width == 4 ? _mm512_cvtepu8_epi32(_mm512_castsi512_si128(bytes))
			    : _mm512_cvtepu8_epi64(_mm512_castsi512_si128(bytes));
}

/* At most FEW changes: columns of FEW elements. */
static AVX512 INLINE void store_few(unsigned width, uint8_t *p, __m512i v)
{
	if (width == 1)
		_mm_storeu_si32(p, _mm512_castsi512_si128(v));
	else if (width == 2)
		_mm_storeu_si64(p, _mm512_castsi512_si128(v));
	else if (width == 4)
		_mm_storeu_si128((void *)p, _mm512_castsi512_si128(v));
	else
		_mm256_storeu_si256((void *)p, _mm512_castsi512_si256(v));
}

static AVX512 INLINE __m128i few_places(unsigned width, __m512i lanes)
{
	__m128i v = _mm512_castsi512_si128(lanes);

	return width == 1   ? _mm_cvtepu8_epi32(v)
	       : width == 2 ? _mm_cvtepu16_epi32(v)
	       : width == 4 ? v
			    : _mm256_cvtepi64_epi32(_mm512_castsi512_si256(lanes));
}

/* The elements of two vectors that differ, packed to the front of each column; more is written behind, and belongs to
 * the slack or to who appends next. */
static AVX512 INLINE size_t append512(struct gw_changes_buf *b, size_t count, __m512i old, __m512i new_bits,
				      uint64_t differ, unsigned width, uint32_t base)
{
	const __m512i ramp = lanes512(4);
	size_t n = (size_t)__builtin_popcountll(differ);

	if (n <= FEW) {
		__m128i at = few_places(width, pack512(width, differ, lanes512(width)));

		_mm_storeu_si128((void *)(b->at + count), _mm_add_epi32(at, _mm_set1_epi32((int)base)));
		store_few(width, b->old_bits + count * width, pack512(width, differ, old));
		store_few(width, b->new_bits + count * width, pack512(width, differ, new_bits));
		return count + n;
	}
	_mm512_storeu_si512(b->old_bits + count * width, pack512(width, differ, old));
	_mm512_storeu_si512(b->new_bits + count * width, pack512(width, differ, new_bits));
	for (unsigned k = 0; k < VECTOR / width; k += 16, differ >>= 16) {
		__m512i at = _mm512_add_epi32(ramp, _mm512_set1_epi32((int)(base + k)));

		_mm512_storeu_si512(b->at + count, _mm512_maskz_compress_epi32((__mmask16)differ, at));
		count += (unsigned)__builtin_popcount((unsigned)(differ & 0xffff));
	}
	return count;
}

static AVX512 INLINE size_t avx512_width(struct gw_changes_buf *b, size_t count, const uint8_t *old,
					 const uint8_t *new_bits, size_t n, unsigned width, uint32_t base)
{
	const size_t each = VECTOR / width;
	__m512i last_old, last_new;
	uint64_t left, differ_left;
	size_t i = 0;

	while (n - i >= each) {
		size_t vectors = (n - i) / each < STRETCH ? (n - i) / each : STRETCH, noted = 0;
		uint64_t differ[STRETCH];
		uint8_t where[STRETCH];

		for (size_t v = 0; v < vectors; v++) {
			size_t at = (i + v * each) * width;

			differ[noted] =
				differ512(width, _mm512_loadu_si512(old + at), _mm512_loadu_si512(new_bits + at));
			where[noted] = (uint8_t)v;
			noted += differ[noted] != 0;
		}
		if (noted)
			ask(old + (i + vectors * each) * width, new_bits + (i + vectors * each) * width);
		for (size_t k = 0; k < noted; k++) {
			size_t first = i + where[k] * each;

			count = append512(b, count, _mm512_loadu_si512(old + first * width),
					  _mm512_loadu_si512(new_bits + first * width), differ[k], width,
					  base + (uint32_t)first);
		}
		i += vectors * each;
	}
	if (i == n)
		return count;
	left = ((uint64_t)1 << (n - i) * width) - 1;
	last_old = _mm512_maskz_loadu_epi8(left, old + i * width);
	last_new = _mm512_maskz_loadu_epi8(left, new_bits + i * width);
	differ_left = differ512(width, last_old, last_new);
	return differ_left ? append512(b, count, last_old, last_new, differ_left, width, base + (uint32_t)i) : count;
}

static AVX512 size_t avx512_run(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits,
				size_t n, unsigned width, uint32_t base)
{
	switch (width) {
	case 1:
		return avx512_width(b, count, old, new_bits, n, 1, base);
	case 2:
		return avx512_width(b, count, old, new_bits, n, 2, base);
	case 4:
		return avx512_width(b, count, old, new_bits, n, 4, base);
	default:
		return avx512_width(b, count, old, new_bits, n, 8, base);
	}
}

gw_scan_fn *gw_scan_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
			       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2") &&
			       __builtin_cpu_supports("popcnt")
		       ? avx512_run
		       : NULL;
}

#else

gw_scan_fn *gw_scan_avx2(void)
{
	return NULL;
}

gw_scan_fn *gw_scan_avx512(void)
{
	return NULL;
}

#endif
