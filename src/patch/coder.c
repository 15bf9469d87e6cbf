/*
 * Coding and decoding a tile. The decoder reads from the top of a stack of bits and puts the rest of a change's time
 * back on it; the coder undoes what the decoder will do, from its last step to its first.
 */
#include "patch/coder.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/coder_inside.h"

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum {
	GROUPS_MAX = GW_TILE_ELEMENTS_MAX / GW_GROUP,
	/* Words that putting back may need beyond those that the payload has. */
	BACK_WORDS = GW_TILE_ELEMENTS_MAX / 32 * GW_WEIGHT_LOG + GW_BATCH,
	PAYLOAD_MAX = GW_TILE_ELEMENTS_MAX * 8,
	WORDS_MAX = BACK_WORDS + PAYLOAD_MAX / 4,
};

struct gw_coder {
	struct gw_survey survey;
	struct gw_parts parts;
	const uint64_t *hot;  /* of the tile at hand */
	uint64_t *listed_new; /* decoding: new bits of the listed elements that changed, which listed_at then holds */
	uint32_t *words;
};

int gw_coder_new(struct gw_coder **out)
{
	struct gw_coder *k = calloc(1, sizeof *k);
	struct gw_parts *p;

	if (!k)
		return GW_ENOMEM;
	p = &k->parts;
	k->survey.before = malloc((GROUPS_MAX + 1 + GW_SURVEY_SLACK) * sizeof *k->survey.before);
	k->survey.listed = malloc(GW_TILE_ELEMENTS_MAX / 8);
	p->listed_at = malloc((GW_TILE_ELEMENTS_MAX + 8) * sizeof *p->listed_at);
	p->timed_at = malloc(GW_TILE_ELEMENTS_MAX * sizeof *p->timed_at);
	p->timed_change = malloc(GW_TILE_ELEMENTS_MAX * sizeof *p->timed_change);
	p->begin = malloc(GW_TILE_ELEMENTS_MAX * sizeof *p->begin);
	k->listed_new = malloc(GW_TILE_ELEMENTS_MAX * sizeof *k->listed_new);
	k->words = malloc((WORDS_MAX + 1) * sizeof *k->words);
	if (!k->survey.before || !k->survey.listed || !p->listed_at || !p->timed_at || !p->timed_change || !p->begin ||
	    !k->listed_new || !k->words) {
		gw_coder_free(k);
		return GW_ENOMEM;
	}
	*out = k;
	return 0;
}

void gw_coder_free(struct gw_coder *k)
{
	if (!k)
		return;
	free(k->survey.before);
	free(k->survey.listed);
	free(k->parts.listed_at);
	free(k->parts.timed_at);
	free(k->parts.timed_change);
	free(k->parts.begin);
	free(k->listed_new);
	free(k->words);
	free(k);
}

static INLINE int bit_of(const uint64_t *bits, uint32_t at)
{
	return (int)(bits[at / 64] >> at % 64 & 1);
}

static void look(struct gw_coder *k, const struct gw_plan *p, const void *old, uint32_t n, const uint64_t *hot)
{
	const struct gw_survey_ops *ops = gw_survey_for(p);

	assert(!hot || !p->shape.is_float);
	ops->take(&k->survey, p, old, n);
	k->hot = hot;
	for (uint32_t i = 0; hot && i < (n + 63) / 64; i++)
		k->survey.listed[i] |= hot[i];
	k->parts.listed = p->edge || hot ? ops->listed(&k->survey, n, k->parts.listed_at) : 0;
}

/* What must be coded of a tile with these changes. */
static void split(struct gw_coder *k, const struct gw_plan *p, const void *old, uint32_t n, const uint64_t *hot,
		  const struct gw_tile_changes *c)
{
	struct gw_parts *parts = &k->parts;
	uint32_t timed = 0;

	look(k, p, old, n, hot);
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t at = c->at[i];

		/* Written always, kept where it is a timed one: nobody can guess that. */
		parts->timed_at[timed] = at;
		parts->timed_change[timed] = i;
		timed += !bit_of(k->survey.listed, at);
	}
	parts->timed = timed;
	gw_survey_for(p)->begin(&k->survey, p, old, n, parts->timed_at, timed, parts->begin);
}

/* How many timed changes are read before the rest of their times is put back: half of what is left, so that the
 * last ones, when the stack runs empty, give away little. */
static uint32_t batch_of(uint32_t left)
{
	return left >= 2 * GW_BATCH ? GW_BATCH : (left + 1) / 2;
}

/* --- the stack, as the coder sees it ---------------------------------------------------------- */

struct pushing {
	uint64_t x;
	uint32_t *base, *p, *end; /* words below x; the highest at p[-1] */
	int full;
};

static inline void push_word(struct pushing *s)
{
	if (s->p == s->end) {
		s->full = 1;
		return;
	}
	*s->p++ = (uint32_t)s->x;
	s->x >>= 32;
}

/* bits <= 32 */
static inline void push_bits(struct pushing *s, uint32_t v, unsigned bits)
{
	if (bits && s->x >> (64 - bits))
		push_word(s);
	s->x = s->x << bits | v;
}

static inline void push_long(struct pushing *s, uint64_t v, unsigned bits)
{
	if (bits > 32)
		push_bits(s, (uint32_t)(v >> 32), bits - 32);
	push_bits(s, (uint32_t)v, bits > 32 ? 32 : bits);
}

/* What the decoder will put back. */
static inline uint32_t pull_bits(struct pushing *s, unsigned bits)
{
	uint32_t v = (uint32_t)(s->x & ((1u << bits) - 1));

	s->x >>= bits;
	if (s->x >> 32 == 0 && s->p > s->base)
		s->x = s->x << 32 | *--s->p;
	return v;
}

static inline void push_symbol(struct pushing *s, const struct gw_table *t, unsigned symbol)
{
	uint64_t slots = t->slots[symbol];

	if (!slots) {
		push_bits(s, symbol, 8);
		symbol = GW_ESCAPE;
		slots = t->slots[symbol];
	}
	if (s->x >> (64 - GW_TABLE_BITS) >= slots)
		push_word(s);
	s->x = (s->x / slots << GW_TABLE_BITS) + s->x % slots + t->first[symbol];
}

/* --- coding ----------------------------------------------------------------------------------- */

/* The table of a listed element. */
static INLINE const struct gw_table *listed_table(const struct gw_coder *k, const struct gw_model *m, uint32_t at,
						  uint64_t was, const struct gw_shape *sh)
{
	if (sh->is_float)
		return &m->listed[gw_listed_class(&m->plan, gw_exponent(sh, was))];
	return &m->listed[k->hot && bit_of(k->hot, at) ? GW_CLASS_HOT : 0];
}

static inline uint64_t load(const struct gw_shape *s, const void *p, size_t i)
{
	return gw_element_load((const uint8_t *)p + i * s->width, s->width);
}

/* Where speed counts, loops are compiled once for each of the frequent dtypes and once for all others. */
#define BY_SHAPE(function, plan, ...) \
	((plan)->shape.dtype == GW_DT_BF16	? function(__VA_ARGS__, gw_shape_make(GW_DT_BF16, 2, 1)) \
	 : (plan)->shape.dtype == GW_DT_F8_E4M3 ? function(__VA_ARGS__, gw_shape_make(GW_DT_F8_E4M3, 1, 1)) \
						: function(__VA_ARGS__, (plan)->shape))

static INLINE int push_listed(struct gw_coder *k, struct pushing *s, const struct gw_model *m, const void *old,
			      const struct gw_tile_changes *c, const struct gw_shape sh)
{
	uint32_t count = k->parts.listed;
	size_t i = c->n;

	while (count--) {
		uint32_t at = k->parts.listed_at[count];
		uint64_t was = load(&sh, old, at);
		const struct gw_table *t = listed_table(k, m, at, was, &sh);
		struct gw_step y = {0, 0, 0};

		while (i && c->at[i - 1] > at)
			i--;
		if (i && c->at[i - 1] == at) {
			y = gw_step_of(&sh, m->plan.kind, was, load(&sh, c->new_bits, i - 1));
			push_long(s, y.extra, y.extra_bits);
		}
		push_symbol(s, t, y.symbol);
	}
	return 0;
}

/* One timed change: gap, sign or step. */
static void push_timed(struct pushing *s, const struct gw_model *m, const struct gw_step *y, uint32_t gap)
{
	unsigned extra_bits, symbol;
	uint32_t extra;

	symbol = gw_gap_symbol(gap, &extra_bits, &extra);
	if (m->plan.kind == GW_STEPS_VALUE && y->symbol <= 2) {
		push_bits(s, extra << 1 | (y->symbol - 1), extra_bits + 1);
	} else {
		symbol++;
		push_long(s, y->extra, y->extra_bits);
		push_symbol(s, &m->step, y->symbol);
		push_bits(s, extra, extra_bits);
	}
	push_symbol(s, &m->gap, symbol);
}

/* Batches from the last to the first. */
static INLINE int push_all_timed(struct gw_coder *k, struct pushing *s, const struct gw_model *m, const void *old,
				 const struct gw_tile_changes *c, const struct gw_shape sh)
{
	uint32_t sizes[64 + GW_TILE_ELEMENTS_MAX / GW_BATCH], batches = 0, first = k->parts.timed;
	const struct gw_parts *p = &k->parts;

	for (uint32_t left = first; left; left -= sizes[batches++])
		sizes[batches] = batch_of(left);
	while (batches--) {
		uint32_t size = sizes[batches], time[GW_BATCH], base = 0;
		struct gw_step y[GW_BATCH];

		first -= size;
		for (uint32_t i = size; i--;) {
			uint64_t was = load(&sh, old, p->timed_at[first + i]);
			unsigned log = m->plan.weight_log[gw_timed_class(&m->plan, gw_exponent(&sh, was))];

			time[i] = p->begin[first + i] + pull_bits(s, log);
			y[i] = gw_step_of(&sh, m->plan.kind, was, load(&sh, c->new_bits, p->timed_change[first + i]));
		}
		if (first) {
			uint64_t was = load(&sh, old, p->timed_at[first - 1]);

			base = p->begin[first - 1] +
			       (1u << m->plan.weight_log[gw_timed_class(&m->plan, gw_exponent(&sh, was))]);
		}
		for (uint32_t i = size; i--;)
			push_timed(s, m, &y[i], time[i] - (i ? time[i - 1] + 1 : base));
	}
	return 0;
}

static size_t put_count(uint8_t *out, size_t cap, uint32_t v)
{
	size_t n = 0;

	for (; n < cap; v >>= 7) {
		out[n++] = (uint8_t)(v > 127 ? v | 128 : v);
		if (v <= 127)
			return n;
	}
	return 0;
}

/* The stack as bytes: x, then the words from the top. */
static size_t put_stack(const struct pushing *s, uint8_t *out, size_t cap)
{
	unsigned top = s->x ? gw_log2(s->x) / 8 + 1 : 0;
	size_t words = (size_t)(s->p - s->base);

	if (s->full || top + 4 * words > cap)
		return SIZE_MAX;
	for (unsigned i = 0; i < top; i++)
		out[i] = (uint8_t)(s->x >> 8 * i);
	for (size_t i = 0; i < words; i++)
		gw_put_le32(out + top + 4 * i, s->p[-1 - (ptrdiff_t)i]);
	return top + 4 * words;
}

size_t gw_tile_code(struct gw_coder *k, const struct gw_model *m, const void *old, uint32_t n, const uint64_t *hot,
		    const struct gw_tile_changes *c, uint8_t *out, size_t cap)
{
	struct pushing s = {0, k->words, k->words, k->words + WORDS_MAX, 0};
	size_t head, body;

	assert(c->n && n <= GW_TILE_ELEMENTS_MAX);
	split(k, &m->plan, old, n, hot, c);
	(void)BY_SHAPE(push_listed, &m->plan, k, &s, m, old, c);
	(void)BY_SHAPE(push_all_timed, &m->plan, k, &s, m, old, c);
	head = put_count(out, cap, k->parts.timed);
	if (!head)
		return 0;
	body = put_stack(&s, out + head, cap - head);
	return body == SIZE_MAX ? 0 : head + body;
}

void gw_model_learn(struct gw_coder *k, struct gw_sample *s, const void *old, uint32_t n, const uint64_t *hot,
		    const struct gw_tile_changes *c)
{
	split(k, gw_sample_plan(s), old, n, hot, c);
	gw_model_count(s, &k->parts, old, n, hot, c);
}

/* --- the stack, as the decoder sees it -------------------------------------------------------- */

struct popping {
	uint64_t x;
	uint32_t *base, *p, *end; /* words below x, the next at p */
	int err;
};

/* Where it is rare. */
static INLINE void refill(struct popping *s)
{
	if (__builtin_expect(s->x >> 32 == 0, 0) && s->p < s->end)
		s->x = s->x << 32 | *s->p++;
}

/* Where nobody can guess: without a branch. The word behind the last may be read. */
static INLINE void refill_often(struct popping *s)
{
	uint64_t low = s->x >> 32 == 0 && s->p < s->end, word = *s->p;

	s->x = low ? s->x << 32 | word : s->x;
	s->p += low;
}

/* bits <= 32 */
static INLINE uint32_t pop_bits(struct popping *s, unsigned bits)
{
	uint32_t v = (uint32_t)(s->x & ((1ull << bits) - 1));

	s->x >>= bits;
	refill_often(s);
	return v;
}

static inline uint64_t pop_long(struct popping *s, unsigned bits)
{
	uint64_t v = pop_bits(s, bits > 32 ? 32 : bits);

	return bits > 32 ? v | (uint64_t)pop_bits(s, bits - 32) << 32 : v;
}

static inline void put_back(struct popping *s, uint32_t v, unsigned bits)
{
	if (bits && s->x >> (64 - bits)) {
		if (s->p == s->base) {
			s->err = 1;
			return;
		}
		*--s->p = (uint32_t)s->x;
		s->x >>= 32;
	}
	s->x = s->x << bits | v;
}

static unsigned escaped(struct popping *s, const struct gw_table *t)
{
	unsigned symbol = pop_bits(s, 8);

	if (t->slots[symbol])
		s->err = 1;
	return symbol;
}

static INLINE unsigned pop_symbol(struct popping *s, const struct gw_table *t, int often)
{
	uint32_t e = t->at[s->x & (GW_TABLE_SIZE - 1)];

	s->x = (s->x >> GW_TABLE_BITS) * ((e >> 8 & (GW_TABLE_SIZE - 1)) + 1) + (e >> 20);
	if (often)
		refill_often(s);
	else
		refill(s);
	return __builtin_expect((e & 255) == GW_ESCAPE, 0) ? escaped(s, t) : e & 255;
}

/* Lays the words so that there is room below them. */
static int open_stack(struct gw_coder *k, struct popping *s, const uint8_t *p, size_t bytes)
{
	size_t words = bytes > 8 ? (bytes - 5) / 4 : 0, top = bytes - 4 * words;

	if (bytes > PAYLOAD_MAX || (top && !p[top - 1]))
		return GW_EMALFORMED;
	*s = (struct popping){0, k->words, k->words + BACK_WORDS, k->words + BACK_WORDS + words, 0};
	for (size_t i = 0; i < top; i++)
		s->x |= (uint64_t)p[i] << 8 * i;
	for (size_t i = 0; i < words; i++)
		s->p[i] = gw_le32(p + top + 4 * i);
	*s->end = 0; /* is read, never used */
	return 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

struct timed {
	unsigned symbol;
	uint64_t extra;
};

/* The step, other than the near ones that a gap's symbol holds. */
static int pop_step(struct popping *s, const struct gw_model *m, struct timed *y)
{
	int bits;

	y->symbol = pop_symbol(s, &m->step, 0);
	bits = m->extra_bits[y->symbol];
	if (bits < 0 || !y->symbol || (m->plan.kind == GW_STEPS_VALUE && y->symbol <= 2))
		return GW_EMALFORMED;
	y->extra = pop_long(s, (unsigned)bits);
	return 0;
}

/* A batch of times and steps; base is the first time that may be. */
static int pop_batch(struct popping *s, const struct gw_model *m, uint32_t base, uint32_t end, uint32_t *time,
		     struct timed *y, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++) {
		unsigned symbol = pop_symbol(s, &m->gap, 1), b = symbol / 8;
		uint32_t gap;

		if (symbol >= GW_GAP_SYMBOLS)
			return GW_EMALFORMED;
		y[i].extra = 0;
		if (symbol & 1) {
			gap = pop_bits(s, b);
			if (pop_step(s, m, &y[i]))
				return GW_EMALFORMED;
		} else {
			if (m->plan.kind != GW_STEPS_VALUE)
				return GW_EMALFORMED;
			gap = pop_bits(s, b + 1);
			y[i].symbol = 1 + (gap & 1);
			gap >>= 1;
		}
		gap += ((4 | (symbol / 2 & 3)) << b) - 4;
		/* No sum here can overflow: times end below 2^28, gaps below 2^30. */
		time[i] = base + gap;
		if (time[i] >= end)
			return GW_EMALFORMED;
		base = time[i] + 1;
	}
	return 0;
}

/* Timed changes into at and new_bits. */
static INLINE int pop_all_timed(struct gw_coder *k, struct popping *s, const struct gw_model *m, const uint8_t *old,
				uint32_t n, uint32_t count, uint32_t *at, uint8_t *new_bits, const struct gw_shape sh)
{
	const struct gw_survey_ops *ops = gw_survey_for(&m->plan);
	uint32_t end = k->survey.before[gw_div_up(n, GW_GROUP)], base = 0, group = 0, next = 0, time[GW_BATCH];
	struct timed y[GW_BATCH];
	struct gw_place place[GW_BATCH];

	for (uint32_t done = 0; done < count;) {
		uint32_t size = batch_of(count - done);

		if (pop_batch(s, m, base, end, time, y, size))
			return GW_EMALFORMED;
		ops->find(&k->survey, &m->plan, old, n, time, size, &group, place);
		for (uint32_t i = 0; i < size; i++, done++) {
			uint64_t was = load(&sh, old, place[i].at),
				 now = gw_step_apply(&sh, m->plan.kind, was, y[i].symbol, y[i].extra);

			if (place[i].at < next || now == was ||
			    (!sh.is_float && bit_of(k->survey.listed, place[i].at)))
				return GW_EMALFORMED;
			next = place[i].at + 1;
			at[done] = place[i].at;
			gw_element_store(new_bits + (size_t)done * sh.width, sh.width, now);
			put_back(s, time[i] - place[i].begin, place[i].weight_log);
		}
		base = place[size - 1].begin + (1u << place[size - 1].weight_log);
	}
	return s->err ? GW_EMALFORMED : 0;
}

/* A listed element's step, where its symbol says more than a near one. */
static NOINLINE int pop_far(struct popping *s, const struct gw_model *m, uint64_t was, unsigned symbol, uint64_t *now)
{
	int bits = m->extra_bits[symbol];

	if (bits < 0)
		return GW_EMALFORMED;
	*now = gw_step_apply(&m->plan.shape, m->plan.kind, was, symbol, pop_long(s, (unsigned)bits));
	return *now == was && symbol ? GW_EMALFORMED : 0;
}

/* Listed elements that changed, into listed_at and listed_new. Whether one did cannot be guessed: all are written, and
 * those that did not are written over. */
static INLINE int pop_listed(struct gw_coder *k, struct popping *stack, const struct gw_model *m, const uint8_t *old,
			     uint32_t *changes, const struct gw_shape sh)
{
	uint32_t count = k->parts.listed, found = 0, *places = k->parts.listed_at;
	struct popping s = *stack;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = places[i];
		uint64_t was = load(&sh, old, at), now;
		unsigned symbol = pop_symbol(&s, listed_table(k, m, at, was, &sh), 0);

		if (__builtin_expect(sh.is_float && symbol < GW_STEP_FAR, 1)) {
			uint64_t step = (symbol + 1) / 2;

			now = gw_disorder(&sh, (gw_order(&sh, was) + (symbol & 1 ? step : -step)) & sh.mask);
		} else if (pop_far(&s, m, was, symbol, &now)) {
			return GW_EMALFORMED;
		}
		places[found] = at;
		k->listed_new[found] = now;
		found += symbol != 0;
	}
	*changes = found;
	*stack = s;
	return s.err ? GW_EMALFORMED : 0;
}

/* Both by place, from the back, so that the timed ones need no room of their own. Which comes next cannot be guessed
 * either: it is chosen without a branch. */
static INLINE int merge(const struct gw_coder *k, uint32_t timed, uint32_t listed, uint32_t *at, uint8_t *new_bits,
			const struct gw_shape sh)
{
	const uint32_t *places = k->parts.listed_at;
	size_t width = sh.width;

	while (timed && listed) {
		uint32_t a = at[timed - 1], b = places[listed - 1], which = b > a, place = which ? b : a;
		uint64_t x = gw_element_load(new_bits + (timed - 1) * width, sh.width), y = k->listed_new[listed - 1];
		size_t to = timed + listed - 1;

		at[to] = place;
		gw_element_store(new_bits + to * width, sh.width, which ? y : x);
		timed -= 1 - which;
		listed -= which;
	}
	for (; listed; listed--) {
		at[listed - 1] = places[listed - 1];
		gw_element_store(new_bits + (listed - 1) * width, sh.width, k->listed_new[listed - 1]);
	}
	return 0;
}

/* The old bits of all changes. */
static INLINE int gather(const uint8_t *old, const uint32_t *at, size_t n, uint8_t *old_bits, const struct gw_shape sh)
{
	for (size_t i = 0; i < n; i++)
		gw_element_store(old_bits + i * sh.width, sh.width, load(&sh, old, at[i]));
	return 0;
}

int gw_tile_uncode(struct gw_coder *k, const struct gw_model *m, const uint8_t *p, size_t bytes, const void *old,
		   uint32_t n, const uint64_t *hot, uint32_t *at, uint8_t *old_bits, uint8_t *new_bits, size_t *changes)
{
	struct popping s;
	struct gw_rd head;
	uint64_t timed;
	uint32_t listed = 0;
	int err;

	assert(n <= GW_TILE_ELEMENTS_MAX);
	gw_rd_init(&head, p, bytes);
	timed = gw_rd_varint(&head);
	if (head.err || timed > n)
		return GW_EMALFORMED;
	err = open_stack(k, &s, p + head.at, bytes - head.at);
	if (err)
		return err;
	look(k, &m->plan, old, n, hot);
	err = BY_SHAPE(pop_all_timed, &m->plan, k, &s, m, old, n, (uint32_t)timed, at, new_bits);
	if (!err)
		err = BY_SHAPE(pop_listed, &m->plan, k, &s, m, old, &listed);
	if (err)
		return err;
	if (s.x || s.p != s.end || !(timed + listed))
		return GW_EMALFORMED;
	*changes = timed + listed;
	(void)BY_SHAPE(merge, &m->plan, k, (uint32_t)timed, listed, at, new_bits);
	(void)BY_SHAPE(gather, &m->plan, old, at, *changes, old_bits);
	return 0;
}
