#include "base/pool.h"

static int run_serial(struct gw_pool *pool, size_t n, int (*task)(void *arg, size_t i, unsigned worker), void *arg)
{
	int err = 0;

	(void)pool;
	for (size_t i = 0; !err && i < n; i++)
		err = task(arg, i, 0);
	return err;
}

struct gw_pool gw_pool_serial(void)
{
	return (struct gw_pool){NULL, 1, run_serial};
}
