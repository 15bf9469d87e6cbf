/*
 * Coded tiles. Any bytes are no model, or are what that model is written as. Under any model, on any old bits, any
 * bytes are refused as a payload, or are the only payload of changes inside the tile: coded again, with other vectors,
 * they are the same; and any changes have a payload that gives them back. Nothing lies outside of its buffers, which
 * have exactly their sizes.
 *
 * The input: survey, dtype, how (bit 0: the model is learned, bits 4 to 7 say from what; else it is read; bit 2: an
 * integer's tile has hot elements, a fifth of all; bit 1: the rest are changes, and two bytes to damage their payload with; else a payload), elements (2 bytes), old bits
 * (elements.h), model, rest.
 */
#include "fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "elements.h"
#include "patch/scan.h"

const char fuzz_name[] = "tile";

enum {
	ELEMENTS = 300,
	ELEMENTS_MAX = 4096,
	MODEL_MAX = 65536,
	KEY_MAX = 65536,
	PER_ELEMENT = 24 /* bytes that a change has at most */
};

struct tile {
	struct gw_shape shape;
	uint8_t survey;
	uint32_t n;
	uint8_t *old, *new_bits;
	uint64_t *hot; /* or NULL */
	struct gw_coder *coder;
	struct gw_changes_buf changes;
};

static void *exact(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p)
		abort();
	return p;
}

static void scan(struct tile *t, struct gw_tile_changes *c)
{
	*c = (struct gw_tile_changes){0, t->changes.at, t->changes.old_bits, t->changes.new_bits};
	c->n = gw_scan_run(&t->changes, 0, t->old, t->new_bits, t->n, t->shape.width, 0);
}

/* --- model ------------------------------------------------------------------------------------ */

static void check_written(const struct gw_model *m, enum gw_dtype dtype, const uint8_t *p, size_t n)
{
	struct gw_wr w;

	gw_wr_init(&w, MODEL_MAX);
	gw_model_write(m, &w);
	assert(!w.err && w.n == n + 1 && w.p[0] == dtype && !memcmp(w.p + 1, p, n));
	gw_wr_free(&w);
}

static struct gw_model *read_model(const struct tile *t, struct gw_rd *r)
{
	size_t from = r->at;
	struct gw_model *m;
	int err = gw_model_read(&m, t->shape.dtype, r);

	assert(!err || err == GW_EMALFORMED || err == GW_ETRUNC);
	if (err)
		return NULL;
	check_written(m, t->shape.dtype, r->p + from, r->at - from);
	return m;
}

static struct gw_model *learned(struct tile *t, uint8_t how)
{
	struct gw_tile_changes c;
	struct gw_model *m;
	struct gw_sample *s;

	memcpy(t->new_bits, t->old, (size_t)t->n * t->shape.width);
	fuzz_train(how, &t->shape, t->new_bits, t->n);
	scan(t, &c);
	if (gw_sample_new(&s, t->shape.dtype))
		abort();
	gw_model_see(s, t->old, t->n, t->hot, &c);
	gw_model_plan(s);
	gw_model_learn(t->coder, s, t->old, t->n, t->hot, &c);
	if (gw_model_make(&m, s))
		abort();
	gw_sample_free(s);
	return m;
}

/* The last model is kept: most executions differ in what follows it, and most of their time would be its tables. */
static struct {
	struct gw_model *m;
	size_t n;
	uint8_t key[KEY_MAX]; /* the input from the dtype to the model's end */
} kept;

static int is_kept(const uint8_t *p, size_t n)
{
	return kept.m && n > kept.n && !memcmp(p + 1, kept.key, kept.n);
}

static const struct gw_model *find_model(struct tile *t, uint8_t how, struct gw_rd *r)
{
	if (is_kept(r->p, r->n)) {
		r->at = 1 + kept.n;
		return kept.m;
	}
	gw_model_free(kept.m);
	kept.m = how & 1 ? learned(t, how >> 4) : read_model(t, r);
	kept.n = r->at - 1;
	if (kept.n > KEY_MAX)
		abort();
	memcpy(kept.key, r->p + 1, kept.n);
	return kept.m;
}

/* --- payload ---------------------------------------------------------------------------------- */

static void check_changes(const struct tile *t, const struct gw_tile_changes *c)
{
	size_t width = t->shape.width;

	assert(c->n >= 1 && c->n <= t->n);
	for (size_t i = 0; i < c->n; i++) {
		assert(c->at[i] < t->n && (!i || c->at[i] > c->at[i - 1]));
		assert(!memcmp(c->old_bits + i * width, t->old + c->at[i] * width, width));
		assert(memcmp(c->old_bits + i * width, c->new_bits + i * width, width));
	}
}

static void check_canonical(const struct tile *t, const struct gw_model *m, const struct gw_tile_changes *c,
			    const uint8_t *payload, size_t bytes)
{
	uint8_t *again = exact(bytes);
	size_t got;

	fuzz_use_survey(t->survey + 1u);
	got = gw_tile_code(t->coder, m, t->old, t->n, t->hot, c, again, bytes);
	assert(got == bytes && !memcmp(again, payload, bytes));
	fuzz_use_survey(t->survey);
	free(again);
}

/* wanted: the changes that must come out; NULL: any, or none. */
static void uncode(const struct tile *t, const struct gw_model *m, const uint8_t *p, size_t bytes,
		   const struct gw_tile_changes *wanted)
{
	size_t width = t->shape.width;
	uint8_t *payload = exact(bytes), *old_bits = exact(t->n * width), *new_bits = exact(t->n * width);
	uint32_t *at = exact(t->n * sizeof *at);
	struct gw_tile_changes c = {0, at, old_bits, new_bits};
	int err;

	memcpy(payload, p, bytes);
	err = gw_tile_uncode(t->coder, m, payload, bytes, t->old, t->n, t->hot, at, old_bits, new_bits, &c.n);
	assert(!err || (err == GW_EMALFORMED && !wanted));
	if (!err) {
		check_changes(t, &c);
		check_canonical(t, m, &c, payload, bytes);
	}
	if (wanted) {
		assert(c.n == wanted->n && !memcmp(at, wanted->at, c.n * sizeof *at));
		assert(!memcmp(old_bits, wanted->old_bits, c.n * width));
		assert(!memcmp(new_bits, wanted->new_bits, c.n * width));
	}
	free(payload);
	free(at);
	free(old_bits);
	free(new_bits);
}

static void code(struct tile *t, const struct gw_model *m, struct gw_rd *r)
{
	uint16_t damage = gw_rd_u16(r);
	struct gw_tile_changes c;
	size_t bytes, cap = (size_t)t->n * PER_ELEMENT + 64;
	uint8_t *payload;

	memcpy(t->new_bits, t->old, (size_t)t->n * t->shape.width);
	fuzz_change(r, &t->shape, t->new_bits, t->n);
	scan(t, &c);
	if (!c.n)
		return;
	payload = exact(cap + 1);
	bytes = gw_tile_code(t->coder, m, t->old, t->n, t->hot, &c, payload, cap);
	assert(bytes && bytes <= cap);
	uncode(t, m, payload, bytes, &c);
	payload[damage / 8 % bytes] ^= (uint8_t)(1 << damage % 8);
	uncode(t, m, payload, bytes, NULL);
	if (damage >> 15)
		payload[bytes++] = (uint8_t)damage;
	else
		bytes--;
	uncode(t, m, payload, bytes, NULL);
	free(payload);
}

static void heat(struct tile *t)
{
	t->hot = exact((t->n + 63) / 64 * sizeof *t->hot);
	memset(t->hot, 0, (t->n + 63) / 64 * sizeof *t->hot);
	for (uint32_t i = 0; i < t->n; i++)
		t->hot[i / 64] |= (uint64_t)(i * 2654435761u < UINT32_MAX / 5) << i % 64;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct tile t;
	const struct gw_model *m;
	struct gw_rd r;
	uint8_t how;

	if (!t.coder && (gw_coder_new(&t.coder) || gw_changes_buf_init(&t.changes)))
		abort();
	gw_rd_init(&r, p, n);
	t.survey = gw_rd_u8(&r);
	t.shape = gw_shape_of(fuzz_dtypes[gw_rd_u8(&r) % FUZZ_DTYPES]);
	how = gw_rd_u8(&r);
	t.n = gw_rd_u16(&r);
	/* Small ones mostly: those are fast. */
	t.n = t.n >> 12 == 15 ? t.n % ELEMENTS_MAX + 1 : t.n % ELEMENTS + 1;
	t.old = exact((size_t)t.n * t.shape.width);
	t.new_bits = exact((size_t)t.n * t.shape.width);
	t.hot = NULL;
	if (how & 4 && !t.shape.is_float)
		heat(&t);
	fuzz_use_survey(t.survey);
	fuzz_old(&r, &t.shape, t.old, t.n);
	m = r.err ? NULL : find_model(&t, how, &r);
	if (m && how & 2)
		code(&t, m, &r);
	else if (m)
		uncode(&t, m, p + r.at, n - r.at, NULL);
	free(t.old);
	free(t.new_bits);
	free(t.hot);
	return 0;
}

#ifdef FUZZER

size_t LLVMFuzzerMutate(uint8_t *p, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed);

/* Mostly of what follows the model. */
size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed)
{
	size_t head = 1 + kept.n;

	if (seed % 8 == 0 || !is_kept(p, n))
		return LLVMFuzzerMutate(p, n, max);
	if (seed % 8 == 1)
		p[0] = (uint8_t)(seed / 8);
	return head + LLVMFuzzerMutate(p + head, n - head, max - head);
}

#endif
