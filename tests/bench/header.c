/*
 * How long the largest safetensors header takes to read, and how much memory: 100 MB of JSON, and as many tensors
 * as are allowed. Prints RESULT lines.
 *
 *     tests/bench/header [TENSORS]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "weights/safetensors.h"

/* Peak resident memory of the process, KiB. */
static uint64_t peak_kib(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u);
	return (uint64_t)u.ru_maxrss;
}

static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Names as large mixtures of experts have them, lengthened until the header is as large as may be. shuffled: in
 * an order that is neither that of names nor that of data. */
static uint8_t *make(uint32_t tensors, int shuffled, size_t *n)
{
	uint8_t *p = malloc(8 + (size_t)GW_SAFETENSORS_HEADER_MAX);
	char *at = (char *)p + 8;
	size_t json;

	if (!p)
		exit(EXIT_FAILURE);
	*at++ = '{';
	for (uint32_t i = 0; i < tensors; i++) {
		/* An odd multiplier permutes the numbers below a power of two. */
		uint32_t k = shuffled ? (uint32_t)(i * 2654435761U) % tensors : i;

		at += sprintf(at,
			      "%s\"model.layers.%03u.mlp.e.%04u.w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%"
			      "u,%u]}",
			      i ? "," : "", k >> 12, k & 4095, k, k + 1);
	}
	*at++ = '}';
	json = (size_t)(at - (char *)p - 8);
	memset(at, ' ', GW_SAFETENSORS_HEADER_MAX - json);
	*n = 8 + (size_t)GW_SAFETENSORS_HEADER_MAX;
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)((uint64_t)GW_SAFETENSORS_HEADER_MAX >> 8 * i);
	(void)fprintf(stderr, "%u tensors, %zu bytes of JSON, padded to %d\n", tensors, json,
		      GW_SAFETENSORS_HEADER_MAX);
	return p;
}

/* In a process of its own, since a peak does not go down again. */
static void measure(const char *figure, uint32_t tensors, int shuffled)
{
	struct gw_diag why = {""};
	struct gw_safetensors *s;
	size_t n;
	uint8_t *p;
	uint64_t before;
	double start;
	pid_t child = fork();

	if (child > 0)
		(void)waitpid(child, NULL, 0);
	if (child)
		return;
	p = make(tensors, shuffled, &n);
	before = peak_kib();
	start = now_s();
	if (gw_safetensors_open(&s, p, n, n + tensors, &why)) {
		(void)fprintf(stderr, "%s\n", why.text);
		exit(EXIT_FAILURE);
	}
	(void)printf("RESULT weights.header.%s.time %.3f s bytes=%zu tensors=%u\n", figure, now_s() - start, n,
		     tensors);
	(void)printf("RESULT weights.header.%s.memory %.1f MB of_header=%.2f\n", figure,
		     (double)(peak_kib() - before) * 1024e-6, (double)(peak_kib() - before) * 1024 / (double)n);
	gw_safetensors_free(s);
	free(p);
	exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
	uint32_t tensors = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : GW_SAFETENSORS_TENSORS_MAX;

	if (tensors < 1 || tensors > GW_SAFETENSORS_TENSORS_MAX || (tensors & (tensors - 1))) {
		(void)fprintf(stderr, "a power of two, at most %d\n", GW_SAFETENSORS_TENSORS_MAX);
		return 2;
	}
	measure("sorted", tensors, 0);
	measure("shuffled", tensors, 1);
	return EXIT_SUCCESS;
}
