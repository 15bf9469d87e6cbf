#include "patch/scan.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "patch/element.h"
#include "patch/scan_impl.h"

enum { BLOCK = 64 }; /* bytes compared at once */

int gw_changes_buf_init(struct gw_changes_buf *b)
{
	b->at = malloc(sizeof *b->at * GW_TILE_ELEMENTS_MAX + GW_SCAN_SLACK);
	b->old_bits = malloc((size_t)8 * GW_TILE_ELEMENTS_MAX + GW_SCAN_SLACK);
	b->new_bits = malloc((size_t)8 * GW_TILE_ELEMENTS_MAX + GW_SCAN_SLACK);
	if (b->at && b->old_bits && b->new_bits)
		return 0;
	gw_changes_buf_free(b);
	return GW_ENOMEM;
}

void gw_changes_buf_free(struct gw_changes_buf *b)
{
	free(b->at);
	free(b->old_bits);
	free(b->new_bits);
	*b = (struct gw_changes_buf){0};
}

static inline int block_differs(const uint8_t *a, const uint8_t *b)
{
	uint64_t x = 0;

	for (int i = 0; i < BLOCK; i += 8)
		x |= gw_le64(a + i) ^ gw_le64(b + i);
	return x != 0;
}

static inline size_t scan(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits,
			  size_t from, size_t to, unsigned width, uint32_t base)
{
	for (size_t i = from; i < to; i++) {
		uint64_t o = gw_element_load(old + i * width, width), n = gw_element_load(new_bits + i * width, width);

		if (o == n)
			continue;
		b->at[count] = base + (uint32_t)i;
		gw_element_store(b->old_bits + count * width, width, o);
		gw_element_store(b->new_bits + count * width, width, n);
		count++;
	}
	return count;
}

/* One copy for each width, so that the compiler sees it as a constant. */
#define SCAN_WIDTH(w) \
	static size_t run_##w(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits, \
			      size_t n, uint32_t base) \
	{ \
		const size_t step = BLOCK / (w); \
		size_t i = 0; \
		for (; i + step <= n; i += step) \
			if (block_differs(old + i * (w), new_bits + i * (w))) \
				count = scan(b, count, old, new_bits, i, i + step, (w), base); \
		return scan(b, count, old, new_bits, i, n, (w), base); \
	}
SCAN_WIDTH(1)
SCAN_WIDTH(2)
SCAN_WIDTH(4)
SCAN_WIDTH(8)

size_t gw_scan_scalar(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits, size_t n,
		      unsigned width, uint32_t base)
{
	switch (width) {
	case 1:
		return run_1(b, count, old, new_bits, n, base);
	case 2:
		return run_2(b, count, old, new_bits, n, base);
	case 4:
		return run_4(b, count, old, new_bits, n, base);
	default:
		return run_8(b, count, old, new_bits, n, base);
	}
}

/* The choice is made once, on first use, whichever thread comes first. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static gw_scan_fn *run;
static enum gw_scan_impl used;

static gw_scan_fn *impl_run(enum gw_scan_impl impl)
{
	switch (impl) {
	case GW_SCAN_AVX2:
		return gw_scan_avx2();
	case GW_SCAN_AVX512:
		return gw_scan_avx512();
	default:
		return gw_scan_scalar;
	}
}

static void choose(void)
{
	for (used = GW_SCAN_AVX512; !(run = impl_run(used)); used--)
		;
}

int gw_scan_use(enum gw_scan_impl impl)
{
	gw_scan_fn *f = impl_run(impl);

	(void)pthread_once(&once, choose);
	if (!f)
		return GW_EUNSUP;
	run = f;
	used = impl;
	return 0;
}

enum gw_scan_impl gw_scan_used(void)
{
	(void)pthread_once(&once, choose);
	return used;
}

size_t gw_scan_run(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits, uint64_t n,
		   unsigned width, uint32_t base)
{
	assert(count <= GW_TILE_ELEMENTS_MAX && n <= GW_TILE_ELEMENTS_MAX - count);
	(void)pthread_once(&once, choose);
	return run(b, count, old, new_bits, n, width, base);
}

void gw_scan_tile(struct gw_changes_buf *b, const uint8_t *old, const uint8_t *new_bits, unsigned width,
		  const struct gw_tile_rect *r, struct gw_tile_changes *out)
{
	size_t n = 0;

	for (uint64_t row = 0; row < r->rows; row++) {
		uint64_t at = ((r->row0 + row) * r->tensor_cols + r->col0) * width;

		n = gw_scan_run(b, n, old + at, new_bits + at, r->cols, width, (uint32_t)(row * r->cols));
	}
	*out = (struct gw_tile_changes){n, b->at, b->old_bits, b->new_bits};
}

const uint8_t *gw_tile_gather(const uint8_t *tensor, unsigned width, const struct gw_tile_rect *r, uint8_t *out)
{
	const uint8_t *p = tensor + (r->row0 * r->tensor_cols + r->col0) * width;

	if (r->rows == 1 || r->cols == r->tensor_cols)
		return p;
	for (uint64_t row = 0; row < r->rows; row++)
		memcpy(out + row * r->cols * width, p + row * r->tensor_cols * width, r->cols * width);
	return out;
}
