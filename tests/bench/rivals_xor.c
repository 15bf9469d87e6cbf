/*
 * XOR of old and new, through zstd as one stream, in blocks that stay in the cache. In planes: all lowest bytes of a
 * block's elements, then the next, ….
 */
#include <string.h>
#include <zstd.h>

#include "base/num.h"
#include "rivals.h"

static void xor_bytes(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = a[i] ^ b[i];
}

static void to_planes(uint8_t *restrict out, const uint8_t *restrict in, size_t elements, unsigned width)
{
	if (width == 2) {
		for (size_t i = 0; i < elements; i++) {
			out[i] = in[2 * i];
			out[elements + i] = in[2 * i + 1];
		}
		return;
	}
	for (unsigned b = 0; b < width; b++)
		for (size_t i = 0; i < elements; i++)
			out[b * elements + i] = in[i * width + b];
}

static void from_planes(uint8_t *restrict out, const uint8_t *restrict in, size_t elements, unsigned width)
{
	if (width == 2) {
		for (size_t i = 0; i < elements; i++) {
			out[2 * i] = in[i];
			out[2 * i + 1] = in[elements + i];
		}
		return;
	}
	for (unsigned b = 0; b < width; b++)
		for (size_t i = 0; i < elements; i++)
			out[i * width + b] = in[b * elements + i];
}

static int feed(struct rival_work *w, ZSTD_outBuffer *out, const uint8_t *p, size_t n, ZSTD_EndDirective how)
{
	ZSTD_inBuffer in = {p, n, 0};
	size_t left;

	do {
		left = ZSTD_compressStream2(w->cctx, out, &in, how);
		if (ZSTD_isError(left))
			return GW_ENOMEM;
	} while (in.pos < in.size || (how == ZSTD_e_end && left));
	return 0;
}

static int encode_tensor(const struct rival *r, struct rival_work *w, const struct bench_tensor *t, ZSTD_outBuffer *out)
{
	int err = 0;

	for (uint64_t at = 0; at < t->new_->bytes && !err; at += RIVAL_BLOCK) {
		size_t n = (size_t)gw_min_u64(RIVAL_BLOCK, t->new_->bytes - at);
		const uint8_t *from = w->block;

		xor_bytes(w->block, t->old->p + at, t->new_->p + at, n);
		if (r->variant == RIVAL_XOR_PLANES && t->width > 1) {
			to_planes(w->planes, w->block, n / t->width, t->width);
			from = w->planes;
		}
		err = feed(w, out, from, n, ZSTD_e_continue);
	}
	return err;
}

int rival_xor_encode(const struct rival *r, struct rival_work *w, const struct bench_pair *p)
{
	struct rival_stream *s = &w->streams[0];
	ZSTD_outBuffer out = {s->coded, ZSTD_compressBound(s->cap), 0};
	int err = 0;

	for (int i = 0; i < RIVAL_STREAMS; i++)
		w->streams[i].raw_n = w->streams[i].coded_n = 0;
	(void)ZSTD_CCtx_reset(w->cctx, ZSTD_reset_session_and_parameters);
	(void)ZSTD_CCtx_setParameter(w->cctx, ZSTD_c_compressionLevel, r->level);
	(void)ZSTD_CCtx_setPledgedSrcSize(w->cctx, p->bytes);
	for (uint32_t i = 0; i < p->count && !err; i++)
		err = encode_tensor(r, w, &p->tensors[i], &out);
	if (!err)
		err = feed(w, &out, NULL, 0, ZSTD_e_end);
	s->coded_n = out.pos;
	return err;
}

/* The next n bytes of the stream. */
static int draw(struct rival_work *w, ZSTD_inBuffer *in, uint8_t *p, size_t n)
{
	ZSTD_outBuffer out = {p, n, 0};

	while (out.pos < n) {
		size_t before = in->pos, had = out.pos, left = ZSTD_decompressStream(w->dctx, &out, in);

		if (ZSTD_isError(left) || (in->pos == before && out.pos == had))
			return GW_EMALFORMED;
	}
	return 0;
}

int rival_xor_decode(const struct rival *r, struct rival_work *w, const struct bench_pair *p, uint8_t *model)
{
	ZSTD_inBuffer in = {w->streams[0].coded, w->streams[0].coded_n, 0};
	int err = 0;

	(void)ZSTD_DCtx_reset(w->dctx, ZSTD_reset_session_only);
	for (uint32_t i = 0; i < p->count; i++) {
		const struct bench_tensor *t = &p->tensors[i];
		uint8_t *m = model + t->first;

		for (uint64_t at = 0; at < t->new_->bytes && !err; at += RIVAL_BLOCK) {
			size_t n = (size_t)gw_min_u64(RIVAL_BLOCK, t->new_->bytes - at);
			int planes = r->variant == RIVAL_XOR_PLANES && t->width > 1;

			err = draw(w, &in, planes ? w->planes : w->block, n);
			if (planes)
				from_planes(w->block, w->planes, n / t->width, t->width);
			xor_bytes(m + at, m + at, w->block, n);
		}
	}
	return err;
}
