/*
 * Small checkpoints for tests: described, filled from a seed, written to any file table, compared byte for byte.
 */
#ifndef GW_TESTS_MODEL_H
#define GW_TESTS_MODEL_H

#include <stdint.h>

#include "base/file.h"
#include "base/rng.h"
#include "weights/dtype.h"

enum { MODEL_TENSORS = 48, MODEL_SHARDS = 4, MODEL_OTHERS = 8 };

struct model_tensor {
	char name[48];
	enum gw_dtype dtype;
	unsigned rank;
	uint64_t shape[4], bytes;
	uint8_t *p;
	unsigned shard;
};

struct model {
	struct model_tensor t[MODEL_TENSORS];
	unsigned n;
	char shard[MODEL_SHARDS][48]; /* file names; tensors lie in a shard in the order of t */
	unsigned shards;
	struct {
		char name[48], text[256];
	} other[MODEL_OTHERS];
	unsigned others;
};

void model_free(struct model *m);
/* Adds a tensor of random bits and returns it. */
struct model_tensor *model_add(struct model *m, struct gw_rng *rng, unsigned shard, const char *name, enum gw_dtype dtype,
			       unsigned rank, const uint64_t *shape);
void model_other(struct model *m, const char *name, const char *text);
void model_copy(struct model *to, const struct model *from);
/* One element in `every` changes, by one step, or `wild` in 16 of them to any bits. */
void model_change(struct model_tensor *t, struct gw_rng *rng, uint64_t every, unsigned wild);

/* Makes the folder and all files; with one shard named "" : the path is that file. */
void model_write(const struct model *m, struct gw_fs *fs, const char *path);
/* 1 where both folders (or files) hold the same names and bytes. */
int same_tree(struct gw_fs *fs, const char *a, const char *b);
/* A whole file, malloced. */
uint8_t *read_whole(struct gw_fs *fs, const char *path, size_t *n);
void write_whole(struct gw_fs *fs, const char *path, const void *p, size_t n);

#endif
