#include "io/zmq/zap.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/map.h"
#include "io/os/clock.h"
#include "io/os/fs_os.h"
#include "io/os/thread.h"

enum { ADDRESS_BUCKETS = 256, FIELDS = 7, FIELD_MAX = 255 };

/* A token bucket. */
struct bucket {
	uint64_t filled_ns;
	double tokens;
};

struct gw_zap {
	void *control, *bulk; /* REP, one in each context */
	int stop;             /* eventfd */
	int (*admitted)(void *ctx, const uint8_t key[GW_NET_KEY]);
	void *ctx;
	pthread_t thread;
	int started;
	atomic_uint_fast64_t let_in, refused, limited;
	struct bucket all, by_address[ADDRESS_BUCKETS]; /* addresses that share one share its rate */
	uint64_t salt;
};

static int take(struct bucket *b, double per_s, double most, uint64_t now_ns)
{
	b->tokens += (double)(now_ns - b->filled_ns) * 1e-9 * per_s;
	if (b->tokens > most)
		b->tokens = most;
	b->filled_ns = now_ns;
	if (b->tokens < 1)
		return 0;
	b->tokens -= 1;
	return 1;
}

/* Whether a stranger from there may shake hands now. */
static int within_rate(struct gw_zap *z, const char *address)
{
	uint64_t now = gw_clock_mono_ns();
	size_t i = gw_siphash13(z->salt, 0, address, strlen(address)) % ADDRESS_BUCKETS;

	return take(&z->by_address[i], 1, GW_NET_JOIN_PER_ADDRESS, now) && take(&z->all, GW_NET_JOIN_PER_S, GW_NET_JOIN_PER_S, now);
}

/* What was asked: version, request id, domain, address, identity, mechanism, and for CURVE the key. */
struct question {
	char field[FIELDS][FIELD_MAX + 1];
	size_t n[FIELDS];
	int good;
};

static int receive(void *socket, struct question *q)
{
	int more = 1;
	size_t more_size = sizeof more, count = 0, fine = 1;

	memset(q, 0, sizeof *q);
	for (; more; count++) {
		char b[FIELD_MAX];
		int n = zmq_recv(socket, b, sizeof b, 0);

		if (n < 0)
			return 0;
		if (count < FIELDS && n <= (int)sizeof b) {
			memcpy(q->field[count], b, (size_t)n);
			q->n[count] = (size_t)n;
		} else {
			fine = 0;
		}
		if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &more_size))
			return 0;
	}
	q->good = fine && count == FIELDS && !strcmp(q->field[0], "1.0") && !strcmp(q->field[5], "CURVE") &&
		  q->n[6] == GW_NET_KEY;
	return 1;
}

static const char *decide(struct gw_zap *z, const struct question *q)
{
	int join = !strcmp(q->field[2], "join"), ours = !strcmp(q->field[2], "control") || !strcmp(q->field[2], "bulk");

	if (!q->good || (!join && !ours))
		return "500";
	if (join && !within_rate(z, q->field[3])) {
		atomic_fetch_add(&z->limited, 1);
		return "400";
	}
	if (ours && !z->admitted(z->ctx, (const uint8_t *)q->field[6])) {
		atomic_fetch_add(&z->refused, 1);
		GW_LOG(GW_LOG_INFO, "unknown key refused", "address", q->field[3], "socket", q->field[2], NULL);
		return "400";
	}
	atomic_fetch_add(&z->let_in, 1);
	return "200";
}

static void answer(struct gw_zap *z, void *socket)
{
	struct question q;
	const char *status;
	char user[2 * GW_NET_KEY + 1] = "";

	if (!receive(socket, &q))
		return;
	status = decide(z, &q);
	if (!strcmp(status, "200"))
		(void)gw_hex(user, q.field[6], GW_NET_KEY);
	(void)zmq_send(socket, "1.0", 3, ZMQ_SNDMORE);
	(void)zmq_send(socket, q.field[1], q.n[1], ZMQ_SNDMORE);
	(void)zmq_send(socket, status, 3, ZMQ_SNDMORE);
	(void)zmq_send(socket, "", 0, ZMQ_SNDMORE);
	(void)zmq_send(socket, user, strlen(user), ZMQ_SNDMORE);
	(void)zmq_send(socket, "", 0, 0);
}

static void *run(void *arg)
{
	struct gw_zap *z = arg;
	zmq_pollitem_t items[] = {
		{z->control, 0, ZMQ_POLLIN, 0}, {z->bulk, 0, ZMQ_POLLIN, 0}, {NULL, z->stop, ZMQ_POLLIN, 0}};

	for (;;) {
		if (zmq_poll(items, 3, -1) < 0 && errno != EINTR)
			break;
		if (items[2].revents)
			break;
		if (items[0].revents)
			answer(z, z->control);
		if (items[1].revents)
			answer(z, z->bulk);
	}
	return NULL;
}

static int bind_handler(void *context, void **out)
{
	const int zero = 0;

	*out = zmq_socket(context, ZMQ_REP);
	if (!*out || zmq_setsockopt(*out, ZMQ_LINGER, &zero, sizeof zero) || zmq_bind(*out, "inproc://zeromq.zap.01"))
		return gw_net_error();
	return 0;
}

int gw_zap_start(struct gw_zap **out, void *control_context, void *bulk_context,
		 int (*admitted)(void *ctx, const uint8_t key[GW_NET_KEY]), void *ctx)
{
	struct gw_zap *z = calloc(1, sizeof *z);
	int err;

	if (!z)
		return GW_ENOMEM;
	z->admitted = admitted;
	z->ctx = ctx;
	z->salt = gw_fs_nonce(gw_fs_os());
	z->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = z->stop < 0 ? gw_err_from_errno(errno) : bind_handler(control_context, &z->control);
	if (!err)
		err = bind_handler(bulk_context, &z->bulk);
	/* The sockets go to the thread here; the start of a thread is the fence that libzmq asks for. */
	if (!err)
		err = gw_thread_start(&z->thread, "gw-zap", run, z);
	if (err) {
		gw_zap_stop(z);
		return err;
	}
	z->started = 1;
	*out = z;
	return 0;
}

void gw_zap_stop(struct gw_zap *z)
{
	const uint64_t one = 1;

	if (!z)
		return;
	if (z->started) {
		(void)!write(z->stop, &one, sizeof one);
		(void)pthread_join(z->thread, NULL);
	}
	if (z->control)
		(void)zmq_close(z->control);
	if (z->bulk)
		(void)zmq_close(z->bulk);
	if (z->stop >= 0)
		(void)close(z->stop);
	free(z);
}

void gw_zap_counts(struct gw_zap *z, struct gw_net_counts *out)
{
	*out = (struct gw_net_counts){atomic_load(&z->let_in), atomic_load(&z->refused), atomic_load(&z->limited)};
}
