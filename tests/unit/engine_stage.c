/* Real patches between small checkpoints, staged into sharded memory: what is written is the next version, everywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "base/publish.h"
#include "base/rng.h"
#include "engine.h"
#include "engine/map.h"
#include "engine/stage.h"
#include "io/os/fs_os.h"
#include "patch/diff.h"
#include "patch/fingerprint.h"
#include "unit.h"
#include "weights/safetensors.h"

enum { RANKS = 2, TENSORS = 8, VERSIONS = 4 };

/* Shapes that tensor parallelism cuts along either axis, and odd ones. */
static const struct {
	const char *name;
	enum gw_dtype dtype;
	unsigned rank;
	uint64_t shape[3];
} specs[TENSORS] = {
	{"model.layers.0.self_attn.q_proj.weight", GW_DT_BF16, 2, {96, 700}},
	{"model.layers.0.self_attn.o_proj.weight", GW_DT_BF16, 2, {130, 640}},
	{"model.layers.0.mlp.experts.down", GW_DT_F8_E4M3, 3, {4, 48, 160}},
	{"model.norm.weight", GW_DT_F32, 1, {333}},
	{"model.bias", GW_DT_I64, 1, {77}},
	{"scalar", GW_DT_BF16, 0, {0}},
	/* Whose tiles cannot be decoded without the scales. */
	{"model.layers.0.mlp.up.weight_packed", GW_DT_U8, 2, {64, 160}},
	{"model.layers.0.mlp.up.weight_scale", GW_DT_F8_E4M3, 2, {64, 20}},
};

struct model {
	char dir[64];
	uint8_t *bits[VERSIONS][TENSORS];
	uint64_t elements[TENSORS];
	unsigned width[TENSORS];
};

static uint64_t seed(void)
{
	const char *text = getenv("SEED");

	return text ? strtoull(text, NULL, 10) : 11;
}

static char *path_of(const struct model *m, const char *what, int v)
{
	static char path[128];

	snprintf(path, sizeof path, "%s/%s%d", m->dir, what, v);
	return path;
}

static void write_checkpoint(const struct model *m, int v)
{
	struct gw_safetensors_spec s[TENSORS];
	char *dir = path_of(m, "v", v), file[160];
	struct gw_wr w;

	ck_assert_int_eq(gw_fs_mkdir(gw_fs_os(), dir), 0);
	for (int i = 0; i < TENSORS; i++)
		s[i] = (struct gw_safetensors_spec){.name = specs[i].name, .shape = specs[i].shape, .rank = specs[i].rank,
						    .dtype = specs[i].dtype};
	gw_wr_init(&w, 1 << 24);
	ck_assert_int_eq(gw_safetensors_write(&w, s, TENSORS, NULL, 0, NULL), 0);
	for (int i = 0; i < TENSORS; i++)
		gw_wr_bytes(&w, m->bits[v][i], m->elements[i] * m->width[i]);
	snprintf(file, sizeof file, "%s/model.safetensors", dir);
	ck_assert_int_eq(gw_publish_bytes(gw_fs_os(), file, 0, w.p, w.n, NULL), 0);
	gw_wr_free(&w);
}

static void make_patch(const struct model *m, int from, int to)
{
	struct gw_checkpoint *a = NULL, *b;
	struct gw_pool pool = gw_pool_serial();
	struct gw_diag why = {""};
	char out[160];

	if (from >= 0)
		ck_assert_int_eq(gw_checkpoint_open(&a, gw_fs_os(), path_of(m, "v", from), NULL), 0);
	ck_assert_int_eq(gw_checkpoint_open(&b, gw_fs_os(), path_of(m, "v", to), NULL), 0);
	snprintf(out, sizeof out, "%s/p%d-%d", m->dir, from, to);
	ck_assert_msg(gw_diff(a, b, gw_fs_os(), &pool, NULL, out, NULL, &why) == 0, "%s", why.text);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
}

/* Versions that change a little, a lot, back again, and in few tensors. */
static void make_model(struct model *m, struct gw_rng *r)
{
	strcpy(m->dir, "/tmp/godwit-stage-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(m->dir));
	for (int i = 0; i < TENSORS; i++) {
		m->width[i] = gw_dtype_width(specs[i].dtype);
		ck_assert_int_eq(gw_table_elements(specs[i].dtype, specs[i].rank, specs[i].shape, &m->elements[i]), 0);
	}
	for (int v = 0; v < VERSIONS; v++) {
		for (int i = 0; i < TENSORS; i++) {
			size_t n = m->elements[i] * m->width[i];

			m->bits[v][i] = malloc(n);
			for (size_t k = 0; k < n; k++)
				m->bits[v][i][k] = v ? m->bits[v - 1][i][k] : (uint8_t)gw_rng_u64(r);
			if (v == 0 || (v == 2 && i > 1))
				continue;
			for (uint64_t k = 0; k < n; k++) {
				uint64_t odds = i == 2 && v == 1 ? 2 : 50;

				if (gw_rng_below(r, odds) == 0)
					m->bits[v][i][k] ^= (uint8_t)(1 + gw_rng_below(r, 3));
				if (v > 1 && gw_rng_below(r, 100) == 0)
					m->bits[v][i][k] = m->bits[v - 2][i][k];
			}
		}
		write_checkpoint(m, v);
	}
}

static void drop_model(struct model *m)
{
	char cmd[100];

	for (int v = 0; v < VERSIONS; v++)
		for (int i = 0; i < TENSORS; i++)
			free(m->bits[v][i]);
	snprintf(cmd, sizeof cmd, "rm -r %s", m->dir);
	ck_assert_int_eq(system(cmd), 0);
}

/* --- an engine of two ranks --- */

struct engine {
	uint8_t *memory[RANKS];
	struct gw_dev_mem mem[RANKS];
	struct gw_rank_mem ranks[RANKS];
	struct gw_decl *decl[RANKS];
	struct gw_plan *plan;
	void *list[RANKS];
};

static void *grow(void *ctx, size_t n)
{
	void **p = ctx, *v = realloc(*p, (n + 7) & ~(size_t)7);

	if (v)
		*p = v;
	return v;
}

static void add_map(struct engine *e, int rank, uint32_t tensor, struct gw_dev_window w)
{
	struct gw_r_eng_map row = {.tensor = tensor, .base = w.base, .row_pitch = w.row_pitch, .col_pitch = w.col_pitch,
				   .rows = w.rows, .cols = w.cols, .row0 = w.row0, .col0 = w.col0, .tensor_cols = w.tensor_cols};
	struct gw_m_eng_maps m = {.rows = {.v = &row, .n = 1}};
	struct gw_diag why = {""};

	ck_assert_msg(gw_decl_maps(e->decl[rank], &m, &why) == 0, "%s", why.text);
}

/* Rank's share of tensor i at *at: a slice of a random axis, the whole, or a transposed whole, with random gaps. */
static void place(struct engine *e, const struct model *m, struct gw_rng *r, int i, int how, unsigned axis, int rank,
		  uint64_t *at)
{
	struct gw_dev_window w = {.width = m->width[i], .rows = 1, .tensor_cols = 1};

	if (how == 0) { /* slice */
		uint64_t n;

		for (unsigned k = 0; k < specs[i].rank; k++)
			*(k < axis ? &w.rows : &w.tensor_cols) *= specs[i].shape[k];
		n = w.tensor_cols / specs[i].shape[axis] * (specs[i].shape[axis] / 2);
		w.col0 = rank ? n : 0;
		w.cols = rank ? w.tensor_cols - n : n;
	} else {
		w.tensor_cols = specs[i].rank ? specs[i].shape[specs[i].rank - 1] : 1;
		w.cols = w.tensor_cols;
		w.rows = m->elements[i] / w.cols;
	}
	if (w.cols == 0 || w.rows == 0)
		return;
	w.base = *at + gw_rng_below(r, 9);
	w.col_pitch = w.width;
	w.row_pitch = w.cols * w.width + (gw_rng_below(r, 2) ? 6 : 0);
	if (how == 2) {
		w.row_pitch = w.width;
		w.col_pitch = w.rows * w.width + 2;
	}
	*at = w.base + (w.rows - 1) * w.row_pitch + (w.cols - 1) * w.col_pitch + w.width;
	add_map(e, rank, (uint32_t)i, w);
}

/* Memory in which everything that no window covers is a pattern that must stay. */
static void make_engine(struct engine *e, const struct model *m, struct gw_rng *r, int skip)
{
	const struct gw_decl *decls[RANKS];
	struct gw_refusal no;
	uint64_t at[RANKS] = {0};

	memset(e, 0, sizeof *e);
	for (int k = 0; k < RANKS; k++) {
		struct gw_m_eng_hello hello = {.protocol = 1, .rank = (uint32_t)k, .ranks = RANKS, .apply = 1};
		struct gw_m_eng_segment segment = {.kind = 1, .bytes = 1 << 20};

		e->memory[k] = malloc(1 << 20);
		memset(e->memory[k], 0x5a, 1 << 20);
		e->mem[k] = (struct gw_dev_mem){.addr = (uintptr_t)e->memory[k], .bytes = 1 << 20};
		e->ranks[k] = (struct gw_rank_mem){.dev = gw_device_cpu(), .mem = &e->mem[k], .segments = 1};
		ck_assert_int_eq(gw_decl_new(&e->decl[k]), 0);
		ck_assert_int_eq(gw_decl_hello(e->decl[k], &hello, NULL), 0);
		ck_assert_int_eq(gw_decl_segment(e->decl[k], &segment, NULL), 0);
		for (int i = 0; i < TENSORS; i++) {
			uint8_t shape[24];
			struct gw_r_eng_tensor row = {.name = {.p = specs[i].name, .n = strlen(specs[i].name)},
						      .dtype = (uint16_t)specs[i].dtype,
						      .shape = {.p = shape, .n = 8 * specs[i].rank}};
			struct gw_m_eng_tensors tm = {.rows = {.v = &row, .n = 1}};

			for (unsigned a = 0; a < specs[i].rank; a++)
				gw_put_le64(shape + 8 * a, specs[i].shape[a]);
			row.name.n -= i == skip; /* some other tensor */
			ck_assert_int_eq(gw_decl_tensors(e->decl[k], &tm, NULL), 0);
		}
	}
	for (int i = 0; i < TENSORS; i++) {
		int how = specs[i].rank >= 2 ? (int)gw_rng_below(r, 3) : 1;
		unsigned axis = specs[i].rank ? (unsigned)gw_rng_below(r, specs[i].rank) : 0;

		for (int k = 0; k < RANKS; k++)
			place(e, m, r, i, how, axis, k, &at[k]);
		/* A second copy on one rank, as of replicated heads. */
		if (how && gw_rng_below(r, 2))
			place(e, m, r, i, how, axis, 1, &at[1]);
	}
	for (int k = 0; k < RANKS; k++) {
		decls[k] = e->decl[k];
		ck_assert_uint_le(at[k], 1 << 20);
	}
	ck_assert_msg(gw_plan_new(&e->plan, decls, RANKS, &no) == 0, "%s", no.why.text);
}

static void load(struct engine *e, const struct model *m, int v)
{
	for (uint32_t i = 0; i < gw_plan_tensors(e->plan); i++) {
		const struct gw_plan_tensor *t = gw_plan_tensor(e->plan, i);

		for (size_t k = 0; k < t->window_n; k++)
			for (uint64_t el = 0; el < t->elements; el++) {
				uint64_t at;

				if (gw_window_place(&t->windows[k].w, el, &at))
					memcpy(e->memory[t->windows[k].rank] + at, m->bits[v][i] + el * t->width, t->width);
			}
	}
}

static void drop_engine(struct engine *e)
{
	for (int k = 0; k < RANKS; k++) {
		free(e->memory[k]);
		free(e->list[k]);
		gw_decl_free(e->decl[k]);
	}
	gw_plan_free(e->plan);
}

/* All memory as a fresh load of that version into a twin would have it. */
static void check_memory(const struct engine *e, const struct model *m, int v)
{
	struct engine twin = *e;

	for (int k = 0; k < RANKS; k++) {
		twin.memory[k] = malloc(1 << 20);
		memset(twin.memory[k], 0x5a, 1 << 20);
	}
	load(&twin, m, v);
	for (int k = 0; k < RANKS; k++) {
		ck_assert_int_eq(memcmp(twin.memory[k], e->memory[k], 1 << 20), 0);
		free(twin.memory[k]);
	}
}

static struct gw_table *table_of(const struct model *m, int v)
{
	struct gw_table *t;

	ck_assert_int_eq(gw_table_new(&t, NULL, (uint64_t)v), 0);
	for (int i = 0; i < TENSORS; i++) {
		uint64_t lane[2] = {0, 0};

		gw_print_run(lane, m->width[i], 0, m->bits[v][i], m->elements[i]);
		ck_assert_int_eq(gw_table_add(t, specs[i].name, specs[i].dtype, specs[i].rank, specs[i].shape, lane), 0);
	}
	return t;
}

struct staged {
	struct gw_mapping map;
	struct gw_patch *patch;
	void *memory[RANKS];
	const struct gw_list_header *lists[RANKS];
	struct gw_table *table;
	struct gw_refusal no;
};

static int stage(struct engine *e, const struct model *m, const struct gw_table *base, int unknown,
		 const struct staged *over, int from, int to, struct staged *s)
{
	static const uint8_t run[16];
	struct gw_list_mem mem[RANKS];
	struct gw_pool pool = gw_pool_serial();
	struct gw_stage st = {.plan = e->plan, .ranks = e->ranks, .pool = &pool, .base = base, .unknown = unknown,
			      .over = over ? over->lists : NULL, .run = run, .from = 0, .to = (uint64_t)to,
			      .list_max_bytes = 1 << 24, .mem = mem, .lists = s->lists};
	struct gw_file *f;
	char path[160];
	int err;

	memset(s, 0, sizeof *s);
	for (int k = 0; k < RANKS; k++)
		mem[k] = (struct gw_list_mem){.ctx = &s->memory[k], .grow = grow};
	snprintf(path, sizeof path, "%s/p%d-%d", m->dir, from, to);
	if (gw_fs_open(gw_fs_os(), path, GW_OPEN_READ, &f)) {
		make_patch(m, from, to);
		ck_assert_int_eq(gw_fs_open(gw_fs_os(), path, GW_OPEN_READ, &f), 0);
	}
	ck_assert_int_eq(gw_fs_map(gw_fs_os(), f, &s->map), 0);
	gw_fs_close(gw_fs_os(), f);
	ck_assert_int_eq(gw_patch_open(&s->patch, s->map.p, s->map.n, NULL), 0);
	st.patch = s->patch;
	err = gw_stage_run(&st, &s->no);
	s->table = st.table;
	return err;
}

static void drop_staged(struct staged *s)
{
	gw_patch_close(s->patch);
	gw_fs_unmap(gw_fs_os(), &s->map);
	gw_table_free(s->table);
	for (int k = 0; k < RANKS; k++)
		free(s->memory[k]);
}

static void write_lists(struct engine *e, const struct staged *s, int to_new)
{
	struct gw_list_found found;

	for (int k = 0; k < RANKS; k++) {
		struct gw_device *d = &e->ranks[k].dev;

		ck_assert_int_eq(d->ops->check(d->dev, s->lists[k], &e->mem[k], 1, &found), 0);
		ck_assert_uint_eq(to_new ? found.old_n : found.new_n, s->lists[k]->records);
		ck_assert_int_eq(d->ops->write(d->dev, s->lists[k], &e->mem[k], 1, to_new), 0);
	}
}

static void prove(struct engine *e, const struct gw_table *t, int expect)
{
	uint64_t *prints = calloc(2 * gw_plan_tensors(e->plan), sizeof *prints);
	struct gw_pool pool = gw_pool_serial();
	struct gw_refusal no = {0};
	int err = gw_proof_sum(e->plan, e->ranks, &pool, prints, &no);

	if (!err)
		err = gw_proof_compare(e->plan, t, prints, &no);
	ck_assert_msg(err == expect, "%d: %s", err, no.why.text);
	free(prints);
}

START_TEST(versions_follow_each_other)
{
	struct gw_rng r;
	struct model m;
	struct engine e;

	printf("SEED=%llu\n", (unsigned long long)seed() + (unsigned)_i);
	gw_rng_init(&r, seed() + (unsigned)_i);
	make_model(&m, &r);
	for (int layout = 0; layout < 4; layout++) {
		struct gw_table *t = table_of(&m, 0);

		make_engine(&e, &m, &r, -1);
		load(&e, &m, 0);
		prove(&e, t, 0);
		for (int v = 1; v < VERSIONS; v++) {
			struct staged s;

			ck_assert_msg(stage(&e, &m, t, 0, NULL, v - 1, v, &s) == 0, "%s", s.no.why.text);
			write_lists(&e, &s, 1);
			check_memory(&e, &m, v);
			write_lists(&e, &s, 0);
			check_memory(&e, &m, v - 1);
			write_lists(&e, &s, 1);
			gw_table_free(t);
			t = gw_table_hold(s.table);
			prove(&e, t, 0);
			drop_staged(&s);
		}
		gw_table_free(t);
		drop_engine(&e);
	}
	drop_model(&m);
}
END_TEST

START_TEST(versions_are_staged_over_each_other)
{
	struct gw_rng r;
	struct model m;
	struct engine e;

	gw_rng_init(&r, seed() + (unsigned)_i);
	make_model(&m, &r);
	for (int layout = 0; layout < 4; layout++) {
		struct gw_table *t = table_of(&m, 0);
		struct staged s[VERSIONS];

		make_engine(&e, &m, &r, -1);
		load(&e, &m, 0);
		for (int v = 1; v < VERSIONS; v++)
			ck_assert_msg(stage(&e, &m, v > 1 ? s[v - 1].table : t, 0, v > 1 ? &s[v - 1] : NULL, v - 1, v,
					    &s[v]) == 0, "%s", s[v].no.why.text);
		check_memory(&e, &m, 0); /* nothing was written */
		write_lists(&e, &s[VERSIONS - 1], 1);
		check_memory(&e, &m, VERSIONS - 1);
		write_lists(&e, &s[VERSIONS - 1], 0);
		check_memory(&e, &m, 0);
		/* Whichever of them is committed. */
		write_lists(&e, &s[1], 1);
		check_memory(&e, &m, 1);
		/* A list over memory that is no longer what it was staged on. */
		{
			struct staged late;

			ck_assert_int_eq(stage(&e, &m, s[1].table, 0, &s[1], 1, 2, &late), GW_EBASE);
			drop_staged(&late);
		}
		for (int v = 1; v < VERSIONS; v++)
			drop_staged(&s[v]);
		gw_table_free(t);
		drop_engine(&e);
	}
	drop_model(&m);
}
END_TEST

START_TEST(an_anchor_cures_any_bits)
{
	struct gw_rng r;
	struct model m;
	struct engine e;
	struct staged s;
	struct gw_table *t;

	gw_rng_init(&r, seed());
	make_model(&m, &r);
	t = table_of(&m, 0);
	make_engine(&e, &m, &r, -1);
	load(&e, &m, 0);
	for (int i = 0; i < 100; i++) { /* inside windows: the pattern between them must stay */
		const struct gw_plan_tensor *pt = gw_plan_tensor(e.plan, (uint32_t)gw_rng_below(&r, TENSORS));
		const struct gw_plan_window *w = &pt->windows[gw_rng_below(&r, pt->window_n)];

		e.memory[w->rank][w->w.base] ^= (uint8_t)gw_rng_u64(&r);
	}
	ck_assert_int_eq(stage(&e, &m, t, 1, NULL, -1, 2, &s), 0);
	write_lists(&e, &s, 1);
	prove(&e, s.table, 0);
	check_memory(&e, &m, 2);
	drop_staged(&s);
	gw_table_free(t);
	drop_engine(&e);
	drop_model(&m);
}
END_TEST

START_TEST(wrong_bases_and_wrong_bits)
{
	struct gw_rng r;
	struct model m;
	struct engine e;
	struct staged s;
	struct gw_table *t0, *t1;
	const struct gw_plan_tensor *pt;
	struct gw_refusal no = {0};
	uint64_t at;

	gw_rng_init(&r, seed());
	make_model(&m, &r);
	t0 = table_of(&m, 0);
	t1 = table_of(&m, 1);
	make_engine(&e, &m, &r, -1);
	load(&e, &m, 0);
	prove(&e, t1, GW_EFINGERPRINT);
	ck_assert_int_eq(stage(&e, &m, t0, 0, NULL, 1, 2, &s), GW_EBASE);
	drop_staged(&s);

	/* One bit of a counted element that the patch does not know of: proof finds it, and which. */
	pt = gw_plan_find(e.plan, specs[0].name);
	ck_assert_int_eq(gw_window_place(&pt->parts[0].w, pt->parts[0].w.row0 * pt->parts[0].w.tensor_cols +
							  pt->parts[0].w.col0 + 3, &at), 1);
	e.memory[pt->parts[0].rank][at] ^= 4;
	gw_refuse(&no, GW_EFINGERPRINT, specs[0].name, "x");
	gw_proof_find(e.plan, e.ranks, m.bits[0][0], m.elements[0] * m.width[0], &no);
	ck_assert_uint_eq(no.element, pt->parts[0].w.row0 * pt->parts[0].w.tensor_cols + pt->parts[0].w.col0 + 3);
	ck_assert_uint_eq(no.expected ^ no.found, 4);
	prove(&e, t0, GW_EFINGERPRINT);
	gw_table_free(t0);
	gw_table_free(t1);
	drop_engine(&e);
	drop_model(&m);
}
END_TEST

START_TEST(a_tensor_that_is_not_mapped)
{
	struct gw_rng r;
	struct model m;
	struct engine e;
	struct staged s;
	struct gw_table *t;

	gw_rng_init(&r, seed());
	make_model(&m, &r);
	t = table_of(&m, 1);
	make_engine(&e, &m, &r, 3);
	/* Version 2 leaves the norm alone, version 3 does not. (The engine's odd name is of no version.) */
	ck_assert_int_eq(stage(&e, &m, t, 0, NULL, 1, 2, &s), GW_EOPAQUE);
	drop_staged(&s);
	gw_table_free(t);
	drop_engine(&e);
	drop_model(&m);
}
END_TEST

START_TEST(tables_as_files)
{
	struct gw_rng r;
	struct model m;
	struct gw_table *t, *u;
	struct gw_wr w;
	uint64_t a[2], b[2];

	gw_rng_init(&r, seed());
	make_model(&m, &r);
	t = table_of(&m, 3);
	gw_wr_init(&w, 1 << 20);
	gw_table_write(t, &w);
	ck_assert_int_eq(w.err, 0);
	ck_assert_int_eq(gw_table_read(w.p, w.n, &u, NULL), 0);
	ck_assert_uint_eq(gw_table_version(u), 3);
	ck_assert_uint_eq(gw_table_rows(u), TENSORS);
	gw_table_model(t, a);
	gw_table_model(u, b);
	ck_assert(a[0] == b[0] && a[1] == b[1]);
	gw_table_free(u);
	for (size_t n = 0; n < w.n; n++)
		ck_assert_int_ne(gw_table_read(w.p, n, &u, NULL), 0);
	for (size_t n = 0; n < w.n; n++) {
		w.p[n] ^= 1;
		ck_assert_int_ne(gw_table_read(w.p, w.n, &u, NULL), 0);
		w.p[n] ^= 1;
	}
	gw_wr_free(&w);
	gw_table_free(t);
	drop_model(&m);
}
END_TEST

TCase *engine_stage_tests(void)
{
	TCase *t = tcase_create("stage");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, versions_follow_each_other, 0, 2);
	tcase_add_loop_test(t, versions_are_staged_over_each_other, 0, 2);
	tcase_add_test(t, an_anchor_cures_any_bits);
	tcase_add_test(t, wrong_bases_and_wrong_bits);
	tcase_add_test(t, a_tensor_that_is_not_mapped);
	tcase_add_test(t, tables_as_files);
	return t;
}
