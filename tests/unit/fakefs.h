/*
 * A file table over memory, for reading tests: files are rows, paths are looked up whole. Writing is not
 * supported. `shrunk` makes a mapping say that its file was cut.
 */
#ifndef GW_TESTS_FAKEFS_H
#define GW_TESTS_FAKEFS_H

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { FAKE_FILES_MAX = 64 };

struct fake_file {
	const char *path;
	enum gw_file_type type;
	const void *p;
	size_t n;
	int shrunk;
	int mapped; /* how many mappings are out */
};

struct fake_fs {
	struct gw_fs fs; /* first */
	struct fake_file files[FAKE_FILES_MAX];
	size_t n;
	int open; /* how many files are open */
};

static struct fake_file *fake_find(struct gw_fs *fs, const char *path)
{
	struct fake_fs *f = (struct fake_fs *)fs;

	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->files[i].path, path))
			return &f->files[i];
	return NULL;
}

static int fake_stat(struct gw_fs *fs, const char *path, struct gw_stat *st)
{
	const struct fake_file *f = fake_find(fs, path);

	if (!f)
		return GW_ENOENT;
	memset(st, 0, sizeof *st);
	st->type = f->type;
	st->size = f->n;
	return 0;
}

static int fake_open(struct gw_fs *fs, const char *path, unsigned flags, struct gw_file **out)
{
	struct fake_file *f = fake_find(fs, path);

	if (!f)
		return GW_ENOENT;
	if (flags & GW_OPEN_NOFOLLOW && f->type == GW_FILE_LINK)
		return GW_EACCESS;
	((struct fake_fs *)fs)->open++;
	*out = (struct gw_file *)f;
	return 0;
}

static void fake_close(struct gw_fs *fs, struct gw_file *file)
{
	(void)file;
	((struct fake_fs *)fs)->open--;
}

static int fake_fstat(struct gw_fs *fs, struct gw_file *file, struct gw_stat *st)
{
	return fake_stat(fs, ((struct fake_file *)file)->path, st);
}

static int fake_map(struct gw_fs *fs, struct gw_file *file, struct gw_mapping *out)
{
	struct fake_file *f = (struct fake_file *)file;

	(void)fs;
	*out = (struct gw_mapping){f->p ? f->p : (const void *)"", f->n, f};
	f->mapped++;
	return 0;
}

static int fake_mapping_check(struct gw_fs *fs, const struct gw_mapping *m)
{
	(void)fs;
	return ((struct fake_file *)m->priv)->shrunk ? GW_ESHRUNK : 0;
}

static int fake_unmap(struct gw_fs *fs, struct gw_mapping *m)
{
	int err = fake_mapping_check(fs, m);

	((struct fake_file *)m->priv)->mapped--;
	return err;
}

static int fake_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int fake_list(struct gw_fs *fs, const char *dir, int (*each)(void *ctx, const char *name), void *ctx)
{
	struct fake_fs *f = (struct fake_fs *)fs;
	const char *names[FAKE_FILES_MAX];
	size_t n = 0, d = strlen(dir);
	int ret = 0;

	for (size_t i = 0; i < f->n; i++) {
		const char *path = f->files[i].path;

		if (!strncmp(path, dir, d) && path[d] == '/' && path[d + 1] && strcmp(path + d, "/.") != 0)
			names[n++] = path + d + 1;
	}
	qsort(names, n, sizeof *names, fake_compare);
	for (size_t i = 0; i < n && !ret; i++)
		ret = each(ctx, names[i]);
	return ret;
}

static const struct gw_fs_ops fake_ops = {
	.open = fake_open,
	.close = fake_close,
	.fstat = fake_fstat,
	.map = fake_map,
	.mapping_check = fake_mapping_check,
	.unmap = fake_unmap,
	.stat = fake_stat,
	.list = fake_list,
};

static void fake_init(struct fake_fs *f)
{
	memset(f, 0, sizeof *f);
	f->fs.ops = &fake_ops;
}

/* The bytes stay the caller's. */
static struct fake_file *fake_add(struct fake_fs *f, const char *path, enum gw_file_type type, const void *p, size_t n)
{
	f->files[f->n] = (struct fake_file){.path = path, .type = type, .p = p, .n = n};
	return &f->files[f->n++];
}

#endif
