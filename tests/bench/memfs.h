/*
 * A file table with room for one file, in memory: gw_diff writes there, so that what is timed is the codec, and not a
 * disk (nothing is synced). Publishing works on it: the file has whatever name it was last given.
 */
#ifndef GW_BENCH_MEMFS_H
#define GW_BENCH_MEMFS_H

#include "base/file.h"

struct bench_memfs {
	struct gw_fs fs; /* first */
	uint8_t *p;
	size_t n, cap;
};

void bench_memfs_init(struct bench_memfs *m);
void bench_memfs_free(struct bench_memfs *m);

#endif
