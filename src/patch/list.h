/*
 * The staged list: what a commit writes, as absolute bits, complete before the first write. Format:
 * proto/LIST.md. It lies in a memfd that the engine side holds too, so it outlives the daemon; the
 * same bytes are used on a device.
 *
 * A list names places in memory segments (never tensors or tiles: maps are applied when it is built).
 * It is a table of runs. A run holds up to GW_LIST_RUN_MAX records of one segment and one width at
 * rising addresses: u16 gaps in units of the width (the first counts from the run's base, the others
 * from the record before), then the old bits, then the new bits. 6 bytes a record for bf16. A place
 * occurs at most once in a list.
 *
 * One word in the header is the list's state; it is what a survivor reads after a crash.
 */
#ifndef GW_PATCH_LIST_H
#define GW_PATCH_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { GW_LIST_RUN_MAX = 4096 };

enum gw_list_state {
	GW_LIST_BUILDING = 0, /* not to be used */
	GW_LIST_STAGED = 1,   /* complete; nothing written */
	GW_LIST_WRITING = 2,  /* a write of new bits began: places hold old or new */
	GW_LIST_WRITTEN = 3,  /* all new, checked */
	GW_LIST_UNDOING = 4,  /* a write of old bits began: places hold old or new */
	GW_LIST_UNDONE = 5,   /* all old, checked */
};

/* As it lies in memory, little-endian, 8-byte aligned. */
struct gw_list_header {
	uint8_t magic[8]; /* "GWLIST1\0" */
	uint32_t state;   /* enum gw_list_state; the one field that changes: atomic, release/acquire */
	uint32_t flags;
	uint8_t run[16];
	uint64_t from, to;        /* versions */
	uint64_t bytes;           /* the whole list */
	uint64_t records;
	uint32_t run_count, segment_count;
	uint64_t runs_at;         /* offset of the run table */
	uint64_t check[2];        /* order-independent sum over all bytes but state and check, set when staged */
};

struct gw_list_run {
	uint64_t base;    /* byte offset in the segment of the place that a first gap of 0 means */
	uint64_t data_at; /* offset in the list: gaps, old, new, each padded to 8 bytes */
	uint32_t segment;
	uint16_t count;   /* 1 … GW_LIST_RUN_MAX */
	uint8_t width;    /* bytes: 1, 2, 4, 8 */
	uint8_t pad;
};

/* Builder: grows in memory it is given through `grow` (a memfd's mapping, or malloc). */
struct gw_list_build;

struct gw_list_mem {
	void *ctx;
	/* At least n bytes, contents kept, may move; NULL on failure. */
	void *(*grow)(void *ctx, size_t n);
};

int gw_list_build_new(struct gw_list_build **out, struct gw_list_mem mem, const uint8_t run[16], uint64_t from,
		      uint64_t to, uint64_t max_bytes);
void gw_list_build_free(struct gw_list_build *b);
/* Appends n records of one segment and width at byte offsets at[] (strictly rising, aligned to the
 * width within the segment's own base alignment is not required). old/new: n * width bytes. */
int gw_list_add(struct gw_list_build *b, uint32_t segment, unsigned width, const uint64_t *at, const void *old_bits,
		const void *new_bits, size_t n);
/* Writes the run table and header, state STAGED; the bytes are those of the memory given. */
int gw_list_finish(struct gw_list_build *b, const struct gw_list_header **out);

/* Checks everything that later code relies on: sizes, offsets, order inside runs, that every place lies in
 * its segment (sizes given), the check sum, and that no place occurs twice. For a list that came from
 * outside or outlived a process. */
int gw_list_check(const void *p, size_t n, const uint64_t *segment_bytes, uint32_t segments, struct gw_diag *why);

const struct gw_list_run *gw_list_runs(const struct gw_list_header *h);
enum gw_list_state gw_list_state(const struct gw_list_header *h);
void gw_list_set_state(struct gw_list_header *h, enum gw_list_state s);

#endif
