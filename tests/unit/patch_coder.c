#include "patch/coder.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "patch/body.h"
#include "patch/coder_inside.h"
#include "patch/scan.h"
#include "patch_file.h"

static const enum gw_dtype dtypes[] = {
#define GW_DTYPE(name, number, bits, class) GW_DT_##name,
#include "weights/dtype.def"
#undef GW_DTYPE
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

struct tile {
	unsigned width;
	uint32_t n;
	uint8_t *old, *new_bits;
	struct gw_changes_buf changes, decoded;
	struct gw_tile_changes c;
	uint8_t *payload;
	struct gw_coder *coder;
};

static void tile_init(struct tile *t, uint32_t n)
{
	t->n = n;
	t->old = malloc((size_t)n * 8);
	t->new_bits = malloc((size_t)n * 8);
	t->payload = malloc((size_t)n * 16 + 64);
	ck_assert_int_eq(gw_changes_buf_init(&t->changes), 0);
	ck_assert_int_eq(gw_changes_buf_init(&t->decoded), 0);
	ck_assert_int_eq(gw_coder_new(&t->coder), 0);
}

static void tile_free(struct tile *t)
{
	free(t->old);
	free(t->new_bits);
	free(t->payload);
	gw_changes_buf_free(&t->changes);
	gw_changes_buf_free(&t->decoded);
	gw_coder_free(t->coder);
}

/* Random old bits; one element in `every` gets other bits, of which `wild` in 16 are any, the rest ±1 step. */
static void tile_fill(struct tile *t, struct gw_rng *rng, enum gw_dtype dtype, uint64_t every, unsigned wild)
{
	struct gw_tile_rect r = {0, 1, 0, t->n, t->n};

	t->width = gw_dtype_width(dtype);
	for (uint32_t i = 0; i < t->n; i++) {
		uint64_t o = gw_rng_u64(rng), v = o;

		if (!gw_rng_below(rng, every))
			v = gw_rng_below(rng, 16) < wild ? gw_rng_u64(rng) : gw_rng_below(rng, 2) ? o + 1 : o - 1;
		gw_element_store(t->old + (size_t)i * t->width, t->width, o);
		gw_element_store(t->new_bits + (size_t)i * t->width, t->width, v);
	}
	gw_scan_tile(&t->changes, t->old, t->new_bits, t->width, &r, &t->c);
}

static struct gw_model *learned(struct tile *t, enum gw_dtype dtype)
{
	struct gw_sample *s;
	struct gw_model *m;

	ck_assert_int_eq(gw_sample_new(&s, dtype), 0);
	gw_model_see(s, t->old, t->n, NULL, &t->c);
	gw_model_plan(s);
	gw_model_learn(t->coder, s, t->old, t->n, NULL, &t->c);
	ck_assert_int_eq(gw_model_make(&m, s), 0);
	gw_sample_free(s);
	return m;
}

/* Through the bytes that stand in a patch. */
static struct gw_model *passed_on(struct gw_model *m, enum gw_dtype dtype)
{
	struct gw_model *read = NULL;
	struct gw_wr w, again;
	struct gw_rd r;

	gw_wr_init(&w, 65536);
	gw_wr_init(&again, 65536);
	gw_model_write(m, &w);
	gw_rd_init(&r, w.p, w.n);
	ck_assert_uint_eq(gw_rd_u8(&r), dtype);
	ck_assert_int_eq(gw_model_read(&read, dtype, &r), 0);
	ck_assert_int_eq(gw_rd_end(&r), 0);
	gw_model_write(read, &again);
	ck_assert_uint_eq(again.n, w.n);
	ck_assert_mem_eq(again.p, w.p, w.n);
	/* Cut anywhere, it is refused. */
	for (size_t n = 1; n < w.n; n++) {
		struct gw_model *none;

		gw_rd_init(&r, w.p + 1, n - 1);
		ck_assert_int_ne(gw_model_read(&none, dtype, &r), 0);
	}
	gw_wr_free(&w);
	gw_wr_free(&again);
	gw_model_free(m);
	return read;
}

static int uncode(struct tile *t, const struct gw_model *m, size_t size, size_t *got)
{
	return gw_tile_uncode(t->coder, m, t->payload, size, t->old, t->n, NULL, t->decoded.at, t->decoded.old_bits,
			      t->decoded.new_bits, got);
}

/* What was decoded has no other payload than the one it came from. */
static int is_canonical(struct tile *t, const struct gw_model *m, size_t size, size_t got)
{
	struct gw_tile_changes c = {got, t->decoded.at, t->decoded.old_bits, t->decoded.new_bits};
	uint8_t *again = malloc(size);
	int same = gw_tile_code(t->coder, m, t->old, t->n, NULL, &c, again, size) == size && !memcmp(again, t->payload, size);

	free(again);
	return same;
}

static size_t check_decodes(struct tile *t, const struct gw_model *m)
{
	size_t got, size = gw_tile_code(t->coder, m, t->old, t->n, NULL, &t->c, t->payload, (size_t)t->n * 16 + 64);

	ck_assert_uint_gt(size, 0);
	ck_assert_int_eq(uncode(t, m, size, &got), 0);
	ck_assert_uint_eq(got, t->c.n);
	ck_assert_mem_eq(t->decoded.at, t->c.at, got * sizeof *t->c.at);
	ck_assert_mem_eq(t->decoded.old_bits, t->c.old_bits, got * t->width);
	ck_assert_mem_eq(t->decoded.new_bits, t->c.new_bits, got * t->width);
	return size;
}

static void check_round_trip(struct tile *t, enum gw_dtype dtype)
{
	struct gw_model *m = learned(t, dtype);
	size_t size, got;

	if (!m)
		return;
	m = passed_on(m, dtype);
	size = check_decodes(t, m);
	/* A longer or shorter payload is refused, or is the one of other changes. */
	t->payload[size] = 0;
	for (size_t n = size - 1; n <= size + 1; n += 2)
		if (!uncode(t, m, n, &got))
			ck_assert_int_eq(is_canonical(t, m, n, got), 1);
	/* Without room there is none, and no byte behind the room is touched. */
	for (size_t cap = 0; cap < size; cap += 1 + size / 50) {
		t->payload[cap] = 0xa5;
		ck_assert_uint_eq(gw_tile_code(t->coder, m, t->old, t->n, NULL, &t->c, t->payload, cap), 0);
		ck_assert_uint_eq(t->payload[cap], 0xa5);
	}
	gw_model_free(m);
}

START_TEST(coder_round_trips_for_every_dtype_and_density)
{
	static const uint64_t every[] = {5000, 300, 20, 2, 1};
	enum gw_dtype dtype = dtypes[_i];
	struct gw_rng rng;
	struct tile t;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	tile_init(&t, 20011);
	for (size_t k = 0; k < sizeof every / sizeof every[0]; k++)
		for (unsigned wild = 0; wild <= 16; wild += 8) {
			tile_fill(&t, &rng, dtype, every[k], wild);
			if (t.c.n)
				check_round_trip(&t, dtype);
		}
	tile_free(&t);
}
END_TEST

/* NaN payloads, both zeros, infinities, the ends of every range: all pairs of odd values. */
START_TEST(coder_round_trips_odd_values)
{
	static const uint64_t odd[] = {0,
				       1,
				       0x7f,
				       0x80,
				       0xff,
				       0x7f80,
				       0x7fff,
				       0x8000,
				       0xff80,
				       0xffff,
				       0x7f800001,
				       0x7fffffff,
				       0x80000000,
				       0xffffffff,
				       0x7ff0000000000001,
				       0x7fffffffffffffff,
				       0x8000000000000000,
				       0xffffffffffffffff};
	enum { N = sizeof odd / sizeof odd[0] };
	enum gw_dtype dtype = dtypes[_i];
	unsigned width = gw_dtype_width(dtype);
	struct gw_tile_rect r = {0, 1, 0, (uint64_t)N * N, (uint64_t)N * N};
	struct tile t;

	tile_init(&t, N * N);
	t.width = width;
	for (size_t i = 0; i < (size_t)N * N; i++) {
		gw_element_store(t.old + i * width, width, odd[i / N]);
		gw_element_store(t.new_bits + i * width, width, odd[i % N]);
	}
	gw_scan_tile(&t.changes, t.old, t.new_bits, width, &r, &t.c);
	check_round_trip(&t, dtype);
	tile_free(&t);
}
END_TEST

/* Any bytes as a payload are refused, or are the only payload of changes inside the tile. */
START_TEST(coder_takes_any_bytes)
{
	static const enum gw_dtype some[] = {GW_DT_BF16, GW_DT_F8_E4M3, GW_DT_F32, GW_DT_I32, GW_DT_U8, GW_DT_F64};
	struct gw_rng rng;
	struct tile t;
	int wrong = 0;

	gw_rng_init(&rng, test_seed());
	tile_init(&t, 5000);
	for (unsigned k = 0; k < sizeof some / sizeof some[0]; k++) {
		struct gw_model *m;

		tile_fill(&t, &rng, some[k], 10, 4);
		m = learned(&t, some[k]);
		for (int round = 0; round < 4000; round++) {
			size_t got, size = gw_tile_code(t.coder, m, t.old, t.n, NULL, &t.c, t.payload, (size_t)t.n * 16);

			size = gw_rng_below(&rng, 4) ? size : gw_rng_below(&rng, size);
			for (uint64_t i = gw_rng_below(&rng, 4) ? 1 : size / 2; size && i-- > 0;)
				t.payload[gw_rng_below(&rng, size)] ^= (uint8_t)(1 << gw_rng_below(&rng, 8));
			if (uncode(&t, m, size, &got))
				continue;
			wrong += !is_canonical(&t, m, size, got);
			for (size_t i = 0; i < got; i++)
				wrong += t.decoded.at[i] >= t.n || (i && t.decoded.at[i] <= t.decoded.at[i - 1]) ||
					 !memcmp(t.decoded.old_bits + i * t.width, t.decoded.new_bits + i * t.width,
						 t.width);
		}
		gw_model_free(m);
	}
	ck_assert_int_eq(wrong, 0);
	tile_free(&t);
}
END_TEST

/* A model codes tiles that are nothing like its sample. */
START_TEST(model_of_one_tile_codes_another)
{
	enum gw_dtype dtype = dtypes[_i];
	struct gw_rng rng;
	struct tile t;

	gw_rng_init(&rng, test_seed() + (uint64_t)_i);
	tile_init(&t, 9001);
	for (int round = 0; round < 8; round++) {
		struct gw_model *m;

		tile_fill(&t, &rng, dtype, round % 2 ? 3 : 1000, (unsigned)gw_rng_below(&rng, 17));
		m = t.c.n ? learned(&t, dtype) : NULL;
		tile_fill(&t, &rng, dtype, 1 + gw_rng_below(&rng, 50), (unsigned)gw_rng_below(&rng, 17));
		if (m && t.c.n)
			(void)check_decodes(&t, m);
		gw_model_free(m);
	}
	tile_free(&t);
}
END_TEST

static uint32_t survey_diff(const struct gw_survey *a, const struct gw_survey *b, uint32_t n)
{
	uint32_t groups = (n + GW_GROUP - 1) / GW_GROUP, wrong = 0;

	for (uint32_t i = 0; i < groups + 1 + GW_SURVEY_SLACK; i++)
		wrong += a->before[i] != b->before[i];
	for (uint32_t i = 0; i < (n + 63) / 64; i++)
		wrong += a->listed[i] != b->listed[i];
	return wrong;
}

/* Vectors see what the reference sees: any plan, length, alignment. */
START_TEST(surveys_agree)
{
	enum { N = 3000 };
	static const enum gw_dtype floats[] = {GW_DT_BF16, GW_DT_F16, GW_DT_F32, GW_DT_F64, GW_DT_F8_E4M3, GW_DT_F8_E5M2};
	const struct gw_survey_ops *ops[] = {gw_survey_avx2(), gw_survey_avx512()};
	static uint32_t before[2][N / 32 + 32], at[2][N + 8], begin[2][N], order[N];
	static uint64_t listed[2][N / 64 + 1];
	struct gw_survey v[2] = {{before[0], listed[0]}, {before[1], listed[1]}};
	struct gw_rng rng;

	gw_rng_init(&rng, test_seed());
	for (int round = 0; round < 3000; round++) {
		struct gw_plan p = {.shape = gw_shape_of(floats[gw_rng_below(&rng, 6)])};
		uint32_t n = 1 + (uint32_t)gw_rng_below(&rng, gw_rng_below(&rng, 2) ? 200 : N), timed = 0, times = 0;
		size_t bytes = (size_t)n * p.shape.width;
		uint8_t *mem = malloc(bytes + 1), *old = mem + gw_rng_below(&rng, 2); /* exact: a wild read is seen */

		for (size_t i = 0; i < bytes; i++)
			old[i] = (uint8_t)gw_rng_u64(&rng);
		p.edge = (unsigned)gw_rng_below(&rng, (0x7fffu >> p.shape.shift) + 2);
		for (int i = 0; i < GW_CLASSES; i++)
			p.weight_log[i] = (uint8_t)gw_rng_below(&rng, GW_WEIGHT_LOG + 1);
		gw_survey_scalar.take(&v[0], &p, old, n);
		(void)gw_survey_scalar.listed(&v[0], n, at[0]);
		for (uint32_t i = 0; i < n; i++)
			if (!(listed[0][i / 64] >> i % 64 & 1) && gw_rng_below(&rng, 2))
				order[timed++] = i;
		gw_survey_scalar.begin(&v[0], &p, old, n, order, timed, begin[0]);
		for (int k = 0; k < 2; k++) {
			struct gw_place place[2][GW_BATCH];
			uint32_t time[GW_BATCH], end = before[0][(n + 31) / 32], group[2] = {0, 0};

			if (!ops[k])
				continue;
			memset(before[1], 0x55, sizeof before[1]);
			memset(listed[1], 0x55, sizeof listed[1]);
			ops[k]->take(&v[1], &p, old, n);
			ck_assert_uint_eq(survey_diff(&v[0], &v[1], n), 0);
			ck_assert_uint_eq(ops[k]->listed(&v[1], n, at[1]), gw_survey_scalar.listed(&v[0], n, at[0]));
			ck_assert_mem_eq(at[0], at[1], gw_survey_scalar.listed(&v[0], n, at[0]) * sizeof at[0][0]);
			ops[k]->begin(&v[1], &p, old, n, order, timed, begin[1]);
			ck_assert_mem_eq(begin[0], begin[1], timed * sizeof begin[0][0]);
			for (times = 0; end && times < GW_BATCH; times++)
				time[times] = times ? time[times - 1] + (uint32_t)gw_rng_below(&rng, end / 20 + 1)
						    : (uint32_t)gw_rng_below(&rng, end / 20 + 1);
			while (times && time[times - 1] >= end)
				times--;
			memset(place, 0, sizeof place);
			gw_survey_scalar.find(&v[0], &p, old, n, time, times, &group[0], place[0]);
			ops[k]->find(&v[1], &p, old, n, time, times, &group[1], place[1]);
			ck_assert_mem_eq(place[0], place[1], sizeof place[0]);
			ck_assert_uint_eq(group[0], group[1]);
		}
		free(mem);
	}
}
END_TEST

/* The same bytes whatever the vectors. */
START_TEST(coder_gives_the_same_bytes_everywhere)
{
	enum gw_survey_impl was = gw_survey_used();
	struct gw_rng rng;
	struct tile t;
	uint8_t *first = malloc(400000);
	size_t first_size = 0;

	gw_rng_init(&rng, test_seed());
	tile_init(&t, 20000);
	tile_fill(&t, &rng, GW_DT_BF16, 50, 2);
	for (int impl = GW_SURVEY_SCALAR; impl <= GW_SURVEY_AVX512; impl++) {
		struct gw_model *m;
		size_t size;

		if (gw_survey_use((enum gw_survey_impl)impl))
			continue;
		m = learned(&t, GW_DT_BF16);
		size = check_decodes(&t, m);
		if (impl == GW_SURVEY_SCALAR) {
			memcpy(first, t.payload, size);
			first_size = size;
		}
		ck_assert_uint_eq(size, first_size);
		ck_assert_mem_eq(t.payload, first, size);
		gw_model_free(m);
	}
	ck_assert_int_eq(gw_survey_use(was), 0);
	free(first);
	tile_free(&t);
}
END_TEST

/* Samples taken in parts, in any order, give the same model. */
START_TEST(samples_add_up)
{
	enum { PARTS = 5, N = 4000 };
	struct gw_sample *whole, *part[PARTS];
	struct gw_model *a, *b;
	struct gw_wr wa, wb;
	struct gw_rng rng;
	struct tile t[PARTS];

	gw_rng_init(&rng, test_seed());
	ck_assert_int_eq(gw_sample_new(&whole, GW_DT_BF16), 0);
	for (int i = 0; i < PARTS; i++) {
		tile_init(&t[i], N);
		tile_fill(&t[i], &rng, GW_DT_BF16, 30, (unsigned)i);
		ck_assert_int_eq(gw_sample_new(&part[i], GW_DT_BF16), 0);
		gw_model_see(whole, t[i].old, N, NULL, &t[i].c);
		gw_model_see(part[i], t[i].old, N, NULL, &t[i].c);
	}
	for (int i = PARTS - 1; i > 0; i--)
		gw_sample_add(part[0], part[i]);
	gw_model_plan(whole);
	gw_model_plan(part[0]);
	for (int i = 0; i < PARTS; i++) {
		if (i)
			gw_sample_take_plan(part[i], part[0]);
		gw_model_learn(t[i].coder, whole, t[i].old, N, NULL, &t[i].c);
		gw_model_learn(t[i].coder, part[i], t[i].old, N, NULL, &t[i].c);
	}
	for (int i = 1; i < PARTS; i++)
		gw_sample_add(part[0], part[i]);
	ck_assert_int_eq(gw_model_make(&a, whole), 0);
	ck_assert_int_eq(gw_model_make(&b, part[0]), 0);
	gw_wr_init(&wa, 65536);
	gw_wr_init(&wb, 65536);
	gw_model_write(a, &wa);
	gw_model_write(b, &wb);
	ck_assert_uint_eq(wa.n, wb.n);
	ck_assert_mem_eq(wa.p, wb.p, wa.n);
	gw_wr_free(&wa);
	gw_wr_free(&wb);
	gw_model_free(a);
	gw_model_free(b);
	gw_sample_free(whole);
	for (int i = 0; i < PARTS; i++) {
		gw_sample_free(part[i]);
		tile_free(&t[i]);
	}
}
END_TEST

START_TEST(bodies_take_the_shortest_form)
{
	struct gw_packer *k;
	struct gw_unpacker *u;
	struct gw_rng rng;
	struct tile t;
	uint8_t *body = malloc(200000 + GW_BODY_EXTRA), *out = malloc(200000);

	gw_rng_init(&rng, test_seed());
	ck_assert_int_eq(gw_packer_new(&k), 0);
	ck_assert_int_eq(gw_unpacker_new(&u), 0);
	tile_init(&t, 100000);
	for (unsigned i = 0; i < 4; i++) {
		/* sparse; all new and random; all new and small numbers; the same in bytes */
		static const enum gw_patch_mode want[] = {GW_MODE_CODED, GW_MODE_RAW, GW_MODE_PLANES, GW_MODE_ZSTD};
		enum gw_dtype dtype = i == 3 ? GW_DT_U8 : GW_DT_BF16;
		struct gw_model *m;
		struct gw_tile_rect r;
		const uint8_t *payload, *raw;
		enum gw_patch_mode mode;
		size_t size, bytes, n;

		tile_fill(&t, &rng, dtype, i ? 1 : 100, i ? 16 : 1);
		n = (size_t)t.n * t.width;
		for (size_t b = 0; i > 1 && b < n; b++)
			t.new_bits[b] &= i == 2 && b % 2 ? 1 : i == 3 ? 15 : 255;
		r = (struct gw_tile_rect){0, 1, 0, t.n, t.n};
		gw_scan_tile(&t.changes, t.old, t.new_bits, t.width, &r, &t.c);
		m = learned(&t, dtype);
		ck_assert_int_eq(gw_body_pack_tile(k, m, &t.c, t.old, t.new_bits, NULL, n, t.width, body, &size), 0);
		gw_model_free(m);
		ck_assert_uint_le(size, n + GW_BODY_EXTRA);
		ck_assert_int_eq(gw_body_open(body, size, &mode, &payload, &bytes), 0);
		ck_assert_int_eq(mode, want[i]);
		if (mode != GW_MODE_CODED) {
			ck_assert_int_eq(gw_body_unpack(u, mode, payload, bytes, n, t.width, out, &raw), 0);
			ck_assert_mem_eq(raw, t.new_bits, n);
			ck_assert_int_ne(gw_body_unpack(u, mode, payload, bytes - 1, n, t.width, out, &raw), 0);
			ck_assert_int_ne(gw_body_unpack(u, mode, payload, bytes, n - t.width, t.width, out, &raw), 0);
		}
		for (int flip = 0; flip < 100; flip++) {
			uint64_t at = gw_rng_below(&rng, size * 8);

			body[at / 8] ^= (uint8_t)(1 << at % 8);
			ck_assert_int_eq(gw_body_open(body, size, &mode, &payload, &bytes), GW_EDIGEST);
			body[at / 8] ^= (uint8_t)(1 << at % 8);
		}
	}
	tile_free(&t);
	gw_packer_free(k);
	gw_unpacker_free(u);
	free(body);
	free(out);
}
END_TEST

/* All elements change from one value to another: what is new is short by itself, and that is found. */
START_TEST(regular_new_bits_are_short)
{
	struct gw_packer *k;
	struct tile t;
	uint8_t *body = malloc(400000 + GW_BODY_EXTRA);

	ck_assert_int_eq(gw_packer_new(&k), 0);
	tile_init(&t, 100000);
	for (unsigned i = 0; i < 2; i++) {
		enum gw_dtype dtype = i ? GW_DT_F32 : GW_DT_BF16;
		struct gw_tile_rect r = {0, 1, 0, t.n, t.n};
		struct gw_model *m;
		size_t size;

		t.width = gw_dtype_width(dtype);
		for (uint32_t e = 0; e < t.n; e++) {
			gw_element_store(t.old + (size_t)e * t.width, t.width, i ? 0x3f800000 : 0x3f80);
			gw_element_store(t.new_bits + (size_t)e * t.width, t.width, i ? 0x3f800347 : 0x3f66);
		}
		gw_scan_tile(&t.changes, t.old, t.new_bits, t.width, &r, &t.c);
		m = learned(&t, dtype);
		ck_assert_int_eq(gw_body_pack_tile(k, m, &t.c, t.old, t.new_bits, NULL, (size_t)t.n * t.width, t.width,
						   body, &size),
				 0);
		ck_assert_uint_lt(size, 1000);
		gw_model_free(m);
	}
	tile_free(&t);
	gw_packer_free(k);
	free(body);
}
END_TEST

TCase *patch_coder_case(void)
{
	TCase *t = tcase_create("coder");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, coder_round_trips_for_every_dtype_and_density, 0, DTYPES);
	tcase_add_loop_test(t, coder_round_trips_odd_values, 0, DTYPES);
	tcase_add_loop_test(t, model_of_one_tile_codes_another, 0, DTYPES);
	tcase_add_test(t, surveys_agree);
	tcase_add_test(t, coder_gives_the_same_bytes_everywhere);
	tcase_add_test(t, samples_add_up);
	tcase_add_test(t, coder_takes_any_bytes);
	tcase_add_test(t, bodies_take_the_shortest_form);
	tcase_add_test(t, regular_new_bits_are_short);
	return t;
}
