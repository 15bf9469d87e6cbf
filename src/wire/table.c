/* The table of messages at run time: proto/messages.def read as fields, shapes and numbers. */
#include "wire/codec.h"

/* Records are named by lists before and after their own rows. */
#define GW_RECORD(name) static const struct gw_shape shape_r_##name;
#define GW_MESSAGE(number, name)
#include "wire/msg_nofields.h"
#include "proto/messages.def"
#include "wire/msg_undef.h"

#define FIELD(owner, field, kind, limit) {#field, (kind), (limit), offsetof(struct gw_##owner, field), NULL},
#define GW_RECORD(name) static const struct gw_field fields_r_##name[] = {
#define GW_MESSAGE(number, name) static const struct gw_field fields_m_##name[] = {
#define GW_END(owner) \
	{NULL, GW_FIELD_END, 0, 0, NULL}};
#define GW_U8(owner, field) FIELD(owner, field, GW_FIELD_U8, 0)
#define GW_U16(owner, field) FIELD(owner, field, GW_FIELD_U16, 0)
#define GW_U32(owner, field) FIELD(owner, field, GW_FIELD_U32, 0)
#define GW_U64(owner, field) FIELD(owner, field, GW_FIELD_U64, 0)
#define GW_I64(owner, field) FIELD(owner, field, GW_FIELD_I64, 0)
#define GW_FLAG(owner, field) FIELD(owner, field, GW_FIELD_FLAG, 0)
#define GW_FIXED(owner, field, size) FIELD(owner, field, GW_FIELD_FIXED, size)
#define GW_BYTES(owner, field, max) FIELD(owner, field, GW_FIELD_BYTES, max)
#define GW_TEXT(owner, field, max) FIELD(owner, field, GW_FIELD_TEXT, max)
#define GW_LIST(owner, field, record, max) \
	{#field, GW_FIELD_LIST, (max), offsetof(struct gw_##owner, field), &shape_r_##record},
#include "proto/messages.def"
#include "wire/msg_undef.h"

#define GW_RECORD(name) \
	static const struct gw_shape shape_r_##name = {#name, 0, sizeof(struct gw_r_##name), fields_r_##name};
#define GW_MESSAGE(number, name) \
	static const struct gw_shape shape_m_##name = {#name, (number), sizeof(struct gw_m_##name), fields_m_##name};
#include "wire/msg_nofields.h"
#include "proto/messages.def"
#include "wire/msg_undef.h"

static const struct gw_shape *const shapes[256] = {
#define GW_RECORD(name)
#define GW_MESSAGE(number, name) [number] = &shape_m_##name,
#include "wire/msg_nofields.h"
#include "proto/messages.def"
#include "wire/msg_undef.h"
};

const struct gw_shape *gw_msg_shape(unsigned number)
{
	return number < sizeof shapes / sizeof shapes[0] ? shapes[number] : NULL;
}

const char *gw_msg_name(enum gw_msg_type type)
{
	const struct gw_shape *s = gw_msg_shape((unsigned)type);

	return s ? s->name : "unknown";
}
