/*
 * The join token: one line of text, "godwit-join-1:" and base64url, that makes a host a member. It holds the
 * bootstrap addresses with their keys, the digest of the root to pin, and the secret half of a short-lived key with
 * its delegation: who has the token can join until it ends, so it is a secret (file 0600, never on a command
 * line). Format: proto/TRUST.md.
 */
#ifndef GW_TRUST_TOKEN_H
#define GW_TRUST_TOKEN_H

#include "trust/key.h"
#include "trust/member.h"

enum { GW_TOKEN_TEXT_MAX = 4096, GW_TOKEN_BOOTSTRAPS_MAX = 8 };

struct gw_bootstrap {
	char address[GW_ADDRESS_MAX + 1]; /* of a join socket */
	uint8_t curve[32];
};

struct gw_token {
	struct gw_digest root; /* pin */
	uint64_t root_version; /* of the pinned record */
	uint32_t bootstrap_count; /* 0: the first host of a mesh */
	struct gw_bootstrap bootstraps[GW_TOKEN_BOOTSTRAPS_MAX];
	uint8_t seed[32];      /* of the delegated key */
	uint8_t delegation[GW_DELEGATION_MAX]; /* signed */
	size_t delegation_bytes;
	struct gw_delegation grant; /* what it says; set by parse, not yet checked against a root */
};

/* NUL-terminated, without newline. */
int gw_token_format(const struct gw_token *t, char text[GW_TOKEN_TEXT_MAX], struct gw_diag *why);
/* Whitespace around is skipped. `why` never shows the token. */
int gw_token_parse(struct gw_token *t, const char *text, size_t n, struct gw_diag *why);
void gw_token_wipe(struct gw_token *t);

/* What a newcomer does with it: appends its member record. From m: name, region ("" = the token's), island, roles
 * (0 = all that the token grants), addresses, stamp_ns (0 = now); the rest is filled in. The root is the
 * pinned one, or NULL where the newcomer does not have it yet: then the delegation is not checked against it. */
int gw_token_join(const struct gw_token *t, const struct gw_root *root, const struct gw_key *host, uint64_t now_ns,
		  struct gw_member *m, struct gw_wr *w, struct gw_diag *why);

#endif
