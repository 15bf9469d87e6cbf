/*
 * Links to other hosts. Hosts are named by their CURVE keys; each bound inbox (ROUTER) takes what others send, and
 * for each host that is to be linked there is one DEALER a channel. A frame leaves by the host's own link when that is
 * up, else back over a connection that the host opened, so hosts that cannot be dialled take part fully.
 *
 * A link reports up when the handshake is done and down when it is gone or could not be opened; it tries again
 * until gw_peers_disconnect, with growing, randomised pauses. A refused client stops for good in libzmq, so on a refusal
 * the socket is made anew: a host that was refused because a roster lagged comes in later.
 *
 * Nothing here waits. Delivery is not promised: a frame may be lost with its connection, and then `down` follows.
 *
 * On the wire: a frame is one ZeroMQ message of one part. An empty one is a greeting, sent first by who connects; it
 * tells the other side which key this connection has. More parts, or a key that is no longer admitted, drop the
 * connection.
 */
#ifndef GW_IO_ZMQ_PEERS_H
#define GW_IO_ZMQ_PEERS_H

#include "io/os/loop.h"
#include "io/zmq/net.h"

enum gw_channel { GW_CHANNEL_CONTROL, GW_CHANNEL_BULK };

enum {
	GW_PEERS_LINKS_MAX = 4096,    /* hosts linked by this side */
	GW_PEERS_INBOUND_MAX = 8192,  /* connections accepted, each channel */
};

struct gw_peers;

struct gw_peers_config {
	struct gw_net *net;
	struct gw_loop *loop;
	const char *bind[2]; /* "host:port" by channel; NULL: this host is not dialled */
	const char *source;  /* local address that links come from; NULL or "": the system chooses. Kept, not copied. */
	uint64_t seed;       /* of pauses and hash tables */
	void *ctx;
	/* Bytes are the peer's, checked for size only, and dead on return. Any of these may connect, disconnect and send. */
	void (*frame)(void *ctx, const uint8_t key[GW_NET_KEY], enum gw_channel channel, const uint8_t *p, size_t n);
	/* By the control channel, either way: works; gone, or not reached. */
	void (*up)(void *ctx, const uint8_t key[GW_NET_KEY]);
	void (*down)(void *ctx, const uint8_t key[GW_NET_KEY]);
	/* After a send gave GW_EAGAIN: try again. */
	void (*writable)(void *ctx, const uint8_t key[GW_NET_KEY], enum gw_channel channel);
	/* It broke a rule of the transport and was dropped; a name for the log. May be NULL. */
	void (*bad)(void *ctx, const uint8_t key[GW_NET_KEY], const char *reason);
};

int gw_peers_new(struct gw_peers **out, const struct gw_peers_config *c, struct gw_diag *why);
/* Not inside a callback. Calls nothing back. */
void gw_peers_free(struct gw_peers *p);

/* The address that an inbox has got, as "host:port"; GW_ENOENT where none is bound. */
int gw_peers_bound(struct gw_peers *p, enum gw_channel channel, char out[GW_NET_ENDPOINT_MAX]);

/* Opens and keeps links on both channels; once more with other addresses moves them. */
int gw_peers_connect(struct gw_peers *p, const uint8_t key[GW_NET_KEY], const char *control, const char *bulk,
		     struct gw_diag *why);
/* Closes them; no down is reported. What the host opened stays. */
void gw_peers_disconnect(struct gw_peers *p, const uint8_t key[GW_NET_KEY]);

/* 1 … the channel's limit bytes, copied. GW_EAGAIN: its queue is full, `writable` follows. GW_EUNREACH: no link. */
int gw_peers_send(struct gw_peers *p, const uint8_t key[GW_NET_KEY], enum gw_channel channel, const void *bytes, size_t n);
/* Whether a frame would find a link now. */
int gw_peers_linked(struct gw_peers *p, const uint8_t key[GW_NET_KEY], enum gw_channel channel);

struct gw_peers_counts {
	uint64_t frames_in[2], frames_out[2], bytes_in[2], bytes_out[2]; /* by channel */
	uint64_t kicked; /* connections dropped */
	size_t links, inbound;
};
void gw_peers_counts(const struct gw_peers *p, struct gw_peers_counts *out);

#endif
