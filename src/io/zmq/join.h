/*
 * The join socket: the only one that takes keys nobody knows. A newcomer sends one join_request of at most 4 KiB and
 * gets one join_reply (proto/messages.def); then the connection is closed. Handshakes are rate-limited (net.h),
 * connections are few, silent ones are dropped.
 *
 * What a request says is for the handler to check; that the newcomer holds the CURVE key it connected with, the
 * handshake has proven.
 */
#ifndef GW_IO_ZMQ_JOIN_H
#define GW_IO_ZMQ_JOIN_H

#include "base/arena.h"
#include "io/os/loop.h"
#include "io/zmq/net.h"
#include "trust/join.h"
#include "trust/token.h"
#include "wire/msg.h"

enum {
	GW_JOIN_CONNECTIONS_MAX = 64,
	GW_JOIN_SILENT_S = 5,
};

struct gw_join;

struct gw_join_config {
	struct gw_net *net;
	struct gw_loop *loop;
	const char *bind; /* "host:port" */
	uint64_t seed;
	void *ctx;
	/* Fills the reply; lists in the arena, bytes alive until the next call. The result becomes the reply's status, and
	 * `why` its reason; then nothing else of the reply is sent. */
	int (*answer)(void *ctx, const uint8_t curve[GW_NET_KEY], const struct gw_m_join_request *request,
		      struct gw_arena *arena, struct gw_m_join_reply *reply, struct gw_diag *why);
};

int gw_join_new(struct gw_join **out, const struct gw_join_config *c, struct gw_diag *why);
void gw_join_free(struct gw_join *j);
int gw_join_bound(struct gw_join *j, char out[GW_NET_ENDPOINT_MAX]);

/* Asks the bootstraps of a token in turn, beginning at `first`, each for at most timeout_ms, until one says yes. Waits;
 * has a context of its own. `source`: the local address to come from, NULL or "" for any; `own`: the newcomer's CURVE
 * pair. One that takes no strangers for the moment is asked again every second. On 0 the reply points into *frame (malloced, the caller
 * frees it) and the arena, which is emptied first. A refusal is the other's error with its reason; GW_EUNREACH where none answered. */
int gw_join_request(const struct gw_token *t, unsigned first, const char *source, const struct gw_net_config *own,
		    const struct gw_m_join_request *request, int timeout_ms, struct gw_arena *arena, uint8_t **frame,
		    struct gw_m_join_reply *reply, struct gw_diag *why);

#endif
