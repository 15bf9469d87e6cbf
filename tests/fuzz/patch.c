/*
 * Patch files: as they come they are refused, or decode; with their digest and check words set right, what opens
 * keeps its tables' promises, and every tile and chunk is refused or decodes to changes inside the tile. The old
 * elements are zeros.
 */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "patch/inside.h"

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

static void check_tensor(const struct gw_patch *pt, const struct gw_patch_tensor *t, uint8_t *sealed,
			 struct gw_tile_decoder *d, const uint8_t *zeros)
{
	for (uint32_t i = 0; i < t->tiles; i++) {
		struct gw_tile_changes c;
		struct gw_tile_rect r;

		assert(t->tile_at[i] <= t->tile_at[i + 1] && t->tile_at[i + 1] <= pt->n);
		if (sealed && t->tile_at[i] < t->tile_at[i + 1])
			seal_body(sealed, t->tile_at[i], t->tile_at[i + 1]);
		gw_tiling_rect(&t->tiling, i, &r);
		assert(r.rows * r.cols <= GW_TILE_ELEMENTS_MAX);
		if (!gw_tile_decode(d, pt, t, i, zeros, &c))
			check_changes(&c, r.rows * r.cols, t->width);
	}
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

/* sealed: the same bytes, to set check words right in; NULL: as they are. */
static void walk(const uint8_t *p, size_t n, uint8_t *sealed, struct gw_tile_decoder *d, const uint8_t *zeros)
{
	struct gw_patch_info info;
	struct gw_patch *pt;

	if (gw_patch_open(&pt, p, n, NULL))
		return;
	gw_patch_info(pt, &info);
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);

		assert(gw_patch_find(pt, t->name) == t);
		check_tensor(pt, t, sealed, d, zeros);
		check_blob(pt, &t->blob, sealed, d);
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
	static uint8_t *zeros;
	uint8_t *copy;

	if (!d && gw_tile_decoder_new(&d))
		abort();
	if (!zeros)
		zeros = calloc(GW_TILE_ELEMENTS_MAX, 8);
	walk(p, n, NULL, d, zeros);
	if (n < GW_PATCH_HEADER)
		return 0;
	copy = malloc(n);
	if (!zeros || !copy)
		abort();
	memcpy(copy, p, n);
	seal_header(copy, n);
	walk(copy, n, copy, d, zeros);
	free(copy);
	return 0;
}
