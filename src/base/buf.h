/*
 * Bounded reader and writer for bytes from and to the outside. All integers are little-endian.
 *
 * Both have a sticky error: after the first failure every read yields zero (NULL for bytes) and
 * every write does nothing, so a parser reads a whole structure and checks once at the end.
 * A nested length gets a sub-reader that cannot leave it.
 */
#ifndef GW_BASE_BUF_H
#define GW_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

/* Reads [p, p + n), which stays the caller's and must outlive the reader and all it returned. */
struct gw_rd {
	const uint8_t *p;
	size_t n;   /* bytes in all */
	size_t at;  /* bytes consumed */
	int err;    /* 0, or the first failure */
};

void gw_rd_init(struct gw_rd *r, const void *p, size_t n);
size_t gw_rd_left(const struct gw_rd *r);
uint8_t gw_rd_u8(struct gw_rd *r);
uint16_t gw_rd_u16(struct gw_rd *r);
uint32_t gw_rd_u32(struct gw_rd *r);
uint64_t gw_rd_u64(struct gw_rd *r);
/* LEB128, at most 10 bytes, shortest form only (GW_EMALFORMED otherwise). */
uint64_t gw_rd_varint(struct gw_rd *r);
/* n bytes in place, or NULL and GW_ETRUNC. n = 0 gives a non-NULL pointer. */
const uint8_t *gw_rd_bytes(struct gw_rd *r, size_t n);
/* Copies n bytes, or zeroes out on failure. */
void gw_rd_copy(struct gw_rd *r, void *out, size_t n);
/* A reader over the next n bytes, which r skips; on failure *sub is empty with the same error. */
void gw_rd_sub(struct gw_rd *r, size_t n, struct gw_rd *sub);
/* Sets the error unless one is set. */
void gw_rd_fail(struct gw_rd *r, int err);
/* The error, or GW_ETRAILING where bytes are left, or 0. */
int gw_rd_end(const struct gw_rd *r);

/* Grows by realloc up to max bytes (GW_ELIMIT beyond). Init, then free or take. */
struct gw_wr {
	uint8_t *p;
	size_t n, cap, max;
	int err;
};

void gw_wr_init(struct gw_wr *w, size_t max);
void gw_wr_free(struct gw_wr *w);
/* Room for n more bytes, counted as written; NULL on failure. Valid until the next write. */
uint8_t *gw_wr_reserve(struct gw_wr *w, size_t n);
void gw_wr_u8(struct gw_wr *w, uint8_t v);
void gw_wr_u16(struct gw_wr *w, uint16_t v);
void gw_wr_u32(struct gw_wr *w, uint32_t v);
void gw_wr_u64(struct gw_wr *w, uint64_t v);
void gw_wr_varint(struct gw_wr *w, uint64_t v);
void gw_wr_bytes(struct gw_wr *w, const void *p, size_t n);
/* Hands the bytes over (caller frees) and empties w; on a sticky error returns it, *p = NULL. */
int gw_wr_take(struct gw_wr *w, uint8_t **p, size_t *n);

#endif
