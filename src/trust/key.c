#include "trust/key.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"

static const char *const kinds[] = {NULL, "root", "release", "admission", "host"};

int gw_trust_init(void)
{
	return sodium_init() < 0 ? GW_EUNSUP : 0;
}

void gw_wipe(void *p, size_t n)
{
	sodium_memzero(p, n);
}

void gw_key_wipe(struct gw_key *k)
{
	gw_wipe(k, sizeof *k);
}

const char *gw_key_kind_name(enum gw_key_kind kind)
{
	return kind >= GW_KEY_ROOT && kind <= GW_KEY_HOST ? kinds[kind] : "unknown";
}

enum gw_key_kind gw_key_kind_parse(const char *name)
{
	for (int i = GW_KEY_ROOT; i <= GW_KEY_HOST; i++)
		if (!strcmp(name, kinds[i]))
			return (enum gw_key_kind)i;
	return (enum gw_key_kind)0;
}

char *gw_key_id(char out[GW_KEY_ID_CHARS], const uint8_t pk[32])
{
	uint8_t d[32];

	(void)crypto_generichash(d, sizeof d, pk, 32, NULL, 0);
	return gw_hex(out, d, (GW_KEY_ID_CHARS - 1) / 2);
}

void gw_key_from_seed(struct gw_key *k, enum gw_key_kind kind, const uint8_t seed[32])
{
	memset(k, 0, sizeof *k);
	k->kind = kind;
	k->secret = 1;
	(void)crypto_sign_seed_keypair(k->pk, k->sk, seed);
}

int gw_key_make(struct gw_key *k, enum gw_key_kind kind, const char *comment, struct gw_diag *why)
{
	uint8_t seed[32];

	if (comment && (strlen(comment) > GW_KEY_COMMENT_MAX || !gw_utf8_printable(comment, strlen(comment))))
		return gw_diag_set(why, GW_EINVAL, "a key's comment is one printable line of at most %d bytes",
				   GW_KEY_COMMENT_MAX);
	randombytes_buf(seed, sizeof seed);
	gw_key_from_seed(k, kind, seed);
	gw_wipe(seed, sizeof seed);
	if (kind == GW_KEY_HOST)
		(void)crypto_box_keypair(k->curve_pk, k->curve_sk);
	(void)snprintf(k->comment, sizeof k->comment, "%s", comment ? comment : "");
	return 0;
}

/* --- Z85 (ZeroMQ RFC 32): five characters for four bytes, most significant first --- */

static const char z85[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

char *gw_z85_encode(char out[GW_Z85_CHARS], const uint8_t key[32])
{
	for (size_t i = 0; i < 8; i++) {
		const uint8_t *b = key + 4 * i;
		uint32_t v = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];

		for (size_t c = 5; c-- > 0; v /= 85)
			out[5 * i + c] = z85[v % 85];
	}
	out[GW_Z85_CHARS - 1] = 0;
	return out;
}

int gw_z85_decode(uint8_t key[32], const char *text)
{
	if (strlen(text) != GW_Z85_CHARS - 1)
		return GW_EMALFORMED;
	for (size_t i = 0; i < 8; i++) {
		uint64_t v = 0;

		for (size_t c = 0; c < 5; c++) {
			const char *at = strchr(z85, text[5 * i + c]);

			if (!at)
				return GW_EMALFORMED;
			v = v * 85 + (uint64_t)(at - z85);
		}
		if (v > UINT32_MAX)
			return GW_EMALFORMED;
		for (size_t b = 4; b-- > 0; v >>= 8)
			key[4 * i + b] = (uint8_t)v;
	}
	return 0;
}

/* --- key files --- */

enum { B64_CHARS = sodium_base64_ENCODED_LEN(32, sodium_base64_VARIANT_ORIGINAL) };

static char *base64(char out[B64_CHARS], const uint8_t key[32])
{
	return sodium_bin2base64(out, B64_CHARS, key, 32, sodium_base64_VARIANT_ORIGINAL);
}

int gw_key_format(const struct gw_key *k, int secret, char text[GW_KEY_FILE_MAX])
{
	char ed[B64_CHARS], curve[64] = "", id[GW_KEY_ID_CHARS];
	int n;

	if (secret && !k->secret)
		return GW_EINVAL;
	(void)base64(ed, secret ? k->sk : k->pk);
	if (k->kind == GW_KEY_HOST && secret)
		(void)base64(curve, k->curve_sk);
	if (k->kind == GW_KEY_HOST && !secret)
		(void)gw_z85_encode(curve, k->curve_pk);
	n = snprintf(text, GW_KEY_FILE_MAX, "godwit-key-1\nkind: %s %s\nid: %s\ncomment: %s\ned25519: %s\n%s%s%s",
		     secret ? "secret" : "public", gw_key_kind_name(k->kind), gw_key_id(id, k->pk), k->comment, ed,
		     curve[0] ? "curve: " : "", curve, curve[0] ? "\n" : "");
	gw_wipe(ed, sizeof ed);
	gw_wipe(curve, sizeof curve);
	return n < GW_KEY_FILE_MAX ? 0 : GW_ELIMIT;
}

/* Takes the line "name: value\n" at *at into value; 0 or GW_EMALFORMED. */
static int take_line(const char **at, const char *end, const char *name, char *value, size_t max)
{
	const char *stop = memchr(*at, '\n', (size_t)(end - *at));
	size_t n = strlen(name), len;

	if (!stop || (size_t)(stop - *at) < n || memcmp(*at, name, n))
		return GW_EMALFORMED;
	len = (size_t)(stop - *at) - n;
	if (len >= max || memchr(*at, 0, n + len))
		return GW_EMALFORMED;
	memcpy(value, *at + n, len);
	value[len] = 0;
	*at = stop + 1;
	return 0;
}

static int unbase64(uint8_t key[32], const char *text)
{
	size_t n = 0;

	if (sodium_base642bin(key, 32, text, strlen(text), NULL, &n, NULL, sodium_base64_VARIANT_ORIGINAL) || n != 32)
		return GW_EMALFORMED;
	return 0;
}

static int parse_kind(struct gw_key *k, const char *text)
{
	k->secret = !strncmp(text, "secret ", 7);
	if (!k->secret && strncmp(text, "public ", 7))
		return GW_EMALFORMED;
	k->kind = gw_key_kind_parse(text + 7);
	return k->kind ? 0 : GW_EMALFORMED;
}

static int parse_ed25519(struct gw_key *k, const char *text)
{
	uint8_t bytes[32];
	int err = unbase64(bytes, text);

	if (!err && k->secret)
		(void)crypto_sign_seed_keypair(k->pk, k->sk, bytes);
	else if (!err)
		memcpy(k->pk, bytes, sizeof bytes);
	gw_wipe(bytes, sizeof bytes);
	return err;
}

static int parse_curve(struct gw_key *k, const char *text)
{
	if (!k->secret)
		return gw_z85_decode(k->curve_pk, text);
	if (unbase64(k->curve_sk, text))
		return GW_EMALFORMED;
	return crypto_scalarmult_base(k->curve_pk, k->curve_sk) ? GW_EMALFORMED : 0;
}

static int parse_lines(struct gw_key *k, const char *at, const char *end)
{
	char value[GW_KEY_COMMENT_MAX + 1], id[GW_KEY_ID_CHARS], said[GW_KEY_ID_CHARS];
	int err = take_line(&at, end, "godwit-key-1", value, 1);

	if (!err)
		err = take_line(&at, end, "kind: ", value, sizeof value);
	if (!err)
		err = parse_kind(k, value);
	if (!err)
		err = take_line(&at, end, "id: ", said, sizeof said);
	if (!err)
		err = take_line(&at, end, "comment: ", k->comment, sizeof k->comment);
	if (!err && !gw_utf8_printable(k->comment, strlen(k->comment)))
		err = GW_EMALFORMED;
	if (!err)
		err = take_line(&at, end, "ed25519: ", value, sizeof value);
	if (!err)
		err = parse_ed25519(k, value);
	if (!err && k->kind == GW_KEY_HOST)
		err = take_line(&at, end, "curve: ", value, sizeof value);
	if (!err && k->kind == GW_KEY_HOST)
		err = parse_curve(k, value);
	gw_wipe(value, sizeof value);
	if (!err && at != end)
		err = GW_ETRAILING;
	/* The id is a check of the key itself: a damaged one would sign what nobody believes. */
	if (!err && strcmp(said, gw_key_id(id, k->pk)))
		err = GW_EMALFORMED;
	return err;
}

int gw_key_parse(struct gw_key *k, const char *text, size_t n, struct gw_diag *why)
{
	static const char first[] = "godwit-key-";
	int err;

	memset(k, 0, sizeof *k);
	if (n > GW_KEY_FILE_MAX)
		return gw_diag_set(why, GW_ELIMIT, "not a key file: %zu bytes, at most %d are expected", n, GW_KEY_FILE_MAX);
	if (n < sizeof first + 1 || memcmp(text, first, sizeof first - 1))
		return gw_diag_set(why, GW_EMALFORMED, "not a key file: it does not begin with \"godwit-key-1\"");
	if (text[sizeof first - 1] != '1' || text[sizeof first] != '\n')
		return gw_diag_set(why, GW_EVERSION, "key file of an unknown version; a newer Godwit made it");
	err = parse_lines(k, text, text + n);
	if (!err)
		return 0;
	gw_key_wipe(k);
	return gw_diag_set(why, err, "the key file is damaged or was edited; restore it or make a new one with `godwit keygen`");
}
