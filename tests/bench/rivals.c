#include "rivals.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "patch/element.h"

/* Streams of the sparse ones; COUNTS has a number of changes a tensor. */
enum { COUNTS, PLACES, VALUES, STEPS };
enum { VARIANT_INDEX, VARIANT_GAPS, VARIANT_STEPS };
enum { STEP_UP, STEP_DOWN, STEP_OTHER };

/* --- memory ------------------------------------------------------------------------------------------------- */

static int stream_init(struct rival_stream *s, size_t cap)
{
	s->cap = cap;
	s->raw = malloc(cap);
	s->back = malloc(cap);
	s->coded = malloc(ZSTD_compressBound(cap));
	return s->raw && s->back && s->coded ? 0 : GW_ENOMEM;
}

int rival_work_init(struct rival_work *w, const struct bench_pair *p, uint64_t changed)
{
	/* A place takes at most 5 bytes, a value 8. XOR puts the whole model into the coded bytes of stream 0. */
	size_t cap = (size_t)changed * 8 + 8 * (size_t)p->count + 64;
	int err = 0;

	memset(w, 0, sizeof *w);
	w->changed = changed;
	for (int i = 0; i < RIVAL_STREAMS && !err; i++)
		err = stream_init(&w->streams[i], i == COUNTS && cap < p->bytes + 64 ? (size_t)p->bytes + 64 : cap);
	w->cctx = ZSTD_createCCtx();
	w->dctx = ZSTD_createDCtx();
	w->block = malloc(RIVAL_BLOCK);
	w->planes = malloc(RIVAL_BLOCK);
	if (!err && (!w->cctx || !w->dctx || !w->block || !w->planes))
		err = GW_ENOMEM;
	return err ? err : gw_changes_buf_init(&w->changes);
}

void rival_work_free(struct rival_work *w)
{
	for (int i = 0; i < RIVAL_STREAMS; i++) {
		free(w->streams[i].raw);
		free(w->streams[i].back);
		free(w->streams[i].coded);
	}
	(void)ZSTD_freeCCtx(w->cctx);
	(void)ZSTD_freeDCtx(w->dctx);
	free(w->block);
	free(w->planes);
	gw_changes_buf_free(&w->changes);
	memset(w, 0, sizeof *w);
}

/* --- compressing streams ------------------------------------------------------------------------------------ */

static int compress(const struct rival *r, struct rival_work *w)
{
	for (int i = 0; i < RIVAL_STREAMS && r->level; i++) {
		struct rival_stream *s = &w->streams[i];

		s->coded_n = s->raw_n ? ZSTD_compressCCtx(w->cctx, s->coded, ZSTD_compressBound(s->cap), s->raw,
							  s->raw_n, r->level)
				      : 0;
		if (ZSTD_isError(s->coded_n))
			return GW_ENOMEM;
	}
	return 0;
}

/* Into `back`; without zstd the written bytes themselves are what is read. */
static int decompress(const struct rival *r, struct rival_work *w, const uint8_t *in[RIVAL_STREAMS],
		      size_t n[RIVAL_STREAMS])
{
	for (int i = 0; i < RIVAL_STREAMS; i++) {
		struct rival_stream *s = &w->streams[i];

		in[i] = s->raw;
		n[i] = s->raw_n;
		if (!r->level)
			continue;
		in[i] = s->back;
		n[i] = s->coded_n ? ZSTD_decompressDCtx(w->dctx, s->back, s->cap, s->coded, s->coded_n) : 0;
		if (ZSTD_isError(n[i]))
			return GW_EMALFORMED;
	}
	return 0;
}

size_t rival_bytes(const struct rival *r, const struct rival_work *w)
{
	size_t n = 0;

	for (int i = 0; i < RIVAL_STREAMS; i++) {
		const struct rival_stream *s = &w->streams[i];

		n += r->level ? s->coded_n : s->raw_n;
		n += s->raw_n || s->coded_n ? sizeof(uint32_t) : 0;
	}
	return n;
}

/* --- places and values --------------------------------------------------------------------------------------- */

struct encoding {
	struct rival_work *w;
	int variant;
	uint64_t count, next; /* in this tensor; the first place that may change next */
	uint64_t steps;	      /* in the model */
};

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
	for (; v > 127; v >>= 7)
		*p++ = (uint8_t)(v | 128);
	*p++ = (uint8_t)v;
	return p;
}

static void put_places(struct encoding *e, uint64_t first, const struct gw_tile_changes *c)
{
	struct rival_stream *s = &e->w->streams[PLACES];
	uint8_t *p = s->raw + s->raw_n;

	for (size_t i = 0; i < c->n && e->variant == VARIANT_INDEX; i++, p += 4)
		gw_put_le32(p, (uint32_t)(first + c->at[i]));
	for (size_t i = 0; i < c->n && e->variant != VARIANT_INDEX; i++) {
		p = put_varint(p, first + c->at[i] - e->next);
		e->next = first + c->at[i] + 1;
	}
	s->raw_n = (size_t)(p - s->raw);
}

static void put_values(struct encoding *e, unsigned width, const struct gw_tile_changes *c)
{
	struct rival_stream *s = &e->w->streams[VALUES];

	memcpy(s->raw + s->raw_n, c->new_bits, c->n * width);
	s->raw_n += c->n * width;
}

/* Two bits a step; the new bits where it is not one up or down. */
static void put_steps(struct encoding *e, unsigned width, const struct gw_tile_changes *c)
{
	struct rival_stream *values = &e->w->streams[VALUES], *steps = &e->w->streams[STEPS];

	for (size_t i = 0; i < c->n; i++, e->steps++) {
		uint64_t a = gw_element_load(c->old_bits + i * width, width);
		uint64_t b = gw_element_load(c->new_bits + i * width, width);
		unsigned step = b == a + 1 ? STEP_UP : b + 1 == a ? STEP_DOWN : STEP_OTHER;

		if (e->steps % 4 == 0)
			steps->raw[steps->raw_n++] = 0;
		steps->raw[steps->raw_n - 1] |= (uint8_t)(step << 2 * (e->steps % 4));
		if (step == STEP_OTHER) {
			gw_element_store(values->raw + values->raw_n, width, b);
			values->raw_n += width;
		}
	}
}

static void put_changes(void *ctx, const struct bench_tensor *t, uint64_t first, const struct gw_tile_changes *c)
{
	struct encoding *e = ctx;

	put_places(e, first, c);
	if (e->variant == VARIANT_STEPS)
		put_steps(e, t->width, c);
	else
		put_values(e, t->width, c);
	e->count += c->n;
}

static int sparse_encode(const struct rival *r, struct rival_work *w, const struct bench_pair *p)
{
	struct encoding e = {.w = w, .variant = r->variant};
	struct rival_stream *counts = &w->streams[COUNTS];
	int err = 0;

	for (int i = 0; i < RIVAL_STREAMS; i++)
		w->streams[i].raw_n = w->streams[i].coded_n = 0;
	for (uint32_t i = 0; i < p->count && !err; i++) {
		e.count = e.next = 0;
		err = bench_each_change(&p->tensors[i], &w->changes, put_changes, &e);
		gw_put_le32(counts->raw + counts->raw_n, (uint32_t)e.count);
		counts->raw_n += 4;
	}
	return err ? err : compress(r, w);
}

/* --- and back -------------------------------------------------------------------------------------------------- */

struct decoding {
	const uint8_t *places, *places_end, *values, *values_end, *steps;
	uint64_t step; /* of the model */
};

static int get_varint(struct decoding *d, uint64_t *out)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 63 && d->places < d->places_end; shift += 7) {
		uint8_t b = *d->places++;

		v |= (uint64_t)(b & 127) << shift;
		if (b < 128) {
			*out = v;
			return 0;
		}
	}
	return GW_EMALFORMED;
}

static inline int get_place(struct decoding *d, int variant, uint64_t *place)
{
	uint64_t gap;

	if (variant == VARIANT_INDEX) {
		if (d->places_end - d->places < 4)
			return GW_EMALFORMED;
		*place = gw_le32(d->places);
		d->places += 4;
		return 0;
	}
	if (get_varint(d, &gap))
		return GW_EMALFORMED;
	*place += gap + 1;
	return 0;
}

static inline __attribute__((always_inline)) int get_changes(struct decoding *d, int variant, uint64_t count,
							     unsigned width, uint64_t elements, uint8_t *model)
{
	uint64_t place = UINT64_MAX;

	for (uint64_t i = 0; i < count; i++) {
		unsigned step = STEP_OTHER;
		uint8_t *at;

		if (get_place(d, variant, &place) || place >= elements)
			return GW_EMALFORMED;
		at = model + place * width;
		if (variant == VARIANT_STEPS) {
			step = d->steps[d->step / 4] >> 2 * (d->step % 4) & 3;
			d->step++;
		}
		if (step != STEP_OTHER) {
			gw_element_store(at, width, gw_element_load(at, width) + (step == STEP_UP ? 1 : UINT64_MAX));
			continue;
		}
		if ((size_t)(d->values_end - d->values) < width)
			return GW_EMALFORMED;
		memcpy(at, d->values, width);
		d->values += width;
	}
	return 0;
}

static int get_tensor(struct decoding *d, int variant, uint64_t count, const struct bench_tensor *t, uint8_t *model)
{
	switch (t->width * 4 + (unsigned)variant) {
	case 8 + VARIANT_INDEX:
		return get_changes(d, VARIANT_INDEX, count, 2, t->elements, model);
	case 8 + VARIANT_GAPS:
		return get_changes(d, VARIANT_GAPS, count, 2, t->elements, model);
	case 8 + VARIANT_STEPS:
		return get_changes(d, VARIANT_STEPS, count, 2, t->elements, model);
	default:
		return get_changes(d, variant, count, t->width, t->elements, model);
	}
}

static int sparse_decode(const struct rival *r, struct rival_work *w, const struct bench_pair *p, uint8_t *model)
{
	const uint8_t *in[RIVAL_STREAMS];
	size_t n[RIVAL_STREAMS];
	int err = decompress(r, w, in, n);
	struct decoding d = {.step = 0};
	uint64_t left;

	if (err || n[COUNTS] != 4 * (size_t)p->count)
		return err ? err : GW_EMALFORMED;
	d.places = in[PLACES];
	d.places_end = in[PLACES] + n[PLACES];
	d.values = in[VALUES];
	d.values_end = in[VALUES] + n[VALUES];
	d.steps = in[STEPS];
	left = r->variant == VARIANT_STEPS ? 4 * (uint64_t)n[STEPS] : UINT64_MAX;
	for (uint32_t i = 0; i < p->count && !err; i++) {
		uint64_t count = gw_le32(in[COUNTS] + 4 * (size_t)i);

		if (count > left)
			return GW_EMALFORMED;
		left -= count;
		err = get_tensor(&d, r->variant, count, &p->tensors[i], model + p->tensors[i].first);
	}
	return err;
}

const struct rival bench_rivals[] = {
	{"int32_value", "int32 + value", 0, sparse_encode, sparse_decode, VARIANT_INDEX},
	{"int32_value_zstd1", "int32 + value, zstd -1", 1, sparse_encode, sparse_decode, VARIANT_INDEX},
	{"xor_zstd1", "XOR, zstd -1", 1, rival_xor_encode, rival_xor_decode, RIVAL_XOR_BYTES},
	{"xor_zstd3", "XOR, zstd -3", 3, rival_xor_encode, rival_xor_decode, RIVAL_XOR_BYTES},
	{"xor_planes_zstd1", "XOR in byte planes, zstd -1", 1, rival_xor_encode, rival_xor_decode, RIVAL_XOR_PLANES},
	{"xor_planes_zstd3", "XOR in byte planes, zstd -3", 3, rival_xor_encode, rival_xor_decode, RIVAL_XOR_PLANES},
	{"gaps_value_zstd1", "gaps + value, zstd -1", 1, sparse_encode, sparse_decode, VARIANT_GAPS},
	{"gaps_steps_zstd1", "gaps + steps, zstd -1", 1, sparse_encode, sparse_decode, VARIANT_STEPS},
	{NULL, NULL, 0, NULL, NULL, 0},
};
