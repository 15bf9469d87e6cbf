/* systemd's readiness protocol (sd_notify(3)) without its library. */
#ifndef GW_IO_OS_NOTIFY_H
#define GW_IO_OS_NOTIFY_H

#include <stdint.h>

/* "READY=1", "STATUS=…", "WATCHDOG=1", "STOPPING=1", lines joined by \n. Never waits. Returns 1 when sent, 0 where
 * nobody asked ($NOTIFY_SOCKET unset), else an error that callers may ignore (GW_EAGAIN: nobody reads there). */
int gw_notify(const char *state);
/* How often WATCHDOG=1 must be sent at the least, from $WATCHDOG_USEC and $WATCHDOG_PID; 0 where nobody asked.
 * Send it at half of that. */
uint64_t gw_notify_watchdog_ns(void);

#endif
