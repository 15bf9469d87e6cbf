/*
 * The staged list: what a commit writes, as absolute bits, complete before the first write. Format:
 * proto/LIST.md. It lies in a memfd that the engine side holds too, so it outlives the daemon; the
 * same bytes are used on a device.
 *
 * A list names places in memory segments (never tensors or tiles: maps are applied when it is built).
 * It is a table of runs. A run holds up to GW_LIST_RUN_MAX records of one segment and one width at
 * rising addresses: u16 gaps in units of the width (the first counts from the run's base, the others
 * from the record before), then the old bits, then the new bits. 6 bytes a record for bf16. A byte of a
 * segment is named at most once in a list. Runs may interleave.
 *
 * One word in the header is the list's state; it is what a survivor reads after a crash.
 */
#ifndef GW_PATCH_LIST_H
#define GW_PATCH_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { GW_LIST_RUN_MAX = 4096 };

/*
 * Who may move where; every other move is refused with GW_ESTATE:
 *
 *   BUILDING → STAGED                         finish
 *   STAGED, UNDONE → WRITING                  before the first new bits are written
 *   WRITING → WRITTEN                         every place read back as new
 *   STAGED, WRITING, WRITTEN → UNDOING        before the first old bits are written
 *   UNDOING → UNDONE                          every place read back as old
 *   UNDOING → WRITING                         an undo cut short, and then the decision was "new"
 */
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
	uint32_t state;	  /* enum gw_list_state; the one field that changes: atomic, release/acquire */
	uint32_t flags;	  /* 0 */
	uint8_t run[16];
	uint64_t from, to; /* versions */
	uint64_t bytes;	   /* the whole list */
	uint64_t records;
	uint32_t run_count, segment_count; /* segments: one more than the highest that a run names */
	uint64_t runs_at;		   /* offset of the run table, which ends the list */
	uint64_t check[2];		   /* fingerprint of all bytes but state and check, set when staged */
};

struct gw_list_run {
	uint64_t base;	  /* byte offset in the segment of the place that a first gap of 0 means */
	uint64_t data_at; /* offset in the list: gaps, old, new, each padded to 8 bytes */
	uint32_t segment;
	uint16_t count; /* 1 … GW_LIST_RUN_MAX */
	uint8_t width;	/* bytes: 1, 2, 4, 8 */
	uint8_t pad;	/* 0 */
};

/* Builder: grows in memory it is given through `grow` (a memfd's mapping, or malloc). The memory stays the
 * caller's, also after gw_list_build_free. */
struct gw_list_build;

struct gw_list_mem {
	void *ctx;
	/* At least n bytes, 8-byte aligned, contents kept, may move; NULL on failure (nothing changed then). */
	void *(*grow)(void *ctx, size_t n);
};

/* max_bytes bounds the whole list, its run table included. */
int gw_list_build_new(struct gw_list_build **out, struct gw_list_mem mem, const uint8_t run[16], uint64_t from,
		      uint64_t to, uint64_t max_bytes);
void gw_list_build_free(struct gw_list_build *b);
/* Appends n records of one segment and width at byte offsets at[], which rise by at least the width; they need not
 * be multiples of it. old/new: n * width bytes. GW_EINVAL for a wrong width or order, GW_ELIMIT over max_bytes,
 * GW_ENOMEM; after an error the builder can only be freed. */
int gw_list_add(struct gw_list_build *b, uint32_t segment, unsigned width, const uint64_t *at, const void *old_bits,
		const void *new_bits, size_t n);
/* Writes the run table and header, last of all the state STAGED; *out is the memory given. GW_EDUPLICATE, and
 * the state stays BUILDING, where a byte is named twice. An empty list is fine. */
int gw_list_finish(struct gw_list_build *b, const struct gw_list_header **out, struct gw_diag *why);

/* Checks everything that later code relies on: sizes, offsets, order inside runs, that every place lies in
 * its segment (sizes given), the check sum, and that no byte is named twice. For a list that came from
 * outside or outlived a process; n may be larger than the list (a mapping's size). p is 8-byte aligned. */
int gw_list_check(const void *p, size_t n, const uint64_t *segment_bytes, uint32_t segments, struct gw_diag *why);

const struct gw_list_run *gw_list_runs(const struct gw_list_header *h);
/* Acquire. A value that is no state reads as GW_LIST_BUILDING. */
enum gw_list_state gw_list_state(const struct gw_list_header *h);
/* Release. Moves to s where the table above allows it; GW_ESTATE otherwise, or when another moved it meanwhile. */
int gw_list_set_state(struct gw_list_header *h, enum gw_list_state s);

/* The three columns of run i. GW_EMALFORMED unless the run's row is sound and lies in the list. */
struct gw_list_part {
	const uint8_t *gaps, *old_bits, *new_bits; /* gaps: u16 each, 8-byte aligned as the others */
	uint64_t base;
	uint32_t segment;
	unsigned count, width;
};
int gw_list_part(const struct gw_list_header *h, uint32_t i, struct gw_list_part *part);

#endif
