/*
 * Speaking to this host's daemon over RUN/control.sock: one request, one answer or several.
 */
#ifndef GW_TOOLS_CLIENT_H
#define GW_TOOLS_CLIENT_H

#include "base/arena.h"
#include "tools/cmd.h"
#include "wire/msg.h"

/* For a verb's option table. */
#define CLIENT_OPTIONS {"run", "DIR", "where the daemon's sockets are (default: $GODWIT_RUN, else /run/godwit)"}

struct client {
	int fd;
	struct gw_arena arena; /* of the last answer */
	uint8_t *frame;
};

/* GW_EUNREACH with what to do where no daemon answers. */
int client_open(struct client *c, struct args *a);
void client_close(struct client *c);
int client_send(struct client *c, const struct gw_msg *m, struct args *a);
/* The next answer, valid until the next call; timeout_ms -1 waits for ever. A ctl_reply that is an error becomes
 * that error with its text; another type than `want` is GW_EMALFORMED. */
int client_recv(struct client *c, struct gw_msg *out, enum gw_msg_type want, int timeout_ms, struct args *a);

#endif
