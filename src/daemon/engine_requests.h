/*
 * The control requests about this host's engine: ctl_status, ctl_apply_file, ctl_scrub. It maps the patch file, hands it
 * to the attach module, and answers when that has an outcome. One apply and one scrub at a time.
 */
#ifndef GW_DAEMON_ENGINE_REQUESTS_H
#define GW_DAEMON_ENGINE_REQUESTS_H

#include "base/file.h"
#include "daemon/attach.h"
#include "daemon/control.h"

struct gw_engine_requests;

int gw_engine_requests_new(struct gw_engine_requests **out, struct gw_fs *fs);
void gw_engine_requests_free(struct gw_engine_requests *r);
/* Once both are made. */
void gw_engine_requests_join(struct gw_engine_requests *r, struct gw_attach *a, struct gw_control *c);

/* GW_EUNKNOWN for what is not about the engine. */
int gw_engine_requests_handle(struct gw_engine_requests *r, uint64_t who, const struct gw_msg *m);

/* What the attach module's hooks of the same names tell. `changed` answers who waits for an engine that is gone: one that
 * went after the switch, before all had resumed, has neither served nor failed. */
void gw_engine_requests_served(struct gw_engine_requests *r, uint64_t version);
void gw_engine_requests_staged(struct gw_engine_requests *r, uint64_t version);
void gw_engine_requests_failed(struct gw_engine_requests *r, uint64_t version, int err, const char *text);
void gw_engine_requests_changed(struct gw_engine_requests *r, enum gw_engine_state state);
void gw_engine_requests_scrubbed(struct gw_engine_requests *r, int err, const char *text);

#endif
