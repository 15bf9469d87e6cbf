/*
 * Keys and key files. Every role has an Ed25519 pair; a host has a CURVE (X25519) pair besides, with which its
 * sockets encrypt. Files are text (proto/TRUST.md, "Key files"); this layer makes and reads the bytes, the caller
 * the file (secret ones 0600).
 *
 * A key's id, for people, is the first 8 bytes of the BLAKE2b-256 of its Ed25519 public key, in hexadecimal.
 */
#ifndef GW_TRUST_KEY_H
#define GW_TRUST_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { GW_KEY_FILE_MAX = 1024, GW_KEY_ID_CHARS = 17, GW_KEY_COMMENT_MAX = 128, GW_Z85_CHARS = 41 };

enum gw_key_kind { GW_KEY_ROOT = 1, GW_KEY_RELEASE, GW_KEY_ADMISSION, GW_KEY_HOST };

struct gw_key {
	enum gw_key_kind kind;
	int secret;         /* the secret halves are there */
	uint8_t pk[32];     /* Ed25519 */
	uint8_t sk[64];     /* Ed25519: seed and public key, as libsodium has it */
	uint8_t curve_pk[32], curve_sk[32]; /* X25519, raw; GW_KEY_HOST only */
	char comment[GW_KEY_COMMENT_MAX + 1];
};

/* Once per process, before any other call of this layer. GW_EUNSUP where libsodium will not start. */
int gw_trust_init(void);

/* A fresh pair, or for GW_KEY_HOST two. comment: one line, printable, may be NULL. */
int gw_key_make(struct gw_key *k, enum gw_key_kind kind, const char *comment, struct gw_diag *why);
/* The pair that belongs to a 32-byte Ed25519 seed. */
void gw_key_from_seed(struct gw_key *k, enum gw_key_kind kind, const uint8_t seed[32]);
/* Overwrites secrets. */
void gw_key_wipe(struct gw_key *k);

/* The text of the key file, NUL-terminated: the secret one, or the public one. Wipe it after use. */
int gw_key_format(const struct gw_key *k, int secret, char text[GW_KEY_FILE_MAX]);
/* Reads either form, strictly. `why` never shows key material. */
int gw_key_parse(struct gw_key *k, const char *text, size_t n, struct gw_diag *why);
/* Overwrites n bytes that held secrets, in a way that the compiler keeps. */
void gw_wipe(void *p, size_t n);

/* "root", "release", "admission", "host"; 0 for an unknown name. */
const char *gw_key_kind_name(enum gw_key_kind kind);
enum gw_key_kind gw_key_kind_parse(const char *name);
char *gw_key_id(char out[GW_KEY_ID_CHARS], const uint8_t pk[32]);

/* 32 bytes as the 40 characters that ZeroMQ users know (RFC 32/Z85), and back. */
char *gw_z85_encode(char out[GW_Z85_CHARS], const uint8_t key[32]);
int gw_z85_decode(uint8_t key[32], const char *text);

#endif
