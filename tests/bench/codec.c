/*
 * What it costs to send one version of a checkpoint to who has another, in bits a change and in seconds: our patch
 * files, what others send, and what no stateless coder can go below, on the same pair in the same run. Prints RESULT
 * lines; tools/lab/bench_table.py makes tables of them, codec.sh runs it on many pairs.
 *
 *     tests/bench/codec OLD NEW --label NAME --work DIR [--runs N] [--small MIB] [--only DTYPE]
 *
 * Each dtype that changed is measured by itself and, where there are several, all together; or one of them alone. What
 * is too slow for large files is measured on the first MIB (8) of the largest class, along with everything else.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/num.h"
#include "base/publish.h"
#include "godwit.h"
#include "io/os/pool.h"
#include "kernels.h"
#include "result.h"
#include "rivals.h"
#include "tools.h"

/* Sizes of models, bytes. What is below LARGE is measured more often, since it is soon done and stays in the cache. */
enum { THREADS = 2, LARGE = 64 * 1024 * 1024, ONCE = 256 * 1024 * 1024, RUNS_SMALL = 3 };

struct options {
	const char *old, *new_, *label, *work;
	int runs;
	uint64_t small;
	enum gw_dtype only; /* GW_DT_NONE: all of them */
};

/* What is being measured. */
struct job {
	const struct options *o;
	struct bench_block b;
	uint8_t *model; /* a version in one piece */
	int runs;
};

static void fail(int err, const char *what, const struct gw_diag *why)
{
	if (!err)
		return;
	(void)fprintf(stderr, "codec: %s: %s\n", what, why && why->text[0] ? why->text : gw_err_text(err));
	exit(EXIT_FAILURE);
}

/* --- measuring -----------------------------------------------------------------------------------------------------
 */

static void measure_kernels(struct job *j)
{
	struct gw_pool one = gw_pool_serial();

	for (int k = 0; k < KERNEL_COUNT; k++) {
		fail(kernel_measure(j->b.pair, (enum kernel)k, &one, j->runs, j->model, &j->b.ceilings[k]),
		     kernel_names[k], NULL);
		result_kernel(&j->b, (enum kernel)k);
	}
}

/* What a second thread gains, by the clock on the wall, beside what it gains for reading alone. */
static void measure_threads(struct job *j, struct godwit *g, const struct bench_time *encode,
			    const struct bench_time *decode)
{
	struct gw_pool two = {0};
	struct gw_diag why = {""};
	struct bench_time both, one, t;

	fail(gw_pool_threads_init(&two, THREADS, &why), "threads", &why);
	fail(kernel_measure(j->b.pair, KERNEL_READ_TWO, &two, j->runs, NULL, &both), "reading", NULL);
	fail(kernel_measure(j->b.pair, KERNEL_READ, &two, j->runs, NULL, &one), "reading", NULL);
	fail(godwit_encode(g, &two, j->runs, &t), "gw_diff", &g->why);
	result_threads(&j->b, "encode", encode->least_s, t.least_s, j->b.ceilings[KERNEL_READ_TWO].least_s,
		       both.least_s);
	fail(godwit_open(g), "gw_patch_open", &g->why);
	fail(godwit_decode(g, &two, GODWIT_LIST, j->runs, j->model, &t), "gw_tile_decode", NULL);
	result_threads(&j->b, "decode", decode->least_s, t.least_s, j->b.ceilings[KERNEL_READ].least_s, one.least_s);
	gw_pool_threads_free(&two);
}

static void measure_godwit(struct job *j)
{
	struct gw_pool one = gw_pool_serial();
	struct godwit g;
	struct bench_time encode, list, t;

	fail(godwit_init(&g, j->b.pair, THREADS), "memory", NULL);
	fail(godwit_encode(&g, &one, j->runs, &encode), "gw_diff", &g.why);
	fail(godwit_open(&g), "gw_patch_open", &g.why);
	result_bits(&j->b, "godwit", g.report.patch_bytes);
	result_speed(&j->b, "encode", "godwit", &encode);
	fail(godwit_decode(&g, &one, GODWIT_IN_PLACE, j->runs, j->model, &t), "decoding in place", NULL);
	result_speed(&j->b, "decode", "godwit", &t);
	fail(godwit_decode(&g, &one, GODWIT_LIST, j->runs, j->model, &list), "decoding", NULL);
	result_speed(&j->b, "decode_list", "godwit", &list);
	fail(godwit_decode(&g, &one, GODWIT_PRINTS, j->runs, j->model, &t), "decoding with fingerprints", NULL);
	result_speed(&j->b, "decode_prints", "godwit", &t);
	if (j->b.pair->bytes >= LARGE)
		measure_threads(j, &g, &encode, &list);
	godwit_free(&g);
}

/* Where all is of one dtype. */
static void measure_tiles(struct job *j)
{
	enum gw_dtype dtype = gw_dtype_parse(j->b.dtype, strlen(j->b.dtype));
	struct tiles_result r;

	if (!dtype)
		return;
	fail(tiles_measure(j->b.pair, dtype, j->runs, &r), "coding tiles", NULL);
	if (r.bytes)
		result_tiles(&j->b, &r);
}

struct rival_run {
	struct job *job;
	const struct rival *r;
	struct rival_work *w;
};

static int rival_encode(void *ctx)
{
	struct rival_run *run = ctx;

	return run->r->encode(run->r, run->w, run->job->b.pair);
}

static int rival_decode(void *ctx)
{
	struct rival_run *run = ctx;

	return run->r->decode(run->r, run->w, run->job->b.pair, run->job->model);
}

static void rival_before(void *ctx)
{
	const struct rival_run *run = ctx;

	bench_pair_old(run->job->b.pair, run->job->model);
}

/* Rivals come before us, so that XOR with zstd -1 is known when we are held against it. */
static void measure_rivals(struct job *j)
{
	struct rival_work w;
	struct bench_time encode, decode;

	fail(rival_work_init(&w, j->b.pair, j->b.bound.changed), "memory", NULL);
	for (const struct rival *r = bench_rivals; r->name; r++) {
		struct rival_run run = {j, r, &w};

		fail(bench_median(&encode, j->runs, NULL, rival_encode, &run), r->name, NULL);
		fail(bench_median(&decode, j->runs, rival_before, rival_decode, &run), r->name, NULL);
		fail(bench_pair_is_new(j->b.pair, j->model) ? 0 : GW_EDIGEST, r->name, NULL);
		if (!strcmp(r->name, "xor_zstd1"))
			j->b.xor_bytes = rival_bytes(r, &w);
		result_bits(&j->b, r->name, rival_bytes(r, &w));
		result_speed(&j->b, "encode", r->name, &encode);
		result_speed(&j->b, "decode", r->name, &decode);
	}
	rival_work_free(&w);
}

static void measure_tools(struct job *j)
{
	struct tool_result r;

	for (const struct tool *t = bench_tools; t->name; t++) {
		if (t->small && j->b.pair->bytes > j->o->small)
			continue;
		fail(tool_run(t, j->b.pair->paths[0], j->b.pair->paths[1], j->o->work,
			      j->b.pair->bytes > ONCE ? 1 : j->o->runs, &r),
		     t->name, NULL);
		if (!r.installed) {
			result_missing(&j->b, t->name, t->package);
			continue;
		}
		fail(r.verified ? 0 : GW_EDIGEST, t->name, NULL);
		result_bits(&j->b, t->name, r.bytes);
		result_speed(&j->b, "encode", t->name, &r.encode);
		result_speed(&j->b, "decode", t->name, &r.decode);
	}
}

static void measure(const struct options *o, const struct bench_pair *p, const char *class, const char *part)
{
	struct job j = {.o = o, .b = {o->label, class, part, .pair = p}};

	j.runs = p->bytes < LARGE && o->runs > 1 ? (int)gw_min_u64((uint64_t)o->runs * RUNS_SMALL, BENCH_RUNS_MAX)
						 : o->runs;
	fail(bench_bound(p, &j.b.bound), "bound", NULL);
	j.model = malloc((size_t)p->bytes + 1);
	fail(j.model ? 0 : GW_ENOMEM, "memory", NULL);
	bench_pair_old(p, j.model);
	result_bound(&j.b);
	measure_kernels(&j);
	measure_rivals(&j);
	measure_godwit(&j);
	measure_tiles(&j);
	measure_tools(&j);
	(void)fflush(stdout);
	free(j.model);
}

/* --- classes --------------------------------------------------------------------------------------------------------
 */

static void measure_cut(const struct options *o, const struct bench_pair *p, enum gw_dtype dtype, uint64_t limit,
			const char *class, const char *part)
{
	char *old = gw_path_join(o->work, "cut-old.safetensors"), *new_ = gw_path_join(o->work, "cut-new.safetensors");
	struct bench_pair cut;
	struct gw_diag why = {""};

	fail(old && new_ ? 0 : GW_ENOMEM, "memory", NULL);
	fail(bench_pair_cut(p, dtype, limit, old, new_, &why), "cutting", &why);
	fail(bench_pair_open(&cut, old, new_, &why), "the cut", &why);
	measure(o, &cut, class, part);
	bench_pair_close(&cut);
	(void)unlink(old);
	(void)unlink(new_);
	free(old);
	free(new_);
}

static uint64_t bytes_of(const struct bench_pair *p, enum gw_dtype dtype)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->count; i++)
		n += p->tensors[i].dtype == dtype ? p->tensors[i].new_->bytes : 0;
	return n;
}

/* All tensors of the pair: as its files are, or as one file. */
static void measure_all(const struct options *o, const struct bench_pair *p, const char *class)
{
	if (p->paths[0] && p->paths[1])
		measure(o, p, class, "whole");
	else
		measure_cut(o, p, GW_DT_NONE, UINT64_MAX, class, "whole");
}

static void measure_classes(const struct options *o, const struct bench_pair *p)
{
	uint64_t changed[BENCH_DTYPES];
	enum gw_dtype largest = GW_DT_NONE;

	fail(bench_pair_changed(p, changed), "comparing", NULL);
	for (int i = 0; i < BENCH_DTYPES; i++) {
		enum gw_dtype dtype = (enum gw_dtype)i;

		if (o->only && dtype != o->only)
			changed[i] = 0;
		if (changed[i] && (!largest || bytes_of(p, dtype) > bytes_of(p, largest)))
			largest = dtype;
	}
	fail(largest ? 0 : GW_ENOENT, "nothing changed between the two", NULL);
	if (bytes_of(p, largest) == p->bytes) {
		measure_all(o, p, gw_dtype_name(largest));
	} else {
		for (int i = 0; i < BENCH_DTYPES; i++)
			if (changed[i])
				measure_cut(o, p, (enum gw_dtype)i, UINT64_MAX, gw_dtype_name((enum gw_dtype)i),
					    "whole");
		if (!o->only)
			measure_all(o, p, "all");
	}
	if (bytes_of(p, largest) > o->small)
		measure_cut(o, p, largest, o->small, gw_dtype_name(largest), "first");
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{"label", required_argument, NULL, 'l'}, {"work", required_argument, NULL, 'w'},
		{"runs", required_argument, NULL, 'r'},	 {"small", required_argument, NULL, 's'},
		{"only", required_argument, NULL, 'o'},	 {NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (option) {
		case 'l':
			o->label = optarg;
			break;
		case 'w':
			o->work = optarg;
			break;
		case 'r':
			o->runs = atoi(optarg);
			break;
		case 'o':
			o->only = gw_dtype_parse(optarg, strlen(optarg));
			if (!o->only)
				return GW_EINVAL;
			break;
		case 's':
			o->small = strtoull(optarg, NULL, 10) << 20;
			break;
		default:
			return GW_EINVAL;
		}
	if (optind + 2 != argc || !o->label || !o->work || o->runs < 1 || o->runs > BENCH_RUNS_MAX || !o->small)
		return GW_EINVAL;
	o->old = argv[optind];
	o->new_ = argv[optind + 1];
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = {.runs = 3, .small = 8 << 20};
	struct gw_diag why = {""};
	struct bench_pair p;

	if (parse(&o, argc, argv)) {
		(void)fprintf(stderr,
			      "usage: codec OLD NEW --label NAME --work DIR [--runs N] [--small MIB] [--only DTYPE]\n");
		return 2;
	}
	(void)printf("MACHINE compiler %s\nMACHINE libzstd %s\n", __VERSION__, ZSTD_versionString());
	fail(bench_pair_open(&p, o.old, o.new_, &why), o.old, &why);
	measure_classes(&o, &p);
	bench_pair_close(&p);
	return EXIT_SUCCESS;
}
