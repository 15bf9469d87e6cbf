#include "trust/signed.h"

#include <sodium.h>
#include <string.h>

void gw_digest_of(const void *p, size_t n, struct gw_digest *out)
{
	(void)crypto_generichash(out->b, sizeof out->b, p, n, NULL, 0);
}

int gw_digest_equal(const struct gw_digest *a, const struct gw_digest *b)
{
	return !memcmp(a->b, b->b, sizeof a->b);
}

int gw_digest_is_zero(const struct gw_digest *d)
{
	return sodium_is_zero(d->b, sizeof d->b);
}

int gw_magic_check(const void *p, size_t n, const char *magic, const char *what, struct gw_diag *why)
{
	if (n < GW_MAGIC_BYTES)
		return gw_diag_set(why, GW_ETRUNC, "%s refused: only %zu bytes", what, n);
	if (memcmp(p, magic, GW_MAGIC_BYTES - 1))
		return gw_diag_set(why, GW_EMALFORMED, "%s refused: the bytes do not begin as one", what);
	if (((const char *)p)[GW_MAGIC_BYTES - 1] != magic[GW_MAGIC_BYTES - 1])
		return gw_diag_set(why, GW_EVERSION, "%s refused: unknown format version; a newer Godwit made it", what);
	return 0;
}

int gw_signed_seal(struct gw_wr *w, size_t from, const uint8_t sk[64])
{
	uint8_t *trailer = gw_wr_reserve(w, GW_TRAILER_BYTES);
	size_t raw;

	if (!trailer)
		return w->err;
	raw = w->n - from - GW_TRAILER_BYTES;
	memcpy(trailer, sk + 32, GW_SIGNER_BYTES);
	(void)crypto_sign_detached(trailer + GW_SIGNER_BYTES, NULL, w->p + from, raw, sk);
	return 0;
}

const uint8_t *gw_signed_signer(const void *p, size_t n)
{
	return n < GW_TRAILER_BYTES ? NULL : (const uint8_t *)p + n - GW_TRAILER_BYTES;
}

int gw_signed_open(const void *p, size_t n, size_t max, const char *magic, const char *what, const uint8_t *pk,
		   struct gw_rd *raw, struct gw_diag *why)
{
	const uint8_t *trailer = gw_signed_signer(p, n);
	int err;

	gw_rd_init(raw, NULL, 0);
	if (n > max)
		return gw_diag_set(why, GW_ELIMIT, "%s refused: %zu bytes, at most %zu are allowed", what, n, max);
	err = gw_magic_check(p, n, magic, what, why);
	if (err)
		return err;
	if (n < GW_MAGIC_BYTES + GW_TRAILER_BYTES)
		return gw_diag_set(why, GW_ETRUNC, "%s refused: only %zu bytes", what, n);
	if (pk && memcmp(pk, trailer, GW_SIGNER_BYTES))
		return gw_diag_set(why, GW_ESIGNATURE, "%s refused: signed by another key than the one expected", what);
	if (crypto_sign_verify_detached(trailer + GW_SIGNER_BYTES, p, n - GW_TRAILER_BYTES, trailer))
		return gw_diag_set(why, GW_ESIGNATURE, "%s refused: its signature does not verify; the bytes were changed "
				   "or cut", what);
	gw_rd_init(raw, p, n - GW_TRAILER_BYTES);
	(void)gw_rd_bytes(raw, GW_MAGIC_BYTES);
	return 0;
}
