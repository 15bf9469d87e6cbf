/* Strict UTF-8 (RFC 3629): shortest forms, no surrogates, at most U+10FFFF. NUL is a character like others. */
#ifndef GW_BASE_UTF8_H
#define GW_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the character at p, 1 to 4; 0 where there is none in the n bytes (n > 0). */
size_t gw_utf8_len(const void *p, size_t n);
int gw_utf8_ok(const void *p, size_t n);
/* UTF-8 without control characters (below 0x20, 0x7f): fit for one line of a log or a terminal. */
int gw_utf8_printable(const void *p, size_t n);
/* Copies text into out[cap], always ended by NUL, and cuts it between characters where it does not fit; a byte that is no
 * UTF-8, or a control character, becomes '?'. For what came from a file name or a message that was cut. Returns its
 * length. */
size_t gw_utf8_clean(char *out, size_t cap, const char *text);

#endif
