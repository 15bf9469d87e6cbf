#include "io/zmq/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/buf.h"
#include "io/os/clock.h"
#include "io/zmq/inbound.h"
#include "io/zmq/pump.h"
#include "wire/codec.h"

enum { REQUESTS_A_TURN = 16, ARENA_BYTES = 512 * 1024 };

#define SECOND_NS 1000000000ull
#define SILENT_NS (GW_JOIN_SILENT_S * SECOND_NS)

struct gw_join {
	struct gw_join_config c;
	struct gw_pump pump;
	void *socket;
	struct gw_inbound inbound;
	struct gw_pump_socket frames, events;
	struct gw_timer sweep;
	struct gw_arena arena;
};

/* --- the server --- */

static void conn_gone(void *ctx, struct gw_inbound_conn *c)
{
	(void)ctx;
	(void)c;
}

/* The reply's frame into w. A reply that cannot be made is a refusal. */
static void make_reply(struct gw_join *j, const struct gw_inbound_conn *c, const struct gw_m_join_request *r,
		       struct gw_wr *w)
{
	struct gw_msg m = {.type = GW_MSG_join_reply};
	struct gw_diag why = {""};
	int err = j->c.answer(j->c.ctx, c->key, r, &j->arena, &m.u.join_reply, &why);

	if (!err)
		err = gw_msg_encode(&m, w);
	if (!err)
		return;
	gw_wr_free(w);
	gw_wr_init(w, gw_net_limits(GW_NET_JOIN_OUT)->message_bytes);
	memset(&m.u, 0, sizeof m.u);
	m.u.join_reply.status = err;
	m.u.join_reply.reason.p = why.text[0] ? why.text : gw_err_text(err);
	m.u.join_reply.reason.n = strnlen(m.u.join_reply.reason.p, 255);
	if (gw_msg_encode(&m, w)) {
		m.u.join_reply.reason.n = 0; /* not UTF-8, perhaps cut in a character */
		(void)gw_msg_encode(&m, w);
	}
}

static void reply(struct gw_join *j, struct gw_inbound_conn *c, const struct gw_m_join_request *r)
{
	struct gw_wr w;

	gw_wr_init(&w, gw_net_limits(GW_NET_JOIN_OUT)->message_bytes);
	make_reply(j, c, r, &w);
	if (!w.err && zmq_send(j->socket, c->id, sizeof c->id, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
		(void)zmq_send(j->socket, w.p, w.n, ZMQ_DONTWAIT);
	gw_wr_free(&w);
	gw_arena_reset(&j->arena);
}

static void take_request(struct gw_join *j, zmq_msg_t *id, zmq_msg_t *payload)
{
	struct gw_inbound_conn *c = gw_inbound_of(&j->inbound, id, payload, gw_loop_now_ns(j->c.loop));
	struct gw_msg m;

	if (!c || c->kicked)
		return;
	if (c->requests++) {
		gw_inbound_kick(&j->inbound, c, "more than one request");
	} else if (zmq_msg_more(payload) || zmq_msg_size(payload) > GW_JOIN_REQUEST_MAX) {
		gw_inbound_kick(&j->inbound, c, "too large a request");
	} else if (gw_msg_decode(zmq_msg_data(payload), zmq_msg_size(payload), &j->arena, &m) ||
		   m.type != GW_MSG_join_request) {
		gw_arena_reset(&j->arena);
		gw_inbound_kick(&j->inbound, c, "no join request");
	} else {
		reply(j, c, &m.u.join_request);
		c->done_ns = gw_loop_now_ns(j->c.loop);
	}
}

static int one_request(struct gw_join *j)
{
	zmq_msg_t id, payload;
	int got;

	(void)zmq_msg_init(&id);
	(void)zmq_msg_init(&payload);
	got = zmq_msg_recv(&id, j->socket, ZMQ_DONTWAIT) >= 0;
	if (got && zmq_msg_more(&id) && zmq_msg_recv(&payload, j->socket, ZMQ_DONTWAIT) >= 0) {
		take_request(j, &id, &payload);
		if (zmq_msg_more(&payload))
			gw_net_drop_parts(j->socket);
	}
	(void)zmq_msg_close(&id);
	(void)zmq_msg_close(&payload);
	return got;
}

static int requests(void *ctx)
{
	struct gw_join *j = ctx;
	int left = REQUESTS_A_TURN;

	while (left && one_request(j))
		left--;
	return !left;
}

static int events(void *ctx)
{
	struct gw_join *j = ctx;

	gw_inbound_drain(&j->inbound, gw_loop_now_ns(j->c.loop));
	return 0;
}

/* Ends what is silent, and what had its answer: a second is left for that to leave. */
static void sweep(void *ctx)
{
	struct gw_join *j = ctx;
	uint64_t now = gw_loop_now_ns(j->c.loop);
	const struct gw_map_entry *e;
	size_t at = 0;

	gw_inbound_sweep(&j->inbound, now, SILENT_NS);
	while ((e = gw_map_next(&j->inbound.conns, &at))) {
		struct gw_inbound_conn *c = e->value;

		if (c->done_ns && now - c->done_ns >= SECOND_NS && !c->kicked) {
			c->kicked = 1;
			gw_tcp_shutdown(c->fd);
		}
	}
	(void)gw_timer_set(j->c.loop, &j->sweep, now + SECOND_NS);
}

void gw_join_free(struct gw_join *j)
{
	if (!j)
		return;
	gw_timer_stop(j->c.loop, &j->sweep);
	gw_pump_remove(&j->events);
	gw_pump_remove(&j->frames);
	if (j->socket) {
		gw_inbound_end(&j->inbound);
		(void)zmq_close(j->socket);
	}
	gw_pump_end(&j->pump);
	gw_arena_reset(&j->arena);
	free(j);
}

static int listen_at(struct gw_join *j, const char *endpoint, struct gw_diag *why)
{
	int err = gw_net_socket(j->c.net, GW_NET_JOIN_IN, NULL, &j->socket, why);

	if (err)
		return err;
	j->inbound.socket = j->socket;
	j->inbound.max_conns = GW_JOIN_CONNECTIONS_MAX;
	j->inbound.gone = conn_gone;
	err = gw_inbound_init(&j->inbound, gw_net_context(j->c.net, GW_NET_JOIN_IN), GW_NET_JOIN_IN, j->c.seed);
	if (!err && zmq_bind(j->socket, endpoint))
		err = gw_diag_set(why, gw_net_error(), "cannot listen at %s: %s", j->c.bind, zmq_strerror(errno));
	if (!err)
		err = gw_pump_add(&j->pump, &j->frames, j->socket, requests, j);
	if (!err)
		err = gw_pump_add(&j->pump, &j->events, j->inbound.monitor, events, j);
	return err;
}

int gw_join_new(struct gw_join **out, const struct gw_join_config *c, struct gw_diag *why)
{
	char endpoint[GW_NET_ENDPOINT_MAX];
	struct gw_join *j;
	int err;

	if (gw_net_endpoint(endpoint, c->bind))
		return gw_diag_set(why, GW_ECONFIG, "%.100s is not an address: host:port is wanted", c->bind);
	j = calloc(1, sizeof *j);
	if (!j)
		return GW_ENOMEM;
	j->c = *c;
	j->sweep = (struct gw_timer){sweep, j, NULL};
	gw_arena_init(&j->arena, ARENA_BYTES);
	err = gw_pump_init(&j->pump, c->loop);
	if (err) {
		free(j);
		return err;
	}
	err = listen_at(j, endpoint, why);
	if (!err)
		err = gw_timer_set(c->loop, &j->sweep, gw_loop_now_ns(c->loop) + SECOND_NS);
	if (err) {
		gw_join_free(j);
		return err;
	}
	*out = j;
	return 0;
}

int gw_join_bound(struct gw_join *j, char out[GW_NET_ENDPOINT_MAX])
{
	return gw_net_bound(j->socket, out);
}

/* --- the newcomer --- */

/* Waits for room, or for a message; GW_ETIMEOUT at the end of the time. GW_EAGAIN: the handshake was refused, as it is
 * when too many strangers come at once. */
static int wait_for(void *socket, void *monitor, short what, uint64_t end_ns)
{
	char address[GW_NET_ENDPOINT_MAX];
	uint16_t event;
	uint32_t value;

	for (;;) {
		zmq_pollitem_t items[] = {{socket, 0, what, 0}, {monitor, 0, ZMQ_POLLIN, 0}};
		uint64_t now = gw_clock_mono_ns();

		if (now >= end_ns)
			return GW_ETIMEOUT;
		if (zmq_poll(items, 2, (long)((end_ns - now + 999999) / 1000000)) < 0 && errno != EINTR)
			return gw_net_error();
		if (items[1].revents && gw_net_monitor_next(monitor, &event, &value, address))
			return GW_EAGAIN;
		if (items[0].revents)
			return 0;
	}
}

static int exchange(void *socket, void *monitor, const struct gw_wr *request, uint64_t end_ns, uint8_t **frame, size_t *n)
{
	zmq_msg_t m;
	int err = wait_for(socket, monitor, ZMQ_POLLOUT, end_ns);

	if (!err && zmq_send(socket, request->p, request->n, ZMQ_DONTWAIT) < 0)
		err = gw_net_error();
	if (!err)
		err = wait_for(socket, monitor, ZMQ_POLLIN, end_ns);
	if (err)
		return err;
	(void)zmq_msg_init(&m);
	if (zmq_msg_recv(&m, socket, ZMQ_DONTWAIT) < 0)
		err = gw_net_error();
	else if (zmq_msg_more(&m))
		err = GW_EMALFORMED;
	if (!err) {
		*n = zmq_msg_size(&m);
		*frame = malloc(*n ? *n : 1);
		if (*frame)
			memcpy(*frame, zmq_msg_data(&m), *n);
		else
			err = GW_ENOMEM;
	}
	(void)zmq_msg_close(&m);
	return err;
}

/* One connection. */
static int ask_once(void *context, const char *endpoint, const struct gw_bootstrap *b, const struct gw_net_config *own,
		    const struct gw_wr *request, uint64_t end_ns, uint8_t **frame, size_t *n, struct gw_diag *why)
{
	void *socket, *monitor = NULL;
	int err = gw_net_socket_in(context, GW_NET_JOIN_OUT, own, b->curve, &socket, why);

	if (err)
		return err;
	err = gw_net_monitor(context, socket, ZMQ_EVENT_HANDSHAKE_FAILED_AUTH, &monitor);
	if (!err && zmq_connect(socket, endpoint))
		err = gw_net_error();
	if (!err)
		err = exchange(socket, monitor, request, end_ns, frame, n);
	gw_net_monitor_close(socket, monitor);
	(void)zmq_close(socket);
	return err;
}

/* Comes back after a refusal: in a second there is room for one more from this address. */
static int ask(void *context, const struct gw_bootstrap *b, const char *source, const struct gw_net_config *own,
	       const struct gw_wr *request, int timeout_ms, uint8_t **frame, size_t *n, struct gw_diag *why)
{
	char endpoint[2 * GW_NET_ENDPOINT_MAX];
	uint64_t end = gw_clock_mono_ns() + (uint64_t)timeout_ms * 1000000;
	int err = gw_net_endpoint_from(endpoint, source, b->address);

	if (!err)
		err = ask_once(context, endpoint, b, own, request, end, frame, n, why);
	while (err == GW_EAGAIN && gw_clock_mono_ns() + SECOND_NS < end) {
		(void)zmq_poll(NULL, 0, 1000);
		err = ask_once(context, endpoint, b, own, request, end, frame, n, why);
	}
	return err;
}

/* What the reply says: 0, or the other's refusal. */
static int read_reply(const uint8_t *frame, size_t n, const char *from, struct gw_arena *arena,
		      struct gw_m_join_reply *reply, struct gw_diag *why)
{
	struct gw_msg m;
	int err = gw_msg_decode(frame, n, arena, &m);

	if (!err && m.type != GW_MSG_join_reply)
		err = GW_EUNKNOWN;
	if (err)
		return gw_diag_set(why, err, "%s answers nonsense: %s", from, gw_err_text(err));
	*reply = m.u.join_reply;
	if (!reply->status)
		return 0;
	err = reply->status < 0 && reply->status > -1000 ? (int)reply->status : GW_EUNKNOWN;
	return gw_diag_set(why, err, "%s refuses: %.*s", from, (int)reply->reason.n, reply->reason.p);
}

int gw_join_request(const struct gw_token *t, unsigned first, const char *source, const struct gw_net_config *own,
		    const struct gw_m_join_request *request, int timeout_ms, struct gw_arena *arena, uint8_t **frame,
		    struct gw_m_join_reply *reply, struct gw_diag *why)
{
	struct gw_msg m = {.type = GW_MSG_join_request};
	struct gw_wr w;
	void *context;
	int err;

	*frame = NULL;
	m.u.join_request = *request;
	gw_wr_init(&w, GW_JOIN_REQUEST_MAX);
	err = gw_msg_encode(&m, &w);
	context = err ? NULL : zmq_ctx_new();
	if (!err && !context)
		err = gw_net_error();
	if (!err)
		err = GW_EUNREACH;
	for (uint32_t i = 0; context && err && i < t->bootstrap_count; i++) {
		const struct gw_bootstrap *b = &t->bootstraps[(first + i) % t->bootstrap_count];
		size_t n = 0;

		if (why)
			why->text[0] = '\0'; /* the last one's reason is told */
		free(*frame);
		*frame = NULL;
		gw_arena_reset(arena);
		err = ask(context, b, source, own, &w, timeout_ms, frame, &n, why);
		if (err)
			(void)gw_diag_set(why, err, "%s does not answer: %s", b->address, gw_err_text(err));
		else
			err = read_reply(*frame, n, b->address, arena, reply, why);
	}
	if (err == GW_ETIMEOUT || err == GW_EAGAIN)
		err = GW_EUNREACH;
	if (err) {
		free(*frame);
		*frame = NULL;
		(void)gw_diag_set(why, err, "cannot join: %s", gw_err_text(err));
	}
	if (context)
		(void)zmq_ctx_term(context);
	gw_wr_free(&w);
	return err;
}
