/*
 * Bodies: what a tile or a chunk is in the file: mode, payload, check word. And digests, as the patch and redo
 * formats use them. Format: proto/PATCH.md, "Bodies".
 */
#ifndef GW_PATCH_BODY_H
#define GW_PATCH_BODY_H

#include <stddef.h>
#include <stdint.h>

#include "patch/coder.h"
#include "patch/patch.h"

enum {
	GW_BODY_EXTRA = 5, /* mode and check: a body has at most so many bytes more than the raw ones */
	GW_DIGEST_BYTES = 32,
};

/* BLAKE2b-256, over parts. */
struct gw_hash {
	_Alignas(64) unsigned char state[384];
};
void gw_hash_begin(struct gw_hash *h);
void gw_hash_add(struct gw_hash *h, const void *p, size_t n);
void gw_hash_end(struct gw_hash *h, uint8_t out[GW_DIGEST_BYTES]);
/* Of one stretch; the first n bytes of the digest. */
void gw_hash_of(const void *p, size_t bytes, uint8_t *out, size_t n);

/* Scratch for coding; one a thread. */
struct gw_packer;
int gw_packer_new(struct gw_packer **out);
void gw_packer_free(struct gw_packer *k);
/* Its coder, for samples. */
struct gw_coder *gw_packer_coder(struct gw_packer *k);

/* Codes n > 0 raw bytes (at most GW_TILE_ELEMENTS_MAX * 8) of elements of that width: raw, or compressed where that is
 * shorter. out has room for n + GW_BODY_EXTRA; *size is what was used. */
int gw_body_pack(struct gw_packer *k, const uint8_t *p, size_t n, unsigned width, uint8_t *out, size_t *size);

/* Codes a tile: its changes by the model (NULL: not), or its new bits, whatever is shortest. old and raw: the tile's old
 * and new bits, row by row; n bytes. hot: as in patch/coder.h. out as above. */
int gw_body_pack_tile(struct gw_packer *k, const struct gw_model *m, const struct gw_tile_changes *c,
		      const uint8_t *old, const uint8_t *raw, const uint64_t *hot, size_t n, unsigned width, uint8_t *out, size_t *size);

/* Checks the check word; mode and payload point into the body. */
int gw_body_open(const uint8_t *p, size_t n, enum gw_patch_mode *mode, const uint8_t **payload, size_t *payload_bytes);

/* Scratch for decoding: a zstd context. */
struct gw_unpacker;
int gw_unpacker_new(struct gw_unpacker **out);
void gw_unpacker_free(struct gw_unpacker *u);

/* The n raw bytes of a payload whose mode is not coded: *raw points to them, in the payload, or in `out` (room for n),
 * or in the unpacker until its next use. */
int gw_body_unpack(struct gw_unpacker *u, enum gw_patch_mode mode, const uint8_t *payload, size_t payload_bytes,
		   size_t n, unsigned width, uint8_t *out, const uint8_t **raw);

#endif
