/*
 * The control socket RUN/control.sock: tools to this daemon, with the messages 160 to 191. It carries requests to one
 * handler and answers back, now or later; what they mean is the handler's.
 */
#ifndef GW_DAEMON_CONTROL_H
#define GW_DAEMON_CONTROL_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "io/os/loop.h"
#include "wire/msg.h"

struct gw_control;

/* A request of peer `who`, a number that is never used again. An error drops the peer; GW_EUNKNOWN is answered for the
 * handler. */
typedef int gw_control_request(void *ctx, uint64_t who, const struct gw_msg *m);

int gw_control_new(struct gw_control **out, struct gw_loop *l, const char *path, gid_t group,
		   gw_control_request *request, void *ctx, struct gw_diag *why);
void gw_control_free(struct gw_control *c);
/* To a peer that may be gone: then nothing happens. */
void gw_control_send(struct gw_control *c, uint64_t who, const struct gw_msg *m);
/* A ctl_reply. */
void gw_control_reply(struct gw_control *c, uint64_t who, int err, const char *text);

#endif
