#include "io/os/clock.h"

#include <assert.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;
	int failed = clock_gettime(id, &t);

	assert(!failed);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t gw_clock_mono_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t gw_clock_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}
