#include "io/os/loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/heap.h"
#include "io/os/clock.h"

enum { EVENTS_A_TURN = 64, IDLE_MAX = 8, SIGNALS = 65 };

struct gw_watch {
	struct gw_loop *loop;
	int fd, dead;
	uint32_t events;
	void (*ready)(void *ctx, uint32_t events);
	void *ctx;
	struct gw_watch *next; /* among all, or among the dead */
	struct gw_watch **link;
};

/* What lies in the heap: a one-shot call, or the place of a gw_timer (NULL once that was stopped or moved). */
struct gw_timer_node {
	void (*fire)(void *ctx, uint64_t key);
	void *ctx;
	uint64_t key;
	struct gw_timer *timer;
	uint64_t want_ns; /* when the timer shall fire; the heap may wake earlier */
};

struct idle {
	int (*fn)(void *ctx);
	void *ctx;
};

struct gw_loop {
	int epoll, wake, signals;
	uint64_t now_ns;
	struct gw_heap timers;
	size_t stale; /* nodes in the heap that nobody wants */
	struct gw_watch *watches, *dead;
	size_t watch_count;
	struct gw_watch *wake_watch, *signal_watch;
	sigset_t signal_set;
	struct {
		void (*fn)(void *ctx, int signo);
		void *ctx;
	} on_signal[SIGNALS];
	struct idle idle[IDLE_MAX];
	size_t idle_count;
	atomic_int stop;
	atomic_int code;
	pthread_mutex_t lock; /* over the posts */
	struct gw_post *first, **last;
	int woken; /* the eventfd was written since the posts were taken */
};

/* --- descriptors --- */

int gw_loop_watch(struct gw_loop *l, int fd, uint32_t events, void (*ready)(void *ctx, uint32_t events), void *ctx,
		  struct gw_watch **out)
{
	struct gw_watch *w;
	struct epoll_event ev = {.events = events};
	int err;

	if (l->watch_count >= GW_LOOP_WATCHES_MAX)
		return GW_ELIMIT;
	w = calloc(1, sizeof *w);
	if (!w)
		return GW_ENOMEM;
	ev.data.ptr = w;
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev)) {
		err = gw_err_from_errno(errno);
		free(w);
		return err;
	}
	*w = (struct gw_watch){l, fd, 0, events, ready, ctx, l->watches, &l->watches};
	if (l->watches)
		l->watches->link = &w->next;
	l->watches = w;
	l->watch_count++;
	*out = w;
	return 0;
}

int gw_loop_watch_events(struct gw_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (w->events == events)
		return 0;
	if (epoll_ctl(w->loop->epoll, EPOLL_CTL_MOD, w->fd, &ev))
		return gw_err_from_errno(errno);
	w->events = events;
	return 0;
}

void gw_loop_unwatch(struct gw_watch *w)
{
	struct gw_loop *l;

	if (!w)
		return;
	l = w->loop;
	assert(!w->dead);
	(void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	/* This turn's events may still point here: freed at its end. */
	w->dead = 1;
	w->next = l->dead;
	l->dead = w;
	l->watch_count--;
}

static void free_dead(struct gw_loop *l)
{
	struct gw_watch *w = l->dead, *next;

	for (l->dead = NULL; w; w = next) {
		next = w->next;
		free(w);
	}
}

/* --- timers --- */

static int node_is_stale(const struct gw_timer_node *n)
{
	return !n->fire && !n->timer;
}

static int by_time(const void *a, const void *b)
{
	const struct gw_heap_item *x = a, *y = b;

	if (x->when_ns != y->when_ns)
		return x->when_ns < y->when_ns ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Stopped timers leave nodes behind until their time comes. When they are most of the heap, they go: what is left
 * is sorted, and a sorted array is a heap. */
static void drop_stale(struct gw_loop *l)
{
	struct gw_heap *h = &l->timers;
	size_t kept = 0;

	if (l->stale < 1024 || l->stale < h->n / 2)
		return;
	for (size_t i = 0; i < h->n; i++) {
		if (node_is_stale(h->items[i].ptr))
			free(h->items[i].ptr);
		else
			h->items[kept++] = h->items[i];
	}
	h->n = kept;
	if (kept)
		qsort(h->items, kept, sizeof h->items[0], by_time);
	l->stale = 0;
}

static int push_node(struct gw_loop *l, uint64_t when_ns, const struct gw_timer_node *node, struct gw_timer_node **out)
{
	struct gw_timer_node *n;
	int err;

	drop_stale(l);
	if (l->timers.n >= GW_LOOP_TIMERS_MAX)
		return GW_ELIMIT;
	n = malloc(sizeof *n);
	if (!n)
		return GW_ENOMEM;
	*n = *node;
	/* The past counts as now, so that one who always asks for it does not keep those behind from their turn. */
	err = gw_heap_push(&l->timers, when_ns < l->now_ns ? l->now_ns : when_ns, 0, n);
	if (err) {
		free(n);
		return err;
	}
	if (out)
		*out = n;
	return 0;
}

int gw_loop_at(struct gw_loop *l, uint64_t when_ns, void (*fire)(void *ctx, uint64_t key), void *ctx, uint64_t key)
{
	struct gw_timer_node n = {fire, ctx, key, NULL, when_ns};

	return push_node(l, when_ns, &n, NULL);
}

int gw_timer_set(struct gw_loop *l, struct gw_timer *t, uint64_t when_ns)
{
	struct gw_timer_node n = {NULL, NULL, 0, t, when_ns};
	struct gw_timer_node *made;
	int err;

	/* Later than before, as nearly always: the node wakes early once and goes back. */
	if (t->node && when_ns >= t->node->want_ns) {
		t->node->want_ns = when_ns;
		return 0;
	}
	err = push_node(l, when_ns, &n, &made);
	if (err)
		return err;
	gw_timer_stop(l, t);
	t->node = made;
	return 0;
}

void gw_timer_stop(struct gw_loop *l, struct gw_timer *t)
{
	if (!t->node)
		return;
	t->node->timer = NULL;
	t->node = NULL;
	l->stale++;
}

static void fire_node(struct gw_loop *l, struct gw_timer_node *n)
{
	struct gw_timer *t = n->timer;
	struct gw_timer_node copy = *n;

	if (t && n->want_ns > l->now_ns && !gw_heap_push(&l->timers, n->want_ns, 0, n))
		return;
	free(n);
	if (t) {
		t->node = NULL;
		t->fire(t->ctx);
	} else if (copy.fire) {
		copy.fire(copy.ctx, copy.key);
	} else {
		l->stale--;
	}
}

/* Those due when the turn woke. A callback that sets one for now or the past is called in the next turn, since its node
 * stands behind: the count bounds the round. */
static void fire_due(struct gw_loop *l)
{
	const struct gw_heap_item *top;
	uint64_t last = l->timers.seq;

	while ((top = gw_heap_top(&l->timers)) && top->when_ns <= l->now_ns && top->seq < last && !atomic_load(&l->stop))
		fire_node(l, gw_heap_pop(&l->timers).ptr);
}

/* --- signals --- */

static void on_signalfd(void *ctx, uint32_t events)
{
	struct gw_loop *l = ctx;
	struct signalfd_siginfo info;

	(void)events;
	while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info) {
		int signo = (int)info.ssi_signo;

		if (signo > 0 && signo < SIGNALS && l->on_signal[signo].fn)
			l->on_signal[signo].fn(l->on_signal[signo].ctx, signo);
	}
}

int gw_loop_signal(struct gw_loop *l, int signo, void (*fn)(void *ctx, int signo), void *ctx)
{
	sigset_t set;
	int fd;

	if (signo <= 0 || signo >= SIGNALS)
		return GW_EINVAL;
	(void)sigaddset(&l->signal_set, signo);
	fd = signalfd(l->signals, &l->signal_set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return gw_err_from_errno(errno);
	l->signals = fd;
	l->on_signal[signo].fn = fn;
	l->on_signal[signo].ctx = ctx;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, signo);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	return l->signal_watch ? 0 : gw_loop_watch(l, fd, EPOLLIN, on_signalfd, l, &l->signal_watch);
}

/* --- posts --- */

/* Under the lock: once the loop has seen what it was woken for, its owner may free it. */
static void wake(struct gw_loop *l)
{
	const uint64_t one = 1;

	if (!l->woken)
		(void)!write(l->wake, &one, sizeof one);
	l->woken = 1;
}

void gw_loop_post(struct gw_loop *l, struct gw_post *post)
{
	pthread_mutex_lock(&l->lock);
	post->next = NULL;
	*l->last = post;
	l->last = &post->next;
	wake(l);
	pthread_mutex_unlock(&l->lock);
}

static void on_wake(void *ctx, uint32_t events)
{
	/* It only ends the wait: each turn takes the posts. */
	(void)ctx;
	(void)events;
}

static void take_posts(struct gw_loop *l)
{
	struct gw_post *p, *next;
	uint64_t count;

	pthread_mutex_lock(&l->lock);
	if (l->woken)
		(void)!read(l->wake, &count, sizeof count);
	p = l->first;
	l->first = NULL;
	l->last = &l->first;
	l->woken = 0;
	pthread_mutex_unlock(&l->lock);
	for (; p; p = next) {
		next = p->next;
		p->fn(p);
	}
}

/* --- idle hooks --- */

int gw_loop_idle(struct gw_loop *l, int (*fn)(void *ctx), void *ctx)
{
	if (l->idle_count == IDLE_MAX)
		return GW_ELIMIT;
	l->idle[l->idle_count++] = (struct idle){fn, ctx};
	return 0;
}

void gw_loop_unidle(struct gw_loop *l, int (*fn)(void *ctx), void *ctx)
{
	for (size_t i = 0; i < l->idle_count; i++) {
		if (l->idle[i].fn == fn && l->idle[i].ctx == ctx) {
			l->idle[i] = l->idle[--l->idle_count];
			return;
		}
	}
}

static int more_to_do(struct gw_loop *l)
{
	int more = 0;

	for (size_t i = 0; i < l->idle_count; i++)
		more |= l->idle[i].fn(l->idle[i].ctx) != 0;
	return more;
}

/* --- turning --- */

/* Rounded up: waking early would spin. */
static int wait_ms(struct gw_loop *l, int timeout_ms)
{
	const struct gw_heap_item *top = gw_heap_top(&l->timers);
	uint64_t now = gw_clock_mono_ns(), ms;

	if (!top)
		return timeout_ms;
	if (top->when_ns <= now)
		return 0;
	ms = (top->when_ns - now + 999999) / 1000000;
	if (timeout_ms >= 0 && ms > (uint64_t)timeout_ms)
		return timeout_ms;
	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

int gw_loop_turn(struct gw_loop *l, int timeout_ms)
{
	struct epoll_event ev[EVENTS_A_TURN];
	int n = epoll_wait(l->epoll, ev, EVENTS_A_TURN, more_to_do(l) ? 0 : wait_ms(l, timeout_ms));

	if (n < 0 && errno != EINTR)
		return gw_err_from_errno(errno);
	l->now_ns = gw_clock_mono_ns();
	take_posts(l);
	fire_due(l);
	for (int i = 0; i < n; i++) {
		struct gw_watch *w = ev[i].data.ptr;

		if (!w->dead)
			w->ready(w->ctx, ev[i].events);
	}
	free_dead(l);
	return 0;
}

int gw_loop_run(struct gw_loop *l)
{
	int err = 0;

	while (!err && !atomic_load(&l->stop))
		err = gw_loop_turn(l, -1);
	return err ? err : atomic_load(&l->code);
}

void gw_loop_stop(struct gw_loop *l, int code)
{
	pthread_mutex_lock(&l->lock);
	if (!atomic_load(&l->stop))
		atomic_store(&l->code, code);
	atomic_store(&l->stop, 1);
	wake(l);
	pthread_mutex_unlock(&l->lock);
}

uint64_t gw_loop_now_ns(const struct gw_loop *l)
{
	return l->now_ns;
}

/* --- life --- */

void gw_loop_free(struct gw_loop *l)
{
	if (!l)
		return;
	while (l->watches)
		gw_loop_unwatch(l->watches);
	free_dead(l);
	while (gw_heap_top(&l->timers)) {
		struct gw_timer_node *n = gw_heap_pop(&l->timers).ptr;

		if (n->timer)
			n->timer->node = NULL;
		free(n);
	}
	gw_heap_free(&l->timers);
	if (l->signals >= 0)
		(void)close(l->signals);
	if (l->wake >= 0)
		(void)close(l->wake);
	if (l->epoll >= 0)
		(void)close(l->epoll);
	(void)pthread_mutex_destroy(&l->lock);
	free(l);
}

int gw_loop_new(struct gw_loop **out, struct gw_diag *why)
{
	struct gw_loop *l = calloc(1, sizeof *l);
	int err;

	if (!l)
		return GW_ENOMEM;
	l->signals = -1;
	l->last = &l->first;
	gw_heap_init(&l->timers);
	(void)sigemptyset(&l->signal_set);
	(void)pthread_mutex_init(&l->lock, NULL);
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	err = l->wake < 0 || l->epoll < 0 ? gw_err_from_errno(errno)
					  : gw_loop_watch(l, l->wake, EPOLLIN, on_wake, l, &l->wake_watch);
	if (err) {
		gw_loop_free(l);
		return gw_diag_set(why, err, "cannot make an event loop: %s", gw_err_text(err));
	}
	l->now_ns = gw_clock_mono_ns();
	*out = l;
	return 0;
}
