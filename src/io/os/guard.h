/*
 * Memory that can vanish. Reading a mapping past the end of its file raises SIGBUS, and a file, or a
 * shared segment that another process gave, can be cut at any time. A guarded range survives that: the
 * handler lays zero pages over it, from the faulting page to the range's end, and remembers it. Whoever
 * computed something from the bytes asks gw_guard_hit before believing it.
 *
 * The handler is installed once, by the first range. A SIGBUS at any other address, or one that was sent,
 * goes to the handler that was there before.
 *
 * Threads that read guarded memory must not block SIGBUS (thread.h does not; libzmq's own threads do, so
 * no guarded memory may be handed to them).
 */
#ifndef GW_IO_OS_GUARD_H
#define GW_IO_OS_GUARD_H

#include <stddef.h>

enum { GW_GUARD_MAX = 4096 }; /* ranges at a time */

struct gw_guard;

/* [p, p + n) as mmap returned it, n > 0. writable: what the zero pages shall be. GW_ELIMIT when all are
 * taken. Call before anybody reads. */
int gw_guard_add(void *p, size_t n, int writable, struct gw_guard **out);
/* Whether a page of the range was lost. */
int gw_guard_hit(const struct gw_guard *g);
/* Before munmap; says, as gw_guard_hit, whether it was hit. NULL gives 0. */
int gw_guard_remove(struct gw_guard *g);

#endif
