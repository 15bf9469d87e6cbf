/*
 * The one table of file operations. Everything that touches a disk is given one of these: io/os has
 * the real one, tests have ones that record, tear, fail or fill up. No layer calls open(2) itself.
 *
 * All functions return 0 or a negative GW_E…; they retry EINTR and short transfers themselves.
 * A `struct gw_file` is one open file; it belongs to the caller until closed.
 */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gw_fs;
struct gw_file;

enum gw_open {
	GW_OPEN_READ = 1,      /* for reading */
	GW_OPEN_WRITE = 2,     /* for writing (with READ: both) */
	GW_OPEN_CREATE = 4,    /* make it, 0666 & ~umask, if it is not there */
	GW_OPEN_EXCL = 8,      /* with CREATE: refuse if it is there */
	GW_OPEN_PRIVATE = 16,  /* with CREATE: mode 0600 */
	GW_OPEN_NOFOLLOW = 32, /* refuse a symbolic link at the last component */
};

enum gw_file_type { GW_FILE_REGULAR, GW_FILE_DIR, GW_FILE_LINK, GW_FILE_OTHER };

struct gw_stat {
	enum gw_file_type type;
	uint64_t size;     /* bytes */
	uint64_t mtime_ns; /* since the epoch */
	uint64_t inode;
	unsigned mode;     /* permission bits */
};

/* A mapping. `p` is valid for `n` bytes until unmap; n = 0 gives a non-NULL p. */
struct gw_mapping {
	const uint8_t *p;
	size_t n;
	void *priv;
};

struct gw_fs_ops {
	int (*open)(struct gw_fs *fs, const char *path, unsigned flags, struct gw_file **out);
	void (*close)(struct gw_fs *fs, struct gw_file *f);
	/* Exactly n bytes; GW_ETRUNC where the file ends first. */
	int (*pread)(struct gw_fs *fs, struct gw_file *f, void *p, size_t n, uint64_t at);
	int (*pwrite)(struct gw_fs *fs, struct gw_file *f, const void *p, size_t n, uint64_t at);
	int (*resize)(struct gw_fs *fs, struct gw_file *f, uint64_t size);
	/* Data and metadata on stable storage. */
	int (*sync)(struct gw_fs *fs, struct gw_file *f);
	int (*fstat)(struct gw_fs *fs, struct gw_file *f, struct gw_stat *st);
	/* Read-only, shared. A file that shrinks under a mapping reads as zeros from then on (never a
	 * SIGBUS), and unmap, as well as `mapping_check`, returns GW_ESHRUNK: whoever computed something
	 * from the bytes must ask before believing it. */
	int (*map)(struct gw_fs *fs, struct gw_file *f, struct gw_mapping *out);
	int (*mapping_check)(struct gw_fs *fs, const struct gw_mapping *m);
	int (*unmap)(struct gw_fs *fs, struct gw_mapping *m);
	int (*stat)(struct gw_fs *fs, const char *path, struct gw_stat *st); /* does not follow a link */
	/* Names in a folder except . and .., sorted bytewise; stops at the first non-zero of `each`. */
	int (*list)(struct gw_fs *fs, const char *dir, int (*each)(void *ctx, const char *name), void *ctx);
	int (*mkdir)(struct gw_fs *fs, const char *path);
	int (*unlink)(struct gw_fs *fs, const char *path); /* file, link, or empty folder */
	int (*rename)(struct gw_fs *fs, const char *from, const char *to);
	int (*symlink)(struct gw_fs *fs, const char *target, const char *path);
	/* The folder's entries on stable storage. */
	int (*sync_dir)(struct gw_fs *fs, const char *dir);
	/* Fresh random bytes for temporary names. */
	uint64_t (*nonce)(struct gw_fs *fs);
};

struct gw_fs {
	const struct gw_fs_ops *ops;
};

/* Shorthands, so that callers read as calls. */
#define gw_fs_open(fs, path, flags, out) ((fs)->ops->open((fs), (path), (flags), (out)))
#define gw_fs_close(fs, f) ((fs)->ops->close((fs), (f)))
#define gw_fs_pread(fs, f, p, n, at) ((fs)->ops->pread((fs), (f), (p), (n), (at)))
#define gw_fs_pwrite(fs, f, p, n, at) ((fs)->ops->pwrite((fs), (f), (p), (n), (at)))
#define gw_fs_resize(fs, f, size) ((fs)->ops->resize((fs), (f), (size)))
#define gw_fs_sync(fs, f) ((fs)->ops->sync((fs), (f)))
#define gw_fs_fstat(fs, f, st) ((fs)->ops->fstat((fs), (f), (st)))
#define gw_fs_map(fs, f, out) ((fs)->ops->map((fs), (f), (out)))
#define gw_fs_mapping_check(fs, m) ((fs)->ops->mapping_check((fs), (m)))
#define gw_fs_unmap(fs, m) ((fs)->ops->unmap((fs), (m)))
#define gw_fs_stat(fs, path, st) ((fs)->ops->stat((fs), (path), (st)))
#define gw_fs_list(fs, dir, each, ctx) ((fs)->ops->list((fs), (dir), (each), (ctx)))
#define gw_fs_mkdir(fs, path) ((fs)->ops->mkdir((fs), (path)))
#define gw_fs_unlink(fs, path) ((fs)->ops->unlink((fs), (path)))
#define gw_fs_rename(fs, from, to) ((fs)->ops->rename((fs), (from), (to)))
#define gw_fs_symlink(fs, target, path) ((fs)->ops->symlink((fs), (target), (path)))
#define gw_fs_sync_dir(fs, dir) ((fs)->ops->sync_dir((fs), (dir)))
#define gw_fs_nonce(fs) ((fs)->ops->nonce((fs)))

#endif
