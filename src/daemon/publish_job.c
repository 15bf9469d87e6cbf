#include "daemon/publish_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/publish.h"
#include "io/os/clock.h"
#include "patch/diff.h"
#include "patch/disk.h"
#include "swarm/swarm.h"
#include "trust/tensor_table.h"

/* A manifest is good for as long as anybody may want to start from it; freshness is the head's business. */
#define MANIFEST_LIFE_NS (10ull * 365 * 24 * 3600 * 1000000000)

enum { COPY_BYTES = 1 << 20 };

char *gw_publish_base_path(const char *dir, uint64_t version)
{
	char leaf[40];

	(void)snprintf(leaf, sizeof leaf, "base-%llu", (unsigned long long)version);
	return gw_path_join(dir, leaf);
}

/* --- the parts of an object --- */

struct object {
	struct gw_publish_job *job;
	struct gw_draft *draft;
	struct gw_mapping whole; /* of the draft, for hashing */
	uint8_t *digests;        /* 32 bytes a piece */
	uint32_t piece_bytes, pieces;
	uint64_t bytes;
};

static int make_table(const struct gw_patch *pt, struct gw_wr *w, struct gw_diag *why)
{
	struct gw_patch_info info;
	uint32_t rows = 0;

	gw_patch_info(pt, &info);
	for (uint32_t i = 0; i < info.tensors; i++)
		rows += gw_patch_tensor(pt, i)->kind != GW_TENSOR_REMOVED;
	gw_tensor_table_begin(w, rows);
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);
		struct gw_tensor_row row = {.name = t->name, .name_bytes = strlen(t->name), .dtype = (uint16_t)t->dtype,
					    .rank = (uint8_t)t->rank, .axis = (uint8_t)t->axis,
					    .print = {t->print_new[0], t->print_new[1]}};
		int err;

		if (t->kind == GW_TENSOR_REMOVED)
			continue;
		if (t->rank > GW_TENSOR_RANK_MAX)
			return gw_diag_set(why, GW_ELIMIT, "tensor %s: %u dimensions, at most %d can be published", t->name,
					   t->rank, GW_TENSOR_RANK_MAX);
		memcpy(row.shape, t->shape, t->rank * sizeof row.shape[0]);
		err = gw_tensor_table_add(w, &row);
		if (err)
			return gw_diag_set(why, err, "tensor %s: %s", t->name, gw_err_text(err));
	}
	return w->err;
}

static int write_object(struct object *o, const struct gw_wr *table, const struct gw_mapping *patch)
{
	struct gw_publish_job *j = o->job;
	struct gw_file *f = gw_draft_file(o->draft);
	int err = gw_fs_pwrite(j->fs, f, table->p, table->n, 0);

	for (size_t at = 0; !err && at < patch->n; at += COPY_BYTES) {
		size_t n = patch->n - at < COPY_BYTES ? patch->n - at : COPY_BYTES;

		err = gw_fs_pwrite(j->fs, f, patch->p + at, n, table->n + at);
	}
	if (!err)
		err = gw_fs_mapping_check(j->fs, patch);
	o->bytes = table->n + patch->n;
	return err ? gw_diag_set(&j->result.why, err, "cannot write the object: %s", gw_err_text(err)) : 0;
}

static int hash_piece(void *arg, size_t i, unsigned worker)
{
	struct object *o = arg;
	uint64_t at = (uint64_t)i * o->piece_bytes, left = o->bytes - at;
	struct gw_digest d;

	(void)worker;
	gw_digest_of(o->whole.p + at, left < o->piece_bytes ? left : o->piece_bytes, &d);
	memcpy(o->digests + 32 * i, d.b, 32);
	return 0;
}

static int hash_pieces(struct object *o)
{
	struct gw_publish_job *j = o->job;
	uint64_t n;
	int err;

	o->piece_bytes = gw_piece_bytes_for(o->bytes);
	n = (o->bytes + o->piece_bytes - 1) / o->piece_bytes;
	/* Leaves of the piece table count too: about one in 2048. */
	if (n + n / (GW_TABLE_LEAF_BYTES / 32) + 1 > GW_SWARM_PIECES_MAX)
		return gw_diag_set(&j->result.why, GW_ELIMIT, "the object has %llu bytes, more than hosts fetch as one "
				   "(%d pieces)", (unsigned long long)o->bytes, GW_SWARM_PIECES_MAX);
	o->pieces = (uint32_t)n;
	o->digests = malloc(32 * (size_t)n);
	if (!o->digests)
		return GW_ENOMEM;
	err = gw_fs_map(j->fs, gw_draft_file(o->draft), &o->whole);
	if (err)
		return err;
	err = j->pool->run(j->pool, n, hash_piece, o);
	if (gw_fs_unmap(j->fs, &o->whole) && !err)
		err = GW_ESHRUNK;
	return err;
}

/* Leaves of the piece table: their digests go into the manifest. */
static int hash_leaves(const struct object *o, struct gw_manifest *m, uint8_t *leaf_digests)
{
	size_t bytes = 32 * (size_t)o->pieces;

	m->table_pieces = 0;
	m->digest_count = o->pieces;
	m->digests = o->digests;
	if (o->pieces <= GW_INLINE_DIGESTS)
		return 0;
	m->table_pieces = (uint32_t)((bytes + GW_TABLE_LEAF_BYTES - 1) / GW_TABLE_LEAF_BYTES);
	m->digest_count = m->table_pieces;
	m->digests = leaf_digests;
	for (uint32_t i = 0; i < m->table_pieces; i++) {
		size_t at = (size_t)i * GW_TABLE_LEAF_BYTES, n = bytes - at;
		struct gw_digest d;

		gw_digest_of(o->digests + at, n < GW_TABLE_LEAF_BYTES ? n : GW_TABLE_LEAF_BYTES, &d);
		memcpy(leaf_digests + 32 * i, d.b, 32);
	}
	return 0;
}

static void fill_manifest(struct object *o, const struct gw_patch_info *info, const struct gw_wr *table,
			  struct gw_manifest *m)
{
	struct gw_publish_job *j = o->job;

	memset(m, 0, sizeof *m);
	m->kind = info->anchor ? GW_KIND_ANCHOR : GW_KIND_TRANSITION;
	m->encoding = GW_ENCODING_PLAIN;
	(void)snprintf(m->policy, sizeof m->policy, "%s", j->policy);
	memcpy(m->run, j->run, sizeof m->run);
	m->from = info->anchor ? j->to : j->from;
	m->to = j->to;
	m->created_ns = gw_clock_wall_ns();
	m->expires_ns = m->created_ns + MANIFEST_LIFE_NS;
	if (!info->anchor)
		memcpy(m->before.lane, info->from_print, sizeof m->before.lane);
	memcpy(m->after.lane, info->to_print, sizeof m->after.lane);
	m->previous = j->previous;
	m->object_bytes = o->bytes;
	m->tensor_table_bytes = table->n;
	m->changed = info->changed;
	m->elements = info->named_elements;
	m->piece_bytes = o->piece_bytes;
	m->object_pieces = o->pieces;
	gw_digest_of(table->p, table->n, &m->tensor_table);
}

static int sign_and_store(struct object *o, const struct gw_patch_info *info, const struct gw_wr *table)
{
	struct gw_publish_job *j = o->job;
	uint8_t leaf_digests[32 * GW_INLINE_DIGESTS];
	struct gw_manifest m;
	int err;

	fill_manifest(o, info, table, &m);
	err = hash_leaves(o, &m, leaf_digests);
	if (!err)
		err = gw_manifest_sign(&m, j->release->sk, &j->signed_bytes, &j->signed_n);
	if (err)
		return gw_diag_set(&j->result.why, err, "cannot sign the manifest: %s", gw_err_text(err));
	err = gw_draft_commit(o->draft, &m, j->signed_bytes, j->signed_n, m.table_pieces ? o->digests : NULL,
			      m.table_pieces ? 32 * (size_t)o->pieces : 0, &j->result.why);
	o->draft = NULL;
	j->result.manifest = m.id;
	j->result.object_bytes = o->bytes;
	j->result.pieces = o->pieces;
	return err;
}

static int make_object(struct gw_publish_job *j, const struct gw_patch *pt, const struct gw_mapping *patch)
{
	struct object o = {.job = j};
	struct gw_patch_info info;
	struct gw_wr table;
	int err;

	gw_patch_info(pt, &info);
	gw_wr_init(&table, GW_TENSOR_TABLE_MAX);
	err = make_table(pt, &table, &j->result.why);
	if (!err)
		err = gw_draft_new(&o.draft, j->store, &j->result.why);
	if (!err)
		err = write_object(&o, &table, patch);
	if (!err)
		err = hash_pieces(&o);
	if (!err)
		err = sign_and_store(&o, &info, &table);
	if (o.draft)
		gw_draft_abort(o.draft);
	free(o.digests);
	gw_wr_free(&table);
	return err;
}

/* --- the whole way --- */

/* Nothing differs: no tensor, no file. */
static int is_empty(const struct gw_patch *pt)
{
	struct gw_patch_info info;

	gw_patch_info(pt, &info);
	if (info.tensors)
		return 0;
	for (uint32_t i = 0; i < info.files; i++) {
		const struct gw_patch_file *f = gw_patch_file(pt, i);

		if (f->fresh || f->kind == GW_PATCH_GONE)
			return 0;
		for (uint32_t k = 0; k < f->carried_count; k++)
			if (f->carried[k].fresh)
				return 0;
	}
	return 1;
}

/* Nobody could apply what is made of a base that has changed since it was published. */
static int check_base(struct gw_publish_job *j, const struct gw_diff_report *report)
{
	struct gw_manifest m;
	uint8_t *bytes;
	size_t n;
	int same = 1;

	if (gw_store_manifest(j->store, &j->previous, &bytes, &n))
		return 0; /* not here any more: whoever applies the patch checks the base as well */
	if (!gw_root_open_manifest(j->root, bytes, n, &m, NULL))
		same = !memcmp(m.after.lane, report->from_print, sizeof m.after.lane);
	free(bytes);
	return same ? 0 : gw_diag_set(&j->result.why, GW_EBASE, "%s is not version %llu any more as it was published; publish "
				      "the next one whole (seed publish --anchor)", j->base, (unsigned long long)j->from);
}

/* The new base beside the old one; the object first, so that a version is durable before the base moves. */
static int advance(struct gw_publish_job *j, const struct gw_patch *pt, const struct gw_mapping *patch,
		   const struct gw_checkpoint *base)
{
	char *next = gw_publish_base_path(j->dir, j->to);
	int err = next ? 0 : GW_ENOMEM;

	if (!err)
		err = make_object(j, pt, patch);
	if (err) {
		free(next);
		return err;
	}
	err = gw_publish_remove(j->fs, next);
	if (!err || err == GW_ENOENT)
		err = gw_disk_apply(pt, j->anchor ? NULL : base, j->fs, j->pool, NULL, next, NULL, &j->result.why);
	if (err)
		(void)gw_store_drop(j->store, &j->result.manifest, NULL);
	free(next);
	return err;
}

static int with_patch(struct gw_publish_job *j, const char *path, const struct gw_checkpoint *base)
{
	struct gw_file *f;
	struct gw_mapping patch;
	struct gw_patch *pt = NULL;
	int err = gw_fs_open(j->fs, path, GW_OPEN_READ, &f);

	if (err)
		return err;
	err = gw_fs_map(j->fs, f, &patch);
	gw_fs_close(j->fs, f);
	if (err)
		return err;
	err = gw_patch_open(&pt, patch.p, patch.n, &j->result.why);
	if (!err) {
		j->result.already = !j->anchor && is_empty(pt);
		if (!j->result.already && j->same_only)
			err = gw_diag_set(&j->result.why, GW_EINVAL, "version %llu is published with other content: a run never "
					  "rewinds; publish this as a new version", (unsigned long long)j->to);
		else if (!j->result.already)
			err = advance(j, pt, &patch, base);
		gw_patch_close(pt);
	}
	(void)gw_fs_unmap(j->fs, &patch); /* whether it shrank was asked before anything was signed */
	return err;
}

int gw_publish_job_run(struct gw_publish_job *j)
{
	struct gw_checkpoint *base = NULL, *next = NULL;
	struct gw_diff_options opt = {.replace = 1};
	struct gw_diff_report report = {0};
	uint64_t began = gw_clock_mono_ns();
	char *path = gw_path_join(j->dir, GW_PUBLISH_PATCH_NAME);
	int err = path ? 0 : GW_ENOMEM;

	if (!err && !j->anchor)
		err = gw_checkpoint_open(&base, j->fs, j->base, &j->result.why);
	if (err)
		(void)gw_diag_wrap(&j->result.why, err, "this host's own copy of version %llu is damaged; publish the next one "
				   "whole (seed publish --anchor)", (unsigned long long)j->from);
	if (!err)
		err = gw_checkpoint_open(&next, j->fs, j->source, &j->result.why);
	if (!err)
		err = gw_diff(base, next, j->fs, j->pool, &opt, path, &report, &j->result.why);
	if (!err && base)
		err = check_base(j, &report);
	if (!err) {
		j->result.patch_bytes = report.patch_bytes;
		j->result.full_bytes = report.bytes;
		j->result.changed = report.changed;
		j->result.elements = report.elements;
		err = with_patch(j, path, base);
	}
	gw_checkpoint_close(next);
	gw_checkpoint_close(base);
	if (path)
		(void)gw_fs_unlink(j->fs, path);
	free(path);
	j->result.err = err;
	j->result.version = j->to;
	j->result.from = j->anchor ? j->to : j->from;
	j->result.anchor = j->anchor;
	memcpy(j->result.run, j->run, sizeof j->run);
	j->result.took_ns = gw_clock_mono_ns() - began;
	return err;
}
