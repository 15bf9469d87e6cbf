/*
 * Kernels broken on purpose must fail under emulation, each for its own reason and whatever the order of lanes, and
 * must pass once mended.
 */
#include "broken/block_race.cu"
#include "broken/divergent_barrier.cu"
#include "broken/divergent_shuffle.cu"
#include "broken/misaligned_access.cu"
#include "broken/missing_syncwarp.cu"
#include "broken/overrun.cu"
#include "broken/write_race.cu"

#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "lists.h"

enum { THREADS = 64, BYTES = THREADS * 4, SEEDS = 8 };

struct row {
	const char *name;
	void (*kernel)(uint32_t *out, int mended);
	unsigned grid;
	const char *says; /* NULL: a fault, not a message */
};

static const row rows[] = {
	{"missing_syncwarp", missing_syncwarp, 1, "no barrier lies between"},
	{"divergent_barrier", divergent_barrier, 1, "barrier"},
	{"divergent_shuffle", divergent_shuffle, 1, "__shfl_sync"},
	{"misaligned_access", misaligned_access, 1, "not a multiple of 8"},
	{"write_race", write_race, 1, "race"},
	{"block_race", block_race, 2, "race"},
	{"overrun", overrun, 1, nullptr},
};

/* Runs in a child; its standard error, and how it ended. */
static int run(const row &r, int mended, uint64_t seed, std::string *said)
{
	int pipes[2], status;
	char buffer[4096];
	ssize_t n;

	if (pipe(pipes))
		abort();
	pid_t pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		dup2(pipes[1], 2);
		uint32_t *out = (uint32_t *)lists_guarded(BYTES);
		emu::launch(r.grid, THREADS, seed, [&] { r.kernel(out, mended); });
		_exit(0);
	}
	close(pipes[1]);
	while ((n = read(pipes[0], buffer, sizeof buffer)) > 0)
		said->append(buffer, (size_t)n);
	close(pipes[0]);
	if (waitpid(pid, &status, 0) != pid)
		abort();
	return status;
}

static bool as_expected(const row &r, int mended, int status, const std::string &said)
{
	if (mended)
		return status == 0;
	if (!r.says) /* a sanitizer catches the signal and exits */
		return status != 0;
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && said.find(r.says) != std::string::npos;
}

int main()
{
	int bad = 0;

	for (const row &r : rows)
		for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
			std::string said;
			int mended = seed % 2, status = run(r, mended, seed, &said);

			if (as_expected(r, mended, status, said))
				continue;
			printf("%s%s, seed %d: status %x, said: %s\n", r.name, mended ? " (mended)" : "", (int)seed,
			       (unsigned)status, said.c_str());
			bad++;
		}
	printf("%zu broken kernels, %d surprises\n", sizeof rows / sizeof rows[0], bad);
	return bad != 0;
}
