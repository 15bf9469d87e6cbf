#include "synth_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/publish.h"
#include "weights/checkpoint.h"

enum { BLOCK = 64 * 1024 }; /* elements */

/* A worker's memory: a block of a tensor in bf16, or SYNTH_SCALE_BLOCK rows of one in fp8. */
struct scratch {
	float *masters, *scales;
	uint8_t *bytes;
};

struct writer {
	struct gw_fs *fs;
	const struct synth_model *m;
	const struct synth_stats *s;
	unsigned versions;
	struct gw_publish *folders;
	struct gw_file **files;	 /* one a version: the shard being written */
	struct scratch *scratch; /* one a worker */
	uint64_t header_bytes;	 /* of the shard */
	uint32_t tensor;	 /* being written */
};

/* One block of the tensor, in all versions. */
static int write_block(void *arg, size_t i, unsigned worker)
{
	struct writer *w = arg;
	const struct synth_tensor *t = &w->m->tensors[w->tensor];
	struct scratch *own = &w->scratch[worker];
	uint64_t first = (uint64_t)i * BLOCK, at = w->header_bytes + t->shard_offset + 2 * first;
	size_t n = (size_t)gw_min_u64(BLOCK, t->elements - first);
	int err = 0;

	synth_masters(w->s, w->m, w->tensor, first, n, own->masters);
	for (unsigned v = 0; v < w->versions && !err; v++) {
		if (v)
			synth_step(w->s, w->m, w->tensor, first, n, v, own->masters);
		synth_cast(own->masters, n, own->bytes);
		err = gw_fs_pwrite(w->fs, w->files[v], own->bytes, 2 * n, at);
	}
	return err;
}

/* SYNTH_SCALE_BLOCK rows of a tensor in fp8 and their scales, in all versions. */
static int write_rows(void *arg, size_t i, unsigned worker)
{
	struct writer *w = arg;
	const struct synth_tensor *t = &w->m->tensors[w->tensor], *scale = &w->m->tensors[t->scale];
	struct scratch *own = &w->scratch[worker];
	uint64_t cols = t->shape[1], row = (uint64_t)i * SYNTH_SCALE_BLOCK, scales = scale->shape[1];
	size_t rows = (size_t)gw_min_u64(SYNTH_SCALE_BLOCK, t->shape[0] - row), n = rows * (size_t)cols;
	int err = 0;

	synth_masters(w->s, w->m, w->tensor, row * cols, n, own->masters);
	for (unsigned v = 0; v < w->versions && !err; v++) {
		if (v)
			synth_step(w->s, w->m, w->tensor, row * cols, n, v, own->masters);
		synth_quantise(own->masters, rows, (size_t)cols, own->bytes, own->scales);
		err = gw_fs_pwrite(w->fs, w->files[v], own->bytes, n, w->header_bytes + t->shard_offset + row * cols);
		for (uint64_t k = 0; k < scales; k++) {
			uint32_t bits;

			memcpy(&bits, &own->scales[k], sizeof bits);
			gw_put_le32(own->bytes + 4 * k, bits);
		}
		if (!err)
			err = gw_fs_pwrite(w->fs, w->files[v], own->bytes, 4 * scales,
					   w->header_bytes + scale->shard_offset + 4 * scales * i);
	}
	return err;
}

static int write_tensor(struct writer *w, struct gw_pool *pool, const struct synth_tensor *t)
{
	if (t->kind == SYNTH_SCALE)
		return 0;
	if (t->dtype == GW_DT_F8_E4M3)
		return pool->run(pool, (size_t)gw_div_up(t->shape[0], SYNTH_SCALE_BLOCK), write_rows, w);
	return pool->run(pool, (size_t)gw_div_up(t->elements, BLOCK), write_block, w);
}

/* A new file in each version's folder, with these bytes at its front. */
static int open_files(struct writer *w, const char *name, const void *front, size_t n)
{
	for (unsigned v = 0; v < w->versions; v++) {
		char *path = gw_path_join(w->folders[v].temp, name);
		int err = path ? gw_fs_open(w->fs, path, GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_EXCL, &w->files[v])
			       : GW_ENOMEM;

		free(path);
		if (!err)
			err = gw_fs_pwrite(w->fs, w->files[v], front, n, 0);
		if (err)
			return err;
	}
	return 0;
}

/* Makes them durable, unless something failed before. */
static int close_files(struct writer *w, int err, struct gw_diag *why)
{
	for (unsigned v = 0; v < w->versions; v++) {
		if (!w->files[v])
			continue;
		if (!err)
			err = gw_publish_sync(w->fs, w->files[v], why);
		gw_fs_close(w->fs, w->files[v]);
		w->files[v] = NULL;
	}
	return err;
}

static int write_shard(struct writer *w, struct gw_pool *pool, uint32_t shard, struct gw_diag *why)
{
	struct gw_wr header;
	char name[64];
	int err;

	gw_wr_init(&header, GW_SAFETENSORS_HEADER_MAX);
	synth_shard_name(w->m, shard, name);
	err = synth_shard_header(w->m, shard, &header, why);
	if (!err)
		err = open_files(w, name, header.p, header.n);
	w->header_bytes = header.n;
	for (w->tensor = 0; w->tensor < w->m->count && !err; w->tensor++) {
		const struct synth_tensor *t = &w->m->tensors[w->tensor];

		if (t->shard == shard)
			err = write_tensor(w, pool, t);
	}
	gw_wr_free(&header);
	return close_files(w, err, why);
}

static int write_json(struct writer *w, const char *name, void (*make)(const struct synth_model *, struct gw_wr *),
		      struct gw_diag *why)
{
	struct gw_wr text;
	int err;

	gw_wr_init(&text, GW_OTHER_FILE_MAX);
	make(w->m, &text);
	err = text.err;
	if (!err)
		err = open_files(w, name, text.p, text.n);
	gw_wr_free(&text);
	return close_files(w, err, why);
}

static int begin_folders(struct writer *w, const char *dir, struct gw_diag *why)
{
	int err = gw_fs_mkdir(w->fs, dir);

	if (err && err != GW_EEXIST)
		return gw_diag_set(why, err, "cannot make the folder %s: %s", dir, gw_err_text(err));
	err = 0;
	for (unsigned v = 0; v < w->versions && !err; v++) {
		char name[16], *path;

		(void)snprintf(name, sizeof name, "v%u", v);
		path = gw_path_join(dir, name);
		err = path ? gw_publish_begin_dir(&w->folders[v], w->fs, path, why) : GW_ENOMEM;
		free(path);
	}
	return err;
}

static int write_all(struct writer *w, struct gw_pool *pool, const char *dir, struct gw_diag *why)
{
	int err = begin_folders(w, dir, why);

	for (uint32_t shard = 0; shard < w->m->shards && !err; shard++)
		err = write_shard(w, pool, shard, why);
	if (!err && w->m->shards > 1)
		err = write_json(w, GW_INDEX_NAME, synth_index_json, why);
	if (!err)
		err = write_json(w, "config.json", synth_config_json, why);
	for (unsigned v = 0; v < w->versions; v++)
		if (!err)
			err = gw_publish_commit(&w->folders[v], why);
		else
			gw_publish_abort(&w->folders[v]);
	return err;
}

static int make_scratch(struct writer *w, unsigned workers)
{
	uint64_t most = BLOCK;

	for (uint32_t i = 0; i < w->m->count; i++)
		if (w->m->tensors[i].dtype == GW_DT_F8_E4M3)
			most = gw_max_u64(most, SYNTH_SCALE_BLOCK * w->m->tensors[i].shape[1]);
	for (unsigned i = 0; i < workers; i++) {
		struct scratch *s = &w->scratch[i];

		s->masters = calloc(most, sizeof *s->masters);
		s->scales = calloc(gw_div_up(most, SYNTH_SCALE_BLOCK), sizeof *s->scales);
		s->bytes = calloc(most, 2);
		if (!s->masters || !s->scales || !s->bytes)
			return GW_ENOMEM;
	}
	return 0;
}

int synth_write(struct gw_fs *fs, struct gw_pool *pool, const char *dir, const struct synth_model *m,
		const struct synth_stats *s, unsigned steps, struct gw_diag *why)
{
	struct writer w = {.fs = fs, .m = m, .s = s, .versions = steps + 1};
	int err = GW_ENOMEM;

	w.folders = calloc(w.versions, sizeof *w.folders);
	w.files = calloc(w.versions, sizeof *w.files);
	w.scratch = calloc(pool->width, sizeof *w.scratch);
	if (w.folders && w.files && w.scratch)
		err = make_scratch(&w, pool->width);
	if (!err)
		err = write_all(&w, pool, dir, why);
	for (unsigned i = 0; w.scratch && i < pool->width; i++) {
		free(w.scratch[i].masters);
		free(w.scratch[i].scales);
		free(w.scratch[i].bytes);
	}
	free(w.folders);
	free(w.files);
	free(w.scratch);
	return err ? gw_diag_set(why, err, "%s: %s", dir, gw_err_text(err)) : 0;
}
