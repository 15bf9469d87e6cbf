#include "trust/root.h"

#include <sodium.h>
#include <string.h>

#include "trust/name.h"

/* A record is: raw bytes, count × (key, signature), count (one byte, last, so that the raw bytes can be told
 * from the signatures without being parsed). */
enum { ENTRY_BYTES = 32 + 64, SIGNATURES_MAX = 2 * GW_ROOT_KEYS_MAX };

struct parts {
	const uint8_t *raw;
	size_t raw_bytes;
	const uint8_t *entries;
	size_t count;
};

/* --- what a root may say --- */

static const char *keys_odd(const struct gw_root *r)
{
	if (!r->key_count || r->key_count > GW_ROOT_KEYS_MAX || !r->threshold || r->threshold > r->key_count)
		return "its threshold does not fit its root keys";
	for (uint32_t i = 0; i < r->key_count; i++)
		for (uint32_t j = 0; j < i; j++)
			if (!memcmp(r->keys[i], r->keys[j], 32))
				return "a root key occurs twice, and would count twice";
	return NULL;
}

static const char *releases_odd(const struct gw_root *r)
{
	if (r->release_count > GW_ROOT_RELEASES_MAX)
		return "it has too many release keys";
	for (uint32_t i = 0; i < r->release_count; i++) {
		const struct gw_root_release *a = &r->releases[i];

		if (!gw_name_ok(a->policy, strnlen(a->policy, sizeof a->policy), GW_POLICY_NAME_MAX))
			return "the policy of a release key has no good name";
		if (a->from_ns >= a->until_ns)
			return "a release key ends before it begins";
		for (uint32_t j = 0; j < i; j++)
			if (!memcmp(a->pk, r->releases[j].pk, 32) && !strcmp(a->policy, r->releases[j].policy))
				return "a release key occurs twice for a policy";
	}
	return NULL;
}

static const char *admissions_odd(const struct gw_root *r)
{
	if (r->admission_count > GW_ROOT_ADMISSIONS_MAX)
		return "it has too many admission keys";
	for (uint32_t i = 0; i < r->admission_count; i++) {
		if (r->admissions[i].from_ns >= r->admissions[i].until_ns)
			return "an admission key ends before it begins";
		for (uint32_t j = 0; j < i; j++)
			if (!memcmp(r->admissions[i].pk, r->admissions[j].pk, 32))
				return "an admission key occurs twice";
	}
	return NULL;
}

static const char *odd(const struct gw_root *r)
{
	const char *what;

	if (!r->version || !r->epoch)
		return "version and epoch begin with 1";
	if (r->expires_ns <= r->created_ns)
		return "it expires before it was made";
	what = keys_odd(r);
	if (!what)
		what = releases_odd(r);
	return what ? what : admissions_odd(r);
}

/* --- bytes --- */

static void write_raw(const struct gw_root *r, struct gw_wr *w)
{
	gw_wr_bytes(w, GW_MAGIC_ROOT, GW_MAGIC_BYTES);
	gw_wr_u64(w, r->version);
	gw_wr_u64(w, r->epoch);
	gw_wr_u64(w, r->created_ns);
	gw_wr_u64(w, r->expires_ns);
	gw_wr_u8(w, (uint8_t)r->threshold);
	gw_wr_u8(w, (uint8_t)r->key_count);
	gw_wr_u8(w, 1); /* thresholds of release and admission */
	gw_wr_u8(w, 1);
	gw_wr_u16(w, (uint16_t)r->release_count);
	gw_wr_u16(w, (uint16_t)r->admission_count);
	for (uint32_t i = 0; i < r->key_count; i++)
		gw_wr_bytes(w, r->keys[i], 32);
	for (uint32_t i = 0; i < r->release_count; i++) {
		gw_name_write(w, r->releases[i].policy);
		gw_wr_bytes(w, r->releases[i].pk, 32);
		gw_wr_u64(w, r->releases[i].from_ns);
		gw_wr_u64(w, r->releases[i].until_ns);
	}
	for (uint32_t i = 0; i < r->admission_count; i++) {
		gw_wr_bytes(w, r->admissions[i].pk, 32);
		gw_wr_u64(w, r->admissions[i].from_ns);
		gw_wr_u64(w, r->admissions[i].until_ns);
	}
}

int gw_root_write(struct gw_root *r, struct gw_wr *w, struct gw_diag *why)
{
	const char *what = odd(r);
	size_t start = w->n;

	if (what)
		return gw_diag_set(why, GW_EINVAL, "a root record cannot be made: %s", what);
	write_raw(r, w);
	if (!w->err)
		gw_digest_of(w->p + start, w->n - start, &r->id);
	gw_wr_u8(w, 0);
	return w->err;
}

static void parse_lists(struct gw_rd *r, struct gw_root *out)
{
	if (out->key_count > GW_ROOT_KEYS_MAX || out->release_count > GW_ROOT_RELEASES_MAX ||
	    out->admission_count > GW_ROOT_ADMISSIONS_MAX) {
		gw_rd_fail(r, GW_ELIMIT);
		return;
	}
	for (uint32_t i = 0; i < out->key_count; i++)
		gw_rd_copy(r, out->keys[i], 32);
	for (uint32_t i = 0; i < out->release_count; i++) {
		gw_name_read(r, out->releases[i].policy, GW_POLICY_NAME_MAX, 0);
		gw_rd_copy(r, out->releases[i].pk, 32);
		out->releases[i].from_ns = gw_rd_u64(r);
		out->releases[i].until_ns = gw_rd_u64(r);
	}
	for (uint32_t i = 0; i < out->admission_count; i++) {
		gw_rd_copy(r, out->admissions[i].pk, 32);
		out->admissions[i].from_ns = gw_rd_u64(r);
		out->admissions[i].until_ns = gw_rd_u64(r);
	}
}

static int parse(const struct parts *s, struct gw_root *out, struct gw_diag *why)
{
	const char *what;
	struct gw_rd r;
	int err;

	memset(out, 0, sizeof *out);
	gw_rd_init(&r, s->raw, s->raw_bytes);
	(void)gw_rd_bytes(&r, GW_MAGIC_BYTES);
	out->version = gw_rd_u64(&r);
	out->epoch = gw_rd_u64(&r);
	out->created_ns = gw_rd_u64(&r);
	out->expires_ns = gw_rd_u64(&r);
	out->threshold = gw_rd_u8(&r);
	out->key_count = gw_rd_u8(&r);
	if (gw_rd_u8(&r) != 1 || gw_rd_u8(&r) != 1)
		gw_rd_fail(&r, GW_EUNSUP); /* this version knows one signature for these roles */
	out->release_count = gw_rd_u16(&r);
	out->admission_count = gw_rd_u16(&r);
	parse_lists(&r, out);
	err = gw_rd_end(&r);
	if (err)
		return gw_diag_set(why, err, "root record refused: %s", gw_err_text(err));
	what = odd(out);
	if (what)
		return gw_diag_set(why, GW_EMALFORMED, "root record %llu refused: %s", (unsigned long long)out->version, what);
	gw_digest_of(s->raw, s->raw_bytes, &out->id);
	return 0;
}

/* --- signatures --- */

static int split(const void *p, size_t n, struct parts *s, struct gw_diag *why)
{
	const uint8_t *b = p;
	int err;

	if (n > GW_ROOT_MAX)
		return gw_diag_set(why, GW_ELIMIT, "root record refused: %zu bytes, at most %d are allowed", n, GW_ROOT_MAX);
	err = gw_magic_check(p, n, GW_MAGIC_ROOT, "root record", why);
	if (err)
		return err;
	s->count = b[n - 1];
	if (s->count > SIGNATURES_MAX || n < GW_MAGIC_BYTES + 1 + s->count * ENTRY_BYTES)
		return gw_diag_set(why, GW_ETRUNC, "root record refused: cut, or its count of signatures is wrong");
	s->raw = b;
	s->raw_bytes = n - 1 - s->count * ENTRY_BYTES;
	s->entries = b + s->raw_bytes;
	return 0;
}

/* Every signature there must be good and by another key: nothing in a record is idle, so that any flipped bit
 * is seen and no key counts twice. */
static int verify_all(const struct parts *s, struct gw_diag *why)
{
	for (size_t i = 0; i < s->count; i++) {
		const uint8_t *e = s->entries + i * ENTRY_BYTES;

		for (size_t j = 0; j < i; j++)
			if (!memcmp(e, s->entries + j * ENTRY_BYTES, 32))
				return gw_diag_set(why, GW_EDUPLICATE, "root record refused: one key signed it twice");
		if (crypto_sign_verify_detached(e + 32, s->raw, s->raw_bytes, e))
			return gw_diag_set(why, GW_ESIGNATURE, "root record refused: a signature does not verify; the bytes "
					   "were changed or cut");
	}
	return 0;
}

static uint32_t signed_by(const struct parts *s, const struct gw_root *r)
{
	uint32_t count = 0;

	for (uint32_t k = 0; k < r->key_count; k++)
		for (size_t i = 0; i < s->count; i++)
			count += !memcmp(r->keys[k], s->entries + i * ENTRY_BYTES, 32);
	return count;
}

static int enough(const struct parts *s, const struct gw_root *r, const char *whose, struct gw_diag *why)
{
	uint32_t count = signed_by(s, r);

	if (count >= r->threshold)
		return 0;
	return gw_diag_set(why, GW_ESIGNATURE, "root record refused: %u of the %u signatures needed by the %s root keys", count,
			   r->threshold, whose);
}

int gw_root_sign(const void *p, size_t n, const uint8_t sk[64], struct gw_wr *out, struct gw_diag *why)
{
	uint8_t signature[64];
	struct parts s;
	int err = split(p, n, &s, why), again = 0;

	if (err)
		return err;
	for (size_t i = 0; i < s.count; i++)
		again |= !memcmp(s.entries + i * ENTRY_BYTES, sk + 32, 32);
	if (!again && s.count == SIGNATURES_MAX)
		return gw_diag_set(why, GW_ELIMIT, "the root record has %d signatures already", SIGNATURES_MAX);
	gw_wr_bytes(out, p, n - 1);
	if (!again) {
		(void)crypto_sign_detached(signature, NULL, s.raw, s.raw_bytes, sk);
		gw_wr_bytes(out, sk + 32, 32);
		gw_wr_bytes(out, signature, sizeof signature);
	}
	gw_wr_u8(out, (uint8_t)(s.count + !again));
	return out->err;
}

int gw_root_open(const void *p, size_t n, const struct gw_digest *pin, struct gw_root *out, struct gw_diag *why)
{
	struct gw_digest id;
	struct parts s;
	int err;

	memset(out, 0, sizeof *out);
	err = split(p, n, &s, why);
	if (err)
		return err;
	gw_digest_of(s.raw, s.raw_bytes, &id);
	if (pin && !gw_digest_equal(pin, &id))
		return gw_diag_set(why, GW_EDIGEST, "root record refused: it is not the one that is pinned");
	err = verify_all(&s, why);
	if (!err)
		err = parse(&s, out, why);
	if (!err)
		err = enough(&s, out, "own", why);
	if (err)
		memset(out, 0, sizeof *out);
	return err;
}

int gw_root_next(const struct gw_root *old, const void *p, size_t n, struct gw_root *out, struct gw_diag *why)
{
	struct parts s;
	int err;

	memset(out, 0, sizeof *out);
	err = split(p, n, &s, why);
	if (!err)
		err = verify_all(&s, why);
	if (!err)
		err = enough(&s, old, "present", why);
	if (!err)
		err = parse(&s, out, why);
	if (!err && out->version <= old->version)
		err = gw_diag_set(why, GW_EROLLBACK, "root record %llu refused: version %llu is in force",
				  (unsigned long long)out->version, (unsigned long long)old->version);
	if (!err && out->version != old->version + 1)
		err = gw_diag_set(why, GW_EAGAIN, "root record %llu cannot follow %llu: fetch those between first",
				  (unsigned long long)out->version, (unsigned long long)old->version);
	if (!err && out->epoch <= old->epoch)
		err = gw_diag_set(why, GW_EMALFORMED, "root record %llu refused: its epoch does not rise",
				  (unsigned long long)out->version);
	if (!err)
		err = enough(&s, out, "new", why);
	if (err)
		memset(out, 0, sizeof *out);
	return err;
}

/* --- who may --- */

static int root_current(const struct gw_root *r, uint64_t at_ns, struct gw_diag *why)
{
	if (at_ns < r->expires_ns)
		return 0;
	return gw_diag_set(why, GW_EEXPIRED, "root record %llu has expired: its holders must sign the next",
			   (unsigned long long)r->version);
}

static int within(uint64_t from, uint64_t until, uint64_t at_ns)
{
	return at_ns >= from && at_ns < until;
}

int gw_root_allows_release(const struct gw_root *r, const char *policy, const uint8_t pk[32], uint64_t at_ns,
			   struct gw_diag *why)
{
	int err = root_current(r, at_ns, why);

	for (uint32_t i = 0; !err && i < r->release_count; i++) {
		const struct gw_root_release *a = &r->releases[i];

		if (memcmp(a->pk, pk, 32) || strcmp(a->policy, policy))
			continue;
		if (within(a->from_ns, a->until_ns, at_ns))
			return 0;
		return gw_diag_set(why, GW_EEXPIRED, "the release key of %s was not valid then: the root's holders must "
				   "delegate a new one", policy);
	}
	return err ? err : gw_diag_set(why, GW_EUNTRUSTED, "signed by a key that may not release %s", policy);
}

int gw_root_allows_admission(const struct gw_root *r, const uint8_t pk[32], uint64_t at_ns, struct gw_diag *why)
{
	int err = root_current(r, at_ns, why);

	for (uint32_t i = 0; !err && i < r->admission_count; i++) {
		if (memcmp(r->admissions[i].pk, pk, 32))
			continue;
		if (within(r->admissions[i].from_ns, r->admissions[i].until_ns, at_ns))
			return 0;
		return gw_diag_set(why, GW_EEXPIRED, "the admission key was not valid then");
	}
	return err ? err : gw_diag_set(why, GW_EUNTRUSTED, "signed by a key that may not admit hosts");
}

/* A key that releases any policy: whether it may release this one is asked when the record is parsed. */
static int known_signer(const struct gw_root *r, const void *p, size_t n, const char *what, struct gw_diag *why)
{
	const uint8_t *pk = gw_signed_signer(p, n);

	for (uint32_t i = 0; pk && i < r->release_count; i++)
		if (!memcmp(r->releases[i].pk, pk, 32))
			return 0;
	return gw_diag_set(why, pk ? GW_EUNTRUSTED : GW_ETRUNC, "%s refused: %s", what,
			   pk ? "signed by a key that the root does not name" : "cut");
}

int gw_root_open_manifest(const struct gw_root *r, const void *p, size_t n, struct gw_manifest *m, struct gw_diag *why)
{
	int err = known_signer(r, p, n, "manifest", why);

	memset(m, 0, sizeof *m);
	if (!err)
		err = gw_manifest_open(p, n, gw_signed_signer(p, n), m, why);
	if (!err)
		err = gw_root_allows_release(r, m->policy, gw_signed_signer(p, n), m->created_ns, why);
	if (err)
		memset(m, 0, sizeof *m);
	return err;
}

int gw_root_open_head(const struct gw_root *r, uint64_t now_ns, const void *p, size_t n, struct gw_head *h,
		      struct gw_diag *why)
{
	int err = known_signer(r, p, n, "head", why);

	memset(h, 0, sizeof *h);
	if (!err)
		err = gw_head_open(p, n, gw_signed_signer(p, n), h, why);
	if (!err)
		err = gw_root_allows_release(r, h->policy, gw_signed_signer(p, n), now_ns, why);
	if (!err && h->root_epoch > r->epoch)
		err = gw_diag_set(why, GW_EAGAIN, "head of %s was made under root epoch %llu, here is %llu: fetch the next root",
				  h->policy, (unsigned long long)h->root_epoch, (unsigned long long)r->epoch);
	if (err)
		memset(h, 0, sizeof *h);
	return err;
}
