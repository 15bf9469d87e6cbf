#include "stories.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long number(const char *name, unsigned long long otherwise)
{
	const char *v = getenv(name);

	return v && *v ? strtoull(v, NULL, 10) : otherwise;
}

int stories_main(const struct story *v, size_t n, unsigned seeds)
{
	unsigned long long first = number("SEED", 1), last = getenv("SEED") ? first : number("SEEDS", seeds);
	const char *only = getenv("STORY");
	unsigned passed = 0;

	for (size_t i = 0; i < n; i++) {
		if (only && *only && strcmp(only, v[i].name) != 0)
			continue;
		for (unsigned long long seed = first; seed <= last; seed++) {
			printf("%s, seed %llu\n", v[i].name, seed);
			fflush(stdout);
			v[i].tell(seed);
			passed++;
		}
	}
	printf("%u passed, 0 failed, 0 skipped\n", passed);
	return passed ? 0 : 1;
}
