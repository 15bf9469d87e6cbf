#include "daemon/folders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/publish.h"
#include "patch/disk.h"

enum { NAME_BYTES = 64 };

struct gw_folders {
	struct gw_fs *fs;
	struct gw_versions *versions;
	char *all, *dir;          /* STATE/checkpoints, and the policy's in it */
	char current[NAME_BYTES]; /* what CURRENT names; empty where there is none */
	char before[NAME_BYTES];  /* what it named before, still there; or empty */
};

static void name_of(char name[NAME_BYTES], const uint8_t run[16], uint64_t version)
{
	char hex[33];

	(void)snprintf(name, NAME_BYTES, "%llu-%s", (unsigned long long)version, gw_hex(hex, run, 16));
}

/* 1 where it is the name of a folder of ours. */
static int parse(const char *name, uint8_t run[16], uint64_t *version)
{
	char again[NAME_BYTES];
	const char *dash = strchr(name, '-');

	if (!dash || gw_unhex(run, 16, dash + 1))
		return 0;
	*version = strtoull(name, NULL, 10);
	name_of(again, run, *version);
	return !strcmp(again, name);
}

char *gw_folders_path(const struct gw_folders *f, const uint8_t run[16], uint64_t version)
{
	char name[NAME_BYTES];

	name_of(name, run, version);
	return gw_path_join(f->dir, name);
}

/* --- looking --- */

static int inode_of(const struct gw_folders *f, const char *name, uint64_t *inode)
{
	char *path = gw_path_join(f->dir, name);
	struct gw_stat st;
	int err = path ? gw_fs_stat(f->fs, path, &st) : GW_ENOMEM;

	free(path);
	if (!err && st.type != GW_FILE_DIR)
		err = GW_ENOENT;
	*inode = err ? 0 : st.inode;
	return err;
}

struct look {
	struct gw_folders *f;
	uint64_t current; /* inode, or 0 */
};

static int look_at(void *ctx, const char *name)
{
	struct look *l = ctx;
	uint64_t version, inode;
	uint8_t run[16];

	if (!parse(name, run, &version) || inode_of(l->f, name, &inode))
		return 0;
	gw_versions_pin(l->f->versions, run, version);
	(void)snprintf(l->current && inode == l->current ? l->f->current : l->f->before, NAME_BYTES, "%s", name);
	return 0;
}

int gw_folders_open(struct gw_folders **out, struct gw_fs *fs, const char *state, const char *policy,
		    struct gw_versions *versions, struct gw_diag *why)
{
	struct gw_folders *f = calloc(1, sizeof *f);
	struct look l = {.f = f};
	int err = GW_ENOMEM;

	if (!f)
		return GW_ENOMEM;
	f->fs = fs;
	f->versions = versions;
	f->all = gw_path_join(state, "checkpoints");
	f->dir = f->all ? gw_path_join(f->all, policy) : NULL;
	if (f->dir && (err = inode_of(f, "CURRENT/.", &l.current)) != GW_ENOMEM)
		err = gw_fs_list(fs, f->dir, look_at, &l);
	if (err && err != GW_ENOENT) {
		(void)gw_diag_set(why, err, "%s/checkpoints/%s: %s", state, policy, gw_err_text(err));
		gw_folders_free(f);
		return err;
	}
	*out = f;
	return 0;
}

void gw_folders_free(struct gw_folders *f)
{
	if (!f)
		return;
	free(f->all);
	free(f->dir);
	free(f);
}

/* --- making and removing --- */

static int remove_one(void *ctx, const char *name)
{
	struct gw_folders *f = ctx;
	uint64_t version;
	uint8_t run[16];
	char *path;

	if (!strcmp(name, "CURRENT") || !strcmp(name, f->current) || !strcmp(name, f->before))
		return 0;
	path = gw_path_join(f->dir, name);
	if (path && !gw_publish_remove(f->fs, path) && parse(name, run, &version))
		gw_versions_unpin(f->versions, run, version);
	free(path);
	return 0;
}

static int make_dirs(struct gw_folders *f)
{
	int err = gw_fs_mkdir(f->fs, f->all);

	if (!err || err == GW_EEXIST)
		err = gw_fs_mkdir(f->fs, f->dir);
	return err == GW_EEXIST ? 0 : err;
}

static int write_folder(struct gw_folders *f, const struct gw_patch *anchor, const char *name, struct gw_pool *pool,
			struct gw_diag *why)
{
	char *path = gw_path_join(f->dir, name);
	struct gw_stat st;
	int err = path ? gw_fs_stat(f->fs, path, &st) : GW_ENOMEM;

	if (err == GW_ENOENT)
		err = gw_disk_apply(anchor, NULL, f->fs, pool, NULL, path, NULL, why);
	free(path);
	return err;
}

static int set_current(struct gw_folders *f, const char *name, struct gw_diag *why)
{
	char *link = gw_path_join(f->dir, "CURRENT");
	int err = link ? gw_publish_link(f->fs, name, link, why) : GW_ENOMEM;

	free(link);
	if (err || !strcmp(name, f->current))
		return err;
	memcpy(f->before, f->current, sizeof f->before);
	(void)snprintf(f->current, sizeof f->current, "%s", name);
	return 0;
}

/* Than what is there of the same run. */
static int is_older(const struct gw_folders *f, const uint8_t run[16], uint64_t version)
{
	uint64_t there;
	uint8_t of[16];

	return parse(f->current, of, &there) && !memcmp(of, run, sizeof of) && version < there;
}

int gw_folders_make(struct gw_folders *f, const struct gw_patch *anchor, const uint8_t run[16], uint64_t version,
		    struct gw_pool *pool, struct gw_diag *why)
{
	char name[NAME_BYTES];
	int err = make_dirs(f);

	if (err)
		return gw_diag_set(why, err, "cannot make %s: %s", f->dir, gw_err_text(err));
	if (is_older(f, run, version))
		return 0;
	name_of(name, run, version);
	gw_versions_pin(f->versions, run, version);
	err = write_folder(f, anchor, name, pool, why);
	if (!err)
		err = set_current(f, name, why);
	if (err)
		return err;
	(void)gw_fs_list(f->fs, f->dir, remove_one, f);
	return 0;
}

int gw_folders_has_old(const struct gw_folders *f)
{
	return f->before[0] != 0;
}

void gw_folders_sweep(struct gw_folders *f)
{
	f->before[0] = 0;
	if (f->current[0])
		(void)gw_fs_list(f->fs, f->dir, remove_one, f);
}
