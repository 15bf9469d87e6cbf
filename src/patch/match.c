#include "patch/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "patch/disk.h"
#include "patch/fingerprint.h"
#include "patch/inside.h"

enum { RUN_ELEMENTS = 512 * 1024, JOBS = 1024 };

const char *gw_match_shard_name(const struct gw_checkpoint *c, const struct gw_shard *s)
{
	return gw_checkpoint_is_file(c) ? GW_PATCH_SINGLE : s->name;
}

const struct gw_shard *gw_match_shard(const struct gw_checkpoint *c, const char *name)
{
	for (uint32_t i = 0; c && i < gw_checkpoint_shards(c); i++) {
		const struct gw_shard *s = gw_checkpoint_shard(c, i);

		if (!strcmp(gw_match_shard_name(c, s), name))
			return s;
	}
	return NULL;
}

const struct gw_other_file *gw_match_other(const struct gw_checkpoint *c, const char *name)
{
	for (uint32_t i = 0; c && i < gw_checkpoint_others(c); i++)
		if (!strcmp(gw_checkpoint_other(c, i)->name, name))
			return gw_checkpoint_other(c, i);
	return NULL;
}

const uint8_t *gw_match_in_shard(const struct gw_shard *s, const char *name, const struct gw_safetensors_tensor **row)
{
	const struct gw_safetensors_tensor *t = s ? gw_safetensors_find(s->header, name) : NULL;
	size_t header;

	if (!t)
		return NULL;
	(void)gw_safetensors_header(s->header, &header);
	*row = t;
	return s->p + header + t->begin;
}

/* --- fingerprints of a checkpoint ------------------------------------------------------------- */

struct stretch {
	uint32_t tensor;
	uint64_t index;
	uint64_t lane[2];
};

struct summing {
	const struct gw_checkpoint *c;
	struct gw_pool *pool;
	struct stretch jobs[JOBS];
	size_t n;
	uint64_t bytes; /* of these jobs */
	uint64_t (*lanes)[2];
	struct gw_progress *watch;
};

static int sum_stretch(void *arg, size_t i, unsigned worker)
{
	struct summing *s = arg;
	struct stretch *j = &s->jobs[i];
	const struct gw_tensor *t = gw_checkpoint_tensor(s->c, j->tensor);
	unsigned width = gw_dtype_width((enum gw_dtype)t->dtype);
	uint64_t first = j->index * RUN_ELEMENTS;

	(void)worker;
	gw_print_run(j->lane, width, first, t->p + first * width, gw_min_u64(RUN_ELEMENTS, t->bytes / width - first));
	return 0;
}

static int sum_batch(struct summing *s)
{
	int err = s->pool->run(s->pool, s->n, sum_stretch, s);

	for (size_t i = 0; !err && i < s->n; i++)
		for (int k = 0; k < 2; k++)
			s->lanes[s->jobs[i].tensor][k] += s->jobs[i].lane[k];
	s->n = 0;
	gw_progress_add(s->watch, s->bytes);
	s->bytes = 0;
	return err;
}

static int sum_all(struct summing *s)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < gw_checkpoint_tensors(s->c); i++) {
		const struct gw_tensor *t = gw_checkpoint_tensor(s->c, i);
		uint64_t n = gw_div_up(t->bytes / gw_dtype_width((enum gw_dtype)t->dtype), RUN_ELEMENTS);

		s->lanes[i][0] = s->lanes[i][1] = 0;
		for (uint64_t k = 0; !err && k < n; k++) {
			uint64_t run = (uint64_t)RUN_ELEMENTS * gw_dtype_width((enum gw_dtype)t->dtype);

			s->jobs[s->n++] = (struct stretch){.tensor = i, .index = k};
			s->bytes += gw_min_u64(run, t->bytes - k * run);
			if (s->n == JOBS)
				err = sum_batch(s);
		}
	}
	return err ? err : sum_batch(s);
}

uint64_t gw_disk_bytes(const struct gw_checkpoint *c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < gw_checkpoint_tensors(c); i++)
		sum += gw_checkpoint_tensor(c, i)->bytes;
	return sum;
}

int gw_disk_prints(const struct gw_checkpoint *c, struct gw_pool *pool, struct gw_progress *watch, uint64_t (*lanes)[2],
		   uint64_t model[2], struct gw_diag *why)
{
	uint32_t n = gw_checkpoint_tensors(c);
	uint64_t(*own)[2] = lanes ? NULL : calloc((size_t)n + 1, sizeof *own);
	struct summing *s = malloc(sizeof *s);
	int err = s && (lanes || own) ? 0 : GW_ENOMEM;

	if (!err) {
		s->c = c;
		s->pool = pool;
		s->n = 0;
		s->bytes = 0;
		s->watch = watch;
		s->lanes = lanes ? lanes : own;
		err = sum_all(s);
	}
	if (!err)
		err = gw_checkpoint_check(c, why);
	model[0] = model[1] = 0;
	for (uint32_t i = 0; !err && i < n; i++) {
		const struct gw_tensor *t = gw_checkpoint_tensor(c, i);

		gw_model_print_add(model, t->name, gw_dtype_name((enum gw_dtype)t->dtype), t->rank, t->shape,
				   s->lanes[i]);
	}
	free(s);
	free(own);
	return err;
}

int gw_match_init(struct gw_match *m, const struct gw_checkpoint *c, struct gw_pool *pool, struct gw_progress *watch,
		  struct gw_diag *why)
{
	int err;

	*m = (struct gw_match){.c = c};
	m->lanes = calloc((size_t)gw_checkpoint_tensors(c) + 1, sizeof *m->lanes);
	err = m->lanes ? gw_disk_prints(c, pool, watch, m->lanes, m->model, why) : GW_ENOMEM;
	if (err)
		gw_match_free(m);
	return err;
}

void gw_match_free(struct gw_match *m)
{
	free(m->lanes);
	*m = (struct gw_match){0};
}

/* --- against a patch -------------------------------------------------------------------------- */

static int same_print(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

/* The checkpoint's tensor of that row: by binary search, since both lists rise by name. */
static const struct gw_tensor *find(const struct gw_match *m, const char *name, const uint64_t **lane)
{
	uint32_t lo = 0, hi = gw_checkpoint_tensors(m->c);

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct gw_tensor *t = gw_checkpoint_tensor(m->c, mid);
		int order = strcmp(name, t->name);

		if (!order) {
			*lane = m->lanes[mid];
			return t;
		}
		if (order < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

static int alike(const struct gw_patch_tensor *r, const struct gw_tensor *t)
{
	return t->dtype == r->dtype && t->rank == r->rank && !memcmp(t->shape, r->shape, r->rank * sizeof *r->shape);
}

/* One row, against the bits before the patch or after it. */
static int match_tensor(const struct gw_match *m, const struct gw_patch_tensor *r, int err, const uint64_t want[2],
			struct gw_diag *why)
{
	const char *path = gw_checkpoint_path(m->c);
	const uint64_t *lane;
	const struct gw_tensor *t = find(m, r->name, &lane);
	char is[GW_PRINT_TEXT], wanted[GW_PRINT_TEXT];

	if (!t)
		return gw_diag_set(why, err, "%s: tensor %s is missing", path, r->name);
	if (!alike(r, t))
		return gw_diag_set(why, err, "%s: tensor %s has another dtype or shape than the patch says", path,
				   r->name);
	if (same_print(lane, want))
		return 0;
	gw_print_text(is, lane);
	gw_print_text(wanted, want);
	return gw_diag_set(why, err, "%s: tensor %s has other bits: its fingerprint is %s, the patch says %s", path,
			   r->name, is, wanted);
}

static int match_bytes(const struct gw_match *m, int err, const char *file, const char *tensor, const uint8_t *p,
		       uint64_t bytes, uint64_t want_bytes, const uint8_t want[GW_FILE_DIGEST_BYTES],
		       struct gw_diag *why)
{
	uint8_t digest[GW_FILE_DIGEST_BYTES];
	const char *path = gw_checkpoint_path(m->c);

	if (!p)
		return gw_diag_set(why, err, "%s: %s%s%s is missing", path, file, tensor ? ", tensor " : "",
				   tensor ? tensor : "");
	gw_hash_of(p, bytes == want_bytes ? bytes : 0, digest, sizeof digest);
	if (bytes == want_bytes && !memcmp(digest, want, sizeof digest))
		return 0;
	return gw_diag_set(why, err, "%s: %s%s%s has other bytes than the patch says", path, file,
			   tensor ? ", tensor " : "", tensor ? tensor : "");
}

/* Files: all of them (the result), or those whose bytes come from the base. */
static int match_file(const struct gw_match *m, const struct gw_patch_file *f, int all, int err, struct gw_diag *why)
{
	const struct gw_other_file *o = gw_match_other(m->c, f->name);
	const struct gw_shard *s = gw_match_shard(m->c, f->name);
	size_t header = 0;
	int bad = 0;

	if (f->kind == GW_PATCH_GONE)
		return all && (o || s)
			       ? gw_diag_set(why, err, "%s: %s should be gone", gw_checkpoint_path(m->c), f->name)
			       : 0;
	if (f->kind == GW_PATCH_OTHER)
		return all || !f->fresh ? match_bytes(m, err, f->name, NULL, o ? o->p : NULL, o ? o->bytes : 0,
						      f->bytes, f->digest, why)
					: 0;
	if (all || !f->fresh) {
		const uint8_t *p = s ? gw_safetensors_header(s->header, &header) : NULL;

		bad = match_bytes(m, err, f->name, NULL, p, header, f->bytes, f->digest, why);
		if (!bad && s->bytes - header != f->data_bytes)
			bad = gw_diag_set(why, err, "%s: %s has another size", gw_checkpoint_path(m->c), f->name);
	}
	for (uint32_t i = 0; !bad && i < f->carried_count; i++) {
		const struct gw_patch_carried *c = &f->carried[i];
		const struct gw_safetensors_tensor *row = NULL;
		const uint8_t *p = gw_match_in_shard(s, c->name, &row);

		if (all || !c->fresh)
			bad = match_bytes(m, err, f->name, c->name, p, row ? row->bytes : 0, c->bytes, c->digest, why);
	}
	return bad;
}

static int match_model(const struct gw_match *m, const uint64_t want[2], int err, const char *hint, struct gw_diag *why)
{
	char is[GW_PRINT_TEXT], wanted[GW_PRINT_TEXT];

	if (same_print(m->model, want))
		return 0;
	gw_print_text(is, m->model);
	gw_print_text(wanted, want);
	return gw_diag_set(why, err, "%s: its fingerprint is %s, the patch says %s%s", gw_checkpoint_path(m->c), is,
			   wanted, hint);
}

static uint64_t elements_of(const struct gw_tensor *t)
{
	return t->bytes / gw_dtype_width((enum gw_dtype)t->dtype);
}

/* Before and after are sums over tensors: takes out what the row replaces, puts in what it makes. */
static int follow_row(const struct gw_match *m, const struct gw_patch_tensor *r, struct gw_patch_info *sum,
		      struct gw_diag *why)
{
	const uint64_t *lane = NULL;
	const struct gw_tensor *t = m ? find(m, r->name, &lane) : NULL;

	if (t && r->kind == GW_TENSOR_WHOLE && alike(r, t))
		return gw_diag_set(why, GW_EMALFORMED,
				   "patch file: tensor %s travels whole, though the base has it in that form", r->name);
	if (t) {
		gw_model_print_remove(sum->to_print, t->name, gw_dtype_name((enum gw_dtype)t->dtype), t->rank, t->shape, lane);
		sum->elements -= elements_of(t);
		sum->bytes -= t->bytes;
	}
	if (r->kind != GW_TENSOR_REMOVED) {
		gw_model_print_add(sum->to_print, r->name, gw_dtype_name(r->dtype), r->rank, r->shape, r->print_new);
		sum->elements += r->elements;
		sum->bytes += r->bytes;
	}
	return 0;
}

int gw_match_promise(const struct gw_match *m, const struct gw_patch *pt, struct gw_diag *why)
{
	struct gw_patch_info sum = {.to_print = {m ? m->model[0] : 0, m ? m->model[1] : 0}};
	int err = 0;

	for (uint32_t i = 0; m && i < gw_checkpoint_tensors(m->c); i++) {
		sum.elements += elements_of(gw_checkpoint_tensor(m->c, i));
		sum.bytes += gw_checkpoint_tensor(m->c, i)->bytes;
	}
	for (uint32_t i = 0; !err && i < pt->info.tensors; i++)
		err = follow_row(m, &pt->tensors[i], &sum, why);
	if (!err && (!same_print(sum.to_print, pt->info.to_print) || sum.elements != pt->info.elements ||
		     sum.bytes != pt->info.bytes))
		err = gw_diag_set(why, GW_EMALFORMED,
				  "patch file: its header promises another version than its tensors make");
	return err;
}

int gw_match_base(const struct gw_match *m, const struct gw_patch *pt, struct gw_diag *why)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < pt->info.tensors; i++) {
		const struct gw_patch_tensor *r = &pt->tensors[i];

		if (r->kind != GW_TENSOR_WHOLE)
			err = match_tensor(m, r, GW_EBASE, r->print_old, why);
	}
	for (uint32_t i = 0; !err && i < pt->info.files; i++)
		err = match_file(m, &pt->files[i], 0, GW_EBASE, why);
	if (!err)
		err = match_model(m, pt->info.from_print, GW_EBASE,
				  "; what the patch changes matches, another tensor does not", why);
	return err ? err : gw_match_promise(m, pt, why);
}

int gw_match_result(const struct gw_match *m, const struct gw_patch *pt, struct gw_diag *why)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < pt->info.tensors; i++) {
		const struct gw_patch_tensor *r = &pt->tensors[i];

		if (r->kind != GW_TENSOR_REMOVED)
			err = match_tensor(m, r, GW_EFINGERPRINT, r->print_new, why);
	}
	for (uint32_t i = 0; !err && i < pt->info.files; i++)
		err = match_file(m, &pt->files[i], 1, GW_EDIGEST, why);
	return err ? err : match_model(m, pt->info.to_print, GW_EFINGERPRINT, "", why);
}

int gw_match_path(const struct gw_patch *pt, struct gw_fs *fs, struct gw_pool *pool, struct gw_progress *watch,
		  const char *path, uint64_t model[2], struct gw_diag *why)
{
	struct gw_checkpoint *c;
	struct gw_match m;
	int err = gw_checkpoint_open(&c, fs, path, why);

	if (err)
		return err;
	err = gw_match_init(&m, c, pool, watch, why);
	if (!err) {
		err = gw_match_result(&m, pt, why);
		memcpy(model, m.model, sizeof m.model);
		gw_match_free(&m);
	}
	gw_checkpoint_close(c);
	return err;
}
