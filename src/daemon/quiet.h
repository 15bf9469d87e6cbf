/*
 * Lines of the log that others can cause are bounded: of each event GW_QUIET_LINES within GW_QUIET_NS, and then one
 * that says how many were kept back, as soon as it comes up again.
 */
#ifndef GW_DAEMON_QUIET_H
#define GW_DAEMON_QUIET_H

#include <stdint.h>

enum { GW_QUIET_EVENTS = 64, GW_QUIET_LINES = 10 };
#define GW_QUIET_NS 10000000000ull

struct gw_quiet {
	struct gw_quiet_event {
		const char *event; /* constant text, known by its address */
		uint64_t from_ns;
		unsigned said, kept_back;
	} v[GW_QUIET_EVENTS]; /* zeroed at first */
};

/* Whether this event may have another line now (monotonic). */
int gw_quiet_may_say(struct gw_quiet *q, const char *event, uint64_t now_ns);

#endif
