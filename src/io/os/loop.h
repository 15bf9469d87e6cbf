/*
 * The loop: one thread that waits for descriptors, timers, signals and posts of other threads, and calls
 * back. epoll (level-triggered), signalfd, eventfd, base/heap on CLOCK_MONOTONIC.
 *
 * Everything but gw_loop_post and gw_loop_stop belongs to the loop's thread. Callbacks may add and remove
 * anything, themselves included: one that was removed is not called again, not even in the same turn.
 * In a turn: posts, then due timers, then descriptors, then the idle hooks.
 */
#ifndef GW_IO_OS_LOOP_H
#define GW_IO_OS_LOOP_H

#include <stdint.h>

#include "base/err.h"

enum {
	GW_LOOP_TIMERS_MAX = 1 << 20,  /* pending at a time; GW_ELIMIT beyond */
	GW_LOOP_WATCHES_MAX = 1 << 17,
};

struct gw_loop;

int gw_loop_new(struct gw_loop **out, struct gw_diag *why);
/* Pending timers and posts are dropped uncalled; watched descriptors stay open, they are their owners'. */
void gw_loop_free(struct gw_loop *l);

/* Turns until stop; returns what stop was given. */
int gw_loop_run(struct gw_loop *l);
/* One turn that waits at most timeout_ms (-1: until something happens). */
int gw_loop_turn(struct gw_loop *l, int timeout_ms);
/* Ends run after this turn. From any thread, or a callback. The first code stays. */
void gw_loop_stop(struct gw_loop *l, int code);
/* The monotonic clock as read when this turn woke; the same for all callbacks of a turn. */
uint64_t gw_loop_now_ns(const struct gw_loop *l);

/* --- descriptors --- */

struct gw_watch;

/* events: EPOLLIN, EPOLLOUT, 0 for errors only. `ready` gets what epoll reports (EPOLLERR and EPOLLHUP
 * come unasked). The descriptor must stay open until unwatch. */
int gw_loop_watch(struct gw_loop *l, int fd, uint32_t events, void (*ready)(void *ctx, uint32_t events), void *ctx,
		  struct gw_watch **out);
int gw_loop_watch_events(struct gw_watch *w, uint32_t events);
/* NULL does nothing. */
void gw_loop_unwatch(struct gw_watch *w);

/* --- timers --- */

/* Fires once at or after when_ns; cannot be taken back: the owner ignores keys it no longer wants. */
int gw_loop_at(struct gw_loop *l, uint64_t when_ns, void (*fire)(void *ctx, uint64_t key), void *ctx, uint64_t key);

/* A timer that can be moved and stopped; zeroed but for fire and ctx, owned by the caller, who stops it
 * before freeing it. It is free to be set again when it fires. */
struct gw_timer {
	void (*fire)(void *ctx);
	void *ctx;
	struct gw_timer_node *node; /* the loop's */
};

int gw_timer_set(struct gw_loop *l, struct gw_timer *t, uint64_t when_ns);
void gw_timer_stop(struct gw_loop *l, struct gw_timer *t);

/* --- signals --- */

/* Blocks the signal in the calling thread (do it before other threads start, so that they inherit that)
 * and calls back on the loop for each. */
int gw_loop_signal(struct gw_loop *l, int signo, void (*fn)(void *ctx, int signo), void *ctx);

/* --- from other threads --- */

/* One call to be made on the loop's thread. Owned by the caller and alive until fn is called; never
 * posted twice at a time. Needs no memory, so it cannot fail. */
struct gw_post {
	void (*fn)(struct gw_post *post);
	struct gw_post *next; /* the loop's */
};

void gw_loop_post(struct gw_loop *l, struct gw_post *post);

/* --- before sleeping --- */

/* Called before each wait; non-zero means there is more to do at once, and the loop does not sleep. For
 * sources whose descriptor is edge-triggered, as ZeroMQ's. At most 8. */
int gw_loop_idle(struct gw_loop *l, int (*idle)(void *ctx), void *ctx);
void gw_loop_unidle(struct gw_loop *l, int (*idle)(void *ctx), void *ctx);

#endif
