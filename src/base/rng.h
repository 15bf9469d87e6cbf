/*
 * A small deterministic random generator: xoshiro256** seeded through splitmix64 (Blackman and Vigna,
 * "Scrambled linear pseudorandom number generators", 2018). Not for keys: those come from libsodium.
 * State machines get one each, seeded at init, so that a seed replays a run.
 */
#ifndef GW_BASE_RNG_H
#define GW_BASE_RNG_H

#include <stdint.h>

struct gw_rng {
	uint64_t s[4];
};

/* The step of splitmix64: advances *state and returns a well mixed value. */
uint64_t gw_splitmix64(uint64_t *state);

void gw_rng_init(struct gw_rng *r, uint64_t seed);
uint64_t gw_rng_u64(struct gw_rng *r);
/* Uniform in [0, bound), bound > 0. */
uint64_t gw_rng_below(struct gw_rng *r, uint64_t bound);
/* Uniform in [0, 1). */
double gw_rng_unit(struct gw_rng *r);

#endif
