/*
 * The one way in which a file or a folder appears on disk: whole or not at all.
 *
 * A file: temporary name beside it with O_EXCL, write, sync, close, rename, sync the folder. A folder:
 * filled under a temporary name (each file synced), the folder synced, renamed, its parent synced.
 * Pure logic over the file table, so that tests can record and cut every step; no other source file
 * calls rename or sync.
 *
 * A crash leaves at most a temporary, named ".NAME.tmp-HEX"; gw_publish_sweep removes old ones.
 */
#ifndef GW_BASE_PUBLISH_H
#define GW_BASE_PUBLISH_H

#include "base/file.h"

/* One output on its way. Zero-initialised = nothing open, and abort does nothing. */
struct gw_publish {
	struct gw_fs *fs;
	struct gw_file *file; /* write here (pwrite); NULL for a folder */
	char *path, *temp;    /* the final path; the temporary one (for a folder: put files in here) */
};

enum gw_publish_flags {
	GW_PUBLISH_REPLACE = 1, /* a file that is there is replaced; without it GW_EEXIST */
	GW_PUBLISH_PRIVATE = 2, /* mode 0600 */
};

int gw_publish_begin(struct gw_publish *p, struct gw_fs *fs, const char *path, unsigned flags, struct gw_diag *why);
int gw_publish_begin_dir(struct gw_publish *p, struct gw_fs *fs, const char *path, struct gw_diag *why);
/* Makes it appear. On error p is aborted, and nothing has appeared, but for one case: where the rename went well and
 * only the sync of the folder failed, it is there and may be gone after a power cut. Either way p is empty after. */
int gw_publish_commit(struct gw_publish *p, struct gw_diag *why);
/* Removes the temporary; does nothing on an empty p. */
void gw_publish_abort(struct gw_publish *p);

/* For a file that shall appear later, together with others: makes it durable under its temporary path, which is the
 * caller's then (malloced), to move or to remove. On error p is aborted; either way it is empty after. */
int gw_publish_seal(struct gw_publish *p, char **temp, struct gw_diag *why);
/* Puts a sealed file into its place, over what is there, durably. Both in one folder. GW_ENOENT where there is no
 * `from` (any more). */
int gw_publish_move(struct gw_fs *fs, const char *from, const char *to, struct gw_diag *why);

/* Begin, write, commit in one. */
int gw_publish_bytes(struct gw_fs *fs, const char *path, unsigned flags, const void *p, size_t n, struct gw_diag *why);

/* A symbolic link at path to target, which replaces the one that is there. */
int gw_publish_link(struct gw_fs *fs, const char *target, const char *path, struct gw_diag *why);

/* An append or rewrite in place that a redo log or digests protect: makes what was written durable. */
int gw_publish_sync(struct gw_fs *fs, struct gw_file *f, struct gw_diag *why);

/* Makes the entries of a folder durable: after making a file in place, or where an earlier process may not have. */
int gw_publish_sync_dir(struct gw_fs *fs, const char *dir, struct gw_diag *why);

/* Removes temporaries of interrupted publications in `dir` (not recursive, folders one level deep). */
int gw_publish_sweep(struct gw_fs *fs, const char *dir);

/* The same for those of one path: what interrupted publications of it left beside it. */
int gw_publish_sweep_of(struct gw_fs *fs, const char *path);

/* Removes a file, or a folder and the files in it (subfolders one level deep); GW_ENOENT where there is none. What
 * is removed must not be wanted any more: this is not atomic. */
int gw_publish_remove(struct gw_fs *fs, const char *path);

/* dir + "/" + name, malloced; NULL when out of memory. */
char *gw_path_join(const char *dir, const char *name);
/* The folder that holds path ("." where there is no slash), malloced. */
char *gw_path_dir(const char *path);
/* The last component; points into path. */
const char *gw_path_base(const char *path);
/* A plain base name: not empty, no '/', no NUL, not "." or "..", at most 255 bytes. */
int gw_path_is_plain(const char *name);

#endif
