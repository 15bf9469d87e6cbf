#include "engine/proof.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/map.h"

enum { TASK_ELEMENTS = 4 << 20, GATHER_BYTES = 1 << 20 };

/* A piece of a part, or (of_owner) of the region of the owner that a copy repeats. */
struct task {
	uint32_t tensor;
	size_t part;
	int of_owner;
	uint32_t rank;
	struct gw_dev_window w;
	uint64_t lane[2];
};

struct sum {
	const struct gw_rank_mem *ranks;
	struct task *tasks;
	size_t n, cap;
};

int gw_rank_mem_parallel(const struct gw_rank_mem *ranks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (ranks[i].dev.ops != gw_device_cpu().ops)
			return 0;
	return 1;
}

static int add_task(struct sum *s, const struct task *t)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		struct task *v = reallocarray(s->tasks, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		s->tasks = v;
		s->cap = cap;
	}
	s->tasks[s->n++] = *t;
	return 0;
}

/* Cuts a window into pieces of about TASK_ELEMENTS: by rows, and rows longer than that by columns. */
static int add_window(struct sum *s, struct task t)
{
	struct gw_dev_window w = t.w;
	uint64_t cols = gw_min_u64(w.cols, TASK_ELEMENTS), rows = gw_max_u64(TASK_ELEMENTS / cols, 1);

	for (uint64_t r = 0; r < w.rows; r += rows)
		for (uint64_t c = 0; c < w.cols; c += cols) {
			int err;

			t.w = gw_window_part(&w, r, gw_min_u64(rows, w.rows - r), c, gw_min_u64(cols, w.cols - c));
			err = add_task(s, &t);
			if (err)
				return err;
		}
	return 0;
}

static int add_tensor(struct sum *s, const struct gw_plan_tensor *t, uint32_t index)
{
	for (size_t i = 0; i < t->part_n; i++) {
		const struct gw_plan_part *p = &t->parts[i], *o;
		struct task task = {.tensor = index, .part = i, .rank = p->rank, .w = p->w};
		int err = add_window(s, task);

		if (err)
			return err;
		if (p->owner < 0)
			continue;
		o = &t->parts[p->owner];
		task.of_owner = 1;
		task.rank = o->rank;
		task.w = gw_window_part(&o->w, p->w.row0 - o->w.row0, p->w.rows, p->w.col0 - o->w.col0, p->w.cols);
		err = add_window(s, task);
		if (err)
			return err;
	}
	return 0;
}

static int run_task(void *arg, size_t i, unsigned worker)
{
	struct sum *s = arg;
	struct task *t = &s->tasks[i];
	const struct gw_rank_mem *m = &s->ranks[t->rank];

	(void)worker;
	return m->dev.ops->print(m->dev.dev, &t->w, m->mem, m->segments, t->lane);
}

/* Tasks of one copy follow each other: first its own pieces, then those of its owner's region. */
static int take_results(const struct gw_plan *p, const struct sum *s, uint64_t *prints, struct gw_refusal *no)
{
	size_t i = 0;

	while (i < s->n) {
		const struct task *first = &s->tasks[i];
		const struct gw_plan_tensor *t = gw_plan_tensor(p, first->tensor);
		const struct gw_plan_part *part = &t->parts[first->part];
		uint64_t own[2] = {0, 0}, owner[2] = {0, 0};

		for (; i < s->n && s->tasks[i].tensor == first->tensor && s->tasks[i].part == first->part; i++) {
			uint64_t *sum = s->tasks[i].of_owner ? owner : own;

			sum[0] += s->tasks[i].lane[0];
			sum[1] += s->tasks[i].lane[1];
		}
		if (part->owner < 0) {
			prints[2 * (size_t)first->tensor] += own[0];
			prints[2 * (size_t)first->tensor + 1] += own[1];
		} else if (own[0] != owner[0] || own[1] != owner[1]) {
			return gw_refuse(no, GW_EFINGERPRINT, t->name,
					 "tensor %s: the copy on rank %u differs from what rank %u holds", t->name,
					 part->rank, t->parts[part->owner].rank);
		}
	}
	return 0;
}

int gw_proof_sum(const struct gw_plan *p, const struct gw_rank_mem *ranks, struct gw_pool *pool, uint64_t *prints,
		 struct gw_refusal *no)
{
	struct sum s = {.ranks = ranks};
	struct gw_pool serial = gw_pool_serial();
	int err = 0;

	memset(prints, 0, sizeof *prints * 2 * gw_plan_tensors(p));
	for (uint32_t i = 0; !err && i < gw_plan_tensors(p); i++)
		if (gw_plan_tensor(p, i)->opaque == GW_OPAQUE_NONE)
			err = add_tensor(&s, gw_plan_tensor(p, i), i);
	if (!gw_rank_mem_parallel(ranks, gw_plan_ranks(p)))
		pool = &serial;
	if (!err)
		err = pool->run(pool, s.n, run_task, &s);
	if (err)
		gw_refuse(no, err, NULL, "reading the resident weights: %s", gw_err_text(err));
	else
		err = take_results(p, &s, prints, no);
	free(s.tasks);
	return err;
}

int gw_proof_compare(const struct gw_plan *p, const struct gw_table *t, const uint64_t *prints, struct gw_refusal *no)
{
	unsigned long long version = gw_table_version(t);

	for (uint32_t i = 0; i < gw_plan_tensors(p); i++) {
		const struct gw_plan_tensor *pt = gw_plan_tensor(p, i);
		const struct gw_table_row *r = gw_table_find(t, pt->name);

		if (pt->opaque != GW_OPAQUE_NONE)
			continue;
		if (!r)
			return gw_refuse(no, GW_EINVAL, pt->name, "tensor %s: version %llu has none of that name", pt->name,
					 version);
		if (!gw_table_row_is(r, pt->dtype, pt->dims, pt->shape))
			return gw_refuse(no, GW_EINVAL, pt->name, "tensor %s: version %llu has it in another dtype or shape",
					 pt->name, version);
		if (r->print[0] != prints[2 * (size_t)i] || r->print[1] != prints[2 * (size_t)i + 1])
			return gw_refuse(no, GW_EFINGERPRINT, pt->name,
					 "tensor %s: the resident bits are not those of version %llu", pt->name, version);
	}
	return 0;
}

/* --- the first element that differs --- */

static uint64_t bits_at(const uint8_t *p, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = width; i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

/* One row's piece, gathered into got, against the checkpoint. */
static void compare_piece(const struct gw_dev_window *w, const uint8_t *got, const uint8_t *want, struct gw_refusal *no)
{
	uint64_t first = w->row0 * w->tensor_cols + w->col0;

	want += first * w->width;
	if (memcmp(got, want, w->cols * w->width) == 0)
		return;
	for (uint64_t c = 0; c < w->cols; c++, got += w->width, want += w->width)
		if (memcmp(got, want, w->width) != 0) {
			if (first + c < no->element) {
				no->element = first + c;
				no->expected = bits_at(want, w->width);
				no->found = bits_at(got, w->width);
			}
			return;
		}
}

static void find_in_part(const struct gw_plan_part *p, const struct gw_rank_mem *m, const uint8_t *want, uint8_t *buf,
			 struct gw_refusal *no)
{
	uint64_t step = GATHER_BYTES / p->w.width;

	for (uint64_t r = 0; r < p->w.rows; r++)
		for (uint64_t c = 0; c < p->w.cols; c += step) {
			struct gw_dev_window w = gw_window_part(&p->w, r, 1, c, gw_min_u64(step, p->w.cols - c));

			if (w.row0 * w.tensor_cols + w.col0 > no->element)
				return; /* an earlier one is known */
			if (m->dev.ops->gather(m->dev.dev, &w, m->mem, m->segments, buf))
				return;
			compare_piece(&w, buf, want, no);
		}
}

void gw_proof_find(const struct gw_plan *p, const struct gw_rank_mem *ranks, const void *bytes, uint64_t n,
		   struct gw_refusal *no)
{
	const struct gw_plan_tensor *t = gw_plan_find(p, no->tensor);
	uint8_t *buf;

	if (!t || t->opaque != GW_OPAQUE_NONE || n != t->elements * t->width)
		return;
	buf = malloc(GATHER_BYTES);
	if (!buf)
		return;
	for (size_t i = 0; i < t->part_n; i++)
		find_in_part(&t->parts[i], &ranks[t->parts[i].rank], bytes, buf, no);
	free(buf);
}
