#include "clock.h"

#include <stdlib.h>
#include <time.h>

static double seconds(clockid_t clock)
{
	struct timespec t;

	(void)clock_gettime(clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct bench_time bench_now(void)
{
	return (struct bench_time){.cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID), .wall_s = seconds(CLOCK_MONOTONIC)};
}

struct bench_time bench_since(struct bench_time start)
{
	struct bench_time t = bench_now();

	t.cpu_s -= start.cpu_s;
	t.wall_s -= start.wall_s;
	t.least_s = t.wall_s;
	t.runs = 1;
	return t;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int bench_median(struct bench_time *median, int runs, void (*before)(void *ctx), int (*task)(void *ctx), void *ctx)
{
	double cpu[BENCH_RUNS_MAX], wall[BENCH_RUNS_MAX];

	runs = runs < 1 ? 1 : runs > BENCH_RUNS_MAX ? BENCH_RUNS_MAX : runs;
	for (int i = 0; i < runs; i++) {
		struct bench_time t;
		int err;

		if (before)
			before(ctx);
		t = bench_now();
		err = task(ctx);
		t = bench_since(t);
		if (err)
			return err;
		cpu[i] = t.cpu_s;
		wall[i] = t.wall_s;
	}
	qsort(cpu, (size_t)runs, sizeof cpu[0], by_value);
	qsort(wall, (size_t)runs, sizeof wall[0], by_value);
	*median = (struct bench_time){cpu[runs / 2], wall[runs / 2], wall[0], runs};
	return 0;
}
