/*
 * The root record: which keys may do what. Format and rules: proto/TRUST.md. It is signed by at least k of its
 * own n root keys and, from version 2 on, by at least k of the version before; each key counts once. Hosts
 * pin one version at install, by its digest (over the raw bytes alone, so that holders may sign in any order) or by being given the file, and walk from there version by version.
 *
 * After The Update Framework (theupdateframework.io, specification 1.0, 5.3).
 */
#ifndef GW_TRUST_ROOT_H
#define GW_TRUST_ROOT_H

#include "base/buf.h"
#include "trust/manifest.h"
#include "trust/signed.h"

enum {
	GW_ROOT_MAX = 16 * 1024, /* bytes */
	GW_ROOT_KEYS_MAX = 16,
	GW_ROOT_RELEASES_MAX = 64,
	GW_ROOT_ADMISSIONS_MAX = 16,
};

struct gw_root_release {
	char policy[GW_POLICY_NAME_MAX + 1];
	uint8_t pk[32];
	uint64_t from_ns, until_ns; /* signs only within */
};

struct gw_root_admission {
	uint8_t pk[32];
	uint64_t from_ns, until_ns;
};

struct gw_root {
	uint64_t version; /* 1, 2, …; one step at a time */
	uint64_t epoch;   /* rises with every version; heads carry it */
	uint64_t created_ns, expires_ns;
	uint32_t threshold, key_count;
	uint32_t release_count, admission_count;
	uint8_t keys[GW_ROOT_KEYS_MAX][32];
	struct gw_root_release releases[GW_ROOT_RELEASES_MAX];
	struct gw_root_admission admissions[GW_ROOT_ADMISSIONS_MAX];
	struct gw_digest id; /* of the raw bytes: the pin; set by open and write */
};

/* The record without signatures; sets ->id. GW_EINVAL where open would refuse what it says. */
int gw_root_write(struct gw_root *r, struct gw_wr *w, struct gw_diag *why);
/* Appends the record p with one more signature. The same key again changes nothing. */
int gw_root_sign(const void *p, size_t n, const uint8_t sk[64], struct gw_wr *out, struct gw_diag *why);

/* The pinned record: k of its own keys must have signed it. pin may be NULL where the bytes come from a
 * place that the operator put them in. */
int gw_root_open(const void *p, size_t n, const struct gw_digest *pin, struct gw_root *out, struct gw_diag *why);
/* The next version: k of old and k of its own keys. GW_EROLLBACK for an older or equal one. old and out may not
 * be the same. */
int gw_root_next(const struct gw_root *old, const void *p, size_t n, struct gw_root *out, struct gw_diag *why);

/* May this key sign for that policy (with that root role) at this time? 0, GW_EUNTRUSTED, GW_EEXPIRED. */
int gw_root_allows_release(const struct gw_root *r, const char *policy, const uint8_t pk[32], uint64_t at_ns,
			   struct gw_diag *why);
int gw_root_allows_admission(const struct gw_root *r, const uint8_t pk[32], uint64_t at_ns, struct gw_diag *why);

/* A manifest or head by a release key of its policy: what workers call for VERIFY_MANIFEST and VERIFY_HEAD. A
 * manifest's key must have been valid when it was made (a head, signed later, vouches for it by id); a head's must
 * be valid now. A head of an epoch beyond this root's is GW_EAGAIN: fetch the next root first. */
int gw_root_open_manifest(const struct gw_root *r, const void *p, size_t n, struct gw_manifest *m, struct gw_diag *why);
int gw_root_open_head(const struct gw_root *r, uint64_t now_ns, const void *p, size_t n, struct gw_head *h,
		      struct gw_diag *why);

#endif
