/*
 * The connections that a bound ROUTER has accepted. libzmq hides them; its monitor names their descriptors, and a
 * message names the one it came by. With both, connections are counted and capped, known by the peer's CURVE key,
 * and dropped when they misbehave, by shutting the descriptor down under libzmq.
 *
 * The case that needs this most: MAXMSGSIZE bounds a frame and RCVHWM counts whole messages, so a message of
 * endlessly many frames grows without bound and is never seen. What the kernel received on a descriptor and what
 * arrived here from it differ then by more than the queues may hold, and the connection is dropped.
 */
#ifndef GW_IO_ZMQ_INBOUND_H
#define GW_IO_ZMQ_INBOUND_H

#include <zmq.h>

#include "base/map.h"
#include "io/zmq/net.h"

enum { GW_INBOUND_ID = 5 };

struct gw_inbound_conn {
	int fd;
	uint64_t accepted_ns;
	uint64_t delivered; /* bytes that arrived here, with their overhead */
	char address[GW_NET_ENDPOINT_MAX];
	int kicked;
	int named;          /* a message came: what follows is set */
	uint8_t key[GW_NET_KEY];
	uint8_t id[GW_INBOUND_ID]; /* routing id, as libzmq assigns it; one of the peer's choice is not allowed */
	uint32_t number;           /* in it */
	/* the owner's */
	void *owner;
	unsigned requests;
	uint64_t done_ns;
};

struct gw_inbound {
	void *socket, *monitor;
	struct gw_map conns; /* fd -> gw_inbound_conn */
	size_t max_conns;
	uint64_t max_undelivered; /* bytes that the queues of one connection may hold */
	uint64_t kicked;          /* connections dropped so far */
	/* A named connection is gone, and its memory goes after this; or it turns out to be another one's. */
	void (*gone)(void *ctx, struct gw_inbound_conn *c);
	/* A named connection was dropped for a reason, which is constant text. May be NULL. */
	void (*dropped)(void *ctx, struct gw_inbound_conn *c, const char *reason);
	void *ctx;
};

/* in->socket, max_*, gone, ctx are set by the caller; before bind. */
int gw_inbound_init(struct gw_inbound *in, void *context, enum gw_net_use use, uint64_t seed);
/* Before the socket is closed. Does not call gone. */
void gw_inbound_end(struct gw_inbound *in);
/* Takes in what the monitor says; call when it is signalled, and before every batch of messages. */
void gw_inbound_drain(struct gw_inbound *in, uint64_t now_ns);
/* Whose message this is: the routing id frame and the payload frame. NULL where that cannot be told (drop it). */
struct gw_inbound_conn *gw_inbound_of(struct gw_inbound *in, zmq_msg_t *id, zmq_msg_t *payload, uint64_t now_ns);
/* Drops the connection, with a line in the log; `gone` follows when libzmq has noticed. */
void gw_inbound_kick(struct gw_inbound *in, struct gw_inbound_conn *c, const char *reason);
/* Once a second or so: drops those with too much undelivered, and with named_within_ns > 0 those that have said
 * nothing for so long. */
void gw_inbound_sweep(struct gw_inbound *in, uint64_t now_ns, uint64_t named_within_ns);

/* What a kernel received on a TCP connection that was read from it, for links that this side opened as well. */
int gw_tcp_consumed(int fd, uint64_t *bytes);
/* Shuts a TCP connection down; nothing where the descriptor is by now something else. */
void gw_tcp_shutdown(int fd);
/* As the kernel counts them: a payload of n bytes with what ZMTP and CURVE add, generously. */
uint64_t gw_wire_bytes(size_t n);
/* How much may be undelivered by now, heartbeats included. */
uint64_t gw_undelivered_allowed(uint64_t max, uint64_t age_ns);

#endif
