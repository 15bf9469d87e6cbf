/*
 * Speed of fingerprint scans, one core, beside what the same core can read in the same run.
 *   fingerprint [MIB] [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "patch/fingerprint.h"

static const char *const impls[] = {"scalar", "avx2", "avx512"};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads every byte and adds it up, eight streams of words: what memory gives to one core. */
static uint64_t read_all(const uint64_t *p, size_t words)
{
	uint64_t s[8] = {0};

	for (size_t i = 0; i + 8 <= words; i += 8)
		for (size_t k = 0; k < 8; k++)
			s[k] += p[i + k];
	return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

/* Best of `rounds`, in GB/s; width 0 reads only. */
static double rate(const void *p, size_t bytes, unsigned width, int rounds)
{
	double best = 0;

	for (int i = 0; i < rounds; i++) {
		uint64_t lane[2] = {0, 0};
		double t = now_s();

		if (width)
			gw_print_run(lane, width, 0, p, bytes / width);
		else
			lane[0] = read_all(p, bytes / 8);
		__asm__ volatile("" : : "r"(lane[0]), "r"(lane[1]) : "memory");
		t = now_s() - t;
		if ((double)bytes / t > best)
			best = (double)bytes / t;
	}
	return best * 1e-9;
}

int main(int argc, char **argv)
{
	size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 0) : 256) << 20;
	int rounds = argc > 2 ? atoi(argv[2]) : 5;
	uint64_t *p = malloc(bytes);
	enum gw_print_impl best = gw_print_used();
	struct gw_rng r;
	double ceiling;

	if (!p || !bytes || rounds < 1) {
		(void)fprintf(stderr, "usage: fingerprint [MIB] [ROUNDS]\n");
		return 2;
	}
	gw_rng_init(&r, 1);
	for (size_t i = 0; i < bytes / 8; i++)
		p[i] = gw_rng_u64(&r);
	ceiling = rate(p, bytes, 0, rounds);
	printf("one core, %zu MiB, best of %d; reads at %.1f GB/s\n", bytes >> 20, rounds, ceiling);
	printf("%-8s %8s %8s %8s %8s   GB/s by element width\n", "", "1", "2", "4", "8");
	for (int i = 0; i < 3; i++) {
		if (gw_print_use((enum gw_print_impl)i))
			continue;
		printf("%-8s", impls[i]);
		for (unsigned width = 1; width <= 8; width *= 2)
			printf(" %8.2f", rate(p, bytes, width, rounds));
		printf("\n");
	}
	gw_print_use(best);
	for (unsigned width = 1; width <= 8; width *= 2) {
		double v = rate(p, bytes, width, rounds);

		printf("RESULT fingerprint.scan.width%u %.2f GB/s read_ceiling=%.2f ratio=%.2f impl=%s\n", width, v,
		       ceiling, v / ceiling, impls[best]);
	}
	free(p);
	return 0;
}
