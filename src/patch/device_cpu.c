/*
 * Row 0 of the device table: host memory. The reference that other devices are compared with.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "patch/apply.h"
#include "patch/fingerprint.h"
#include "patch/list_impl.h"

enum {
	RUNS_A_TASK = 64,
	PREFETCH = 24,		       /* records ahead: about a memory latency of work */
	PIECE_BYTES = 4 * 1024 * 1024, /* of a window a task */
};

#define INLINE inline __attribute__((always_inline))

struct list_job {
	const struct gw_list_header *list;
	const struct gw_dev_mem *mem;
	uint32_t segments;
	int to_new;
	struct gw_list_found *found; /* one a task */
	void (*each)(const struct list_job *j, size_t task, const struct gw_list_part *part);
};

static uint64_t tasks_of(const struct gw_list_header *h)
{
	return gw_div_up(h->run_count, RUNS_A_TASK);
}

/* A run that is sound and lies in its segment. */
static int run_part(const struct list_job *j, uint32_t run, struct gw_list_part *part)
{
	uint64_t first, end;
	int err = gw_list_part(j->list, run, part);

	if (!err)
		err = gw_list_part_span(part, &first, &end);
	if (err)
		return err;
	return part->segment < j->segments && end <= j->mem[part->segment].bytes ? 0 : GW_EINVAL;
}

/* The places of a run, as addresses. */
static void places(const struct list_job *j, const struct gw_list_part *part, uint64_t at[GW_LIST_RUN_MAX])
{
	uint64_t place = j->mem[part->segment].addr + part->base;

	for (unsigned i = 0; i < part->count; i++)
		at[i] = place += (uint64_t)gw_le16(part->gaps + 2 * i) * part->width;
}

/* An element at a multiple of its width is read and written at once. */
static INLINE uint64_t load(uint64_t at, unsigned width)
{
	void *p = (void *)(uintptr_t)at;
	uint64_t bits = 0;

	if (at % width)
		memcpy(&bits, p, width);
	else if (width == 1)
		bits = __atomic_load_n((uint8_t *)p, __ATOMIC_RELAXED);
	else if (width == 2)
		bits = __atomic_load_n((uint16_t *)p, __ATOMIC_RELAXED);
	else if (width == 4)
		bits = __atomic_load_n((uint32_t *)p, __ATOMIC_RELAXED);
	else
		bits = __atomic_load_n((uint64_t *)p, __ATOMIC_RELAXED);
	return bits;
}

static INLINE void store(uint64_t at, unsigned width, uint64_t bits)
{
	void *p = (void *)(uintptr_t)at;

	if (at % width)
		memcpy(p, &bits, width);
	else if (width == 1)
		__atomic_store_n((uint8_t *)p, (uint8_t)bits, __ATOMIC_RELAXED);
	else if (width == 2)
		__atomic_store_n((uint16_t *)p, (uint16_t)bits, __ATOMIC_RELAXED);
	else if (width == 4)
		__atomic_store_n((uint32_t *)p, (uint32_t)bits, __ATOMIC_RELAXED);
	else
		__atomic_store_n((uint64_t *)p, bits, __ATOMIC_RELAXED);
}

static INLINE void check_places(const struct gw_list_part *part, unsigned width, const uint64_t *at, uint64_t base,
				struct gw_list_found *f)
{
	for (unsigned i = 0; i < part->count; i++) {
		uint64_t bits, old = 0, new = 0;
		int is_old, is_new;

		__builtin_prefetch((void *)(uintptr_t)at[i + PREFETCH < part->count ? i + PREFETCH : i]);
		bits = load(at[i], width);
		memcpy(&old, part->old_bits + (size_t)i * width, width);
		memcpy(&new, part->new_bits + (size_t)i * width, width);
		is_old = bits == old;
		is_new = bits == new;
		f->old_n += (unsigned)is_old;
		f->new_n += (unsigned)is_new;
		if (is_old || is_new)
			continue;
		if (!f->neither_n++) {
			f->bad_segment = part->segment;
			f->bad_at = at[i] - base;
		}
	}
}

static INLINE void write_places(const struct gw_list_part *part, unsigned width, const uint64_t *at, int to_new)
{
	const uint8_t *column = to_new ? part->new_bits : part->old_bits;

	for (unsigned i = 0; i < part->count; i++) {
		uint64_t bits = 0;

		__builtin_prefetch((void *)(uintptr_t)at[i + PREFETCH < part->count ? i + PREFETCH : i], 1);
		memcpy(&bits, column + (size_t)i * width, width);
		store(at[i], width, bits);
	}
}

/* Calls f with the width as a constant, so that each width gets a loop of its own. */
#define BY_WIDTH(w, call)                                                                                              \
	do {                                                                                                           \
		switch (w) {                                                                                           \
		case 1: {                                                                                              \
			enum { WIDTH = 1 };                                                                            \
			call;                                                                                          \
			break;                                                                                         \
		}                                                                                                      \
		case 2: {                                                                                              \
			enum { WIDTH = 2 };                                                                            \
			call;                                                                                          \
			break;                                                                                         \
		}                                                                                                      \
		case 4: {                                                                                              \
			enum { WIDTH = 4 };                                                                            \
			call;                                                                                          \
			break;                                                                                         \
		}                                                                                                      \
		default: {                                                                                             \
			enum { WIDTH = 8 };                                                                            \
			call;                                                                                          \
			break;                                                                                         \
		}                                                                                                      \
		}                                                                                                      \
	} while (0)

static void check_run(const struct list_job *j, size_t task, const struct gw_list_part *part)
{
	uint64_t at[GW_LIST_RUN_MAX];

	places(j, part, at);
	BY_WIDTH(part->width, check_places(part, WIDTH, at, j->mem[part->segment].addr, &j->found[task]));
}

static void write_run(const struct list_job *j, size_t task, const struct gw_list_part *part)
{
	uint64_t at[GW_LIST_RUN_MAX];

	(void)task;
	places(j, part, at);
	BY_WIDTH(part->width, write_places(part, WIDTH, at, j->to_new));
}

static int list_task(void *arg, size_t task, unsigned worker)
{
	const struct list_job *j = arg;
	uint64_t run = (uint64_t)task * RUNS_A_TASK, end = gw_min_u64(run + RUNS_A_TASK, j->list->run_count);

	(void)worker;
	for (; run < end; run++) {
		struct gw_list_part part;
		int err = run_part(j, (uint32_t)run, &part);

		if (err)
			return err;
		if (j->each)
			j->each(j, task, &part);
	}
	return 0;
}

/* Goes over all runs on the device's pool. each may be NULL: then only bounds are checked. */
static int all_runs(void *dev, struct list_job *j,
		    void (*each)(const struct list_job *j, size_t task, const struct gw_list_part *part))
{
	struct gw_pool serial = gw_pool_serial(), *pool = dev ? dev : &serial;

	j->each = each;
	return pool->run(pool, tasks_of(j->list), list_task, j);
}

int gw_list_bounds(const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments)
{
	struct list_job j = {.list = list, .mem = mem, .segments = segments};

	return all_runs(NULL, &j, NULL);
}

static int cpu_check(void *dev, const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments,
		     struct gw_list_found *found)
{
	struct list_job j = {.list = list, .mem = mem, .segments = segments};
	uint64_t n = tasks_of(list);
	int err;

	*found = (struct gw_list_found){0};
	j.found = calloc(n ? n : 1, sizeof *j.found);
	if (!j.found)
		return GW_ENOMEM;
	err = all_runs(dev, &j, check_run);
	for (uint64_t i = 0; !err && i < n; i++) {
		if (!found->neither_n) {
			found->bad_segment = j.found[i].bad_segment;
			found->bad_at = j.found[i].bad_at;
		}
		found->old_n += j.found[i].old_n;
		found->new_n += j.found[i].new_n;
		found->neither_n += j.found[i].neither_n;
	}
	free(j.found);
	return err;
}

static int cpu_write(void *dev, const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments,
		     int to_new)
{
	struct list_job j = {.list = list, .mem = mem, .segments = segments, .to_new = to_new};
	int err = all_runs(dev, &j, NULL); /* nothing is written unless all of it can be */

	return err ? err : all_runs(dev, &j, write_run);
}

/* A window is cut into rectangles of about PIECE_BYTES. */
struct window_job {
	const struct gw_dev_window *w;
	const uint8_t *base;
	uint64_t piece_rows, piece_cols, across, pieces;
	uint64_t (*lanes)[2]; /* one a worker */
	uint8_t *out;
};

int gw_dev_window_check(const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments)
{
	uint64_t down, right, end, n;

	if (!gw_list_width_ok(w->width) || w->segment >= segments)
		return GW_EINVAL;
	if (gw_mul_u64(w->rows, w->cols, &n) || gw_mul_u64(n, w->width, &n))
		return GW_EINVAL;
	if (!n)
		return w->base <= mem[w->segment].bytes ? 0 : GW_EINVAL;
	if (gw_mul_u64(w->rows - 1, w->row_pitch, &down) || gw_mul_u64(w->cols - 1, w->col_pitch, &right) ||
	    gw_add_u64(w->base, down, &end) || gw_add_u64(end, right, &end) || gw_add_u64(end, w->width, &end))
		return GW_EINVAL;
	return end <= mem[w->segment].bytes ? 0 : GW_EINVAL;
}

static int window_job(struct window_job *j, const struct gw_dev_window *w, const struct gw_dev_mem *mem,
		      uint32_t segments)
{
	int err = gw_dev_window_check(w, mem, segments);

	if (err)
		return err;
	j->w = w;
	j->base = (const uint8_t *)(uintptr_t)mem[w->segment].addr + w->base;
	j->pieces = 0;
	if (!w->rows || !w->cols)
		return 0;
	j->piece_cols = gw_min_u64(w->cols, PIECE_BYTES / w->width);
	j->piece_rows = gw_min_u64(w->rows, gw_max_u64(1, PIECE_BYTES / (j->piece_cols * w->width)));
	j->across = gw_div_up(w->cols, j->piece_cols);
	j->pieces = j->across * gw_div_up(w->rows, j->piece_rows);
	return 0;
}

/* Piece i, as rows and columns of the window. */
static void piece(const struct window_job *j, size_t i, uint64_t *row, uint64_t *rows, uint64_t *col, uint64_t *cols)
{
	*row = i / j->across * j->piece_rows;
	*rows = gw_min_u64(j->piece_rows, j->w->rows - *row);
	*col = i % j->across * j->piece_cols;
	*cols = gw_min_u64(j->piece_cols, j->w->cols - *col);
}

static int print_task(void *arg, size_t i, unsigned worker)
{
	const struct window_job *j = arg;
	const struct gw_dev_window *w = j->w;
	uint64_t row, rows, col, cols;

	piece(j, i, &row, &rows, &col, &cols);
	gw_print_window(j->lanes[worker],
			&(struct gw_print_window){
				.width = w->width,
				.rows = rows,
				.cols = cols,
				.row_pitch = w->row_pitch,
				.col_pitch = w->col_pitch,
				.first = (w->row0 + row) * w->tensor_cols + w->col0 + col,
				.tensor_cols = w->tensor_cols,
			},
			j->base + row * w->row_pitch + col * w->col_pitch);
	return 0;
}

static int gather_task(void *arg, size_t i, unsigned worker)
{
	const struct window_job *j = arg;
	const struct gw_dev_window *w = j->w;
	uint64_t row, rows, col, cols;

	(void)worker;
	piece(j, i, &row, &rows, &col, &cols);
	for (uint64_t r = row; r < row + rows; r++) {
		const uint8_t *from = j->base + r * w->row_pitch + col * w->col_pitch;
		uint8_t *to = j->out + (r * w->cols + col) * w->width;

		if (w->col_pitch == w->width)
			memcpy(to, from, cols * w->width);
		else
			for (uint64_t c = 0; c < cols; c++)
				memcpy(to + c * w->width, from + c * w->col_pitch, w->width);
	}
	return 0;
}

static int cpu_print(void *dev, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments,
		     uint64_t lane[2])
{
	struct gw_pool serial = gw_pool_serial(), *pool = dev ? dev : &serial;
	struct window_job j;
	int err = window_job(&j, w, mem, segments);

	if (err)
		return err;
	j.lanes = calloc(pool->width, sizeof *j.lanes);
	if (!j.lanes)
		return GW_ENOMEM;
	err = pool->run(pool, j.pieces, print_task, &j);
	for (unsigned i = 0; !err && i < pool->width; i++) {
		lane[0] += j.lanes[i][0];
		lane[1] += j.lanes[i][1];
	}
	free(j.lanes);
	return err;
}

static int cpu_gather(void *dev, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments,
		      void *out)
{
	struct gw_pool serial = gw_pool_serial(), *pool = dev ? dev : &serial;
	struct window_job j;
	int err = window_job(&j, w, mem, segments);

	if (err)
		return err;
	j.out = out;
	return pool->run(pool, j.pieces, gather_task, &j);
}

static int cpu_sync(void *dev)
{
	(void)dev;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return 0;
}

static void cpu_close(void *dev)
{
	(void)dev;
}

static const struct gw_device_ops cpu_ops = {"cpu", cpu_check, cpu_write, cpu_print, cpu_gather, cpu_sync, cpu_close};

struct gw_device gw_device_cpu(void)
{
	return gw_device_cpu_pool(NULL);
}

struct gw_device gw_device_cpu_pool(struct gw_pool *pool)
{
	return (struct gw_device){&cpu_ops, pool};
}
