/*
 * What the files of the coder share: coder.c (coding and decoding a tile), model.c (samples and tables), survey.c and
 * survey_x86.c (old bits seen as time). Numbers: proto/PATCH.md, "Coded tiles".
 */
#ifndef GW_PATCH_CODER_INSIDE_H
#define GW_PATCH_CODER_INSIDE_H

#include "base/num.h"
#include "patch/coder.h"
#include "patch/element.h"
#include "patch/tile.h"

enum {
	GW_CLASS_HOT = 15,   /* of listed elements without exponents: those that are hot */
	GW_CLASSES = 16,     /* of listed elements, and of timed ones */
	GW_WEIGHT_LOG = 10,  /* the heaviest element lasts 2^10 */
	GW_TABLE_BITS = 11,
	GW_TABLE_SIZE = 1 << GW_TABLE_BITS,
	GW_SYMBOLS = 256,
	GW_ESCAPE = 255,     /* a symbol that the table has not follows in 8 bits */
	GW_GAP_SYMBOLS = 224, /* 2 * (4 * (exponent - 2) + mantissa) + other */
	GW_STEP_XOR = 254,   /* nibbles: more than one changed */
	GW_GROUP = 32,       /* elements that share an entry of the survey */
	GW_BATCH = 32,
	GW_SURVEY_SLACK = 16, /* entries behind a survey's last that no time reaches */
};

enum gw_step_kind { GW_STEPS_VALUE, GW_STEPS_NIBBLE, GW_STEP_KINDS };

/* How a dtype's bits are ordered, stepped and classed. */
struct gw_shape {
	enum gw_dtype dtype;
	unsigned width, bits;
	uint64_t sign, mask;
	int is_float;
	unsigned shift; /* mantissa bits in the element's highest 16 bits */
};

static inline struct gw_shape gw_shape_make(enum gw_dtype dtype, unsigned width, int is_float)
{
	uint64_t sign = 1ull << (8 * width - 1);
	struct gw_shape s = {dtype, width, 8 * width, sign, sign | (sign - 1), is_float, 0};

	switch (dtype) {
	case GW_DT_F8_E4M3:
	case GW_DT_F8_E4M3FNUZ:
		s.shift = 11;
		break;
	case GW_DT_F8_E5M2:
	case GW_DT_F8_E5M2FNUZ:
	case GW_DT_F16:
		s.shift = 10;
		break;
	case GW_DT_F64:
		s.shift = 4;
		break;
	default: /* BF16, F32 */
		s.shift = 7;
	}
	return s;
}

static inline struct gw_shape gw_shape_of(enum gw_dtype dtype)
{
	return gw_shape_make(dtype, gw_dtype_width(dtype), gw_dtype_is_float(dtype));
}

/* The exponent field; 0 where the dtype has none. */
static inline unsigned gw_exponent(const struct gw_shape *s, uint64_t bits)
{
	unsigned head = s->bits >= 16 ? (unsigned)(bits >> (s->bits - 16)) : (unsigned)bits << 8;

	return s->is_float ? (head & 0x7fff) >> s->shift : 0;
}

/* Bits as a number that rises with the float's value. */
static inline uint64_t gw_order(const struct gw_shape *s, uint64_t bits)
{
	if (!s->is_float)
		return bits;
	return bits & s->sign ? ~bits & s->mask : bits | s->sign;
}

static inline uint64_t gw_disorder(const struct gw_shape *s, uint64_t ord)
{
	if (!s->is_float)
		return ord;
	return ord & s->sign ? ord & ~s->sign : ~ord & s->mask;
}

static inline unsigned gw_log2(uint64_t v)
{
	return 63 - (unsigned)__builtin_clzll(v);
}

/* A step as symbol and extra bits. */
struct gw_step {
	unsigned symbol, extra_bits;
	uint64_t extra;
};

enum { GW_STEP_NEAR = 8, GW_STEP_FAR = 17 }; /* steps up to 8 have a symbol of their own; the first of the others */

static inline struct gw_step gw_value_step(const struct gw_shape *s, uint64_t old, uint64_t new_bits)
{
	uint64_t d = (gw_order(s, new_bits) - gw_order(s, old)) & s->mask, m = d & s->sign ? -d & s->mask : d;
	unsigned down = d & s->sign ? 1 : 0, l;

	if (!m)
		return (struct gw_step){0, 0, 0};
	if (m <= GW_STEP_NEAR)
		return (struct gw_step){1 + 2 * ((unsigned)m - 1) + down, 0, 0};
	l = gw_log2(m - 1);
	return (struct gw_step){GW_STEP_FAR + 2 * (l - 3) + down, l, m - 1 - (1ull << l)};
}

static inline uint64_t gw_value_apply(const struct gw_shape *s, uint64_t old, unsigned symbol, uint64_t extra)
{
	unsigned down, l;
	uint64_t m;

	if (!symbol)
		return old;
	if (symbol < GW_STEP_FAR) {
		m = (symbol + 1) / 2;
		down = (symbol - 1) & 1;
	} else {
		l = (symbol - GW_STEP_FAR) / 2 + 3;
		m = (1ull << l) + extra + 1;
		down = (symbol - GW_STEP_FAR) & 1;
		/* Half the circle: that is a step down; the bits that say it is one up are nobody's. */
		if (m == s->sign && !down)
			return old;
	}
	return gw_disorder(s, (gw_order(s, old) + (down ? -m : m)) & s->mask);
}

struct gw_step gw_nibble_step(const struct gw_shape *s, uint64_t old, uint64_t new_bits);
uint64_t gw_nibble_apply(uint64_t old, unsigned symbol, uint64_t extra);

static inline struct gw_step gw_step_of(const struct gw_shape *s, enum gw_step_kind kind, uint64_t old,
					uint64_t new_bits)
{
	return kind == GW_STEPS_VALUE ? gw_value_step(s, old, new_bits) : gw_nibble_step(s, old, new_bits);
}

/* The new bits; equal to the old ones where the step is none that gw_step_of gives. */
static inline uint64_t gw_step_apply(const struct gw_shape *s, enum gw_step_kind kind, uint64_t old, unsigned symbol,
				     uint64_t extra)
{
	return kind == GW_STEPS_VALUE ? gw_value_apply(s, old, symbol, extra) : gw_nibble_apply(old, symbol, extra);
}

/* Extra bits of a symbol; -1 where the kind has no such symbol. 0 is no step. */
int gw_step_extra_bits(const struct gw_shape *s, enum gw_step_kind kind, unsigned symbol);

/* A gap in time as symbol (`other` apart) and extra bits. */
static inline unsigned gw_gap_symbol(uint32_t gap, unsigned *extra_bits, uint32_t *extra)
{
	uint32_t v = gap + 4;
	unsigned b = gw_log2(v) - 2;

	*extra_bits = b;
	*extra = v & ((1u << b) - 1);
	return 2 * (4 * b + ((v >> b) & 3));
}

/* --- plan and model --------------------------------------------------------------------------- */

/* Which elements are listed, and how long each of the others lasts. */
struct gw_plan {
	struct gw_shape shape;
	enum gw_step_kind kind;
	unsigned edge;                  /* exponents below are listed */
	uint8_t weight_log[GW_CLASSES]; /* of exponent edge + i; the last also of all above */
};

static inline unsigned gw_timed_class(const struct gw_plan *p, unsigned exponent)
{
	unsigned c = exponent - p->edge;

	return c < GW_CLASSES ? c : GW_CLASSES - 1;
}

static inline unsigned gw_listed_class(const struct gw_plan *p, unsigned exponent)
{
	unsigned c = p->edge - 1 - exponent;

	return c < GW_CLASSES ? c : GW_CLASSES - 1;
}

/* A distribution: how many of the GW_TABLE_SIZE slots each symbol has. GW_ESCAPE has at least one. */
struct gw_table {
	uint16_t slots[GW_SYMBOLS], first[GW_SYMBOLS];
	unsigned most;              /* the symbol whose slots are not written: all that are left */
	uint32_t at[GW_TABLE_SIZE]; /* symbol | (slots - 1) << 8 | (slot - first) << 20 */
};

struct gw_model {
	struct gw_plan plan;
	struct gw_table gap, step, listed[GW_CLASSES];
	int8_t extra_bits[GW_SYMBOLS]; /* of steps; -1: no such symbol */
};

/* --- survey ----------------------------------------------------------------------------------- */

/* A tile's old bits under a plan. */
struct gw_survey {
	uint32_t *before; /* time before group i; groups + 1 entries, then GW_SURVEY_SLACK of UINT32_MAX */
	uint64_t *listed; /* a bit an element */
};

struct gw_place {
	uint32_t at, begin; /* element, and when it begins */
	unsigned weight_log;
};

struct gw_sample;

struct gw_survey_ops {
	void (*take)(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n);
	/* The listed elements, rising; `at` has room for n + 8. Returns how many. */
	uint32_t (*listed)(const struct gw_survey *v, uint32_t n, uint32_t *at);
	/* Whose times they are, which rise and are below before[groups]. *group is at or before the first one's group,
	 * and is left at the last one's. */
	void (*find)(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		     const uint32_t *time, unsigned count, uint32_t *group, struct gw_place *place);
	/* When timed elements begin. */
	void (*begin)(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		      const uint32_t *at, size_t count, uint32_t *begin);
};

/* Those for a plan: without exponents there is nothing to look at. */
const struct gw_survey_ops *gw_survey_for(const struct gw_plan *p);
extern const struct gw_survey_ops gw_survey_scalar;
/* NULL where the machine or the build has not got it. */
const struct gw_survey_ops *gw_survey_avx2(void);
const struct gw_survey_ops *gw_survey_avx512(void);

/* Which implementation is used, as gw_print_use: tests and benchmarks choose. */
enum gw_survey_impl { GW_SURVEY_SCALAR, GW_SURVEY_AVX2, GW_SURVEY_AVX512 };
int gw_survey_use(enum gw_survey_impl impl);
enum gw_survey_impl gw_survey_used(void);

/* The elements of a tile that must be coded: all listed ones, and the timed ones that changed. */
struct gw_parts {
	uint32_t *listed_at, *timed_at;
	uint32_t *timed_change; /* which of the tile's changes */
	uint32_t *begin;	/* and when it begins */
	uint32_t listed, timed;
};

const struct gw_plan *gw_sample_plan(const struct gw_sample *s);
/* The second round of a sample. */
void gw_model_count(struct gw_sample *s, const struct gw_parts *parts, const void *old, uint32_t n,
		    const uint64_t *hot, const struct gw_tile_changes *c);

#endif
