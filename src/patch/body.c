#include "patch/body.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/err.h"

enum { CHECK_BYTES = 4, RAW_MAX = GW_TILE_ELEMENTS_MAX * 8, LEVEL = 3, SPARSE = 16 };

_Static_assert(sizeof(struct gw_hash) >= sizeof(crypto_generichash_state), "room for libsodium's state");

void gw_hash_begin(struct gw_hash *h)
{
	(void)crypto_generichash_init((crypto_generichash_state *)(void *)h->state, NULL, 0, GW_DIGEST_BYTES);
}

void gw_hash_add(struct gw_hash *h, const void *p, size_t n)
{
	if (n)
		(void)crypto_generichash_update((crypto_generichash_state *)(void *)h->state, p, n);
}

void gw_hash_end(struct gw_hash *h, uint8_t out[GW_DIGEST_BYTES])
{
	(void)crypto_generichash_final((crypto_generichash_state *)(void *)h->state, out, GW_DIGEST_BYTES);
}

void gw_hash_of(const void *p, size_t bytes, uint8_t *out, size_t n)
{
	uint8_t d[GW_DIGEST_BYTES];

	assert(n <= sizeof d);
	(void)crypto_generichash(d, sizeof d, p, bytes, NULL, 0);
	memcpy(out, d, n);
}

struct gw_packer {
	struct gw_coder *coder;
	ZSTD_CCtx *zstd;
	uint8_t *planes; /* RAW_MAX, made when first needed */
};

int gw_packer_new(struct gw_packer **out)
{
	struct gw_packer *k = calloc(1, sizeof *k);
	int err = k ? gw_coder_new(&k->coder) : GW_ENOMEM;

	if (!err) {
		k->zstd = ZSTD_createCCtx();
		err = k->zstd ? 0 : GW_ENOMEM;
	}
	if (err) {
		gw_packer_free(k);
		return err;
	}
	*out = k;
	return 0;
}

void gw_packer_free(struct gw_packer *k)
{
	if (!k)
		return;
	gw_coder_free(k->coder);
	ZSTD_freeCCtx(k->zstd);
	free(k->planes);
	free(k);
}

struct gw_coder *gw_packer_coder(struct gw_packer *k)
{
	return k->coder;
}

static void to_planes(const uint8_t *p, size_t n, unsigned width, uint8_t *out)
{
	for (unsigned b = 0; b < width; b++)
		for (size_t i = b; i < n; i += width)
			*out++ = p[i];
}

static void from_planes(const uint8_t *p, size_t n, unsigned width, uint8_t *out)
{
	for (unsigned b = 0; b < width; b++)
		for (size_t i = b; i < n; i += width)
			out[i] = *p++;
}

static size_t finish(uint8_t *out, enum gw_patch_mode mode, size_t payload_bytes)
{
	out[0] = (uint8_t)mode;
	gw_hash_of(out, 1 + payload_bytes, out + 1 + payload_bytes, CHECK_BYTES);
	return 1 + payload_bytes + CHECK_BYTES;
}

int gw_body_pack(struct gw_packer *k, const uint8_t *p, size_t n, unsigned width, uint8_t *out, size_t *size)
{
	enum gw_patch_mode mode = width > 1 ? GW_MODE_PLANES : GW_MODE_ZSTD;
	size_t got;

	assert(n && n <= RAW_MAX && n % width == 0);
	if (mode == GW_MODE_PLANES) {
		if (!k->planes)
			k->planes = malloc(RAW_MAX);
		if (!k->planes)
			return GW_ENOMEM;
		to_planes(p, n, width, k->planes);
	}
	/* It must save something: room for n - 1 bytes. */
	got = ZSTD_compressCCtx(k->zstd, out + 1, n - 1, mode == GW_MODE_PLANES ? k->planes : p, n, LEVEL);
	if (ZSTD_isError(got)) {
		mode = GW_MODE_RAW;
		memcpy(out + 1, p, n);
		got = n;
	}
	*size = finish(out, mode, got);
	return 0;
}

int gw_body_pack_tile(struct gw_packer *k, const struct gw_model *m, const struct gw_tile_changes *c,
		      const uint8_t *old, const uint8_t *raw, const uint64_t *hot, size_t n, unsigned width, uint8_t *out, size_t *size)
{
	size_t coded = m ? gw_tile_code(k->coder, m, old, (uint32_t)(n / width), hot, c, out + 1, n - 1) : 0;
	int err;

	/* The new bits by themselves, which regular ones can make shorter, are tried where that costs little beside what is
	 * coded: not where few elements change. */
	if (coded && coded <= n / SPARSE && c->n <= n / width / 4) {
		*size = finish(out, GW_MODE_CODED, coded);
		return 0;
	}
	err = gw_body_pack(k, raw, n, width, out, size);
	if (err || !coded || coded >= *size - GW_BODY_EXTRA)
		return err;
	coded = gw_tile_code(k->coder, m, old, (uint32_t)(n / width), hot, c, out + 1, n - 1);
	*size = finish(out, GW_MODE_CODED, coded);
	return 0;
}

int gw_body_open(const uint8_t *p, size_t n, enum gw_patch_mode *mode, const uint8_t **payload, size_t *payload_bytes)
{
	uint8_t check[CHECK_BYTES];

	if (n < 1 + CHECK_BYTES)
		return GW_ETRUNC;
	gw_hash_of(p, n - CHECK_BYTES, check, CHECK_BYTES);
	if (memcmp(check, p + n - CHECK_BYTES, CHECK_BYTES))
		return GW_EDIGEST;
	*mode = (enum gw_patch_mode)p[0];
	*payload = p + 1;
	*payload_bytes = n - 1 - CHECK_BYTES;
	return 0;
}

struct gw_unpacker {
	ZSTD_DCtx *zstd;
	uint8_t *planes; /* RAW_MAX, made when first needed */
};

int gw_unpacker_new(struct gw_unpacker **out)
{
	struct gw_unpacker *u = calloc(1, sizeof *u);

	if (u)
		u->zstd = ZSTD_createDCtx();
	if (!u || !u->zstd) {
		free(u);
		return GW_ENOMEM;
	}
	*out = u;
	return 0;
}

void gw_unpacker_free(struct gw_unpacker *u)
{
	if (!u)
		return;
	ZSTD_freeDCtx(u->zstd);
	free(u->planes);
	free(u);
}

/* Exactly one frame that says it holds n bytes, and does. */
static int unzstd(struct gw_unpacker *u, const uint8_t *p, size_t bytes, size_t n, uint8_t *out)
{
	if (ZSTD_getFrameContentSize(p, bytes) != n || ZSTD_findFrameCompressedSize(p, bytes) != bytes)
		return GW_EMALFORMED;
	return ZSTD_decompressDCtx(u->zstd, out, n, p, bytes) == n ? 0 : GW_EMALFORMED;
}

int gw_body_unpack(struct gw_unpacker *u, enum gw_patch_mode mode, const uint8_t *payload, size_t payload_bytes,
		   size_t n, unsigned width, uint8_t *out, const uint8_t **raw)
{
	int err;

	assert(n <= RAW_MAX && n % width == 0);
	switch (mode) {
	case GW_MODE_RAW:
		*raw = payload;
		return payload_bytes == n ? 0 : GW_EMALFORMED;
	case GW_MODE_ZSTD:
		*raw = out;
		return unzstd(u, payload, payload_bytes, n, out);
	case GW_MODE_PLANES:
		if (width < 2)
			return GW_EMALFORMED;
		if (!u->planes)
			u->planes = malloc(RAW_MAX);
		if (!u->planes)
			return GW_ENOMEM;
		err = unzstd(u, payload, payload_bytes, n, u->planes);
		if (!err)
			from_planes(u->planes, n, width, out);
		*raw = out;
		return err;
	default:
		return GW_EMALFORMED;
	}
}
