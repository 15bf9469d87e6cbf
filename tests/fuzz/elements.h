/*
 * How fuzz targets make old bits and changes out of an input. Both sides of a codec need bits that no fuzzer would
 * write out: a few bytes say how they go.
 */
#ifndef GW_TESTS_FUZZ_ELEMENTS_H
#define GW_TESTS_FUZZ_ELEMENTS_H

#include "base/buf.h"
#include "base/rng.h"
#include "patch/coder_inside.h"

static const enum gw_dtype fuzz_dtypes[] = {
#define GW_DTYPE(name, number, bits, class) GW_DT_##name,
#include "weights/dtype.def"
#undef GW_DTYPE
};
enum { FUZZ_DTYPES = sizeof fuzz_dtypes / sizeof fuzz_dtypes[0] };

static inline void fuzz_use_survey(unsigned choice)
{
	/* What this machine has not got leaves it as it was. */
	(void)gw_survey_use((enum gw_survey_impl)(choice % (GW_SURVEY_AVX512 + 1)));
}

/* A weight: exponents below the middle, each half as often as the one above. */
static inline uint64_t fuzz_weight(const struct gw_shape *s, uint64_t r)
{
	unsigned top = (0x7fffu >> s->shift) / 2, below = (unsigned)__builtin_ctzll(r | 1ull << 40);
	uint64_t exponent = below < top ? top - below : 0, fraction = s->bits - 1;

	if (!s->is_float)
		return r >> 20 & 15;
	fraction -= 15 - s->shift;
	return (r >> 63 << (s->bits - 1) | exponent << fraction | (r >> 1 & ((1ull << fraction) - 1))) & s->mask;
}

/* n old elements: the first byte says how (a pattern that is repeated, anything, weights), the next the seed or the
 * pattern's length. */
static inline void fuzz_old(struct gw_rd *r, const struct gw_shape *s, uint8_t *old, uint32_t n)
{
	uint8_t how = gw_rd_u8(r), seed = gw_rd_u8(r);
	size_t period = seed % 64, bytes = (size_t)n * s->width;
	const uint8_t *pattern = how % 4 ? NULL : gw_rd_bytes(r, period);
	struct gw_rng rng;

	gw_rng_init(&rng, seed);
	if (how % 4 == 0)
		for (size_t i = 0; i < bytes; i++)
			old[i] = pattern && period ? pattern[i % period] : 0;
	else
		for (uint32_t i = 0; i < n; i++)
			gw_element_store(old + (size_t)i * s->width, s->width,
					 how % 4 == 1 ? gw_rng_u64(&rng) : fuzz_weight(s, gw_rng_u64(&rng)));
}

/* Changes out of all that is left: each a varint of elements to leave out and a byte: up, down, any bits, other bits in
 * a nibble. new_bits holds the old ones. */
static inline void fuzz_change(struct gw_rd *r, const struct gw_shape *s, uint8_t *new_bits, uint32_t n)
{
	for (uint64_t at = 0; gw_rd_left(r) >= 2; at++) {
		uint64_t skip = gw_rd_varint(r), v;
		uint8_t how = gw_rd_u8(r), wide[8] = {0};

		if (r->err || skip >= n - at)
			return;
		at += skip;
		v = gw_element_load(new_bits + at * s->width, s->width);
		switch (how % 4) {
		case 0:
			v += how / 4 + 1u;
			break;
		case 1:
			v -= how / 4 + 1u;
			break;
		case 2:
			gw_rd_copy(r, wide, s->width);
			v = gw_le64(wide);
			break;
		default:
			v ^= (how / 4 % 16 + 0ull) << 4 * (how / 64);
		}
		gw_element_store(new_bits + at * s->width, s->width, v);
	}
}

/* One element in 2^(how mod 16) goes up or down, one in 16 of these to any bits. */
static inline void fuzz_train(uint8_t how, const struct gw_shape *s, uint8_t *new_bits, uint32_t n)
{
	struct gw_rng rng;

	gw_rng_init(&rng, how);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t r = gw_rng_u64(&rng), v = gw_element_load(new_bits + (size_t)i * s->width, s->width);

		if (r & ((1u << how % 16) - 1))
			continue;
		v = r >> 60 == 0 ? gw_rng_u64(&rng) : r >> 59 & 1 ? v + 1 : v - 1;
		gw_element_store(new_bits + (size_t)i * s->width, s->width, v);
	}
}

#endif
