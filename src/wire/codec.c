#include "wire/codec.h"

#include <msgpack/pack.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

/* --- to a frame: msgpack-c's packer, which chooses the shortest form --- */

static int put(void *w, const char *p, size_t n)
{
	gw_wr_bytes(w, p, n);
	return ((struct gw_wr *)w)->err ? -1 : 0;
}

static int text_ok(const void *p, size_t n)
{
	return !n || (!memchr(p, 0, n) && gw_utf8_ok(p, n));
}

static size_t field_count(const struct gw_shape *s)
{
	size_t n = 0;

	while (s->fields[n].kind != GW_FIELD_END)
		n++;
	return n;
}

static uint64_t load_uint(const struct gw_field *f, const void *at)
{
	switch (f->kind) {
	case GW_FIELD_U16:
		return *(const uint16_t *)at;
	case GW_FIELD_U32:
		return *(const uint32_t *)at;
	case GW_FIELD_U64:
		return *(const uint64_t *)at;
	default:
		return *(const uint8_t *)at;
	}
}

static int pack_fields(msgpack_packer *pk, const struct gw_shape *s, const uint8_t *base);

static int pack_list(msgpack_packer *pk, const struct gw_field *f, const void *at)
{
	struct gw_any_list list;

	memcpy(&list, at, sizeof list);
	if (list.n > f->limit)
		return GW_ELIMIT;
	(void)msgpack_pack_array(pk, list.n);
	for (size_t i = 0; i < list.n; i++) {
		int err;

		(void)msgpack_pack_array(pk, field_count(f->record));
		err = pack_fields(pk, f->record, (const uint8_t *)list.v + i * f->record->size);
		if (err)
			return err;
	}
	return 0;
}

static int pack_field(msgpack_packer *pk, const struct gw_field *f, const void *at)
{
	const struct gw_bytes *b = at;
	const struct gw_text *t = at;

	switch (f->kind) {
	case GW_FIELD_I64:
		(void)msgpack_pack_int64(pk, *(const int64_t *)at);
		return 0;
	case GW_FIELD_FLAG:
		if (*(const uint8_t *)at > 1)
			return GW_EINVAL;
		(void)(*(const uint8_t *)at ? msgpack_pack_true(pk) : msgpack_pack_false(pk));
		return 0;
	case GW_FIELD_FIXED:
		(void)msgpack_pack_bin_with_body(pk, at, f->limit);
		return 0;
	case GW_FIELD_BYTES:
		if (b->n > f->limit)
			return GW_ELIMIT;
		(void)msgpack_pack_bin_with_body(pk, b->p, b->n);
		return 0;
	case GW_FIELD_TEXT:
		if (t->n > f->limit)
			return GW_ELIMIT;
		if (!text_ok(t->p, t->n))
			return GW_EINVAL;
		(void)msgpack_pack_str_with_body(pk, t->p, t->n);
		return 0;
	case GW_FIELD_LIST:
		return pack_list(pk, f, at);
	default:
		(void)msgpack_pack_uint64(pk, load_uint(f, at));
		return 0;
	}
}

static int pack_fields(msgpack_packer *pk, const struct gw_shape *s, const uint8_t *base)
{
	int err = 0;

	for (const struct gw_field *f = s->fields; !err && f->kind != GW_FIELD_END; f++)
		err = pack_field(pk, f, base + f->offset);
	return err;
}

int gw_msg_encode(const struct gw_msg *m, struct gw_wr *w)
{
	const struct gw_shape *s = gw_msg_shape((unsigned)m->type);
	size_t start = w->n;
	msgpack_packer pk;
	int err;

	if (!s)
		return GW_EUNKNOWN;
	msgpack_packer_init(&pk, w, put);
	(void)msgpack_pack_array(&pk, field_count(s) + 1);
	(void)msgpack_pack_uint64(&pk, s->number);
	err = pack_fields(&pk, s, (const uint8_t *)&m->u);
	if (!err)
		err = w->err;
	if (!err && w->n - start > GW_FRAME_MAX)
		err = GW_ELIMIT;
	if (err)
		w->n = start;
	return err;
}

/* --- from a frame: it was scanned, so counts and lengths are within it --- */

struct decoder {
	struct gw_rd r;
	struct gw_arena *arena;
};

/* A field of a newer release: the tokens of one entry, whatever they are. */
static int skip(struct decoder *d)
{
	struct gw_msgpack_token t;

	for (uint64_t left = 1; left; left--) {
		if (gw_msgpack_next(&d->r, &t))
			return d->r.err;
		if (t.kind == GW_TOKEN_ARRAY)
			left += t.u;
	}
	return 0;
}

static int store_uint(const struct gw_field *f, uint64_t v, void *at)
{
	static const uint64_t most[] = {
		[GW_FIELD_U8] = UINT8_MAX, [GW_FIELD_U16] = UINT16_MAX, [GW_FIELD_U32] = UINT32_MAX, [GW_FIELD_U64] = UINT64_MAX,
	};

	if (v > most[f->kind])
		return GW_EMALFORMED;
	switch (f->kind) {
	case GW_FIELD_U8:
		*(uint8_t *)at = (uint8_t)v;
		return 0;
	case GW_FIELD_U16:
		*(uint16_t *)at = (uint16_t)v;
		return 0;
	case GW_FIELD_U32:
		*(uint32_t *)at = (uint32_t)v;
		return 0;
	default:
		*(uint64_t *)at = v;
		return 0;
	}
}

static int store_i64(const struct gw_msgpack_token *t, int64_t *at)
{
	if (t->kind != GW_TOKEN_NEGATIVE && (t->kind != GW_TOKEN_UINT || t->u > INT64_MAX))
		return GW_EMALFORMED;
	*at = (int64_t)t->u;
	return 0;
}

static int unpack_fields(struct decoder *d, const struct gw_shape *s, uint64_t count, uint8_t *base);

static int unpack_list(struct decoder *d, const struct gw_field *f, uint64_t count, void *at)
{
	struct gw_any_list list = {NULL, 0};

	if (count > f->limit)
		return GW_ELIMIT;
	if (count) {
		list.v = gw_arena_array(d->arena, (size_t)count, f->record->size);
		if (!list.v)
			return GW_ELIMIT;
	}
	for (; list.n < count; list.n++) {
		struct gw_msgpack_token t;
		int err = gw_msgpack_next(&d->r, &t);

		if (!err && t.kind != GW_TOKEN_ARRAY)
			err = GW_EMALFORMED;
		if (!err)
			err = unpack_fields(d, f->record, t.u, (uint8_t *)list.v + list.n * f->record->size);
		if (err)
			return err;
	}
	memcpy(at, &list, sizeof list);
	return 0;
}

static const enum gw_token_kind wanted[] = {
	[GW_FIELD_U8] = GW_TOKEN_UINT,     [GW_FIELD_U16] = GW_TOKEN_UINT,  [GW_FIELD_U32] = GW_TOKEN_UINT,
	[GW_FIELD_U64] = GW_TOKEN_UINT,    [GW_FIELD_I64] = GW_TOKEN_UINT,  [GW_FIELD_FLAG] = GW_TOKEN_BOOL,
	[GW_FIELD_FIXED] = GW_TOKEN_BIN,   [GW_FIELD_BYTES] = GW_TOKEN_BIN, [GW_FIELD_TEXT] = GW_TOKEN_STR,
	[GW_FIELD_LIST] = GW_TOKEN_ARRAY,
};

static int unpack_field(struct decoder *d, const struct gw_field *f, void *at)
{
	struct gw_msgpack_token t;
	int err = gw_msgpack_next(&d->r, &t);

	if (err)
		return err;
	if (f->kind == GW_FIELD_I64)
		return store_i64(&t, at);
	if (t.kind != wanted[f->kind])
		return GW_EMALFORMED;
	switch (f->kind) {
	case GW_FIELD_FLAG:
		*(uint8_t *)at = (uint8_t)t.u;
		return 0;
	case GW_FIELD_FIXED:
		if (t.n != f->limit)
			return GW_EMALFORMED;
		memcpy(at, t.p, t.n);
		return 0;
	case GW_FIELD_BYTES:
		if (t.n > f->limit)
			return GW_ELIMIT;
		*(struct gw_bytes *)at = (struct gw_bytes){t.p, t.n};
		return 0;
	case GW_FIELD_TEXT:
		if (t.n > f->limit)
			return GW_ELIMIT;
		if (!text_ok(t.p, t.n))
			return GW_EMALFORMED;
		*(struct gw_text *)at = (struct gw_text){(const char *)t.p, t.n};
		return 0;
	case GW_FIELD_LIST:
		return unpack_list(d, f, t.u, at);
	default:
		return store_uint(f, t.u, at);
	}
}

static int unpack_fields(struct decoder *d, const struct gw_shape *s, uint64_t count, uint8_t *base)
{
	const struct gw_field *f = s->fields;
	int err = 0;

	for (; !err && count; count--) {
		if (f->kind == GW_FIELD_END) {
			err = skip(d);
		} else {
			err = unpack_field(d, f, base + f->offset);
			f++;
		}
	}
	return err;
}

int gw_msg_decode(const void *p, size_t n, struct gw_arena *a, struct gw_msg *out)
{
	struct decoder d = {.arena = a};
	struct gw_msgpack_token array, number;
	const struct gw_shape *s;
	int err = gw_frame_scan(p, n);

	memset(out, 0, sizeof *out);
	if (err)
		return err;
	gw_rd_init(&d.r, p, n);
	(void)gw_msgpack_next(&d.r, &array);
	if (!array.u || gw_msgpack_next(&d.r, &number) || number.kind != GW_TOKEN_UINT)
		return GW_EMALFORMED;
	s = number.u <= UINT8_MAX ? gw_msg_shape((unsigned)number.u) : NULL;
	if (!s)
		return GW_EUNKNOWN;
	out->type = (enum gw_msg_type)s->number;
	err = unpack_fields(&d, s, array.u - 1, (uint8_t *)&out->u);
	if (err)
		memset(out, 0, sizeof *out);
	return err;
}
