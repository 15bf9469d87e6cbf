/* Signed records: bytes signed by the right keys are still strictly read: refused, or written again they are the
 * same. The input's first byte picks the record; the rest is its raw bytes, signed here, so that the fuzzer gets
 * past the signature. Unsigned texts (token, key file) and the tensor table are read as they are. */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trust/freshness.h"
#include "trust/key.h"
#include "trust/member.h"
#include "trust/root.h"
#include "trust/tensor_table.h"
#include "trust/token.h"

const char fuzz_name[] = "record";

static struct gw_key key;

static void manifest(const uint8_t *p, size_t n, size_t raw)
{
	struct gw_manifest m;
	struct gw_wr w;

	gw_wr_init(&w, GW_MANIFEST_MAX);
	if (!gw_manifest_open(p, n, key.pk, &m, NULL)) {
		gw_manifest_write(&m, &w);
		assert(!w.err && w.n == raw && !memcmp(w.p, p, raw));
		assert(gw_manifest_piece_size(&m, gw_manifest_pieces(&m) - 1) > 0);
	}
	gw_wr_free(&w);
}

static void head(const uint8_t *p, size_t n, size_t raw)
{
	struct gw_head h;
	struct gw_wr w;

	gw_wr_init(&w, GW_HEAD_MAX);
	if (!gw_head_open(p, n, key.pk, &h, NULL)) {
		gw_head_write(&h, &w);
		assert(!w.err && w.n == raw && !memcmp(w.p, p, raw));
	}
	gw_wr_free(&w);
}

static void root(const uint8_t *p, size_t n)
{
	struct gw_root r;
	struct gw_wr signed_once, again;

	gw_wr_init(&signed_once, GW_ROOT_MAX);
	gw_wr_init(&again, GW_ROOT_MAX);
	if (!gw_root_sign(p, n, key.sk, &signed_once, NULL) && !gw_root_open(signed_once.p, signed_once.n, NULL, &r, NULL)) {
		int err = gw_root_write(&r, &again, NULL);

		assert(!err && again.n <= signed_once.n && !memcmp(again.p, signed_once.p, again.n - 1));
	}
	gw_wr_free(&signed_once);
	gw_wr_free(&again);
}

static void table(const uint8_t *p, size_t n)
{
	struct gw_tensor_table t;
	struct gw_tensor_row row;
	struct gw_wr w;

	gw_wr_init(&w, n + 1);
	if (!gw_tensor_table_open(&t, p, n, NULL)) {
		gw_tensor_table_begin(&w, t.rows);
		while (gw_tensor_table_next(&t, &row)) {
			int err = gw_tensor_table_add(&w, &row);

			assert(!err);
		}
		assert(w.n == n && !memcmp(w.p, p, n));
	}
	gw_wr_free(&w);
}

/* A member record by an admission key that is this one: parts are cut at the places that the input says. */
static void member(const uint8_t *p, size_t n)
{
	static struct gw_root r;
	struct gw_delegation d;
	struct gw_member m;

	r.expires_ns = UINT64_MAX;
	r.admission_count = 1;
	r.admissions[0].until_ns = UINT64_MAX;
	memcpy(r.admissions[0].pk, key.pk, 32);
	(void)gw_member_open(&r, 1, p, n, &m, NULL);
	(void)gw_delegation_open(&r, 1, p, n, &d, NULL);
}

static void texts(const uint8_t *p, size_t n)
{
	struct gw_token t;
	struct gw_key k;
	struct gw_counters c;

	(void)gw_token_parse(&t, (const char *)p, n, NULL);
	(void)gw_key_parse(&k, (const char *)p, n, NULL);
	(void)gw_counters_read(&c, p, n, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct gw_wr w;
	uint8_t seed[32] = {1};

	if (!n || n > GW_MANIFEST_MAX)
		return 0;
	if (!key.kind)
		gw_key_from_seed(&key, GW_KEY_RELEASE, seed);
	gw_wr_init(&w, 2 * GW_MANIFEST_MAX);
	gw_wr_bytes(&w, p + 1, n - 1);
	(void)gw_signed_seal(&w, 0, key.sk);
	switch (p[0] % 6) {
	case 0:
		manifest(w.p, w.n, n - 1);
		break;
	case 1:
		head(w.p, w.n, n - 1);
		break;
	case 2:
		root(p + 1, n - 1);
		break;
	case 3:
		table(p + 1, n - 1);
		break;
	case 4:
		member(w.p, w.n);
		member(p + 1, n - 1);
		break;
	default:
		texts(p + 1, n - 1);
		break;
	}
	gw_wr_free(&w);
	return 0;
}
