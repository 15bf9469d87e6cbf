/*
 * The commit page: one page of memory that the daemon and all ranks of a host share while a version is
 * staged. Format: proto/ATTACH.md. It holds the one decision, new or old, that all of them follow.
 *
 * The daemon decides for new when every rank has been written and checked. Whoever finds the other side gone
 * decides for old. Both by compare-and-swap, so that there is one winner, and who loses follows it. A rank
 * that has put its memory in the decided state, and checked it, sets its settled byte; ranks whose daemon
 * is gone resume when all have.
 */
#ifndef GW_ENGINE_COMMIT_H
#define GW_ENGINE_COMMIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { GW_COMMIT_PAGE_BYTES = 4096, GW_COMMIT_RANKS_MAX = 2048 };
enum gw_decision { GW_DECISION_OPEN = 0, GW_DECISION_NEW = 1, GW_DECISION_OLD = 2 };

struct gw_commit_page {
	uint8_t magic[8]; /* "GWCOMM1\0" */
	uint8_t run[16];
	uint64_t from, to;
	uint32_t ranks;
	uint32_t decision;                     /* enum gw_decision, atomic */
	uint8_t settled[GW_COMMIT_RANKS_MAX];  /* 0 or 1, atomic, one a rank */
};

/* p: GW_COMMIT_PAGE_BYTES, 8-byte aligned. */
int gw_commit_init(void *p, const uint8_t run[16], uint64_t from, uint64_t to, uint32_t ranks);
/* For the engine side: the page is one, and is for this commit. */
int gw_commit_check(const void *p, size_t n, const uint8_t run[16], uint64_t from, uint64_t to, uint32_t ranks);
/* Decides unless it is decided, and returns what is decided. */
enum gw_decision gw_commit_decide(struct gw_commit_page *p, enum gw_decision d);
enum gw_decision gw_commit_decision(const struct gw_commit_page *p);
void gw_commit_settle(struct gw_commit_page *p, uint32_t rank);
int gw_commit_all_settled(const struct gw_commit_page *p);

#endif
