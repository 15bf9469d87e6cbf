/* Samples, plans and models: what is learned from tiles, and how it stands in a patch. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/coder_inside.h"

enum {
	EXPONENTS = 2048,
	OFTEN = 8, /* where more than one in so many changes, elements are listed */
	FRACTION = 4, /* bits of binary logarithms behind the point */
};

struct counts {
	uint64_t elements[EXPONENTS], changed[EXPONENTS];
	/* Of integers: the symbols and extra bits of both kinds of step. */
	uint64_t steps[GW_STEP_KINDS][GW_SYMBOLS], extra[GW_STEP_KINDS];
	/* Under the plan. */
	uint64_t gap[GW_SYMBOLS], step[GW_SYMBOLS], listed[GW_CLASSES][GW_SYMBOLS];
};

struct gw_sample {
	struct gw_plan plan;
	struct counts c;
};

int gw_sample_new(struct gw_sample **out, enum gw_dtype dtype)
{
	struct gw_sample *s = calloc(1, sizeof *s);

	if (!s)
		return GW_ENOMEM;
	s->plan.shape = gw_shape_of(dtype);
	*out = s;
	return 0;
}

void gw_sample_free(struct gw_sample *s)
{
	free(s);
}

void gw_sample_add(struct gw_sample *to, const struct gw_sample *from)
{
	uint64_t *a = (uint64_t *)(void *)&to->c;
	const uint64_t *b = (const uint64_t *)(const void *)&from->c;

	for (size_t i = 0; i < sizeof to->c / sizeof *a; i++)
		a[i] += b[i];
}

void gw_sample_take_plan(struct gw_sample *to, const struct gw_sample *from)
{
	to->plan = from->plan;
	memset(&to->c, 0, sizeof to->c);
}

const struct gw_plan *gw_sample_plan(const struct gw_sample *s)
{
	return &s->plan;
}

/* A tile that will travel as its new bits shall not bend the model of the others. */
static int is_lost(const struct gw_shape *s, uint32_t n, const struct gw_tile_changes *c)
{
	uint64_t bits = 0;

	if ((uint64_t)c->n * (4 + s->bits) <= (uint64_t)n * s->bits)
		return 0;
	for (size_t i = 0; i < c->n; i++)
		bits += 4 + gw_step_of(s, GW_STEPS_VALUE, gw_element_load(c->old_bits + i * s->width, s->width),
				       gw_element_load(c->new_bits + i * s->width, s->width))
				    .extra_bits;
	return bits > (uint64_t)n * s->bits;
}

static int is_hot(const uint64_t *hot, uint32_t at)
{
	return hot && hot[at / 64] >> at % 64 & 1;
}

/* Four counters take turns, since neighbours often have the same exponent and would wait for each other. */
static inline __attribute__((always_inline)) void count_as(uint64_t *elements, const uint8_t *p, uint32_t n,
							    const struct gw_shape sh)
{
	uint32_t turn[4][EXPONENTS] = {0};

	for (uint32_t i = 0; i < n; i++)
		turn[i % 4][gw_exponent(&sh, gw_element_load(p + (size_t)i * sh.width, sh.width))]++;
	for (unsigned e = 0; e < EXPONENTS; e++)
		elements[e] += (uint64_t)turn[0][e] + turn[1][e] + turn[2][e] + turn[3][e];
}

static void count_exponents(uint64_t *elements, const uint8_t *p, uint32_t n, const struct gw_shape *sh)
{
	if (sh->dtype == GW_DT_BF16)
		count_as(elements, p, n, gw_shape_make(GW_DT_BF16, 2, 1));
	else
		count_as(elements, p, n, *sh);
}

void gw_model_see(struct gw_sample *s, const void *old, uint32_t n, const uint64_t *hot,
		  const struct gw_tile_changes *c)
{
	const struct gw_shape *sh = &s->plan.shape;

	/* Tiles without change are not coded. */
	if (!c->n || is_lost(sh, n, c))
		return;
	if (!sh->is_float)
		s->c.elements[0] += n;
	for (uint32_t i = 0; hot && i < n; i++)
		s->c.elements[0] -= (uint64_t)is_hot(hot, i);
	if (sh->is_float)
		count_exponents(s->c.elements, old, n, sh);
	for (size_t i = 0; i < c->n; i++) {
		uint64_t was = gw_element_load(c->old_bits + i * sh->width, sh->width),
			 now = gw_element_load(c->new_bits + i * sh->width, sh->width);

		s->c.changed[gw_exponent(sh, was)] += !is_hot(hot, c->at[i]);
		for (int kind = 0; !sh->is_float && kind < GW_STEP_KINDS; kind++) {
			struct gw_step y = gw_step_of(sh, (enum gw_step_kind)kind, was, now);

			s->c.steps[kind][y.symbol]++;
			s->c.extra[kind] += y.extra_bits;
		}
	}
}

/* --- plan ------------------------------------------------------------------------------------- */

/* log2(v) with FRACTION bits behind the point, rounded down; v >= 1. */
static int log2_fixed(uint64_t v)
{
	unsigned whole = gw_log2(v);
	uint64_t m = whole > 31 ? v >> (whole - 31) : v << (31 - whole);
	int out = (int)whole;

	for (int i = 0; i < FRACTION; i++) {
		m = m * m >> 31;
		out *= 2;
		if (m >> 32) {
			out++;
			m >>= 1;
		}
	}
	return out;
}

/* Bits that symbols of these counts take, by entropy, in fixed point. */
static uint64_t entropy(const uint64_t count[GW_SYMBOLS])
{
	uint64_t sum = 0, bits = 0;

	for (unsigned i = 0; i < GW_SYMBOLS; i++)
		sum += count[i];
	for (unsigned i = 0; i < GW_SYMBOLS; i++)
		if (count[i])
			bits += count[i] * (uint64_t)(log2_fixed(sum) - log2_fixed(count[i]));
	return bits;
}

/* The exponent up to which elements change often; those above it that do are too few to matter. */
static unsigned edge_of(const struct counts *c)
{
	uint64_t elements = 0, changed = 0;
	unsigned edge = 0;

	for (unsigned e = 0; e < EXPONENTS; e++) {
		elements += c->elements[e];
		changed += c->changed[e];
		if (c->changed[e] >= OFTEN && c->changed[e] > c->elements[e] / OFTEN &&
		    changed > elements / (2 * OFTEN))
			edge = e + 1;
	}
	return edge;
}

/* Weights are powers of two, since what a change puts back is then whole bits. A step of training is small beside the
 * distance of representable numbers, so chances double from each exponent to the one below, and one rounding serves
 * all; where they do not, the offset is taken that errs least, changes weighted by their number. */
static void weigh(struct gw_plan *p, const struct counts *c)
{
	enum { ONE = 1 << FRACTION };
	uint64_t elements[GW_CLASSES] = {0}, changed[GW_CLASSES] = {0}, least = UINT64_MAX;
	int chance[GW_CLASSES], top = -100 * ONE, best = 0;

	for (unsigned e = p->edge; e < EXPONENTS; e++) {
		elements[gw_timed_class(p, e)] += c->elements[e];
		changed[gw_timed_class(p, e)] += c->changed[e];
	}
	for (unsigned i = 0; i < GW_CLASSES; i++) {
		/* Half a change is given to all: a class without any is not impossible. */
		chance[i] = log2_fixed(2 * changed[i] + 1) - log2_fixed(2 * elements[i] + 2);
		if (elements[i] && chance[i] > top)
			top = chance[i];
	}
	for (int offset = 0; offset < ONE; offset++) {
		uint64_t off = 0;

		for (unsigned i = 0; i < GW_CLASSES; i++) {
			int x = chance[i] - top + GW_WEIGHT_LOG * ONE + offset,
			    far = x < 0 ? -x : x % ONE < ONE / 2 ? x % ONE : ONE - x % ONE;

			off += changed[i] * (uint64_t)(far * far);
		}
		if (off < least) {
			least = off;
			best = offset;
		}
	}
	for (unsigned i = 0; i < GW_CLASSES; i++) {
		int x = chance[i] - top + GW_WEIGHT_LOG * ONE + best + ONE / 2, log = x < 0 ? 0 : x / ONE;

		p->weight_log[i] = (uint8_t)(!elements[i] ? 0 : log > GW_WEIGHT_LOG ? GW_WEIGHT_LOG : log);
	}
}

void gw_model_plan(struct gw_sample *s)
{
	struct gw_plan *p = &s->plan;

	p->kind = GW_STEPS_VALUE;
	if (!p->shape.is_float) {
		uint64_t bits[GW_STEP_KINDS];

		for (int kind = 0; kind < GW_STEP_KINDS; kind++)
			bits[kind] = entropy(s->c.steps[kind]) + (s->c.extra[kind] << FRACTION);
		if (bits[GW_STEPS_NIBBLE] < bits[GW_STEPS_VALUE])
			p->kind = GW_STEPS_NIBBLE;
	}
	p->edge = edge_of(&s->c);
	memset(p->weight_log, 0, sizeof p->weight_log);
	if (p->shape.is_float)
		weigh(p, &s->c);
	memset(&s->c, 0, sizeof s->c);
}

/* --- model ------------------------------------------------------------------------------------ */

void gw_model_count(struct gw_sample *s, const struct gw_parts *parts, const void *old, uint32_t n,
		    const uint64_t *hot, const struct gw_tile_changes *c)
{
	const struct gw_plan *p = &s->plan;
	const struct gw_shape *sh = &p->shape;
	const uint8_t *o = old;
	uint32_t base = 0;
	size_t k = 0;

	if (!c->n || is_lost(sh, n, c))
		return;
	for (size_t i = 0; i < parts->timed; i++) {
		uint32_t at = parts->timed_at[i], time, extra;
		uint64_t was = gw_element_load(o + (size_t)at * sh->width, sh->width);
		unsigned extra_bits, symbol, log;
		struct gw_step y;

		y = gw_step_of(sh, p->kind, was,
			       gw_element_load(c->new_bits + (size_t)parts->timed_change[i] * sh->width, sh->width));
		log = p->weight_log[gw_timed_class(p, gw_exponent(sh, was))];
		/* Any moment of its time may be taken; this one is as good as random. */
		time = parts->begin[i] + (at * 2654435761u >> (31 - log) >> 1);
		symbol = gw_gap_symbol(time - base, &extra_bits, &extra);
		base = time + 1;
		if (p->kind != GW_STEPS_VALUE || y.symbol > 2) {
			symbol++;
			s->c.step[y.symbol]++;
		}
		s->c.gap[symbol]++;
	}
	for (uint32_t i = 0; i < parts->listed; i++) {
		uint32_t at = parts->listed_at[i];
		uint64_t was = gw_element_load(o + (size_t)at * sh->width, sh->width);
		unsigned symbol = 0;

		while (k < c->n && c->at[k] < at)
			k++;
		if (k < c->n && c->at[k] == at)
			symbol = gw_step_of(sh, p->kind, was, gw_element_load(c->new_bits + k * sh->width, sh->width))
					 .symbol;
		s->c.listed[is_hot(hot, at) ? GW_CLASS_HOT : gw_listed_class(p, gw_exponent(sh, was))][symbol]++;
	}
}

/* Slots are written with four significant bits: the next numbers that can be written lie so far apart. */
static unsigned quantum(unsigned slots)
{
	unsigned l = gw_log2(slots);

	return l > 3 ? 1u << (l - 3) : 1;
}

/* Shares out the slots; the most frequent symbol, which is not written, takes what is left, and should get what is its
 * own. No counts, no symbols but the escape. */
static void share(const uint64_t count[GW_SYMBOLS], uint16_t slots[GW_SYMBOLS], unsigned *most)
{
	uint64_t sum = 0;
	int left = GW_TABLE_SIZE - 1, own;

	memset(slots, 0, GW_SYMBOLS * sizeof *slots);
	*most = 0;
	for (unsigned i = 0; i < GW_ESCAPE; i++) {
		sum += count[i];
		if (count[i] > count[*most])
			*most = i;
	}
	slots[GW_ESCAPE] = sum ? 1 : GW_TABLE_SIZE;
	if (!sum)
		return;
	/* Counts are below 2^48: the products fit. */
	own = (int)(count[*most] * (GW_TABLE_SIZE - 1) / sum);
	for (unsigned i = 0; i < GW_ESCAPE; i++) {
		unsigned want = (unsigned)((count[i] * (GW_TABLE_SIZE - 1) + sum / 2) / sum), q;

		if (!count[i] || i == *most)
			continue;
		want = want ? want : 1;
		q = quantum(want);
		slots[i] = (uint16_t)((want + q / 2) / q * q);
		left -= slots[i];
	}
	while (left < own || left < 1) {
		unsigned widest = *most ? 0 : 1;

		for (unsigned i = 0; i < GW_ESCAPE; i++)
			if (i != *most && slots[i] > slots[widest])
				widest = i;
		if (slots[widest] < 2)
			break;
		left += (int)quantum(slots[widest] - 1u);
		slots[widest] = (uint16_t)(slots[widest] - quantum(slots[widest] - 1u));
	}
	for (unsigned i = 0; i < GW_ESCAPE; i++) {
		unsigned q = slots[i] ? quantum(slots[i]) : 0;

		if (!q || i == *most || left - own < (int)q || slots[i] + q >= GW_TABLE_SIZE)
			continue;
		slots[i] = (uint16_t)(slots[i] + q);
		left -= (int)q;
	}
	slots[*most] = (uint16_t)left;
}

static void lay_out(struct gw_table *t)
{
	unsigned first = 0;

	for (unsigned i = 0; i < GW_SYMBOLS; i++) {
		t->first[i] = (uint16_t)first;
		for (unsigned k = 0; k < t->slots[i]; k++)
			t->at[first + k] = i | (t->slots[i] - 1u) << 8 | k << (8 + GW_TABLE_BITS + 1);
		first += t->slots[i];
	}
	assert(first == GW_TABLE_SIZE);
}

static void note_extra_bits(struct gw_model *m)
{
	for (unsigned i = 0; i < GW_SYMBOLS; i++)
		m->extra_bits[i] = (int8_t)gw_step_extra_bits(&m->plan.shape, m->plan.kind, i);
}

/* Whether anything was learned. */
static int knows(const struct counts *c)
{
	for (unsigned i = 0; i < GW_SYMBOLS; i++) {
		if (c->gap[i])
			return 1;
		for (unsigned k = 0; k < GW_CLASSES; k++)
			if (c->listed[k][i])
				return 1;
	}
	return 0;
}

int gw_model_make(struct gw_model **out, const struct gw_sample *s)
{
	struct gw_model *m;

	*out = NULL;
	if (!knows(&s->c))
		return 0;
	m = calloc(1, sizeof *m);
	if (!m)
		return GW_ENOMEM;
	m->plan = s->plan;
	share(s->c.gap, m->gap.slots, &m->gap.most);
	share(s->c.step, m->step.slots, &m->step.most);
	lay_out(&m->gap);
	lay_out(&m->step);
	for (unsigned i = 0; i < GW_CLASSES; i++) {
		share(s->c.listed[i], m->listed[i].slots, &m->listed[i].most);
		lay_out(&m->listed[i]);
	}
	note_extra_bits(m);
	*out = m;
	return 0;
}

void gw_model_free(struct gw_model *m)
{
	free(m);
}

/* --- as it stands in a patch ------------------------------------------------------------------ */

struct bits_out {
	struct gw_wr *w;
	unsigned acc, n;
};

static void put(struct bits_out *b, unsigned v, unsigned bits)
{
	b->acc |= v << b->n;
	for (b->n += bits; b->n >= 8; b->n -= 8, b->acc >>= 8)
		gw_wr_u8(b->w, (uint8_t)b->acc);
}

static void write_table(struct bits_out *b, const struct gw_table *t)
{
	unsigned first = 0, last = GW_ESCAPE - 1;

	while (first < GW_ESCAPE && !t->slots[first])
		first++;
	put(b, first, 8);
	if (first == GW_ESCAPE)
		return;
	while (!t->slots[last])
		last--;
	put(b, last, 8);
	put(b, t->most, 8);
	for (unsigned i = first; i <= last; i++) {
		unsigned l;

		if (i == t->most)
			continue;
		put(b, t->slots[i] ? 1 : 0, 1);
		if (!t->slots[i])
			continue;
		l = gw_log2(t->slots[i]);
		put(b, l, 4);
		if (l > 3)
			put(b, (t->slots[i] >> (l - 3)) & 7, 3);
		else
			put(b, t->slots[i] & ((1u << l) - 1), l);
	}
}

void gw_model_write(const struct gw_model *m, struct gw_wr *w)
{
	struct bits_out b = {w, 0, 0};

	gw_wr_u8(w, (uint8_t)m->plan.shape.dtype);
	gw_wr_u8(w, (uint8_t)m->plan.kind);
	gw_wr_u16(w, (uint16_t)m->plan.edge);
	for (unsigned i = 0; i < GW_CLASSES; i++)
		put(&b, m->plan.weight_log[i], 4);
	write_table(&b, &m->gap);
	write_table(&b, &m->step);
	for (unsigned i = 0; i < GW_CLASSES; i++)
		write_table(&b, &m->listed[i]);
	if (b.n)
		put(&b, 0, 8 - b.n);
}

struct bits_in {
	struct gw_rd *r;
	unsigned acc, n;
};

static unsigned get(struct bits_in *b, unsigned bits)
{
	unsigned v;

	while (b->n < bits) {
		b->acc |= (unsigned)gw_rd_u8(b->r) << b->n;
		b->n += 8;
	}
	v = b->acc & ((1u << bits) - 1);
	b->acc >>= bits;
	b->n -= bits;
	return v;
}

/* Slots of a symbol that has some. */
static unsigned read_slots(struct bits_in *b)
{
	unsigned l = get(b, 4);

	if (l >= GW_TABLE_BITS)
		return GW_TABLE_SIZE;
	return l > 3 ? (8 | get(b, 3)) << (l - 3) : 1u << l | get(b, l);
}

static int read_table(struct bits_in *b, struct gw_table *t)
{
	unsigned first = get(b, 8), last, left = GW_TABLE_SIZE - 1;

	t->slots[GW_ESCAPE] = first == GW_ESCAPE ? GW_TABLE_SIZE : 1;
	if (first != GW_ESCAPE) {
		last = get(b, 8);
		t->most = get(b, 8);
		if (last == GW_ESCAPE || t->most < first || t->most > last)
			return GW_EMALFORMED;
		for (unsigned i = first; i <= last; i++) {
			unsigned slots = i == t->most || !get(b, 1) ? 0 : read_slots(b);

			if (slots >= left)
				return GW_EMALFORMED;
			t->slots[i] = (uint16_t)slots;
			left -= slots;
		}
		t->slots[t->most] = (uint16_t)left;
		if (!t->slots[first] || !t->slots[last])
			return GW_EMALFORMED;
	}
	if (b->r->err)
		return b->r->err;
	lay_out(t);
	return 0;
}

/* One more than the highest exponent. */
static unsigned edge_max(const struct gw_shape *s)
{
	return s->is_float ? (0x7fffu >> s->shift) + 1 : 1;
}

int gw_model_read(struct gw_model **out, enum gw_dtype dtype, struct gw_rd *r)
{
	struct gw_model *m = calloc(1, sizeof *m);
	struct bits_in b = {r, 0, 0};
	unsigned kind, any = 0;
	int err;

	if (!m)
		return GW_ENOMEM;
	m->plan.shape = gw_shape_of(dtype);
	kind = gw_rd_u8(r);
	m->plan.kind = (enum gw_step_kind)kind;
	m->plan.edge = gw_rd_u16(r);
	for (unsigned i = 0; i < GW_CLASSES; i++) {
		m->plan.weight_log[i] = (uint8_t)get(&b, 4);
		any |= m->plan.weight_log[i];
		if (m->plan.weight_log[i] > GW_WEIGHT_LOG)
			gw_rd_fail(r, GW_EMALFORMED);
	}
	if (kind >= GW_STEP_KINDS || m->plan.edge > edge_max(&m->plan.shape) ||
	    (m->plan.shape.is_float ? kind != GW_STEPS_VALUE : any))
		gw_rd_fail(r, GW_EMALFORMED);
	err = read_table(&b, &m->gap);
	if (!err)
		err = read_table(&b, &m->step);
	for (unsigned i = 0; !err && i < GW_CLASSES; i++)
		err = read_table(&b, &m->listed[i]);
	/* Less than a byte is left: of zeros. */
	if (!err && (b.n >= 8 || b.acc))
		err = GW_EMALFORMED;
	if (err) {
		free(m);
		return err;
	}
	note_extra_bits(m);
	*out = m;
	return 0;
}
