/*
 * Random staged lists over random memory, with a plain record of what they hold. For tests of lists and devices; also
 * read as C++. Segments end at a page that faults. Anything that fails here aborts.
 */
#ifndef GW_TESTS_LISTS_H
#define GW_TESTS_LISTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/rng.h"
#include "patch/apply.h"
#include "patch/list.h"

enum { LISTS_SEGMENTS = 3 };

struct lists_record {
	uint64_t at;
	uint32_t segment;
	unsigned width;
	uint8_t old_bits[8], new_bits[8];
};

/* Memory for a builder, by realloc. */
struct lists_memory {
	uint8_t *p;
	size_t n;
	int fail; /* refuse to grow */
};

struct lists {
	struct gw_dev_mem mem[LISTS_SEGMENTS]; /* holds the old bits; host addresses */
	uint64_t bytes[LISTS_SEGMENTS];
	struct lists_record *records; /* in list order */
	size_t n;
	struct lists_memory memory;
	struct gw_list_header *h; /* in memory.p */
};

struct gw_list_mem lists_mem(struct lists_memory *m);

/* About n records of all widths at any alignment, with gaps over 65535 and interleaved runs. */
void lists_make(struct lists *l, uint64_t seed, size_t n);
void lists_free(struct lists *l);

/* The record's place in host memory. */
uint8_t *lists_place(const struct lists *l, const struct lists_record *r);
/* Copies of all segments, behind one another; *n bytes. The caller frees. */
uint8_t *lists_snapshot(const struct lists *l, size_t *n);
/* A window inside of segment 0: any width, pitches, alignment; sometimes empty. */
struct gw_dev_window lists_window(const struct lists *l, struct gw_rng *r);
/* Makes the check sum right again after a change. */
void lists_seal(struct gw_list_header *h);

/* Memory of n bytes that ends at a page that faults; all zero. */
uint8_t *lists_guarded(size_t n);
void lists_guarded_free(uint8_t *p, size_t n);

#ifdef __cplusplus
}
#endif

#endif
