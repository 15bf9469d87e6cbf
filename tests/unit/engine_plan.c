/* Declarations and plans: limits, owners and copies, cover, digest. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "engine.h"
#include "engine/map.h"
#include "engine/plan.h"
#include "trust/manifest.h"
#include "unit.h"

static struct gw_text text(const char *s)
{
	return (struct gw_text){.p = s, .n = strlen(s)};
}

static struct gw_decl *begin(uint32_t rank, uint32_t ranks, uint64_t segment_bytes)
{
	struct gw_m_eng_hello hello = {.protocol = 1, .engine = text("test"), .rank = rank, .ranks = ranks, .apply = 1};
	struct gw_m_eng_segment segment = {.id = 0, .kind = 1, .bytes = segment_bytes};
	struct gw_decl *d;

	ck_assert_int_eq(gw_decl_new(&d), 0);
	ck_assert_int_eq(gw_decl_hello(d, &hello, NULL), 0);
	ck_assert_int_eq(gw_decl_segment(d, &segment, NULL), 0);
	return d;
}

static int tensor(struct gw_decl *d, const char *name, enum gw_dtype dtype, uint64_t rows, uint64_t cols)
{
	uint8_t shape[16];
	struct gw_r_eng_tensor row = {.name = text(name), .dtype = (uint16_t)dtype, .shape = {.p = shape, .n = 16}};
	struct gw_m_eng_tensors m = {.rows = {.v = &row, .n = 1}};

	gw_put_le64(shape, rows);
	gw_put_le64(shape + 8, cols);
	return gw_decl_tensors(d, &m, NULL);
}

/* Rows and columns [r0, r1) × [c0, c1) of a BF16 matrix with `cols` columns, packed at base. */
static int map(struct gw_decl *d, uint32_t tensor_id, uint64_t cols, uint64_t base, uint64_t r0, uint64_t r1, uint64_t c0,
	       uint64_t c1)
{
	struct gw_r_eng_map row = {.tensor = tensor_id, .base = base, .row_pitch = (c1 - c0) * 2, .col_pitch = 2, .rows = r1 - r0,
				   .cols = c1 - c0, .row0 = r0, .col0 = c0, .tensor_cols = cols};
	struct gw_m_eng_maps m = {.rows = {.v = &row, .n = 1}};

	return gw_decl_maps(d, &m, NULL);
}

static int opaque(struct gw_decl *d, const char *name, uint8_t reason)
{
	struct gw_r_eng_opaque row = {.name = text(name), .reason = reason};
	struct gw_m_eng_opaques m = {.rows = {.v = &row, .n = 1}};

	return gw_decl_opaques(d, &m, NULL);
}

static void end(struct gw_decl *d, uint32_t tensors, uint32_t maps, uint32_t opaques)
{
	struct gw_m_eng_attach m = {.segments = 1, .tensors = tensors, .maps = maps, .opaques = opaques};

	ck_assert_int_eq(gw_decl_end(d, &m, NULL), 0);
}

START_TEST(declarations_are_strict)
{
	struct gw_m_eng_attach m = {.segments = 1, .tensors = 2, .maps = 1};
	struct gw_m_eng_hello hello = {.protocol = 1, .ranks = 1, .apply = 1};
	struct gw_m_eng_segment late = {.id = 1, .kind = 1, .bytes = 1}, gap = {.id = 2, .kind = 1, .bytes = 1};
	struct gw_decl *d;

	ck_assert_int_eq(gw_decl_new(&d), 0);
	ck_assert_int_ne(tensor(d, "early", GW_DT_BF16, 1, 1), 0); /* before hello */
	hello.protocol = 2;
	ck_assert_int_eq(gw_decl_hello(d, &hello, NULL), GW_EVERSION);
	gw_decl_free(d);

	d = begin(0, 1, 1000);
	hello.protocol = 1;
	ck_assert_int_ne(gw_decl_hello(d, &hello, NULL), 0);
	ck_assert_int_ne(gw_decl_segment(d, &gap, NULL), 0);
	ck_assert_int_ne(tensor(d, "", GW_DT_BF16, 1, 1), 0);
	ck_assert_int_ne(tensor(d, "odd", (enum gw_dtype)99, 1, 1), 0);
	gw_decl_free(d);

	d = begin(0, 1, 1000);
	ck_assert_int_eq(tensor(d, "a", GW_DT_BF16, 4, 8), 0);
	ck_assert_int_eq(tensor(d, "a", GW_DT_BF16, 4, 8), GW_EDUPLICATE);
	ck_assert_int_eq(opaque(d, "a", 1), GW_EDUPLICATE);
	ck_assert_int_ne(opaque(d, "b", 0), 0);
	ck_assert_int_ne(opaque(d, "b", 5), 0);
	ck_assert_int_ne(map(d, 1, 8, 0, 0, 4, 0, 8), 0);   /* no such tensor */
	ck_assert_int_ne(map(d, 0, 8, 0, 0, 5, 0, 8), 0);   /* too many rows */
	ck_assert_int_ne(map(d, 0, 8, 940, 0, 4, 0, 8), 0); /* out of the segment */
	ck_assert_int_eq(map(d, 0, 8, 936, 0, 4, 0, 8), 0);
	ck_assert_int_ne(gw_decl_end(d, &m, NULL), 0);      /* counts */
	m.tensors = 1;
	ck_assert_int_eq(gw_decl_end(d, &m, NULL), 0);
	ck_assert_int_ne(gw_decl_segment(d, &late, NULL), 0);
	gw_decl_free(d);

	d = begin(0, 1, 1000);
	ck_assert_int_eq(tensor(d, "huge", GW_DT_BF16, UINT64_MAX, 3), GW_EOVERFLOW);
	gw_decl_free(d);
}
END_TEST

/* Every element of a 12 × 20 tensor: the owner parts that hold it (exactly one), and for copies, that the owner holds
 * what the copy repeats. */
static void check_parts(const struct gw_plan_tensor *t)
{
	for (uint64_t e = 0; e < t->elements; e++) {
		unsigned owners = 0;

		for (size_t i = 0; i < t->part_n; i++) {
			uint64_t at;

			if (!gw_window_place(&t->parts[i].w, e, &at))
				continue;
			if (t->parts[i].owner < 0)
				owners++;
			else
				ck_assert_int_eq(gw_window_place(&t->parts[t->parts[i].owner].w, e, &at), 1);
		}
		ck_assert_uint_eq(owners, 1);
	}
	/* The parts of a rank hold an element as often as its windows do. */
	for (size_t k = 0; k < t->window_n; k++)
		for (uint64_t e = 0; e < t->elements; e++) {
			unsigned in_windows = 0, in_parts = 0;
			uint64_t at;

			for (size_t i = 0; i < t->window_n; i++)
				in_windows += t->windows[i].rank == t->windows[k].rank && gw_window_place(&t->windows[i].w, e, &at);
			for (size_t i = 0; i < t->part_n; i++)
				in_parts += t->parts[i].rank == t->windows[k].rank && gw_window_place(&t->parts[i].w, e, &at);
			ck_assert_uint_eq(in_windows, in_parts);
		}
}

START_TEST(each_element_has_one_owner)
{
	struct gw_rng r;

	gw_rng_init(&r, (uint64_t)_i);
	for (int n = 0; n < 60; n++) {
		struct gw_decl *d[3];
		struct gw_refusal no;
		struct gw_plan *p;
		uint32_t maps;

		for (uint32_t i = 0; i < 3; i++) {
			d[i] = begin(i, 3, 1 << 16);
			ck_assert_int_eq(tensor(d[i], "t", GW_DT_BF16, 12, 20), 0);
			maps = 0;
			if (i == 2) /* so that it is covered whole, wherever the others overlap */
				maps += map(d[i], 0, 20, 0, 0, 12, 0, 20) == 0;
			for (int k = 0; k < 3; k++) {
				uint64_t r0 = gw_rng_below(&r, 12), c0 = gw_rng_below(&r, 20);

				maps += map(d[i], 0, 20, 1000 + 500 * (uint64_t)k, r0, r0 + 1 + gw_rng_below(&r, 12 - r0), c0,
					    c0 + 1 + gw_rng_below(&r, 20 - c0)) == 0;
			}
			end(d[i], 1, maps, 0);
		}
		ck_assert_int_eq(gw_plan_new(&p, (const struct gw_decl *const *)d, 3, &no), 0);
		check_parts(gw_plan_find(p, "t"));
		gw_plan_free(p);
		for (int i = 0; i < 3; i++)
			gw_decl_free(d[i]);
	}
}
END_TEST

static int plan_of_two(struct gw_decl *a, struct gw_decl *b, struct gw_plan **p, struct gw_refusal *no)
{
	const struct gw_decl *d[2] = {a, b};
	int err = gw_plan_new(p, d, 2, no);

	gw_decl_free(a);
	gw_decl_free(b);
	return err;
}

START_TEST(plans_that_are_refused)
{
	struct gw_decl *a = begin(0, 2, 4096), *b = begin(1, 2, 4096);
	struct gw_refusal no;
	struct gw_plan *p;

	/* A hole between the ranks. */
	tensor(a, "w", GW_DT_BF16, 4, 8);
	tensor(b, "w", GW_DT_BF16, 4, 8);
	map(a, 0, 8, 0, 0, 2, 0, 8);
	map(b, 0, 8, 0, 3, 4, 0, 8);
	end(a, 1, 1, 0);
	end(b, 1, 1, 0);
	ck_assert_int_eq(plan_of_two(a, b, &p, &no), GW_EINVAL);
	ck_assert_str_eq(no.tensor, "w");
	ck_assert_ptr_nonnull(strstr(no.why.text, "24 of 32"));

	/* Two shapes under one name. */
	a = begin(0, 2, 4096);
	b = begin(1, 2, 4096);
	tensor(a, "w", GW_DT_BF16, 4, 8);
	tensor(b, "w", GW_DT_BF16, 8, 4);
	end(a, 1, 0, 0);
	end(b, 1, 0, 0);
	ck_assert_int_eq(plan_of_two(a, b, &p, &no), GW_EINVAL);
	ck_assert_str_eq(no.tensor, "w");
}
END_TEST

START_TEST(opaque_and_unused)
{
	struct gw_decl *a = begin(0, 2, 4096), *b = begin(1, 2, 4096);
	struct gw_refusal no;
	struct gw_plan *p;

	tensor(a, "w", GW_DT_BF16, 4, 8);
	map(a, 0, 8, 0, 0, 4, 0, 8);
	opaque(a, "scale", GW_OPAQUE_UNUSED);
	opaque(a, "head", GW_OPAQUE_UNUSED);
	opaque(b, "w", GW_OPAQUE_UNUSED);      /* one rank has no use for what another holds */
	opaque(b, "scale", GW_OPAQUE_VALUES);
	end(a, 1, 1, 2);
	end(b, 0, 0, 2);
	ck_assert_int_eq(plan_of_two(a, b, &p, &no), 0);
	ck_assert_int_eq(gw_plan_find(p, "w")->opaque, GW_OPAQUE_NONE);
	ck_assert_int_eq(gw_plan_find(p, "scale")->opaque, GW_OPAQUE_VALUES);
	ck_assert_int_eq(gw_plan_find(p, "head")->opaque, GW_OPAQUE_UNUSED);
	ck_assert_ptr_null(gw_plan_find(p, "other"));
	gw_plan_free(p);
}
END_TEST

/* The bytes that proto/ATTACH.md says the plan's digest is over, written out by hand. */
START_TEST(the_digest_is_the_pages)
{
	struct gw_decl *a = begin(0, 1, 64);
	const struct gw_decl *const decls[] = {a};
	struct gw_refusal no;
	struct gw_plan *p;
	struct gw_digest want;
	struct gw_wr w;

	tensor(a, "t", GW_DT_BF16, 2, 4);
	map(a, 0, 4, 16, 0, 2, 0, 4);
	opaque(a, "o", GW_OPAQUE_MOVES);
	end(a, 1, 1, 1);
	ck_assert_int_eq(gw_plan_new(&p, decls, 1, &no), 0);
	gw_wr_init(&w, 4096);
	for (int i = 0; i < 3; i++)
		gw_wr_u32(&w, (uint32_t[]){0, 1, 1}[i]); /* rank, ranks, segments */
	gw_wr_u64(&w, 64);
	gw_wr_u32(&w, 1); /* tensors */
	gw_wr_u16(&w, 1);
	gw_wr_u8(&w, 't');
	gw_wr_u16(&w, GW_DT_BF16);
	gw_wr_u8(&w, 2);
	gw_wr_u64(&w, 2);
	gw_wr_u64(&w, 4);
	gw_wr_u32(&w, 1); /* maps */
	gw_wr_u32(&w, 0);
	gw_wr_u32(&w, 0);
	for (int i = 0; i < 8; i++) /* base, pitches, rows, cols, row0, col0, tensor_cols */
		gw_wr_u64(&w, (uint64_t[]){16, 8, 2, 2, 4, 0, 0, 4}[i]);
	gw_wr_u32(&w, 1); /* opaques */
	gw_wr_u16(&w, 1);
	gw_wr_u8(&w, 'o');
	gw_wr_u8(&w, 3);
	gw_digest_of(w.p, w.n, &want);
	ck_assert_mem_eq(gw_plan_digest(p)->b, want.b, 32);
	gw_wr_free(&w);
	gw_plan_free(p);
	gw_decl_free(a);
}
END_TEST

TCase *engine_plan_tests(void)
{
	TCase *t = tcase_create("plan");

	tcase_add_test(t, declarations_are_strict);
	tcase_add_loop_test(t, each_element_has_one_owner, 0, 3);
	tcase_add_test(t, plans_that_are_refused);
	tcase_add_test(t, opaque_and_unused);
	tcase_add_test(t, the_digest_is_the_pages);
	return t;
}
