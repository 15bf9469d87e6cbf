/*
 * Messages as structs. The one table is proto/messages.def; from it come the structs below, the codec
 * (wire/codec.h), the page proto/MESSAGES.md's check, and a test that walks every row.
 *
 * A decoded message points into the frame (bytes, text) and into the caller's arena (lists); it is
 * dead when either is. Text carries its length and holds no NUL.
 */
#ifndef GW_WIRE_MSG_H
#define GW_WIRE_MSG_H

#include <stddef.h>
#include <stdint.h>

/* A version number in place of "none" or "unknown", in messages and wherever a host speaks of versions. */
#define GW_VERSION_NONE UINT64_MAX

struct gw_bytes {
	const uint8_t *p;
	size_t n;
};

struct gw_text {
	const char *p; /* not NUL-terminated */
	size_t n;
};

/* Owner of a field is r_NAME for a record and m_NAME for a message. */
#define GW_RECORD(name) struct gw_r_##name {
#define GW_MESSAGE(number, name) struct gw_m_##name {
#define GW_END(owner) };
#define GW_U8(owner, field) uint8_t field;
#define GW_U16(owner, field) uint16_t field;
#define GW_U32(owner, field) uint32_t field;
#define GW_U64(owner, field) uint64_t field;
#define GW_I64(owner, field) int64_t field;
#define GW_FLAG(owner, field) uint8_t field; /* 0 or 1 */
#define GW_FIXED(owner, field, size) uint8_t field[size];
#define GW_BYTES(owner, field, max) struct gw_bytes field;
#define GW_TEXT(owner, field, max) struct gw_text field;
#define GW_LIST(owner, field, record, max) \
	struct { \
		struct gw_r_##record *v; \
		size_t n; \
	} field;
#include "proto/messages.def"
#include "wire/msg_undef.h"

enum gw_msg_type {
	GW_MSG_NONE = 0,
#define GW_RECORD(name)
#define GW_MESSAGE(number, name) GW_MSG_##name = (number),
#include "wire/msg_nofields.h"
#include "proto/messages.def"
#include "wire/msg_undef.h"
};

struct gw_msg {
	enum gw_msg_type type;
	union {
#define GW_RECORD(name)
#define GW_MESSAGE(number, name) struct gw_m_##name name;
#include "wire/msg_nofields.h"
#include "proto/messages.def"
#include "wire/msg_undef.h"
	} u;
};

#endif
