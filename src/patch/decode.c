/* Decoding bodies of an open patch: tiles and chunks. */
#include <assert.h>
#include <stdlib.h>

#include "base/err.h"
#include "patch/inside.h"
#include "patch/scan.h"

struct gw_tile_decoder {
	struct gw_coder *coder;
	struct gw_unpacker *unpacker;
	struct gw_changes_buf changes;
	uint64_t hot[GW_TILE_ELEMENTS_MAX / 64];
	uint8_t *raw; /* GW_TILE_ELEMENTS_MAX * 8 */
};

int gw_tile_decoder_new(struct gw_tile_decoder **out)
{
	struct gw_tile_decoder *d = calloc(1, sizeof *d);
	int err = d ? gw_unpacker_new(&d->unpacker) : GW_ENOMEM;

	if (!err)
		err = gw_coder_new(&d->coder);
	if (!err)
		err = gw_changes_buf_init(&d->changes);
	if (!err) {
		d->raw = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
		err = d->raw ? 0 : GW_ENOMEM;
	}
	if (err) {
		gw_tile_decoder_free(d);
		return err;
	}
	*out = d;
	return 0;
}

void gw_tile_decoder_free(struct gw_tile_decoder *d)
{
	if (!d)
		return;
	gw_unpacker_free(d->unpacker);
	gw_coder_free(d->coder);
	gw_changes_buf_free(&d->changes);
	free(d->raw);
	free(d);
}

enum gw_patch_mode gw_tile_mode(const struct gw_patch *pt, const struct gw_patch_tensor *t, uint32_t tile)
{
	assert(tile < t->tiles);
	if (t->tile_at[tile] == t->tile_at[tile + 1])
		return GW_MODE_NONE;
	return (enum gw_patch_mode)pt->p[t->tile_at[tile]];
}

const char *gw_patch_mode_name(enum gw_patch_mode mode)
{
	static const char *const names[GW_MODE_COUNT] = {"none", "coded", "raw", "zstd", "planes"};

	return (unsigned)mode < GW_MODE_COUNT ? names[mode] : "unknown";
}

int gw_tile_decode(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_tensor *t, uint32_t tile,
		   const void *old, const struct gw_hot *hot, struct gw_tile_changes *out)
{
	uint64_t at = t->tile_at[tile], bytes = t->tile_at[tile + 1] - at;
	struct gw_changes_buf *b = &d->changes;
	const uint8_t *payload, *raw;
	enum gw_patch_mode mode;
	struct gw_tile_rect r;
	size_t payload_bytes;
	uint32_t elements;
	int err;

	assert(t->kind == GW_TENSOR_CHANGED && tile < t->tiles && !hot == !t->companion);
	*out = (struct gw_tile_changes){0, b->at, b->old_bits, b->new_bits};
	if (!bytes)
		return 0;
	err = gw_body_open(pt->p + at, bytes, &mode, &payload, &payload_bytes);
	if (err)
		return err;
	gw_tiling_rect(&t->tiling, tile, &r);
	elements = (uint32_t)(r.rows * r.cols);
	if (mode == GW_MODE_CODED) {
		const struct gw_model *m = pt->model[t->dtype];

		if (!m)
			return GW_EMALFORMED;
		return gw_tile_uncode(d->coder, m, payload, payload_bytes, old, elements,
				      gw_hot_tile(hot, t->elements, &r, d->hot), b->at, b->old_bits, b->new_bits,
				      &out->n);
	}
	err = gw_body_unpack(d->unpacker, mode, payload, payload_bytes, (size_t)elements * t->width, t->width, d->raw,
			     &raw);
	if (err)
		return err;
	out->n = gw_scan_run(b, 0, old, raw, elements, t->width, 0);
	return out->n ? 0 : GW_EMALFORMED;
}

int gw_patch_hot(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_tensor *companion,
		 const uint8_t *old, struct gw_hot **out)
{
	uint8_t *gathered = malloc((size_t)GW_TILE_ELEMENTS_MAX * companion->width);
	struct gw_hot *h = NULL;
	int err = gathered ? gw_hot_new(&h, companion->elements) : GW_ENOMEM;

	for (uint32_t i = 0; !err && i < companion->tiles; i++) {
		struct gw_tile_changes c;
		struct gw_tile_rect r;

		gw_tiling_rect(&companion->tiling, i, &r);
		err = gw_tile_decode(d, pt, companion, i, gw_tile_gather(old, companion->width, &r, gathered), NULL,
				     &c);
		for (size_t k = 0; !err && k < c.n; k++)
			gw_hot_add(h, gw_tile_element(&r, c.at[k]));
	}
	free(gathered);
	if (err) {
		gw_hot_free(h);
		return err;
	}
	*out = h;
	return 0;
}

int gw_blob_chunk(struct gw_tile_decoder *d, const struct gw_patch *pt, const struct gw_patch_blob *blob, uint32_t i,
		  const uint8_t **p, size_t *n)
{
	const uint8_t *payload;
	enum gw_patch_mode mode;
	size_t payload_bytes;
	int err;

	assert(i < blob->chunks);
	*n = gw_patch_chunk_bytes(blob->bytes, i);
	err = gw_body_open(pt->p + blob->at[i], blob->at[i + 1] - blob->at[i], &mode, &payload, &payload_bytes);
	if (err)
		return err;
	return gw_body_unpack(d->unpacker, mode, payload, payload_bytes, *n, blob->width, d->raw, p);
}

int gw_patch_blob(const struct gw_patch *pt, const struct gw_patch_blob *blob,
		  int (*each)(void *ctx, uint64_t at, const void *p, size_t n), void *ctx, struct gw_diag *why)
{
	struct gw_tile_decoder *d;
	int err = gw_tile_decoder_new(&d);

	if (err)
		return err;
	for (uint32_t i = 0; !err && i < blob->chunks; i++) {
		const uint8_t *p;
		size_t n;

		err = gw_blob_chunk(d, pt, blob, i, &p, &n);
		if (err)
			(void)gw_diag_set(why, err, "patch file: chunk %u of %u at byte %llu: %s", i, blob->chunks,
					  (unsigned long long)blob->at[i], gw_err_text(err));
		else
			err = each(ctx, (uint64_t)i * GW_PATCH_CHUNK, p, n);
	}
	gw_tile_decoder_free(d);
	return err;
}

int gw_patch_whole(const struct gw_patch *pt, const struct gw_patch_tensor *t,
		   int (*each)(void *ctx, uint64_t at, const void *p, size_t n), void *ctx, struct gw_diag *why)
{
	int err = gw_patch_blob(pt, &t->blob, each, ctx, why);

	assert(t->kind == GW_TENSOR_WHOLE);
	return err && why && why->text[0] ? gw_diag_wrap(why, err, "tensor %s", t->name) : err;
}
