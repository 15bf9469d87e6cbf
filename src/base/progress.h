/*
 * How far long work is, for whoever watches: bytes gone through of those expected. Filled in by the thread that called
 * the work, never by workers; what is expected may grow meanwhile. NULL stands for nobody watching.
 */
#ifndef GW_BASE_PROGRESS_H
#define GW_BASE_PROGRESS_H

#include <stdint.h>

struct gw_progress {
	void (*told)(void *ctx, uint64_t done, uint64_t total); /* done <= total */
	void *ctx;
	uint64_t done, total;
};

static inline void gw_progress_expect(struct gw_progress *p, uint64_t bytes)
{
	if (p)
		p->total += bytes;
}

static inline void gw_progress_add(struct gw_progress *p, uint64_t bytes)
{
	if (!p || !bytes)
		return;
	p->done += bytes;
	p->told(p->ctx, p->done < p->total ? p->done : p->total, p->total);
}

#endif
