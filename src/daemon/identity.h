/*
 * Who this host is: its keys, the root that it trusts, its member record, and how it came by them.
 *
 *     STATE/host.key   Ed25519 and CURVE keys, 0600; made when missing, with host.key.pub beside it
 *     STATE/root       the signed root record (or where trust.root says)
 *     STATE/member     this host's signed member record (or where trust.certificate says)
 *     STATE/members    records of members known when the daemon last looked: whom to dial first
 *
 * All files appear whole or not at all. Blocks; call before the loop runs, or on a worker.
 */
#ifndef GW_DAEMON_IDENTITY_H
#define GW_DAEMON_IDENTITY_H

#include "base/file.h"
#include "daemon/config.h"
#include "trust/key.h"
#include "trust/member.h"
#include "trust/root.h"
#include "trust/token.h"

struct gw_identity {
	struct gw_key key;
	struct gw_root root;
	struct gw_member member;
	uint8_t *root_bytes, *member_bytes; /* signed, as on disk */
	size_t root_n, member_n;
};

/* GW_ENOENT, with what to do, where this host has not joined yet. A member record whose addresses are not those of
 * the configuration is signed anew and stored. Region and island are the certificate's: GW_ECONFIG where the
 * configuration says others. */
int gw_identity_load(struct gw_identity *id, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why);
/* Wipes the keys; a zeroed one is fine. */
void gw_identity_free(struct gw_identity *id);

/* Becomes a member: makes keys where there are none, signs the member record with the token's key, tells a member
 * (unless the token names none: then this is the mesh's first host, and trust.root must be the token's), and stores
 * what came back, checked against the pinned root. */
int gw_identity_join(struct gw_fs *fs, const struct gw_config *c, const char *token, size_t n, struct gw_diag *why);

/* Members known before: those that were in; after an empty record (n 0) those that were dead; after another those that had
 * left. The last two must be let in too: should every other host have started again, nobody else would know them. */
enum { GW_IDENTITY_STATES = 3 };

/* Calls `each` for every stored record; bad ones are skipped, a missing file is no error. */
int gw_identity_members(struct gw_fs *fs, const struct gw_config *c,
			int (*each)(void *ctx, const void *record, size_t n), void *ctx, struct gw_diag *why);
int gw_identity_save_members(struct gw_fs *fs, const struct gw_config *c, const struct gw_bytes *records, size_t count,
			     struct gw_diag *why);

/* A secret key from its file; GW_EACCESS where others can read that. */
int gw_identity_read_key(struct gw_key *k, struct gw_fs *fs, const char *path, struct gw_diag *why);
/* The one that publish.release_key names. */
int gw_identity_release_key(struct gw_key *k, struct gw_fs *fs, const struct gw_config *c, struct gw_diag *why);
/* A whole small file, malloced; GW_ELIMIT above max. */
int gw_identity_read_file(struct gw_fs *fs, const char *path, size_t max, uint8_t **p, size_t *n, struct gw_diag *why);

#endif
