/* What people and scripts are told about a patch file: `diff`, `fold` and `inspect` say the same. */
#ifndef GW_TOOLS_PATCH_REPORT_H
#define GW_TOOLS_PATCH_REPORT_H

#include "patch/patch.h"
#include "tools/cmd.h"

/* An open patch file. */
struct patch_file {
	struct gw_fs *fs;
	struct gw_mapping map;
	struct gw_patch *pt;
};

/* A patch file by itself, or behind the tensor table, as hosts keep it (objects/ID/data). */
int patch_file_open(struct patch_file *f, struct gw_fs *fs, const char *path, struct gw_diag *why);
/* GW_ESHRUNK where the file was cut meanwhile; f is closed either way. */
int patch_file_close(struct patch_file *f, const char *path, struct gw_diag *why);

/* Threads for the verbs that walk over checkpoints: --threads, which the verb declares, or one a core, at most 16, since
 * each has a few MiB of scratch. NULL with a message. */
struct gw_pool *patch_pool(struct args *a);

/* The document of `diff --json` and `inspect --json`; NULL when out of memory. */
json_t *patch_json(const struct gw_patch *pt);
void patch_table(const struct gw_patch *pt);
/* One line: changes, size, bits a change, share of the whole. */
void patch_summary(const struct gw_patch *pt);
/* What diff and fold say of the file that they wrote: the line, or the document where --json is given. */
int patch_told(struct args *a, const char *path);

#endif
