/*
 * safetensors: strict reading, and writing. Format: 8 bytes little-endian N, N bytes of JSON, tensor data
 * (the README and tensor.rs of huggingface/safetensors). The JSON is one object: tensor name to
 * {"dtype", "shape", "data_offsets": [begin, end]}, and perhaps "__metadata__" from string to string.
 *
 * Read strictly, because peers send headers and folders come from anywhere: the JSON begins with '{' at
 * its first byte and is followed by spaces alone; no key twice, also inside a tensor's object; no unknown
 * field or dtype; integers are plain digits without leading zeros; strict UTF-8 and escapes; no NUL nor
 * other control character in a name; tensors in data order leave no hole, do not overlap, and end where the
 * file ends. Elements may lie at any alignment. BOOL bytes, NaN payloads and -0 are just bits.
 *
 * The header is parsed in place in two passes (count, then fill), without a tree: what is kept is at most
 * three times the header, whatever it says. Bytes that change between the passes never lead out of bounds.
 */
#ifndef GW_WEIGHTS_SAFETENSORS_H
#define GW_WEIGHTS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "weights/dtype.h"

enum {
	GW_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000, /* bytes of JSON; the reference reader's limit too */
	GW_SAFETENSORS_TENSORS_MAX = 1024 * 1024,
	GW_SAFETENSORS_NAME_MAX = 4096, /* bytes */
	GW_RANK_MAX = 32,
};

struct gw_safetensors;

/* One row of the header; it and what it points to are the header's. */
struct gw_safetensors_tensor {
	const char *name;      /* UTF-8, unescaped, NUL-terminated, no NUL inside */
	const uint64_t *shape; /* rank sizes, slowest first */
	uint64_t begin, bytes; /* in the data */
	uint32_t name_len;
	uint8_t rank;          /* 0 … GW_RANK_MAX */
	uint8_t dtype;         /* enum gw_dtype */
};

/* p: the first n bytes of a file of file_bytes bytes, at least the length and the JSON (what a patch
 * carries). They must stay valid while the header is used. */
int gw_safetensors_open(struct gw_safetensors **out, const void *p, size_t n, uint64_t file_bytes, struct gw_diag *why);
void gw_safetensors_free(struct gw_safetensors *s);

uint32_t gw_safetensors_count(const struct gw_safetensors *s);
/* In data order (empty tensors before others at the same place). */
const struct gw_safetensors_tensor *gw_safetensors_at(const struct gw_safetensors *s, uint32_t i);
/* In bytewise order of names. */
const struct gw_safetensors_tensor *gw_safetensors_by_name(const struct gw_safetensors *s, uint32_t i);
/* NULL where there is none of that name. */
const struct gw_safetensors_tensor *gw_safetensors_find(const struct gw_safetensors *s, const char *name);

/* The raw bytes in front of the data: length, JSON, padding. They lie in p. */
const uint8_t *gw_safetensors_header(const struct gw_safetensors *s, size_t *n);

/* Calls each for the pairs of __metadata__ in the header's order; values may hold NUL. Stops at the first
 * non-zero and returns it. */
int gw_safetensors_metadata(const struct gw_safetensors *s,
			    int (*each)(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len),
			    void *ctx);

/* What one tensor of a file to be written is. */
struct gw_safetensors_spec {
	const char *name;
	const uint64_t *shape;
	unsigned rank;
	enum gw_dtype dtype;
};

struct gw_safetensors_pair {
	const char *key, *value;
};

/* Appends the bytes in front of the data: length and JSON, padded with spaces to a multiple of 8. Data
 * follow in the order given, without gaps. The result is read back by the reader above, so that what is
 * written can be read: its errors are this function's. */
int gw_safetensors_write(struct gw_wr *w, const struct gw_safetensors_spec *tensors, size_t n,
			 const struct gw_safetensors_pair *metadata, size_t pairs, struct gw_diag *why);

/* Bytes of a tensor: GW_EOVERFLOW, or GW_EMALFORMED where 4-bit elements do not fill whole bytes. */
int gw_tensor_bytes(enum gw_dtype dtype, unsigned rank, const uint64_t *shape, uint64_t *bytes);

#endif
