/* The survey with vectors: 32 elements at a time, each seen by its highest 16 bits. */
#include "patch/coder_inside.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,popcnt")))
#define INLINE inline __attribute__((always_inline))

/* --- AVX-512 ---------------------------------------------------------------------------------- */

struct lut512 {
	__m512i weights, edge;
	__m128i shift;
};

static AVX512 INLINE struct lut512 lut512(const struct gw_plan *p)
{
	uint16_t w[32];

	for (unsigned i = 0; i < 32; i++)
		w[i] = (uint16_t)(1u << p->weight_log[i % GW_CLASSES]);
	return (struct lut512){_mm512_loadu_si512(w), _mm512_set1_epi16((short)p->edge),
			       _mm_cvtsi32_si128((int)p->shape.shift)};
}

/* The highest 16 bits of 32 elements. */
static AVX512 INLINE __m512i heads512(unsigned width, const uint8_t *p)
{
	switch (width) {
	case 1:
		return _mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p)), 8);
	case 2:
		return _mm512_loadu_si512(p);
	case 4:
		return _mm512_inserti64x4(
			_mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_loadu_si512(p), 16))),
			_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_loadu_si512(p + 64), 16)), 1);
	default: {
		__m128i q[4];

		for (int i = 0; i < 4; i++)
			q[i] = _mm512_cvtepi64_epi16(_mm512_srli_epi64(_mm512_loadu_si512(p + 64 * i), 48));
		return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(q[1], q[0])),
					  _mm256_set_m128i(q[3], q[2]), 1);
	}
	}
}

/* Weights of 32 elements, 0 where listed; which are listed. */
static AVX512 INLINE __m512i weights512(const struct lut512 *t, __m512i heads, uint32_t *listed)
{
	__m512i e = _mm512_srl_epi16(_mm512_and_si512(heads, _mm512_set1_epi16(0x7fff)), t->shift);
	__mmask32 timed = _mm512_cmpge_epu16_mask(e, t->edge);
	__m512i c = _mm512_min_epu16(_mm512_sub_epi16(e, t->edge), _mm512_set1_epi16(GW_CLASSES - 1));

	*listed = ~(uint32_t)timed;
	return _mm512_maskz_permutexvar_epi16(timed, c, t->weights);
}

static AVX512 INLINE __m128i sums4(const __m512i r[4])
{
	__m512i x = _mm512_add_epi32(_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
	__m512i y = _mm512_add_epi32(_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
	__m512i z = _mm512_add_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
	__m256i u = _mm256_add_epi32(_mm512_castsi512_si256(z), _mm512_extracti64x4_epi64(z, 1));

	return _mm_add_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
}

static AVX512 INLINE void take512_width(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
					unsigned width)
{
	struct lut512 t = lut512(p);
	const __m512i one = _mm512_set1_epi16(1);
	uint32_t i = 0, time;
	__m128i before = _mm_setzero_si128();

	for (; i + 128 <= n; i += 128) {
		__m512i r[4];
		uint32_t m[4];
		__m128i s;

		for (unsigned k = 0; k < 4; k++) {
			const uint8_t *at = old + (size_t)(i + 32 * k) * width;

			_mm_prefetch((const char *)at + 2048, _MM_HINT_T0);
			r[k] = _mm512_madd_epi16(weights512(&t, heads512(width, at), &m[k]), one);
		}
		v->listed[i / 64] = m[0] | (uint64_t)m[1] << 32;
		v->listed[i / 64 + 1] = m[2] | (uint64_t)m[3] << 32;
		s = sums4(r);
		s = _mm_add_epi32(s, _mm_slli_si128(s, 4));
		s = _mm_add_epi32(s, _mm_slli_si128(s, 8));
		s = _mm_add_epi32(s, before);
		_mm_storeu_si128((void *)(v->before + i / 32 + 1), s);
		before = _mm_shuffle_epi32(s, 0xff);
	}
	v->before[0] = 0;
	time = (uint32_t)_mm_cvtsi128_si32(before);
	for (; i < n; i += 32) {
		uint8_t rest[32 * 8] = {0};
		uint32_t left = n - i < 32 ? n - i : 32, m, mask = left < 32 ? (1u << left) - 1 : UINT32_MAX;
		__m512i w;

		memcpy(rest, old + (size_t)i * width, (size_t)left * width);
		w = weights512(&t, heads512(width, rest), &m);
		w = _mm512_maskz_mov_epi16(mask, w);
		if (i % 64)
			v->listed[i / 64] |= (uint64_t)(m & mask) << 32;
		else
			v->listed[i / 64] = m & mask;
		v->before[i / 32] = time;
		time += (uint32_t)_mm512_reduce_add_epi32(_mm512_madd_epi16(w, one));
		v->before[i / 32 + 1] = time;
	}
	memset(v->before + (n + 31) / 32 + 1, 0xff, GW_SURVEY_SLACK * sizeof *v->before);
}

static AVX512 void take512(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n)
{
	switch (p->shape.width) {
	case 1:
		take512_width(v, p, old, n, 1);
		break;
	case 2:
		take512_width(v, p, old, n, 2);
		break;
	case 4:
		take512_width(v, p, old, n, 4);
		break;
	default:
		take512_width(v, p, old, n, 8);
	}
}

/* Group's weights; a group that the tile cuts off is filled up with zeros. */
static AVX512 INLINE __m512i group512(const struct lut512 *t, unsigned width, const uint8_t *old, uint32_t n,
				      uint32_t group)
{
	const uint8_t *p = old + (size_t)group * 32 * width;
	uint32_t left = n - group * 32, m;
	uint8_t rest[32 * 8] = {0};

	if (__builtin_expect(left >= 32, 1))
		return weights512(t, heads512(width, p), &m);
	memcpy(rest, p, (size_t)left * width);
	return _mm512_maskz_mov_epi16((1u << left) - 1, weights512(t, heads512(width, rest), &m));
}

/* Sums up to and with each of 32 weights. */
static AVX512 INLINE __m512i running512(__m512i w)
{
	const __m512i last = _mm512_set_epi16(23, 23, 23, 23, 23, 23, 23, 23, 15, 15, 15, 15, 15, 15, 15, 15, 7, 7, 7,
					      7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0);
	__m512i lane;

	w = _mm512_add_epi16(w, _mm512_bslli_epi128(w, 2));
	w = _mm512_add_epi16(w, _mm512_bslli_epi128(w, 4));
	w = _mm512_add_epi16(w, _mm512_bslli_epi128(w, 8));
	/* What the 128-bit lanes before sum up to: by one lane, then by one and by two. */
	lane = _mm512_maskz_permutexvar_epi16(0xffffff00u, last, w);
	lane = _mm512_add_epi16(lane, _mm512_maskz_shuffle_i64x2(0xfc, lane, lane, _MM_SHUFFLE(2, 1, 0, 0)));
	lane = _mm512_add_epi16(lane, _mm512_maskz_shuffle_i64x2(0xf0, lane, lane, _MM_SHUFFLE(1, 0, 0, 0)));
	w = _mm512_add_epi16(w, lane);
	return w;
}

static AVX512 INLINE void find512_width(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old,
					uint32_t n, const uint32_t *time, unsigned count, uint32_t *group,
					struct gw_place *place, unsigned width)
{
	struct lut512 t = lut512(p);
	uint32_t g = *group;

	for (unsigned k = 0; k < count; k++) {
		uint16_t sums[40] = {0};
		__mmask16 m;
		__m512i s;
		uint32_t i;

		do {
			m = _mm512_cmple_epu32_mask(_mm512_loadu_si512(v->before + g + 1),
						    _mm512_set1_epi32((int)time[k]));
			g += (unsigned)_mm_popcnt_u32(m);
		} while (m == 0xffff);
		s = running512(group512(&t, width, old, n, g));
		_mm512_storeu_si512(sums + 1, s);
		i = (unsigned)_mm_popcnt_u32(
			_mm512_cmple_epu16_mask(s, _mm512_set1_epi16((short)(time[k] - v->before[g]))));
		place[k] = (struct gw_place){g * 32 + i, v->before[g] + sums[i],
					     (unsigned)__builtin_ctz((unsigned)sums[i + 1] - sums[i])};
	}
	*group = g;
}

static AVX512 void find512(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
			   const uint32_t *time, unsigned count, uint32_t *group, struct gw_place *place)
{
	switch (p->shape.width) {
	case 1:
		find512_width(v, p, old, n, time, count, group, place, 1);
		break;
	case 2:
		find512_width(v, p, old, n, time, count, group, place, 2);
		break;
	case 4:
		find512_width(v, p, old, n, time, count, group, place, 4);
		break;
	default:
		find512_width(v, p, old, n, time, count, group, place, 8);
	}
}

static AVX512 INLINE void begin512_width(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old,
					 uint32_t n, const uint32_t *at, size_t count, uint32_t *begin, unsigned width)
{
	struct lut512 t = lut512(p);

	for (size_t k = 0; k < count; k++) {
		__m512i w = group512(&t, width, old, n, at[k] / 32);

		w = _mm512_maskz_mov_epi16((1u << at[k] % 32) - 1, w);
		begin[k] = v->before[at[k] / 32] +
			   (uint32_t)_mm512_reduce_add_epi32(_mm512_madd_epi16(w, _mm512_set1_epi16(1)));
	}
}

static AVX512 void begin512(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
			    const uint32_t *at, size_t count, uint32_t *begin)
{
	switch (p->shape.width) {
	case 1:
		begin512_width(v, p, old, n, at, count, begin, 1);
		break;
	case 2:
		begin512_width(v, p, old, n, at, count, begin, 2);
		break;
	case 4:
		begin512_width(v, p, old, n, at, count, begin, 4);
		break;
	default:
		begin512_width(v, p, old, n, at, count, begin, 8);
	}
}

/* --- AVX2 ------------------------------------------------------------------------------------- */

struct lut256 {
	__m256i low, high; /* of the 16 weights, in both halves */
	__m256i edge;
	__m128i shift;
};

static AVX2 INLINE struct lut256 lut256(const struct gw_plan *p)
{
	uint8_t low[16], high[16];

	for (unsigned i = 0; i < 16; i++) {
		low[i] = (uint8_t)(1u << p->weight_log[i]);
		high[i] = (uint8_t)((1u << p->weight_log[i]) >> 8);
	}
	return (struct lut256){_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)low)),
			       _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)high)),
			       _mm256_set1_epi16((short)p->edge), _mm_cvtsi32_si128((int)p->shape.shift)};
}

/* The highest 16 bits of 16 elements. */
static AVX2 INLINE __m256i heads256(unsigned width, const uint8_t *p)
{
	switch (width) {
	case 1:
		return _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), 8);
	case 2:
		return _mm256_loadu_si256((const void *)p);
	case 4: {
		__m256i a = _mm256_srli_epi32(_mm256_loadu_si256((const void *)p), 16),
			b = _mm256_srli_epi32(_mm256_loadu_si256((const void *)(p + 32)), 16);

		return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
	}
	default: {
		uint16_t h[16];

		for (unsigned i = 0; i < 16; i++)
			memcpy(&h[i], p + 8 * i + 6, 2);
		return _mm256_loadu_si256((const void *)h);
	}
	}
}

static AVX2 INLINE __m256i weights256(const struct lut256 *t, __m256i heads, __m256i *listed)
{
	__m256i e = _mm256_srl_epi16(_mm256_and_si256(heads, _mm256_set1_epi16(0x7fff)), t->shift), c, lo, hi;

	/* Exponents are below 2^15, so signed comparison serves. */
	*listed = _mm256_cmpgt_epi16(t->edge, e);
	c = _mm256_min_epu16(_mm256_sub_epi16(e, t->edge), _mm256_set1_epi16(GW_CLASSES - 1));
	/* The class in the low byte finds the low byte of the weight, in the high byte the high one; a set
	 * highest bit gives zero. */
	lo = _mm256_shuffle_epi8(t->low, _mm256_or_si256(c, _mm256_set1_epi16((short)0x8000)));
	hi = _mm256_shuffle_epi8(t->high, _mm256_or_si256(_mm256_slli_epi16(c, 8), _mm256_set1_epi16(0x80)));
	return _mm256_andnot_si256(*listed, _mm256_or_si256(lo, hi));
}

static AVX2 INLINE uint32_t group256(const struct lut256 *t, unsigned width, const uint8_t *p, uint32_t *listed)
{
	const __m256i one = _mm256_set1_epi16(1);
	__m256i m[2], s, packed;
	__m128i q;

	s = _mm256_add_epi32(
		_mm256_madd_epi16(weights256(t, heads256(width, p), &m[0]), one),
		_mm256_madd_epi16(weights256(t, heads256(width, p + 16 * (size_t)width), &m[1]), one));
	packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(m[0], m[1]), 0xd8);
	*listed = (uint32_t)_mm256_movemask_epi8(packed);
	q = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
	q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
	q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(q);
}

static AVX2 INLINE void take256_width(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
				      unsigned width)
{
	struct lut256 t = lut256(p);
	uint32_t i, time = 0, m;

	for (i = 0; i + 32 <= n; i += 32) {
		v->before[i / 32] = time;
		time += group256(&t, width, old + (size_t)i * width, &m);
		if (i % 64)
			v->listed[i / 64] |= (uint64_t)m << 32;
		else
			v->listed[i / 64] = m;
	}
	v->before[i / 32] = time;
	if (i < n) {
		uint64_t last = i % 64 ? v->listed[i / 64] : 0;

		for (uint32_t k = i; k < n; k++) {
			unsigned e = gw_exponent(&p->shape, gw_element_load(old + (size_t)k * width, width));

			if (e < p->edge)
				last |= 1ull << k % 64;
			else
				time += 1u << p->weight_log[gw_timed_class(p, e)];
		}
		v->listed[i / 64] = last;
		v->before[i / 32 + 1] = time;
	}
	memset(v->before + (n + 31) / 32 + 1, 0xff, GW_SURVEY_SLACK * sizeof *v->before);
}

static AVX2 void take256(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n)
{
	switch (p->shape.width) {
	case 1:
		take256_width(v, p, old, n, 1);
		break;
	case 2:
		take256_width(v, p, old, n, 2);
		break;
	case 4:
		take256_width(v, p, old, n, 4);
		break;
	default:
		take256_width(v, p, old, n, 8);
	}
}

/* Four are written whatever the count is: a branch on it would be guessed wrong all the time (G. Langdale and D. Lemire,
 * "Parsing gigabytes of JSON per second", 2019). */
static AVX2 uint32_t listed256(const struct gw_survey *v, uint32_t n, uint32_t *at)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i += 64) {
		uint64_t m = v->listed[i / 64];
		unsigned c = (unsigned)_mm_popcnt_u64(m);

		for (unsigned j = 0; j < 4; j++, m &= m - 1)
			at[k + j] = i + (unsigned)_tzcnt_u64(m);
		for (unsigned j = 4; j < c; j++, m &= m - 1)
			at[k + j] = i + (unsigned)_tzcnt_u64(m);
		k += c;
	}
	return k;
}

/* Finding is a walk in a group of 32: as the reference does it. */
static void find256(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		    const uint32_t *time, unsigned count, uint32_t *group, struct gw_place *place)
{
	gw_survey_scalar.find(v, p, old, n, time, count, group, place);
}

static void begin256(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		     const uint32_t *at, size_t count, uint32_t *begin)
{
	gw_survey_scalar.begin(v, p, old, n, at, count, begin);
}

static const struct gw_survey_ops ops256 = {take256, listed256, find256, begin256},
				  ops512 = {take512, listed256, find512, begin512};

const struct gw_survey_ops *gw_survey_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt")
		       ? &ops256
		       : NULL;
}

const struct gw_survey_ops *gw_survey_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
			       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
			       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt")
		       ? &ops512
		       : NULL;
}

#else

const struct gw_survey_ops *gw_survey_avx2(void)
{
	return NULL;
}

const struct gw_survey_ops *gw_survey_avx512(void)
{
	return NULL;
}

#endif
