#include "memfs.h"

#include <stdlib.h>
#include <string.h>

static struct bench_memfs *of(struct gw_fs *fs)
{
	return (struct bench_memfs *)fs;
}

static int mem_open(struct gw_fs *fs, const char *path, unsigned flags, struct gw_file **out)
{
	(void)path;
	if (!(flags & GW_OPEN_CREATE))
		return GW_ENOENT;
	of(fs)->n = 0;
	*out = (struct gw_file *)fs;
	return 0;
}

static void mem_close(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	(void)f;
}

static int mem_pread(struct gw_fs *fs, struct gw_file *f, void *p, size_t n, uint64_t at)
{
	const struct bench_memfs *m = of(fs);

	(void)f;
	if (at > m->n || n > m->n - at)
		return GW_ETRUNC;
	memcpy(p, m->p + at, n);
	return 0;
}

static int mem_resize(struct gw_fs *fs, struct gw_file *f, uint64_t size)
{
	struct bench_memfs *m = of(fs);

	(void)f;
	if (size > m->cap) {
		size_t cap = size > 2 * m->cap ? size : 2 * m->cap;
		uint8_t *p = realloc(m->p, cap);

		if (!p)
			return GW_ENOMEM;
		m->p = p;
		m->cap = cap;
	}
	if (size > m->n)
		memset(m->p + m->n, 0, size - m->n);
	m->n = size;
	return 0;
}

static int mem_pwrite(struct gw_fs *fs, struct gw_file *f, const void *p, size_t n, uint64_t at)
{
	struct bench_memfs *m = of(fs);
	int err = at + n > m->n ? mem_resize(fs, f, at + n) : 0;

	if (!err)
		memcpy(m->p + at, p, n);
	return err;
}

static int mem_sync(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	(void)f;
	return 0;
}

static int mem_stat(struct gw_fs *fs, const char *path, struct gw_stat *st)
{
	(void)fs;
	(void)path;
	(void)st;
	return GW_ENOENT;
}

static int mem_path(struct gw_fs *fs, const char *path)
{
	(void)fs;
	(void)path;
	return 0;
}

static int mem_rename(struct gw_fs *fs, const char *from, const char *to)
{
	(void)fs;
	(void)from;
	(void)to;
	return 0;
}

static uint64_t mem_nonce(struct gw_fs *fs)
{
	(void)fs;
	return 1;
}

static const struct gw_fs_ops ops = {
	.open = mem_open,
	.close = mem_close,
	.pread = mem_pread,
	.pwrite = mem_pwrite,
	.resize = mem_resize,
	.sync = mem_sync,
	.stat = mem_stat,
	.mkdir = mem_path,
	.unlink = mem_path,
	.rename = mem_rename,
	.sync_dir = mem_path,
	.nonce = mem_nonce,
};

void bench_memfs_init(struct bench_memfs *m)
{
	memset(m, 0, sizeof *m);
	m->fs.ops = &ops;
}

void bench_memfs_free(struct bench_memfs *m)
{
	free(m->p);
	memset(m, 0, sizeof *m);
}
