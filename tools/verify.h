/* What the parts of `godwit verify` share. */
#ifndef GW_TOOLS_VERIFY_H
#define GW_TOOLS_VERIFY_H

#include "tools/records.h"
#include "trust/tensor_table.h"

struct verify {
	struct args *a;
	struct gw_root root, next;
	struct gw_manifest manifest;
	uint8_t *manifest_bytes;
	int have_manifest;
	uint64_t now_ns;
	json_t *results; /* with --json */
};

/* Prints, or keeps for the document; `row` is taken. */
void verify_tell(struct verify *v, const char *path, const char *kind, json_t *row, const char *text);
/* GW_EINVAL with a message where no --manifest was given. */
int verify_need_manifest(struct verify *v, const char *what);
/* The table of v->manifest, which must stand at the start of p. */
int verify_open_table(struct verify *v, const uint8_t *p, size_t n, struct gw_tensor_table *t);

/* A folder or .safetensors file against v->manifest. */
int verify_checkpoint(struct verify *v, const char *path);

#endif
