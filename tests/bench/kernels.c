#include "kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ceiling.h"
#include "patch/fingerprint.h"
#include "patch/scan.h"

enum { PIECE = 16 * 1024 * 1024, STRETCH = 64 * 1024 /* elements */ };

const char *const kernel_names[KERNEL_COUNT] = {"memcpy", "read", "read_both", "scan", "fingerprint"};

struct piece {
	const struct bench_tensor *tensor;
	uint64_t at, n; /* bytes of the tensor */
};

struct measuring {
	enum kernel kernel;
	unsigned shape;
	uint8_t *copy;
	struct gw_pool *pool;
	struct piece *pieces;
	size_t count;
	struct gw_changes_buf *bufs; /* one a worker */
	uint64_t sink;
};

static void scan(struct gw_changes_buf *b, const uint8_t *p, const uint8_t *q, uint64_t n, unsigned width)
{
	for (uint64_t at = 0; at < n / width; at += STRETCH)
		(void)gw_scan_run(b, 0, p + at * width, q + at * width, gw_min_u64(STRETCH, n / width - at), width, 0);
}

static int work(void *arg, size_t i, unsigned worker)
{
	struct measuring *m = arg;
	const struct piece *piece = &m->pieces[i];
	const struct bench_tensor *t = piece->tensor;
	const uint8_t *p = t->old->p + piece->at, *q = t->new_->p + piece->at;
	uint64_t lane[2] = {0, 0};

	switch (m->kernel) {
	case KERNEL_COPY:
		memcpy(m->copy + t->first + piece->at, p, piece->n);
		break;
	case KERNEL_READ:
		lane[0] = bench_read(m->shape, p, NULL, piece->n);
		break;
	case KERNEL_READ_TWO:
		lane[0] = bench_read(m->shape, p, q, piece->n);
		break;
	case KERNEL_SCAN:
		scan(&m->bufs[worker], p, q, piece->n, t->width);
		break;
	default:
		gw_print_run(lane, t->width, piece->at / t->width, p, piece->n / t->width);
	}
	(void)__atomic_fetch_add(&m->sink, lane[0] + lane[1], __ATOMIC_RELAXED);
	return 0;
}

static int run(void *ctx)
{
	struct measuring *m = ctx;

	return m->pool->run(m->pool, m->count, work, m);
}

static int cut(struct measuring *m, const struct bench_pair *p)
{
	m->pieces = calloc(p->bytes / PIECE + p->count + 1, sizeof *m->pieces);
	if (!m->pieces)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < p->count; i++)
		for (uint64_t at = 0; at < p->tensors[i].old->bytes; at += PIECE)
			m->pieces[m->count++] =
				(struct piece){&p->tensors[i], at, gw_min_u64(PIECE, p->tensors[i].old->bytes - at)};
	return 0;
}

static int make_bufs(struct measuring *m)
{
	int err = 0;

	m->bufs = calloc(m->pool->width, sizeof *m->bufs);
	if (!m->bufs)
		return GW_ENOMEM;
	for (unsigned i = 0; i < m->pool->width && !err; i++)
		err = gw_changes_buf_init(&m->bufs[i]);
	return err;
}

/* Reads are as fast as their best shape. */
static int measure(struct measuring *m, int runs, struct bench_time *t)
{
	unsigned shapes = m->kernel == KERNEL_READ || m->kernel == KERNEL_READ_TWO ? BENCH_READ_SHAPES : 1;
	int err = 0;

	for (m->shape = 0; m->shape < shapes && !err; m->shape++) {
		struct bench_time one;

		err = bench_median(&one, runs, NULL, run, m);
		if (!err && (!m->shape || one.wall_s < t->wall_s))
			*t = one;
	}
	return err;
}

int kernel_measure(const struct bench_pair *p, enum kernel kernel, struct gw_pool *pool, int runs, uint8_t *copy,
		   struct bench_time *t)
{
	struct measuring m = {.kernel = kernel, .copy = copy, .pool = pool};
	int err = cut(&m, p);

	if (!err)
		err = make_bufs(&m);
	if (!err)
		err = measure(&m, runs, t);
	for (unsigned i = 0; m.bufs && i < pool->width; i++)
		gw_changes_buf_free(&m.bufs[i]);
	free(m.bufs);
	free(m.pieces);
	return err;
}
