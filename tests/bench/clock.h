/*
 * Times of a process: what its threads used of the processors, and what passed meanwhile. A machine that others share
 * shows in the difference of the two. Figures are medians.
 */
#ifndef GW_BENCH_CLOCK_H
#define GW_BENCH_CLOCK_H

struct bench_time {
	double cpu_s, wall_s;
	double least_s; /* of wall_s, for what others can only slow */
	int runs;	/* how many the median is of */
};

struct bench_time bench_now(void);
struct bench_time bench_since(struct bench_time start);

/* Calls `task` so many times, `before` (may be NULL) ahead of each, which is not timed; *median is of cpu_s and of
 * wall_s by themselves. Ends with the first error. */
enum { BENCH_RUNS_MAX = 15 };
int bench_median(struct bench_time *median, int runs, void (*before)(void *ctx), int (*task)(void *ctx), void *ctx);

#endif
