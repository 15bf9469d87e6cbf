#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "base/publish.h"
#include "io/os/store_impl.h"

/* --- pieces in `data` --- */

static uint64_t piece_at(const struct gw_object *o, uint32_t piece)
{
	if (piece < o->m.table_pieces)
		return o->table_at + (uint64_t)piece * GW_TABLE_LEAF_BYTES;
	return (uint64_t)(piece - o->m.table_pieces) * o->m.piece_bytes;
}

/* Whether [offset, offset + n) lies inside the piece. */
static int inside(const struct gw_object *o, uint32_t piece, uint64_t offset, size_t n)
{
	uint64_t size;

	if (piece >= o->pieces)
		return 0;
	size = gw_manifest_piece_size(&o->m, piece);
	return n && offset <= size && n <= size - offset;
}

static int table_is_whole(const struct gw_object *o)
{
	for (uint32_t i = 0; i < o->m.table_pieces; i++) {
		if (!gw_bit(o->have, i))
			return 0;
	}
	return o->table != NULL;
}

/* With o->lock. */
static int want_digest(const struct gw_object *o, uint32_t piece, struct gw_digest *out)
{
	return gw_manifest_piece_digest(&o->m, piece, table_is_whole(o) ? o->table : NULL, out);
}

/* A verified leaf goes into its place in memory, since all other pieces are held against it. With o->lock. */
static void keep_leaf(struct gw_object *o, uint32_t piece, const uint8_t *p)
{
	if (piece < o->m.table_pieces)
		memcpy(o->table + (size_t)piece * GW_TABLE_LEAF_BYTES, p, (size_t)gw_manifest_piece_size(&o->m, piece));
}

/* --- what is verified --- */

/* With o->lock. A failure to note it costs a piece after a kill and nothing else, so it is no error. */
static void append_fresh(struct gw_object *o, uint32_t piece)
{
	uint8_t record[4];

	gw_put_le32(record, piece);
	(void)gw_fs_pwrite(o->store->fs, o->fresh, record, sizeof record, (uint64_t)o->fresh_count * sizeof record);
	o->fresh_count++;
	o->fresh_bytes += gw_manifest_piece_size(&o->m, piece);
}

/* With o->lock. */
static void mark(struct gw_object *o, uint32_t piece, uint64_t now_ns)
{
	if (gw_bit(o->have, piece))
		return;
	gw_bit_set(o->have, piece);
	o->have_count++;
	if (gw_bit(o->durable, piece))
		return;
	if (!o->fresh_count)
		o->fresh_since_ns = now_ns;
	append_fresh(o, piece);
}

/* With o->lock. */
static void unmark(struct gw_object *o, uint32_t piece)
{
	if (!gw_bit(o->have, piece))
		return;
	gw_bit_clear(o->have, piece);
	o->have_count--;
}

/* `fresh` and its counts anew from the bitmaps. Old records behind the new ones stay: they name pieces that are
 * durable or will be verified before they are believed. With o->lock. */
static void renew_fresh(struct gw_object *o)
{
	o->fresh_count = 0;
	o->fresh_bytes = 0;
	for (uint32_t i = 0; i < o->pieces; i++) {
		if (gw_bit(o->have, i) && !gw_bit(o->durable, i))
			append_fresh(o, i);
	}
}

/* --- writing and checking --- */

int gw_object_write(struct gw_object *o, uint32_t piece, uint64_t offset, const void *p, size_t n)
{
	int err = 0;

	if (!inside(o, piece, offset, n))
		return GW_EINVAL;
	pthread_mutex_lock(&o->lock);
	if (o->dropped)
		err = GW_ECLOSED;
	else if (gw_bit(o->have, piece))
		err = GW_EEXIST;
	else if (o->state[piece] & GW_PIECE_CHECKING || (o->state[piece] & GW_PIECE_WRITERS) == GW_PIECE_WRITERS)
		err = GW_EAGAIN;
	else
		o->state[piece]++;
	pthread_mutex_unlock(&o->lock);
	if (err)
		return err;
	err = gw_fs_pwrite(o->store->fs, o->data, p, n, piece_at(o, piece) + offset);
	pthread_mutex_lock(&o->lock);
	o->state[piece]--;
	pthread_mutex_unlock(&o->lock);
	return err;
}

/* Takes the piece for checking and learns what it must hash to. */
static int begin_check(struct gw_object *o, uint32_t piece, struct gw_digest *want, int *suspect)
{
	int err = 0;

	pthread_mutex_lock(&o->lock);
	if (o->dropped)
		err = GW_ECLOSED;
	else if (o->state[piece] & (GW_PIECE_CHECKING | GW_PIECE_WRITERS))
		err = GW_EAGAIN;
	else
		err = want_digest(o, piece, want);
	if (!err) {
		o->state[piece] |= GW_PIECE_CHECKING;
		*suspect = o->state[piece] & GW_PIECE_SUSPECT;
	}
	pthread_mutex_unlock(&o->lock);
	return err;
}

static int end_check(struct gw_object *o, uint32_t piece, const uint8_t *p, int err, int suspect, uint64_t now_ns)
{
	pthread_mutex_lock(&o->lock);
	o->state[piece] &= (uint8_t)~GW_PIECE_CHECKING;
	/* A sync failed meanwhile, and the bytes were not written anew: ask again. */
	if (!err && !suspect && o->state[piece] & GW_PIECE_SUSPECT)
		err = GW_EAGAIN;
	if (!err) {
		o->state[piece] &= (uint8_t)~GW_PIECE_SUSPECT;
		keep_leaf(o, piece, p);
		mark(o, piece, now_ns);
	} else if (err == GW_EDIGEST) {
		unmark(o, piece);
	}
	pthread_mutex_unlock(&o->lock);
	/* Not the sender's fault: the disk lost blocks that were written. */
	return err == GW_EDIGEST && suspect ? GW_EIO : err;
}

static int check_bytes(struct gw_object *o, uint32_t piece, uint8_t *p, const struct gw_digest *want, int suspect)
{
	size_t n = (size_t)gw_manifest_piece_size(&o->m, piece);
	struct gw_digest found;
	int err = gw_fs_pread(o->store->fs, o->data, p, n, piece_at(o, piece));

	/* The file has its whole length from the start; one that has not was cut by somebody. */
	if (err == GW_ETRUNC)
		err = GW_EDIGEST;
	if (err)
		return err;
	gw_digest_of(p, n, &found);
	if (!memcmp(found.b, want->b, sizeof found.b))
		return suspect ? gw_fs_pwrite(o->store->fs, o->data, p, n, piece_at(o, piece)) : 0;
	return GW_EDIGEST;
}

int gw_object_check(struct gw_object *o, uint32_t piece, uint64_t now_ns)
{
	struct gw_digest want;
	uint8_t *p;
	int suspect, err;

	if (piece >= o->pieces)
		return GW_EINVAL;
	p = malloc((size_t)gw_manifest_piece_size(&o->m, piece));
	if (!p)
		return GW_ENOMEM;
	err = begin_check(o, piece, &want, &suspect);
	if (!err) {
		err = check_bytes(o, piece, p, &want, suspect);
		err = end_check(o, piece, p, err, suspect, now_ns);
	}
	free(p);
	return err;
}

int gw_object_read(struct gw_object *o, uint32_t piece, uint64_t offset, void *p, size_t n)
{
	int have;

	if (!inside(o, piece, offset, n))
		return GW_EINVAL;
	pthread_mutex_lock(&o->lock);
	have = gw_bit(o->have, piece);
	pthread_mutex_unlock(&o->lock);
	return have ? gw_fs_pread(o->store->fs, o->data, p, n, piece_at(o, piece) + offset) : GW_ENOENT;
}

/* --- group sync --- */

/* What was not durable when a sync failed may be lost behind a page cache that shows it still. */
static void forget_unsynced(struct gw_object *o)
{
	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; i < o->pieces; i++) {
		if (gw_bit(o->durable, i))
			continue;
		unmark(o, i);
		o->state[i] |= GW_PIECE_SUSPECT;
	}
	o->fresh_count = 0;
	o->fresh_bytes = 0;
	/* After a kill the list would have them verified from that same page cache. */
	(void)gw_fs_resize(o->store->fs, o->fresh, 0);
	pthread_mutex_unlock(&o->lock);
}

/* A copy of the bitmap as it is now, or NULL with *err where there is nothing to do or nothing can be done. */
static uint8_t *snapshot(struct gw_object *o, int *err)
{
	size_t n = gw_bitmap_bytes(o->pieces);
	uint8_t *copy = malloc(n);

	*err = copy ? 0 : GW_ENOMEM;
	pthread_mutex_lock(&o->lock);
	if (copy && (o->dropped || !memcmp(o->have, o->durable, n))) {
		*err = o->dropped ? GW_ECLOSED : 0;
		free(copy);
		copy = NULL;
	} else if (copy) {
		memcpy(copy, o->have, n);
	}
	pthread_mutex_unlock(&o->lock);
	return copy;
}

static int sync_data(struct gw_object *o, const uint8_t *have, struct gw_diag *why)
{
	size_t n = gw_bitmap_bytes(o->pieces);
	int err = gw_publish_sync(o->store->fs, o->data, why);

	if (err) {
		forget_unsynced(o);
		return err;
	}
	err = gw_have_save(o->store->fs, o->path, &o->m.id, o->pieces, have, why);
	if (err)
		return err;
	pthread_mutex_lock(&o->lock);
	memcpy(o->durable, have, n);
	renew_fresh(o);
	pthread_mutex_unlock(&o->lock);
	return 0;
}

int gw_object_sync(struct gw_object *o, struct gw_diag *why)
{
	uint8_t *have;
	int err;

	pthread_mutex_lock(&o->disk);
	have = snapshot(o, &err);
	if (have)
		err = sync_data(o, have, why);
	free(have);
	pthread_mutex_unlock(&o->disk);
	return err;
}

/* --- opening --- */

void gw_object_destroy(struct gw_object *o)
{
	if (o->data)
		gw_fs_close(o->store->fs, o->data);
	if (o->fresh)
		gw_fs_close(o->store->fs, o->fresh);
	(void)pthread_mutex_destroy(&o->disk);
	(void)pthread_mutex_destroy(&o->lock);
	free(o->digests);
	free(o->path);
	free(o->have);
	free(o->durable);
	free(o->state);
	free(o->table);
	free(o);
}

static int allocate(struct gw_object **out, struct gw_store *s, const struct gw_manifest *m)
{
	struct gw_object *o = calloc(1, sizeof *o);
	size_t map;

	if (!o)
		return GW_ENOMEM;
	o->store = s;
	o->m = *m;
	o->refs = 1;
	o->pieces = gw_manifest_pieces(m);
	(void)pthread_mutex_init(&o->disk, NULL);
	(void)pthread_mutex_init(&o->lock, NULL);
	map = gw_bitmap_bytes(o->pieces);
	o->path = gw_store_object_path(s, &m->id);
	o->have = calloc(1, map);
	o->durable = calloc(1, map);
	o->state = calloc(1, o->pieces);
	o->digests = malloc((size_t)m->digest_count * 32 + 1);
	if (m->table_pieces)
		o->table = calloc(m->table_pieces, GW_TABLE_LEAF_BYTES);
	if (!o->path || !o->have || !o->durable || !o->state || !o->digests || (m->table_pieces && !o->table)) {
		gw_object_destroy(o);
		return GW_ENOMEM;
	}
	memcpy(o->digests, m->digests, (size_t)m->digest_count * 32);
	o->m.digests = o->digests;
	*out = o;
	return gw_store_layout(m, &o->table_at, &o->total_bytes);
}

static int open_in(struct gw_object *o, const char *name, struct gw_file **f)
{
	char *path = gw_path_join(o->path, name);
	int err = path ? gw_fs_open(o->store->fs, path,
				    GW_OPEN_READ | GW_OPEN_WRITE | GW_OPEN_CREATE | GW_OPEN_NOFOLLOW, f)
		       : GW_ENOMEM;

	free(path);
	return err;
}

/* What `have` says, where it can be believed: with a data file of the whole length beside it. A power cut in the
 * middle of a drop can leave it alone; then it is replaced before a new data file is made. */
static int load_have(struct gw_object *o, struct gw_diag *why)
{
	struct gw_fs *fs = o->store->fs;
	char *path = gw_path_join(o->path, "data");
	struct gw_stat st;
	int err, whole;

	if (!path)
		return GW_ENOMEM;
	err = gw_fs_stat(fs, path, &st);
	free(path);
	if (err && err != GW_ENOENT)
		return err;
	whole = !err && st.size == o->total_bytes;
	err = gw_have_load(fs, o->path, &o->m.id, o->pieces, o->durable);
	if (err == GW_ENOENT)
		return 0;
	if (err && err != GW_EMALFORMED && err != GW_EDIGEST && err != GW_ELIMIT)
		return err;
	if (err)
		GW_LOG(GW_LOG_WARN, "record of verified pieces damaged, fetching again", "folder", o->path, NULL);
	if (!err && whole)
		return 0;
	memset(o->durable, 0, gw_bitmap_bytes(o->pieces));
	return gw_have_save(fs, o->path, &o->m.id, o->pieces, o->durable, why);
}

static int open_files(struct gw_object *o, struct gw_diag *why)
{
	struct gw_fs *fs = o->store->fs;
	struct gw_stat st;
	int err = load_have(o, why);

	if (!err)
		err = open_in(o, "data", &o->data);
	if (!err)
		err = gw_fs_fstat(fs, o->data, &st);
	if (!err && st.size != o->total_bytes)
		err = gw_fs_resize(fs, o->data, o->total_bytes);
	if (!err)
		err = open_in(o, "fresh", &o->fresh);
	return err;
}

/* Verifies a piece that something says is here. Whatever is wrong with it, it is then simply not here, unless memory
 * is short. */
static int revive(struct gw_object *o, uint32_t piece)
{
	int err = gw_object_check(o, piece, 0);

	return err == GW_ENOMEM ? err : 0;
}

/* The pieces that `fresh` names, as a bitmap. One that cannot be read names none. */
static void load_fresh(struct gw_object *o, uint8_t *named)
{
	struct gw_fs *fs = o->store->fs;
	uint8_t record[4];

	for (uint64_t i = 0; i < o->pieces; i++) {
		if (gw_fs_pread(fs, o->fresh, record, sizeof record, i * sizeof record))
			return;
		if (gw_le32(record) < o->pieces)
			gw_bit_set(named, gw_le32(record));
	}
}

/* Leaves first: the rest is verified by them. Those that `have` claims are read again too, for the memory's sake. */
static int load_pieces(struct gw_object *o)
{
	uint8_t *named = calloc(1, gw_bitmap_bytes(o->pieces));
	int err = named ? 0 : GW_ENOMEM;

	if (named)
		load_fresh(o, named);
	for (uint32_t i = 0; !err && i < o->pieces; i++) {
		if (i >= o->m.table_pieces && gw_bit(o->durable, i)) {
			gw_bit_set(o->have, i);
			o->have_count++;
		} else if (gw_bit(o->durable, i) || gw_bit(named, i)) {
			err = revive(o, i);
		}
	}
	free(named);
	return err;
}

static int write_manifest(struct gw_fs *fs, const char *folder, const void *p, size_t n, struct gw_diag *why)
{
	char *path = gw_path_join(folder, "manifest");
	int err = path ? gw_publish_bytes(fs, path, GW_PUBLISH_REPLACE, p, n, why) : GW_ENOMEM;

	free(path);
	return err;
}

/* The folder with the manifest in it. One that is there already was left by a failure; its entry may not be durable. */
static int make_folder(struct gw_store *s, const char *path, const void *p, size_t n, struct gw_diag *why)
{
	struct gw_publish dir;
	struct gw_stat st;
	int err = gw_fs_stat(s->fs, path, &st);

	if (!err) {
		err = write_manifest(s->fs, path, p, n, why);
		return err ? err : gw_publish_sync_dir(s->fs, s->objects, why);
	}
	if (err != GW_ENOENT)
		return err;
	err = gw_publish_begin_dir(&dir, s->fs, path, why);
	if (err)
		return err;
	err = write_manifest(s->fs, dir.temp, p, n, why);
	if (err) {
		gw_publish_abort(&dir);
		return err;
	}
	return gw_publish_commit(&dir, why);
}

/* Its size, once its files are there: a drop may have left less than the whole. */
static void set_size(struct gw_store *s, struct gw_known *k, uint64_t bytes, struct gw_object *o)
{
	pthread_mutex_lock(&s->lock);
	s->bytes = s->bytes - k->bytes + bytes;
	k->bytes = bytes;
	k->open = o;
	pthread_mutex_unlock(&s->lock);
}

/* With s->shape. */
static int open_new(struct gw_object **out, struct gw_store *s, struct gw_known *k, const struct gw_manifest *m,
		    const void *p, size_t n, struct gw_diag *why)
{
	struct gw_object *o = NULL;
	int err = allocate(&o, s, m);

	if (err)
		goto err0;
	if (!k) {
		err = gw_store_fits(s, o->total_bytes, why);
		if (!err)
			err = make_folder(s, o->path, p, n, why);
		if (!err)
			err = gw_store_note(s, &m->id, o->total_bytes, &k);
		if (err)
			goto err0;
	}
	err = open_files(o, why);
	if (!err)
		err = load_pieces(o);
	if (err)
		goto err0;
	set_size(s, k, o->total_bytes, o);
	*out = o;
	return 0;
err0:
	(void)gw_diag_set(why, err, "cannot open the object of %s %llu: %s", m->policy, (unsigned long long)m->to,
			  gw_err_text(err));
	if (o)
		gw_object_destroy(o);
	return err;
}

int gw_object_open(struct gw_object **out, struct gw_store *s, const struct gw_manifest *m, const void *signed_bytes,
		   size_t n, struct gw_diag *why)
{
	struct gw_known *k;
	struct gw_object *o = NULL;
	int err = gw_store_check_manifest(m, signed_bytes, n, why);

	if (err)
		return err;
	pthread_mutex_lock(&s->shape);
	pthread_mutex_lock(&s->lock);
	k = gw_map_get(&s->known, m->id.b, sizeof m->id.b);
	o = k ? k->open : NULL;
	if (o)
		o->refs++;
	pthread_mutex_unlock(&s->lock);
	if (!o)
		err = open_new(&o, s, k, m, signed_bytes, n, why);
	pthread_mutex_unlock(&s->shape);
	if (!err)
		*out = o;
	return err;
}

void gw_object_close(struct gw_object *o)
{
	struct gw_store *s;
	struct gw_known *k;
	size_t left;

	if (!o)
		return;
	s = o->store;
	pthread_mutex_lock(&s->lock);
	left = --o->refs;
	k = gw_map_get(&s->known, o->m.id.b, sizeof o->m.id.b);
	if (!left && k && k->open == o)
		k->open = NULL;
	pthread_mutex_unlock(&s->lock);
	if (!left)
		gw_object_destroy(o);
}

/* --- dropping --- */

/* From now on nobody writes into the folder. */
static void mark_dropped(struct gw_object *o)
{
	pthread_mutex_lock(&o->disk);
	pthread_mutex_lock(&o->lock);
	o->dropped = 1;
	pthread_mutex_unlock(&o->lock);
	pthread_mutex_unlock(&o->disk);
}

/* With s->shape. */
static int drop_known(struct gw_store *s, struct gw_known *k, struct gw_diag *why)
{
	char *path = gw_store_object_path(s, &k->id);
	struct gw_object *o;
	int err;

	if (!path)
		return GW_ENOMEM;
	pthread_mutex_lock(&s->lock);
	o = k->open;
	if (o)
		o->refs++;
	k->open = NULL;
	pthread_mutex_unlock(&s->lock);
	if (o)
		mark_dropped(o);
	err = gw_object_remove_files(s->fs, path);
	if (!err) {
		pthread_mutex_lock(&s->lock);
		(void)gw_map_del(&s->known, k->id.b, sizeof k->id.b);
		s->bytes -= k->bytes;
		pthread_mutex_unlock(&s->lock);
		free(k);
	} else {
		(void)gw_diag_set(why, err, "cannot remove %s: %s", path, gw_err_text(err));
	}
	gw_object_close(o);
	free(path);
	return err;
}

int gw_store_drop(struct gw_store *s, const struct gw_digest *id, struct gw_diag *why)
{
	struct gw_known *k;
	int err;

	pthread_mutex_lock(&s->shape);
	pthread_mutex_lock(&s->lock);
	k = gw_map_get(&s->known, id->b, sizeof id->b);
	pthread_mutex_unlock(&s->lock);
	err = k ? drop_known(s, k, why) : GW_ENOENT;
	pthread_mutex_unlock(&s->shape);
	return err;
}

/* --- looking --- */

const struct gw_manifest *gw_object_manifest(const struct gw_object *o)
{
	return &o->m;
}

uint32_t gw_object_pieces(const struct gw_object *o)
{
	return o->pieces;
}

uint32_t gw_object_have_count(struct gw_object *o)
{
	uint32_t n;

	pthread_mutex_lock(&o->lock);
	n = o->have_count;
	pthread_mutex_unlock(&o->lock);
	return n;
}

int gw_object_complete(struct gw_object *o)
{
	return gw_object_have_count(o) == o->pieces;
}

void gw_object_have(struct gw_object *o, uint8_t *bitmap)
{
	pthread_mutex_lock(&o->lock);
	memcpy(bitmap, o->have, gw_bitmap_bytes(o->pieces));
	pthread_mutex_unlock(&o->lock);
}

/* --- mapping --- */

int gw_object_map(struct gw_object *o, struct gw_object_view *v)
{
	struct gw_fs *fs = o->store->fs;
	int err;

	memset(v, 0, sizeof *v);
	if (!gw_object_complete(o))
		return GW_ESTATE;
	err = gw_fs_map(fs, o->data, &v->mapping);
	if (err)
		return err;
	if (v->mapping.n < o->m.object_bytes || o->m.tensor_table_bytes > o->m.object_bytes) {
		(void)gw_fs_unmap(fs, &v->mapping);
		return GW_ESHRUNK;
	}
	v->tensor_table = v->mapping.p;
	v->tensor_table_bytes = (size_t)o->m.tensor_table_bytes;
	v->payload = v->mapping.p + v->tensor_table_bytes;
	v->payload_bytes = (size_t)o->m.object_bytes - v->tensor_table_bytes;
	v->object = o;
	pthread_mutex_lock(&o->store->lock);
	o->refs++;
	pthread_mutex_unlock(&o->store->lock);
	return 0;
}

int gw_object_view_check(const struct gw_object_view *v)
{
	return gw_fs_mapping_check(v->object->store->fs, &v->mapping);
}

int gw_object_unmap(struct gw_object_view *v)
{
	int err;

	if (!v->object)
		return 0;
	err = gw_fs_unmap(v->object->store->fs, &v->mapping);
	gw_object_close(v->object);
	memset(v, 0, sizeof *v);
	return err;
}
