/*
 * The one signed form of all records but the root (trust/root.h): raw bytes, the signer's Ed25519 public key (32
 * bytes), the signature (64 bytes). What is signed is the raw bytes, and these begin with 16 bytes that name the
 * record and its format version: the domain prefix, so that a signature on one kind of record never serves for
 * another. The key in the trailer is a hint: whether it may sign such a record is what the caller asks its root.
 *
 * Ed25519: RFC 8032, as libsodium does it (canonical S, no small-order keys). Digests: BLAKE2b-256, RFC 7693.
 */
#ifndef GW_TRUST_SIGNED_H
#define GW_TRUST_SIGNED_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/step.h"

enum {
	GW_MAGIC_BYTES = 16,
	GW_SIGNER_BYTES = 32,
	GW_SIGNATURE_BYTES = 64,
	GW_TRAILER_BYTES = GW_SIGNER_BYTES + GW_SIGNATURE_BYTES,
};

/* 16 characters each; the last is the format version. */
#define GW_MAGIC_ROOT "godwit-root----1"
#define GW_MAGIC_MANIFEST "godwit-manifest1"
#define GW_MAGIC_HEAD "godwit-head----1"
#define GW_MAGIC_DELEGATION "godwit-delegate1"
#define GW_MAGIC_CERTIFICATE "godwit-cert----1"
#define GW_MAGIC_PRESENCE "godwit-presence1"
#define GW_MAGIC_TENSORS "godwit-tensors-1"
#define GW_MAGIC_COUNTERS "godwit-counters1"

/* BLAKE2b-256. */
void gw_digest_of(const void *p, size_t n, struct gw_digest *out);
int gw_digest_equal(const struct gw_digest *a, const struct gw_digest *b);
int gw_digest_is_zero(const struct gw_digest *d);

/* 0 where the bytes begin with that magic; GW_EVERSION where only its last character differs, else GW_EMALFORMED
 * (GW_ETRUNC when there are too few). `what` is for the message: "head". */
int gw_magic_check(const void *p, size_t n, const char *magic, const char *what, struct gw_diag *why);

/* Signs what stands in w from byte `from` to its end and appends the trailer. */
int gw_signed_seal(struct gw_wr *w, size_t from, const uint8_t sk[64]);

/* Checks magic, size (at most max) and signature by the key in the trailer, then opens a reader on the raw bytes
 * (magic skipped). pk: the key it must be, or NULL for whichever it says. */
int gw_signed_open(const void *p, size_t n, size_t max, const char *magic, const char *what,
		   const uint8_t *pk, struct gw_rd *raw, struct gw_diag *why);

/* The key in the trailer, unverified; NULL where n is too small. */
const uint8_t *gw_signed_signer(const void *p, size_t n);

#endif
