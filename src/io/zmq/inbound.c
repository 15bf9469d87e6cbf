#include "io/zmq/inbound.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/log.h"

int gw_inbound_init(struct gw_inbound *in, void *context, enum gw_net_use use, uint64_t seed)
{
	const struct gw_net_limits *l = gw_net_limits(use);

	gw_map_init(&in->conns, seed);
	/* The queue of the socket, and one message more that is being taken apart. */
	in->max_undelivered = (uint64_t)(l->messages + 1) * gw_wire_bytes(l->message_bytes);
	return gw_net_monitor(context, in->socket, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED, &in->monitor);
}

void gw_inbound_end(struct gw_inbound *in)
{
	gw_net_monitor_close(in->socket, in->monitor);
	in->monitor = NULL;
	gw_map_free(&in->conns, free);
}

static struct gw_inbound_conn *look_up(struct gw_inbound *in, int fd)
{
	return gw_map_get(&in->conns, &fd, sizeof fd);
}

static void forget(struct gw_inbound *in, int fd)
{
	struct gw_inbound_conn *c = gw_map_del(&in->conns, &fd, sizeof fd);

	if (c && c->named)
		in->gone(in->ctx, c);
	free(c);
}

void gw_inbound_kick(struct gw_inbound *in, struct gw_inbound_conn *c, const char *reason)
{
	if (c->kicked)
		return;
	c->kicked = 1;
	in->kicked++;
	GW_LOG(GW_LOG_WARN, "connection dropped", "reason", reason, "address", c->address, NULL);
	gw_tcp_shutdown(c->fd);
	if (c->named && in->dropped)
		in->dropped(in->ctx, c, reason);
}

static struct gw_inbound_conn *accepted(struct gw_inbound *in, int fd, const char *address, uint64_t now_ns)
{
	struct gw_inbound_conn *c;

	/* An end that was not reported: the descriptor is new, so the old one is gone. */
	forget(in, fd);
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->fd = fd;
	c->accepted_ns = now_ns;
	(void)snprintf(c->address, sizeof c->address, "%s", address);
	if (gw_map_put(&in->conns, &fd, sizeof fd, c, NULL)) {
		free(c);
		return NULL;
	}
	if (gw_map_count(&in->conns) > in->max_conns)
		gw_inbound_kick(in, c, "too many connections");
	return c;
}

void gw_inbound_drain(struct gw_inbound *in, uint64_t now_ns)
{
	char address[GW_NET_ENDPOINT_MAX];
	uint16_t event;
	uint32_t value;

	while (gw_net_monitor_next(in->monitor, &event, &value, address)) {
		if (event == ZMQ_EVENT_ACCEPTED && !accepted(in, (int)value, address, now_ns))
			gw_tcp_shutdown((int)value);
		else if (event == ZMQ_EVENT_DISCONNECTED)
			forget(in, (int)value);
	}
}

/* Ids that libzmq assigns: a zero byte and a number that rises by one a connection. */
static int assigned_id(zmq_msg_t *id, uint32_t *number)
{
	const uint8_t *p = zmq_msg_data(id);

	if (zmq_msg_size(id) != GW_INBOUND_ID || p[0])
		return 0;
	*number = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	return 1;
}

static void name_it(struct gw_inbound *in, struct gw_inbound_conn *c, zmq_msg_t *id, uint32_t number, const uint8_t *key,
		    const char *address)
{
	if (c->named)
		in->gone(in->ctx, c);
	c->named = 1;
	c->owner = NULL;
	c->number = number;
	memcpy(c->key, key, sizeof c->key);
	memcpy(c->id, zmq_msg_data(id), sizeof c->id);
	if (address)
		(void)snprintf(c->address, sizeof c->address, "%s", address);
}

struct gw_inbound_conn *gw_inbound_of(struct gw_inbound *in, zmq_msg_t *id, zmq_msg_t *payload, uint64_t now_ns)
{
	const char *user = zmq_msg_gets(payload, "User-Id");
	int fd = zmq_msg_get(payload, ZMQ_SRCFD);
	uint8_t key[GW_NET_KEY];
	uint32_t number;
	struct gw_inbound_conn *c;

	if (!user || gw_unhex(key, sizeof key, user) || fd < 0)
		return NULL;
	c = look_up(in, fd);
	/* Another connection than the one known by this descriptor. That one's end and this one's beginning were queued
	 * before the descriptor could be used again, so they are there to be read. */
	if (!c || !c->named || memcmp(c->id, zmq_msg_data(id), zmq_msg_size(id)) || zmq_msg_size(id) != sizeof c->id) {
		gw_inbound_drain(in, now_ns);
		c = look_up(in, fd);
		if (!c)
			return NULL; /* it is over already */
		if (!assigned_id(id, &number)) {
			gw_inbound_kick(in, c, "chose a routing id of its own");
			return NULL;
		}
		/* Older than the one known: the last words of a connection whose descriptor has been used again. The other way
		 * round, last words came first and were taken for the new one's. */
		if (c->named && (int32_t)(number - c->number) < 0)
			return NULL;
		name_it(in, c, id, number, key, zmq_msg_gets(payload, "Peer-Address"));
	}
	c->delivered += gw_wire_bytes(zmq_msg_size(payload));
	return c;
}

void gw_inbound_sweep(struct gw_inbound *in, uint64_t now_ns, uint64_t named_within_ns)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	gw_inbound_drain(in, now_ns);
	while ((e = gw_map_next(&in->conns, &at))) {
		struct gw_inbound_conn *c = e->value;
		uint64_t age = now_ns - c->accepted_ns, consumed;

		if (named_within_ns && !c->named && age > named_within_ns)
			gw_inbound_kick(in, c, "said nothing");
		else if (!gw_tcp_consumed(c->fd, &consumed) && consumed > c->delivered &&
			 consumed - c->delivered > gw_undelivered_allowed(in->max_undelivered, age))
			gw_inbound_kick(in, c, "a message without end");
	}
}
