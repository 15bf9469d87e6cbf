/*
 * Fingerprints: a position-keyed sum over the elements of a tensor. Format, keys, worked values, bounds and
 * measured speeds: proto/FINGERPRINT.md.
 *
 *   F[lane] = sum over units of key(lane, unit) * bits(unit)   mod 2^64,   lane 0 and 1
 *
 * A unit is a storage element of 1, 2 or 4 bytes, zero-extended; an element of 8 bytes is two units of 4, the low
 * half first. The unit's number is its place in the whole tensor in C order, wherever its bits lie. An empty tensor,
 * and one of zeros, has the fingerprint 0, 0.
 *
 * The sum is linear and may be taken in any order and in parts: parts of a tensor held by different ranks add up, and
 * a change is added by itself. So all functions here add to (or subtract from) `lane`, which the caller sets to
 * zero first. Nothing here allocates or fails; widths other than 1, 2, 4 and 8 are a caller's bug (assert).
 * Memory may lie at any alignment. Scans use AVX-512 or AVX2 where the machine has it; all give equal bits.
 */
#ifndef GW_PATCH_FINGERPRINT_H
#define GW_PATCH_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/* Adds n contiguous elements of `width` bytes at p, which are elements first, first + 1, … of the tensor. */
void gw_print_run(uint64_t lane[2], unsigned width, uint64_t first, const void *p, uint64_t n);

/* A rectangle of elements: (r, c) lies at p + r * row_pitch + c * col_pitch bytes and is element
 * first + r * tensor_cols + c of its tensor. */
struct gw_print_window {
	unsigned width;
	uint64_t rows, cols;
	uint64_t row_pitch, col_pitch;
	uint64_t first, tensor_cols;
};

/* Adds the window's elements. Near memory speed where col_pitch = width and rows are not tiny. */
void gw_print_window(uint64_t lane[2], const struct gw_print_window *w, const void *p);

/* Takes n elements from their old bits to new ones: adds key * (new - old) for element index[i], whose bits are the
 * i-th `width` bytes of old_bits and new_bits. Either may be NULL, which stands for zeros: then the elements are
 * added, or taken away. Indices may come in any order; rising ones are faster. */
void gw_print_update(uint64_t lane[2], unsigned width, const uint64_t *index, const void *old_bits,
		     const void *new_bits, size_t n);

/* The key of a unit, for kernels and tests: gw_print_block_key(lane, unit / GW_PRINT_BLOCK) times
 * gw_print_offset_keys(lane)[unit % GW_PRINT_BLOCK], mod 2^64. All keys are odd. */
enum { GW_PRINT_BLOCK = 1024 };
uint64_t gw_print_block_key(unsigned lane, uint64_t block);
uint64_t gw_print_block_seed(unsigned lane);
const uint64_t *gw_print_offset_keys(unsigned lane);
uint64_t gw_print_key(unsigned lane, uint64_t unit);

/*
 * A whole model: the sum over its tensors of two words taken from a BLAKE2b digest of name, dtype, shape and
 * fingerprint. Independent of the tensors' order; when a tensor changes, its old row is taken out and the new put in.
 * `dtype` is the safetensors name ("BF16"), name and dtype are UTF-8 without NUL; rank 0 is a scalar.
 */
void gw_model_print_add(uint64_t model[2], const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
			const uint64_t lane[2]);
void gw_model_print_remove(uint64_t model[2], const char *name, const char *dtype, unsigned rank, const uint64_t *shape,
			   const uint64_t lane[2]);

/* Fingerprints as users see them: 32 hex digits, lane 0 first, each lane's most significant digit first. */
enum { GW_PRINT_TEXT = 33 };
void gw_print_text(char out[GW_PRINT_TEXT], const uint64_t lane[2]);
/* GW_EMALFORMED for anything but 32 lower-case hex digits and a NUL. */
int gw_print_parse(const char *text, uint64_t lane[2]);

/* Which implementation scans use. The first use picks the fastest this machine has; tests and benchmarks choose.
 * GW_EUNSUP where this machine or build lacks it. Not while another thread scans. */
enum gw_print_impl { GW_PRINT_SCALAR, GW_PRINT_AVX2, GW_PRINT_AVX512 };
int gw_print_use(enum gw_print_impl impl);
enum gw_print_impl gw_print_used(void);

#endif
