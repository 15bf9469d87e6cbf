/*
 * The pre-scan of a frame: what is checked before anything is allocated or kept for it.
 *
 * A frame is one msgpack array and nothing after it. Allowed are non-negative and negative integers, bool,
 * bin, str and array, in any width; no map, float, nil or extension. Every count and length is held against
 * the bytes that are left (an entry takes at least one), so that a header cannot claim what is not there.
 */
#ifndef GW_WIRE_FRAME_H
#define GW_WIRE_FRAME_H

#include <stddef.h>

#include "base/buf.h"

enum {
	GW_FRAME_MAX = 256 * 1024, /* bytes: a block of GW_BLOCK_MAX and much to spare */
	GW_FRAME_DEPTH_MAX = 4,    /* arrays inside arrays */
	GW_FRAME_TOKENS_MAX = 64 * 1024,
};

/* 0, or GW_ETRUNC, GW_ETRAILING, GW_ELIMIT (size, depth, tokens), GW_EMALFORMED (a type we do not use; no array). */
int gw_frame_scan(const void *p, size_t n);

/* One token, as the scan and the decoder read it. */
enum gw_token_kind { GW_TOKEN_UINT, GW_TOKEN_NEGATIVE, GW_TOKEN_BOOL, GW_TOKEN_BIN, GW_TOKEN_STR, GW_TOKEN_ARRAY };

struct gw_msgpack_token {
	enum gw_token_kind kind;
	uint64_t u;       /* the integer, 0 or 1, or the count of an array; NEGATIVE: two's complement */
	const uint8_t *p; /* of bin and str */
	size_t n;
};

/* Reads the next token, for bin and str with its bytes. Errors are sticky in r. */
int gw_msgpack_next(struct gw_rd *r, struct gw_msgpack_token *t);

#endif
