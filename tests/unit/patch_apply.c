/*
 * Row 0 of the device table against plain loops, alone and on a pool.
 */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "patch/apply.h"
#include "patch/fingerprint.h"
#include "tests/apply/lists.h"
#include "unit.h"

/* A pool that runs tasks in an order and on workers of its own choice. */
static int odd_run(struct gw_pool *pool, size_t n, int (*task)(void *arg, size_t i, unsigned worker), void *arg)
{
	int err = 0;

	for (size_t i = n; i--;) {
		int e = task(arg, i, (unsigned)(i * 7 % pool->width));

		err = e ? e : err;
	}
	return err;
}

static struct gw_pool odd_pool = {NULL, 3, odd_run};

static struct gw_device device(int i)
{
	return i ? gw_device_cpu_pool(&odd_pool) : gw_device_cpu();
}

static void ck_memory(const struct lists *l, const uint8_t *want)
{
	for (size_t s = 0, at = 0; s < LISTS_SEGMENTS; at += l->bytes[s++])
		ck_assert(!memcmp((void *)(uintptr_t)l->mem[s].addr, want + at, l->bytes[s]));
}

/* What the segments hold after all new bits are written, from the plain records. */
static uint8_t *written(const struct lists *l)
{
	size_t n, start[LISTS_SEGMENTS], at = 0;
	uint8_t *want = lists_snapshot(l, &n);

	for (int s = 0; s < LISTS_SEGMENTS; at += l->bytes[s++])
		start[s] = at;
	for (size_t i = 0; i < l->n; i++)
		memcpy(want + start[l->records[i].segment] + l->records[i].at, l->records[i].new_bits,
		       l->records[i].width);
	return want;
}

START_TEST(writes_and_undoes_exactly)
{
	for (int i = 0; i < 6; i++) {
		struct gw_device d = device(i % 2);
		struct gw_list_found f;
		struct lists l;
		uint8_t *old, *new;
		size_t n, same = 0;

		lists_make(&l, unit_seed() + (uint64_t)i, i < 4 ? 3000 : 60000);
		old = lists_snapshot(&l, &n);
		new = written(&l);
		for (size_t k = 0; k < l.n; k++)
			same += !memcmp(l.records[k].old_bits, l.records[k].new_bits, l.records[k].width);
		ck_assert_int_eq(d.ops->check(d.dev, l.h, l.mem, LISTS_SEGMENTS, &f), 0);
		ck_assert(f.old_n == l.n && f.new_n == same && f.neither_n == 0);
		for (int again = 0; again < 2; again++) {
			ck_assert_int_eq(d.ops->write(d.dev, l.h, l.mem, LISTS_SEGMENTS, 1), 0);
			ck_assert_int_eq(d.ops->sync(d.dev), 0);
			ck_memory(&l, new);
		}
		ck_assert_int_eq(d.ops->check(d.dev, l.h, l.mem, LISTS_SEGMENTS, &f), 0);
		ck_assert(f.new_n == l.n && f.old_n == same && f.neither_n == 0);
		/* A write cut short: any mixture is undone. */
		for (size_t k = 0; k < l.n; k += 3)
			memcpy(lists_place(&l, &l.records[k]), l.records[k].old_bits, l.records[k].width);
		ck_assert_int_eq(d.ops->check(d.dev, l.h, l.mem, LISTS_SEGMENTS, &f), 0);
		ck_assert_uint_eq(f.neither_n, 0);
		ck_assert_int_eq(d.ops->write(d.dev, l.h, l.mem, LISTS_SEGMENTS, 0), 0);
		ck_memory(&l, old);
		free(old);
		free(new);
		lists_free(&l);
	}
}
END_TEST

START_TEST(check_names_the_first_odd_place)
{
	struct gw_rng r;

	gw_rng_init(&r, unit_seed());
	for (int i = 0; i < 20; i++) {
		struct gw_device d = device(i % 2);
		struct gw_list_found f;
		struct lists l;
		size_t bad = SIZE_MAX, bad_n = 0;

		lists_make(&l, unit_seed() + (uint64_t)i, 2000);
		for (size_t k = gw_rng_below(&r, l.n); k < l.n; k += 1 + gw_rng_below(&r, 500)) {
			struct lists_record *rec = &l.records[k];
			uint8_t *p = lists_place(&l, rec), odd = *p;

			while (odd == rec->old_bits[0] || odd == rec->new_bits[0])
				odd++;
			*p = odd;
			bad = k < bad ? k : bad;
			bad_n++;
		}
		ck_assert_int_eq(d.ops->check(d.dev, l.h, l.mem, LISTS_SEGMENTS, &f), 0);
		ck_assert_uint_eq(f.neither_n, bad_n);
		ck_assert_uint_eq(f.bad_segment, l.records[bad].segment);
		ck_assert_uint_eq(f.bad_at, l.records[bad].at);
		lists_free(&l);
	}
}
END_TEST

START_TEST(nothing_is_written_where_a_place_is_outside)
{
	for (int i = 0; i < 8; i++) {
		struct gw_device d = device(i % 2);
		struct gw_list_found f;
		struct gw_dev_mem less[LISTS_SEGMENTS];
		uint32_t segments = LISTS_SEGMENTS, s = (uint32_t)i / 2 % LISTS_SEGMENTS;
		struct lists l;
		uint8_t *old;
		size_t n;

		lists_make(&l, unit_seed() + (uint64_t)i, 6000);
		old = lists_snapshot(&l, &n);
		memcpy(less, l.mem, sizeof less);
		if (i < 6) {
			less[s].bytes = 0;
			for (size_t k = 0; k < l.n; k++) /* one byte less than it takes */
				if (l.records[k].segment == s && l.records[k].at + l.records[k].width > less[s].bytes)
					less[s].bytes = l.records[k].at + l.records[k].width - 1;
		} else {
			segments--;
		}
		ck_assert_int_eq(d.ops->write(d.dev, l.h, less, segments, 1), GW_EINVAL);
		ck_assert_int_eq(d.ops->check(d.dev, l.h, less, segments, &f), GW_EINVAL);
		ck_memory(&l, old);
		/* A run whose row is not sound. */
		((struct gw_list_run *)gw_list_runs(l.h))[l.h->run_count - 1].width = 3;
		ck_assert_int_eq(d.ops->write(d.dev, l.h, l.mem, LISTS_SEGMENTS, 1), GW_EMALFORMED);
		ck_memory(&l, old);
		free(old);
		lists_free(&l);
	}
}
END_TEST

START_TEST(windows_print_and_gather)
{
	struct gw_rng r;
	struct lists l;

	gw_rng_init(&r, unit_seed());
	lists_make(&l, unit_seed(), 1);
	for (int i = 0; i < 300; i++) {
		struct gw_device d = device(i % 2);
		struct gw_dev_window w = lists_window(&l, &r);
		const uint8_t *base = (uint8_t *)(uintptr_t)l.mem[0].addr + w.base;
		uint8_t *out = malloc(w.rows * w.cols * w.width + 1), *want = malloc(w.rows * w.cols * w.width + 1);
		uint64_t got[2] = {5, 6}, sum[2] = {5, 6};

		for (uint64_t row = 0; row < w.rows; row++)
			for (uint64_t c = 0; c < w.cols; c++) {
				const uint8_t *p = base + row * w.row_pitch + c * w.col_pitch;

				memcpy(want + (row * w.cols + c) * w.width, p, w.width);
				gw_print_run(sum, w.width, (w.row0 + row) * w.tensor_cols + w.col0 + c, p, 1);
			}
		ck_assert_int_eq(d.ops->print(d.dev, &w, l.mem, LISTS_SEGMENTS, got), 0);
		ck_assert_mem_eq(got, sum, sizeof sum);
		ck_assert_int_eq(d.ops->gather(d.dev, &w, l.mem, LISTS_SEGMENTS, out), 0);
		ck_assert(!memcmp(out, want, w.rows * w.cols * w.width));
		free(out);
		free(want);
	}
	lists_free(&l);
}
END_TEST

/* Larger than a piece, so that the cut shows. */
START_TEST(large_windows_are_cut_right)
{
	const size_t n = 9 << 20;
	uint8_t *p = lists_guarded(n), *out = malloc(n);
	struct gw_dev_mem mem = {(uintptr_t)p, n};
	const struct gw_dev_window shapes[] = {
		{.width = 2, .rows = 1, .cols = n / 2, .col_pitch = 2, .tensor_cols = n / 2},
		{.width = 2, .rows = 3, .cols = n / 6, .row_pitch = n / 3, .col_pitch = 2, .tensor_cols = n / 6},
		{.width = 4, .rows = n / 400, .cols = 100, .row_pitch = 400, .col_pitch = 4, .tensor_cols = 100},
	};
	struct gw_rng r;

	gw_rng_init(&r, unit_seed());
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v = gw_rng_u64(&r);

		memcpy(p + i, &v, 8);
	}
	for (size_t k = 0; k < 6; k++) {
		struct gw_device d = device((int)k % 2);
		const struct gw_dev_window *w = &shapes[k / 2];
		uint64_t got[2] = {0, 0}, want[2] = {0, 0};

		gw_print_run(want, w->width, 0, p, w->rows * w->cols);
		ck_assert_int_eq(d.ops->print(d.dev, w, &mem, 1, got), 0);
		ck_assert_mem_eq(got, want, sizeof want);
		memset(out, 0, n);
		ck_assert_int_eq(d.ops->gather(d.dev, w, &mem, 1, out), 0);
		ck_assert(!memcmp(out, p, w->rows * w->cols * w->width));
	}
	free(out);
	lists_guarded_free(p, n);
}
END_TEST

START_TEST(windows_outside_are_refused)
{
	uint8_t memory[1000] = {0}, out[1000];
	struct gw_dev_mem mem = {(uintptr_t)memory, sizeof memory};
	const struct gw_dev_window good = {
		.width = 4, .base = 40, .rows = 6, .row_pitch = 160, .cols = 40, .col_pitch = 4, .tensor_cols = 40};
	struct gw_dev_window bad[7];
	struct gw_device d = gw_device_cpu();
	uint64_t lane[2] = {0, 0};

	ck_assert_int_eq(d.ops->gather(d.dev, &good, &mem, 1, out), 0);
	for (int i = 0; i < 7; i++)
		bad[i] = good;
	bad[0].base++;
	bad[1].row_pitch = UINT64_MAX / 5;
	bad[2].cols = UINT64_MAX;
	bad[3].width = 3;
	bad[4].segment = 1;
	bad[5].rows = 0, bad[5].base = 1001;
	bad[6].col_pitch = 5;
	for (int i = 0; i < 7; i++) {
		ck_assert_int_eq(d.ops->gather(d.dev, &bad[i], &mem, 1, out), GW_EINVAL);
		ck_assert_int_eq(d.ops->print(d.dev, &bad[i], &mem, 1, lane), GW_EINVAL);
	}
	ck_assert(lane[0] == 0 && lane[1] == 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("patch: row 0 of the device table");
	TCase *c = tcase_create("apply");

	tcase_add_test(c, writes_and_undoes_exactly);
	tcase_add_test(c, check_names_the_first_odd_place);
	tcase_add_test(c, nothing_is_written_where_a_place_is_outside);
	tcase_add_test(c, windows_print_and_gather);
	tcase_add_test(c, large_windows_are_cut_right);
	tcase_add_test(c, windows_outside_are_refused);
	tcase_set_timeout(c, 60);
	suite_add_tcase(s, c);
	return s;
}

UNIT_MAIN(suite)
