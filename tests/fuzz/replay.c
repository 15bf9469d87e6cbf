/* Runs a target over its corpus, and over each input cut at every byte and with every bit flipped (those behind a '='
 * only as they are); or, given a folder,
 * over the files in it, as they are. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 64 * 1024, MUTATED_MAX = 2048 };

static int digit(int c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A copy of exactly that size, so that a sanitizer sees a read past its end. */
static void one(const uint8_t *p, size_t n)
{
	uint8_t *exact = malloc(n ? n : 1);

	if (!exact)
		abort();
	memcpy(exact, p, n);
	(void)LLVMFuzzerTestOneInput(exact, n);
	free(exact);
}

static void around(uint8_t *p, size_t n)
{
	one(p, n);
	if (n > MUTATED_MAX)
		return;
	for (size_t cut = 0; cut < n; cut++)
		one(p, cut);
	for (size_t bit = 0; bit < 8 * n; bit++) {
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		one(p, n);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* One line of the corpus as bytes; 0 for a comment, -1 for what is neither. */
static int parse(const char *line, uint8_t *out, size_t *n)
{
	*n = 0;
	if (line[0] == '#' || line[0] == '\n')
		return 0;
	for (; line[0] && line[0] != '\n'; line += 2) {
		int hi = digit(line[0]), lo = hi < 0 ? -1 : digit(line[1]);

		if (lo < 0 || *n == INPUT_MAX)
			return -1;
		out[(*n)++] = (uint8_t)(hi << 4 | lo);
	}
	return 1;
}

static int run_folder(const char *dir)
{
	uint8_t *bytes = malloc(INPUT_MAX);
	DIR *d = opendir(dir);
	size_t inputs = 0;

	if (!d || !bytes) {
		perror(dir);
		return 1;
	}
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		char path[4096];
		FILE *f;

		(void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
		if (!f)
			continue;
		one(bytes, fread(bytes, 1, INPUT_MAX, f));
		inputs++;
		(void)fclose(f);
	}
	(void)closedir(d);
	free(bytes);
	(void)printf("%s: %zu inputs of %s\n", fuzz_name, inputs, dir);
	return 0;
}

int main(int argc, char **argv)
{
	const char *top = getenv("top_srcdir");
	char path[4096], *line = NULL;
	uint8_t *bytes = malloc(INPUT_MAX);
	size_t cap = 0, n, inputs = 0;
	FILE *f;

	if (argc > 1)
		return run_folder(argv[1]);
	(void)snprintf(path, sizeof path, "%s/tests/fuzz/%s.hex", top ? top : ".", fuzz_name);
	f = fopen(path, "r");
	if (!f || !bytes) {
		perror(path);
		return 1;
	}
	one(bytes, 0);
	while (getline(&line, &cap, f) >= 0) {
		int alone = line[0] == '=', got = parse(line + alone, bytes, &n);

		if (got < 0) {
			(void)fprintf(stderr, "%s: a line is not hexadecimal: %.60s\n", path, line);
			return 1;
		}
		if (got && alone)
			one(bytes, n);
		else if (got)
			around(bytes, n);
		inputs += (size_t)got;
	}
	(void)fclose(f);
	free(line);
	free(bytes);
	(void)printf("%s: %zu inputs\n", fuzz_name, inputs);
	return inputs ? 0 : 1;
}
