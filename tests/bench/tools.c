#include "tools.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

extern char **environ;

/* WINDOW: as much as the files have, so that every match can be found: as a logarithm for zstd, in bytes for
 * xdelta3. */
const struct tool bench_tools[] = {
	{"zstd3_patch_from",
	 "zstd -3 --long --patch-from",
	 "zstd",
	 0,
	 0,
	 {"zstd", "-3", "LONG", "--patch-from", "OLD", "NEW", "-o", "PATCH", "-f", "-q"},
	 {"zstd", "-d", "LONG", "--patch-from", "OLD", "PATCH", "-o", "BACK", "-f", "-q"}},
	{"xdelta3_1",
	 "xdelta3 -1",
	 "xdelta3",
	 1,
	 0,
	 {"xdelta3", "-e", "-1", "-f", "-B", "WINDOW", "-s", "OLD", "NEW", "PATCH"},
	 {"xdelta3", "-d", "-f", "-B", "WINDOW", "-s", "OLD", "PATCH", "BACK"}},
	{"xdelta3_9",
	 "xdelta3 -9",
	 "xdelta3",
	 1,
	 0,
	 {"xdelta3", "-e", "-9", "-f", "-B", "WINDOW", "-s", "OLD", "NEW", "PATCH"},
	 {"xdelta3", "-d", "-f", "-B", "WINDOW", "-s", "OLD", "PATCH", "BACK"}},
	{"bsdiff", "bsdiff", "bsdiff", 1, 1, {"bsdiff", "OLD", "NEW", "PATCH"}, {"bspatch", "OLD", "BACK", "PATCH"}},
	{NULL, NULL, NULL, 0, 0, {NULL}, {NULL}},
};

struct names {
	const char *old, *new_;
	char patch[4096], back[4096], window[32], longer[32];
};

static const char *put_in(const struct names *n, const char *word)
{
	const struct {
		const char *word, *value;
	} known[] = {{"OLD", n->old},	{"NEW", n->new_},      {"PATCH", n->patch},
		     {"BACK", n->back}, {"WINDOW", n->window}, {"LONG", n->longer}};

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (!strcmp(word, known[i].word))
			return known[i].value;
	return word;
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* GW_ENOENT where there is no such program; GW_EIO where it ends badly. */
static int run(const char *const words[12], const struct names *names, struct bench_time *took)
{
	posix_spawn_file_actions_t quiet;
	struct bench_time start;
	struct rusage used;
	char *argv[13] = {NULL};
	int err, status = 0;
	pid_t child;

	for (size_t i = 0; i < 12 && words[i]; i++)
		argv[i] = (char *)(uintptr_t)put_in(names, words[i]);
	(void)posix_spawn_file_actions_init(&quiet);
	(void)posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	(void)posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	start = bench_now();
	err = posix_spawnp(&child, argv[0], &quiet, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&quiet);
	if (err)
		return err == ENOENT ? GW_ENOENT : GW_EIO;
	while (wait4(child, &status, 0, &used) < 0)
		if (errno != EINTR)
			return GW_EIO;
	*took = bench_since(start);
	took->cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0	 ? 0
	       : WIFEXITED(status) && WEXITSTATUS(status) == 127 ? GW_ENOENT
								 : GW_EIO;
}

static const void *map(const char *path, size_t *n)
{
	struct stat st;
	void *p = MAP_FAILED;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && !fstat(fd, &st) && st.st_size > 0) {
		*n = (size_t)st.st_size;
		p = mmap(NULL, *n, PROT_READ, MAP_SHARED, fd, 0);
	}
	if (fd >= 0)
		(void)close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static int same_files(const char *a, const char *b)
{
	size_t n = 0, m = 0;
	const void *p = map(a, &n), *q = map(b, &m);
	int same = p && q && n == m && !memcmp(p, q, n);

	if (p)
		(void)munmap((void *)(uintptr_t)p, n);
	if (q)
		(void)munmap((void *)(uintptr_t)q, m);
	return same;
}

/* The middle one of those that were run. */
static void keep(struct bench_time *best, const struct bench_time *times, int n)
{
	int middle = 0;

	for (int i = 0; i < n; i++) {
		int below = 0;

		for (int k = 0; k < n; k++)
			below += times[k].cpu_s < times[i].cpu_s || (times[k].cpu_s == times[i].cpu_s && k < i);
		if (below == n / 2)
			middle = i;
	}
	*best = times[middle];
	best->runs = n;
}

int tool_run(const struct tool *t, const char *old, const char *new_, const char *work, int runs,
	     struct tool_result *out)
{
	struct names names = {.old = old, .new_ = new_};
	struct bench_time encode[BENCH_RUNS_MAX], decode[BENCH_RUNS_MAX];
	struct stat st;
	unsigned bits = 20;
	int err = 0;

	runs = t->once ? 1 : runs;
	memset(out, 0, sizeof *out);
	if (stat(old, &st))
		return GW_EIO;
	while (bits < 31 && (1LL << bits) < st.st_size)
		bits++;
	(void)snprintf(names.patch, sizeof names.patch, "%s/tool-patch", work);
	(void)snprintf(names.back, sizeof names.back, "%s/tool-back", work);
	(void)snprintf(names.window, sizeof names.window, "%lld", 1LL << bits);
	(void)snprintf(names.longer, sizeof names.longer, "--long=%u", bits);
	for (int i = 0; i < runs && !err; i++) {
		(void)unlink(names.patch);
		(void)unlink(names.back);
		err = run(t->encode, &names, &encode[i]);
		if (!err)
			err = run(t->decode, &names, &decode[i]);
	}
	out->installed = err != GW_ENOENT;
	out->verified = !err && same_files(new_, names.back) && !stat(names.patch, &st);
	if (out->verified) {
		out->bytes = (uint64_t)st.st_size;
		keep(&out->encode, encode, runs);
		keep(&out->decode, decode, runs);
	}
	(void)unlink(names.patch);
	(void)unlink(names.back);
	return 0;
}
