#include "io/os/fs_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/os/clock.h"
#include "io/os/guard.h"

struct gw_file {
	int fd;
};

static int last_error(void)
{
	return gw_err_from_errno(errno);
}

static int os_open(struct gw_fs *fs, const char *path, unsigned flags, struct gw_file **out)
{
	int how = O_CLOEXEC | O_NOCTTY, fd;
	struct gw_file *f = malloc(sizeof *f);

	(void)fs;
	if (!f)
		return GW_ENOMEM;
	how |= flags & GW_OPEN_WRITE ? (flags & GW_OPEN_READ ? O_RDWR : O_WRONLY) : O_RDONLY;
	how |= flags & GW_OPEN_CREATE ? O_CREAT : 0;
	how |= flags & GW_OPEN_EXCL ? O_EXCL : 0;
	how |= flags & GW_OPEN_NOFOLLOW ? O_NOFOLLOW : 0;
	/* A FIFO or device put where a file is expected must not hang the open. Regular files ignore the flag. */
	how |= O_NONBLOCK;
	do
		fd = open(path, how, flags & GW_OPEN_PRIVATE ? 0600 : 0666);
	while (fd < 0 && errno == EINTR);
	if (fd < 0) {
		free(f);
		return errno == ELOOP ? GW_EACCESS : last_error();
	}
	f->fd = fd;
	*out = f;
	return 0;
}

static void os_close(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	/* Not retried on EINTR: on Linux the descriptor is gone. Whoever cares for errors has synced. */
	(void)close(f->fd);
	free(f);
}

/* One transfer is at most 1 GiB: Linux moves no more than 2 GiB - 4 KiB at a time, and says so by a short count. */
static size_t chunk(size_t n)
{
	const size_t most = (size_t)1 << 30;

	return n < most ? n : most;
}

static int os_pread(struct gw_fs *fs, struct gw_file *f, void *p, size_t n, uint64_t at)
{
	uint8_t *b = p;

	(void)fs;
	if (at > INT64_MAX || n > INT64_MAX - at)
		return GW_EOVERFLOW;
	while (n) {
		ssize_t got = pread(f->fd, b, chunk(n), (off_t)at);

		if (got == 0)
			return GW_ETRUNC;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return last_error();
		b += got;
		n -= (size_t)got;
		at += (uint64_t)got;
	}
	return 0;
}

static int os_pwrite(struct gw_fs *fs, struct gw_file *f, const void *p, size_t n, uint64_t at)
{
	const uint8_t *b = p;

	(void)fs;
	if (at > INT64_MAX || n > INT64_MAX - at)
		return GW_EOVERFLOW;
	while (n) {
		ssize_t put = pwrite(f->fd, b, chunk(n), (off_t)at);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return last_error();
		b += put;
		n -= (size_t)put;
		at += (uint64_t)put;
	}
	return 0;
}

static int os_resize(struct gw_fs *fs, struct gw_file *f, uint64_t size)
{
	int r;

	(void)fs;
	if (size > INT64_MAX)
		return GW_EOVERFLOW;
	do
		r = ftruncate(f->fd, (off_t)size);
	while (r && errno == EINTR);
	return r ? last_error() : 0;
}

static int os_sync(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	/* Never again after a failure: the kernel may have thrown the pages away and report success. EINTR included,
	 * since nothing says how far it came. */
	return fsync(f->fd) ? last_error() : 0;
}

static void fill_stat(struct gw_stat *out, const struct stat *st)
{
	memset(out, 0, sizeof *out);
	out->type = S_ISREG(st->st_mode)   ? GW_FILE_REGULAR
		    : S_ISDIR(st->st_mode) ? GW_FILE_DIR
		    : S_ISLNK(st->st_mode) ? GW_FILE_LINK
					   : GW_FILE_OTHER;
	out->size = (uint64_t)st->st_size;
	out->mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
	out->inode = st->st_ino;
	out->mode = st->st_mode & 07777;
}

static int os_fstat(struct gw_fs *fs, struct gw_file *f, struct gw_stat *out)
{
	struct stat st;

	(void)fs;
	if (fstat(f->fd, &st))
		return last_error();
	fill_stat(out, &st);
	return 0;
}

static int os_stat(struct gw_fs *fs, const char *path, struct gw_stat *out)
{
	struct stat st;

	(void)fs;
	if (lstat(path, &st))
		return last_error();
	fill_stat(out, &st);
	return 0;
}

static int os_map(struct gw_fs *fs, struct gw_file *f, struct gw_mapping *out)
{
	static const uint8_t nothing[1];
	struct gw_stat st = {0};
	struct gw_guard *g;
	void *p;
	int err = os_fstat(fs, f, &st);

	memset(out, 0, sizeof *out);
	if (err)
		return err;
	if (st.type != GW_FILE_REGULAR)
		return GW_EINVAL;
	out->p = nothing;
	if (st.size == 0)
		return 0;
	if (st.size > SIZE_MAX / 2)
		return GW_EOVERFLOW;
	p = mmap(NULL, (size_t)st.size, PROT_READ, MAP_SHARED, f->fd, 0);
	if (p == MAP_FAILED)
		return last_error();
	err = gw_guard_add(p, (size_t)st.size, 0, &g);
	if (err) {
		(void)munmap(p, (size_t)st.size);
		return err;
	}
	out->p = p;
	out->n = (size_t)st.size;
	out->priv = g;
	return 0;
}

static int os_mapping_check(struct gw_fs *fs, const struct gw_mapping *m)
{
	(void)fs;
	return m->priv && gw_guard_hit(m->priv) ? GW_ESHRUNK : 0;
}

static int os_unmap(struct gw_fs *fs, struct gw_mapping *m)
{
	int hit = gw_guard_remove(m->priv);

	(void)fs;
	if (m->n)
		(void)munmap((void *)(uintptr_t)m->p, m->n);
	memset(m, 0, sizeof *m);
	return hit ? GW_ESHRUNK : 0;
}

struct names {
	char **v;
	size_t n, cap;
};

static void free_names(struct names *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
}

static int add_name(struct names *s, const char *name)
{
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		char **v = reallocarray(s->v, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n] = strdup(name);
	return s->v[s->n] ? (s->n++, 0) : GW_ENOMEM;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(const char *dir, struct names *s)
{
	DIR *d = opendir(dir); /* close-on-exec by itself */
	struct dirent *e;
	int err = d ? 0 : last_error();

	while (!err) {
		errno = 0;
		e = readdir(d);
		if (!e) {
			err = errno ? last_error() : 0;
			break;
		}
		err = add_name(s, e->d_name);
	}
	if (d)
		(void)closedir(d);
	if (!err && s->n)
		qsort(s->v, s->n, sizeof *s->v, by_bytes);
	return err;
}

/* All names are read before the first call, so that `each` may change the folder. */
static int os_list(struct gw_fs *fs, const char *dir, int (*each)(void *ctx, const char *name), void *ctx)
{
	struct names s = {NULL, 0, 0};
	int r = read_names(dir, &s);

	(void)fs;
	for (size_t i = 0; !r && i < s.n; i++)
		r = each(ctx, s.v[i]);
	free_names(&s);
	return r;
}

static int os_mkdir(struct gw_fs *fs, const char *path)
{
	(void)fs;
	return mkdir(path, 0777) ? last_error() : 0;
}

static int os_unlink(struct gw_fs *fs, const char *path)
{
	(void)fs;
	if (!unlink(path))
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return last_error();
	return rmdir(path) ? last_error() : 0;
}

static int os_rename(struct gw_fs *fs, const char *from, const char *to)
{
	(void)fs;
	return rename(from, to) ? last_error() : 0;
}

static int os_symlink(struct gw_fs *fs, const char *target, const char *path)
{
	(void)fs;
	return symlink(target, path) ? last_error() : 0;
}

static int os_sync_dir(struct gw_fs *fs, const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;

	(void)fs;
	if (fd < 0)
		return last_error();
	/* Some file systems cannot sync a folder and say EINVAL: there, entries are as durable as they get. */
	if (fsync(fd) && errno != EINVAL)
		err = last_error();
	(void)close(fd);
	return err;
}

static uint64_t os_nonce(struct gw_fs *fs)
{
	uint64_t v;

	(void)fs;
	/* Cannot fail for 8 bytes once the pool is ready; before that, or where it is forbidden, the clock does: names
	 * are made with O_EXCL anyway. */
	if (getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v)
		v = gw_clock_wall_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
	return v;
}

struct gw_fs *gw_fs_os(void)
{
	static const struct gw_fs_ops ops = {
		.open = os_open,
		.close = os_close,
		.pread = os_pread,
		.pwrite = os_pwrite,
		.resize = os_resize,
		.sync = os_sync,
		.fstat = os_fstat,
		.map = os_map,
		.mapping_check = os_mapping_check,
		.unmap = os_unmap,
		.stat = os_stat,
		.list = os_list,
		.mkdir = os_mkdir,
		.unlink = os_unlink,
		.rename = os_rename,
		.symlink = os_symlink,
		.sync_dir = os_sync_dir,
		.nonce = os_nonce,
	};
	static struct gw_fs fs = {&ops};

	return &fs;
}

int gw_fs_os_fd(const struct gw_file *f)
{
	return f->fd;
}
