#include "result.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void tail(const struct bench_block *b)
{
	(void)printf(" pair=%s dtype=%s part=%s\n", b->label, b->dtype, b->part);
}

static double gb(const struct bench_block *b)
{
	return (double)b->pair->bytes / 1e9;
}

void result_bits(const struct bench_block *b, const char *codec, uint64_t bytes)
{
	double bits = 8.0 * (double)bytes, bound = b->bound.place_bits + b->bound.step_bits;

	(void)printf("RESULT codec.bits.%s %.3f bits bytes=%" PRIu64 " of_bound=%.4f of_bound_and_parameters=%.4f",
		     codec, bits / (double)b->bound.changed, bytes, bits / bound,
		     bits / (bound + b->bound.parameter_bits));
	if (b->xor_bytes)
		(void)printf(" of_xor_zstd1=%.4f", (double)bytes / (double)b->xor_bytes);
	tail(b);
}

void result_speed(const struct bench_block *b, const char *way, const char *codec, const struct bench_time *t)
{
	const struct bench_time *read = &b->ceilings[strcmp(way, "encode") ? KERNEL_READ : KERNEL_READ_TWO];

	(void)printf("RESULT codec.%s.%s %.3f GB/s cpu_s=%.4f wall_s=%.4f runs=%d of_memcpy=%.3f of_read=%.3f", way,
		     codec, gb(b) / t->cpu_s, t->cpu_s, t->wall_s, t->runs, b->ceilings[KERNEL_COPY].cpu_s / t->cpu_s,
		     read->cpu_s / t->cpu_s);
	tail(b);
}

void result_bound(const struct bench_block *b)
{
	const struct bench_bound *n = &b->bound;
	double k = (double)n->changed;

	(void)printf("RESULT codec.bound %.3f bits places=%.3f steps=%.3f parameters=%.3f changed=%" PRIu64
		     " elements=%" PRIu64 " density=%.6f model_bytes=%" PRIu64,
		     (n->place_bits + n->step_bits) / k, n->place_bits / k, n->step_bits / k, n->parameter_bits / k,
		     n->changed, n->elements, k / (double)n->elements, b->pair->bytes);
	tail(b);
}

void result_kernel(const struct bench_block *b, enum kernel kernel)
{
	const struct bench_time *t = &b->ceilings[kernel];
	int both = kernel == KERNEL_READ_TWO || kernel == KERNEL_SCAN;
	const struct bench_time *read = &b->ceilings[both ? KERNEL_READ_TWO : KERNEL_READ];

	(void)printf("RESULT codec.kernel.%s %.3f GB/s cpu_s=%.4f wall_s=%.4f runs=%d of_memcpy=%.3f of_read=%.3f",
		     kernel_names[kernel], gb(b) / t->cpu_s, t->cpu_s, t->wall_s, t->runs,
		     b->ceilings[KERNEL_COPY].cpu_s / t->cpu_s, read->cpu_s / t->cpu_s);
	tail(b);
}

void result_threads(const struct bench_block *b, const char *way, double one_s, double two_s, double read_one_s,
		    double read_two_s)
{
	double gain = one_s / two_s, read_gain = read_one_s / read_two_s;

	(void)printf("RESULT codec.two_threads.%s %.3f times read_gains=%.3f of_read=%.3f wall_s=%.4f", way, gain,
		     read_gain, gain / read_gain, two_s);
	tail(b);
}

void result_tiles(const struct bench_block *b, const struct tiles_result *r)
{
	(void)printf("RESULT codec.encode_tiles.godwit %.3f GB/s cpu_s=%.4f wall_s=%.4f runs=%d of_read=%.3f "
		     "learn_cpu_s=%.4f "
		     "payload_bytes=%" PRIu64,
		     gb(b) / r->code.cpu_s, r->code.cpu_s, r->code.wall_s, r->code.runs,
		     b->ceilings[KERNEL_READ_TWO].cpu_s / r->code.cpu_s, r->learn.cpu_s, r->bytes);
	tail(b);
}

void result_missing(const struct bench_block *b, const char *tool, const char *package)
{
	(void)printf("RESULT codec.missing.%s 0 bits package=%s", tool, package);
	tail(b);
}
