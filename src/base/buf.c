#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"

void gw_rd_init(struct gw_rd *r, const void *p, size_t n)
{
	/* A non-NULL pointer for empty input keeps "NULL means failed" true. */
	r->p = p ? p : (const void *)"";
	r->n = n;
	r->at = 0;
	r->err = 0;
}

size_t gw_rd_left(const struct gw_rd *r)
{
	return r->err ? 0 : r->n - r->at;
}

void gw_rd_fail(struct gw_rd *r, int err)
{
	if (!r->err)
		r->err = err;
}

const uint8_t *gw_rd_bytes(struct gw_rd *r, size_t n)
{
	const uint8_t *p;

	if (r->err)
		return NULL;
	if (n > r->n - r->at) {
		r->err = GW_ETRUNC;
		return NULL;
	}
	p = r->p + r->at;
	r->at += n;
	return p;
}

uint8_t gw_rd_u8(struct gw_rd *r)
{
	const uint8_t *p = gw_rd_bytes(r, 1);

	return p ? *p : 0;
}

uint16_t gw_rd_u16(struct gw_rd *r)
{
	const uint8_t *p = gw_rd_bytes(r, 2);

	return p ? gw_le16(p) : 0;
}

uint32_t gw_rd_u32(struct gw_rd *r)
{
	const uint8_t *p = gw_rd_bytes(r, 4);

	return p ? gw_le32(p) : 0;
}

uint64_t gw_rd_u64(struct gw_rd *r)
{
	const uint8_t *p = gw_rd_bytes(r, 8);

	return p ? gw_le64(p) : 0;
}

uint64_t gw_rd_varint(struct gw_rd *r)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t b = gw_rd_u8(r);

		if (r->err)
			return 0;
		/* The tenth byte holds one bit; a zero last byte is not the shortest form. */
		if ((shift == 63 && b > 1) || (b == 0 && shift > 0))
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	gw_rd_fail(r, GW_EMALFORMED);
	return 0;
}

void gw_rd_copy(struct gw_rd *r, void *out, size_t n)
{
	const uint8_t *p = gw_rd_bytes(r, n);

	if (!n)
		return;
	if (p)
		memcpy(out, p, n);
	else
		memset(out, 0, n);
}

void gw_rd_sub(struct gw_rd *r, size_t n, struct gw_rd *sub)
{
	const uint8_t *p = gw_rd_bytes(r, n);

	gw_rd_init(sub, p, p ? n : 0);
	sub->err = r->err;
}

int gw_rd_end(const struct gw_rd *r)
{
	if (r->err)
		return r->err;
	return r->at == r->n ? 0 : GW_ETRAILING;
}

void gw_wr_init(struct gw_wr *w, size_t max)
{
	memset(w, 0, sizeof *w);
	w->max = max;
}

void gw_wr_free(struct gw_wr *w)
{
	free(w->p);
	w->p = NULL;
	w->n = w->cap = 0;
}

static int grow(struct gw_wr *w, size_t n)
{
	size_t cap = w->cap ? w->cap : w->max < 64 ? w->max : 64;
	uint8_t *p;

	if (n > w->max || w->n > w->max - n)
		return GW_ELIMIT;
	while (cap < w->n + n)
		cap = cap > w->max / 2 ? w->max : cap * 2;
	p = realloc(w->p, cap);
	if (!p)
		return GW_ENOMEM;
	w->p = p;
	w->cap = cap;
	return 0;
}

uint8_t *gw_wr_reserve(struct gw_wr *w, size_t n)
{
	if (!w->err && (!w->p || n > w->cap - w->n))
		w->err = grow(w, n);
	if (w->err)
		return NULL;
	w->n += n;
	return w->p + (w->n - n);
}

void gw_wr_bytes(struct gw_wr *w, const void *p, size_t n)
{
	uint8_t *q = gw_wr_reserve(w, n);

	if (q && n)
		memcpy(q, p, n);
}

void gw_wr_u8(struct gw_wr *w, uint8_t v)
{
	gw_wr_bytes(w, &v, 1);
}

void gw_wr_u16(struct gw_wr *w, uint16_t v)
{
	uint8_t *q = gw_wr_reserve(w, 2);

	if (q)
		gw_put_le16(q, v);
}

void gw_wr_u32(struct gw_wr *w, uint32_t v)
{
	uint8_t *q = gw_wr_reserve(w, 4);

	if (q)
		gw_put_le32(q, v);
}

void gw_wr_u64(struct gw_wr *w, uint64_t v)
{
	uint8_t *q = gw_wr_reserve(w, 8);

	if (q)
		gw_put_le64(q, v);
}

void gw_wr_varint(struct gw_wr *w, uint64_t v)
{
	while (v >= 0x80) {
		gw_wr_u8(w, (uint8_t)(v | 0x80));
		v >>= 7;
	}
	gw_wr_u8(w, (uint8_t)v);
}

int gw_wr_take(struct gw_wr *w, uint8_t **p, size_t *n)
{
	int err = w->err;

	*p = NULL;
	*n = 0;
	if (err) {
		gw_wr_free(w);
		return err;
	}
	*p = w->p;
	*n = w->n;
	gw_wr_init(w, w->max);
	return 0;
}
