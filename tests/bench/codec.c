/*
 * What a patch costs: bits a change, against the rivals of field practice on the same pair, and how fast one core makes
 * and decodes it. Prints RESULT lines.
 *
 *     tests/bench/codec OLD NEW PATCH-TO-WRITE [LABEL]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "io/os/fs_os.h"
#include "patch/diff.h"
#include "patch/fingerprint.h"
#include "patch/scan.h"
#include "patch/sparse.h"

static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(int err, const struct gw_diag *why)
{
	if (!err)
		return;
	(void)fprintf(stderr, "%s\n", why->text[0] ? why->text : gw_err_text(err));
	exit(1);
}

/* "Gaps and steps": a varint a gap, 2 bits a step (±1, other), other steps as their new bits; then zstd -1 over each
 * tensor. Better than what NeMo-RL and PULSE send. */
static uint64_t rival_gaps(const struct gw_tensor *o, const struct gw_tensor *n, uint64_t *changed)
{
	uint64_t elements = o->bytes / 2, k = 0, at = 0, gap = 0;
	uint8_t *raw = malloc(elements * 6 + 64), *out = malloc(ZSTD_compressBound(elements * 6 + 64));
	size_t got;

	for (uint64_t i = 0; i < elements; i++, gap++) {
		uint64_t a = gw_element_load(o->p + 2 * i, 2), b = gw_element_load(n->p + 2 * i, 2);

		if (a == b)
			continue;
		for (; gap > 127; gap >>= 7)
			raw[at++] = (uint8_t)(gap | 128);
		raw[at++] = (uint8_t)gap;
		gap = UINT64_MAX;
		k++;
	}
	for (uint64_t i = 0, bits = 0, used = 0; i < elements; i++) {
		uint64_t a = gw_element_load(o->p + 2 * i, 2), b = gw_element_load(n->p + 2 * i, 2);

		if (a == b)
			continue;
		bits |= (uint64_t)(b == a + 1 ? 0 : b + 1 == a ? 1 : 2) << used;
		used += 2;
		if (used == 8) {
			raw[at++] = (uint8_t)bits;
			bits = used = 0;
		}
	}
	for (uint64_t i = 0; i < elements; i++) {
		uint64_t a = gw_element_load(o->p + 2 * i, 2), b = gw_element_load(n->p + 2 * i, 2);

		if (a != b && b != a + 1 && b + 1 != a) {
			gw_element_store(raw + at, 2, b);
			at += 2;
		}
	}
	got = ZSTD_compress(out, ZSTD_compressBound(at), raw, at, 1);
	free(raw);
	free(out);
	*changed += k;
	return got;
}

static void sizes(const struct gw_checkpoint *a, const struct gw_checkpoint *b, const struct gw_diff_report *r,
		  const char *label)
{
	uint64_t gaps = 0, changed = 0;

	for (uint32_t i = 0; i < gw_checkpoint_tensors(b); i++) {
		const struct gw_tensor *n = gw_checkpoint_tensor(b, i), *o = gw_checkpoint_find(a, n->name);

		if (o && n->dtype == GW_DT_BF16 && o->bytes == n->bytes)
			gaps += rival_gaps(o, n, &changed);
	}
	(void)printf("RESULT codec.bits.%s %.2f bits changed=%" PRIu64
		     " density=%.5f gaps_zstd=%.2f int32_value=48.00\n",
		     label, 8.0 * (double)r->patch_bytes / (double)r->changed, r->changed,
		     (double)r->changed / (double)r->elements, changed ? 8.0 * (double)gaps / (double)changed : 0.0);
}

/* Every tile, against the base in memory; with the fingerprint of the whole tensor, or without. */
static void decode(const struct gw_patch *pt, const struct gw_checkpoint *base, int prints, uint8_t *old)
{
	struct gw_tile_decoder *d;
	struct gw_patch_info info;
	struct gw_diag why = {""};

	fail(gw_tile_decoder_new(&d), &why);
	gw_patch_info(pt, &info);
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);
		const struct gw_tensor *b = gw_checkpoint_find(base, t->name);
		uint64_t lane[2] = {0, 0};

		if (prints && b)
			gw_print_run(lane, t->width, 0, b->p, t->elements);
		for (uint32_t k = 0; b && k < t->tiles; k++) {
			struct gw_tile_changes c;
			struct gw_tile_rect r;

			gw_tiling_rect(&t->tiling, k, &r);
			fail(gw_tile_decode(d, pt, t, k, gw_tile_gather(b->p, t->width, &r, old), &c), &why);
		}
	}
	gw_tile_decoder_free(d);
}

int main(int argc, char **argv)
{
	struct gw_fs *fs = gw_fs_os();
	struct gw_pool pool = gw_pool_serial();
	struct gw_diff_options opt = {.replace = 1};
	struct gw_diff_report r;
	struct gw_diag why = {""};
	struct gw_checkpoint *a, *b;
	struct gw_mapping map;
	struct gw_patch *pt;
	struct gw_file *f;
	const char *label = argc > 4 ? argv[4] : "pair";
	uint8_t *old = malloc((size_t)GW_TILE_ELEMENTS_MAX * 8);
	double best[3] = {1e9, 1e9, 1e9}, gb;

	if (argc < 4 || !old)
		return 2;
	fail(gw_checkpoint_open(&a, fs, argv[1], &why), &why);
	fail(gw_checkpoint_open(&b, fs, argv[2], &why), &why);
	for (int i = 0; i < 4; i++) {
		double t = now_s();

		fail(gw_diff(a, b, fs, &pool, &opt, argv[3], &r, &why), &why);
		t = now_s() - t;
		best[0] = t < best[0] && i ? t : best[0]; /* the first run maps the files */
	}
	fail(gw_fs_open(fs, argv[3], GW_OPEN_READ, &f), &why);
	fail(gw_fs_map(fs, f, &map), &why);
	gw_fs_close(fs, f);
	fail(gw_patch_open(&pt, map.p, map.n, &why), &why);
	for (int prints = 0; prints < 2; prints++)
		for (int i = 0; i < 3; i++) {
			double t = now_s();

			decode(pt, a, prints, old);
			t = now_s() - t;
			best[1 + prints] = t < best[1 + prints] ? t : best[1 + prints];
		}
	gb = (double)r.bytes / 1e9;
	sizes(a, b, &r, label);
	(void)printf("RESULT codec.encode.%s %.2f GB/s cpu_s=%.3f model_gb=%.2f per=core\n", label, gb / best[0],
		     best[0], gb);
	(void)printf("RESULT codec.decode.%s %.2f GB/s cpu_s=%.3f per=core\n", label, gb / best[1], best[1]);
	(void)printf("RESULT codec.decode_prints.%s %.2f GB/s cpu_s=%.3f per=core\n", label, gb / best[2], best[2]);
	gw_patch_close(pt);
	(void)gw_fs_unmap(fs, &map);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	free(old);
	return 0;
}
