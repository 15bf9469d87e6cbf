#include "io/zmq/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/map.h"
#include "base/rng.h"
#include "io/os/clock.h"
#include "io/os/fs_os.h"
#include "io/zmq/zap.h"
#include "wire/step.h"

#ifndef ZMQ_ZAP_ENFORCE_DOMAIN
#define ZMQ_ZAP_ENFORCE_DOMAIN 93
#endif

enum {
	CURVE_BYTES = 64, /* what CURVE adds to a frame (33), and to spare: MAXMSGSIZE counts it */
	SOCKETS_MAX = 32768,
	BULK_THREADS = 4,
	BULK_THREADS_MAX = 64,
};

/* --- the table of sockets --- */

struct row {
	int type;
	const char *domain; /* of a bound one; NULL connects */
	int bulk;
	struct gw_net_limits limits;
};

static const struct row rows[] = {
	[GW_NET_CONTROL_IN] = {ZMQ_ROUTER, "control", 0, {256 * 1024, 64}},
	[GW_NET_CONTROL_OUT] = {ZMQ_DEALER, NULL, 0, {256 * 1024, 64}},
	[GW_NET_BULK_IN] = {ZMQ_ROUTER, "bulk", 1, {GW_BLOCK_MAX + 4096, 32}},
	[GW_NET_BULK_OUT] = {ZMQ_DEALER, NULL, 1, {GW_BLOCK_MAX + 4096, 32}},
	[GW_NET_JOIN_IN] = {ZMQ_ROUTER, "join", 0, {8 * 1024, 4}},
	[GW_NET_JOIN_OUT] = {ZMQ_DEALER, NULL, 0, {256 * 1024, 4}},
};

const struct gw_net_limits *gw_net_limits(enum gw_net_use use)
{
	return &rows[use].limits;
}

struct option {
	int name, value;
};

/* For every socket. Times are in ms, but TCP_KEEPALIVE_* in s. */
static const struct option house[] = {
	{ZMQ_LINGER, 0},
	{ZMQ_IPV6, 1},
	{ZMQ_BACKLOG, 4096},
	{ZMQ_HANDSHAKE_IVL, 5000},
	{ZMQ_CONNECT_TIMEOUT, 5000},
	{ZMQ_RECONNECT_IVL_MAX, 30000},
	{ZMQ_IMMEDIATE, 1}, /* no queue for a host that is not there */
	/* Not ZMQ_HEARTBEAT_IVL: its timer writes to a connection that has failed while its input was stopped, and libzmq
	 * aborts (!_io_error), as it did in a host that had been stopped for half a minute. The kernel finds dead
	 * connections as soon. */
	{ZMQ_TCP_KEEPALIVE, 1},
	{ZMQ_TCP_KEEPALIVE_IDLE, 5},
	{ZMQ_TCP_KEEPALIVE_INTVL, 5},
	{ZMQ_TCP_KEEPALIVE_CNT, 2},
	{ZMQ_TCP_MAXRT, 15000},
};

int gw_net_error(void)
{
	switch (errno) {
	case EHOSTUNREACH:
		return GW_EUNREACH;
	case ETERM:
	case ENOTSOCK:
		return GW_ECLOSED;
	case EADDRINUSE:
		return GW_EEXIST;
	case EADDRNOTAVAIL:
	case ENODEV:
		return GW_ECONFIG;
	case EMFILE:
		return GW_ELIMIT;
	default:
		return gw_err_from_errno(errno);
	}
}

static int set_int(void *s, int name, int value)
{
	return zmq_setsockopt(s, name, &value, sizeof value) ? gw_net_error() : 0;
}

static int set_house(void *s, const struct row *row)
{
	int64_t max = (int64_t)row->limits.message_bytes + CURVE_BYTES;
	/* Random, since libzmq 4.3.5 has no jitter of its own beside a greatest pause. */
	int pause = 500 + (int)(gw_fs_nonce(gw_fs_os()) % 1000), err = 0;

	for (size_t i = 0; !err && i < sizeof house / sizeof house[0]; i++)
		err = set_int(s, house[i].name, house[i].value);
	if (!err)
		err = set_int(s, ZMQ_RECONNECT_IVL, pause);
	if (!err)
		err = set_int(s, ZMQ_RCVHWM, row->limits.messages);
	if (!err)
		err = set_int(s, ZMQ_SNDHWM, row->limits.messages);
	if (!err && row->type == ZMQ_ROUTER)
		err = set_int(s, ZMQ_ROUTER_MANDATORY, 1);
	if (!err && zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof max))
		err = gw_net_error();
	return err;
}

static int set_server(void *s, const struct row *row, const struct gw_net_config *own)
{
	int err = set_int(s, ZMQ_CURVE_SERVER, 1);

	if (!err && zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, own->curve_sk, GW_NET_KEY))
		err = gw_net_error();
	if (!err && zmq_setsockopt(s, ZMQ_ZAP_DOMAIN, row->domain, strlen(row->domain)))
		err = gw_net_error();
	return err ? err : set_int(s, ZMQ_ZAP_ENFORCE_DOMAIN, 1);
}

static int set_client(void *s, const struct gw_net_config *own, const uint8_t *server_key)
{
	if (!server_key || zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, server_key, GW_NET_KEY) ||
	    zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, own->curve_pk, GW_NET_KEY) ||
	    zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, own->curve_sk, GW_NET_KEY))
		return server_key ? gw_net_error() : GW_EINVAL;
	return 0;
}

int gw_net_socket_in(void *context, enum gw_net_use use, const struct gw_net_config *own, const uint8_t *server_key,
		     void **out, struct gw_diag *why)
{
	const struct row *row = &rows[use];
	void *s = zmq_socket(context, row->type);
	int err;

	if (!s)
		return gw_diag_set(why, gw_net_error(), "cannot make a ZeroMQ socket: %s", zmq_strerror(errno));
	err = set_house(s, row);
	if (!err)
		err = row->domain ? set_server(s, row, own) : set_client(s, own, server_key);
	if (err) {
		(void)gw_diag_set(why, err, "this libzmq does not take an option that is needed: %s", zmq_strerror(errno));
		(void)zmq_close(s);
		return err;
	}
	*out = s;
	return 0;
}

/* --- monitors --- */

int gw_net_monitor(void *context, void *socket, int events, void **out)
{
	static atomic_uint_fast64_t count;
	char name[64];
	void *m;

	(void)snprintf(name, sizeof name, "inproc://gw-monitor-%llu", (unsigned long long)atomic_fetch_add(&count, 1));
	if (zmq_socket_monitor(socket, name, events))
		return gw_net_error();
	m = zmq_socket(context, ZMQ_PAIR);
	/* No limit to the queue: a lost event is a lost connection. Who connects makes few, and MAX connections is few. */
	if (!m || set_int(m, ZMQ_LINGER, 0) || set_int(m, ZMQ_RCVHWM, 0) || zmq_connect(m, name)) {
		int err = gw_net_error();

		(void)zmq_socket_monitor(socket, NULL, 0);
		if (m)
			(void)zmq_close(m);
		return err;
	}
	*out = m;
	return 0;
}

void gw_net_monitor_close(void *socket, void *monitor)
{
	if (!monitor)
		return;
	(void)zmq_socket_monitor(socket, NULL, 0);
	(void)zmq_close(monitor);
}

int gw_net_monitor_next(void *monitor, uint16_t *event, uint32_t *value, char address[GW_NET_ENDPOINT_MAX])
{
	uint8_t b[6];
	int n = zmq_recv(monitor, b, sizeof b, ZMQ_DONTWAIT);

	if (n < 0)
		return 0;
	*event = 0;
	*value = 0;
	if (n == (int)sizeof b) {
		memcpy(event, b, 2);
		memcpy(value, b + 2, 4);
	}
	n = zmq_recv(monitor, address, GW_NET_ENDPOINT_MAX - 1, ZMQ_DONTWAIT);
	address[n < 0 ? 0 : n < GW_NET_ENDPOINT_MAX ? n : GW_NET_ENDPOINT_MAX - 1] = '\0';
	return 1;
}

void gw_net_drop_parts(void *socket)
{
	int more = 1;
	size_t n = sizeof more;
	char b[1];

	while (!zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &n) && more) {
		if (zmq_recv(socket, b, sizeof b, ZMQ_DONTWAIT) < 0)
			return;
	}
}

/* --- addresses --- */

int gw_net_endpoint(char out[GW_NET_ENDPOINT_MAX], const char *address)
{
	size_t n = strlen(address);

	/* libzmq reads "a;b" as a source address besides, and takes other transports where it sees "://". */
	if (!n || n > 255 || strspn(address, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]%*") != n)
		return GW_EINVAL;
	(void)snprintf(out, GW_NET_ENDPOINT_MAX, "tcp://%s", address);
	return 0;
}

int gw_net_endpoint_from(char out[2 * GW_NET_ENDPOINT_MAX], const char *source, const char *address)
{
	char to[GW_NET_ENDPOINT_MAX], from[GW_NET_ENDPOINT_MAX], any[GW_NET_ENDPOINT_MAX] = "";
	int err = gw_net_endpoint(to, address);

	if (!err && source && source[0]) {
		(void)snprintf(any, sizeof any, "%.250s:0", source);
		err = gw_net_endpoint(from, any);
	}
	if (err)
		return err;
	/* libzmq takes it as "tcp://source:port;host:port". */
	if (any[0])
		(void)snprintf(out, 2 * GW_NET_ENDPOINT_MAX, "%s;%s", from, to + strlen("tcp://"));
	else
		(void)snprintf(out, 2 * GW_NET_ENDPOINT_MAX, "%s", to);
	return 0;
}

int gw_net_bound(void *socket, char out[GW_NET_ENDPOINT_MAX])
{
	char endpoint[GW_NET_ENDPOINT_MAX];
	size_t n = sizeof endpoint;

	if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &n))
		return gw_net_error();
	if (strncmp(endpoint, "tcp://", 6))
		return GW_ENOENT;
	(void)snprintf(out, GW_NET_ENDPOINT_MAX, "%s", endpoint + 6);
	return 0;
}

/* --- the pair of contexts --- */

struct gw_net {
	struct gw_net_config own;
	void *control, *bulk;
	struct gw_zap *zap;
	pthread_mutex_t lock;
	struct gw_map admitted; /* key -> the net */
};

void *gw_net_context(struct gw_net *n, enum gw_net_use use)
{
	return rows[use].bulk ? n->bulk : n->control;
}

int gw_net_socket(struct gw_net *n, enum gw_net_use use, const uint8_t server_key[GW_NET_KEY], void **out,
		  struct gw_diag *why)
{
	return gw_net_socket_in(gw_net_context(n, use), use, &n->own, server_key, out, why);
}

int gw_net_admit(struct gw_net *n, const uint8_t key[GW_NET_KEY])
{
	int err = 0;

	pthread_mutex_lock(&n->lock);
	if (!gw_map_get(&n->admitted, key, GW_NET_KEY))
		err = gw_map_count(&n->admitted) < GW_NET_ADMITTED_MAX ? gw_map_put(&n->admitted, key, GW_NET_KEY, n, NULL)
								       : GW_ELIMIT;
	pthread_mutex_unlock(&n->lock);
	return err;
}

void gw_net_expel(struct gw_net *n, const uint8_t key[GW_NET_KEY])
{
	pthread_mutex_lock(&n->lock);
	(void)gw_map_del(&n->admitted, key, GW_NET_KEY);
	pthread_mutex_unlock(&n->lock);
}

int gw_net_admitted(struct gw_net *n, const uint8_t key[GW_NET_KEY])
{
	int yes;

	pthread_mutex_lock(&n->lock);
	yes = gw_map_get(&n->admitted, key, GW_NET_KEY) != NULL;
	pthread_mutex_unlock(&n->lock);
	return yes;
}

static int admitted(void *ctx, const uint8_t key[GW_NET_KEY])
{
	return gw_net_admitted(ctx, key);
}

void gw_net_counts(struct gw_net *n, struct gw_net_counts *out)
{
	gw_zap_counts(n->zap, out);
}

static int new_context(void **out, int threads)
{
	*out = zmq_ctx_new();
	if (!*out || zmq_ctx_set(*out, ZMQ_IO_THREADS, threads) || zmq_ctx_set(*out, ZMQ_MAX_SOCKETS, SOCKETS_MAX))
		return gw_net_error();
	return 0;
}

/* A library that cannot enforce ZAP would admit anybody: known before anything is bound. */
static int probe(struct gw_net *n, struct gw_diag *why)
{
	void *s;
	int err = gw_net_socket(n, GW_NET_CONTROL_IN, NULL, &s, why);

	if (!err)
		(void)zmq_close(s);
	return err;
}

int gw_net_new(struct gw_net **out, const struct gw_net_config *c, struct gw_diag *why)
{
	struct gw_net *n;
	int err, threads = c->bulk_threads ? c->bulk_threads : BULK_THREADS;

	if (threads < 0 || threads > BULK_THREADS_MAX)
		return gw_diag_set(why, GW_ECONFIG, "%d bulk threads: 1 to %d are possible", threads, BULK_THREADS_MAX);
	n = calloc(1, sizeof *n);
	if (!n)
		return GW_ENOMEM;
	n->own = *c;
	(void)pthread_mutex_init(&n->lock, NULL);
	gw_map_init(&n->admitted, gw_fs_nonce(gw_fs_os()));
	err = new_context(&n->control, 1);
	if (!err)
		err = new_context(&n->bulk, threads);
	if (!err)
		err = gw_zap_start(&n->zap, n->control, n->bulk, admitted, n);
	if (!err)
		err = probe(n, why);
	if (err) {
		gw_net_free(n);
		return gw_diag_set(why, err, "cannot start ZeroMQ: %s", gw_err_text(err));
	}
	*out = n;
	return 0;
}

void gw_net_free(struct gw_net *n)
{
	if (!n)
		return;
	gw_zap_stop(n->zap);
	if (n->control)
		(void)zmq_ctx_term(n->control);
	if (n->bulk)
		(void)zmq_ctx_term(n->bulk);
	gw_map_free(&n->admitted, NULL);
	(void)pthread_mutex_destroy(&n->lock);
	explicit_bzero(&n->own, sizeof n->own);
	free(n);
}
