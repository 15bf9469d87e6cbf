/*
 * Patch files: reading. Format: proto/PATCH.md. Writing is patch/diff.h, applying to folders
 * patch/disk.h; the engine room reads tiles from here and makes lists of them.
 *
 * A patch names tensors in rising byte order of their names. Each is changed (tiles), whole (new, or
 * changed in shape or dtype: bytes travel compressed), or removed; unchanged tensors are not named. An
 * anchor is a patch from nothing: all tensors are whole. It also names every file of the version, so that the
 * checkpoint folder can be rebuilt byte for byte.
 *
 * Everything returned belongs to the patch and lives until it is closed. An open patch is constant: any number
 * of threads may read it, each with its own decoder.
 */
#ifndef GW_PATCH_PATCH_H
#define GW_PATCH_PATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "patch/companion.h"
#include "patch/tile.h"
#include "weights/dtype.h"

enum {
	GW_PATCH_TABLES_MAX = 256 * 1024 * 1024, /* bytes of the tables */
	GW_PATCH_CHUNK = 1024 * 1024,            /* bytes of a chunk of a blob; the last may be shorter */
	GW_PATCH_NAME_MAX = 4096,                /* bytes of a tensor's name */
	GW_FILE_DIGEST_BYTES = 16,               /* BLAKE2b-256, the first so many bytes */
};

struct gw_patch;

/* Bytes that travel whole, in chunks of GW_PATCH_CHUNK. */
struct gw_patch_blob {
	uint64_t bytes;
	uint32_t chunks;
	uint8_t width;      /* bytes of an element, which the coding may use */
	const uint64_t *at; /* chunks + 1 offsets in the file */
};

enum gw_patch_tensor_kind { GW_TENSOR_CHANGED = 1, GW_TENSOR_WHOLE = 2, GW_TENSOR_REMOVED = 3 };

struct gw_patch_tensor {
	const char *name; /* NUL-terminated, UTF-8 */
	enum gw_patch_tensor_kind kind;
	enum gw_dtype dtype;       /* after the patch (before it, for a removed one) */
	unsigned rank;
	const uint64_t *shape;
	unsigned axis;             /* slicing axis; 0 for rank 0 */
	unsigned width;            /* bytes of a storage element: 1, 2, 4, 8 */
	uint64_t bytes;            /* of its raw bits */
	uint64_t elements;         /* storage elements: bytes / width (F4: bytes) */
	uint64_t changed;          /* CHANGED: at least 1; WHOLE: elements; REMOVED: 0 */
	uint64_t coded_bytes;      /* in the file, without the tensor's table row */
	uint64_t print_old[2], print_new[2]; /* patch/fingerprint.h; old is 0 for WHOLE, new for REMOVED */
	struct gw_tiling tiling;   /* CHANGED and WHOLE: how the axis tiles it (WHOLE travels in chunks, though) */
	uint32_t tiles;            /* CHANGED: tiling.count; else 0 */
	const uint64_t *tile_at;   /* CHANGED: tiles + 1 offsets of their bodies in the file */
	struct gw_patch_blob blob; /* WHOLE: the raw bits */
	const struct gw_patch_tensor *companion; /* CHANGED: whose changes its tiles' coding depends on, or NULL */
};

enum gw_patch_file_kind { GW_PATCH_SHARD = 1, GW_PATCH_OTHER = 2, GW_PATCH_GONE = 3 };

/* Bytes of a shard that no tensor serves: a tensor that the index gives to another shard, or to none. */
struct gw_patch_carried {
	const char *name;
	uint64_t bytes;
	int fresh; /* in blob; else as under the same shard and name of the base */
	uint8_t digest[GW_FILE_DIGEST_BYTES];
	struct gw_patch_blob blob;
};

/* A file of the version. A checkpoint that is a single file counts as a folder with only "model.safetensors". */
struct gw_patch_file {
	const char *name; /* a plain base name */
	enum gw_patch_file_kind kind; /* GONE: the base has it, the version has not */
	int fresh;        /* its bytes (of a shard: its header's) are in blob; else as in the base under this name */
	uint64_t bytes;   /* OTHER: of the file; SHARD: of the header (length, JSON, padding) */
	uint8_t digest[GW_FILE_DIGEST_BYTES]; /* of those bytes */
	struct gw_patch_blob blob;
	uint64_t data_bytes; /* SHARD: behind the header */
	const struct gw_patch_carried *carried; /* rising names */
	uint32_t carried_count;
};

struct gw_patch_info {
	uint64_t from_print[2], to_print[2]; /* whole model; from is 0 for an anchor */
	int anchor;                /* from nothing */
	uint32_t tensors, files;   /* rows of the tables */
	uint64_t changed;          /* elements, over the tensors named */
	uint64_t named_elements;   /* elements of the tensors named, removed ones aside */
	uint64_t elements, bytes;  /* of all served tensors of the new version, named or not */
	uint64_t file_bytes;
};

/* p must stay valid and unchanged until close. Checks header, tables, every offset and count and the
 * file's own digest of its tables; tile and chunk bodies carry check words and are checked when decoded. */
int gw_patch_open(struct gw_patch **out, const void *p, size_t n, struct gw_diag *why);
void gw_patch_close(struct gw_patch *pt);

void gw_patch_info(const struct gw_patch *pt, struct gw_patch_info *info);
const struct gw_patch_tensor *gw_patch_tensor(const struct gw_patch *pt, uint32_t i);
/* The tensor of that name, or NULL. */
const struct gw_patch_tensor *gw_patch_find(const struct gw_patch *pt, const char *name);
/* In rising byte order of names. */
const struct gw_patch_file *gw_patch_file(const struct gw_patch *pt, uint32_t i);
const struct gw_patch_file *gw_patch_find_file(const struct gw_patch *pt, const char *name);

/* How a tile or chunk is coded; NONE: a tile without change, which has no body. */
enum gw_patch_mode {
	GW_MODE_NONE = 0,
	GW_MODE_CODED = 1,  /* places and steps of what changed: patch/coder.h */
	GW_MODE_RAW = 2,    /* the new bits */
	GW_MODE_ZSTD = 3,   /* the same in a zstd frame */
	GW_MODE_PLANES = 4, /* the same, cut into byte planes first: all lowest bytes, then the next … */
	GW_MODE_COUNT
};
/* Without decoding it; the byte may be wrong until it is decoded. tile < t->tiles. */
enum gw_patch_mode gw_tile_mode(const struct gw_patch *pt, const struct gw_patch_tensor *t, uint32_t tile);
const char *gw_patch_mode_name(enum gw_patch_mode mode);

/* What a decoded tile says: n changes at rising positions inside the tile. Arrays are the decoder's,
 * valid until its next call. old and new bits are n * width bytes. */
struct gw_tile_changes {
	size_t n;
	const uint32_t *at;
	const uint8_t *old_bits, *new_bits;
};

/* Scratch for decoding; one a thread. */
struct gw_tile_decoder;
int gw_tile_decoder_new(struct gw_tile_decoder **out);
void gw_tile_decoder_free(struct gw_tile_decoder *d);

/* Decodes one tile of a CHANGED tensor. old: the tile's elements, row by row, contiguous, at any alignment.
 * hot: what the patch changes of t->companion; NULL if and only if there is none. Refuses anything odd (GW_EMALFORMED,
 * GW_ETRUNC), a body that fails its check word (GW_EDIGEST), and bits that equal the old ones. */
int gw_tile_decode(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_tensor *t, uint32_t tile,
		   const void *old, const struct gw_hot *hot, struct gw_tile_changes *out);

/* Which elements of a companion this patch changes, from its old bits, in one piece. */
int gw_patch_hot(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_tensor *companion,
		 const uint8_t *old, struct gw_hot **out);

/* Decodes chunk i of a blob: *p is the decoder's, or the patch's, until its next call. */
int gw_blob_chunk(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_blob *blob, uint32_t i,
		  const uint8_t **p, size_t *n);

/* The bytes of a blob, in order, in chunks; stops at the first non-zero of `each` and returns it. */
int gw_patch_blob(const struct gw_patch *pt, const struct gw_patch_blob *blob,
		  int (*each)(void *ctx, uint64_t at, const void *p, size_t n), void *ctx, struct gw_diag *why);

/* The same of a WHOLE tensor. */
int gw_patch_whole(const struct gw_patch *pt, const struct gw_patch_tensor *t,
		   int (*each)(void *ctx, uint64_t at, const void *p, size_t n), void *ctx, struct gw_diag *why);

/* The tensor table of a manifest (trust/manifest.h) is made from these rows: proto/MANIFEST.md. */

#endif
