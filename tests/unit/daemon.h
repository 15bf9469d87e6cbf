/* The topics of tests/unit/daemon. */
#ifndef GW_TESTS_DAEMON_H
#define GW_TESTS_DAEMON_H

#include <check.h>

TCase *daemon_core_tests(void);
TCase *daemon_identity_tests(void);
TCase *daemon_objects_tests(void);
TCase *daemon_publish_tests(void);
TCase *daemon_verify_tests(void);
TCase *daemon_versions_tests(void);

#endif
