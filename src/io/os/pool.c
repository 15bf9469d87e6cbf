#include "io/os/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/os/thread.h"

struct round {
	size_t n, next; /* tasks; the next to begin */
	int (*task)(void *arg, size_t i, unsigned worker);
	void *arg;
	size_t failed; /* lowest index that failed */
	int err;
};

struct threads {
	pthread_mutex_t turn; /* held by the caller whose round it is */
	pthread_mutex_t lock; /* over what follows */
	pthread_cond_t begin, end;
	struct round *round; /* NULL between rounds */
	uint64_t number;     /* of the round, so that a thread joins each once */
	unsigned busy;       /* threads in the round */
	int quit;
	unsigned count, named;
	pthread_t ids[];
};

/* The pool that this thread is running a task of. */
static __thread const struct threads *inside;

/* Takes tasks until none is left or one failed. Called and left with the lock held. */
static void work(struct threads *t, struct round *r, unsigned worker)
{
	const struct threads *outer = inside;

	inside = t;
	while (r->next < r->n && !r->err) {
		size_t i = r->next++;
		int err;

		pthread_mutex_unlock(&t->lock);
		err = r->task(r->arg, i, worker);
		pthread_mutex_lock(&t->lock);
		if (err && (!r->err || i < r->failed)) {
			r->err = err;
			r->failed = i;
		}
	}
	inside = outer;
}

static void *run_thread(void *arg)
{
	struct threads *t = arg;
	uint64_t seen = 0;
	unsigned worker;

	pthread_mutex_lock(&t->lock);
	worker = ++t->named;
	while (!t->quit) {
		if (!t->round || t->number == seen) {
			pthread_cond_wait(&t->begin, &t->lock);
			continue;
		}
		seen = t->number;
		t->busy++;
		work(t, t->round, worker);
		if (--t->busy == 0)
			pthread_cond_signal(&t->end);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int run(struct gw_pool *pool, size_t n, int (*task)(void *arg, size_t i, unsigned worker), void *arg)
{
	struct threads *t = pool->ctx;
	struct round r = {n, 0, task, arg, SIZE_MAX, 0};

	assert(inside != t);
	pthread_mutex_lock(&t->turn);
	pthread_mutex_lock(&t->lock);
	t->round = &r;
	t->number++;
	if (n > 1)
		pthread_cond_broadcast(&t->begin);
	work(t, &r, 0);
	/* Whoever has not joined by now would find nothing to do: it is not waited for. */
	t->round = NULL;
	while (t->busy)
		pthread_cond_wait(&t->end, &t->lock);
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_unlock(&t->turn);
	return r.err;
}

static void stop(struct threads *t)
{
	pthread_mutex_lock(&t->lock);
	t->quit = 1;
	pthread_cond_broadcast(&t->begin);
	pthread_mutex_unlock(&t->lock);
	for (unsigned i = 0; i < t->count; i++)
		(void)pthread_join(t->ids[i], NULL);
	pthread_cond_destroy(&t->end);
	pthread_cond_destroy(&t->begin);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->turn);
	free(t);
}

int gw_pool_threads_init(struct gw_pool *pool, unsigned width, struct gw_diag *why)
{
	struct threads *t;
	int err;

	if (!width)
		width = gw_thread_cpus();
	if (width > GW_POOL_WIDTH_MAX)
		return gw_diag_set(why, GW_ELIMIT, "%u threads are more than the limit of %d", width, GW_POOL_WIDTH_MAX);
	t = calloc(1, sizeof *t + (width - 1) * sizeof t->ids[0]);
	if (!t)
		return GW_ENOMEM;
	(void)pthread_mutex_init(&t->turn, NULL);
	(void)pthread_mutex_init(&t->lock, NULL);
	(void)pthread_cond_init(&t->begin, NULL);
	(void)pthread_cond_init(&t->end, NULL);
	for (; t->count < width - 1; t->count++) {
		err = gw_thread_start(&t->ids[t->count], "gw-pool", run_thread, t);
		if (err) {
			stop(t);
			return gw_diag_set(why, err, "cannot start %u threads: %s", width, gw_err_text(err));
		}
	}
	*pool = (struct gw_pool){t, width, run};
	return 0;
}

void gw_pool_threads_free(struct gw_pool *pool)
{
	if (pool->ctx)
		stop(pool->ctx);
	memset(pool, 0, sizeof *pool);
}
