#include "tools/cmd.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "io/os/pool.h"

const char *arg_value(const struct args *a, const char *name)
{
	for (int i = 0; a->cmd->opts[i].name; i++)
		if (!strcmp(a->cmd->opts[i].name, name))
			return a->value[i];
	assert(0 && "an option that the verb does not declare");
	return NULL;
}

int arg_flag(const struct args *a, const char *name)
{
	return arg_value(a, name) != NULL;
}

static int parse_u64(const char *text, uint64_t *v, const char **end)
{
	char *e;

	errno = 0;
	if (text[0] < '0' || text[0] > '9')
		return GW_EINVAL;
	*v = strtoull(text, &e, 10);
	*end = e;
	return errno ? GW_EINVAL : 0;
}

int arg_u64(struct args *a, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	static const char suffix[] = "KMGT";
	const char *text = arg_value(a, name), *end = NULL, *s;
	uint64_t v = 0;
	int err;

	if (!text)
		return 0;
	err = parse_u64(text, &v, &end);
	if (!err && *end && (s = strchr(suffix, *end)) && !end[1]) {
		uint64_t unit = (uint64_t)1 << (10 * (s - suffix + 1));

		if (__builtin_mul_overflow(v, unit, &v))
			err = GW_EINVAL;
		end++;
	}
	if (err || *end || v < min || v > max)
		return gw_diag_set(&a->why, GW_EINVAL, "--%s %s: needs a whole number from %llu to %llu (suffixes K M G T)",
				   name, text, (unsigned long long)min, (unsigned long long)max);
	*out = v;
	return 0;
}

int arg_duration(struct args *a, const char *name, uint64_t *ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"", 1000000000}, {"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000},
		     {"h", 3600000000000}, {"d", 86400000000000}};
	const char *text = arg_value(a, name), *end = NULL;
	uint64_t v;

	if (!text)
		return 0;
	if (!parse_u64(text, &v, &end))
		for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
			if (!strcmp(end, units[i].unit) && !__builtin_mul_overflow(v, units[i].ns, ns))
				return 0;
	return gw_diag_set(&a->why, GW_EINVAL, "--%s %s: needs a duration such as 250ms, 90s, 15m, 12h or 7d", name, text);
}

int print_json(json_t *doc, struct gw_diag *why)
{
	int bad = !doc || json_dumpf(doc, stdout, JSON_INDENT(2)) || putchar('\n') == EOF || fflush(stdout);

	json_decref(doc);
	return bad ? gw_diag_set(why, GW_EIO, "cannot write the JSON document to standard output") : 0;
}

json_t *json_u64(uint64_t v)
{
	char text[24];

	if (v <= INT64_MAX)
		return json_integer((json_int_t)v);
	(void)snprintf(text, sizeof text, "%llu", (unsigned long long)v);
	return json_string(text);
}

const char *human_bytes(char *buf, uint64_t bytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	double v = (double)bytes;
	size_t u = 0;

	while (v >= 999.5 && u + 1 < sizeof units / sizeof units[0]) {
		v /= 1000;
		u++;
	}
	(void)snprintf(buf, 32, u && v < 99.95 ? "%.1f %s" : "%.0f %s", v, units[u]);
	return buf;
}

struct gw_pool *cmd_pool(struct args *a, unsigned threads)
{
	static struct gw_pool pool;

	if (!pool.run && gw_pool_threads_init(&pool, threads, &a->why))
		return NULL;
	return &pool;
}

/* Seconds since some moment. */
static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The one bar that a process draws. */
static struct {
	struct gw_progress progress;
	double began, drawn;
	int shown;
} bar;

static void draw(void *ctx, uint64_t done, uint64_t total)
{
	static const char full[] = "##############################";
	const int width = sizeof full - 1;
	double now = now_s(), share = total ? (double)done / (double)total : 1, rate;
	char size[32], left[32] = "";

	if (now - bar.drawn < 0.1 && done < total)
		return;
	rate = now > bar.began ? (double)done / (now - bar.began) : 0;
	if (done < total && rate > 0)
		(void)snprintf(left, sizeof left, ", %.0f s left", (double)(total - done) / rate);
	(void)fprintf(stderr, "\r%-12s [%-*.*s] %3.0f %%, %s/s%s\033[K", (const char *)ctx, width, (int)(share * width),
		      full, share * 100, human_bytes(size, (uint64_t)rate), left);
	(void)fflush(stderr);
	bar.drawn = now;
	bar.shown = 1;
}

struct gw_progress *progress_bar(const char *what)
{
	if (!isatty(STDERR_FILENO))
		return NULL;
	bar.progress = (struct gw_progress){.told = draw, .ctx = (void *)(uintptr_t)what};
	bar.began = now_s();
	bar.drawn = 0;
	return &bar.progress;
}

void progress_end(void)
{
	if (bar.shown)
		(void)fputc('\n', stderr);
	bar.shown = 0;
}
