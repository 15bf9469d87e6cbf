/*
 * Prints random fingerprints and staged lists, with what the C code makes of them, for a reader in another language
 * (tests/py/fingerprint_ref.py, tests/py/list_ref.py). One fact a line.
 */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "lists.h"
#include "patch/fingerprint.h"

static void hex(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%02x", ((const uint8_t *)p)[i]);
}

static void prints(struct gw_rng *r)
{
	static uint8_t data[4096];

	for (int i = 0; i < 60; i++) {
		unsigned width = 1u << gw_rng_below(r, 4);
		uint64_t n = gw_rng_below(r, sizeof data / width),
			 first = i % 2 ? gw_rng_below(r, 3000) : gw_rng_u64(r) >> 3;
		uint64_t lane[2] = {0, 0};
		char text[GW_PRINT_TEXT];

		for (size_t k = 0; k < n * width; k++)
			data[k] = (uint8_t)gw_rng_u64(r);
		gw_print_run(lane, width, first, data, n);
		gw_print_text(text, lane);
		printf("print %u %llu ", width, (unsigned long long)first);
		hex(data, n * width);
		printf(" %s\n", text);
	}
}

static void models(struct gw_rng *r)
{
	static const char *const dtypes[] = {"BF16", "F8_E4M3", "F32", "I64"};
	uint64_t model[2] = {0, 0};
	char text[GW_PRINT_TEXT];

	for (int i = 0; i < 8; i++) {
		uint64_t shape[4], lane[2] = {gw_rng_u64(r), gw_rng_u64(r)};
		unsigned rank = (unsigned)gw_rng_below(r, 5);
		char name[32];

		(void)snprintf(name, sizeof name, "layers.%d.gewicht-\xc3\xa4", i);
		gw_print_text(text, lane);
		printf("tensor %s %s %s", name, dtypes[i % 4], text);
		for (unsigned k = 0; k < rank; k++) {
			shape[k] = gw_rng_u64(r) >> gw_rng_below(r, 64);
			printf(" %llu", (unsigned long long)shape[k]);
		}
		printf("\n");
		gw_model_print_add(model, name, dtypes[i % 4], rank, shape, lane);
	}
	gw_print_text(text, model);
	printf("model %s\n", text);
}

static void list(uint64_t seed)
{
	struct lists l;

	lists_make(&l, seed, 400);
	printf("list ");
	hex(l.h, l.h->bytes);
	printf("\n");
	for (size_t i = 0; i < l.n; i++) {
		const struct lists_record *k = &l.records[i];

		printf("record %u %u %llu ", k->segment, k->width, (unsigned long long)k->at);
		hex(k->old_bits, k->width);
		printf(" ");
		hex(k->new_bits, k->width);
		printf("\n");
	}
	lists_free(&l);
}

int main(void)
{
	struct gw_rng r;

	gw_rng_init(&r, 20260614);
	prints(&r);
	models(&r);
	for (uint64_t seed = 1; seed < 4; seed++)
		list(seed);
	return 0;
}
