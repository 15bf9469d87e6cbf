#include "synth_stats.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { SAMPLE = 1 << 20, FROZEN_IN_FOUR = 3, F8_LARGEST = 0x7e };

/* What a hash is for: the streams are independent. Steps are STREAM_STEP + number. */
enum { STREAM_WEIGHT = 1, STREAM_ROW = 2, STREAM_TENSOR = 3, STREAM_SAMPLE = 4, STREAM_STEP = 16 };

/* --- hashing: splitmix64 by counter ------------------------------------------------------------- */

static inline uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
	z = (z ^ z >> 27) * 0x94d049bb133111ebU;
	return z ^ z >> 31;
}

static uint64_t stream(const struct synth_stats *s, uint64_t tensor, uint64_t what)
{
	return mix(mix(s->seed + 0x9e3779b97f4a7c15U * (what + 1)) ^ (tensor + 1) * 0xd1342543de82ef95U);
}

static inline uint64_t at(uint64_t stream_key, uint64_t i)
{
	return mix(stream_key + 0x9e3779b97f4a7c15U * (i + 1));
}

/* --- tables, from basic operations alone -------------------------------------------------------- */

/* e^x for |x| < 32: a series at x / 1024, squared ten times. */
static double exponential(double x)
{
	double y = x / 1024, term = 1, sum = 1;

	for (int i = 1; i < 12; i++) {
		term = term * y / i;
		sum = sum + term;
	}
	for (int i = 0; i < 10; i++)
		sum = sum * sum;
	return sum;
}

/* Walks the density of |N(0,1)| by trapezoids and notes where each share of the probability is reached. */
static void make_quantiles(float out[SYNTH_QUANTILES + 1])
{
	const double step = 1.0 / 16384, end = 4.5, normal = 0.79788456080286536; /* sqrt(2 / pi) */
	double x = 0, sum = 0, density = normal;
	int i = 0;

	while (x < end) {
		double next = normal * exponential(-(x + step) * (x + step) / 2), area = (density + next) / 2 * step;

		while (i < SYNTH_QUANTILES && (double)i / SYNTH_QUANTILES <= sum + area) {
			out[i] = (float)(x + ((double)i / SYNTH_QUANTILES - sum) / area * step);
			i++;
		}
		sum = sum + area;
		density = next;
		x = x + step;
	}
	while (i <= SYNTH_QUANTILES)
		out[i++] = (float)end;
}

/* e^x for x from -spread to +spread. */
static void make_scales(float out[SYNTH_SCALES], double by, double spread)
{
	for (int i = 0; i < SYNTH_SCALES; i++)
		out[i] = (float)(by * exponential(spread * ((2.0 * i + 1) / SYNTH_SCALES - 1)));
}

void synth_stats_init(struct synth_stats *s, uint64_t seed)
{
	memset(s, 0, sizeof *s);
	s->seed = seed;
	make_quantiles(s->normal);
	for (int i = 0; i <= SYNTH_QUANTILES; i++)
		s->clipped[i] = s->normal[i] < 3 ? s->normal[i] : 3;
	make_scales(s->row_scale, 0.02, 0.6);
	make_scales(s->row_factor, 1, 0.43);
	make_scales(s->tensor_factor, 1, 0.7);
}

/* --- elements ------------------------------------------------------------------------------------ */

static inline uint32_t bits_of(float v)
{
	uint32_t b;

	memcpy(&b, &v, sizeof b);
	return b;
}

static inline float float_of(uint32_t b)
{
	float v;

	memcpy(&v, &b, sizeof v);
	return v;
}

/* A draw by quantiles: bit 63 the sign, 11 bits the quantile, 24 bits the place between it and the next. No branch:
 * nothing about random bits can be predicted. */
static inline float draw_from(const float quantile[SYNTH_QUANTILES + 1], uint64_t h)
{
	const float *q = &quantile[h >> 52 & (SYNTH_QUANTILES - 1)];
	float part = (float)(int32_t)(h >> 20 & 0xffffff) * 0x1p-24F;

	return float_of(bits_of(q[0] + part * (q[1] - q[0])) ^ (uint32_t)(h >> 63) << 31);
}

struct row {
	float scale, factor; /* of weights; of steps, the rate aside */
};

static struct row row_of(const struct synth_stats *s, const struct synth_model *m, uint32_t tensor, uint64_t row)
{
	uint64_t h = at(stream(s, tensor, STREAM_ROW), row), t = at(stream(s, tensor, STREAM_TENSOR), 0);
	struct row r = {s->row_scale[h & 255], s->tensor_factor[t & 255] * s->row_factor[h >> 8 & 255]};

	if (m->tensors[tensor].kind == SYNTH_EMBED && (h >> 16 & 3) < FROZEN_IN_FOUR)
		r.factor = 0;
	return r;
}

static uint64_t row_elements(const struct synth_tensor *t)
{
	return t->rank == 2 ? t->shape[1] : t->elements;
}

void synth_masters(const struct synth_stats *s, const struct synth_model *m, uint32_t tensor, uint64_t first, size_t n,
		   float *out)
{
	const struct synth_tensor *t = &m->tensors[tensor];
	uint64_t key = stream(s, tensor, STREAM_WEIGHT), cols = row_elements(t);
	size_t done = 0;

	if (t->kind == SYNTH_NORM) {
		for (size_t i = 0; i < n; i++)
			out[i] = 1 + 0.1F * draw_from(s->normal, at(key, first + i));
		return;
	}
	while (done < n) {
		uint64_t row = (first + done) / cols;
		size_t end = (size_t)gw_min_u64(n, (row + 1) * cols - first);
		float scale = row_of(s, m, tensor, row).scale;

		for (size_t i = done; i < end; i++)
			out[i] = scale * draw_from(s->normal, at(key, first + i));
		done = end;
	}
}

void synth_step(const struct synth_stats *s, const struct synth_model *m, uint32_t tensor, uint64_t first, size_t n,
		uint64_t step, float *masters)
{
	const struct synth_tensor *t = &m->tensors[tensor];
	uint64_t key = stream(s, tensor, STREAM_STEP + step), cols = row_elements(t);
	size_t done = t->kind == SYNTH_NORM ? n : 0;

	while (done < n) {
		uint64_t row = (first + done) / cols;
		size_t end = (size_t)gw_min_u64(n, (row + 1) * cols - first);
		float by = s->rate * row_of(s, m, tensor, row).factor;

		for (size_t i = done; i < end && by > 0; i++) {
			float u = by * draw_from(s->clipped, at(key, first + i));

			masters[i] = masters[i] + u;
		}
		done = end;
	}
}

static inline uint32_t to_bf16(float v)
{
	uint32_t b = bits_of(v);

	return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

void synth_cast(const float *masters, size_t n, uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		gw_put_le16(out + 2 * i, (uint16_t)to_bf16(masters[i]));
}

/* Exponent bias 7, 3 bits of mantissa; |v| is at most 448 but for rounding. */
static inline uint8_t to_e4m3(float v)
{
	uint32_t b = bits_of(v), sign = b >> 24 & 0x80;
	float size = float_of(b & 0x7fffffff);

	if (size < 0x1p-6F) {
		/* Below the normal numbers steps are 2^-9: the addition rounds to whole ones. */
		float whole = size * 512 + 0x1.8p23F;

		return (uint8_t)(sign | (bits_of(whole) & 15));
	}
	b = bits_of(size);
	b = (b + 0x7ffff + (b >> 20 & 1)) >> 20;
	b -= (127 - 7) << 3;
	return (uint8_t)(sign | (b > F8_LARGEST ? F8_LARGEST : b));
}

void synth_quantise(const float *masters, size_t rows, size_t cols, uint8_t *out, float *scales)
{
	for (size_t left = 0, block = 0; left < cols; left += SYNTH_SCALE_BLOCK, block++) {
		size_t end = (size_t)gw_min_u64(cols, left + SYNTH_SCALE_BLOCK);
		uint32_t most = 0;

		for (size_t r = 0; r < rows; r++)
			for (size_t c = left; c < end; c++) {
				uint32_t b = to_bf16(masters[r * cols + c]) & 0x7fff;

				most = b > most ? b : most;
			}
		scales[block] = most ? float_of(most << 16) / 448 : 1;
		for (size_t r = 0; r < rows; r++)
			for (size_t c = left; c < end; c++)
				out[r * cols + c] =
					to_e4m3(float_of(to_bf16(masters[r * cols + c]) << 16) / scales[block]);
	}
}

/* --- the rate ------------------------------------------------------------------------------------ */

struct sample {
	float weight, step; /* the step at rate 1 */
	float ulp;	    /* 0: does not count */
};

/* The place value of the last bit of a weight: in bf16, or in e4m3 with the scale of a typical block, whose largest
 * weight is 0.117. */
static float ulp_of(float weight, enum gw_dtype dtype)
{
	const float scale = 0.117F / 448;
	uint32_t exponent = bits_of(weight) >> 23 & 0xff;

	if (dtype == GW_DT_F8_E4M3) {
		exponent = bits_of(weight / scale) >> 23 & 0xff;
		return scale * (exponent > 127 - 6 ? float_of((exponent - 3) << 23) : 0x1p-9F);
	}
	return float_of(exponent > 7 ? (exponent - 7) << 23 : 1U << 16);
}

static void draw(const struct synth_stats *s, const struct synth_model *m, struct sample *out)
{
	uint64_t key = stream(s, 0, STREAM_SAMPLE);
	uint32_t tensor = 0;

	/* Evenly over all elements, each at a random place in its share. */
	for (uint64_t i = 0; i < SAMPLE; i++) {
		const double share = (double)m->elements / SAMPLE;
		uint64_t element = (uint64_t)(((double)i + (double)(at(key, i) >> 11) * 0x1p-53) * share);
		const struct synth_tensor *t;
		struct row row;

		element = gw_min_u64(element, m->elements - 1);
		while (element >= m->tensors[tensor].first + m->tensors[tensor].elements)
			tensor++;
		t = &m->tensors[tensor];
		element -= t->first;
		row = row_of(s, m, tensor, element / row_elements(t));
		synth_masters(s, m, tensor, element, 1, &out[i].weight);
		out[i].step = row.factor * draw_from(s->clipped, at(stream(s, tensor, STREAM_STEP + 1), element));
		if (t->kind == SYNTH_NORM)
			out[i].step = 0;
		out[i].ulp =
			m->view == SYNTH_VIEW_FP8 && t->dtype != GW_DT_F8_E4M3 ? 0 : ulp_of(out[i].weight, t->dtype);
	}
}

static double expected_density(const struct sample *sample, float rate)
{
	double sum = 0, count = 0;

	for (size_t i = 0; i < SAMPLE; i++) {
		float after = sample[i].weight + rate * sample[i].step, moved = after - sample[i].weight, p;

		if (!(sample[i].ulp > 0))
			continue;
		p = (moved < 0 ? -moved : moved) / sample[i].ulp;
		sum = sum + (p < 1 ? (double)p : 1);
		count = count + 1;
	}
	return sum / count;
}

int synth_stats_solve(struct synth_stats *s, const struct synth_model *m, double density, double *expected)
{
	struct sample *sample = malloc(SAMPLE * sizeof *sample);
	float low = 0x1p-40F, high = 1;

	if (!sample)
		return GW_ENOMEM;
	draw(s, m, sample);
	if (expected_density(sample, high) < density) {
		free(sample);
		return GW_EINVAL;
	}
	/* By halves of the logarithm: floats of one sign are ordered as their bits. */
	for (uint32_t a = bits_of(low), b = bits_of(high); b - a > 256;) {
		uint32_t middle = a + (b - a) / 2;

		s->rate = float_of(middle);
		*expected = expected_density(sample, s->rate);
		if (*expected < density)
			a = middle;
		else
			b = middle;
	}
	free(sample);
	return 0;
}
