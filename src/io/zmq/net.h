/*
 * ZeroMQ as this house uses it: two contexts, so that small control messages never wait behind the encryption of
 * bulk ones; one table of socket options; and ZAP (RFC 27) admission by CURVE key (RFC 26).
 *
 * What libzmq leaves open, and what is done about it (measured on 4.3.4):
 *   - without a ZAP domain, or with one and no handler, any key is accepted: each bound socket enforces its domain
 *     by ZMQ_ZAP_ENFORCE_DOMAIN (93), which is set by number since 4.3's header keeps it among the drafts;
 *     a library that does not take it is refused at start
 *   - a length in a frame's header is allocated before anybody is known: MAXMSGSIZE on every socket
 *   - routing ids are the peer's choice: who sent a message is told by the "User-Id" of its payload frame alone,
 *     here the CURVE key in hexadecimal (the identity frame loses it)
 *   - connections are neither counted nor dropped: inbound.h
 *
 * Domains: "control" and "bulk" admit the keys of the allow-set; "join" admits any key, a few a second.
 *
 * Admission functions are thread-safe. Sockets belong to the thread that made them.
 */
#ifndef GW_IO_ZMQ_NET_H
#define GW_IO_ZMQ_NET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	GW_NET_KEY = 32,             /* bytes of a CURVE key */
	GW_NET_ADMITTED_MAX = 1 << 17,
	GW_NET_ENDPOINT_MAX = 300,
	GW_NET_JOIN_PER_S = 20,      /* handshakes of strangers, in all … */
	GW_NET_JOIN_PER_ADDRESS = 5, /* … and at once from one address, which gets one more a second */
};

struct gw_net;

struct gw_net_config {
	uint8_t curve_pk[GW_NET_KEY], curve_sk[GW_NET_KEY];
	int bulk_threads; /* I/O threads of the bulk context: about one a GB/s; 0: 4 */
};

/* Starts the contexts and the ZAP thread. After fork a child must not use it. */
int gw_net_new(struct gw_net **out, const struct gw_net_config *c, struct gw_diag *why);
/* All sockets must be closed. */
void gw_net_free(struct gw_net *n);

/* --- who may connect --- */

int gw_net_admit(struct gw_net *n, const uint8_t key[GW_NET_KEY]);
/* From now on; peers.h drops its connections when they next say something. */
void gw_net_expel(struct gw_net *n, const uint8_t key[GW_NET_KEY]);
int gw_net_admitted(struct gw_net *n, const uint8_t key[GW_NET_KEY]);

struct gw_net_counts {
	uint64_t admitted, refused, limited; /* handshakes: let in, unknown key, over the rate of the join socket */
};
void gw_net_counts(struct gw_net *n, struct gw_net_counts *out);

/* --- sockets, for this folder and its tests --- */

enum gw_net_use {
	GW_NET_CONTROL_IN,  /* ROUTER, bound */
	GW_NET_CONTROL_OUT, /* DEALER, connected */
	GW_NET_BULK_IN,
	GW_NET_BULK_OUT,
	GW_NET_JOIN_IN,
	GW_NET_JOIN_OUT,
};

struct gw_net_limits {
	size_t message_bytes; /* of one payload, as received on such a socket */
	int messages;         /* RCVHWM and SNDHWM, each connection */
};
const struct gw_net_limits *gw_net_limits(enum gw_net_use use);

/* Unconnected, with all options set. server_key: of the other side, for the connecting ones, else NULL. */
int gw_net_socket(struct gw_net *n, enum gw_net_use use, const uint8_t server_key[GW_NET_KEY], void **out,
		  struct gw_diag *why);
/* The same in any context and with any keys: for the join client, which has no gw_net yet, and for tests. */
int gw_net_socket_in(void *context, enum gw_net_use use, const struct gw_net_config *own, const uint8_t *server_key,
		     void **out, struct gw_diag *why);
/* The PAIR on which the socket's monitor events arrive (zmq_socket_monitor). Close it with gw_net_monitor_close before
 * the socket itself. */
int gw_net_monitor(void *context, void *socket, int events, void **out);
void gw_net_monitor_close(void *socket, void *monitor);
/* The next event: its number, value and the address. 0 when there is none. */
int gw_net_monitor_next(void *monitor, uint16_t *event, uint32_t *value, char address[GW_NET_ENDPOINT_MAX]);
/* Throws away the parts that are left of a message whose last received part said that more follow. */
void gw_net_drop_parts(void *socket);
void *gw_net_context(struct gw_net *n, enum gw_net_use use);

/* "tcp://host:port" from "host:port", where port may be "*" for binding; GW_EINVAL for what libzmq would take for more
 * than that. A name instead of a number is resolved on the context's I/O thread and holds it up. */
int gw_net_endpoint(char out[GW_NET_ENDPOINT_MAX], const char *address);
/* The same for connecting from a local address, a number without port; NULL or "": from any. */
int gw_net_endpoint_from(char out[2 * GW_NET_ENDPOINT_MAX], const char *source, const char *address);
/* The address a bound socket has got, without "tcp://". */
int gw_net_bound(void *socket, char out[GW_NET_ENDPOINT_MAX]);
/* zmq's errno as one of ours. */
int gw_net_error(void);

#endif
