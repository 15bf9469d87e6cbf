/*
 * What the patch layer's own files share: the fixed numbers of the format (proto/PATCH.md) and the inside of an
 * open patch.
 */
#ifndef GW_PATCH_INSIDE_H
#define GW_PATCH_INSIDE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/num.h"
#include "patch/body.h"
#include "patch/coder.h"
#include "patch/patch.h"

enum {
	GW_PATCH_VERSION = 1,
	GW_PATCH_FROM_NOTHING = 1, /* flag */
	GW_PATCH_HEADER = 128,     /* bytes */
	GW_PATCH_DIGESTED = 96,    /* bytes of the header that are under the digest, which follows them */
	GW_PATCH_DTYPES = 32,      /* above all numbers in dtype.def */
	GW_PATCH_RANK_MAX = 32,
	GW_FILE_NAME_MAX = 255,
	GW_PATCH_OTHER_MAX = 64 * 1024 * 1024,
	GW_PATCH_SHARD_HEADER_MAX = 100 * 1000 * 1000 + 8,
};

#define GW_PATCH_MAGIC "GWPATCH"
/* The shard of a checkpoint that is a single file. */
#define GW_PATCH_SINGLE "model.safetensors"

struct gw_patch {
	const uint8_t *p;
	size_t n;
	struct gw_patch_info info;
	struct gw_arena arena;
	struct gw_patch_tensor *tensors;
	struct gw_patch_file *files;
	struct gw_model *model[GW_PATCH_DTYPES];
};

/* What the header says, and the tables need. */
struct gw_patch_counts {
	uint32_t tensors, files, models;
	uint64_t changed;
};

/* Fills models, tensors and files from the tables at tables_at to the file's end. */
int gw_patch_read_tables(struct gw_patch *pt, const struct gw_patch_counts *counts, uint64_t tables_at,
			 struct gw_diag *why);

/* Chunks of a blob of so many bytes. */
static inline uint64_t gw_patch_chunks(uint64_t bytes)
{
	return gw_div_up(bytes, GW_PATCH_CHUNK);
}

/* Bytes of chunk i of it. */
static inline size_t gw_patch_chunk_bytes(uint64_t bytes, uint64_t i)
{
	return (size_t)gw_min_u64(GW_PATCH_CHUNK, bytes - i * GW_PATCH_CHUNK);
}

#endif
