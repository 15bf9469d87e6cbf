/*
 * base/pool.h with threads. The caller of `run` is worker 0; width - 1 threads are the others. Tasks are
 * taken in order, so the lowest index that failed is known when all that began have ended.
 *
 * Several threads may call run on one pool: they take turns. A task must not call run on its own pool
 * (asserted). Does not survive fork.
 */
#ifndef GW_IO_OS_POOL_H
#define GW_IO_OS_POOL_H

#include "base/err.h"
#include "base/pool.h"

enum { GW_POOL_WIDTH_MAX = 1024 };

/* width 0: one per processor this process may use. */
int gw_pool_threads_init(struct gw_pool *pool, unsigned width, struct gw_diag *why);
/* No run may be under way. Does nothing on a zeroed pool. */
void gw_pool_threads_free(struct gw_pool *pool);

#endif
