#include "patch/sparse.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "patch/bits.h"

/* How a dtype's bits are ordered and stepped. */
struct steps {
	unsigned width, bits;
	uint64_t sign, mask;
	int is_float;
};

static struct steps steps_of(enum gw_dtype dtype)
{
	unsigned width = gw_dtype_width(dtype), bits = 8 * width;
	uint64_t sign = 1ull << (bits - 1);

	return (struct steps){width, bits, sign, sign | (sign - 1), gw_dtype_is_float(dtype)};
}

static unsigned step_symbols(const struct steps *s)
{
	return 2 * (s->bits - 1);
}

/* Bits as a number that rises with the float's value; its own inverse but for the direction. */
static inline uint64_t order(const struct steps *s, uint64_t bits)
{
	if (!s->is_float)
		return bits;
	return bits & s->sign ? ~bits & s->mask : bits | s->sign;
}

static inline uint64_t disorder(const struct steps *s, uint64_t ord)
{
	if (!s->is_float)
		return ord;
	return ord & s->sign ? ord & ~s->sign : ~ord & s->mask;
}

static inline unsigned log2_of(uint64_t v)
{
	return 63 - (unsigned)__builtin_clzll(v);
}

/* One change as symbols and extra bits. */
struct symbols {
	unsigned place, place_bits;
	uint64_t place_extra;
	int other;
	unsigned step, step_bits;
	uint64_t step_extra;
};

static inline void symbols_of(const struct steps *s, uint64_t gap, uint64_t old, uint64_t new, struct symbols *y)
{
	uint64_t d = (order(s, new) - order(s, old)) & s->mask, m = d & s->sign ? -d & s->mask : d;
	unsigned b = log2_of(gap + 1), t = m > 1 ? 2 : d & s->sign ? 1 : 0;

	assert(m);
	y->place = 3 * b + t;
	y->place_bits = b;
	y->place_extra = gap + 1 - (1ull << b);
	y->other = t == 2;
	y->step_bits = log2_of(m);
	y->step = y->other ? 2 * (y->step_bits - 1) + (d & s->sign ? 1 : 0) : 0;
	y->step_extra = m - (1ull << y->step_bits);
}

/* Runs `body` with y for each change. */
#define EACH_CHANGE(c, s, y, body) \
	do { \
		uint64_t next_ = 0; \
		for (size_t i_ = 0; i_ < (c)->n; i_++) { \
			symbols_of((s), (c)->at[i_] - next_, \
				   gw_element_load((c)->old_bits + i_ * (s)->width, (s)->width), \
				   gw_element_load((c)->new_bits + i_ * (s)->width, (s)->width), (y)); \
			next_ = (uint64_t)(c)->at[i_] + 1; \
			body \
		} \
	} while (0)

uint64_t gw_sparse_count(struct gw_code_counts *counts, enum gw_dtype dtype, const struct gw_tile_changes *c)
{
	struct steps s = steps_of(dtype);
	struct symbols y;
	uint64_t bits = 0;

	EACH_CHANGE(c, &s, &y, {
		counts->place[y.place]++;
		bits += 4 + y.place_bits;
		if (y.other) {
			counts->step[y.step]++;
			bits += 3 + y.step_bits;
		}
	});
	return bits;
}

void gw_code_make(struct gw_code *code, enum gw_dtype dtype, const struct gw_code_counts *counts)
{
	struct steps s = steps_of(dtype);
	int err;

	memset(code, 0, sizeof *code);
	code->dtype = dtype;
	gw_prefix_lengths(counts->place, GW_PLACE_SYMBOLS, code->place_len);
	gw_prefix_lengths(counts->step, step_symbols(&s), code->step_len);
	err = gw_prefix_codes(code->place_len, GW_PLACE_SYMBOLS, code->place_code);
	assert(!err);
	err = gw_prefix_codes(code->step_len, step_symbols(&s), code->step_code);
	assert(!err);
}

static void write_lengths(struct gw_wr *w, const uint8_t *len, unsigned n)
{
	for (unsigned i = 0; i < n; i += 2)
		gw_wr_u8(w, (uint8_t)(len[i] | (i + 1 < n ? len[i + 1] << 4 : 0)));
}

void gw_code_write(const struct gw_code *code, struct gw_wr *w)
{
	struct steps s = steps_of(code->dtype);

	gw_wr_u8(w, (uint8_t)code->dtype);
	write_lengths(w, code->place_len, GW_PLACE_SYMBOLS);
	write_lengths(w, code->step_len, step_symbols(&s));
}

static int read_lengths(struct gw_rd *r, uint8_t *len, unsigned n)
{
	for (unsigned i = 0; i < n; i += 2) {
		uint8_t b = gw_rd_u8(r);

		len[i] = b & 15;
		if (i + 1 < n)
			len[i + 1] = b >> 4;
		else if (b >> 4)
			return GW_EMALFORMED;
	}
	return r->err;
}

int gw_code_read(struct gw_code *code, enum gw_dtype dtype, struct gw_rd *r)
{
	struct steps s = steps_of(dtype);
	unsigned n = step_symbols(&s);
	int err;

	memset(code, 0, sizeof *code);
	code->dtype = dtype;
	err = read_lengths(r, code->place_len, GW_PLACE_SYMBOLS);
	if (!err)
		err = read_lengths(r, code->step_len, n);
	/* The step of +2^(w-1) is written as a negative one. */
	if (!err && code->step_len[2 * (s.bits - 2)])
		err = GW_EMALFORMED;
	if (!err)
		err = gw_prefix_codes(code->place_len, GW_PLACE_SYMBOLS, code->place_code);
	if (!err)
		err = gw_prefix_codes(code->step_len, n, code->step_code);
	if (!err)
		err = gw_prefix_table(code->place_len, GW_PLACE_SYMBOLS, code->place_table);
	return err ? err : gw_prefix_table(code->step_len, n, code->step_table);
}

static size_t varint_size(uint64_t v)
{
	return v ? log2_of(v) / 7 + 1 : 1;
}

size_t gw_sparse_size(const struct gw_code *code, const struct gw_tile_changes *c)
{
	struct steps s = steps_of(code->dtype);
	struct symbols y;
	uint64_t bits = 0;

	EACH_CHANGE(c, &s, &y, {
		if (!code->place_len[y.place] || (y.other && !code->step_len[y.step]))
			return SIZE_MAX;
		bits += code->place_len[y.place] + y.place_bits;
		if (y.other)
			bits += code->step_len[y.step] + y.step_bits;
	});
	return varint_size(c->n) + (size_t)gw_div_up(bits, 8);
}

void gw_sparse_write(const struct gw_code *code, const struct gw_tile_changes *c, uint8_t *out)
{
	struct steps s = steps_of(code->dtype);
	struct gw_bits_wr w;
	struct symbols y;
	uint64_t n = c->n;

	for (; n > 127; n >>= 7)
		*out++ = (uint8_t)(n | 128);
	*out++ = (uint8_t)n;
	w = (struct gw_bits_wr){out, 0, 0};
	EACH_CHANGE(c, &s, &y, {
		gw_bits_put(&w, code->place_code[y.place], code->place_len[y.place]);
		gw_bits_put(&w, y.place_extra, y.place_bits);
		if (y.other) {
			unsigned low = y.step_bits < 32 ? y.step_bits : 32;

			gw_bits_put(&w, code->step_code[y.step], code->step_len[y.step]);
			gw_bits_put(&w, y.step_extra & ((1ull << low) - 1), low);
			gw_bits_put(&w, y.step_extra >> low, y.step_bits - low);
		}
	});
	gw_bits_flush(&w);
}

/* A symbol by the table; GW_PREFIX_SYMBOLS_MAX for bits that begin no code. */
static inline unsigned symbol(struct gw_bits_rd *r, const uint16_t *table)
{
	uint16_t e = table[r->acc & ((1u << GW_PREFIX_BITS) - 1)];

	gw_bits_skip(r, e & 15);
	return e ? e >> 4 : GW_PREFIX_SYMBOLS_MAX;
}

/* The step, other than ±1, modulo 2^w; 0 where it is none. */
static uint64_t read_step(const struct gw_code *code, const struct steps *s, struct gw_bits_rd *r)
{
	unsigned y, bits, low;
	uint64_t m;

	gw_bits_fill(r);
	y = symbol(r, code->step_table);
	if (y >= step_symbols(s))
		return 0;
	bits = y / 2 + 1;
	low = bits < 32 ? bits : 32;
	m = gw_bits_take(r, low);
	gw_bits_fill(r);
	m |= gw_bits_take(r, bits - low) << low;
	m += 1ull << bits;
	if (m > s->sign)
		return 0;
	return y & 1 ? -m & s->mask : m;
}

int gw_sparse_read(const struct gw_code *code, const uint8_t *p, size_t n, const uint8_t *old, uint32_t elements,
		   uint32_t *at, uint8_t *old_bits, uint8_t *new_bits, size_t *changes)
{
	struct steps s = steps_of(code->dtype);
	struct gw_bits_rd r;
	struct gw_rd head;
	uint64_t count, place = 0;

	gw_rd_init(&head, p, n);
	count = gw_rd_varint(&head);
	if (head.err || !count || count > elements)
		return head.err ? head.err : GW_EMALFORMED;
	r = (struct gw_bits_rd){p + head.at, p + n, 0, 0, 0};
	for (uint64_t i = 0; i < count; i++, place++) {
		unsigned y;
		uint64_t was, step;

		gw_bits_fill(&r);
		y = symbol(&r, code->place_table);
		if (y >= GW_PLACE_SYMBOLS)
			return GW_EMALFORMED;
		place += (1ull << y / 3) - 1 + gw_bits_take(&r, y / 3);
		step = y % 3 == 0 ? 1 : y % 3 == 1 ? s.mask : read_step(code, &s, &r);
		if (place >= elements || !step || r.err)
			return GW_EMALFORMED;
		was = gw_element_load(old + place * s.width, s.width);
		at[i] = (uint32_t)place;
		gw_element_store(old_bits + i * s.width, s.width, was);
		gw_element_store(new_bits + i * s.width, s.width,
				 disorder(&s, (order(&s, was) + step) & s.mask));
	}
	*changes = count;
	return gw_bits_done(&r) ? 0 : GW_EMALFORMED;
}
