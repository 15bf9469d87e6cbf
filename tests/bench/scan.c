/*
 * Speed of the scan, one core, beside what the same core can read of both sides in the same run. Prints RESULT lines.
 *   scan [MIB-A-SIDE] [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "patch/scan.h"

static const char *const impls[] = {"scalar", "avx2", "avx512"};

static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
#define VECTORS(isa) __attribute__((target(isa), optimize("O3")))
#else
#define VECTORS(isa)
#endif
#define READ_BOTH(name, isa)                                                                                           \
	static VECTORS(isa) uint64_t name(const uint64_t *a, const uint64_t *b, size_t words)                          \
	{                                                                                                              \
		uint64_t s[32] = {0}, all = 0;                                                                         \
		for (size_t i = 0; i + 32 <= words; i += 32)                                                           \
			for (size_t k = 0; k < 32; k++)                                                                \
				s[k] |= a[i + k] ^ b[i + k];                                                           \
		for (size_t k = 0; k < 32; k++)                                                                        \
			all |= s[k];                                                                                   \
		return all;                                                                                            \
	}
READ_BOTH(read_plain, "sse2")
READ_BOTH(read_avx2, "avx2")
READ_BOTH(read_avx512, "avx512f,prefer-vector-width=512")

struct sides {
	uint8_t *old, *new_bits;
	size_t bytes; /* of each */
	struct gw_changes_buf changes;
};

/* One time through both sides, by the tile as a diff does it; width 0 reads only. Returns seconds. */
static double pass(struct sides *s, unsigned width, int impl)
{
	double t = now_s();

	if (!width) {
		uint64_t (*const read[])(const uint64_t *, const uint64_t *, size_t) = {read_plain, read_avx2,
											read_avx512};
		uint64_t x = read[impl]((const void *)s->old, (const void *)s->new_bits, s->bytes / 8);

		__asm__ volatile("" : : "r"(x) : "memory");
		return now_s() - t;
	}
	for (size_t at = 0, n; at < s->bytes; at += n) {
		n = (size_t)GW_TILE_ELEMENTS_MAX * width;
		n = n < s->bytes - at ? n : s->bytes - at;
		(void)gw_scan_run(&s->changes, 0, s->old + at, s->new_bits + at, n / width, width, 0);
	}
	return now_s() - t;
}

/* Both sides together, in GB/s, the median of what the rounds gave. */
static int by_size(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double rate(const struct sides *s, double *seconds, int rounds)
{
	qsort(seconds, (size_t)rounds, sizeof *seconds, by_size);
	return 2e-9 * (double)s->bytes / seconds[rounds / 2];
}

static void change(struct sides *s, double density)
{
	struct gw_rng r;

	memcpy(s->new_bits, s->old, s->bytes);
	gw_rng_init(&r, 2);
	for (size_t i = 0; i < s->bytes / 2; i++)
		if ((double)(gw_rng_u64(&r) >> 11) * 0x1p-53 < density)
			s->new_bits[2 * i] ^= 1;
}

int main(int argc, char **argv)
{
	static const double densities[] = {0, 0.0008, 0.002, 0.0035, 0.01, 0.025, 0.1};
	struct sides s = {.bytes = (argc > 1 ? strtoull(argv[1], NULL, 0) : 256) << 20};
	int rounds = argc > 2 ? atoi(argv[2]) : 11;
	enum gw_scan_impl best = gw_scan_used();
	double *read, *scan;
	struct gw_rng r;

	s.old = malloc(s.bytes + 1);
	s.new_bits = malloc(s.bytes + 1);
	read = calloc((size_t)rounds + 1, sizeof *read);
	scan = calloc((size_t)rounds + 1, sizeof *scan);
	if (!s.old || !s.new_bits || !read || !scan || gw_changes_buf_init(&s.changes) || !s.bytes || rounds < 1) {
		(void)fprintf(stderr, "usage: scan [MIB-A-SIDE] [ROUNDS]\n");
		return 2;
	}
	gw_rng_init(&r, 1);
	for (size_t i = 0; i < s.bytes; i += 8) {
		uint64_t v = gw_rng_u64(&r);

		memcpy(s.old + i, &v, 8);
	}
	for (size_t d = 0; d < sizeof densities / sizeof densities[0]; d++) {
		change(&s, densities[d]);
		for (int impl = 0; impl <= (int)best; impl++) {
			if (gw_scan_use((enum gw_scan_impl)impl))
				continue;
			for (unsigned width = 1; width <= 8; width *= 2) {
				double ceiling, got;

				/* Turn by turn: what else the machine does meets both alike. */
				for (int i = 0; i < rounds; i++) {
					read[i] = pass(&s, 0, (int)best);
					scan[i] = pass(&s, width, impl);
				}
				ceiling = rate(&s, read, rounds);
				got = rate(&s, scan, rounds);
				printf("RESULT scan.%s.w%u.%gpct %.2f GB/s ceiling=%.2f ratio=%.3f\n", impls[impl],
				       width, 100 * densities[d], got, ceiling, got / ceiling);
			}
		}
	}
	free(s.old);
	free(s.new_bits);
	free(read);
	free(scan);
	gw_changes_buf_free(&s.changes);
	return 0;
}
