#include "tools/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/publish.h"

static int read_file(struct args *a, const char *path, size_t max, uint8_t **p, size_t *n, unsigned *mode)
{
	struct gw_file *f = NULL;
	struct gw_stat st = {0};
	int err = gw_fs_open(a->fs, path, GW_OPEN_READ, &f);

	*p = NULL;
	*n = 0;
	if (err)
		return gw_diag_set(&a->why, err, "%s: %s", path, gw_err_text(err));
	err = gw_fs_fstat(a->fs, f, &st);
	if (!err && st.type != GW_FILE_REGULAR)
		err = gw_diag_set(&a->why, GW_EINVAL, "%s: not a regular file", path);
	if (!err && st.size > max)
		err = gw_diag_set(&a->why, GW_ELIMIT, "%s: %llu bytes; at most %zu are expected", path,
				  (unsigned long long)st.size, max);
	if (!err) {
		*p = malloc((size_t)st.size + 1);
		err = *p ? gw_fs_pread(a->fs, f, *p, (size_t)st.size, 0) : GW_ENOMEM;
		*n = (size_t)st.size;
		*mode = st.mode;
	}
	gw_fs_close(a->fs, f);
	if (!err)
		return 0;
	free(*p);
	*p = NULL;
	return gw_diag_set(&a->why, err, "%s: %s", path, gw_err_text(err));
}

int record_read(struct args *a, const char *path, size_t max, uint8_t **p, size_t *n)
{
	unsigned mode;

	return read_file(a, path, max, p, n, &mode);
}

int record_root(struct args *a, const struct gw_digest *pin, struct gw_root *root)
{
	const char *path = arg_value(a, "root");
	uint8_t *p;
	size_t n;
	int err;

	if (!path)
		return gw_diag_set(&a->why, GW_EINVAL, "whom to believe? give --root FILE, the signed root record");
	err = record_read(a, path, GW_ROOT_MAX, &p, &n);
	if (err)
		return err;
	err = gw_root_open(p, n, pin, root, &a->why);
	free(p);
	return err ? gw_diag_wrap(&a->why, err, "%s", path) : 0;
}

int record_secret_key(struct args *a, const char *path, enum gw_key_kind kind, struct gw_key *k)
{
	uint8_t *text;
	unsigned mode;
	size_t n;
	int err = read_file(a, path, GW_KEY_FILE_MAX, &text, &n, &mode);

	if (err)
		return err;
	err = gw_key_parse(k, (const char *)text, n, &a->why);
	gw_wipe(text, n);
	free(text);
	if (err)
		return gw_diag_wrap(&a->why, err, "%s", path);
	if (k->secret && (mode & 077))
		err = gw_diag_set(&a->why, GW_EACCESS, "%s: others may read this secret key (mode %03o): chmod 600 it first",
				  path, mode & 0777);
	else if (!k->secret || k->kind != kind)
		err = gw_diag_set(&a->why, GW_EINVAL, "%s: a secret %s key is needed, this is a %s %s key", path,
			  gw_key_kind_name(kind), k->secret ? "secret" : "public", gw_key_kind_name(k->kind));
	if (err)
		gw_key_wipe(k);
	return err;
}

int record_write_key(struct args *a, const char *path, const struct gw_key *k)
{
	char text[GW_KEY_FILE_MAX], pub[4096];
	int err;

	if (snprintf(pub, sizeof pub, "%s.pub", path) >= (int)sizeof pub)
		return gw_diag_set(&a->why, GW_EINVAL, "the path is too long");
	err = gw_key_format(k, 1, text);
	if (!err)
		err = gw_publish_bytes(a->fs, path, GW_PUBLISH_PRIVATE, text, strlen(text), &a->why);
	gw_wipe(text, sizeof text);
	if (err)
		return gw_diag_set(&a->why, err, "%s: %s", path, gw_err_text(err));
	err = gw_key_format(k, 0, text);
	if (!err)
		err = gw_publish_bytes(a->fs, pub, 0, text, strlen(text), &a->why);
	if (err)
		(void)gw_fs_unlink(a->fs, path);
	return err ? gw_diag_set(&a->why, err, "%s: %s", pub, gw_err_text(err)) : 0;
}

static int open_root(struct args *a, const char *dir, unsigned version, const struct gw_root *before, struct gw_root *out)
{
	char path[4096];
	struct gw_stat st;
	uint8_t *p;
	size_t n;
	int err;

	if (snprintf(path, sizeof path, "%s/root.v%u", dir, version) >= (int)sizeof path)
		return gw_diag_set(&a->why, GW_EINVAL, "the path is too long");
	if (before && gw_fs_stat(a->fs, path, &st) == GW_ENOENT)
		return GW_ENOENT; /* the chain ends: no message */
	err = record_read(a, path, GW_ROOT_MAX, &p, &n);
	if (err)
		return err;
	err = before ? gw_root_next(before, p, n, out, &a->why) : gw_root_open(p, n, NULL, out, &a->why);
	free(p);
	return err ? gw_diag_wrap(&a->why, err, "%s", path) : 0;
}

int record_newest_root(struct args *a, const char *dir, struct gw_root *root)
{
	struct gw_root *before = malloc(sizeof *before);
	int err = before ? open_root(a, dir, 1, NULL, root) : GW_ENOMEM;

	for (unsigned version = 2; !err; version++) {
		*before = *root;
		err = open_root(a, dir, version, before, root);
		if (err == GW_ENOENT) {
			*root = *before;
			free(before);
			return 0;
		}
	}
	free(before);
	return err;
}
