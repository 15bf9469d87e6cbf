/*
 * The members that this host knows, kept in its state folder. What it forgot it could neither dial nor let in: a host
 * that joined here and was not written down would be apart from this one for ever after a restart. So the file is
 * written as soon as the table has changed (gw_mesh_keep_at says how often), when the host stops, and before a newcomer
 * is told that it is in.
 */
#ifndef GW_DAEMON_MEMBERS_H
#define GW_DAEMON_MEMBERS_H

#include "base/err.h"
#include "io/os/loop.h"
#include "wire/step.h"

enum { GW_MEMBERS_KEPT = 4096 };

struct gw_core;

/* In the core, zero at first. */
struct gw_members {
	struct gw_timer timer; /* fire is set while members are kept */
	uint64_t table;        /* the roster's digest when they were last kept */
	struct gw_digest file; /* of what was written */
	uint64_t kept_ns;      /* or tried to */
	size_t n;
};

/* When the node is made, before it starts. */
void gw_members_begin(struct gw_core *c);
/* After every step of the node: has them kept soon where the table has changed. */
void gw_members_look(struct gw_core *c);
/* Keeps them now; what is on the disk already costs no sync. On error they are tried again later. */
int gw_members_keep(struct gw_core *c, struct gw_diag *why);
/* Keeps them a last time. */
void gw_members_end(struct gw_core *c);

#endif
