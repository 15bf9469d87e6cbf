/*
 * Running independent tasks side by side. Layers that can use several cores are given one of these;
 * io/os has the one with threads, gw_pool_serial is the one without.
 */
#ifndef GW_BASE_POOL_H
#define GW_BASE_POOL_H

#include <stddef.h>

struct gw_pool {
	void *ctx;
	unsigned width; /* how many tasks may run at once, at least 1 */
	/* Runs task(arg, i, worker) for every i in [0, n), worker in [0, width): one worker runs one task at a
	 * time, so that per-worker scratch needs no lock. Returns when all are done, with the error of the
	 * lowest i that failed; after a failure, tasks that have not begun may be left out. */
	int (*run)(struct gw_pool *pool, size_t n, int (*task)(void *arg, size_t i, unsigned worker), void *arg);
};

struct gw_pool gw_pool_serial(void);

#endif
