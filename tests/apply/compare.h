/*
 * A device against row 0, operation by operation, on random lists and windows. Aborts at the first difference.
 */
#ifndef GW_TESTS_COMPARE_H
#define GW_TESTS_COMPARE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "patch/apply.h"

/* Memory of the device. All abort on failure. */
struct compare_memory {
	void *ctx;
	uint64_t (*put)(void *ctx, const void *p, size_t n); /* a copy of p, as the device addresses it */
	void (*get)(void *ctx, void *p, uint64_t at, size_t n);
	void (*drop)(void *ctx, uint64_t at, size_t n);
};

/* `records` a list; `windows` of them. Prints the seed where something differs. */
void compare_with_row0(struct gw_device dev, const struct compare_memory *memory, uint64_t seed, size_t records,
		       int windows);

#ifdef __cplusplus
}
#endif

#endif
