/*
 * Messages to frames and back, by the one table proto/messages.def. Rules: proto/MESSAGES.md.
 *
 * A frame is a msgpack array [number, field, field, …] in the table's order; a list is an array of arrays, one a
 * record. A reader accepts integers in any width, takes missing last fields as zero and ignores more fields
 * than it knows (of allowed types, within the limits of wire/frame.h); all else that is odd is an error.
 */
#ifndef GW_WIRE_CODEC_H
#define GW_WIRE_CODEC_H

#include "base/arena.h"
#include "base/buf.h"
#include "wire/frame.h"
#include "wire/msg.h"

/* Appends m's frame. GW_ELIMIT where a field or the frame is over its limit, GW_EUNKNOWN for a type that is not in
 * the table, GW_EINVAL for text that is not UTF-8 or holds a NUL and for a flag above 1; then w is as it was, but
 * for its sticky errors GW_ENOMEM and GW_ELIMIT. */
int gw_msg_encode(const struct gw_msg *m, struct gw_wr *w);

/* Reads a frame. Bytes and text point into it, lists lie in the arena; out is dead when either is. On error out is
 * all zero. GW_EUNKNOWN for a number that is not in the table (the frame is well-formed: a newer peer may send
 * it), GW_ELIMIT for a list, text or bytes over its limit or an arena that is too small, GW_EMALFORMED for a field
 * of the wrong type or out of range, and what gw_frame_scan says. */
int gw_msg_decode(const void *p, size_t n, struct gw_arena *a, struct gw_msg *out);

/* The name in the table; "unknown" for none. */
const char *gw_msg_name(enum gw_msg_type type);

/* --- the table at run time, for tests and for printing messages --- */

enum gw_field_kind {
	GW_FIELD_END, /* closes a shape's list of fields */
	GW_FIELD_U8,
	GW_FIELD_U16,
	GW_FIELD_U32,
	GW_FIELD_U64,
	GW_FIELD_I64,
	GW_FIELD_FLAG,
	GW_FIELD_FIXED, /* limit: bytes exactly */
	GW_FIELD_BYTES, /* limit: most bytes */
	GW_FIELD_TEXT,  /* limit: most bytes */
	GW_FIELD_LIST,  /* limit: most entries */
};

struct gw_shape;

struct gw_field {
	const char *name;
	enum gw_field_kind kind;
	size_t limit, offset;
	const struct gw_shape *record; /* of a list */
};

/* A message (number 1 to 255) or a record (number 0). */
struct gw_shape {
	const char *name;
	unsigned number;
	size_t size; /* bytes of its struct */
	const struct gw_field *fields;
};

/* A list as it lies in a struct, whatever its record. */
struct gw_any_list {
	void *v;
	size_t n;
};

/* NULL for a number that is not in the table. */
const struct gw_shape *gw_msg_shape(unsigned number);

#endif
