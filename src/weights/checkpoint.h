/*
 * A checkpoint: one .safetensors file, or a folder of them in Hugging Face layout.
 *
 * Shards are the regular files *.safetensors at the folder's top, and those that
 * model.safetensors.index.json names (plain base names only). With an index, the index is the authority:
 * a tensor is *served* from the shard that the index gives it to, and must be there; whatever else a shard
 * holds is *carried*, not served. Without an index all tensors are served, and a name that occurs twice is
 * an error. The index's "total_size" is advisory.
 *
 * Other regular files at the top (config, tokenizer, the index itself), up to 64 MiB each, travel along
 * whole. Links and subfolders are refused by name. The path given may itself be a link.
 *
 * Everything is mapped, nothing is copied but the headers' tables. A file that shrinks meanwhile reads as
 * zeros: whoever computed something from the bytes calls gw_checkpoint_check before believing it.
 */
#ifndef GW_WEIGHTS_CHECKPOINT_H
#define GW_WEIGHTS_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "weights/dtype.h"
#include "weights/safetensors.h"

enum {
	GW_OTHER_FILE_MAX = 64 * 1024 * 1024, /* bytes each */
	GW_CHECKPOINT_SHARDS_MAX = 1024,
	GW_CHECKPOINT_OTHERS_MAX = 512,
};

#define GW_INDEX_NAME "model.safetensors.index.json"

/* A tensor of a shard; it and all it points to are the checkpoint's. */
struct gw_tensor {
	const char *name; /* UTF-8, NUL-terminated */
	const uint64_t *shape;
	const uint8_t *p; /* its bytes in the shard's mapping, at any alignment */
	uint64_t bytes;
	uint64_t offset;  /* of p in the shard's file */
	uint32_t shard;
	uint8_t rank;
	uint8_t dtype;    /* enum gw_dtype */
};

struct gw_shard {
	const char *name;              /* base name */
	const uint8_t *p;              /* the whole file */
	uint64_t bytes;
	const struct gw_safetensors *header;
	const struct gw_tensor *carried; /* the shard's tensors that are not served, in data order */
	uint32_t carried_count;
};

struct gw_other_file {
	const char *name; /* base name */
	const uint8_t *p;
	uint64_t bytes;
};

struct gw_checkpoint;

int gw_checkpoint_open(struct gw_checkpoint **out, struct gw_fs *fs, const char *path, struct gw_diag *why);
/* Unmaps all. NULL is fine. */
void gw_checkpoint_close(struct gw_checkpoint *c);

/* GW_ESHRUNK, naming the file, where a mapped one has shrunk since it was opened. */
int gw_checkpoint_check(const struct gw_checkpoint *c, struct gw_diag *why);

/* 1 where it is a single file: one shard, no other files. */
int gw_checkpoint_is_file(const struct gw_checkpoint *c);
/* As given to open. */
const char *gw_checkpoint_path(const struct gw_checkpoint *c);

/* Served tensors, in bytewise order of names. */
uint32_t gw_checkpoint_tensors(const struct gw_checkpoint *c);
const struct gw_tensor *gw_checkpoint_tensor(const struct gw_checkpoint *c, uint32_t i);
/* The served one of that name, or NULL. */
const struct gw_tensor *gw_checkpoint_find(const struct gw_checkpoint *c, const char *name);

/* Shards and other files, each in bytewise order of their names. */
uint32_t gw_checkpoint_shards(const struct gw_checkpoint *c);
const struct gw_shard *gw_checkpoint_shard(const struct gw_checkpoint *c, uint32_t i);
uint32_t gw_checkpoint_others(const struct gw_checkpoint *c);
const struct gw_other_file *gw_checkpoint_other(const struct gw_checkpoint *c, uint32_t i);

#endif
