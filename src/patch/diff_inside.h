/*
 * What makes patch files, whatever the bits come from: diff.c plans for two checkpoints, fold.c and fold_resident.c for
 * a base and what followed. diff_pair.c finds companions, diff_sample.c learns the models from a sample, diff_write.c goes through all tiles
 * once, codes and writes.
 */
#ifndef GW_PATCH_DIFF_INSIDE_H
#define GW_PATCH_DIFF_INSIDE_H

#include "base/publish.h"
#include "patch/diff.h"
#include "patch/inside.h"
#include "patch/scan.h"

struct gw_diff;

/* A name of either version. old or new_ is NULL where it has none. */
struct gw_diff_row {
	const struct gw_tensor *old, *new_; /* where the source has no bytes in memory, p is NULL */
	struct gw_tiling tiling;            /* of new_, or of old */
	unsigned axis;
	enum gw_patch_tensor_kind kind; /* CHANGED also where nothing changed: then changed is 0 */
	int alone;                      /* the source wants open and close around it, and no other row meanwhile */
	uint64_t elements, changed;
	uint64_t print_old[2], print_new[2];
	uint32_t item; /* the source's */
	struct gw_diff_row *companion; /* patch/companion.h, or NULL */
	unsigned rule;                 /* by which it is */
	int heated;
	struct gw_hot *hot; /* what changes of the companion, while the row is at hand; NULL: nothing does */
};

/* Bytes that travel whole, or are those of the base. */
struct gw_diff_stored {
	const char *name;
	uint64_t bytes;
	int fresh;
	uint8_t digest[GW_FILE_DIGEST_BYTES];
	const uint8_t *p; /* where the source has them in memory */
};

/* A file of either version. A checkpoint that is a single file has one shard, GW_PATCH_SINGLE. */
struct gw_diff_file {
	struct gw_diff_stored is; /* OTHER: the file; SHARD: the header */
	enum gw_patch_file_kind kind;
	uint64_t data_bytes;
	struct gw_diff_stored *carried; /* rising names; malloced */
	uint32_t carried_count;
};

/* Room for bits that are no stretch of memory as they are. Each holds a tile. */
struct gw_diff_room {
	uint8_t *old, *new_bits;
};

/* Who knows the bits. A non-zero return ends the diff; `tile` and `chunk` run on workers, the others on the caller. */
struct gw_diff_source {
	void *ctx;
	/* Old and new elements of a tile of a CHANGED row, row by row without holes: in the room or elsewhere. The same
	 * pointer twice: nothing changed. */
	int (*tile)(void *ctx, const struct gw_diff_row *r, uint32_t tile, unsigned worker, struct gw_diff_room *room,
		    const uint8_t **old, const uint8_t **new_bits);
	/* n bytes at `at` of the new tensor of a WHOLE row. */
	int (*chunk)(void *ctx, const struct gw_diff_row *r, uint64_t at, size_t n, unsigned worker,
		     struct gw_diff_room *room, const uint8_t **p);
	/* Before and after the tiles or chunks of a row that is `alone`. */
	int (*open)(void *ctx, const struct gw_diff_row *r);
	void (*close)(void *ctx, const struct gw_diff_row *r);
	/* The bytes of what is fresh: of a file (carried NULL) or of a tensor it carries, valid until the next call. NULL:
	 * they are at p. */
	int (*stored)(void *ctx, const struct gw_diff_file *f, const struct gw_diff_stored *carried, const uint8_t **p);
	/* When all is read: whether it can be believed. The report is complete, but for patch_bytes. */
	int (*check)(void *ctx, struct gw_diff *d);
};

/* Scratch of one worker. */
struct gw_diff_worker {
	struct gw_packer *packer;
	struct gw_changes_buf changes;
	struct gw_diff_room room;
	uint8_t *body;
	uint64_t hot[GW_TILE_ELEMENTS_MAX / 64];
	struct gw_sample *sample[GW_PATCH_DTYPES];
};

struct gw_diff {
	const struct gw_diff_source *source;
	struct gw_pool *pool;
	const struct gw_diff_options *opt;
	int anchor;
	struct gw_diff_row *rows; /* rising names */
	uint32_t row_count;
	struct gw_diff_file *files; /* rising names */
	uint32_t file_count;
	struct gw_diff_worker *workers; /* pool->width */
	struct gw_model *model[GW_PATCH_DTYPES];
	struct gw_diff_report report;
	struct gw_diag *why;
};

/* Fills a row from what it is in each version (NULL: nothing there), and counts it in the report. */
int gw_diff_plan_row(struct gw_diff *d, struct gw_diff_row *r, const struct gw_tensor *old, const struct gw_tensor *new_,
		     unsigned axis);
/* The axis that the options name, or that names give. */
unsigned gw_diff_axis(const struct gw_diff *d, const struct gw_tensor *t);
/* Sorts the files and what they carry. */
void gw_diff_sort_files(struct gw_diff *d);

/* All that follows a plan: sample, pass, tables, publication. Messages are set. */
int gw_diff_run(struct gw_diff *d, struct gw_fs *fs, const char *path);
void gw_diff_free(struct gw_diff *d);

/* What came of a tile. */
struct gw_diff_tile {
	struct gw_tile_rect rect;
	unsigned width;
	const uint8_t *old, *new_bits;
	const uint64_t *hot;
	struct gw_tile_changes changes;
};
/* Gets a tile's bits from the source and compares them. */
int gw_diff_look(struct gw_diff *d, const struct gw_diff_row *r, uint32_t tile, unsigned worker,
		 struct gw_diff_tile *out);

/* Finds companions, when all rows are planned. */
void gw_diff_pair(struct gw_diff *d);
/* Makes row->hot, on the caller, before its tiles are looked at, and lets it go. No source may be open. */
int gw_diff_heat(struct gw_diff *d, struct gw_diff_row *r);
void gw_diff_cool(struct gw_diff_row *r);

/* The models, from a sample of the tiles. */
int gw_diff_learn(struct gw_diff *d);
/* Bodies, tables, header, in that order, into an empty file. */
int gw_diff_write(struct gw_diff *d, struct gw_fs *fs, struct gw_file *f);
/* Who watches, or NULL. */
static inline struct gw_progress *gw_diff_watch(const struct gw_diff *d)
{
	return d->opt ? d->opt->watch : NULL;
}

#endif
