/*
 * The objects of a host, on disk. A transition's or anchor's bytes arrive as blocks, in any order, and are there
 * after a crash.
 *
 *     DIR/objects/<id in hex>/manifest   the signed bytes; published with the folder
 *                             data       the object's bytes at their own offsets; from the next multiple of 4 KiB
 *                                        on, the piece table where there is one; sparse while incomplete
 *                             have       which pieces are verified and durable; replaced by rename
 *                             fresh      pieces verified since `have` was written; never synced
 *     DIR/slots/<name>                   small durable values: counters, heads
 *
 * What survives what. A piece is verified by its digest, read back from `data`. A group sync makes `data` durable
 * and only then replaces `have`, so `have` never claims more than the disk holds. When the process is killed, the
 * pieces that `fresh` names are still in the page cache; when the power fails, perhaps not: opening an object
 * verifies them again and believes nothing that it has not read. So a kill costs only the pieces in flight, a power
 * cut also those since the last group sync. After a sync that failed, the kernel may have dropped pages and will not
 * say so twice: the pieces it was for are forgotten, and what is verified later is first written anew. Formats:
 * proto/STORE.md.
 *
 * Objects are named by their manifest's id. The caller has verified the manifest. Errors of the disk (GW_ENOSPACE,
 * GW_EIO) leave the object as it was; what failed may be retried.
 *
 * All functions block on the disk (but those marked "memory only") and are thread-safe: call them on workers. The
 * file table is the caller's, so that tests can cut, lose and fail every step.
 */
#ifndef GW_IO_OS_STORE_H
#define GW_IO_OS_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "trust/manifest.h"

enum {
	GW_STORE_OBJECTS_MAX = 65536,
	GW_STORE_SLOT_MAX = 64 * 1024,      /* bytes of a slot */
	GW_STORE_GROUP_PIECES = 1024,       /* a group sync is due at this many unsynced pieces in one object … */
};
#define GW_STORE_GROUP_BYTES (256ull << 20) /* … or this many bytes, or … */
#define GW_STORE_GROUP_NS 1000000000ull     /* … this long after the first of them */

struct gw_store;
struct gw_object;

/* Makes the folders where missing (not DIR's parents), sweeps what a crash left behind, and counts what is there.
 * max_bytes: of all objects together, 0 for no limit. One process at a time: the caller sees to that. */
int gw_store_open(struct gw_store **out, struct gw_fs *fs, const char *dir, uint64_t max_bytes, struct gw_diag *why);
/* All objects must be closed. Does not sync. */
void gw_store_free(struct gw_store *s);
/* Memory only: bytes that the objects take when complete; objects. */
uint64_t gw_store_bytes(struct gw_store *s);
size_t gw_store_count(struct gw_store *s);
/* Ids of all objects, sorted; stops at the first non-zero of `each` and returns it. */
int gw_store_list(struct gw_store *s, int (*each)(void *ctx, const struct gw_digest *id), void *ctx);
/* The signed manifest of an object, malloced; GW_EDIGEST where it is not what its name says. */
int gw_store_manifest(struct gw_store *s, const struct gw_digest *id, uint8_t **p, size_t *n);

/* --- objects --- */

/* Makes or opens the object of a verified manifest; signed_bytes is what m->id is the digest of. Unsynced pieces
 * are verified again here, which may take time. An object opened twice is shared; each open wants a close.
 * GW_ENOSPACE: over max_bytes. */
int gw_object_open(struct gw_object **out, struct gw_store *s, const struct gw_manifest *m, const void *signed_bytes,
		   size_t n, struct gw_diag *why);
void gw_object_close(struct gw_object *o);
/* Removes it from the disk. Those who hold it open may go on reading it until they close; writes, checks and syncs
 * are GW_ECLOSED. GW_ENOENT where there is none. */
int gw_store_drop(struct gw_store *s, const struct gw_digest *id, struct gw_diag *why);

/* Memory only. The manifest as given at open; its digests point into a copy held by the object. */
const struct gw_manifest *gw_object_manifest(const struct gw_object *o);
uint32_t gw_object_pieces(const struct gw_object *o);
/* Verified pieces; whether that is all. */
uint32_t gw_object_have_count(struct gw_object *o);
int gw_object_complete(struct gw_object *o);
/* (pieces + 7) / 8 bytes, LSB first. */
void gw_object_have(struct gw_object *o, uint8_t *bitmap);

/* A block of a piece, anywhere inside it. GW_EEXIST: verified already, nothing was written. GW_EAGAIN: the piece is
 * being checked right now. */
int gw_object_write(struct gw_object *o, uint32_t piece, uint64_t offset, const void *p, size_t n);
/* Verifies the piece and takes it as present. GW_EDIGEST: its blocks are wrong, write them again. GW_EAGAIN: its
 * digest stands in a leaf of the piece table that is not verified yet, or a block of it is being written. Checking a
 * verified piece reads it again, and forgets it where it is damaged. */
int gw_object_check(struct gw_object *o, uint32_t piece, uint64_t now_ns);
/* n bytes of a verified piece, for serving. GW_ENOENT: it is not here. */
int gw_object_read(struct gw_object *o, uint32_t piece, uint64_t offset, void *p, size_t n);

/* Whether a group sync of any object is due (memory only); and one of all objects with unsynced pieces. The first error
 * is returned, after all were tried, *failed (may be NULL) then names the first object that failed. */
int gw_store_sync_due(struct gw_store *s, uint64_t now_ns);
int gw_store_sync(struct gw_store *s, struct gw_digest *failed, struct gw_diag *why);
/* One object. When it returns 0 every piece verified before the call is durable. */
int gw_object_sync(struct gw_object *o, struct gw_diag *why);

/* The bytes of a complete object, mapped, until unmap (GW_ESTATE while incomplete). Check after use, as with any
 * mapping: base/file.h. */
struct gw_object_view {
	const uint8_t *tensor_table, *payload;
	size_t tensor_table_bytes, payload_bytes;
	struct gw_mapping mapping;
	struct gw_object *object;
};
int gw_object_map(struct gw_object *o, struct gw_object_view *out);
int gw_object_view_check(const struct gw_object_view *v);
int gw_object_unmap(struct gw_object_view *v);

/* --- objects made here --- */

/* What this host publishes is written once, in place, before its manifest exists: write the object's bytes to
 * gw_draft_file, then commit with the manifest signed over them. piece_table: table_pieces leaves' worth of digests,
 * NULL where digests are inline. Commit makes all durable and complete; it does not hash again. Either way the draft is
 * gone after. GW_EEXIST: the object is there already. */
struct gw_draft;
int gw_draft_new(struct gw_draft **out, struct gw_store *s, struct gw_diag *why);
struct gw_file *gw_draft_file(struct gw_draft *d);
int gw_draft_commit(struct gw_draft *d, const struct gw_manifest *m, const void *signed_bytes, size_t n,
		    const uint8_t *piece_table, size_t piece_table_bytes, struct gw_diag *why);
void gw_draft_abort(struct gw_draft *d);

/* --- slots --- */

/* Durable when it returns 0; a crash leaves the old value or the new. name: plain, see gw_path_is_plain. */
int gw_store_put(struct gw_store *s, const char *name, const void *p, size_t n, struct gw_diag *why);
/* malloced. GW_ENOENT where never put; GW_EDIGEST where damaged (never taken for absent: counters stand here). */
int gw_store_get(struct gw_store *s, const char *name, uint8_t **p, size_t *n, struct gw_diag *why);

#endif
