#include "base/rng.h"

#include <assert.h>

uint64_t gw_splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void gw_rng_init(struct gw_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = gw_splitmix64(&seed);
}

static uint64_t rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

uint64_t gw_rng_u64(struct gw_rng *r)
{
	uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t gw_rng_below(struct gw_rng *r, uint64_t bound)
{
	uint64_t x, min;

	assert(bound);
	/* Values under 2^64 mod bound would favour the small ones: draw again. */
	min = -bound % bound;
	do
		x = gw_rng_u64(r);
	while (x < min);
	return x % bound;
}

double gw_rng_unit(struct gw_rng *r)
{
	return (double)(gw_rng_u64(r) >> 11) * 0x1.0p-53;
}
