/* A safetensors file is refused, or its tensors fill it in order, are found by name, and written and read again are
 * the same. */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "weights/safetensors.h"

const char fuzz_name[] = "safetensors";

static int count_pair(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	size_t *bytes = ctx;

	*bytes += key_len + value_len;
	assert(key + key_len == value);
	return 0;
}

static void check_in_order(const struct gw_safetensors *s, size_t file_bytes)
{
	size_t at = 0, header, metadata = 0;
	uint32_t count = gw_safetensors_count(s);

	(void)gw_safetensors_header(s, &header);
	for (uint32_t i = 0; i < count; i++) {
		const struct gw_safetensors_tensor *t = gw_safetensors_at(s, i);
		uint64_t bytes;
		int err = gw_tensor_bytes((enum gw_dtype)t->dtype, t->rank, t->shape, &bytes);

		assert(!err && bytes == t->bytes && t->begin == at);
		assert(strlen(t->name) == t->name_len && gw_safetensors_find(s, t->name) == t);
		assert(!i || strcmp(gw_safetensors_by_name(s, i - 1)->name, gw_safetensors_by_name(s, i)->name) < 0);
		at += t->bytes;
	}
	assert(header + at == file_bytes);
	assert(!gw_safetensors_metadata(s, count_pair, &metadata) && metadata <= header);
}

/* The same tensors, whatever the header's spelling. */
static void check_same(const struct gw_safetensors *a, const struct gw_safetensors *b)
{
	assert(gw_safetensors_count(a) == gw_safetensors_count(b));
	for (uint32_t i = 0; i < gw_safetensors_count(a); i++) {
		const struct gw_safetensors_tensor *x = gw_safetensors_at(a, i), *y = gw_safetensors_at(b, i);

		assert(!strcmp(x->name, y->name) && x->dtype == y->dtype && x->rank == y->rank);
		assert(x->begin == y->begin && x->bytes == y->bytes);
		assert(!x->rank || !memcmp(x->shape, y->shape, x->rank * sizeof *x->shape));
	}
}

static void check_rewritten(const struct gw_safetensors *s)
{
	uint32_t count = gw_safetensors_count(s);
	struct gw_safetensors_spec *specs = calloc(count + 1, sizeof *specs);
	struct gw_safetensors *again;
	struct gw_wr w;
	uint64_t data = 0;
	int err;

	assert(specs);
	for (uint32_t i = 0; i < count; i++) {
		const struct gw_safetensors_tensor *t = gw_safetensors_at(s, i);

		specs[i] = (struct gw_safetensors_spec){t->name, t->shape, t->rank, (enum gw_dtype)t->dtype};
		data += t->bytes;
	}
	gw_wr_init(&w, 1 << 24);
	err = gw_safetensors_write(&w, specs, count, NULL, 0, NULL);
	assert(!err);
	err = gw_safetensors_open(&again, w.p, w.n, w.n + data, NULL);
	assert(!err);
	check_same(s, again);
	gw_safetensors_free(again);
	gw_wr_free(&w);
	free(specs);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct gw_safetensors *s;

	if (gw_safetensors_open(&s, p, n, n, NULL))
		return -1;
	check_in_order(s, n);
	check_rewritten(s);
	gw_safetensors_free(s);
	return 0;
}
