#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lists.h"

struct pair {
	struct gw_device cpu, dev;
	const struct compare_memory *memory;
	struct lists lists;
	struct gw_dev_mem mem[LISTS_SEGMENTS]; /* the device's copies */
	uint64_t seed;
};

static void expect(const struct pair *p, int good, const char *what)
{
	if (good)
		return;
	(void)fprintf(stderr, "%s and row 0 differ: %s (SEED=%llu)\n", p->dev.ops->name, what,
		      (unsigned long long)p->seed);
	abort();
}

static void same_memory(const struct pair *p, const char *what)
{
	for (int s = 0; s < LISTS_SEGMENTS; s++) {
		uint8_t *copy = malloc(p->mem[s].bytes);

		p->memory->get(p->memory->ctx, copy, p->mem[s].addr, p->mem[s].bytes);
		expect(p, !memcmp(copy, (void *)(uintptr_t)p->lists.mem[s].addr, p->mem[s].bytes), what);
		free(copy);
	}
}

static void both_check(struct pair *p, const char *what)
{
	struct gw_list_found a, b;

	memset(&a, 0, sizeof a);
	memset(&b, 0, sizeof b);
	expect(p, !p->cpu.ops->check(p->cpu.dev, p->lists.h, p->lists.mem, LISTS_SEGMENTS, &a), what);
	expect(p, !p->dev.ops->check(p->dev.dev, p->lists.h, p->mem, LISTS_SEGMENTS, &b), what);
	expect(p,
	       a.old_n == b.old_n && a.new_n == b.new_n && a.neither_n == b.neither_n &&
		       a.bad_segment == b.bad_segment && a.bad_at == b.bad_at,
	       what);
}

static void both_write(struct pair *p, int to_new, const char *what)
{
	expect(p, !p->cpu.ops->write(p->cpu.dev, p->lists.h, p->lists.mem, LISTS_SEGMENTS, to_new), what);
	expect(p, !p->dev.ops->write(p->dev.dev, p->lists.h, p->mem, LISTS_SEGMENTS, to_new), what);
	expect(p, !p->dev.ops->sync(p->dev.dev), what);
	same_memory(p, what);
}

static void copy_out(struct pair *p)
{
	for (int s = 0; s < LISTS_SEGMENTS; s++)
		p->mem[s] = (struct gw_dev_mem){
			p->memory->put(p->memory->ctx, (void *)(uintptr_t)p->lists.mem[s].addr, p->lists.bytes[s]),
			p->lists.bytes[s]};
}

static void drop(struct pair *p)
{
	for (int s = 0; s < LISTS_SEGMENTS; s++)
		p->memory->drop(p->memory->ctx, p->mem[s].addr, p->mem[s].bytes);
}

static void compare_refusals(struct pair *p)
{
	struct gw_dev_mem less[LISTS_SEGMENTS];
	const struct lists_record *last = &p->lists.records[0];

	for (size_t i = 0; i < p->lists.n; i++)
		if (p->lists.records[i].segment == last->segment && p->lists.records[i].at > last->at)
			last = &p->lists.records[i];
	memcpy(less, p->mem, sizeof less);
	less[last->segment].bytes = last->at + last->width - 1;
	expect(p, p->dev.ops->write(p->dev.dev, p->lists.h, less, LISTS_SEGMENTS, 1) == GW_EINVAL, "a place outside");
	same_memory(p, "a refused write");
}

static void compare_list(struct pair *p, size_t records)
{
	lists_make(&p->lists, p->seed, records);
	copy_out(p);
	both_check(p, "check of old bits");
	both_write(p, 1, "write");
	both_check(p, "check of new bits");
	both_write(p, 1, "write again");
	both_write(p, 0, "undo");
	compare_refusals(p);
	drop(p);
	/* Places that hold neither, in a fresh copy, so that the device meets the list with other segments. */
	for (size_t i = 3; i < p->lists.n; i += 97)
		*lists_place(&p->lists, &p->lists.records[i]) ^= 0x11;
	copy_out(p);
	both_check(p, "check of odd bits");
	both_write(p, 1, "write over odd bits");
	drop(p);
	lists_free(&p->lists);
}

static void compare_window(struct pair *p, struct gw_rng *r)
{
	struct gw_dev_window w = lists_window(&p->lists, r);
	size_t n = w.rows * w.cols * w.width;
	uint8_t *a = calloc(1, n + 1), *b = calloc(1, n + 1);
	uint64_t lane_a[2] = {1, 2}, lane_b[2] = {1, 2};

	expect(p, !p->cpu.ops->print(p->cpu.dev, &w, p->lists.mem, LISTS_SEGMENTS, lane_a), "print");
	expect(p, !p->dev.ops->print(p->dev.dev, &w, p->mem, LISTS_SEGMENTS, lane_b), "print");
	expect(p, !memcmp(lane_a, lane_b, sizeof lane_a), "print");
	expect(p, !p->cpu.ops->gather(p->cpu.dev, &w, p->lists.mem, LISTS_SEGMENTS, a), "gather");
	expect(p, !p->dev.ops->gather(p->dev.dev, &w, p->mem, LISTS_SEGMENTS, b), "gather");
	expect(p, !memcmp(a, b, n + 1), "gather");
	w.row_pitch = p->lists.bytes[0];
	w.rows = w.cols = 2;
	expect(p, p->dev.ops->gather(p->dev.dev, &w, p->mem, LISTS_SEGMENTS, b) == GW_EINVAL, "a window outside");
	expect(p, p->dev.ops->print(p->dev.dev, &w, p->mem, LISTS_SEGMENTS, lane_b) == GW_EINVAL, "a window outside");
	free(a);
	free(b);
}

void compare_with_row0(struct gw_device dev, const struct compare_memory *memory, uint64_t seed, size_t records,
		       int windows)
{
	struct pair p = {.cpu = gw_device_cpu(), .dev = dev, .memory = memory, .seed = seed};
	struct gw_rng r;

	if (records)
		compare_list(&p, records);
	gw_rng_init(&r, seed);
	lists_make(&p.lists, seed, 1);
	copy_out(&p);
	for (int i = 0; i < windows; i++)
		compare_window(&p, &r);
	drop(&p);
	lists_free(&p.lists);
}
