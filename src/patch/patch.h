/*
 * Patch files: reading. Format: proto/PATCH.md. Writing is patch/diff.h, applying to folders
 * patch/disk.h; the engine room reads tiles from here and makes lists of them.
 *
 * A patch names tensors in rising byte order of their names. Each is changed (tiles), whole (new, or
 * changed in shape or dtype: bytes travel compressed), or removed; unchanged tensors are not named. An
 * anchor is a patch from nothing: all tensors are whole.
 *
 * Tiles. A tensor with slicing axis a is seen as a matrix of R = product of shape[0…a) rows and
 * C = product of shape[a…) columns. A tile is a rectangle of it; its elements are numbered row by row.
 * Tiles cover the tensor exactly, in the order in which the page fixes; each decodes by itself, given its
 * old elements.
 */
#ifndef GW_PATCH_PATCH_H
#define GW_PATCH_PATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "weights/dtype.h"

struct gw_patch;

enum gw_patch_tensor_kind { GW_TENSOR_CHANGED = 1, GW_TENSOR_WHOLE = 2, GW_TENSOR_REMOVED = 3 };

/* A tile's rectangle, in elements. Element i of the tile is element
 * (row0 + i / cols) * tensor_cols + col0 + i % cols of the tensor. */
struct gw_tile_rect {
	uint64_t row0, rows, col0, cols, tensor_cols;
};

struct gw_patch_tensor {
	const char *name; /* NUL-terminated, UTF-8; the patch's */
	enum gw_patch_tensor_kind kind;
	enum gw_dtype dtype;       /* after the patch (before it, for a removed one) */
	unsigned rank;
	const uint64_t *shape;
	unsigned axis;             /* slicing axis; 0 for rank 0 */
	unsigned width;            /* bytes of a storage element: 1, 2, 4, 8 */
	uint64_t elements;         /* storage elements: bytes / width (F4: bytes) */
	uint64_t changed;          /* for WHOLE: elements */
	uint64_t coded_bytes;      /* in the file, without the tensor's table row */
	uint64_t print_old[2], print_new[2]; /* tensor fingerprints, patch/fingerprint.h; old is 0 for WHOLE */
	uint32_t tiles;
};

struct gw_patch_info {
	uint64_t from_print[2], to_print[2]; /* whole model; from is 0 for an anchor */
	int anchor;
	uint32_t tensors;
	uint64_t changed, elements; /* over the tensors named */
	uint64_t file_bytes;
};

/* p must stay valid and unchanged until close. Checks header, tables, every offset and count and the
 * file's own digest of its tables; tile and chunk bodies are checked when decoded. */
int gw_patch_open(struct gw_patch **out, const void *p, size_t n, struct gw_diag *why);
void gw_patch_close(struct gw_patch *pt);

void gw_patch_info(const struct gw_patch *pt, struct gw_patch_info *info);
const struct gw_patch_tensor *gw_patch_tensor(const struct gw_patch *pt, uint32_t i);
/* The tensor of that name, or NULL. */
const struct gw_patch_tensor *gw_patch_find(const struct gw_patch *pt, const char *name);

/* Tile rectangles of any tensor, without a patch: what the page fixes for (shape, axis, width). */
uint32_t gw_tile_count(unsigned rank, const uint64_t *shape, unsigned axis);
void gw_tile_rect(unsigned rank, const uint64_t *shape, unsigned axis, uint32_t tile, struct gw_tile_rect *rect);
enum { GW_TILE_ELEMENTS_MAX = 256 * 1024 };

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

/* Decodes one tile of a CHANGED tensor. old: the tile's elements, row by row, contiguous. Refuses
 * anything odd (GW_EMALFORMED, GW_ETRUNC) and bits that equal the old ones. */
int gw_tile_decode(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_tensor *t, uint32_t tile,
		   const void *old, struct gw_tile_changes *out);

/* The raw bytes of a WHOLE tensor, in order, in chunks; stops at the first non-zero of `each`. */
int gw_patch_whole(const struct gw_patch *pt, const struct gw_patch_tensor *t,
		   int (*each)(void *ctx, uint64_t at, const void *p, size_t n), void *ctx, struct gw_diag *why);

/* The tensor table of a manifest (trust/manifest.h) is made from these rows: proto/MANIFEST.md. */

#endif
