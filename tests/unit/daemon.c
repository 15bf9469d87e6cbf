/* src/daemon but for engines and configuration, part by part, and a whole host in this process. */
#include "daemon.h"

#include "unit.h"

static Suite *suite(void)
{
	Suite *s = suite_create("daemon");

	suite_add_tcase(s, daemon_objects_tests());
	suite_add_tcase(s, daemon_publish_tests());
	suite_add_tcase(s, daemon_verify_tests());
	suite_add_tcase(s, daemon_identity_tests());
	suite_add_tcase(s, daemon_versions_tests());
	suite_add_tcase(s, daemon_core_tests());
	return s;
}

UNIT_MAIN(suite)
