#include "wire_random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"

static uint64_t number(struct gw_rng *r, uint64_t most)
{
	switch (gw_rng_below(r, 4)) {
	case 0:
		return gw_rng_below(r, 2) ? most : 0;
	case 1:
		return gw_rng_u64(r) & most & 0xff;
	default:
		return (gw_rng_u64(r) >> gw_rng_below(r, 64)) & most;
	}
}

/* Mostly short; at the limit now and then while the frame has room (budget, in bytes). */
static size_t length(struct gw_rng *r, size_t limit, size_t *budget)
{
	size_t n = gw_rng_below(r, 8) ? gw_rng_below(r, limit < 40 ? limit + 1 : 40) : limit;

	if (n > *budget)
		n = 0;
	*budget -= n;
	return n;
}

static void *random_bytes(struct gw_rng *r, struct gw_arena *a, size_t n)
{
	uint8_t *p = gw_arena_alloc(a, n);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)gw_rng_u64(r);
	return p;
}

/* ASCII, and two-byte characters where they fit. */
static char *random_text(struct gw_rng *r, struct gw_arena *a, size_t n)
{
	char *p = gw_arena_alloc(a, n);

	for (size_t i = 0; i < n; i++) {
		if (i + 1 < n && !gw_rng_below(r, 5)) {
			p[i++] = '\xc3';
			p[i] = (char)(0x80 + gw_rng_below(r, 0x40));
		} else {
			p[i] = (char)(1 + gw_rng_below(r, 127));
		}
	}
	return p;
}

static void fill(struct gw_rng *r, struct gw_arena *a, const struct gw_shape *s, uint8_t *base, size_t *budget);

static void fill_list(struct gw_rng *r, struct gw_arena *a, const struct gw_field *f, void *at, size_t *budget)
{
	struct gw_any_list list = {NULL, length(r, f->limit < 5 ? f->limit : 5, budget)};

	list.v = gw_arena_array(a, list.n, f->record->size);
	for (size_t i = 0; i < list.n; i++)
		fill(r, a, f->record, (uint8_t *)list.v + i * f->record->size, budget);
	memcpy(at, &list, sizeof list);
}

static void fill(struct gw_rng *r, struct gw_arena *a, const struct gw_shape *s, uint8_t *base, size_t *budget)
{
	for (const struct gw_field *f = s->fields; f->kind != GW_FIELD_END; f++) {
		uint8_t *at = base + f->offset;
		size_t n;

		switch (f->kind) {
		case GW_FIELD_U8:
			*at = (uint8_t)number(r, UINT8_MAX);
			break;
		case GW_FIELD_U16:
			*(uint16_t *)at = (uint16_t)number(r, UINT16_MAX);
			break;
		case GW_FIELD_U32:
			*(uint32_t *)at = (uint32_t)number(r, UINT32_MAX);
			break;
		case GW_FIELD_U64:
		case GW_FIELD_I64:
			*(uint64_t *)at = number(r, UINT64_MAX);
			break;
		case GW_FIELD_FLAG:
			*at = gw_rng_below(r, 2) != 0;
			break;
		case GW_FIELD_FIXED:
			memcpy(at, random_bytes(r, a, f->limit), f->limit);
			break;
		case GW_FIELD_BYTES:
			n = length(r, f->limit, budget);
			*(struct gw_bytes *)at = (struct gw_bytes){random_bytes(r, a, n), n};
			break;
		case GW_FIELD_TEXT:
			n = length(r, f->limit, budget);
			*(struct gw_text *)at = (struct gw_text){random_text(r, a, n), n};
			break;
		case GW_FIELD_LIST:
			fill_list(r, a, f, at, budget);
			break;
		case GW_FIELD_END:
			break;
		}
	}
}

void wire_random(struct gw_rng *r, struct gw_arena *a, const struct gw_shape *s, struct gw_msg *m)
{
	size_t budget = GW_FRAME_MAX * 3 / 4;

	memset(m, 0, sizeof *m);
	m->type = (enum gw_msg_type)s->number;
	fill(r, a, s, (uint8_t *)&m->u, &budget);
}

static void put_text(struct gw_wr *w, const char *text)
{
	gw_wr_bytes(w, text, strlen(text));
}

static void put_hex(struct gw_wr *w, const void *p, size_t n)
{
	char two[3];

	for (size_t i = 0; i < n; i++)
		put_text(w, gw_hex(two, (const uint8_t *)p + i, 1));
}

static void render(const struct gw_shape *s, const uint8_t *base, struct gw_wr *w);

static void render_list(const struct gw_field *f, const void *at, struct gw_wr *w)
{
	struct gw_any_list list;

	memcpy(&list, at, sizeof list);
	put_text(w, "[");
	for (size_t i = 0; i < list.n; i++) {
		put_text(w, i ? "," : "");
		render(f->record, (const uint8_t *)list.v + i * f->record->size, w);
	}
	put_text(w, "]");
}

static void render_field(const struct gw_field *f, const void *at, struct gw_wr *w)
{
	const struct gw_bytes *b = at;
	const struct gw_text *t = at;
	char digits[32];

	switch (f->kind) {
	case GW_FIELD_FIXED:
		put_hex(w, at, f->limit);
		return;
	case GW_FIELD_BYTES:
		put_hex(w, b->p, b->n);
		return;
	case GW_FIELD_TEXT:
		put_hex(w, t->p, t->n);
		return;
	case GW_FIELD_LIST:
		render_list(f, at, w);
		return;
	case GW_FIELD_I64:
		(void)snprintf(digits, sizeof digits, "%" PRId64, *(const int64_t *)at);
		break;
	case GW_FIELD_U64:
		(void)snprintf(digits, sizeof digits, "%" PRIu64, *(const uint64_t *)at);
		break;
	case GW_FIELD_U32:
		(void)snprintf(digits, sizeof digits, "%" PRIu32, *(const uint32_t *)at);
		break;
	case GW_FIELD_U16:
		(void)snprintf(digits, sizeof digits, "%u", (unsigned)*(const uint16_t *)at);
		break;
	default:
		(void)snprintf(digits, sizeof digits, "%u", (unsigned)*(const uint8_t *)at);
		break;
	}
	put_text(w, digits);
}

static void render(const struct gw_shape *s, const uint8_t *base, struct gw_wr *w)
{
	put_text(w, s->name);
	put_text(w, "{");
	for (const struct gw_field *f = s->fields; f->kind != GW_FIELD_END; f++) {
		put_text(w, f == s->fields ? "" : ",");
		put_text(w, f->name);
		put_text(w, "=");
		render_field(f, base + f->offset, w);
	}
	put_text(w, "}");
}

void wire_render(const struct gw_msg *m, struct gw_wr *w)
{
	const struct gw_shape *s = gw_msg_shape((unsigned)m->type);

	if (s)
		render(s, (const uint8_t *)&m->u, w);
}
