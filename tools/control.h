/* Talking to this host's daemon: one request, one answer, over RUN/control.sock. */
#ifndef GW_TOOLS_CONTROL_H
#define GW_TOOLS_CONTROL_H

#include "base/arena.h"
#include "base/err.h"
#include "wire/msg.h"

#define CONTROL_RUN_DEFAULT "/run/godwit"

/* For a verb's option table. */
#define CONTROL_OPTION_RUN {"run", "DIR", "the daemon's sockets (default: $GODWIT_RUN, else " CONTROL_RUN_DEFAULT ")"}

struct control {
	int fd;
	struct gw_arena arena;
	uint8_t *frame;
};

/* run: the folder of the sockets; NULL: $GODWIT_RUN, else the default. GW_EUNREACH where no daemon answers. */
int control_open(struct control *c, const char *run, struct gw_diag *why);
int control_send(struct control *c, const struct gw_msg *request, struct gw_diag *why);
/* The next answer, which lives until the next call. timeout_ms: -1 for ever. A ctl_reply with an error is returned
 * as that error, its text in why; another message than `want` is GW_EMALFORMED. */
int control_next(struct control *c, enum gw_msg_type want, int timeout_ms, struct gw_msg *answer, struct gw_diag *why);
/* Both. */
int control_ask(struct control *c, const struct gw_msg *request, enum gw_msg_type want, int timeout_ms,
		struct gw_msg *answer, struct gw_diag *why);
void control_close(struct control *c);

#endif
