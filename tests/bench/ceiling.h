/*
 * What memory gives: reads that do next to nothing with what they read, so that no scan of the same bytes can be
 * faster. Each in several shapes (one stream or four side by side, fetched ahead or not), since none is the best
 * everywhere; the ceiling is the best of them.
 */
#ifndef GW_BENCH_CEILING_H
#define GW_BENCH_CEILING_H

#include <stddef.h>
#include <stdint.h>

enum { BENCH_READ_SHAPES = 4 };

/* Reads n bytes at p and, unless NULL, n at q, and ors all of p, or all of p ^ q. */
uint64_t bench_read(unsigned shape, const uint8_t *p, const uint8_t *q, size_t n);

#endif
