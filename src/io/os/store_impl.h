/*
 * What store.c, object.c, have.c and draft.c share; nobody else includes it.
 *
 * Locks, taken in this order: shape (opening, dropping and last close, which touch folders), disk (one group sync
 * or drop of an object at a time), lock (memory; the store's, then an object's). Only `lock` is never held over a
 * wait for the disk.
 */
#ifndef GW_IO_OS_STORE_IMPL_H
#define GW_IO_OS_STORE_IMPL_H

#include <pthread.h>

#include "base/map.h"
#include "io/os/store.h"

/* One object on the disk, open or not. */
struct gw_known {
	struct gw_digest id;
	uint64_t bytes;
	struct gw_object *open; /* NULL while nobody holds it */
};

struct gw_store {
	struct gw_fs *fs;
	char *objects, *slots; /* folders */
	uint64_t max_bytes;
	pthread_mutex_t shape, lock;
	struct gw_map known; /* id -> gw_known */
	uint64_t bytes;
};

enum {
	GW_PIECE_CHECKING = 0x80,
	GW_PIECE_SUSPECT = 0x40, /* a sync failed: its pages may be clean in memory and absent on the disk */
	GW_PIECE_WRITERS = 0x3f, /* writes under way */
};

struct gw_object {
	struct gw_store *store;
	struct gw_manifest m;
	uint8_t *digests; /* m.digests points here */
	char *path;
	size_t refs; /* under the store's lock */
	struct gw_file *data, *fresh;
	uint32_t pieces;
	uint64_t table_at, total_bytes; /* in `data` */
	pthread_mutex_t disk, lock;
	uint8_t *have, *durable; /* bitmaps: verified; as the file `have` says */
	uint8_t *state;          /* a byte a piece, see above */
	uint32_t have_count, fresh_count; /* verified; records in `fresh` */
	uint64_t fresh_bytes, fresh_since_ns;
	uint8_t *table; /* the piece table; whole when all its leaves are in `have`. NULL where digests are inline */
	int dropped;
};

static inline int gw_bit(const uint8_t *map, uint32_t i)
{
	return map[i / 8] >> (i % 8) & 1;
}

static inline void gw_bit_set(uint8_t *map, uint32_t i)
{
	map[i / 8] = (uint8_t)(map[i / 8] | 1u << (i % 8));
}

static inline void gw_bit_clear(uint8_t *map, uint32_t i)
{
	map[i / 8] = (uint8_t)(map[i / 8] & ~(1u << (i % 8)));
}

static inline size_t gw_bitmap_bytes(uint32_t pieces)
{
	return ((size_t)pieces + 7) / 8;
}

/* Where the piece table begins, and all bytes of `data`; GW_EOVERFLOW. */
int gw_store_layout(const struct gw_manifest *m, uint64_t *table_at, uint64_t *total);
/* Whether m and its bytes belong together and are of a size that is dealt with. */
int gw_store_check_manifest(const struct gw_manifest *m, const void *signed_bytes, size_t n, struct gw_diag *why);
/* objects/<id>, malloced. */
char *gw_store_object_path(const struct gw_store *s, const struct gw_digest *id);
/* Room for one more object of that size? */
int gw_store_fits(struct gw_store *s, uint64_t bytes, struct gw_diag *why);
/* Notes a new object; on failure nothing changed. */
int gw_store_note(struct gw_store *s, const struct gw_digest *id, uint64_t bytes, struct gw_known **out);
/* A whole small file, malloced: GW_ELIMIT over max. */
int gw_store_read_file(struct gw_fs *fs, const char *path, size_t max, uint8_t **p, size_t *n);

/* The file `have`. Load: GW_ENOENT, or GW_EMALFORMED and GW_EDIGEST for one that is not to be believed. */
int gw_have_save(struct gw_fs *fs, const char *folder, const struct gw_digest *id, uint32_t pieces,
		 const uint8_t *bitmap, struct gw_diag *why);
int gw_have_load(struct gw_fs *fs, const char *folder, const struct gw_digest *id, uint32_t pieces, uint8_t *bitmap);

/* Removes the files of an object's folder and the folder; what is gone already does not matter. In an order that
 * leaves nothing to be believed: `have` goes first. */
int gw_object_remove_files(struct gw_fs *fs, const char *folder);
/* The last reference is gone; memory and descriptors go. */
void gw_object_destroy(struct gw_object *o);

#endif
