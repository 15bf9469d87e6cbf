/*
 * Prefix codes of at most 12 bits, canonical as in RFC 1951, 3.2.2: from counts to lengths, from lengths to the
 * tables of encoder and decoder. Lengths are Huffman's (Moffat and Katajainen, "In-place calculation of
 * minimum-redundancy codes", 1995), longer ones cut at 12 and the others made longer until the code fits again.
 * The same counts give the same lengths everywhere.
 */
#ifndef GW_PATCH_PREFIX_H
#define GW_PATCH_PREFIX_H

#include <stdint.h>

enum { GW_PREFIX_BITS = 12, GW_PREFIX_SYMBOLS_MAX = 128 };

/* len[i] = 0 where count[i] = 0; one symbol alone gets 1. n <= GW_PREFIX_SYMBOLS_MAX. */
void gw_prefix_lengths(const uint64_t *count, unsigned n, uint8_t *len);

/* code[i]: the code's bits as they stand in the string, first bit lowest. GW_EMALFORMED unless lengths are at most 12
 * and fit exactly (or none, or one alone of length 1). */
int gw_prefix_codes(const uint8_t *len, unsigned n, uint16_t *code);

/* table: 4096 entries, indexed by the next 12 bits: length | symbol << 4; 0 for bits that begin no code. */
int gw_prefix_table(const uint8_t *len, unsigned n, uint16_t *table);

#endif
