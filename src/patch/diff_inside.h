/* What the two halves of a diff share: diff.c plans and measures, diff_write.c codes and writes. */
#ifndef GW_PATCH_DIFF_INSIDE_H
#define GW_PATCH_DIFF_INSIDE_H

#include "base/publish.h"
#include "patch/diff.h"
#include "patch/inside.h"
#include "patch/scan.h"

/* A name of either checkpoint. old or new_ is NULL where it has none. */
struct gw_diff_row {
	const struct gw_tensor *old, *new_;
	struct gw_tiling tiling;        /* of new_ */
	unsigned axis;
	enum gw_patch_tensor_kind kind; /* CHANGED also where nothing changed: then changed is 0 */
	uint64_t elements, changed;
	uint64_t print_old[2], print_new[2];
};

/* A file of either checkpoint. A checkpoint that is a single file has one shard, GW_PATCH_SINGLE. */
struct gw_diff_file {
	const char *name;
	enum gw_patch_file_kind kind;
	const struct gw_shard *shard, *old_shard;
	const uint8_t *p;  /* OTHER: the file; SHARD: the header */
	uint64_t bytes;
	int fresh;
};

/* Scratch of one worker. */
struct gw_diff_worker {
	struct gw_packer *packer;
	struct gw_changes_buf changes;
	uint8_t *old, *new_; /* a tile, gathered */
	struct gw_sample *sample[GW_PATCH_DTYPES];
};

struct gw_diff {
	const struct gw_checkpoint *old, *new_;
	struct gw_pool *pool;
	const struct gw_diff_options *opt;
	struct gw_diff_row *rows;
	uint32_t row_count;
	struct gw_diff_file *files;
	uint32_t file_count;
	struct gw_diff_worker *workers; /* pool->width */
	struct gw_model *model[GW_PATCH_DTYPES];
	struct gw_diff_report report;
	struct gw_diag *why;
};

/* Bodies, tables, header, in that order, into an empty file. */
int gw_diff_write(struct gw_diff *d, struct gw_fs *fs, struct gw_file *f);

#endif
