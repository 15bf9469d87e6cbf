/*
 * What others send between versions, rebuilt: each codes a pair into bytes, and decodes those bytes into the old
 * model in place. All get the favour of one compressed frame for the whole model instead of one a tensor, and find
 * changes by the same scan as ours.
 */
#ifndef GW_BENCH_RIVALS_H
#define GW_BENCH_RIVALS_H

#include <stddef.h>

#include "pair.h"

/* A stream of bytes, as it is and compressed. */
enum { RIVAL_STREAMS = 4 };
struct rival_stream {
	uint8_t *raw, *coded, *back; /* written; compressed; decompressed */
	size_t raw_n, coded_n, back_n, cap;
};

struct rival_work {
	struct rival_stream streams[RIVAL_STREAMS];
	struct gw_changes_buf changes;
	uint64_t changed;
	void *cctx, *dctx; /* libzstd's */
	uint8_t *block, *planes;
};

struct rival {
	const char *name, *text;
	int level; /* of zstd; 0: none */
	int (*encode)(const struct rival *r, struct rival_work *w, const struct bench_pair *p);
	int (*decode)(const struct rival *r, struct rival_work *w, const struct bench_pair *p, uint8_t *model);
	int variant;
};

/* Ends with a row without a name. */
extern const struct rival bench_rivals[];

/* Room to code a pair with so many changes. */
int rival_work_init(struct rival_work *w, const struct bench_pair *p, uint64_t changed);
void rival_work_free(struct rival_work *w);
/* Bytes of what was encoded, lengths of its streams included. */
size_t rival_bytes(const struct rival *r, const struct rival_work *w);

/* rivals_xor.c */
int rival_xor_encode(const struct rival *r, struct rival_work *w, const struct bench_pair *p);
int rival_xor_decode(const struct rival *r, struct rival_work *w, const struct bench_pair *p, uint8_t *model);
enum { RIVAL_XOR_BYTES, RIVAL_XOR_PLANES, RIVAL_BLOCK = 256 * 1024 };

#endif
