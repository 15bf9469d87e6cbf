/*
 * From bits to a patch and back. A tensor of any dtype and shape, its old and its new bits: what is learned of the
 * change, passed on as it stands in a patch, codes it to a body that gives the new bits back and is never longer than
 * they are and five bytes. Where the input asks for it, whole checkpoints are compared, and the file that comes out is
 * opened, decoded tile by tile, and has the fingerprints it says.
 *
 * The input: survey, dtype, how (bit 0: whole files; bits 1 and 2: rank; bits 3 and 4: axis; bit 5: all random), a byte
 * for each dimension, old bits and changes (elements.h).
 */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../bench/memfs.h"
#include "../unit/fakefs.h"
#include "elements.h"
#include "patch/diff.h"
#include "patch/fingerprint.h"
#include "patch/inside.h"
#include "patch/scan.h"

const char fuzz_name[] = "diff";

enum { ELEMENTS_MAX = 4096, SEED_ALL = 77 };

struct pair {
	struct gw_shape shape;
	unsigned rank, axis;
	uint64_t dim[3];
	uint32_t n; /* storage elements */
	size_t bytes;
	uint8_t *old, *new_bits;
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static int read_pair(struct pair *t, struct gw_rd *r)
{
	uint64_t elements = 1, bytes;
	uint8_t how;

	fuzz_use_survey(gw_rd_u8(r));
	t->shape = gw_shape_of(fuzz_dtypes[gw_rd_u8(r) % FUZZ_DTYPES]);
	how = gw_rd_u8(r);
	t->rank = how / 2 % 4;
	t->axis = t->rank ? how / 8 % 4 % t->rank : 0;
	for (unsigned i = 0; i < t->rank; i++) {
		t->dim[i] = gw_rd_u8(r);
		elements *= t->dim[i];
	}
	if (elements > ELEMENTS_MAX || gw_tensor_bytes(t->shape.dtype, t->rank, t->dim, &bytes))
		return -1;
	t->bytes = bytes;
	t->n = (uint32_t)(bytes / t->shape.width);
	t->old = must(malloc(bytes + 1));
	t->new_bits = must(malloc(bytes + 1));
	fuzz_old(r, &t->shape, t->old, t->n);
	memcpy(t->new_bits, t->old, t->bytes);
	if (how & 32)
		fuzz_train(SEED_ALL, &t->shape, t->new_bits, t->n);
	fuzz_change(r, &t->shape, t->new_bits, t->n);
	return how & 1;
}

/* --- a tile ----------------------------------------------------------------------------------- */

/* The new bits, out of the old ones and the changes. */
static void check_changes(const struct pair *t, const struct gw_tile_changes *c)
{
	unsigned width = t->shape.width;
	uint8_t *got = must(malloc(t->bytes + 1));

	memcpy(got, t->old, t->bytes);
	for (size_t i = 0; i < c->n; i++)
		memcpy(got + (size_t)c->at[i] * width, c->new_bits + i * width, width);
	assert(!memcmp(got, t->new_bits, t->bytes));
	free(got);
}

static struct gw_model *learned(const struct pair *t, struct gw_coder *k, const struct gw_tile_changes *c)
{
	struct gw_model *made, *read = NULL;
	struct gw_sample *s;
	struct gw_wr w;
	struct gw_rd r;

	if (gw_sample_new(&s, t->shape.dtype))
		abort();
	gw_model_see(s, t->old, t->n, NULL, c);
	gw_model_plan(s);
	gw_model_learn(k, s, t->old, t->n, NULL, c);
	if (gw_model_make(&made, s))
		abort();
	gw_sample_free(s);
	if (!made)
		return NULL;
	gw_wr_init(&w, 65536);
	gw_model_write(made, &w);
	gw_rd_init(&r, w.p + 1, w.n - 1);
	assert(!w.err && w.p[0] == t->shape.dtype);
	if (gw_model_read(&read, t->shape.dtype, &r) || gw_rd_end(&r))
		abort();
	gw_wr_free(&w);
	gw_model_free(made);
	return read;
}

static void check_body(const struct pair *t, const struct gw_model *m, struct gw_coder *k, struct gw_unpacker *u,
		       struct gw_changes_buf *b, const uint8_t *body, size_t size)
{
	struct gw_tile_changes c = {0, b->at, b->old_bits, b->new_bits};
	const uint8_t *payload, *raw;
	enum gw_patch_mode mode;
	size_t bytes;

	if (gw_body_open(body, size, &mode, &payload, &bytes))
		abort();
	if (mode == GW_MODE_CODED) {
		if (!m || gw_tile_uncode(k, m, payload, bytes, t->old, t->n, NULL, b->at, b->old_bits,
					 b->new_bits, &c.n))
			abort();
		check_changes(t, &c);
	} else {
		uint8_t *out = must(malloc(t->bytes));

		if (gw_body_unpack(u, mode, payload, bytes, t->bytes, t->shape.width, out, &raw))
			abort();
		assert(!memcmp(raw, t->new_bits, t->bytes));
		free(out);
	}
}

static void check_tile(const struct pair *t)
{
	static struct gw_packer *packer;
	static struct gw_unpacker *unpacker;
	static struct gw_changes_buf scanned, decoded;
	struct gw_tile_changes c = {0};
	struct gw_model *m;
	uint8_t *body;
	size_t size;

	if (!packer && (gw_packer_new(&packer) || gw_unpacker_new(&unpacker) || gw_changes_buf_init(&scanned) ||
			gw_changes_buf_init(&decoded)))
		abort();
	c = (struct gw_tile_changes){0, scanned.at, scanned.old_bits, scanned.new_bits};
	c.n = gw_scan_run(&scanned, 0, t->old, t->new_bits, t->n, t->shape.width, 0);
	check_changes(t, &c);
	if (!c.n)
		return;
	m = learned(t, gw_packer_coder(packer), &c);
	body = must(malloc(t->bytes + GW_BODY_EXTRA));
	if (gw_body_pack_tile(packer, m, &c, t->old, t->new_bits, NULL, t->bytes, t->shape.width, body, &size))
		abort();
	assert(size <= t->bytes + GW_BODY_EXTRA);
	check_body(t, m, gw_packer_coder(packer), unpacker, &decoded, body, size);
	free(body);
	gw_model_free(m);
}

/* --- whole files ------------------------------------------------------------------------------ */

static const char name_of_tensor[] = "model.layers.0.q_proj.weight";

static void add_file(struct fake_fs *fs, struct gw_wr *w, const char *path, const struct pair *t, const uint8_t *bits)
{
	struct gw_safetensors_spec spec = {name_of_tensor, t->dim, t->rank, t->shape.dtype};

	gw_wr_init(w, 1 << 20);
	if (gw_safetensors_write(w, &spec, 1, NULL, 0, NULL))
		abort();
	gw_wr_bytes(w, bits, t->bytes);
	(void)fake_add(fs, path, GW_FILE_REGULAR, w->p, w->n);
}

static unsigned axis_of(void *ctx, const char *name, unsigned rank, const uint64_t *shape)
{
	(void)name;
	(void)rank;
	(void)shape;
	return ((struct pair *)ctx)->axis;
}

static void check_patch(const struct pair *t, const struct gw_patch *pt)
{
	static struct gw_tile_decoder *d;
	const struct gw_patch_tensor *row = gw_patch_find(pt, name_of_tensor);
	struct gw_tile_changes c;
	uint64_t lane[2] = {0, 0};

	if (!d && gw_tile_decoder_new(&d))
		abort();
	assert(!row == !memcmp(t->old, t->new_bits, t->bytes));
	if (!row)
		return;
	assert(row->kind == GW_TENSOR_CHANGED && row->elements == t->n && row->axis == t->axis && row->tiles == 1);
	if (gw_tile_decode(d, pt, row, 0, t->old, NULL, &c))
		abort();
	assert(c.n == row->changed);
	check_changes(t, &c);
	gw_print_run(lane, t->shape.width, 0, t->new_bits, t->n);
	assert(lane[0] == row->print_new[0] && lane[1] == row->print_new[1]);
}

static void check_files(struct pair *t)
{
	struct gw_diff_options opt = {.axis = axis_of, .ctx = t, .replace = 1};
	struct gw_pool pool = gw_pool_serial();
	struct gw_checkpoint *a, *b;
	struct gw_wr file[2];
	struct bench_memfs out;
	struct fake_fs in;
	struct gw_patch *pt;

	fake_init(&in);
	bench_memfs_init(&out);
	add_file(&in, &file[0], "/old", t, t->old);
	add_file(&in, &file[1], "/new", t, t->new_bits);
	if (gw_checkpoint_open(&a, &in.fs, "/old", NULL) || gw_checkpoint_open(&b, &in.fs, "/new", NULL) ||
	    gw_diff(a, b, &out.fs, &pool, &opt, "/patch", NULL, NULL) || gw_patch_open(&pt, out.p, out.n, NULL))
		abort();
	check_patch(t, pt);
	gw_patch_close(pt);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	bench_memfs_free(&out);
	gw_wr_free(&file[0]);
	gw_wr_free(&file[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct pair t = {0};
	struct gw_rd r;
	int whole;

	gw_rd_init(&r, p, n);
	whole = read_pair(&t, &r);
	if (whole >= 0)
		check_tile(&t);
	if (whole > 0)
		check_files(&t);
	free(t.old);
	free(t.new_bits);
	return 0;
}
