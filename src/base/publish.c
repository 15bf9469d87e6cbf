#include "base/publish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char temp_mark[] = ".tmp-";

char *gw_path_join(const char *dir, const char *name)
{
	size_t d = strlen(dir), n = strlen(name);
	char *p = malloc(d + n + 2);

	if (!p)
		return NULL;
	memcpy(p, dir, d);
	if (d && dir[d - 1] != '/')
		p[d++] = '/';
	memcpy(p + d, name, n + 1);
	return p;
}

char *gw_path_dir(const char *path)
{
	const char *base = gw_path_base(path);
	size_t n = (size_t)(base - path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return n ? strndup(path, n) : strdup(".");
}

const char *gw_path_base(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n && path[n - 1] != '/')
		n--;
	return path + n;
}

int gw_path_is_plain(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= 255 && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static void clear(struct gw_publish *p)
{
	free(p->path);
	free(p->temp);
	memset(p, 0, sizeof *p);
}

/* Fills path and temp: "dir/.NAME.tmp-HEX". A trailing slash of a folder's name is dropped. */
static int name_it(struct gw_publish *p, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	size_t n = strlen(path);
	char *dir, leaf[300];

	memset(p, 0, sizeof *p);
	while (n > 1 && path[n - 1] == '/')
		n--;
	p->fs = fs;
	p->path = strndup(path, n);
	if (!p->path)
		return GW_ENOMEM;
	if (!gw_path_is_plain(gw_path_base(p->path)))
		return gw_diag_set(why, GW_EINVAL, "%s: not a name that can be written", path);
	if (snprintf(leaf, sizeof leaf, ".%s%s%016llx", gw_path_base(p->path), temp_mark,
		     (unsigned long long)gw_fs_nonce(fs)) > 255)
		return gw_diag_set(why, GW_EINVAL, "%s: the name is too long", path);
	dir = gw_path_dir(p->path);
	p->temp = dir ? gw_path_join(dir, leaf) : NULL;
	free(dir);
	return p->temp ? 0 : GW_ENOMEM;
}

static int refuse_existing(struct gw_publish *p, struct gw_diag *why)
{
	struct gw_stat st;
	int err = gw_fs_stat(p->fs, p->path, &st);

	if (err == GW_ENOENT)
		return 0;
	return err ? err : gw_diag_set(why, GW_EEXIST, "%s exists already; remove it or choose another name", p->path);
}

int gw_publish_begin(struct gw_publish *p, struct gw_fs *fs, const char *path, unsigned flags, struct gw_diag *why)
{
	unsigned how = GW_OPEN_READ | GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_EXCL;
	int err = name_it(p, fs, path, why);

	if (!err && !(flags & GW_PUBLISH_REPLACE))
		err = refuse_existing(p, why);
	if (!err && flags & GW_PUBLISH_PRIVATE)
		how |= GW_OPEN_PRIVATE;
	if (!err) {
		err = gw_fs_open(fs, p->temp, how, &p->file);
		if (err)
			(void)gw_diag_set(why, err, "cannot write %s: %s", path, gw_err_text(err));
	}
	if (err)
		clear(p);
	return err;
}

int gw_publish_begin_dir(struct gw_publish *p, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	int err = name_it(p, fs, path, why);

	if (!err)
		err = refuse_existing(p, why);
	if (!err) {
		err = gw_fs_mkdir(fs, p->temp);
		if (err)
			(void)gw_diag_set(why, err, "cannot make the folder %s: %s", path, gw_err_text(err));
	}
	if (err)
		clear(p);
	return err;
}

struct sweep {
	struct gw_fs *fs;
	const char *dir;
	const char *of; /* only temporaries of this name, or NULL */
	int all;        /* every entry, not only temporaries */
	int err;
};

static int is_temporary(const char *name, const char *of)
{
	size_t n = of ? strlen(of) : 0;

	if (name[0] != '.')
		return 0;
	return of ? !strncmp(name + 1, of, n) && !strncmp(name + 1 + n, temp_mark, strlen(temp_mark))
		  : strstr(name, temp_mark) != NULL;
}

static int sweep_entry(void *ctx, const char *name)
{
	struct sweep *s = ctx;
	char *path;

	if (!s->all && !is_temporary(name, s->of))
		return 0;
	path = gw_path_join(s->dir, name);
	if (!path)
		return GW_ENOMEM;
	/* Sweeping a tree that a publisher leaves behind: its subfolders are at most one level deep. */
	s->err = s->all ? gw_fs_unlink(s->fs, path) : gw_publish_remove(s->fs, path);
	free(path);
	return 0;
}

int gw_publish_remove(struct gw_fs *fs, const char *path)
{
	struct sweep s = {fs, path, NULL, 1, 0};
	struct gw_stat st;
	int err = gw_fs_stat(fs, path, &st);

	if (!err && st.type == GW_FILE_DIR)
		(void)gw_fs_list(fs, path, sweep_entry, &s);
	return err ? err : gw_fs_unlink(fs, path);
}

int gw_publish_sweep(struct gw_fs *fs, const char *dir)
{
	struct sweep s = {fs, dir, NULL, 0, 0};
	int err = gw_fs_list(fs, dir, sweep_entry, &s);

	return err ? err : s.err;
}

int gw_publish_sweep_of(struct gw_fs *fs, const char *path)
{
	char *dir = gw_path_dir(path);
	struct sweep s = {fs, dir, gw_path_base(path), 0, 0};
	int err = dir ? gw_fs_list(fs, dir, sweep_entry, &s) : GW_ENOMEM;

	free(dir);
	return err ? err : s.err;
}

void gw_publish_abort(struct gw_publish *p)
{
	if (!p->fs)
		return;
	if (p->file)
		gw_fs_close(p->fs, p->file);
	if (p->temp)
		(void)gw_publish_remove(p->fs, p->temp);
	clear(p);
}

static int sync_parent(struct gw_publish *p)
{
	char *dir = gw_path_dir(p->path);
	int err = dir ? gw_fs_sync_dir(p->fs, dir) : GW_ENOMEM;

	free(dir);
	return err;
}

int gw_publish_commit(struct gw_publish *p, struct gw_diag *why)
{
	int err;

	if (p->file) {
		err = gw_fs_sync(p->fs, p->file);
		gw_fs_close(p->fs, p->file);
		p->file = NULL;
	} else {
		err = gw_fs_sync_dir(p->fs, p->temp);
	}
	if (!err)
		err = gw_fs_rename(p->fs, p->temp, p->path);
	if (!err)
		err = sync_parent(p);
	if (err) {
		(void)gw_diag_set(why, err, "cannot write %s: %s", p->path, gw_err_text(err));
		gw_publish_abort(p);
		return err;
	}
	clear(p);
	return 0;
}

int gw_publish_seal(struct gw_publish *p, char **temp, struct gw_diag *why)
{
	int err = gw_fs_sync(p->fs, p->file);

	gw_fs_close(p->fs, p->file);
	p->file = NULL;
	if (!err)
		err = sync_parent(p);
	if (err) {
		(void)gw_diag_set(why, err, "cannot write %s: %s", p->path, gw_err_text(err));
		gw_publish_abort(p);
		return err;
	}
	*temp = p->temp;
	p->temp = NULL;
	clear(p);
	return 0;
}

int gw_publish_move(struct gw_fs *fs, const char *from, const char *to, struct gw_diag *why)
{
	int err = gw_fs_rename(fs, from, to);
	char *dir = gw_path_dir(to);

	if (!err)
		err = dir ? gw_fs_sync_dir(fs, dir) : GW_ENOMEM;
	free(dir);
	return err && err != GW_ENOENT ? gw_diag_set(why, err, "cannot write %s: %s", to, gw_err_text(err)) : err;
}

int gw_publish_bytes(struct gw_fs *fs, const char *path, unsigned flags, const void *bytes, size_t n,
		     struct gw_diag *why)
{
	struct gw_publish p;
	int err = gw_publish_begin(&p, fs, path, flags, why);

	if (err)
		return err;
	err = gw_fs_pwrite(fs, p.file, bytes, n, 0);
	if (err) {
		(void)gw_diag_set(why, err, "cannot write %s: %s", path, gw_err_text(err));
		gw_publish_abort(&p);
		return err;
	}
	return gw_publish_commit(&p, why);
}

int gw_publish_link(struct gw_fs *fs, const char *target, const char *path, struct gw_diag *why)
{
	struct gw_publish p;
	int err = name_it(&p, fs, path, why);

	if (!err)
		err = gw_fs_symlink(fs, target, p.temp);
	if (!err)
		err = gw_fs_rename(fs, p.temp, p.path);
	if (!err)
		err = sync_parent(&p);
	if (err) {
		(void)gw_diag_set(why, err, "cannot make the link %s: %s", path, gw_err_text(err));
		gw_publish_abort(&p);
		return err;
	}
	clear(&p);
	return 0;
}

int gw_publish_sync(struct gw_fs *fs, struct gw_file *f, struct gw_diag *why)
{
	int err = gw_fs_sync(fs, f);

	return err ? gw_diag_set(why, err, "cannot make a write durable: %s", gw_err_text(err)) : 0;
}

int gw_publish_sync_dir(struct gw_fs *fs, const char *dir, struct gw_diag *why)
{
	int err = gw_fs_sync_dir(fs, dir);

	return err ? gw_diag_set(why, err, "cannot make the folder %s durable: %s", dir, gw_err_text(err)) : 0;
}
