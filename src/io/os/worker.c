#include "io/os/worker.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "io/os/thread.h"

struct gw_workers {
	struct gw_loop *loop;
	size_t max_jobs, pending; /* pending: not yet called back; the loop's thread alone looks at it */
	pthread_mutex_t lock;     /* over what follows */
	pthread_cond_t more;
	struct gw_job *first, **last;
	int quit;
	unsigned count, named;
	pthread_t ids[];
};

/* On the loop's thread. */
static void call_back(struct gw_post *post)
{
	struct gw_job *j = (struct gw_job *)((char *)post - offsetof(struct gw_job, post));

	j->workers->pending--;
	j->done(j, j->err);
}

static struct gw_job *take(struct gw_workers *w)
{
	struct gw_job *j = w->first;

	if (j) {
		w->first = j->next;
		if (!w->first)
			w->last = &w->first;
	}
	return j;
}

static void *run_thread(void *arg)
{
	struct gw_workers *w = arg;
	unsigned number;

	pthread_mutex_lock(&w->lock);
	number = w->named++;
	while (!w->quit) {
		struct gw_job *j = take(w);

		if (!j) {
			pthread_cond_wait(&w->more, &w->lock);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		j->err = j->work(j, number);
		gw_loop_post(w->loop, &j->post);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int gw_workers_submit(struct gw_workers *w, struct gw_job *j)
{
	if (w->pending >= w->max_jobs || w->quit)
		return GW_EAGAIN;
	w->pending++;
	j->post.fn = call_back;
	j->workers = w;
	j->next = NULL;
	pthread_mutex_lock(&w->lock);
	*w->last = j;
	w->last = &j->next;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

size_t gw_workers_pending(const struct gw_workers *w)
{
	return w->pending;
}

static void join_all(struct gw_workers *w)
{
	pthread_mutex_lock(&w->lock);
	w->quit = 1;
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->count; i++)
		(void)pthread_join(w->ids[i], NULL);
}

void gw_workers_free(struct gw_workers *w)
{
	struct gw_job *j;

	if (!w)
		return;
	join_all(w);
	while ((j = take(w))) {
		j->err = GW_EINTR;
		gw_loop_post(w->loop, &j->post);
	}
	/* Turns, not direct calls: finished jobs stand among the posts of others. */
	while (w->pending) {
		int err = gw_loop_turn(w->loop, 0);

		assert(!err);
	}
	(void)pthread_cond_destroy(&w->more);
	(void)pthread_mutex_destroy(&w->lock);
	free(w);
}

int gw_workers_new(struct gw_workers **out, struct gw_loop *l, unsigned threads, size_t max_jobs, struct gw_diag *why)
{
	struct gw_workers *w;

	if (!threads || threads > 1024 || !max_jobs)
		return gw_diag_set(why, GW_EINVAL, "%u worker threads: give 1 to 1024", threads);
	w = calloc(1, sizeof *w + threads * sizeof w->ids[0]);
	if (!w)
		return GW_ENOMEM;
	w->loop = l;
	w->max_jobs = max_jobs;
	w->last = &w->first;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->more, NULL);
	for (; w->count < threads; w->count++) {
		int err = gw_thread_start(&w->ids[w->count], "gw-worker", run_thread, w);

		if (err) {
			gw_workers_free(w);
			return gw_diag_set(why, err, "cannot start worker threads: %s", gw_err_text(err));
		}
	}
	*out = w;
	return 0;
}
