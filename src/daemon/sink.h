/*
 * Where the parts of the daemon put the events that their work gave rise to: into the node, by way of the host
 * (daemon/core.h). On the loop's thread. The event and what it points to are read before put returns.
 */
#ifndef GW_DAEMON_SINK_H
#define GW_DAEMON_SINK_H

#include "wire/step.h"

struct gw_sink {
	void *ctx;
	void (*put)(void *ctx, const struct gw_event *ev);
};

#endif
