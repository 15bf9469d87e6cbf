/*
 * Strings of bits, filled from the lowest bit of each byte, as sparse tiles hold them. The writer's buffer must
 * have room (the caller has counted the bits); the reader is bounded and has a sticky error.
 */
#ifndef GW_PATCH_BITS_H
#define GW_PATCH_BITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/num.h"

struct gw_bits_wr {
	uint8_t *p; /* next byte */
	uint64_t acc;
	unsigned n; /* bits in acc, < 8 between calls */
};

/* The low k bits of v, which has no others; k <= 56. */
static inline void gw_bits_put(struct gw_bits_wr *w, uint64_t v, unsigned k)
{
	w->acc |= v << w->n;
	w->n += k;
	while (w->n >= 8) {
		*w->p++ = (uint8_t)w->acc;
		w->acc >>= 8;
		w->n -= 8;
	}
}

static inline void gw_bits_flush(struct gw_bits_wr *w)
{
	if (w->n)
		*w->p++ = (uint8_t)w->acc;
	w->acc = 0;
	w->n = 0;
}

struct gw_bits_rd {
	const uint8_t *p, *end;
	uint64_t acc;
	unsigned n; /* bits in acc that count; above them may stand the next ones already */
	int err;    /* more was taken than there was */
};

static inline void gw_bits_fill(struct gw_bits_rd *r)
{
	if (r->end - r->p >= 8) {
		/* What an earlier fill left above n has the same bits (F. Giesen, "Reading bits in far too many
		 * ways", 2018). */
		r->acc |= gw_le64(r->p) << r->n;
		r->p += (63 - r->n) >> 3;
		r->n |= 56;
		return;
	}
	while (r->n <= 56 && r->p < r->end) {
		r->acc |= (uint64_t)*r->p++ << r->n;
		r->n += 8;
	}
}

static inline void gw_bits_skip(struct gw_bits_rd *r, unsigned k)
{
	if (k > r->n) {
		r->err = 1;
		k = r->n;
	}
	r->acc >>= k;
	r->n -= k;
}

/* k <= 32, after a fill that left so many. */
static inline uint64_t gw_bits_take(struct gw_bits_rd *r, unsigned k)
{
	uint64_t v = r->acc & ((1ull << k) - 1);

	gw_bits_skip(r, k);
	return v;
}

/* 1 where all is consumed and the rest of the last byte is zero. */
static inline int gw_bits_done(const struct gw_bits_rd *r)
{
	return !r->err && r->p == r->end && r->n < 8 && (r->acc & ((1ull << r->n) - 1)) == 0;
}

#endif
