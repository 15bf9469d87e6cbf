/*
 * synth OUT-DIR (--params N | --bytes SIZE) --steps K --density D [--seed S] [--shards M] [--jobs J]
 *       [--dtype bf16 | f8_e4m3]
 *
 * Makes K + 1 consecutive checkpoints OUT-DIR/v0 … vK of a synthetic model, in which about D of all elements change
 * from each to the next: see synth_stats.h, and synth_model.h for fp8, where D is of the elements in fp8. The same
 * options give the same bytes on every machine.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "io/os/fs_os.h"
#include "io/os/pool.h"
#include "synth_write.h"
#include "weights/checkpoint.h"

enum { USAGE = 2 };

struct options {
	const char *dir;
	uint64_t params, steps, shards, jobs, seed;
	double density;
	int bytes; /* params are bytes of elements so far */
	enum synth_view view;
};

static void usage(FILE *to)
{
	(void)fprintf(
		to,
		"usage: synth OUT-DIR (--params N | --bytes SIZE) --steps K --density D [--seed S] [--shards M]\n"
		"             [--jobs J] [--dtype bf16 | f8_e4m3]\n"
		"Makes consecutive checkpoints OUT-DIR/v0 ... vK. N and SIZE take K, M, G (powers of 1000 for N, of\n"
		"1024 for SIZE); D is the share of elements that change in a step, such as 0.0035 (f8_e4m3: of those\n"
		"in fp8).\n");
}

/* Digits and perhaps K, M or G. */
static int parse_size(const char *text, uint64_t unit, uint64_t *out)
{
	static const char suffixes[] = "KMG";
	char *end;
	const char *suffix;
	uint64_t v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || text[0] < '0' || text[0] > '9')
		return GW_EINVAL;
	if (*end) {
		suffix = strchr(suffixes, *end);
		if (!suffix || end[1])
			return GW_EINVAL;
		for (const char *at = suffixes; at <= suffix; at++)
			if (gw_mul_u64(v, unit, &v))
				return GW_EINVAL;
	}
	*out = v;
	return 0;
}

static int parse_density(const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	return end == text || *end || !(*out > 0 && *out < 1) ? GW_EINVAL : 0;
}

static int parse_view(const char *text, enum synth_view *out)
{
	*out = strcmp(text, "f8_e4m3") ? SYNTH_VIEW_BF16 : SYNTH_VIEW_FP8;
	return *out == SYNTH_VIEW_BF16 && strcmp(text, "bf16") ? GW_EINVAL : 0;
}

static int parse_one(struct options *o, int option)
{
	switch (option) {
	case 'p':
		return parse_size(optarg, 1000, &o->params);
	case 'b':
		o->bytes = 1;
		return parse_size(optarg, 1024, &o->params);
	case 't':
		return parse_view(optarg, &o->view);
	case 'k':
		return parse_size(optarg, 1000, &o->steps);
	case 'd':
		return parse_density(optarg, &o->density);
	case 's':
		return parse_size(optarg, 1000, &o->seed);
	case 'm':
		return parse_size(optarg, 1000, &o->shards);
	case 'j':
		return parse_size(optarg, 1000, &o->jobs);
	default:
		return GW_EINVAL;
	}
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{"params", required_argument, NULL, 'p'}, {"bytes", required_argument, NULL, 'b'},
		{"steps", required_argument, NULL, 'k'},  {"density", required_argument, NULL, 'd'},
		{"seed", required_argument, NULL, 's'},	  {"shards", required_argument, NULL, 'm'},
		{"jobs", required_argument, NULL, 'j'},	  {"dtype", required_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},	  {NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'h') {
			usage(stdout);
			exit(EXIT_SUCCESS);
		}
		if (option == '?')
			return GW_EINVAL;
		if (parse_one(o, option)) {
			(void)fprintf(stderr, "synth: not a value that fits: %s\n", optarg);
			return GW_EINVAL;
		}
	}
	if (optind + 1 != argc || !o->params || o->steps > SYNTH_STEPS_MAX || o->shards > GW_CHECKPOINT_SHARDS_MAX ||
	    o->jobs > GW_POOL_WIDTH_MAX || (o->steps && !(o->density > 0)))
		return GW_EINVAL;
	if (o->bytes)
		o->params /= o->view == SYNTH_VIEW_FP8 ? 1 : 2; /* fp8: with the bf16 tensors a little more */
	o->dir = argv[optind];
	return 0;
}

static int make(const struct options *o, struct gw_diag *why)
{
	struct synth_stats *s = malloc(sizeof *s);
	struct synth_model m = {0};
	struct gw_pool pool = {0};
	double expected = 0;
	int err = s ? 0 : GW_ENOMEM;

	if (!err)
		err = synth_model_make(&m, o->view, o->params, (uint32_t)o->shards, why);
	if (!err)
		synth_stats_init(s, o->seed);
	if (!err && o->steps)
		err = synth_stats_solve(s, &m, o->density, &expected);
	if (err == GW_EINVAL)
		(void)gw_diag_set(why, err, "no rate changes %g of the elements in a step", o->density);
	if (!err)
		err = gw_pool_threads_init(&pool, (unsigned)o->jobs, why);
	if (!err)
		err = synth_write(gw_fs_os(), &pool, o->dir, &m, s, (unsigned)o->steps, why);
	if (!err)
		(void)printf("%s: v0 to v%" PRIu64 ", %" PRIu64
			     " parameters in %u tensors and %u shards, rate %.4g, expected to "
			     "change a step: %.4f %%\n",
			     o->dir, o->steps, m.elements, m.count, m.shards, (double)s->rate, 100 * expected);
	gw_pool_threads_free(&pool);
	synth_model_free(&m);
	free(s);
	return err;
}

int main(int argc, char **argv)
{
	struct options o = {.shards = 1, .seed = 1};
	struct gw_diag why = {""};
	int err;

	if (parse(&o, argc, argv)) {
		usage(stderr);
		return USAGE;
	}
	err = make(&o, &why);
	if (err)
		(void)fprintf(stderr, "synth: %s\n", why.text[0] ? why.text : gw_err_text(err));
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
