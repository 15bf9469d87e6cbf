/*
 * The control requests about this host and its mesh: publishing, the health of all hosts, policies, objects. Those
 * about the engine are daemon/engine_requests.h's.
 */
#ifndef GW_DAEMON_REQUESTS_H
#define GW_DAEMON_REQUESTS_H

#include "daemon/control.h"

struct gw_core;
struct gw_requests;

int gw_requests_new(struct gw_requests **out, struct gw_core *core);
void gw_requests_free(struct gw_requests *r);
/* Once the control socket is made: where answers go. */
void gw_requests_join(struct gw_requests *r, struct gw_control *control);
/* GW_EUNKNOWN for what is not about these. */
int gw_requests_handle(struct gw_requests *r, uint64_t who, const struct gw_msg *m);

#endif
