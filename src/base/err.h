/*
 * Errors. Every fallible function returns 0 or a negative GW_E… from err.def; values come back
 * through the last parameters. A function that a user will hear about also takes a `struct gw_diag`
 * (may be NULL) and writes there, once, what was refused, where, why, and what to do.
 */
#ifndef GW_BASE_ERR_H
#define GW_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

enum gw_err {
	GW_OK = 0,
#define GW_ERR(num, name, text, whose, retry) GW_E##name = (num),
#include "base/err.def"
#undef GW_ERR
};

enum gw_whose { GW_WHOSE_US, GW_WHOSE_PEER, GW_WHOSE_HOST, GW_WHOSE_USER };

/* Never NULL; an unknown code gives "unknown error". */
const char *gw_err_text(int err);
const char *gw_err_name(int err);
enum gw_whose gw_err_whose(int err);
int gw_err_retryable(int err);

/* errno of a failed system call as one of ours; never 0. */
int gw_err_from_errno(int errnum);

/* The exit code that surface.md promises for an error (0 for 0). */
int gw_err_exit_code(int err);

/* One message for the user. The first writer wins: the innermost place knows most. */
struct gw_diag {
	char text[512];
};

/* Writes unless something is there already, and returns err so that callers can write
 * `return gw_diag_set(why, GW_EMALFORMED, "…", …);` */
int gw_diag_set(struct gw_diag *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before what is there (or the error's text where nothing is); returns err. */
int gw_diag_wrap(struct gw_diag *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
