/*
 * Patch files: as they come they are refused, or decode; with their digest and check words set right, what opens
 * keeps its tables' promises, and every tile and chunk is refused or decodes to changes inside the tile. The old
 * elements of every tile are the same arbitrary ones, from which patch_corpus.c makes the corpus. A fuzzer's mutations
 * fall into the tables or into one body, and are sealed.
 */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "patch/coder_inside.h"
#include "patch/inside.h"
#include "patch_base.h"

const char fuzz_name[] = "patch";

static void seal_header(uint8_t *p, size_t n)
{
	uint64_t tables_at = gw_le64(p + 32);
	struct gw_hash h;

	if (tables_at < GW_PATCH_HEADER || tables_at > n)
		tables_at = GW_PATCH_HEADER + tables_at % (n - GW_PATCH_HEADER + 1);
	memcpy(p, GW_PATCH_MAGIC, sizeof GW_PATCH_MAGIC);
	gw_put_le16(p + 8, GW_PATCH_VERSION);
	gw_put_le64(p + 24, n);
	gw_put_le64(p + 32, tables_at);
	gw_hash_begin(&h);
	gw_hash_add(&h, p, GW_PATCH_DIGESTED);
	gw_hash_add(&h, p + tables_at, n - tables_at);
	gw_hash_end(&h, p + GW_PATCH_DIGESTED);
}

static void seal_body(uint8_t *p, uint64_t at, uint64_t end)
{
	assert(end - at > GW_BODY_EXTRA);
	gw_hash_of(p + at, end - at - 4, p + end - 4, 4);
}

static void check_changes(const struct gw_tile_changes *c, uint64_t elements, unsigned width)
{
	assert(c->n <= elements);
	for (size_t i = 0; i < c->n; i++) {
		assert(c->at[i] < elements && (!i || c->at[i] > c->at[i - 1]));
		assert(memcmp(c->old_bits + i * width, c->new_bits + i * width, width));
	}
}

/* All tiles before any is decoded: what one says may depend on another's. */
static void seal_tiles(const struct gw_patch_tensor *t, uint8_t *sealed)
{
	for (uint32_t i = 0; i < t->tiles; i++)
		if (t->tile_at[i] < t->tile_at[i + 1])
			seal_body(sealed, t->tile_at[i], t->tile_at[i + 1]);
}

static void check_tensor(const struct gw_patch *pt, const struct gw_patch_tensor *t, struct gw_tile_decoder *d,
			 const uint8_t *old)
{
	struct gw_hot *hot = NULL;

	/* Tiles of more elements than a companion can have in a small file are of no use here. */
	if (t->companion &&
	    (t->companion->elements > GW_TILE_ELEMENTS_MAX || gw_patch_hot(d, pt, t->companion, old, &hot)))
		return;
	for (uint32_t i = 0; i < t->tiles; i++) {
		struct gw_tile_changes c;
		struct gw_tile_rect r;

		assert(t->tile_at[i] <= t->tile_at[i + 1] && t->tile_at[i + 1] <= pt->n);
		assert(gw_patch_mode_name(gw_tile_mode(pt, t, i)));
		gw_tiling_rect(&t->tiling, i, &r);
		assert(r.rows * r.cols <= GW_TILE_ELEMENTS_MAX);
		if (!gw_tile_decode(d, pt, t, i, old, hot, &c))
			check_changes(&c, r.rows * r.cols, t->width);
	}
	gw_hot_free(hot);
}

static int count_bytes(void *ctx, uint64_t at, const void *p, size_t n)
{
	uint64_t *bytes = ctx;

	(void)p;
	assert(at == *bytes);
	*bytes += n;
	return 0;
}

static void check_blob(const struct gw_patch *pt, const struct gw_patch_blob *b, uint8_t *sealed,
		       struct gw_tile_decoder *d)
{
	for (uint32_t i = 0; i < b->chunks; i++) {
		const uint8_t *p;
		size_t n;

		assert(b->at[i] < b->at[i + 1] && b->at[i + 1] <= pt->n);
		if (sealed)
			seal_body(sealed, b->at[i], b->at[i + 1]);
		if (!gw_blob_chunk(d, pt, b, i, &p, &n))
			assert(n <= GW_PATCH_CHUNK);
	}
}

/* In one go: all bytes, in order, or an error with its place. */
static void check_whole(const struct gw_patch *pt, const struct gw_patch_tensor *t)
{
	struct gw_diag why = {{0}};
	uint64_t bytes = 0;

	if (t->kind != GW_TENSOR_WHOLE)
		return;
	if (!gw_patch_whole(pt, t, count_bytes, &bytes, &why))
		assert(bytes == t->bytes);
	else
		assert(why.text[0]);
}

/* sealed: the same bytes, to set check words right in; NULL: as they are. */
static void walk(const uint8_t *p, size_t n, uint8_t *sealed, struct gw_tile_decoder *d, const uint8_t *old)
{
	struct gw_patch_info info;
	struct gw_patch *pt;

	if (gw_patch_open(&pt, p, n, NULL))
		return;
	gw_patch_info(pt, &info);
	for (uint32_t i = 0; sealed && i < info.tensors; i++)
		seal_tiles(gw_patch_tensor(pt, i), sealed);
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);

		assert(gw_patch_find(pt, t->name) == t);
		check_tensor(pt, t, d, old);
		check_blob(pt, &t->blob, sealed, d);
		check_whole(pt, t);
	}
	for (uint32_t i = 0; i < info.files; i++) {
		const struct gw_patch_file *f = gw_patch_file(pt, i);

		assert(gw_patch_find_file(pt, f->name) == f);
		check_blob(pt, &f->blob, sealed, d);
		for (uint32_t k = 0; k < f->carried_count; k++)
			check_blob(pt, &f->carried[k].blob, sealed, d);
	}
	gw_patch_close(pt);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct gw_tile_decoder *d;
	static uint8_t *old;
	uint8_t *copy;

	if (!d && gw_tile_decoder_new(&d))
		abort();
	if (!old) {
		old = malloc(GW_TILE_ELEMENTS_MAX * 8);
		if (!old)
			abort();
		fuzz_base(old, GW_TILE_ELEMENTS_MAX * 8);
	}
	/* Vectors by what the file holds, so that an input always meets the same. */
	(void)gw_survey_use((enum gw_survey_impl)(n % (GW_SURVEY_AVX512 + 1)));
	if (n < GW_PATCH_HEADER) {
		walk(p, n, NULL, d, old);
		return 0;
	}
	copy = malloc(n);
	if (!copy)
		abort();
	memcpy(copy, p, n);
	seal_header(copy, n);
	walk(copy, n, copy, d, old);
	if (memcmp(copy, p, n))
		walk(p, n, NULL, d, old);
	free(copy);
	return 0;
}

#ifdef FUZZER

size_t LLVMFuzzerMutate(uint8_t *p, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed);

static uint64_t tables_of(const uint8_t *p, size_t n)
{
	uint64_t at = gw_le64(p + 32);

	return at < GW_PATCH_HEADER || at > n ? GW_PATCH_HEADER : at;
}

/* Where body number `which` lies among those that the tables name; 0 where there is none. */
static int find_body(const uint8_t *p, size_t n, unsigned which, uint64_t *at, uint64_t *end)
{
	struct gw_patch_info info;
	struct gw_patch *pt;
	unsigned seen = 0;
	int found = 0;

	if (gw_patch_open(&pt, p, n, NULL))
		return 0;
	gw_patch_info(pt, &info);
	for (int round = 0; round < 2 && !found; round++)
		for (uint32_t i = 0; i < info.tensors && !found; i++) {
			const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);
			const uint64_t *a = t->kind == GW_TENSOR_CHANGED ? t->tile_at : t->blob.at;
			uint32_t count = t->kind == GW_TENSOR_CHANGED ? t->tiles : t->blob.chunks;

			for (uint32_t k = 0; a && k < count && !found; k++) {
				if (a[k] == a[k + 1] || seen++ != which)
					continue;
				*at = a[k];
				*end = a[k + 1];
				found = 1;
			}
			if (i + 1 == info.tensors && !found && seen) {
				which %= seen;
				seen = 0;
				break;
			}
		}
	gw_patch_close(pt);
	return found;
}

/* Half of the mutations are of the tables and the header, which may grow; the others of one body, which may not: its
 * length stands in the tables. Now and then anything, and the mode alone. */
size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed)
{
	uint64_t at, end;

	if (n < GW_PATCH_HEADER || seed % 16 == 0)
		return LLVMFuzzerMutate(p, n, max);
	if (seed % 2 && find_body(p, n, seed / 256 % 64, &at, &end)) {
		if (seed / 16 % 8 == 0)
			p[at] = (uint8_t)(seed / 128 % 6);
		else
			(void)LLVMFuzzerMutate(p + at + 1, end - at - GW_BODY_EXTRA, end - at - GW_BODY_EXTRA);
		seal_body(p, at, end);
	} else if (seed / 16 % 8 == 0) {
		(void)LLVMFuzzerMutate(p, GW_PATCH_DIGESTED, GW_PATCH_DIGESTED);
	} else {
		at = tables_of(p, n);
		n = at + LLVMFuzzerMutate(p + at, n - at, max - at);
	}
	seal_header(p, n);
	return n;
}

#endif
