/* Lower-case hexadecimal, for digests and ids in names, logs and JSON. */
#ifndef GW_BASE_HEX_H
#define GW_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

/* Writes 2n characters and a NUL. Returns out. */
char *gw_hex(char *out, const void *p, size_t n);
/* Exactly n bytes from exactly 2n hexadecimal digits and the NUL; GW_EMALFORMED otherwise. */
int gw_unhex(uint8_t *out, size_t n, const char *text);

#endif
