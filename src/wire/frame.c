#include "wire/frame.h"

#include "base/err.h"

/* msgpack is big-endian, unlike all else here. */
static uint64_t be(struct gw_rd *r, size_t n)
{
	const uint8_t *p = gw_rd_bytes(r, n);
	uint64_t v = 0;

	for (size_t i = 0; p && i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static void set_uint(struct gw_msgpack_token *t, uint64_t v)
{
	t->kind = GW_TOKEN_UINT;
	t->u = v;
}

/* int8 to int64: a value that is not negative is as good as an unsigned one. */
static void set_int(struct gw_msgpack_token *t, uint64_t v, size_t bytes)
{
	unsigned shift = (unsigned)(64 - 8 * bytes);
	int64_t s = (int64_t)(v << shift) >> shift;

	t->kind = s < 0 ? GW_TOKEN_NEGATIVE : GW_TOKEN_UINT;
	t->u = (uint64_t)s;
}

static void set_bytes(struct gw_rd *r, struct gw_msgpack_token *t, enum gw_token_kind kind, uint64_t n)
{
	t->kind = kind;
	t->n = (size_t)n;
	t->p = gw_rd_bytes(r, t->n);
}

static void set_array(struct gw_rd *r, struct gw_msgpack_token *t, uint64_t count)
{
	t->kind = GW_TOKEN_ARRAY;
	t->u = count;
	if (count > gw_rd_left(r))
		gw_rd_fail(r, GW_ETRUNC);
}

int gw_msgpack_next(struct gw_rd *r, struct gw_msgpack_token *t)
{
	uint8_t b = gw_rd_u8(r);

	*t = (struct gw_msgpack_token){.kind = GW_TOKEN_UINT};
	if (r->err)
		return r->err;
	if (b <= 0x7f)
		set_uint(t, b);
	else if (b >= 0xe0)
		set_int(t, b, 1);
	else if (b >= 0xa0 && b <= 0xbf)
		set_bytes(r, t, GW_TOKEN_STR, b & 0x1f);
	else if (b >= 0x90 && b <= 0x9f)
		set_array(r, t, b & 0x0f);
	else if (b == 0xc2 || b == 0xc3)
		*t = (struct gw_msgpack_token){.kind = GW_TOKEN_BOOL, .u = b & 1};
	else if (b >= 0xc4 && b <= 0xc6)
		set_bytes(r, t, GW_TOKEN_BIN, be(r, (size_t)1 << (b - 0xc4)));
	else if (b >= 0xcc && b <= 0xcf)
		set_uint(t, be(r, (size_t)1 << (b - 0xcc)));
	else if (b >= 0xd0 && b <= 0xd3)
		set_int(t, be(r, (size_t)1 << (b - 0xd0)), (size_t)1 << (b - 0xd0));
	else if (b >= 0xd9 && b <= 0xdb)
		set_bytes(r, t, GW_TOKEN_STR, be(r, (size_t)1 << (b - 0xd9)));
	else if (b == 0xdc || b == 0xdd)
		set_array(r, t, be(r, (size_t)2 << (b - 0xdc)));
	else
		gw_rd_fail(r, GW_EMALFORMED); /* nil, map, float, extension, 0xc1 */
	return r->err;
}

int gw_frame_scan(const void *p, size_t n)
{
	uint64_t left[GW_FRAME_DEPTH_MAX]; /* entries still to come, by depth */
	struct gw_msgpack_token t;
	struct gw_rd r;
	size_t depth = 0, tokens = 0;

	if (n > GW_FRAME_MAX)
		return GW_ELIMIT;
	gw_rd_init(&r, p, n);
	do {
		if (gw_msgpack_next(&r, &t))
			return r.err;
		if (++tokens > GW_FRAME_TOKENS_MAX)
			return GW_ELIMIT;
		if (tokens == 1 && t.kind != GW_TOKEN_ARRAY)
			return GW_EMALFORMED;
		if (depth)
			left[depth - 1]--;
		if (t.kind == GW_TOKEN_ARRAY) {
			if (depth == GW_FRAME_DEPTH_MAX)
				return GW_ELIMIT;
			left[depth++] = t.u;
		}
		while (depth && !left[depth - 1])
			depth--;
	} while (depth);
	return gw_rd_end(&r);
}
