#ifndef GW_TESTS_TRUST_TESTS_H
#define GW_TESTS_TRUST_TESTS_H

#include <check.h>

#include "trust_fixture.h"

extern struct fixture fix;

/* Opens the record as it is, with each single bit flipped, and cut at every byte: all but the first must fail with
 * a message that holds `named`. */
void every_change_is_refused(struct blob b, int (*open)(const void *p, size_t n, struct gw_diag *why), const char *named);

TCase *trust_root_tests(void (*set_up)(void), void (*tear_down)(void));
TCase *trust_member_tests(void (*set_up)(void), void (*tear_down)(void));
TCase *trust_vector_tests(void (*set_up)(void), void (*tear_down)(void));

#endif
