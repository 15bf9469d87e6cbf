#include "io/zmq/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/rng.h"
#include "io/zmq/inbound.h"
#include "io/zmq/pump.h"

enum { CHANNELS = 2, FRAMES_A_TURN = 64 };

#define MS 1000000ull
#define SWEEP_NS (1000 * MS)
#define RETRY_FIRST_NS (500 * MS)
#define RETRY_MOST_NS (30000 * MS)
#define STUCK_NS (60000 * MS) /* neither up nor refused for so long: made anew */
#define FULL_NS (10 * MS)     /* a full queue is tried again after this */

static const enum gw_net_use use_in[CHANNELS] = {GW_NET_CONTROL_IN, GW_NET_BULK_IN};
static const enum gw_net_use use_out[CHANNELS] = {GW_NET_CONTROL_OUT, GW_NET_BULK_OUT};

enum link_state {
	LINK_OFF,        /* no socket: not wanted, or waiting for the next try */
	LINK_CONNECTING, /* libzmq tries, and tries again after a broken connection */
	LINK_SHAKEN,     /* hands are shaken, the greeting is not sent */
	LINK_UP,
};

/* The connection that this side opens to a host, on one channel. */
struct link {
	struct peer *peer;
	enum gw_channel channel;
	enum link_state state;
	void *socket, *monitor;
	struct gw_pump_socket frames, events;
	struct gw_timer retry;
	unsigned failures; /* since it was up */
	uint64_t began_ns; /* the socket, or the connection */
	int fd;            /* of the connection; -1 */
	uint64_t delivered;
	char address[GW_NET_ENDPOINT_MAX];
};

struct peer {
	struct gw_peers *peers;
	uint8_t key[GW_NET_KEY];
	int wanted;
	struct link link[CHANNELS];
	struct gw_inbound_conn *conn[CHANNELS]; /* the latest that it opened */
	int told_up;         /* what the owner heard last … */
	int told_down;       /* … and whether it heard anything since connect */
	int full[CHANNELS];  /* a send gave GW_EAGAIN */
	int dead;            /* to be freed */
	struct peer *next_dead;
};

/* The bound socket of a channel. */
struct inbox {
	struct gw_peers *peers;
	enum gw_channel channel;
	void *socket;
	struct gw_inbound inbound;
	struct gw_pump_socket frames, events;
};

struct gw_peers {
	struct gw_peers_config c;
	struct gw_pump pump;
	struct inbox inbox[CHANNELS];
	struct gw_map peers; /* key -> peer */
	struct peer *dead;
	size_t wanted, full;
	struct gw_timer sweep, retry_full, bury;
	struct gw_rng rng;
	struct gw_peers_counts counts;
};

/* --- peers --- */

static struct peer *find(struct gw_peers *p, const uint8_t key[GW_NET_KEY])
{
	return gw_map_get(&p->peers, key, GW_NET_KEY);
}

static void retry_link(void *ctx);

static struct peer *find_or_add(struct gw_peers *p, const uint8_t key[GW_NET_KEY])
{
	struct peer *peer = find(p, key);

	if (peer)
		return peer;
	peer = calloc(1, sizeof *peer);
	if (!peer)
		return NULL;
	peer->peers = p;
	memcpy(peer->key, key, GW_NET_KEY);
	for (int i = 0; i < CHANNELS; i++) {
		peer->link[i].peer = peer;
		peer->link[i].channel = (enum gw_channel)i;
		peer->link[i].fd = -1;
		peer->link[i].retry.fire = retry_link;
		peer->link[i].retry.ctx = &peer->link[i];
	}
	if (gw_map_put(&p->peers, key, GW_NET_KEY, peer, NULL)) {
		free(peer);
		return NULL;
	}
	return peer;
}

/* Frees what is no longer of any use, in the next turn: somebody up the stack may hold it. */
static void bury_if_idle(struct peer *peer)
{
	struct gw_peers *p = peer->peers;

	if (peer->wanted || peer->conn[0] || peer->conn[1] || peer->dead)
		return;
	for (int i = 0; i < CHANNELS; i++)
		p->full -= (size_t)peer->full[i];
	(void)gw_map_del(&p->peers, peer->key, GW_NET_KEY);
	peer->dead = 1;
	peer->next_dead = p->dead;
	p->dead = peer;
	/* Without memory for a timer it waits for the next burial. */
	(void)gw_timer_set(p->c.loop, &p->bury, 0);
}

static void bury(void *ctx)
{
	struct gw_peers *p = ctx;
	struct peer *peer = p->dead, *next;

	for (p->dead = NULL; peer; peer = next) {
		next = peer->next_dead;
		free(peer);
	}
}

static int has_link(const struct peer *peer, enum gw_channel channel)
{
	return peer->link[channel].state == LINK_UP || peer->conn[channel];
}

/* Tells the owner what it does not know yet. */
static void tell(struct peer *peer)
{
	struct gw_peers *p = peer->peers;
	int up = has_link(peer, GW_CHANNEL_CONTROL);

	if (up == peer->told_up && (up || peer->told_down || !peer->wanted || !peer->link[0].failures))
		return;
	peer->told_up = up;
	peer->told_down = !up;
	if (up)
		p->c.up(p->c.ctx, peer->key);
	else
		p->c.down(p->c.ctx, peer->key);
}

static void tell_bad(struct gw_peers *p, const uint8_t key[GW_NET_KEY], const char *reason)
{
	if (p->c.bad)
		p->c.bad(p->c.ctx, key, reason);
}

/* Its queue has room, perhaps. */
static void tell_writable(struct peer *peer, enum gw_channel channel)
{
	struct gw_peers *p = peer->peers;

	if (!peer->full[channel])
		return;
	peer->full[channel] = 0;
	p->full--;
	p->c.writable(p->c.ctx, peer->key, channel);
}

/* --- links that this side opens --- */

static void close_link(struct link *l)
{
	gw_timer_stop(l->peer->peers->c.loop, &l->retry);
	gw_pump_remove(&l->events);
	gw_pump_remove(&l->frames);
	if (l->socket) {
		gw_net_monitor_close(l->socket, l->monitor);
		(void)zmq_close(l->socket);
	}
	l->socket = l->monitor = NULL;
	l->state = LINK_OFF;
	l->fd = -1;
}

static void set_state(struct link *l, enum link_state state)
{
	l->state = state;
	if (state == LINK_UP)
		l->failures = 0;
	if (l->channel == GW_CHANNEL_CONTROL)
		tell(l->peer);
}

/* Closes it and has it opened again after a pause: doubling, and random between its half and its whole. */
static void reopen_later(struct link *l)
{
	struct gw_peers *p = l->peer->peers;
	uint64_t pause = RETRY_FIRST_NS << (l->failures < 6 ? l->failures : 6);

	close_link(l);
	l->failures++;
	if (pause > RETRY_MOST_NS)
		pause = RETRY_MOST_NS;
	pause = pause / 2 + gw_rng_below(&p->rng, pause / 2 + 1);
	/* Without memory for the timer the sweep finds it. */
	(void)gw_timer_set(p->c.loop, &l->retry, gw_loop_now_ns(p->c.loop) + pause);
	set_state(l, LINK_OFF);
}

/* The greeting, without which the other side does not know whose connection this is. */
static void greet(struct link *l)
{
	if (l->state != LINK_SHAKEN)
		return;
	if (zmq_send(l->socket, "", 0, ZMQ_DONTWAIT) < 0)
		return; /* the pipe comes a moment after the event */
	gw_pump_touch(&l->frames);
	gw_pump_touch(&l->events);
	set_state(l, LINK_UP);
}

static void on_event(struct link *l, uint16_t event, uint32_t value)
{
	switch (event) {
	case ZMQ_EVENT_CONNECTED:
		l->fd = (int)value;
		l->delivered = 0;
		l->began_ns = gw_loop_now_ns(l->peer->peers->c.loop);
		break;
	case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
		l->state = LINK_SHAKEN;
		greet(l);
		break;
	case ZMQ_EVENT_DISCONNECTED:
	case ZMQ_EVENT_CONNECT_RETRIED:
		l->fd = -1;
		l->failures++;
		set_state(l, LINK_CONNECTING);
		break;
	case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
	case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
		/* libzmq would never try again. */
		GW_LOG(GW_LOG_INFO, "refused by a host", "address", l->address, NULL);
		reopen_later(l);
		break;
	default:
		break;
	}
}

static int link_events(void *ctx)
{
	struct link *l = ctx;
	char address[GW_NET_ENDPOINT_MAX];
	uint16_t event;
	uint32_t value;

	while (l->monitor && gw_net_monitor_next(l->monitor, &event, &value, address))
		on_event(l, event, value);
	return 0;
}

/* Who breaks a rule at the other end loses the link; it is tried again later, as after a refusal. */
static void drop_link(struct link *l, const char *reason)
{
	struct gw_peers *p = l->peer->peers;

	GW_LOG(GW_LOG_WARN, "connection dropped", "reason", reason, "address", l->address, NULL);
	p->counts.kicked++;
	reopen_later(l);
	tell_bad(p, l->peer->key, reason);
}

static void count_in(struct gw_peers *p, enum gw_channel channel, size_t n)
{
	p->counts.frames_in[channel]++;
	p->counts.bytes_in[channel] += n;
}

/* One frame from the host at the other end, who is known by the key of its server. 0 when there is none. */
static int link_frame(struct link *l)
{
	struct gw_peers *p = l->peer->peers;
	zmq_msg_t m;
	int got;

	(void)zmq_msg_init(&m);
	got = zmq_msg_recv(&m, l->socket, ZMQ_DONTWAIT) >= 0;
	if (got && zmq_msg_more(&m)) {
		gw_net_drop_parts(l->socket);
		drop_link(l, "a message of many parts");
		got = 0;
	} else if (got) {
		size_t n = zmq_msg_size(&m);

		l->delivered += gw_wire_bytes(n);
		count_in(p, l->channel, n);
		if (n)
			p->c.frame(p->c.ctx, l->peer->key, l->channel, zmq_msg_data(&m), n);
	}
	(void)zmq_msg_close(&m);
	return got;
}

static int link_frames(void *ctx)
{
	struct link *l = ctx;
	int left = FRAMES_A_TURN, events = 0;
	size_t n = sizeof events;

	greet(l);
	while (l->socket && left && link_frame(l))
		left--;
	if (l->socket && l->peer->full[l->channel] && !zmq_getsockopt(l->socket, ZMQ_EVENTS, &events, &n) &&
	    events & ZMQ_POLLOUT)
		tell_writable(l->peer, l->channel);
	return !left;
}

static int connect_from(const struct gw_peers *p, const struct link *l)
{
	char endpoint[2 * GW_NET_ENDPOINT_MAX];
	int err = gw_net_endpoint_from(endpoint, p->c.source, l->address + strlen("tcp://"));

	return err ? err : zmq_connect(l->socket, endpoint) ? gw_net_error() : 0;
}

static int open_socket(struct link *l, struct gw_diag *why)
{
	struct gw_peers *p = l->peer->peers;
	const int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_DISCONNECTED |
			   ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
			   ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
	int err = gw_net_socket(p->c.net, use_out[l->channel], l->peer->key, &l->socket, why);

	if (!err)
		err = gw_net_monitor(gw_net_context(p->c.net, use_out[l->channel]), l->socket, events, &l->monitor);
	if (!err)
		err = gw_pump_add(&p->pump, &l->frames, l->socket, link_frames, l);
	if (!err)
		err = gw_pump_add(&p->pump, &l->events, l->monitor, link_events, l);
	if (!err)
		err = connect_from(p, l);
	if (err) {
		close_link(l);
		return gw_diag_set(why, err, "cannot connect to %s: %s", l->address, gw_err_text(err));
	}
	l->began_ns = gw_loop_now_ns(p->c.loop);
	l->state = LINK_CONNECTING;
	return 0;
}

static void retry_link(void *ctx)
{
	struct link *l = ctx;

	if (l->peer->wanted && !l->socket && open_socket(l, NULL))
		reopen_later(l);
}

int gw_peers_connect(struct gw_peers *p, const uint8_t key[GW_NET_KEY], const char *control, const char *bulk,
		     struct gw_diag *why)
{
	const char *given[CHANNELS] = {control, bulk};
	char endpoint[CHANNELS][GW_NET_ENDPOINT_MAX];
	struct peer *peer = find(p, key);
	int err = 0;

	for (int i = 0; i < CHANNELS; i++) {
		if (gw_net_endpoint(endpoint[i], given[i]))
			return gw_diag_set(why, GW_EINVAL, "%.100s is not an address: host:port is wanted", given[i]);
	}
	if ((!peer || !peer->wanted) && p->wanted >= GW_PEERS_LINKS_MAX)
		return gw_diag_set(why, GW_ELIMIT, "links to %d hosts are the limit", GW_PEERS_LINKS_MAX);
	peer = find_or_add(p, key);
	if (!peer)
		return GW_ENOMEM;
	if (!peer->wanted) {
		peer->wanted = 1;
		peer->told_down = 0;
		p->wanted++;
	}
	for (int i = 0; !err && i < CHANNELS; i++) {
		struct link *l = &peer->link[i];

		if ((l->socket || l->retry.node) && !strcmp(l->address, endpoint[i]))
			continue;
		close_link(l);
		l->failures = 0;
		(void)strcpy(l->address, endpoint[i]);
		err = open_socket(l, why);
	}
	if (err)
		gw_peers_disconnect(p, key);
	return err;
}

void gw_peers_disconnect(struct gw_peers *p, const uint8_t key[GW_NET_KEY])
{
	struct peer *peer = find(p, key);

	if (!peer || !peer->wanted)
		return;
	peer->wanted = 0;
	p->wanted--;
	for (int i = 0; i < CHANNELS; i++)
		close_link(&peer->link[i]);
	/* What it opened itself may be there still: then it stays up. */
	peer->told_up = has_link(peer, GW_CHANNEL_CONTROL);
	bury_if_idle(peer);
}

/* --- the inboxes --- */

static void conn_gone(void *ctx, struct gw_inbound_conn *c)
{
	struct inbox *b = ctx;
	struct peer *peer = c->owner;

	if (!peer)
		return;
	peer->conn[b->channel] = NULL;
	if (b->channel == GW_CHANNEL_CONTROL)
		tell(peer);
	bury_if_idle(peer);
}

static void conn_dropped(void *ctx, struct gw_inbound_conn *c, const char *reason)
{
	struct inbox *b = ctx;

	tell_bad(b->peers, c->key, reason);
}

/* Notes whose connection it is. Of several the one that spoke last is used for sending. */
static struct peer *own(struct inbox *b, struct gw_inbound_conn *c)
{
	struct peer *peer = c->owner;

	if (peer)
		return peer;
	peer = find_or_add(b->peers, c->key);
	if (!peer)
		return NULL;
	if (peer->conn[b->channel])
		peer->conn[b->channel]->owner = NULL;
	c->owner = peer;
	peer->conn[b->channel] = c;
	if (b->channel == GW_CHANNEL_CONTROL)
		tell(peer);
	return peer;
}

static void take_frame(struct inbox *b, zmq_msg_t *id, zmq_msg_t *payload)
{
	struct gw_peers *p = b->peers;
	struct gw_inbound_conn *c = gw_inbound_of(&b->inbound, id, payload, gw_loop_now_ns(p->c.loop));
	size_t n = zmq_msg_size(payload);
	struct peer *peer;
	const char *wrong = NULL;

	if (!c)
		return;
	if (zmq_msg_more(payload))
		wrong = "a message of many parts";
	else if (!gw_net_admitted(p->c.net, c->key))
		wrong = "no longer a member";
	if (wrong)
		gw_inbound_kick(&b->inbound, c, wrong);
	/* Its last words before it was dropped are worth nothing either. */
	if (c->kicked)
		return;
	peer = own(b, c);
	count_in(p, b->channel, n);
	if (peer && n)
		p->c.frame(p->c.ctx, peer->key, b->channel, zmq_msg_data(payload), n);
}

static int inbox_frame(struct inbox *b)
{
	zmq_msg_t id, payload;
	int got;

	(void)zmq_msg_init(&id);
	(void)zmq_msg_init(&payload);
	got = zmq_msg_recv(&id, b->socket, ZMQ_DONTWAIT) >= 0;
	if (got && zmq_msg_more(&id) && zmq_msg_recv(&payload, b->socket, ZMQ_DONTWAIT) >= 0) {
		take_frame(b, &id, &payload);
		if (zmq_msg_more(&payload))
			gw_net_drop_parts(b->socket);
	}
	(void)zmq_msg_close(&id);
	(void)zmq_msg_close(&payload);
	return got;
}

static int inbox_frames(void *ctx)
{
	struct inbox *b = ctx;
	int left = FRAMES_A_TURN;

	while (left && inbox_frame(b))
		left--;
	return !left;
}

static int inbox_events(void *ctx)
{
	struct inbox *b = ctx;

	gw_inbound_drain(&b->inbound, gw_loop_now_ns(b->peers->c.loop));
	return 0;
}

static int open_inbox(struct gw_peers *p, enum gw_channel channel, struct gw_diag *why)
{
	struct inbox *b = &p->inbox[channel];
	char endpoint[GW_NET_ENDPOINT_MAX];
	int err;

	if (!p->c.bind[channel])
		return 0;
	if (gw_net_endpoint(endpoint, p->c.bind[channel]))
		return gw_diag_set(why, GW_ECONFIG, "%.100s is not an address: host:port is wanted", p->c.bind[channel]);
	err = gw_net_socket(p->c.net, use_in[channel], NULL, &b->socket, why);
	if (err)
		return err;
	b->peers = p;
	b->channel = channel;
	b->inbound.socket = b->socket;
	b->inbound.max_conns = GW_PEERS_INBOUND_MAX;
	b->inbound.gone = conn_gone;
	b->inbound.dropped = conn_dropped;
	b->inbound.ctx = b;
	err = gw_inbound_init(&b->inbound, gw_net_context(p->c.net, use_in[channel]), use_in[channel], p->c.seed);
	if (!err && zmq_bind(b->socket, endpoint))
		err = gw_diag_set(why, gw_net_error(), "cannot listen at %s: %s", p->c.bind[channel], zmq_strerror(errno));
	if (!err)
		err = gw_pump_add(&p->pump, &b->frames, b->socket, inbox_frames, b);
	if (!err)
		err = gw_pump_add(&p->pump, &b->events, b->inbound.monitor, inbox_events, b);
	return err;
}

static void close_inbox(struct inbox *b)
{
	if (!b->socket)
		return;
	gw_pump_remove(&b->events);
	gw_pump_remove(&b->frames);
	gw_inbound_end(&b->inbound);
	(void)zmq_close(b->socket);
}

int gw_peers_bound(struct gw_peers *p, enum gw_channel channel, char out[GW_NET_ENDPOINT_MAX])
{
	return p->inbox[channel].socket ? gw_net_bound(p->inbox[channel].socket, out) : GW_ENOENT;
}

/* --- sending --- */

static int send_by_link(struct link *l, const void *bytes, size_t n)
{
	int r = zmq_send(l->socket, bytes, n, ZMQ_DONTWAIT);

	gw_pump_touch(&l->frames);
	return r < 0 ? gw_net_error() : 0;
}

/* Both parts or none: the first tells whether there is room. */
static int send_by_conn(struct inbox *b, struct gw_inbound_conn *c, const void *bytes, size_t n)
{
	int r = zmq_send(b->socket, c->id, sizeof c->id, ZMQ_DONTWAIT | ZMQ_SNDMORE);

	if (r >= 0)
		r = zmq_send(b->socket, bytes, n, ZMQ_DONTWAIT);
	gw_pump_touch(&b->frames);
	return r < 0 ? gw_net_error() : 0;
}

static void note_full(struct peer *peer, enum gw_channel channel)
{
	struct gw_peers *p = peer->peers;

	if (peer->full[channel])
		return;
	peer->full[channel] = 1;
	p->full++;
	if (!p->retry_full.node)
		(void)gw_timer_set(p->c.loop, &p->retry_full, gw_loop_now_ns(p->c.loop) + FULL_NS);
}

int gw_peers_send(struct gw_peers *p, const uint8_t key[GW_NET_KEY], enum gw_channel channel, const void *bytes, size_t n)
{
	struct peer *peer = find(p, key);
	int err = GW_EUNREACH;

	if (!n)
		return GW_EINVAL;
	if (n > gw_net_limits(use_out[channel])->message_bytes)
		return GW_ELIMIT;
	if (!peer)
		return GW_EUNREACH;
	if (peer->link[channel].state == LINK_UP)
		err = send_by_link(&peer->link[channel], bytes, n);
	else if (peer->conn[channel] && !peer->conn[channel]->kicked)
		err = send_by_conn(&p->inbox[channel], peer->conn[channel], bytes, n);
	if (err == GW_EAGAIN)
		note_full(peer, channel);
	if (!err) {
		p->counts.frames_out[channel]++;
		p->counts.bytes_out[channel] += n;
	}
	return err;
}

int gw_peers_linked(struct gw_peers *p, const uint8_t key[GW_NET_KEY], enum gw_channel channel)
{
	struct peer *peer = find(p, key);

	return peer && has_link(peer, channel);
}

/* --- from time to time --- */

/* The keys of all peers, so that callbacks may add and remove some meanwhile; NULL without memory. */
static uint8_t *all_keys(struct gw_peers *p, size_t *n)
{
	const struct gw_map_entry *e;
	uint8_t *keys = malloc((gw_map_count(&p->peers) + 1) * GW_NET_KEY);
	size_t at = 0;

	*n = 0;
	while (keys && (e = gw_map_next(&p->peers, &at)))
		memcpy(keys + (*n)++ * GW_NET_KEY, e->key, GW_NET_KEY);
	return keys;
}

static void try_full_again(void *ctx)
{
	struct gw_peers *p = ctx;
	size_t n = 0;
	uint8_t *keys = p->full ? all_keys(p, &n) : NULL;

	for (size_t i = 0; i < n && p->full; i++) {
		for (int ch = 0; ch < CHANNELS; ch++) {
			struct peer *peer = find(p, keys + i * GW_NET_KEY);

			if (peer)
				tell_writable(peer, (enum gw_channel)ch);
		}
	}
	free(keys);
	if (p->full)
		(void)gw_timer_set(p->c.loop, &p->retry_full, gw_loop_now_ns(p->c.loop) + FULL_NS);
}

/* See inbound.h: the other side may send without end too. */
static int has_too_much(const struct link *l, uint64_t now_ns)
{
	const struct gw_net_limits *m = gw_net_limits(use_out[l->channel]);
	uint64_t queues = (uint64_t)(m->messages + 1) * gw_wire_bytes(m->message_bytes), consumed;

	return l->fd >= 0 && !gw_tcp_consumed(l->fd, &consumed) && consumed > l->delivered &&
	       consumed - l->delivered > gw_undelivered_allowed(queues, now_ns - l->began_ns);
}

static void sweep_link(struct link *l, uint64_t now_ns)
{
	if (!l->peer->wanted)
		return;
	if (!l->socket && !l->retry.node)
		reopen_later(l);
	else if (l->socket && l->state != LINK_UP && now_ns - l->began_ns > STUCK_NS)
		reopen_later(l);
	else if (l->state == LINK_UP && has_too_much(l, now_ns))
		drop_link(l, "a message without end");
}

static void sweep(void *ctx)
{
	struct gw_peers *p = ctx;
	uint64_t now = gw_loop_now_ns(p->c.loop);
	size_t n;
	uint8_t *keys = all_keys(p, &n);

	for (int ch = 0; ch < CHANNELS; ch++) {
		if (p->inbox[ch].socket)
			gw_inbound_sweep(&p->inbox[ch].inbound, now, 0);
	}
	for (size_t i = 0; i < n; i++) {
		for (int ch = 0; ch < CHANNELS; ch++) {
			struct peer *peer = find(p, keys + i * GW_NET_KEY);

			if (peer)
				sweep_link(&peer->link[ch], now);
		}
	}
	free(keys);
	(void)gw_timer_set(p->c.loop, &p->sweep, now + SWEEP_NS);
}

/* --- life --- */

void gw_peers_counts(const struct gw_peers *p, struct gw_peers_counts *out)
{
	*out = p->counts;
	out->links = p->wanted;
	for (int ch = 0; ch < CHANNELS; ch++) {
		if (!p->inbox[ch].socket)
			continue;
		out->inbound += gw_map_count(&p->inbox[ch].inbound.conns);
		out->kicked += p->inbox[ch].inbound.kicked;
	}
}

static void free_peer(void *value)
{
	struct peer *peer = value;

	for (int i = 0; i < CHANNELS; i++)
		close_link(&peer->link[i]);
	free(peer);
}

void gw_peers_free(struct gw_peers *p)
{
	if (!p)
		return;
	for (int ch = 0; ch < CHANNELS; ch++)
		close_inbox(&p->inbox[ch]);
	gw_map_free(&p->peers, free_peer);
	gw_timer_stop(p->c.loop, &p->sweep);
	gw_timer_stop(p->c.loop, &p->retry_full);
	gw_timer_stop(p->c.loop, &p->bury);
	bury(p);
	gw_pump_end(&p->pump);
	free(p);
}

int gw_peers_new(struct gw_peers **out, const struct gw_peers_config *c, struct gw_diag *why)
{
	struct gw_peers *p = calloc(1, sizeof *p);
	int err;

	if (!p)
		return GW_ENOMEM;
	p->c = *c;
	gw_map_init(&p->peers, c->seed);
	gw_rng_init(&p->rng, c->seed);
	p->sweep = (struct gw_timer){sweep, p, NULL};
	p->retry_full = (struct gw_timer){try_full_again, p, NULL};
	p->bury = (struct gw_timer){bury, p, NULL};
	err = gw_pump_init(&p->pump, c->loop);
	if (err) {
		gw_map_free(&p->peers, NULL);
		free(p);
		return err;
	}
	for (int ch = 0; !err && ch < CHANNELS; ch++)
		err = open_inbox(p, (enum gw_channel)ch, why);
	if (!err)
		err = gw_timer_set(c->loop, &p->sweep, gw_loop_now_ns(c->loop) + SWEEP_NS);
	if (err) {
		gw_peers_free(p);
		return err;
	}
	*out = p;
	return 0;
}
