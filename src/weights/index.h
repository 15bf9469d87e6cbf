/*
 * model.safetensors.index.json: {"metadata": {…}, "weight_map": {tensor name: file name, …}}. Strict where
 * it decides something: one weight_map, no tensor twice, file names that are plain base names. Everything
 * else in it (total_size, other tools' fields) must be JSON and is not looked at.
 */
#ifndef GW_WEIGHTS_INDEX_H
#define GW_WEIGHTS_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gw_index_entry {
	const char *tensor; /* NUL-terminated, no control characters; the index's */
	uint32_t file;      /* into files */
};

struct gw_index {
	struct gw_index_entry *entries; /* in bytewise order of tensors */
	size_t count;
	char **files; /* in order of first mention */
	uint32_t file_count;
	char *names; /* what entries point into */
};

/* Limits: those of weights/safetensors.h for tensors and names, of weights/checkpoint.h for files. On error
 * *out is empty. */
int gw_index_parse(struct gw_index *out, const void *p, size_t n, struct gw_diag *why);
void gw_index_free(struct gw_index *x);

#endif
