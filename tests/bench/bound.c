#include "bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "patch/element.h"

enum { CLASSES = 2048, STEPS_TABLED = 65536 };

/* What is known of a dtype. Steps of narrow elements are counted in a table, of wide ones listed. */
struct counts {
	enum gw_dtype dtype;
	unsigned width, classes, shift;
	uint64_t mask;
	uint64_t n[CLASSES], k[CLASSES];
	uint32_t *steps; /* [class][step] */
	struct wide {
		uint64_t step;
		uint32_t class;
	} * wide;
	size_t wide_n, wide_cap;
	int err;
};

static void set_classes(struct counts *c)
{
	static const struct {
		enum gw_dtype dtype;
		unsigned classes, shift;
	} known[] = {
		{GW_DT_F64, 2048, 52},	     {GW_DT_F32, 256, 23},	  {GW_DT_BF16, 256, 7},
		{GW_DT_F16, 32, 10},	     {GW_DT_F8_E4M3, 128, 0},	  {GW_DT_F8_E5M2, 128, 0},
		{GW_DT_F8_E4M3FNUZ, 128, 0}, {GW_DT_F8_E5M2FNUZ, 128, 0},
	};

	c->classes = 1;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (known[i].dtype == c->dtype) {
			c->classes = known[i].classes;
			c->shift = known[i].shift;
		}
	c->mask = c->classes - 1;
}

static inline __attribute__((always_inline)) void histogram(struct counts *c, const uint8_t *p, uint64_t n,
							    unsigned width)
{
	for (uint64_t i = 0; i < n; i++)
		c->n[gw_element_load(p + i * width, width) >> c->shift & c->mask]++;
}

static void count_elements(struct counts *c, const uint8_t *p, uint64_t n)
{
	switch (c->width) {
	case 1:
		histogram(c, p, n, 1);
		break;
	case 2:
		histogram(c, p, n, 2);
		break;
	case 4:
		histogram(c, p, n, 4);
		break;
	default:
		histogram(c, p, n, 8);
	}
}

/* Floats in the order of their values, as in proto/PATCH.md. */
static uint64_t ord(uint64_t bits, unsigned width, int is_float)
{
	uint64_t sign = 1ULL << (8 * width - 1);

	return !is_float ? bits : bits & sign ? ~bits : bits | sign;
}

static void list_step(struct counts *c, uint32_t class, uint64_t step)
{
	if (c->wide_n == c->wide_cap) {
		size_t cap = c->wide_cap ? 2 * c->wide_cap : 1024;
		struct wide *w = realloc(c->wide, cap * sizeof *w);

		if (!w) {
			c->err = GW_ENOMEM;
			return;
		}
		c->wide = w;
		c->wide_cap = cap;
	}
	c->wide[c->wide_n++] = (struct wide){step, class};
}

static void count_changes(void *ctx, const struct bench_tensor *t, uint64_t first, const struct gw_tile_changes *ch)
{
	struct counts *c = ctx;
	unsigned w = t->width;
	int is_float = gw_dtype_is_float(t->dtype);

	(void)first;
	for (size_t i = 0; i < ch->n; i++) {
		uint64_t a = gw_element_load(ch->old_bits + i * w, w), b = gw_element_load(ch->new_bits + i * w, w);
		uint64_t step = ord(b, w, is_float) - ord(a, w, is_float);
		uint32_t class = (uint32_t)(a >> c->shift & c->mask);

		c->k[class]++;
		if (c->steps)
			c->steps[(size_t) class * STEPS_TABLED + (step & (w == 1 ? 0xff : 0xffff))]++;
		else
			list_step(c, class, w == 4 ? step & 0xffffffff : step);
	}
}

static double n_log2_n(double n)
{
	return n > 0 ? n * log2(n) : 0;
}

static double parameter(double n)
{
	return n > 1 ? 0.5 * log2(n) : 0;
}

/* Steps of one class: how often each came, summed over the distinct ones. */
struct steps {
	double sum;
	uint64_t distinct;
};

static struct steps tabled(const struct counts *c, unsigned class)
{
	struct steps s = {0, 0};
	const uint32_t *row = c->steps + (size_t) class * STEPS_TABLED;

	for (size_t i = 0; i < STEPS_TABLED; i++) {
		s.sum += n_log2_n(row[i]);
		s.distinct += row[i] != 0;
	}
	return s;
}

static int by_class_and_step(const void *a, const void *b)
{
	const struct wide *x = a, *y = b;

	if (x->class != y->class)
		return x->class < y->class ? -1 : 1;
	return (x->step > y->step) - (x->step < y->step);
}

/* *at: where the class begins in the sorted list, and where the next one does. */
static struct steps listed(const struct counts *c, unsigned class, size_t *at)
{
	struct steps s = {0, 0};
	size_t i = *at;

	while (i < c->wide_n && c->wide[i].class == class) {
		size_t same = i;

		while (same < c->wide_n && !by_class_and_step(&c->wide[i], &c->wide[same]))
			same++;
		s.sum += n_log2_n((double)(same - i));
		s.distinct++;
		i = same;
	}
	*at = i;
	return s;
}

static void sum_up(struct counts *c, struct bench_bound *out)
{
	size_t at = 0;

	if (c->wide_n)
		qsort(c->wide, c->wide_n, sizeof *c->wide, by_class_and_step);
	for (unsigned e = 0; e < c->classes; e++) {
		double n = (double)c->n[e], k = (double)c->k[e];
		struct steps s;

		out->elements += c->n[e];
		out->changed += c->k[e];
		if (!c->k[e])
			continue;
		s = c->steps ? tabled(c, e) : listed(c, e, &at);
		out->place_bits += n_log2_n(n) - n_log2_n(k) - n_log2_n(n - k);
		out->step_bits += n_log2_n(k) - s.sum;
		out->parameter_bits += (c->k[e] < c->n[e] ? parameter(n) : 0) + (double)(s.distinct - 1) * parameter(k);
	}
}

static int bound_of(const struct bench_pair *p, enum gw_dtype dtype, struct gw_changes_buf *b, struct bench_bound *out)
{
	struct counts *c = calloc(1, sizeof *c);
	int err = c ? 0 : GW_ENOMEM;

	if (err)
		return err;
	c->dtype = dtype;
	c->width = gw_dtype_width(dtype);
	set_classes(c);
	if (c->width <= 2)
		c->steps = calloc((size_t)c->classes * STEPS_TABLED, sizeof *c->steps);
	err = c->width <= 2 && !c->steps ? GW_ENOMEM : 0;
	for (uint32_t i = 0; i < p->count && !err; i++) {
		const struct bench_tensor *t = &p->tensors[i];

		if (t->dtype != dtype)
			continue;
		count_elements(c, t->old->p, t->elements);
		err = bench_each_change(t, b, count_changes, c);
		err = err ? err : c->err;
	}
	if (!err)
		sum_up(c, out);
	free(c->steps);
	free(c->wide);
	free(c);
	return err;
}

int bench_bound(const struct bench_pair *p, struct bench_bound *out)
{
	struct gw_changes_buf b;
	char seen[BENCH_DTYPES] = {0};
	int err = gw_changes_buf_init(&b);

	memset(out, 0, sizeof *out);
	for (uint32_t i = 0; i < p->count && !err; i++) {
		enum gw_dtype dtype = p->tensors[i].dtype;

		if (seen[dtype % BENCH_DTYPES])
			continue;
		seen[dtype % BENCH_DTYPES] = 1;
		err = bound_of(p, dtype, &b, out);
	}
	gw_changes_buf_free(&b);
	return err;
}
