/*
 * A strict pull reader for JSON (RFC 8259) that keeps no tree and allocates nothing: the caller asks for
 * what must come next. UTF-8 and escapes are checked; integers are plain digits. A sticky error, as in
 * base/buf.h: after the first failure everything yields zero, so that loops end.
 *
 *     gw_json_open(&j, '{');
 *     while (gw_json_more(&j, '}')) {
 *             n = gw_json_key(&j, key, sizeof key);
 *             … the value …
 *     }
 *
 * The bytes may change while they are read (a mapped file): then what is read is odd, never out of bounds.
 */
#ifndef GW_WEIGHTS_JSON_H
#define GW_WEIGHTS_JSON_H

#include <stddef.h>
#include <stdint.h>

struct gw_json {
	const uint8_t *p;
	size_t n, at;
	int err;          /* 0, or the first failure; `at` stays there */
	const char *what; /* constant text: what was wrong there */
	int fresh;        /* an object or array was opened, and nothing read from it yet */
	int control;      /* the last string holds a control character, U+0000 … U+001F or U+007F … U+009F */
};

enum { GW_JSON_DEPTH_MAX = 32 }; /* of values that are skipped */

void gw_json_init(struct gw_json *j, const void *p, size_t n);
/* Sets the error unless one is set. what: constant text. Returns the error that stands. */
int gw_json_fail(struct gw_json *j, int err, const char *what);

/* The next byte that is no white space, not consumed; -1 at the end or after a failure. */
int gw_json_peek(struct gw_json *j);
/* '{' or '['. */
void gw_json_open(struct gw_json *j, char bracket);
/* Whether another member or element comes; consumes the comma, or the closing bracket. */
int gw_json_more(struct gw_json *j, char bracket);
/* Decodes a string; writes at most cap bytes, no NUL, and returns its full length. */
size_t gw_json_string(struct gw_json *j, char *out, size_t cap);
/* A string and the colon. */
size_t gw_json_key(struct gw_json *j, char *out, size_t cap);
uint64_t gw_json_u64(struct gw_json *j);
/* Any value. */
void gw_json_skip(struct gw_json *j);

#endif
