#include "demo_model.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "io/os/fs_os.h"
#include "weights/checkpoint.h"
#include "weights/slicing.h"

static int plan_tensor(struct demo_rank *r, const struct gw_tensor *ct, struct demo_tensor *t)
{
	enum gw_dtype dtype = (enum gw_dtype)ct->dtype;
	unsigned axis = gw_slicing_axis(ct->name, ct->rank, ct->shape);
	uint64_t elements, n;

	memset(t, 0, sizeof *t);
	if (ct->rank > 8)
		return GW_EUNSUP;
	t->width = gw_dtype_width(dtype);
	t->dims = ct->rank;
	strncpy(t->dtype, gw_dtype_name(dtype), sizeof t->dtype - 1);
	for (unsigned i = 0; i < ct->rank; i++)
		t->shape[i] = ct->shape[i];
	elements = ct->bytes / t->width;
	t->rows = 1;
	t->tensor_cols = elements;
	if (ct->rank >= 2 && elements && gw_dtype_bits(dtype) >= 8) {
		for (unsigned i = 0; i < axis; i++)
			t->rows *= ct->shape[i];
		t->tensor_cols = elements / t->rows;
	}
	t->cols = t->tensor_cols;
	if (ct->rank >= 2 && elements && r->ranks > 1 && ct->shape[axis] % r->ranks == 0) {
		n = t->tensor_cols / r->ranks;
		t->cols = n;
		t->col0 = n * r->rank;
	}
	t->segment = ct->rank == 2 ? 0 : 1;
	t->at = r->bytes[t->segment];
	r->bytes[t->segment] += (t->rows * t->cols * t->width + 63) & ~63ull;
	t->name = strdup(ct->name);
	return t->name ? 0 : GW_ENOMEM;
}

int demo_rank_plan(struct demo_rank *r, const char *checkpoint, uint32_t rank, uint32_t ranks, struct gw_diag *why)
{
	struct gw_checkpoint *c;
	int err;

	memset(r, 0, sizeof *r);
	r->rank = rank;
	r->ranks = ranks;
	r->bytes[0] = r->bytes[1] = 64; /* a segment is never empty */
	err = gw_checkpoint_open(&c, gw_fs_os(), checkpoint, why);
	if (err)
		return err;
	r->tensors = calloc(gw_checkpoint_tensors(c) + 1, sizeof *r->tensors);
	if (!r->tensors)
		err = GW_ENOMEM;
	for (uint32_t i = 0; !err && i < gw_checkpoint_tensors(c); i++) {
		err = plan_tensor(r, gw_checkpoint_tensor(c, i), &r->tensors[i]);
		if (err)
			gw_diag_set(why, err, "tensor %s: %s", gw_checkpoint_tensor(c, i)->name, gw_err_text(err));
		else
			r->n++;
	}
	gw_checkpoint_close(c);
	return err;
}

int demo_rank_load(struct demo_rank *r, const char *checkpoint, struct gw_diag *why)
{
	struct gw_checkpoint *c;
	int err = gw_checkpoint_open(&c, gw_fs_os(), checkpoint, why);

	if (err)
		return err;
	for (uint32_t i = 0; !err && i < r->n; i++) {
		const struct demo_tensor *t = &r->tensors[i];
		const struct gw_tensor *ct = gw_checkpoint_find(c, t->name);
		uint64_t line = t->cols * t->width;

		if (!ct) {
			err = gw_diag_set(why, GW_ESHRUNK, "tensor %s went away while the checkpoint was read", t->name);
			break;
		}
		for (uint64_t k = 0; k < t->rows && line; k++)
			memcpy(r->memory[t->segment] + t->at + k * line,
			       ct->p + (k * t->tensor_cols + t->col0) * t->width, line);
	}
	if (!err)
		err = gw_checkpoint_check(c, why);
	gw_checkpoint_close(c);
	return err;
}

int demo_rank_declare(struct demo_rank *r, struct gw_diag *why)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < r->n; i++) {
		const struct demo_tensor *t = &r->tensors[i];
		struct godwit_window w = {.segment = t->segment, .base = t->at, .col_pitch = t->width,
					  .row_pitch = t->cols * t->width, .rows = t->rows, .cols = t->cols,
					  .col0 = t->col0, .tensor_cols = t->tensor_cols};
		uint32_t id;

		err = godwit_engine_add_tensor(r->engine, t->name, t->dtype, t->dims, t->shape, &id);
		if (!err && t->rows * t->cols > 0)
			err = godwit_engine_add_window(r->engine, id, &w);
	}
	return err ? gw_diag_set(why, err, "%s", godwit_engine_error(r->engine)) : 0;
}

void demo_rank_free(struct demo_rank *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		free(r->tensors[i].name);
	free(r->tensors);
	godwit_engine_free(r->engine);
}

/* --- computing --- */

static float value_at(const struct demo_tensor *t, const uint8_t *p)
{
	uint32_t bits;
	float f;

	if (strcmp(t->dtype, "BF16") == 0)
		bits = (uint32_t)gw_le16(p) << 16;
	else if (strcmp(t->dtype, "F32") == 0)
		bits = gw_le32(p);
	else
		return (float)*p; /* formats whose decoding is another matter: their codes do */
	memcpy(&f, &bits, sizeof f);
	return f;
}

/* One rank's share of W x, summed over all rows. */
static double product(const struct demo_tensor *t, const uint8_t *w, uint64_t seed)
{
	double sum = 0;

	for (uint64_t r = 0; r < t->rows; r++) {
		uint64_t x = seed + t->col0;
		double y = 0;

		for (uint64_t c = 0; c < t->cols; c++, w += t->width) {
			x = x * 6364136223846793005ull + 1442695040888963407ull;
			y += (double)value_at(t, w) * ((double)(int64_t)x * 0x1p-63);
		}
		if (isfinite(y))
			sum += y;
	}
	return sum;
}

void demo_compute(const struct demo_rank *ranks, uint32_t n, uint64_t seed, struct demo_result *out)
{
	crypto_generichash_state h;

	memset(out, 0, sizeof *out);
	crypto_generichash_init(&h, NULL, 0, sizeof out->digest);
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t i = 0; i < ranks[k].n; i++) {
			const struct demo_tensor *t = &ranks[k].tensors[i];
			const uint8_t *w = ranks[k].memory[t->segment] + t->at;
			uint64_t bytes = t->rows * t->cols * t->width;

			if (t->dims == 2) {
				out->sum += product(t, w, seed);
				out->matrices++;
			}
			crypto_generichash_update(&h, w, bytes);
			out->bytes += bytes;
		}
	crypto_generichash_final(&h, out->digest, sizeof out->digest);
}
