/*
 * What all unit tests share: a main that runs one suite. A test program defines `suite()`.
 * CK_FORK=no in the environment keeps everything in one process, for debuggers and valgrind.
 */
#ifndef GW_TESTS_UNIT_H
#define GW_TESTS_UNIT_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The seed of a test's random choices: SEED of the environment, or a fixed one. Printed, for replays. */
static inline uint64_t unit_seed(void)
{
	const char *s = getenv("SEED");
	uint64_t v = s ? strtoull(s, NULL, 0) : 20260614;
	static int said;

	if (!said++)
		(void)fprintf(stderr, "SEED=%llu\n", (unsigned long long)v);
	return v;
}

#define UNIT_MAIN(make_suite) \
	int main(void) \
	{ \
		SRunner *r = srunner_create(make_suite()); \
		int failed; \
		srunner_run_all(r, CK_NORMAL); \
		failed = srunner_ntests_failed(r); \
		srunner_free(r); \
		return failed ? EXIT_FAILURE : EXIT_SUCCESS; \
	}

#endif
