#include "trust/token.h"

#include <sodium.h>
#include <string.h>

#include "base/num.h"

static const char prefix[] = "godwit-join-1:";

enum {
	PREFIX_CHARS = sizeof prefix - 1,
	CHECK_BYTES = 4, /* of the digest of what stands before: a token cut by copy and paste says so */
	BODY_MAX = 2048,
	VARIANT = sodium_base64_VARIANT_URLSAFE_NO_PADDING,
};

void gw_token_wipe(struct gw_token *t)
{
	gw_wipe(t, sizeof *t);
}

static void check_of(const uint8_t *p, size_t n, uint8_t check[CHECK_BYTES])
{
	struct gw_digest d;

	gw_digest_of(p, n, &d);
	memcpy(check, d.b, CHECK_BYTES);
}

static int seed_fits(const struct gw_token *t, const struct gw_delegation *d)
{
	uint8_t pk[32], sk[64];

	(void)crypto_sign_seed_keypair(pk, sk, t->seed);
	gw_wipe(sk, sizeof sk);
	return !memcmp(pk, d->pk, sizeof pk);
}

static const char *odd(const struct gw_token *t)
{
	if (t->bootstrap_count > GW_TOKEN_BOOTSTRAPS_MAX)
		return "too many bootstrap addresses";
	for (uint32_t i = 0; i < t->bootstrap_count; i++)
		if (!gw_address_ok(t->bootstraps[i].address, strnlen(t->bootstraps[i].address, GW_ADDRESS_MAX + 1)))
			return "a bootstrap address is not host:port";
	if (!t->root_version || gw_digest_is_zero(&t->root))
		return "it pins no root";
	return NULL;
}

int gw_token_format(const struct gw_token *t, char text[GW_TOKEN_TEXT_MAX], struct gw_diag *why)
{
	const char *what = odd(t);
	struct gw_delegation d;
	uint8_t check[CHECK_BYTES];
	struct gw_wr w;
	int err;

	if (!what && (gw_delegation_read(t->delegation, t->delegation_bytes, &d, NULL) || !seed_fits(t, &d)))
		what = "its key is not the one that was delegated";
	if (what)
		return gw_diag_set(why, GW_EINVAL, "a join token cannot be made: %s", what);
	gw_wr_init(&w, BODY_MAX);
	(void)gw_wr_reserve(&w, BODY_MAX); /* all at once: growing would leave copies of the secret behind */
	w.n = 0;
	gw_wr_bytes(&w, t->root.b, sizeof t->root.b);
	gw_wr_u64(&w, t->root_version);
	gw_wr_u8(&w, (uint8_t)t->bootstrap_count);
	for (uint32_t i = 0; i < t->bootstrap_count; i++) {
		gw_name_write(&w, t->bootstraps[i].address);
		gw_wr_bytes(&w, t->bootstraps[i].curve, 32);
	}
	gw_wr_bytes(&w, t->seed, sizeof t->seed);
	gw_wr_u16(&w, (uint16_t)t->delegation_bytes);
	gw_wr_bytes(&w, t->delegation, t->delegation_bytes);
	if (!w.err)
		check_of(w.p, w.n, check);
	gw_wr_bytes(&w, check, sizeof check);
	err = w.err;
	if (!err) {
		memcpy(text, prefix, PREFIX_CHARS);
		(void)sodium_bin2base64(text + PREFIX_CHARS, GW_TOKEN_TEXT_MAX - PREFIX_CHARS, w.p, w.n, VARIANT);
	}
	if (w.p)
		gw_wipe(w.p, w.cap);
	gw_wr_free(&w);
	return err;
}

static void read_bootstraps(struct gw_rd *r, struct gw_token *t)
{
	t->bootstrap_count = gw_rd_u8(r);
	if (t->bootstrap_count > GW_TOKEN_BOOTSTRAPS_MAX)
		gw_rd_fail(r, GW_ELIMIT);
	for (uint32_t i = 0; !r->err && i < t->bootstrap_count; i++) {
		gw_address_read(r, t->bootstraps[i].address);
		gw_rd_copy(r, t->bootstraps[i].curve, 32);
	}
}

static int read_body(const uint8_t *body, size_t n, struct gw_token *t)
{
	uint8_t check[CHECK_BYTES];
	struct gw_rd r;

	if (n < CHECK_BYTES)
		return GW_ETRUNC;
	check_of(body, n - CHECK_BYTES, check);
	if (memcmp(check, body + n - CHECK_BYTES, CHECK_BYTES))
		return GW_EDIGEST;
	gw_rd_init(&r, body, n - CHECK_BYTES);
	gw_rd_copy(&r, t->root.b, sizeof t->root.b);
	t->root_version = gw_rd_u64(&r);
	read_bootstraps(&r, t);
	gw_rd_copy(&r, t->seed, sizeof t->seed);
	t->delegation_bytes = gw_rd_u16(&r);
	if (t->delegation_bytes > GW_DELEGATION_MAX)
		gw_rd_fail(&r, GW_ELIMIT);
	else
		gw_rd_copy(&r, t->delegation, t->delegation_bytes);
	if (gw_rd_end(&r))
		return gw_rd_end(&r);
	return odd(t) ? GW_EMALFORMED : 0;
}

static int is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int gw_token_parse(struct gw_token *t, const char *text, size_t n, struct gw_diag *why)
{
	uint8_t body[BODY_MAX];
	size_t bytes = 0;
	int err;

	memset(t, 0, sizeof *t);
	while (n && is_space(text[n - 1]))
		n--;
	while (n && is_space(*text)) {
		text++;
		n--;
	}
	if (n >= GW_TOKEN_TEXT_MAX)
		return gw_diag_set(why, GW_ELIMIT, "not a join token: longer than %d characters", GW_TOKEN_TEXT_MAX - 1);
	if (n < PREFIX_CHARS || memcmp(text, prefix, PREFIX_CHARS)) {
		int other = n >= PREFIX_CHARS && !memcmp(text, prefix, PREFIX_CHARS - 2);

		return gw_diag_set(why, other ? GW_EVERSION : GW_EMALFORMED, other ? "join token of an unknown version; a newer "
				   "Godwit made it" : "not a join token: it does not begin with \"%s\"", prefix);
	}
	err = sodium_base642bin(body, sizeof body, text + PREFIX_CHARS, n - PREFIX_CHARS, NULL, &bytes, NULL, VARIANT)
		      ? GW_EMALFORMED
		      : read_body(body, bytes, t);
	gw_wipe(body, sizeof body);
	if (!err)
		err = gw_delegation_read(t->delegation, t->delegation_bytes, &t->grant, NULL);
	if (!err && !seed_fits(t, &t->grant))
		err = GW_EMALFORMED;
	if (!err)
		return 0;
	gw_token_wipe(t);
	return gw_diag_set(why, err, "the join token is damaged: was all of its one line copied?");
}

int gw_token_join(const struct gw_token *t, const struct gw_root *root, const struct gw_key *host, uint64_t now_ns,
		  struct gw_member *m, struct gw_wr *w, struct gw_diag *why)
{
	struct gw_key delegated;
	int err = 0;

	if (root)
		err = gw_delegation_open(root, now_ns, t->delegation, t->delegation_bytes, &m->delegation, why);
	else
		m->delegation = t->grant;
	if (!err && now_ns >= t->grant.join_until_ns)
		err = gw_diag_set(why, GW_EEXPIRED, "the join token has ended; ask for a new one (godwit mesh invite)");
	if (!err && (host->kind != GW_KEY_HOST || !host->secret))
		err = gw_diag_set(why, GW_EINVAL, "joining needs the secret key of a host");
	if (err)
		return err;
	memcpy(m->identity, host->pk, sizeof m->identity);
	memcpy(m->curve, host->curve_pk, sizeof m->curve);
	if (!m->region[0])
		memcpy(m->region, t->grant.region, sizeof m->region);
	if (!m->roles)
		m->roles = t->grant.roles;
	/* The issuer's clock may be ahead of this host's. */
	m->issued_ns = gw_max_u64(now_ns, t->grant.created_ns);
	m->expires_ns = t->grant.expires_ns;
	if (!m->stamp_ns)
		m->stamp_ns = now_ns;
	gw_key_from_seed(&delegated, GW_KEY_ADMISSION, t->seed);
	err = gw_member_make(m, t->delegation, t->delegation_bytes, delegated.sk, host->sk, w, why);
	gw_key_wipe(&delegated);
	return err;
}
