/*
 * The redo log of a change in place: all that will be written, in absolute bytes, durable before the first write.
 * Format and order of steps: proto/REDO.md. Written through gw_publish, so that it is there whole or not at all;
 * replaying it is plain overwrites, renames and removals, repeatable after any interruption.
 */
#ifndef GW_PATCH_REDO_H
#define GW_PATCH_REDO_H

#include <stdint.h>

#include "base/err.h"
#include "base/publish.h"
#include "patch/scan.h"

struct gw_redo_writer;

/* Into an open publication. The files named live in one folder; names are plain. */
int gw_redo_begin(struct gw_redo_writer **out, struct gw_publish *p, const uint64_t from_print[2],
		  const uint64_t to_print[2]);
/* What follows until the next file changes this file of that size. */
int gw_redo_write(struct gw_redo_writer *w, const char *file, uint64_t file_bytes);
/* n changes of elements of that width; c->at counts them from byte `at` of the file. */
int gw_redo_changes(struct gw_redo_writer *w, uint64_t at, unsigned width, const struct gw_tile_changes *c);
/* n bytes as they shall be. */
int gw_redo_bytes(struct gw_redo_writer *w, uint64_t at, const void *p, uint32_t n);
/* A sealed file takes the place of `file`. */
int gw_redo_move(struct gw_redo_writer *w, const char *temp, const char *file);
int gw_redo_remove(struct gw_redo_writer *w, const char *file);
/* Ends the log; the publication is then the caller's to commit. */
int gw_redo_end(struct gw_redo_writer *w);
void gw_redo_free(struct gw_redo_writer *w);

/* How many bytes the writes of a log write, files it touches, and what the model is then. */
struct gw_redo_info {
	uint64_t from_print[2], to_print[2];
	uint64_t written_bytes;
	uint32_t files;
};

/* Does all that the log says, in `folder`, durably. p: the whole log, checked to its end before the first write. */
int gw_redo_replay(struct gw_fs *fs, const char *folder, const void *p, size_t n, struct gw_redo_info *info,
		   struct gw_diag *why);

#endif
