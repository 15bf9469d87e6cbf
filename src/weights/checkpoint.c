#include "weights/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/publish.h"
#include "weights/index.h"

static const char shard_suffix[] = ".safetensors";

/* A file at the folder's top, mapped. */
struct file {
	char *name;
	int is_shard;
	int mapped;
	struct gw_mapping map;
	struct gw_safetensors *header; /* of a shard */
	unsigned char *served;	       /* of a shard, while opening: one flag a tensor, in data order */
};

struct gw_checkpoint {
	struct gw_fs *fs;
	char *path;
	int is_file;
	struct file *files; /* bytewise order of names; shards and others mixed */
	uint32_t file_count;
	struct gw_shard *shards;
	struct gw_other_file *others;
	uint32_t shard_count, other_count;
	uint32_t *shard_files;	   /* which file a shard is */
	struct gw_tensor *tensors; /* served first, in order of names; behind them the carried ones by shard */
	uint32_t tensor_count, served_count;
};

/* --- which files there are -------------------------------------------------------------------- */

static int is_shard_name(const char *name)
{
	size_t n = strlen(name), m = sizeof shard_suffix - 1;

	return n > m && !strcmp(name + n - m, shard_suffix);
}

/* What may not lie in a checkpoint folder is refused by name. */
static int refuse_odd(const char *dir, const char *name, const struct gw_stat *st, struct gw_diag *why)
{
	if (st->type == GW_FILE_LINK)
		return gw_diag_set(why, GW_EINVAL,
				   "%s/%s is a link; a checkpoint folder holds plain files: put a copy there", dir,
				   name);
	if (st->type == GW_FILE_DIR)
		return gw_diag_set(why, GW_EINVAL, "%s/%s is a folder; a checkpoint folder has none: move it away", dir,
				   name);
	if (st->type != GW_FILE_REGULAR)
		return gw_diag_set(why, GW_EINVAL, "%s/%s is not a regular file: move it away", dir, name);
	if (!is_shard_name(name) && st->size > GW_OTHER_FILE_MAX)
		return gw_diag_set(why, GW_ELIMIT,
				   "%s/%s has %llu bytes; files beside the weights may have 64 MiB: move it away", dir,
				   name, (unsigned long long)st->size);
	return 0;
}

struct listing {
	struct gw_checkpoint *c;
	struct gw_diag *why;
	uint32_t cap;
};

static int add_file(struct gw_checkpoint *c, const char *name, uint32_t *cap)
{
	if (c->file_count == *cap) {
		uint32_t more = *cap ? 2 * *cap : 16;
		struct file *grown = realloc(c->files, more * sizeof *grown);

		if (!grown)
			return GW_ENOMEM;
		c->files = grown;
		*cap = more;
	}
	memset(&c->files[c->file_count], 0, sizeof *c->files);
	c->files[c->file_count].name = strdup(name);
	if (!c->files[c->file_count].name)
		return GW_ENOMEM;
	c->files[c->file_count++].is_shard = is_shard_name(name);
	return 0;
}

static int list_entry(void *ctx, const char *name)
{
	struct listing *l = ctx;
	struct gw_checkpoint *c = l->c;
	char *path = gw_path_join(c->path, name);
	struct gw_stat st;
	int err = path ? gw_fs_stat(c->fs, path, &st) : GW_ENOMEM;

	free(path);
	if (err)
		return gw_diag_set(l->why, err, "%s/%s: %s", c->path, name, gw_err_text(err));
	err = refuse_odd(c->path, name, &st, l->why);
	if (!err && c->file_count == GW_CHECKPOINT_SHARDS_MAX + GW_CHECKPOINT_OTHERS_MAX)
		err = gw_diag_set(l->why, GW_ELIMIT, "%s holds too many files for a checkpoint", c->path);
	return err ? err : add_file(c, name, &l->cap);
}

static struct file *find_file(const struct gw_checkpoint *c, const char *name)
{
	for (uint32_t i = 0; i < c->file_count; i++)
		if (!strcmp(c->files[i].name, name))
			return &c->files[i];
	return NULL;
}

/* --- mapping ---------------------------------------------------------------------------------- */

static int map_file(struct gw_checkpoint *c, struct file *f, struct gw_diag *why)
{
	char *path = c->is_file ? strdup(c->path) : gw_path_join(c->path, f->name);
	struct gw_file *file = NULL;
	struct gw_stat st;
	int err = GW_ENOMEM;

	if (!path)
		goto err0;
	err = gw_fs_open(c->fs, path, GW_OPEN_READ | (c->is_file ? 0U : GW_OPEN_NOFOLLOW), &file);
	if (err)
		goto err1;
	err = gw_fs_fstat(c->fs, file, &st);
	if (err)
		goto err2;
	if (st.type != GW_FILE_REGULAR) {
		err = gw_diag_set(why, GW_EINVAL, "%s is not a regular file", path);
		goto err2;
	}
	err = gw_fs_map(c->fs, file, &f->map);
	f->mapped = !err;
	if (!err && !f->is_shard && f->map.n > GW_OTHER_FILE_MAX)
		err = gw_diag_set(why, GW_ELIMIT, "%s grew over 64 MiB", path);
err2:
	gw_fs_close(c->fs, file);
err1:
	if (err)
		(void)gw_diag_set(why, err, "cannot read %s: %s", path, gw_err_text(err));
	free(path);
err0:
	return err;
}

static int open_shard(struct gw_checkpoint *c, struct file *f, struct gw_diag *why)
{
	int err = gw_safetensors_open(&f->header, f->map.p, f->map.n, f->map.n, why);
	uint32_t n;

	if (err)
		return c->is_file ? gw_diag_wrap(why, err, "%s", c->path)
				  : gw_diag_wrap(why, err, "%s/%s", c->path, f->name);
	n = gw_safetensors_count(f->header);
	f->served = calloc(n ? n : 1, 1);
	if (!f->served)
		return GW_ENOMEM;
	/* Both are at most 1 Mi a shard and 1024 shards, which fits 32 bits. */
	c->tensor_count += n;
	c->shard_count++;
	return 0;
}

static int map_files(struct gw_checkpoint *c, struct gw_diag *why)
{
	uint32_t others = 0;

	for (uint32_t i = 0; i < c->file_count; i++) {
		struct file *f = &c->files[i];
		int err = f->mapped ? 0 : map_file(c, f, why);

		if (!err && f->is_shard)
			err = open_shard(c, f, why);
		if (err)
			return err;
		others += !f->is_shard;
		if (c->shard_count > GW_CHECKPOINT_SHARDS_MAX || others > GW_CHECKPOINT_OTHERS_MAX)
			return gw_diag_set(why, GW_ELIMIT, "%s holds too many files for a checkpoint", c->path);
	}
	if (!c->shard_count)
		return gw_diag_set(why, GW_ENOENT, "%s holds no .safetensors file", c->path);
	return 0;
}

/* Reads the index, if there is one; the files that it names are shards, whatever their suffix. */
static int read_index(struct gw_checkpoint *c, struct gw_index *x, int *there, struct gw_diag *why)
{
	struct file *f = c->is_file ? NULL : find_file(c, GW_INDEX_NAME);
	int err;

	memset(x, 0, sizeof *x);
	*there = f != NULL;
	if (!f)
		return 0;
	err = map_file(c, f, why);
	if (!err && (err = gw_index_parse(x, f->map.p, f->map.n, why)))
		(void)gw_diag_wrap(why, err, "%s/" GW_INDEX_NAME, c->path);
	for (uint32_t i = 0; i < x->file_count && !err; i++) {
		struct file *shard = find_file(c, x->files[i]);

		if (shard && shard != f)
			shard->is_shard = 1;
		else
			err = gw_diag_set(why, GW_ENOENT, "%s/" GW_INDEX_NAME " names %s, which is not %s", c->path,
					  x->files[i], shard ? "a file of weights" : "there");
	}
	return err;
}

/* --- which tensors are served ----------------------------------------------------------------- */

static struct gw_tensor tensor_of(const struct gw_checkpoint *c, uint32_t shard, const struct gw_safetensors_tensor *t)
{
	const struct file *f = &c->files[c->shard_files[shard]];
	size_t header;

	(void)gw_safetensors_header(f->header, &header);
	return (struct gw_tensor){
		.name = t->name,
		.shape = t->shape,
		.p = f->map.p + header + t->begin,
		.bytes = t->bytes,
		.offset = header + t->begin,
		.shard = shard,
		.rank = t->rank,
		.dtype = t->dtype,
	};
}

/* Fills shards and others; the tensors' rows come later. */
static int make_tables(struct gw_checkpoint *c)
{
	uint32_t shard = 0, other = 0;

	c->other_count = c->file_count - c->shard_count;
	c->shards = calloc(c->shard_count, sizeof *c->shards);
	c->shard_files = calloc(c->shard_count, sizeof *c->shard_files);
	c->others = calloc(c->other_count + 1, sizeof *c->others);
	c->tensors = calloc((size_t)c->tensor_count + 1, sizeof *c->tensors);
	if (!c->shards || !c->shard_files || !c->others || !c->tensors)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < c->file_count; i++) {
		const struct file *f = &c->files[i];

		if (f->is_shard) {
			c->shard_files[shard] = i;
			c->shards[shard++] = (struct gw_shard){
				.name = f->name, .p = f->map.p, .bytes = f->map.n, .header = f->header};
		} else {
			c->others[other++] = (struct gw_other_file){f->name, f->map.p, f->map.n};
		}
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gw_tensor *)a)->name, ((const struct gw_tensor *)b)->name);
}

/* Without an index: all of them. */
static int serve_all(struct gw_checkpoint *c, struct gw_diag *why)
{
	for (uint32_t shard = 0; shard < c->shard_count; shard++) {
		struct file *f = &c->files[c->shard_files[shard]];

		for (uint32_t i = 0; i < gw_safetensors_count(f->header); i++) {
			c->tensors[c->served_count++] = tensor_of(c, shard, gw_safetensors_by_name(f->header, i));
			f->served[i] = 1;
		}
	}
	if (c->shard_count > 1)
		qsort(c->tensors, c->served_count, sizeof *c->tensors, by_name);
	for (uint32_t i = 1; i < c->served_count; i++) {
		const struct gw_tensor *a = &c->tensors[i - 1], *b = &c->tensors[i];

		if (!by_name(a, b))
			return gw_diag_set(why, GW_EDUPLICATE,
					   "%s: tensor %.200s is in %.60s and in %.60s, and no index says which counts",
					   c->path, b->name, c->shards[a->shard].name, c->shards[b->shard].name);
	}
	return 0;
}

/* The shards' numbers of the index's files; malloced, NULL when out of memory. */
static uint32_t *shards_of(const struct gw_checkpoint *c, const struct gw_index *x)
{
	uint32_t *map = calloc(x->file_count + 1, sizeof *map);

	for (uint32_t i = 0; map && i < x->file_count; i++)
		while (strcmp(c->shards[map[i]].name, x->files[i]) != 0)
			map[i]++;
	return map;
}

/* With an index: what it says, no more and no less. */
static int serve_indexed(struct gw_checkpoint *c, const struct gw_index *x, struct gw_diag *why)
{
	uint32_t *map = shards_of(c, x);
	int err = map ? 0 : GW_ENOMEM;

	for (size_t i = 0; i < x->count && !err; i++) {
		uint32_t shard = map[x->entries[i].file];
		struct file *f = &c->files[c->shard_files[shard]];
		const struct gw_safetensors_tensor *t = gw_safetensors_find(f->header, x->entries[i].tensor);

		if (!t) {
			err = gw_diag_set(why, GW_EMALFORMED,
					  "%s: tensor %.200s is not in %.60s, where the index puts it", c->path,
					  x->entries[i].tensor, f->name);
			break;
		}
		f->served[t - gw_safetensors_at(f->header, 0)] = 1;
		c->tensors[c->served_count++] = tensor_of(c, shard, t);
	}
	free(map);
	return err;
}

/* What is not served lies behind what is. Names in an index are unique, so the rows suffice. */
static void collect_carried(struct gw_checkpoint *c)
{
	uint32_t at = c->served_count;

	for (uint32_t shard = 0; shard < c->shard_count; shard++) {
		struct file *f = &c->files[c->shard_files[shard]];

		c->shards[shard].carried = c->tensors + at;
		for (uint32_t i = 0; i < gw_safetensors_count(f->header); i++)
			if (!f->served[i]) {
				c->tensors[at++] = tensor_of(c, shard, gw_safetensors_at(f->header, i));
				c->shards[shard].carried_count++;
			}
		free(f->served);
		f->served = NULL;
	}
}

/* --- opening and closing ---------------------------------------------------------------------- */

/* The path may be a link, to a folder too. */
static int look_at_path(struct gw_checkpoint *c, struct gw_diag *why)
{
	struct gw_stat st;
	int err = gw_fs_stat(c->fs, c->path, &st);

	if (!err && st.type == GW_FILE_LINK) {
		char *inside = gw_path_join(c->path, ".");
		struct gw_stat target;

		if (!inside)
			return GW_ENOMEM;
		if (!gw_fs_stat(c->fs, inside, &target))
			st = target;
		else
			st.type = GW_FILE_REGULAR; /* or not: map_file looks again once it is open */
		free(inside);
	}
	if (err)
		return gw_diag_set(why, err, "%s: %s", c->path, gw_err_text(err));
	if (st.type != GW_FILE_DIR && st.type != GW_FILE_REGULAR)
		return gw_diag_set(why, GW_EINVAL, "%s is neither a folder nor a regular file", c->path);
	c->is_file = st.type != GW_FILE_DIR;
	return 0;
}

static int list_files(struct gw_checkpoint *c, struct gw_diag *why)
{
	struct listing l = {c, why, 0};
	int err;

	if (c->is_file) {
		err = add_file(c, gw_path_base(c->path), &l.cap);
		if (!err)
			c->files[0].is_shard = 1;
		return err;
	}
	err = gw_fs_list(c->fs, c->path, list_entry, &l);
	return err ? gw_diag_set(why, err, "%s: %s", c->path, gw_err_text(err)) : 0;
}

static int open_all(struct gw_checkpoint *c, struct gw_diag *why)
{
	struct gw_index x;
	int indexed, err = look_at_path(c, why);

	if (!err)
		err = list_files(c, why);
	if (err)
		return err;
	err = read_index(c, &x, &indexed, why);
	if (!err)
		err = map_files(c, why);
	if (!err)
		err = make_tables(c);
	if (!err)
		err = indexed ? serve_indexed(c, &x, why) : serve_all(c, why);
	if (!err)
		collect_carried(c);
	gw_index_free(&x);
	/* Headers were read from mappings: what a shrinking file made of them does not count. */
	return err ? err : gw_checkpoint_check(c, why);
}

int gw_checkpoint_open(struct gw_checkpoint **out, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	struct gw_checkpoint *c = calloc(1, sizeof *c);
	int err = GW_ENOMEM;

	*out = NULL;
	if (!c)
		return err;
	c->fs = fs;
	c->path = strdup(path);
	if (c->path)
		err = open_all(c, why);
	if (err) {
		gw_checkpoint_close(c);
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	}
	*out = c;
	return 0;
}

void gw_checkpoint_close(struct gw_checkpoint *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->file_count; i++) {
		struct file *f = &c->files[i];

		gw_safetensors_free(f->header);
		free(f->served);
		if (f->mapped)
			(void)gw_fs_unmap(c->fs, &f->map);
		free(f->name);
	}
	free(c->files);
	free(c->shards);
	free(c->shard_files);
	free(c->others);
	free(c->tensors);
	free(c->path);
	free(c);
}

int gw_checkpoint_check(const struct gw_checkpoint *c, struct gw_diag *why)
{
	for (uint32_t i = 0; i < c->file_count; i++) {
		int err = c->files[i].mapped ? gw_fs_mapping_check(c->fs, &c->files[i].map) : 0;

		if (err)
			return gw_diag_set(why, err, "%s, file %s: %s", c->path, c->files[i].name, gw_err_text(err));
	}
	return 0;
}

int gw_checkpoint_is_file(const struct gw_checkpoint *c)
{
	return c->is_file;
}

const char *gw_checkpoint_path(const struct gw_checkpoint *c)
{
	return c->path;
}

uint32_t gw_checkpoint_tensors(const struct gw_checkpoint *c)
{
	return c->served_count;
}

const struct gw_tensor *gw_checkpoint_tensor(const struct gw_checkpoint *c, uint32_t i)
{
	return i < c->served_count ? &c->tensors[i] : NULL;
}

const struct gw_tensor *gw_checkpoint_find(const struct gw_checkpoint *c, const char *name)
{
	const struct gw_tensor key = {.name = name};

	return c->served_count ? bsearch(&key, c->tensors, c->served_count, sizeof key, by_name) : NULL;
}

uint32_t gw_checkpoint_shards(const struct gw_checkpoint *c)
{
	return c->shard_count;
}

const struct gw_shard *gw_checkpoint_shard(const struct gw_checkpoint *c, uint32_t i)
{
	return i < c->shard_count ? &c->shards[i] : NULL;
}

uint32_t gw_checkpoint_others(const struct gw_checkpoint *c)
{
	return c->other_count;
}

const struct gw_other_file *gw_checkpoint_other(const struct gw_checkpoint *c, uint32_t i)
{
	return i < c->other_count ? &c->others[i] : NULL;
}
