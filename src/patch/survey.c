/* Old bits seen as time: the reference, and which implementation runs. */
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "patch/coder_inside.h"

static inline uint32_t weight(const struct gw_plan *p, const uint8_t *old, uint32_t i, unsigned *log)
{
	unsigned width = p->shape.width,
		 e = gw_exponent(&p->shape, gw_element_load(old + (size_t)i * width, width));

	if (e < p->edge)
		return 0;
	*log = p->weight_log[gw_timed_class(p, e)];
	return 1u << *log;
}

static void take(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n)
{
	uint32_t time = 0, groups = (n + GW_GROUP - 1) / GW_GROUP;
	unsigned log;

	memset(v->listed, 0, (n + 63) / 64 * sizeof *v->listed);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t w = weight(p, old, i, &log);

		if (i % GW_GROUP == 0)
			v->before[i / GW_GROUP] = time;
		if (!w)
			v->listed[i / 64] |= 1ull << i % 64;
		time += w;
	}
	v->before[groups] = time;
	for (unsigned i = 1; i <= GW_SURVEY_SLACK; i++)
		v->before[groups + i] = UINT32_MAX;
}

static uint32_t listed(const struct gw_survey *v, uint32_t n, uint32_t *at)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i += 64)
		for (uint64_t m = v->listed[i / 64]; m; m &= m - 1)
			at[k++] = i + (unsigned)__builtin_ctzll(m);
	return k;
}

static void find(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		 const uint32_t *time, unsigned count, uint32_t *group, struct gw_place *place)
{
	uint32_t g = *group;

	(void)n;
	for (unsigned k = 0; k < count; k++) {
		uint32_t begin, w = 0;
		unsigned log = 0;

		while (v->before[g + 1] <= time[k])
			g++;
		begin = v->before[g];
		for (uint32_t i = g * GW_GROUP;; i++, begin += w) {
			w = weight(p, old, i, &log);
			if (time[k] - begin >= w)
				continue;
			place[k] = (struct gw_place){i, begin, log};
			break;
		}
	}
	*group = g;
}

static void begin(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		  const uint32_t *at, size_t count, uint32_t *begin)
{
	unsigned log;

	(void)n;
	for (size_t k = 0; k < count; k++) {
		begin[k] = v->before[at[k] / GW_GROUP];
		for (uint32_t i = at[k] / GW_GROUP * GW_GROUP; i < at[k]; i++)
			begin[k] += weight(p, old, i, &log);
	}
}

const struct gw_survey_ops gw_survey_scalar = {take, listed, find, begin};

/* Without exponents every element lasts one unit of time, or all are listed. */
static void take_flat(struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n)
{
	uint32_t groups = (n + GW_GROUP - 1) / GW_GROUP;

	(void)old;
	memset(v->listed, p->edge ? 0xff : 0, (n + 63) / 64 * sizeof *v->listed);
	if (p->edge && n % 64)
		v->listed[n / 64] = (1ull << n % 64) - 1;
	for (uint32_t g = 0; g <= groups; g++)
		v->before[g] = p->edge ? 0 : g < groups ? g * GW_GROUP : n;
	memset(v->before + groups + 1, 0xff, GW_SURVEY_SLACK * sizeof *v->before);
}

static void find_flat(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		      const uint32_t *time, unsigned count, uint32_t *group, struct gw_place *place)
{
	(void)v, (void)p, (void)old, (void)n, (void)group;
	for (unsigned k = 0; k < count; k++)
		place[k] = (struct gw_place){time[k], time[k], 0};
}

static void begin_flat(const struct gw_survey *v, const struct gw_plan *p, const uint8_t *old, uint32_t n,
		       const uint32_t *at, size_t count, uint32_t *begin)
{
	(void)v, (void)p, (void)old, (void)n;
	memcpy(begin, at, count * sizeof *begin);
}

static const struct gw_survey_ops flat = {take_flat, listed, find_flat, begin_flat};

/* --- choice ----------------------------------------------------------------------------------- */

static _Atomic(const struct gw_survey_ops *) used;

static const struct gw_survey_ops *ops_of(enum gw_survey_impl impl)
{
	switch (impl) {
	case GW_SURVEY_SCALAR:
		return &gw_survey_scalar;
	case GW_SURVEY_AVX2:
		return gw_survey_avx2();
	default:
		return gw_survey_avx512();
	}
}

/* Any thread may come first; all choose alike. */
static const struct gw_survey_ops *best(void)
{
	const struct gw_survey_ops *o = atomic_load_explicit(&used, memory_order_acquire);

	for (int i = GW_SURVEY_AVX512; !o; i--) {
		o = ops_of((enum gw_survey_impl)i);
		if (o)
			atomic_store_explicit(&used, o, memory_order_release);
	}
	return o;
}

const struct gw_survey_ops *gw_survey_for(const struct gw_plan *p)
{
	return p->shape.is_float ? best() : &flat;
}

int gw_survey_use(enum gw_survey_impl impl)
{
	const struct gw_survey_ops *o = ops_of(impl);

	if (!o)
		return GW_EUNSUP;
	atomic_store_explicit(&used, o, memory_order_release);
	return 0;
}

enum gw_survey_impl gw_survey_used(void)
{
	const struct gw_survey_ops *o = best();

	return o == &gw_survey_scalar ? GW_SURVEY_SCALAR : o == gw_survey_avx2() ? GW_SURVEY_AVX2 : GW_SURVEY_AVX512;
}
