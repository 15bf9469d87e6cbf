/*
 * ZeroMQ sockets on a gw_loop. ZMQ_FD is edge-triggered in spirit: it says that something may have changed, and
 * any call on the socket, a send too, can take the sign away. So a socket that was signalled or used is looked at
 * again before the loop sleeps, until it has nothing more.
 */
#ifndef GW_IO_ZMQ_PUMP_H
#define GW_IO_ZMQ_PUMP_H

#include "io/os/loop.h"

struct gw_pump_socket;

/* One for any number of sockets; lives where its owner does. */
struct gw_pump {
	struct gw_loop *loop;
	struct gw_pump_socket *first, **last; /* to be looked at */
	struct gw_pump_socket *current;       /* in its callback */
};

struct gw_pump_socket {
	struct gw_pump *pump; /* NULL: not in one */
	struct gw_watch *watch;
	/* Receives until there is nothing, or enough for one turn; non-zero when there may be more. */
	int (*ready)(void *ctx);
	void *ctx;
	int waiting; /* in the list */
	struct gw_pump_socket *next;
};

int gw_pump_init(struct gw_pump *p, struct gw_loop *l);
void gw_pump_end(struct gw_pump *p);
/* The socket is looked at once at once. */
int gw_pump_add(struct gw_pump *p, struct gw_pump_socket *s, void *socket, int (*ready)(void *ctx), void *ctx);
/* Before zmq_close; allowed inside any callback, its own included. Nothing on one that was not added. */
void gw_pump_remove(struct gw_pump_socket *s);
/* After every send. */
void gw_pump_touch(struct gw_pump_socket *s);

#endif
