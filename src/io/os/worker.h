/*
 * Work that would hold up the loop (hashing, disk, coding), done on threads; results come back on the loop's
 * thread. Jobs begin in order of submission; with several threads they may end in any order.
 *
 * Bounded: jobs submitted but not yet called back are at most max_jobs; GW_EAGAIN beyond, and the submitter
 * waits for a done of its own.
 */
#ifndef GW_IO_OS_WORKER_H
#define GW_IO_OS_WORKER_H

#include <stddef.h>

#include "io/os/loop.h"

struct gw_workers;

/* Owned by the submitter, who may free it in `done`. Usually the first member of something larger. */
struct gw_job {
	int (*work)(struct gw_job *job, unsigned worker); /* on worker 0 … threads - 1; its return is err below */
	void (*done)(struct gw_job *job, int err);        /* on the loop's thread, exactly once */
	/* the workers' */
	struct gw_post post;
	struct gw_workers *workers;
	struct gw_job *next;
	int err;
};

int gw_workers_new(struct gw_workers **out, struct gw_loop *l, unsigned threads, size_t max_jobs, struct gw_diag *why);
/* Waits for the jobs that run; those that have not begun are done with GW_EINTR; all are called back before
 * this returns. On the loop's thread, before the loop is freed. */
void gw_workers_free(struct gw_workers *w);
/* On the loop's thread. On error the job was not taken and done is not called. */
int gw_workers_submit(struct gw_workers *w, struct gw_job *job);
size_t gw_workers_pending(const struct gw_workers *w);

#endif
