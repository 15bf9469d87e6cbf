/*
 * The node's links over the sockets: CONNECT, DISCONNECT and SEND out; messages, LINK_UP and LINK_DOWN in. What
 * comes in is known by the CURVE key of its connection; a key that no member record binds never gets this far.
 */
#ifndef GW_DAEMON_LINKS_H
#define GW_DAEMON_LINKS_H

#include "trust/member.h"
#include "base/err.h"
#include "wire/step.h"

struct gw_core;
struct gw_links;

/* Binds the sockets of the configuration. */
int gw_links_new(struct gw_links **out, struct gw_core *core, struct gw_diag *why);
void gw_links_free(struct gw_links *l);

/* A member record that verified: its CURVE key is admitted, its addresses are remembered. Called before the node
 * hears of it, and for every record given to it at its start. */
void gw_links_admit(struct gw_links *n, const struct gw_member *m);
/* Shuts out the members whose records have expired. From time to time. */
void gw_links_expire(struct gw_links *n);

void gw_links_connect(struct gw_links *n, gw_host host);
void gw_links_disconnect(struct gw_links *n, gw_host host);
/* Dropped quietly when there is no link. */
void gw_links_send(struct gw_links *n, gw_host host, const struct gw_msg *msg, int bulk);
/* A block read from the store; GW_EUNREACH where there is no link, GW_EAGAIN where its queue is full. */
int gw_links_send_block(struct gw_links *n, gw_host host, const struct gw_digest *object, uint32_t piece, uint64_t offset,
		      const void *p, size_t bytes);

#endif
