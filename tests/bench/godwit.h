/*
 * Our own codec as a row of the table: whole patch files made by gw_diff (comparison, coding, fingerprints of both
 * versions, tables and file, the last in memory), and their tiles decoded.
 */
#ifndef GW_BENCH_GODWIT_H
#define GW_BENCH_GODWIT_H

#include "base/pool.h"
#include "clock.h"
#include "memfs.h"
#include "pair.h"
#include "patch/diff.h"

enum godwit_decode {
	GODWIT_LIST,	 /* the changes of every tile, as a list */
	GODWIT_PRINTS,	 /* the same, and what they change in the fingerprints */
	GODWIT_IN_PLACE, /* the same as LIST, and stored into the model, which is where the old bits are read from */
};

struct godwit {
	const struct bench_pair *pair;
	struct bench_memfs file;
	struct gw_diff_report report;
	struct gw_patch *patch;
	struct godwit_tile *tiles; /* every tile that changes */
	size_t tile_count;
	struct godwit_worker *workers;
	unsigned width;
	uint64_t (*lanes)[2]; /* by tensor of the patch */
	struct gw_hot **hot;  /* the same */
	struct gw_diag why;
};

/* For up to `width` threads. */
int godwit_init(struct godwit *g, const struct bench_pair *p, unsigned width);
void godwit_free(struct godwit *g);

/* Makes the patch file `runs` times; after that it can be decoded. Not while it is open. */
int godwit_encode(struct godwit *g, struct gw_pool *pool, int runs, struct bench_time *t);
int godwit_open(struct godwit *g);

/* model: the old bits in one piece, for IN_PLACE, put there anew before each run. GW_EFINGERPRINT and GW_EDIGEST
 * where what comes out is not the new version. */
int godwit_decode(struct godwit *g, struct gw_pool *pool, enum godwit_decode how, int runs, uint8_t *model,
		  struct bench_time *t);

#endif
