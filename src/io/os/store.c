#include "io/os/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/num.h"
#include "base/publish.h"
#include "io/os/store_impl.h"

enum { PAGE = 4096, PIECES_MAX = 2 << 20 };

/* --- small things that the parts share --- */

int gw_store_layout(const struct gw_manifest *m, uint64_t *table_at, uint64_t *total)
{
	uint64_t at, table = 0;

	if (gw_add_u64(m->object_bytes, PAGE - 1, &at))
		return GW_EOVERFLOW;
	*table_at = at / PAGE * PAGE;
	if (m->table_pieces)
		table = (uint64_t)m->object_pieces * 32;
	else
		*table_at = m->object_bytes;
	return gw_add_u64(*table_at, table, total);
}

int gw_store_check_manifest(const struct gw_manifest *m, const void *signed_bytes, size_t n, struct gw_diag *why)
{
	struct gw_digest id;

	if (n > GW_MANIFEST_MAX)
		return gw_diag_set(why, GW_ELIMIT, "a manifest of %zu bytes is over the limit of %d", n, GW_MANIFEST_MAX);
	gw_digest_of(signed_bytes, n, &id);
	if (memcmp(id.b, m->id.b, sizeof id.b))
		return gw_diag_set(why, GW_EDIGEST, "the bytes of a manifest do not belong to its id");
	if (!gw_manifest_pieces(m) || gw_manifest_pieces(m) > PIECES_MAX || !m->piece_bytes)
		return gw_diag_set(why, GW_ELIMIT, "an object of %u pieces: 1 to %d are dealt with", gw_manifest_pieces(m),
				   PIECES_MAX);
	return 0;
}

char *gw_store_object_path(const struct gw_store *s, const struct gw_digest *id)
{
	char name[65];

	return gw_path_join(s->objects, gw_hex(name, id->b, sizeof id->b));
}

int gw_store_read_file(struct gw_fs *fs, const char *path, size_t max, uint8_t **p, size_t *n)
{
	struct gw_file *f;
	struct gw_stat st;
	int err = gw_fs_open(fs, path, GW_OPEN_READ | GW_OPEN_NOFOLLOW, &f);

	*p = NULL;
	if (err)
		return err;
	err = gw_fs_fstat(fs, f, &st);
	if (!err && st.type != GW_FILE_REGULAR)
		err = GW_EINVAL;
	if (!err && st.size > max)
		err = GW_ELIMIT;
	if (!err) {
		*n = (size_t)st.size;
		*p = malloc(*n ? *n : 1);
		err = *p ? gw_fs_pread(fs, f, *p, *n, 0) : GW_ENOMEM;
	}
	gw_fs_close(fs, f);
	if (err) {
		free(*p);
		*p = NULL;
	}
	return err;
}

int gw_store_fits(struct gw_store *s, uint64_t bytes, struct gw_diag *why)
{
	uint64_t now, sum;
	size_t count;

	pthread_mutex_lock(&s->lock);
	now = s->bytes;
	count = gw_map_count(&s->known);
	pthread_mutex_unlock(&s->lock);
	if (count >= GW_STORE_OBJECTS_MAX)
		return gw_diag_set(why, GW_ELIMIT, "the store holds %zu objects already, its limit", count);
	if (s->max_bytes && (gw_add_u64(now, bytes, &sum) || sum > s->max_bytes))
		return gw_diag_set(why, GW_ENOSPACE, "the store holds %llu of at most %llu bytes; %llu more do not fit",
				   (unsigned long long)now, (unsigned long long)s->max_bytes, (unsigned long long)bytes);
	return 0;
}

int gw_store_note(struct gw_store *s, const struct gw_digest *id, uint64_t bytes, struct gw_known **out)
{
	struct gw_known *k = calloc(1, sizeof *k);
	int err;

	if (!k)
		return GW_ENOMEM;
	k->id = *id;
	k->bytes = bytes;
	pthread_mutex_lock(&s->lock);
	err = gw_map_put(&s->known, id->b, sizeof id->b, k, NULL);
	if (!err)
		s->bytes += bytes;
	pthread_mutex_unlock(&s->lock);
	if (err) {
		free(k);
		return err;
	}
	if (out)
		*out = k;
	return 0;
}

/* --- opening --- */

struct scan {
	struct gw_store *s;
	int err;
};

static int remove_name(struct gw_fs *fs, const char *folder, const char *name)
{
	char *path = gw_path_join(folder, name);
	int err = path ? gw_fs_unlink(fs, path) : GW_ENOMEM;

	free(path);
	return err == GW_ENOENT ? 0 : err;
}

int gw_object_remove_files(struct gw_fs *fs, const char *folder)
{
	static const char *const names[] = {"have", "fresh", "data", "manifest"};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof names / sizeof names[0]; i++)
		err = remove_name(fs, folder, names[i]);
	if (!err)
		(void)gw_publish_sweep(fs, folder);
	if (!err)
		err = gw_fs_unlink(fs, folder);
	return err == GW_ENOENT ? 0 : err;
}

static int stat_in(struct gw_fs *fs, const char *folder, const char *name, struct gw_stat *st)
{
	char *path = gw_path_join(folder, name);
	int err = path ? gw_fs_stat(fs, path, st) : GW_ENOMEM;

	free(path);
	return err;
}

static int scan_folder(struct gw_store *s, const char *folder, const struct gw_digest *id)
{
	struct gw_stat st;
	uint64_t bytes;
	int err = stat_in(s->fs, folder, "manifest", &st);

	/* What a drop left: it takes the manifest away last. */
	if (err == GW_ENOENT)
		return gw_object_remove_files(s->fs, folder);
	if (err)
		return err;
	(void)gw_publish_sweep(s->fs, folder);
	err = stat_in(s->fs, folder, "data", &st);
	if (err && err != GW_ENOENT)
		return err;
	bytes = err ? 0 : st.size;
	return gw_store_note(s, id, bytes, NULL);
}

static int scan_entry(void *ctx, const char *name)
{
	struct scan *scan = ctx;
	struct gw_digest id;
	struct gw_stat st;
	char *folder;
	int err;

	/* Not ours: left alone. */
	if (gw_unhex(id.b, sizeof id.b, name))
		return 0;
	folder = gw_path_join(scan->s->objects, name);
	err = folder ? gw_fs_stat(scan->s->fs, folder, &st) : GW_ENOMEM;
	if (!err && st.type == GW_FILE_DIR)
		err = scan_folder(scan->s, folder, &id);
	free(folder);
	return scan->err = err;
}

static int make_folder(struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	struct gw_stat st;
	int err = gw_fs_stat(fs, path, &st);

	if (!err && st.type == GW_FILE_DIR)
		return 0;
	if (err == GW_ENOENT)
		err = gw_fs_mkdir(fs, path);
	else if (!err)
		err = GW_EEXIST;
	return err ? gw_diag_set(why, err, "cannot make the folder %s: %s", path, gw_err_text(err)) : 0;
}

static int sync_parent(struct gw_fs *fs, const char *dir, struct gw_diag *why)
{
	char *parent = gw_path_dir(dir);
	int err = parent ? gw_publish_sync_dir(fs, parent, why) : GW_ENOMEM;

	free(parent);
	return err;
}

/* Folders are made and entries synced whatever an earlier process did: it may have been killed in between. */
static int prepare_folders(struct gw_store *s, const char *dir, struct gw_diag *why)
{
	int err = make_folder(s->fs, dir, why);

	if (!err)
		err = make_folder(s->fs, s->objects, why);
	if (!err)
		err = make_folder(s->fs, s->slots, why);
	if (!err)
		err = sync_parent(s->fs, dir, why);
	if (!err)
		err = gw_publish_sync_dir(s->fs, dir, why);
	if (!err)
		err = gw_publish_sync_dir(s->fs, s->objects, why);
	if (!err)
		err = gw_publish_sync_dir(s->fs, s->slots, why);
	if (!err)
		err = gw_publish_sweep(s->fs, s->objects);
	if (!err)
		err = gw_publish_sweep(s->fs, s->slots);
	return err;
}

int gw_store_open(struct gw_store **out, struct gw_fs *fs, const char *dir, uint64_t max_bytes, struct gw_diag *why)
{
	struct gw_store *s = calloc(1, sizeof *s);
	struct scan scan = {s, 0};
	int err;

	if (!s)
		return GW_ENOMEM;
	s->fs = fs;
	s->max_bytes = max_bytes;
	s->objects = gw_path_join(dir, "objects");
	s->slots = gw_path_join(dir, "slots");
	(void)pthread_mutex_init(&s->shape, NULL);
	(void)pthread_mutex_init(&s->lock, NULL);
	gw_map_init(&s->known, gw_fs_nonce(fs));
	err = s->objects && s->slots ? prepare_folders(s, dir, why) : GW_ENOMEM;
	if (!err)
		err = gw_fs_list(fs, s->objects, scan_entry, &scan);
	if (err) {
		gw_store_free(s);
		return gw_diag_wrap(why, err, "cannot open the store %s", dir);
	}
	*out = s;
	return 0;
}

void gw_store_free(struct gw_store *s)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	if (!s)
		return;
	while ((e = gw_map_next(&s->known, &at)))
		assert(!((struct gw_known *)e->value)->open);
	gw_map_free(&s->known, free);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_mutex_destroy(&s->shape);
	free(s->objects);
	free(s->slots);
	free(s);
}

/* --- looking around --- */

uint64_t gw_store_bytes(struct gw_store *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	n = s->bytes;
	pthread_mutex_unlock(&s->lock);
	return n;
}

size_t gw_store_count(struct gw_store *s)
{
	size_t n;

	pthread_mutex_lock(&s->lock);
	n = gw_map_count(&s->known);
	pthread_mutex_unlock(&s->lock);
	return n;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct gw_digest));
}

int gw_store_list(struct gw_store *s, int (*each)(void *ctx, const struct gw_digest *id), void *ctx)
{
	const struct gw_map_entry *e;
	struct gw_digest *ids;
	size_t n = 0, at = 0;
	int r = 0;

	/* Copied, so that `each` may open and drop. */
	pthread_mutex_lock(&s->lock);
	ids = reallocarray(NULL, gw_map_count(&s->known) + 1, sizeof *ids);
	while (ids && (e = gw_map_next(&s->known, &at)))
		ids[n++] = ((struct gw_known *)e->value)->id;
	pthread_mutex_unlock(&s->lock);
	if (!ids)
		return GW_ENOMEM;
	qsort(ids, n, sizeof *ids, by_id);
	for (size_t i = 0; !r && i < n; i++)
		r = each(ctx, &ids[i]);
	free(ids);
	return r;
}

int gw_store_manifest(struct gw_store *s, const struct gw_digest *id, uint8_t **p, size_t *n)
{
	char *folder = gw_store_object_path(s, id), *path = folder ? gw_path_join(folder, "manifest") : NULL;
	struct gw_digest found;
	int err = path ? gw_store_read_file(s->fs, path, GW_MANIFEST_MAX, p, n) : GW_ENOMEM;

	free(path);
	free(folder);
	if (err)
		return err;
	gw_digest_of(*p, *n, &found);
	if (memcmp(found.b, id->b, sizeof found.b)) {
		free(*p);
		*p = NULL;
		return GW_EDIGEST;
	}
	return 0;
}

/* --- all open objects --- */

/* Each open object with a reference, in `held`; the caller closes them. */
static int hold_all(struct gw_store *s, struct gw_object ***held, size_t *n)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	*n = 0;
	pthread_mutex_lock(&s->lock);
	*held = reallocarray(NULL, gw_map_count(&s->known) + 1, sizeof **held);
	while (*held && (e = gw_map_next(&s->known, &at))) {
		struct gw_object *o = ((struct gw_known *)e->value)->open;

		if (o) {
			o->refs++;
			(*held)[(*n)++] = o;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return *held ? 0 : GW_ENOMEM;
}

static int object_due(struct gw_object *o, uint64_t now_ns)
{
	int due;

	pthread_mutex_lock(&o->lock);
	due = o->fresh_count &&
	      (o->fresh_count >= GW_STORE_GROUP_PIECES || o->fresh_bytes >= GW_STORE_GROUP_BYTES ||
	       now_ns < o->fresh_since_ns || now_ns - o->fresh_since_ns >= GW_STORE_GROUP_NS);
	pthread_mutex_unlock(&o->lock);
	return due;
}

int gw_store_sync_due(struct gw_store *s, uint64_t now_ns)
{
	const struct gw_map_entry *e;
	size_t at = 0;
	int due = 0;

	pthread_mutex_lock(&s->lock);
	while (!due && (e = gw_map_next(&s->known, &at))) {
		struct gw_object *o = ((struct gw_known *)e->value)->open;

		due = o && object_due(o, now_ns);
	}
	pthread_mutex_unlock(&s->lock);
	return due;
}

int gw_store_sync(struct gw_store *s, struct gw_digest *failed, struct gw_diag *why)
{
	struct gw_object **held;
	size_t n;
	int err = hold_all(s, &held, &n);

	for (size_t i = 0; i < n; i++) {
		struct gw_digest id = held[i]->m.id;
		int e = gw_object_sync(held[i], why);

		gw_object_close(held[i]);
		if (!e || e == GW_ECLOSED || err)
			continue;
		err = e;
		if (failed)
			*failed = id;
	}
	free(held);
	return err;
}

/* --- slots --- */

static const char slot_magic[8] = "GWSLOT1";

static char *slot_path(struct gw_store *s, const char *name)
{
	return gw_path_join(s->slots, name);
}

int gw_store_put(struct gw_store *s, const char *name, const void *p, size_t n, struct gw_diag *why)
{
	struct gw_digest check;
	struct gw_wr w;
	char *path;
	int err;

	if (!gw_path_is_plain(name) || name[0] == '.' || n > GW_STORE_SLOT_MAX)
		return gw_diag_set(why, GW_EINVAL, "a slot has a plain name and at most %d bytes", GW_STORE_SLOT_MAX);
	path = slot_path(s, name);
	gw_digest_of(p, n, &check);
	gw_wr_init(&w, sizeof slot_magic + sizeof check.b + n);
	gw_wr_bytes(&w, slot_magic, sizeof slot_magic);
	gw_wr_bytes(&w, check.b, sizeof check.b);
	gw_wr_bytes(&w, p, n);
	err = path ? w.err : GW_ENOMEM;
	if (!err)
		err = gw_publish_bytes(s->fs, path, GW_PUBLISH_REPLACE, w.p, w.n, why);
	gw_wr_free(&w);
	free(path);
	return err;
}

int gw_store_get(struct gw_store *s, const char *name, uint8_t **p, size_t *n, struct gw_diag *why)
{
	const size_t head = sizeof slot_magic + 32;
	struct gw_digest check;
	char *path;
	int err;

	if (!gw_path_is_plain(name) || name[0] == '.')
		return GW_EINVAL;
	path = slot_path(s, name);
	err = path ? gw_store_read_file(s->fs, path, head + GW_STORE_SLOT_MAX, p, n) : GW_ENOMEM;
	if (!err && (*n < head || memcmp(*p, slot_magic, sizeof slot_magic)))
		err = GW_EDIGEST;
	if (!err) {
		gw_digest_of(*p + head, *n - head, &check);
		err = memcmp(check.b, *p + sizeof slot_magic, 32) ? GW_EDIGEST : 0;
	}
	if (!err) {
		*n -= head;
		memmove(*p, *p + head, *n);
	} else {
		if (err != GW_ENOENT)
			(void)gw_diag_set(why, err, "%s: %s; restore it from a backup, or remove it to begin anew", path ? path : name,
					  gw_err_text(err));
		free(*p);
		*p = NULL;
	}
	free(path);
	return err;
}
