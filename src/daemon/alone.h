/*
 * A host without a mesh: one engine, whose patches come from files that a tool names on the control socket. The base is
 * a checkpoint folder.
 */
#ifndef GW_DAEMON_ALONE_H
#define GW_DAEMON_ALONE_H

#include "base/file.h"
#include "daemon/config.h"
#include "io/os/loop.h"

struct gw_alone;

struct gw_alone_config {
	struct gw_fs *fs;
	struct gw_loop *loop;
	const struct gw_config *cfg;
	const char *base;        /* a checkpoint: a version that engines may attach with */
	uint8_t base_run[16];
	uint64_t base_version;
};

int gw_alone_start(struct gw_alone **out, const struct gw_alone_config *c, struct gw_diag *why);
void gw_alone_stop(struct gw_alone *a);

#endif
