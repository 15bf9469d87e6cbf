/* Patch files: tiles, coding, reading, writing, applying. */
#include "patch_file.h"

#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

uint64_t test_seed(void)
{
	const char *text = getenv("SEED");

	return text ? strtoull(text, NULL, 10) : 20;
}

static Suite *suite(void)
{
	Suite *s = suite_create("patch_file");

	printf("SEED=%llu\n", (unsigned long long)test_seed());
	suite_add_tcase(s, patch_tile_case());
	suite_add_tcase(s, patch_coder_case());
	suite_add_tcase(s, patch_scan_case());
	suite_add_tcase(s, patch_disk_case());
	suite_add_tcase(s, patch_damage_case());
	suite_add_tcase(s, patch_fold_case());
	suite_add_tcase(s, patch_vectors_case());
	return s;
}

UNIT_MAIN(suite)
