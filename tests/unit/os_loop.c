/* The event loop, and work that is done on other threads and called back on it. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/os/clock.h"
#include "io/os/loop.h"
#include "io/os/thread.h"
#include "io/os/worker.h"
#include "os.h"
#include "unit.h"

struct story {
	struct gw_loop *loop;
	char text[64];
	struct gw_timer timer;
	struct gw_watch *watch;
	int fd[2];
	int again;
};

static void tell(struct story *s, char c)
{
	size_t n = strlen(s->text);

	if (n + 1 < sizeof s->text)
		s->text[n] = c;
}

static void on_key(void *ctx, uint64_t key)
{
	tell(ctx, (char)key);
}

static void on_stop(void *ctx, uint64_t key)
{
	gw_loop_stop(((struct story *)ctx)->loop, (int)key);
}

static void on_timer(void *ctx)
{
	struct story *s = ctx;

	tell(s, 'T');
	if (s->again-- > 0)
		ck_assert_int_eq(gw_timer_set(s->loop, &s->timer, gw_loop_now_ns(s->loop)), 0);
}

static void story_begin(struct story *s)
{
	memset(s, 0, sizeof *s);
	ck_assert_int_eq(gw_loop_new(&s->loop, NULL), 0);
	s->timer.fire = on_timer;
	s->timer.ctx = s;
}

START_TEST(timers_fire_in_order_and_can_move)
{
	struct story s;
	uint64_t now;

	story_begin(&s);
	now = gw_loop_now_ns(s.loop);
	ck_assert_int_eq(gw_loop_at(s.loop, now + 3000000, on_key, &s, 'c'), 0);
	ck_assert_int_eq(gw_loop_at(s.loop, now + 1000000, on_key, &s, 'a'), 0);
	ck_assert_int_eq(gw_loop_at(s.loop, 0, on_key, &s, '0'), 0);
	ck_assert_int_eq(gw_loop_at(s.loop, now + 1000000, on_key, &s, 'b'), 0);
	ck_assert_int_eq(gw_timer_set(s.loop, &s.timer, now + 500000), 0);
	ck_assert_int_eq(gw_timer_set(s.loop, &s.timer, now + 4000000), 0); /* later */
	ck_assert_int_eq(gw_timer_set(s.loop, &s.timer, now + 2000000), 0); /* earlier */
	ck_assert_int_eq(gw_loop_at(s.loop, now + 6000000, on_stop, &s, 7), 0);
	ck_assert_int_eq(gw_loop_run(s.loop), 7);
	ck_assert_str_eq(s.text, "0abTc");
	gw_loop_free(s.loop);
}
END_TEST

START_TEST(a_stopped_timer_stays_silent)
{
	struct story s;

	story_begin(&s);
	/* Many far ones set nearer and stopped: the loop must not keep them all. */
	for (uint64_t i = 0; i < 100000; i++) {
		ck_assert_int_eq(gw_timer_set(s.loop, &s.timer, UINT64_MAX - i), 0);
		if (i % 3 == 0)
			gw_timer_stop(s.loop, &s.timer);
	}
	gw_timer_stop(s.loop, &s.timer);
	ck_assert_int_eq(gw_timer_set(s.loop, &s.timer, 0), 0);
	gw_timer_stop(s.loop, &s.timer);
	gw_timer_stop(s.loop, &s.timer);
	ck_assert_int_eq(gw_loop_turn(s.loop, 1), 0);
	ck_assert_str_eq(s.text, "");
	gw_loop_free(s.loop);
}
END_TEST

START_TEST(a_timer_that_always_wants_now_starves_nobody)
{
	struct story s;

	story_begin(&s);
	s.again = 1000;
	ck_assert_int_eq(gw_timer_set(s.loop, &s.timer, 0), 0);
	ck_assert_int_eq(gw_loop_at(s.loop, gw_loop_now_ns(s.loop) + 1, on_stop, &s, 5), 0);
	ck_assert_int_eq(gw_loop_run(s.loop), 5);
	ck_assert_int_gt(s.again, 900);
	gw_timer_stop(s.loop, &s.timer);
	gw_loop_free(s.loop);
}
END_TEST

static void on_readable(void *ctx, uint32_t events)
{
	struct story *s = ctx;
	char b;

	ck_assert(events & EPOLLIN);
	ck_assert_int_eq(read(s->fd[0], &b, 1), 1);
	tell(s, b);
	if (b == 'q') {
		gw_loop_unwatch(s->watch); /* inside its own call */
		s->watch = NULL;
		gw_loop_stop(s->loop, 0);
	}
}

static void on_usr1(void *ctx, int signo)
{
	tell(ctx, signo == SIGUSR1 ? 'u' : '?');
}

START_TEST(descriptors_and_signals_call_back)
{
	struct story s;

	story_begin(&s);
	ck_assert_int_eq(pipe2(s.fd, O_CLOEXEC), 0);
	ck_assert_int_eq(gw_loop_signal(s.loop, SIGUSR1, on_usr1, &s), 0);
	ck_assert_int_eq(gw_loop_watch(s.loop, s.fd[0], 0, on_readable, &s, &s.watch), 0);
	ck_assert_int_eq(write(s.fd[1], "xyq", 3), 3);
	ck_assert_int_eq(gw_loop_turn(s.loop, 0), 0); /* nobody asked for input yet */
	ck_assert_str_eq(s.text, "");
	ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
	ck_assert_int_eq(gw_loop_turn(s.loop, 1000), 0);
	ck_assert_str_eq(s.text, "u");
	ck_assert_int_eq(gw_loop_watch_events(s.watch, EPOLLIN), 0);
	ck_assert_int_eq(gw_loop_run(s.loop), 0);
	ck_assert_str_eq(s.text, "uxyq");
	gw_loop_unwatch(NULL);
	(void)close(s.fd[0]);
	(void)close(s.fd[1]);
	gw_loop_free(s.loop);
}
END_TEST

static int idle_thrice(void *ctx)
{
	struct story *s = ctx;

	tell(s, 'i');
	return ++s->again < 3;
}

START_TEST(an_idle_hook_keeps_the_loop_awake)
{
	struct story s;

	story_begin(&s);
	ck_assert_int_eq(gw_loop_idle(s.loop, idle_thrice, &s), 0);
	ck_assert_int_eq(gw_loop_turn(s.loop, -1), 0); /* would wait for ever */
	ck_assert_int_eq(gw_loop_turn(s.loop, -1), 0);
	ck_assert_int_eq(gw_loop_turn(s.loop, 0), 0);
	gw_loop_unidle(s.loop, idle_thrice, &s);
	ck_assert_int_eq(gw_loop_turn(s.loop, 0), 0);
	ck_assert_str_eq(s.text, "iii");
	gw_loop_free(s.loop);
}
END_TEST

struct poster {
	struct gw_post post;
	struct gw_loop *loop;
	atomic_int free;
	int count;
};

static void on_post(struct gw_post *post)
{
	struct poster *p = (struct poster *)post;

	p->count++;
	atomic_store(&p->free, 1);
	if (p->count == 500)
		gw_loop_stop(p->loop, 0);
}

static void *post_many(void *arg)
{
	struct poster *p = arg;

	for (int sent = 0; sent < 500;) {
		if (atomic_exchange(&p->free, 0)) {
			gw_loop_post(p->loop, &p->post);
			sent++;
		} else {
			sched_yield();
		}
	}
	return NULL;
}

START_TEST(posts_wake_the_loop)
{
	struct poster p = {{on_post, NULL}, NULL, 1, 0};
	pthread_t t;

	ck_assert_int_eq(gw_loop_new(&p.loop, NULL), 0);
	ck_assert_int_eq(gw_thread_start(&t, "poster", post_many, &p), 0);
	ck_assert_int_eq(gw_loop_run(p.loop), 0);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
	ck_assert_int_eq(p.count, 500);
	gw_loop_free(p.loop);
}
END_TEST

/* --- workers --- */

struct square {
	struct gw_job job;
	int in, out;
	int *done, *interrupted;
	struct gw_loop *loop;
};

static int do_square(struct gw_job *job, unsigned worker)
{
	struct square *q = (struct square *)job;

	q->out = q->in * q->in;
	return worker < 3 ? q->in % 2 ? GW_EIO : 0 : GW_ESTATE;
}

static void square_done(struct gw_job *job, int err)
{
	struct square *q = (struct square *)job;

	if (err == GW_EINTR) {
		++*q->interrupted;
	} else {
		ck_assert_int_eq(err, q->in % 2 ? GW_EIO : 0);
		ck_assert_int_eq(q->out, q->in * q->in);
	}
	if (++*q->done == 200)
		gw_loop_stop(q->loop, 0);
	free(q);
}

static struct square *new_square(struct gw_loop *l, int in, int *done, int *interrupted)
{
	struct square *q = calloc(1, sizeof *q);

	ck_assert_ptr_nonnull(q);
	q->job.work = do_square;
	q->job.done = square_done;
	q->in = in;
	q->done = done;
	q->interrupted = interrupted;
	q->loop = l;
	return q;
}

START_TEST(jobs_come_back_on_the_loop)
{
	struct gw_loop *l;
	struct gw_workers *w;
	struct square *q;
	int done = 0, interrupted = 0;

	ck_assert_int_eq(gw_loop_new(&l, NULL), 0);
	ck_assert_int_eq(gw_workers_new(&w, l, 3, 200, NULL), 0);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(gw_workers_submit(w, &new_square(l, i, &done, &interrupted)->job), 0);
	q = new_square(l, 0, &done, &interrupted);
	ck_assert_int_eq(gw_workers_submit(w, &q->job), GW_EAGAIN); /* full, whether or not they ran already */
	free(q);
	ck_assert_uint_eq(gw_workers_pending(w), 200);
	ck_assert_int_eq(gw_loop_run(l), 0);
	ck_assert_uint_eq(gw_workers_pending(w), 0);
	gw_workers_free(w);
	gw_loop_free(l);
	ck_assert_int_eq(done, 200);
	ck_assert_int_eq(interrupted, 0);
}
END_TEST

START_TEST(each_job_is_called_back_when_workers_end)
{
	struct gw_loop *l;
	struct gw_workers *w;
	int done = 0, interrupted = 0;

	ck_assert_int_eq(gw_loop_new(&l, NULL), 0);
	ck_assert_int_eq(gw_workers_new(&w, l, 1, 100, NULL), 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(gw_workers_submit(w, &new_square(l, i, &done, &interrupted)->job), 0);
	gw_workers_free(w);
	gw_workers_free(NULL);
	ck_assert_int_eq(done, 100);
	gw_loop_free(l);
}
END_TEST

TCase *os_loop_case(void)
{
	TCase *t = tcase_create("loop");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, timers_fire_in_order_and_can_move);
	tcase_add_test(t, a_stopped_timer_stays_silent);
	tcase_add_test(t, a_timer_that_always_wants_now_starves_nobody);
	tcase_add_test(t, descriptors_and_signals_call_back);
	tcase_add_test(t, an_idle_hook_keeps_the_loop_awake);
	tcase_add_test(t, posts_wake_the_loop);
	tcase_add_test(t, jobs_come_back_on_the_loop);
	tcase_add_test(t, each_job_is_called_back_when_workers_end);
	return t;
}
