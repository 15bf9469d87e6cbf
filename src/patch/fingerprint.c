#include "patch/fingerprint.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include <sodium.h>

#include "base/err.h"
#include "base/num.h"
#include "base/rng.h"
#include "patch/fingerprint_impl.h"

/* Keys: output n of splitmix64 from a seed, made odd. The seeds are ASCII, read as little-endian numbers. */
#define SEED(a, l)                                                                                                     \
	((uint64_t)'g' | (uint64_t)'o' << 8 | (uint64_t)'d' << 16 | (uint64_t)'w' << 24 | (uint64_t)'i' << 32 |        \
	 (uint64_t)'t' << 40 | (uint64_t)(a) << 48 | (uint64_t)(l) << 56)

static const uint64_t block_seed[2] = {SEED('A', '0'), SEED('A', '1')};
static const uint64_t offset_seed[2] = {SEED('B', '0'), SEED('B', '1')};
_Alignas(64) uint64_t gw_print_offset_table[2][GW_PRINT_BLOCK];

static uint64_t key(uint64_t seed, uint64_t n)
{
	uint64_t state = seed + n * 0x9e3779b97f4a7c15u;

	return gw_splitmix64(&state) | 1;
}

uint64_t gw_print_block_seed(unsigned lane)
{
	return block_seed[lane];
}

uint64_t gw_print_block_key(unsigned lane, uint64_t block)
{
	return key(block_seed[lane], block);
}

static uint32_t unit_bits(unsigned width, const uint8_t *p)
{
	return width == 1 ? *p : width == 2 ? gw_le16(p) : gw_le32(p);
}

static inline __attribute__((always_inline)) void scalar_sum(uint64_t s[2], unsigned width, unsigned offset,
							     const uint8_t *p, size_t n)
{
	const uint64_t *k0 = gw_print_offset_table[0] + offset, *k1 = gw_print_offset_table[1] + offset;
	uint64_t s0 = 0, s1 = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t bits = unit_bits(width, p + i * width);

		s0 += k0[i] * bits;
		s1 += k1[i] * bits;
	}
	s[0] += s0;
	s[1] += s1;
}

static void scalar_part(uint64_t s[2], unsigned width, unsigned offset, const uint8_t *p, size_t n)
{
	if (width == 1)
		scalar_sum(s, 1, offset, p, n);
	else if (width == 2)
		scalar_sum(s, 2, offset, p, n);
	else
		scalar_sum(s, 4, offset, p, n);
}

static void scalar_blocks(uint64_t lane[2], unsigned width, uint64_t block, const uint8_t *p, uint64_t count)
{
	gw_print_blocks_by(scalar_part, lane, width, block, p, count);
}

static const struct gw_print_ops scalar_ops = {scalar_part, scalar_blocks, NULL};

/* The tables and the choice are made once, on first use, whichever thread comes first. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct gw_print_ops *ops;
static enum gw_print_impl used;

static const struct gw_print_ops *impl_ops(enum gw_print_impl impl)
{
	switch (impl) {
	case GW_PRINT_AVX2:
		return gw_print_avx2();
	case GW_PRINT_AVX512:
		return gw_print_avx512();
	default:
		return &scalar_ops;
	}
}

static void init(void)
{
	for (unsigned l = 0; l < 2; l++)
		for (unsigned o = 0; o < GW_PRINT_BLOCK; o++)
			gw_print_offset_table[l][o] = key(offset_seed[l], o);
	for (used = GW_PRINT_AVX512; !(ops = impl_ops(used)); used--)
		;
	if (ops->init)
		ops->init();
}

static const struct gw_print_ops *get_ops(void)
{
	pthread_once(&once, init);
	return ops;
}

int gw_print_use(enum gw_print_impl impl)
{
	const struct gw_print_ops *o;

	get_ops();
	if (!(o = impl_ops(impl)))
		return GW_EUNSUP;
	ops = o;
	used = impl;
	if (o->init)
		o->init();
	return 0;
}

enum gw_print_impl gw_print_used(void)
{
	get_ops();
	return used;
}

const uint64_t *gw_print_offset_keys(unsigned lane)
{
	get_ops();
	return gw_print_offset_table[lane];
}

uint64_t gw_print_key(unsigned lane, uint64_t unit)
{
	return gw_print_block_key(lane, unit / GW_PRINT_BLOCK) * gw_print_offset_keys(lane)[unit % GW_PRINT_BLOCK];
}

/* n units that lie in one block. */
static void add_part(uint64_t lane[2], unsigned width, uint64_t first, const uint8_t *p, size_t n)
{
	uint64_t s[2] = {0, 0};

	/* A handful of units is not worth the vector set-up. */
	(n < 16 ? scalar_part : ops->part)(s, width, (unsigned)(first % GW_PRINT_BLOCK), p, n);
	lane[0] += gw_print_block_key(0, first / GW_PRINT_BLOCK) * s[0];
	lane[1] += gw_print_block_key(1, first / GW_PRINT_BLOCK) * s[1];
}

/* Units of 1, 2 or 4 bytes. */
static void add_units(uint64_t lane[2], unsigned width, uint64_t first, const uint8_t *p, uint64_t n)
{
	const struct gw_print_ops *o = get_ops();
	uint64_t blocks, head = gw_min_u64(n, (0 - first) % GW_PRINT_BLOCK);

	if (head)
		add_part(lane, width, first, p, head);
	first += head, p += head * width, n -= head;
	blocks = n / GW_PRINT_BLOCK;
	if (blocks)
		o->blocks(lane, width, first / GW_PRINT_BLOCK, p, blocks);
	first += blocks * GW_PRINT_BLOCK, p += blocks * GW_PRINT_BLOCK * width, n -= blocks * GW_PRINT_BLOCK;
	if (n)
		add_part(lane, width, first, p, n);
}

void gw_print_run(uint64_t lane[2], unsigned width, uint64_t first, const void *p, uint64_t n)
{
	assert(width == 1 || width == 2 || width == 4 || width == 8);
	if (width == 8)
		add_units(lane, 4, 2 * first, p, 2 * n);
	else
		add_units(lane, width, first, p, n);
}

/* Elements that do not touch are copied together by the piece and scanned as a run. */
static void add_spread(uint64_t lane[2], unsigned width, uint64_t first, const uint8_t *p, uint64_t pitch, uint64_t n)
{
	uint8_t piece[2048];

	while (n) {
		size_t m = gw_min_u64(n, sizeof piece / width);

		for (size_t i = 0; i < m; i++)
			memcpy(piece + i * width, p + i * pitch, width);
		gw_print_run(lane, width, first, piece, m);
		first += m, p += m * pitch, n -= m;
	}
}

void gw_print_window(uint64_t lane[2], const struct gw_print_window *w, const void *p)
{
	const uint8_t *row = p;
	uint64_t first = w->first;

	for (uint64_t r = 0; r < w->rows; r++, row += w->row_pitch, first += w->tensor_cols) {
		if (w->col_pitch == w->width)
			gw_print_run(lane, w->width, first, row, w->cols);
		else
			add_spread(lane, w->width, first, row, w->col_pitch, w->cols);
	}
}

void gw_print_update(uint64_t lane[2], unsigned width, const uint64_t *index, const void *old_bits,
		     const void *new_bits, size_t n)
{
	const uint8_t *old = old_bits, *new = new_bits;
	unsigned units = width == 8 ? 2 : 1, uw = width / units;
	uint64_t block = 0, a[2] = {gw_print_block_key(0, 0), gw_print_block_key(1, 0)};

	assert(width == 1 || width == 2 || width == 4 || width == 8);
	get_ops();
	for (size_t i = 0; i < n * units; i++) {
		uint64_t unit = index[i / units] * units + i % units, offset = unit % GW_PRINT_BLOCK;
		uint64_t change =
			(new ? unit_bits(uw, new + i *uw) : 0) - (uint64_t)(old ? unit_bits(uw, old + i * uw) : 0);

		if (unit / GW_PRINT_BLOCK != block) {
			block = unit / GW_PRINT_BLOCK;
			a[0] = gw_print_block_key(0, block);
			a[1] = gw_print_block_key(1, block);
		}
		lane[0] += a[0] * gw_print_offset_table[0][offset] * change;
		lane[1] += a[1] * gw_print_offset_table[1][offset] * change;
	}
}

static void model_words(uint64_t words[2], const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
			const uint64_t lane[2])
{
	static const char domain[] = "godwit model print 1";
	const struct {
		const char *p;
		size_t n;
	} text[2] = {{name, strlen(name)}, {dtype, strlen(dtype)}};
	crypto_generichash_state st;
	uint8_t b[16];

	crypto_generichash_init(&st, NULL, 0, 16);
	crypto_generichash_update(&st, (const uint8_t *)domain, sizeof domain);
	for (int i = 0; i < 2; i++) {
		gw_put_le64(b, text[i].n);
		crypto_generichash_update(&st, b, 8);
		crypto_generichash_update(&st, (const uint8_t *)text[i].p, text[i].n);
	}
	gw_put_le64(b, rank);
	crypto_generichash_update(&st, b, 8);
	for (unsigned i = 0; i < rank; i++) {
		gw_put_le64(b, shape[i]);
		crypto_generichash_update(&st, b, 8);
	}
	gw_put_le64(b, lane[0]);
	gw_put_le64(b + 8, lane[1]);
	crypto_generichash_update(&st, b, 16);
	crypto_generichash_final(&st, b, 16);
	words[0] = gw_le64(b);
	words[1] = gw_le64(b + 8);
}

void gw_model_print_add(uint64_t model[2], const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
			const uint64_t lane[2])
{
	uint64_t w[2];

	model_words(w, name, dtype, rank, shape, lane);
	model[0] += w[0];
	model[1] += w[1];
}

void gw_model_print_remove(uint64_t model[2], const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
			   const uint64_t lane[2])
{
	uint64_t w[2];

	model_words(w, name, dtype, rank, shape, lane);
	model[0] -= w[0];
	model[1] -= w[1];
}

void gw_print_text(char out[GW_PRINT_TEXT], const uint64_t lane[2])
{
	static const char digit[] = "0123456789abcdef";

	for (int i = 0; i < 32; i++)
		out[i] = digit[lane[i / 16] >> (60 - i % 16 * 4) & 15];
	out[32] = 0;
}

int gw_print_parse(const char *text, uint64_t lane[2])
{
	uint64_t v[2] = {0, 0};

	for (int i = 0; i < 32; i++) {
		char c = text[i];
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (d < 0)
			return GW_EMALFORMED;
		v[i / 16] = v[i / 16] << 4 | (unsigned)d;
	}
	if (text[32])
		return GW_EMALFORMED;
	lane[0] = v[0];
	lane[1] = v[1];
	return 0;
}
