/*
 * Storage dtypes, as safetensors names them. Numbers are those of our own formats, for ever.
 *
 * A storage element is what patches count and fingerprints see: 1, 2, 4 or 8 bytes. Packed 4-bit (F4)
 * has two values a byte, low nibble first; its storage element is the byte. F6 dtypes are refused:
 * nothing serves them.
 */
#ifndef GW_WEIGHTS_DTYPE_H
#define GW_WEIGHTS_DTYPE_H

#include <stddef.h>
#include <stdint.h>

enum gw_dtype {
	GW_DT_NONE = 0,
#define GW_DTYPE(name, number, bits, class) GW_DT_##name = (number),
#include "weights/dtype.def"
#undef GW_DTYPE
};

/* "BF16"; NULL for a number that is no dtype. */
const char *gw_dtype_name(enum gw_dtype t);
/* GW_DT_NONE where unknown. */
enum gw_dtype gw_dtype_parse(const char *name, size_t n);
/* 4, 8, 16, 32 or 64; 0 where unknown. */
unsigned gw_dtype_bits(enum gw_dtype t);
/* Bytes of a storage element: 1, 2, 4, 8 (F4: 1); 0 where unknown. */
unsigned gw_dtype_width(enum gw_dtype t);
/* Floats whose old exponent tells how likely a change is. */
int gw_dtype_is_float(enum gw_dtype t);

#endif
