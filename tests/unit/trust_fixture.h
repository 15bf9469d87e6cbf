/*
 * A small mesh of signed records, the same on every run: keys from fixed seeds, times fixed. The unit tests change
 * one thing at a time; proto/vectors/trust.txt holds its bytes for second readers.
 */
#ifndef GW_TESTS_TRUST_FIXTURE_H
#define GW_TESTS_TRUST_FIXTURE_H

#include "trust/freshness.h"
#include "trust/join.h"
#include "trust/key.h"
#include "trust/member.h"
#include "trust/root.h"
#include "trust/tensor_table.h"
#include "trust/token.h"

#define SECOND_NS 1000000000ull
#define NOW_NS (1750000000ull * SECOND_NS)
#define DAY_NS (86400 * SECOND_NS)

struct blob {
	uint8_t *p;
	size_t n;
};

struct fixture {
	struct gw_key root_keys[3], new_root_key, release, admission, delegated, host, stranger;
	struct gw_root root, root2; /* two of three; then one root key and the release key replaced */
	struct gw_manifest transition, anchor;
	struct gw_head head;
	struct gw_delegation delegation;
	struct gw_member member;
	struct gw_token token;
	struct blob root_bytes, root2_bytes, transition_bytes, anchor_bytes, head_bytes, table_bytes, delegation_bytes,
		member_bytes, counters_bytes;
	char token_text[GW_TOKEN_TEXT_MAX];
	uint8_t digests[520 * 32];
};

void fixture_make(struct fixture *f);
void fixture_free(struct fixture *f);

/* A key whose seed is 32 times that byte. */
void fixture_key(struct gw_key *k, enum gw_key_kind kind, uint8_t byte);
/* Signs r with these keys, one after the other. */
struct blob fixture_root(struct gw_root *r, const struct gw_key *const *keys, size_t n);

/* "NAME HEX" a line, as in proto/vectors/trust.txt. */
void fixture_print(const struct fixture *f, struct gw_wr *w);

#endif
