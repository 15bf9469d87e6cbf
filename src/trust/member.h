/*
 * Who is a member: a chain of three signed records that any member checks offline, from the root alone. Format
 * and rules: proto/TRUST.md.
 *
 *   delegation    by an admission key: this key may sign certificates, for these roles, in this region, until then
 *   certificate   by the delegated key: this identity (Ed25519) and CURVE key are that host of that region
 *   presence      by the host's identity key: it can be reached there; a later stamp replaces an earlier one, so
 *                 that a host that moves tells so itself and no token is needed
 *
 * A member record is the three of them in this order, each verified by a key from the one before it: about 700
 * bytes, at most GW_MEMBER_MAX. It is what joins, is gossiped and admits a CURVE key.
 *
 * Two identities that claim one CURVE key: the roster keeps the first and refuses the second.
 */
#ifndef GW_TRUST_MEMBER_H
#define GW_TRUST_MEMBER_H

#include "base/buf.h"
#include "trust/name.h"
#include "trust/root.h"

enum {
	GW_DELEGATION_MAX = 512,
	GW_MEMBER_MAX = 2048,
	GW_MEMBER_ADDRESSES_MAX = 4,
};

/* Bits. What the operator lets a host be; none of them lets it sign a head. */
enum gw_role {
	GW_ROLE_ISLAND = 1, /* serves: has an engine */
	GW_ROLE_SEED = 2,   /* publishes: a source of new objects */
	GW_ROLE_RELAY = 4,  /* fetches and relays without an engine */
	GW_ROLE_JOIN = 8,   /* answers on a join socket */
	GW_ROLES_ALL = 15,
};

/* Who can use an address. */
enum gw_scope { GW_SCOPE_REGION = 1, GW_SCOPE_ANY = 2 };

struct gw_address {
	uint8_t scope;                    /* enum gw_scope */
	char control[GW_ADDRESS_MAX + 1]; /* host:port */
	char bulk[GW_ADDRESS_MAX + 1];
};

struct gw_delegation {
	uint8_t pk[32];      /* the delegated key */
	char region[GW_NAME_MAX + 1]; /* "" = any */
	uint32_t roles;      /* all that it may grant */
	uint64_t created_ns;
	uint64_t join_until_ns; /* join sockets refuse newcomers after it */
	uint64_t expires_ns;    /* certificates end with it */
	uint8_t signer[32];  /* the admission key; set by open and sign */
};

struct gw_member {
	uint8_t identity[32]; /* Ed25519 */
	uint8_t curve[32];    /* X25519 */
	char name[GW_NAME_MAX + 1], region[GW_NAME_MAX + 1], island[GW_NAME_MAX + 1]; /* island may be "" */
	uint32_t roles;
	uint64_t issued_ns, expires_ns;
	struct gw_delegation delegation;
	/* presence */
	uint64_t stamp_ns; /* since the epoch; rises with every change */
	uint32_t address_count; /* 0: cannot be dialled */
	struct gw_address addresses[GW_MEMBER_ADDRESSES_MAX];
};

/* "island,seed" to bits and back; 0 for anything else. At least 32 bytes of buffer. */
uint32_t gw_roles_parse(const char *text);
char *gw_roles_format(char *buf, uint32_t roles);

/* Appends the signed delegation. GW_EINVAL where open would refuse it. */
int gw_delegation_sign(struct gw_delegation *d, const uint8_t admission_sk[64], struct gw_wr *w, struct gw_diag *why);
/* Checks only that the key in its trailer signed it, then parses: for showing what a token grants. */
int gw_delegation_read(const void *p, size_t n, struct gw_delegation *d, struct gw_diag *why);
/* Signed by an admission key of the root, valid when it was made; not expired. */
int gw_delegation_open(const struct gw_root *r, uint64_t now_ns, const void *p, size_t n, struct gw_delegation *d,
		       struct gw_diag *why);

/* Appends a whole record: the delegation as given, m's certificate signed by the delegated key, m's presence
 * signed by the identity key. GW_EINVAL where open would refuse it. trust/token.h does this for a newcomer. */
int gw_member_make(const struct gw_member *m, const void *delegation, size_t n, const uint8_t delegated_sk[64],
		   const uint8_t identity_sk[64], struct gw_wr *w, struct gw_diag *why);
/* Appends an own record that opened with m's presence in place of its old one: whenever addresses change. The
 * stamp must be higher. */
int gw_member_renew(const struct gw_member *m, const void *record, size_t n, const uint8_t identity_sk[64],
		    struct gw_wr *w, struct gw_diag *why);

/* Verifies the whole chain, strictly, at that time. */
int gw_member_open(const struct gw_root *r, uint64_t now_ns, const void *p, size_t n, struct gw_member *m,
		   struct gw_diag *why);
/* At a join socket: also within join_until_ns. */
int gw_member_may_join(const struct gw_member *m, uint64_t now_ns, struct gw_diag *why);

/* The address to dial for a host of that region, or NULL: scope region first where the regions agree. */
const struct gw_address *gw_member_address(const struct gw_member *m, const char *from_region);

#endif
