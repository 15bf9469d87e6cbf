/*
 * Manifests and heads: the two signed records of a policy. Formats: proto/MANIFEST.md.
 *
 * Signed form: trust/signed.h, the raw bytes begin with "godwit-manifest1" or "godwit-head----1". Always verify
 * first (trust/root.h says by which key), then parse. Digests are BLAKE2b-256. A record's id is the digest
 * of its whole signed form; an object is named by its manifest's id.
 *
 * The object of a manifest is one byte string: the tensor table, then the payload (a patch file; for an
 * anchor the patch file from nothing). It is cut into pieces of piece_bytes (the last may be shorter).
 * Their digests stand in the manifest where they fit (at most 512); else the digests form the piece
 * table, cut into leaves of 64 KiB, and the manifest holds the digests of those leaves. Pieces are then
 * numbered: leaves of the piece table first (0 … table_pieces-1), then the object's.
 */
#ifndef GW_TRUST_MANIFEST_H
#define GW_TRUST_MANIFEST_H

#include <stdint.h>

#include "base/err.h"
#include "trust/signed.h"

enum {
	GW_MANIFEST_MAX = 32 * 1024,
	GW_HEAD_MAX = 4 * 1024,
	GW_INLINE_DIGESTS = 512,
	GW_TABLE_LEAF_BYTES = 64 * 1024,
	GW_PIECE_MIN = 64 * 1024,
	GW_PIECE_MAX = 4 * 1024 * 1024,
	GW_RUN_BYTES = 16,
	GW_POLICY_NAME_MAX = 64,
	GW_HEAD_LIST_MAX = 32,
};
#define GW_HEAD_LIFE_MAX_NS (3600ull * 1000000000) /* from created to expires; usual are 2 to 5 minutes */

enum gw_manifest_kind { GW_KIND_TRANSITION = 1, GW_KIND_ANCHOR = 2, GW_KIND_ADAPTER = 3 };
enum gw_encoding { GW_ENCODING_PLAIN = 1, GW_ENCODING_SEALED = 2 };

/* A whole-model fingerprint, see patch/fingerprint.h. */
struct gw_model_print {
	uint64_t lane[2];
};

struct gw_manifest {
	uint16_t kind;       /* unknown ones parse, are carried, and are never applied */
	uint16_t encoding;
	char policy[GW_POLICY_NAME_MAX + 1];
	uint8_t run[GW_RUN_BYTES];
	uint64_t from, to;   /* versions; for an anchor from = to */
	uint64_t created_ns, expires_ns; /* since the epoch */
	struct gw_model_print before, after; /* for an anchor before is all zero */
	struct gw_digest previous; /* id of the manifest published before this one in the run; zero for the first */
	uint64_t object_bytes;     /* tensor table and payload */
	uint64_t tensor_table_bytes;
	uint64_t changed, elements; /* elements changed; elements of the changed tensors: for people */
	uint32_t piece_bytes;
	uint32_t object_pieces;    /* ceil(object_bytes / piece_bytes) */
	uint32_t table_pieces;     /* leaves of the piece table; 0 where digests are inline */
	uint32_t digest_count;     /* of digests[]: object_pieces, or table_pieces */
	struct gw_digest tensor_table; /* digest of the tensor table alone */
	const uint8_t *digests;    /* digest_count * 32 bytes: points into the parsed bytes, or the caller's when built */
	struct gw_digest id;       /* set by parse and sign */
};

/* Which piece size a payload gets: clamp(power of two of bytes / 1024, 64 KiB, 4 MiB). */
uint32_t gw_piece_bytes_for(uint64_t object_bytes);
/* Pieces in all, table leaves included. */
uint32_t gw_manifest_pieces(const struct gw_manifest *m);
/* Size in bytes of piece i. */
uint64_t gw_manifest_piece_size(const struct gw_manifest *m, uint32_t i);
/* What piece i must hash to; `table` is the whole piece table, or NULL while it is not there (then
 * GW_EAGAIN for pieces that need it). */
int gw_manifest_piece_digest(const struct gw_manifest *m, uint32_t i, const uint8_t *table, struct gw_digest *out);

struct gw_head_entry {
	struct gw_digest manifest;
	uint64_t from, to;
};

struct gw_head {
	char policy[GW_POLICY_NAME_MAX + 1];
	uint8_t run[GW_RUN_BYTES];
	uint64_t root_epoch, sequence;
	uint64_t newest;           /* version */
	struct gw_digest manifest; /* of the transition, or anchor, that ends in newest */
	uint64_t created_ns, expires_ns;
	uint32_t anchor_count, skip_count;
	struct gw_head_entry anchors[GW_HEAD_LIST_MAX], skips[GW_HEAD_LIST_MAX];
	struct gw_digest id;       /* set by parse and sign */
};

/* Raw bytes of a record, unsigned: appended to w. */
void gw_manifest_write(const struct gw_manifest *m, struct gw_wr *w);
void gw_head_write(const struct gw_head *h, struct gw_wr *w);

/* raw + trailer. sk: Ed25519 secret key (64 bytes). *signed_bytes is malloced. Sets ->id. GW_EINVAL where open would
 * refuse the record. */
int gw_manifest_sign(struct gw_manifest *m, const uint8_t sk[64], uint8_t **signed_bytes, size_t *n);
int gw_head_sign(struct gw_head *h, const uint8_t sk[64], uint8_t **signed_bytes, size_t *n);

/* Verifies against the public key, then parses strictly. GW_ESIGNATURE, or what is wrong with the bytes;
 * `why` names the record. Neither looks at the clock. gw_root_open_manifest and gw_root_open_head find the key. */
int gw_manifest_open(const void *p, size_t n, const uint8_t pk[32], struct gw_manifest *m, struct gw_diag *why);
int gw_head_open(const void *p, size_t n, const uint8_t pk[32], struct gw_head *h, struct gw_diag *why);

/* A kind and an encoding that this program can apply; others are carried. */
int gw_manifest_applies(const struct gw_manifest *m);

#endif
