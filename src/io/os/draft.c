#include <stdlib.h>
#include <string.h>

#include "base/publish.h"
#include "io/os/store_impl.h"

struct gw_draft {
	struct gw_store *store;
	struct gw_publish dir;
	struct gw_file *data;
};

int gw_draft_new(struct gw_draft **out, struct gw_store *s, struct gw_diag *why)
{
	struct gw_draft *d = calloc(1, sizeof *d);
	char *path = gw_path_join(s->objects, "draft"), *data = NULL;
	int err = d && path ? 0 : GW_ENOMEM;

	if (!err) {
		d->store = s;
		err = gw_publish_begin_dir(&d->dir, s->fs, path, why);
	}
	free(path);
	if (err) {
		free(d);
		return err;
	}
	data = gw_path_join(d->dir.temp, "data");
	err = data ? gw_fs_open(s->fs, data, GW_OPEN_READ | GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_EXCL, &d->data)
		   : GW_ENOMEM;
	free(data);
	if (err) {
		gw_draft_abort(d);
		return gw_diag_set(why, err, "cannot begin an object: %s", gw_err_text(err));
	}
	*out = d;
	return 0;
}

struct gw_file *gw_draft_file(struct gw_draft *d)
{
	return d->data;
}

void gw_draft_abort(struct gw_draft *d)
{
	if (!d)
		return;
	if (d->data)
		gw_fs_close(d->store->fs, d->data);
	gw_publish_abort(&d->dir);
	free(d);
}

/* The piece table behind the object, and the whole durable. */
static int finish_data(struct gw_draft *d, const struct gw_manifest *m, const uint8_t *table, size_t n,
		       struct gw_diag *why)
{
	struct gw_fs *fs = d->store->fs;
	struct gw_stat st;
	uint64_t at, total;
	int err = gw_store_layout(m, &at, &total);

	if (!err && n != (m->table_pieces ? total - at : 0))
		err = GW_EINVAL;
	if (!err)
		err = gw_fs_fstat(fs, d->data, &st);
	if (!err && st.size != m->object_bytes)
		return gw_diag_set(why, GW_ETRUNC, "the object has %llu bytes, its manifest says %llu",
				   (unsigned long long)st.size, (unsigned long long)m->object_bytes);
	if (!err && n)
		err = gw_fs_pwrite(fs, d->data, table, n, at);
	if (!err)
		err = gw_publish_sync(fs, d->data, why);
	gw_fs_close(fs, d->data);
	d->data = NULL;
	return err;
}

static int write_records(struct gw_draft *d, const struct gw_manifest *m, const void *signed_bytes, size_t n,
			 struct gw_diag *why)
{
	uint32_t pieces = gw_manifest_pieces(m);
	uint8_t *all = malloc(gw_bitmap_bytes(pieces));
	char *path = gw_path_join(d->dir.temp, "manifest");
	int err = all && path ? gw_publish_bytes(d->store->fs, path, 0, signed_bytes, n, why) : GW_ENOMEM;

	if (!err) {
		memset(all, 0xff, gw_bitmap_bytes(pieces));
		err = gw_have_save(d->store->fs, d->dir.temp, &m->id, pieces, all, why);
	}
	free(path);
	free(all);
	return err;
}

/* Lets the folder appear under its id, which nobody knew when the draft began. With the store's shape. */
static int appear(struct gw_draft *d, const struct gw_manifest *m, struct gw_diag *why)
{
	struct gw_store *s = d->store;
	char *path = gw_store_object_path(s, &m->id);
	struct gw_stat st;
	uint64_t at, total = 0;
	int err;

	if (!path)
		return GW_ENOMEM;
	err = gw_fs_stat(s->fs, path, &st);
	if (err != GW_ENOENT) {
		free(path);
		return err ? err : gw_diag_set(why, GW_EEXIST, "this object is in the store already");
	}
	free(d->dir.path);
	d->dir.path = strdup(path);
	err = d->dir.path ? gw_store_layout(m, &at, &total) : GW_ENOMEM;
	if (!err)
		err = gw_store_fits(s, total, why);
	if (!err)
		err = gw_publish_commit(&d->dir, why);
	if (!err)
		err = gw_store_note(s, &m->id, total, NULL);
	if (err) /* it may be there, though not surely */
		(void)gw_object_remove_files(s->fs, path);
	free(path);
	return err;
}

int gw_draft_commit(struct gw_draft *d, const struct gw_manifest *m, const void *signed_bytes, size_t n,
		    const uint8_t *piece_table, size_t piece_table_bytes, struct gw_diag *why)
{
	int err = gw_store_check_manifest(m, signed_bytes, n, why);

	if (!err)
		err = finish_data(d, m, piece_table, piece_table_bytes, why);
	if (!err)
		err = write_records(d, m, signed_bytes, n, why);
	if (!err) {
		pthread_mutex_lock(&d->store->shape);
		err = appear(d, m, why);
		pthread_mutex_unlock(&d->store->shape);
	}
	if (err)
		(void)gw_diag_set(why, err, "cannot keep the object: %s", gw_err_text(err));
	gw_draft_abort(d);
	return err;
}
