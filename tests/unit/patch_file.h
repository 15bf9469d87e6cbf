/* What the files of the test program patch_file share. */
#ifndef GW_TESTS_PATCH_FILE_H
#define GW_TESTS_PATCH_FILE_H

#include <check.h>
#include <stdint.h>

TCase *patch_tile_case(void);
TCase *patch_coder_case(void);
TCase *patch_scan_case(void);
TCase *patch_disk_case(void);
TCase *patch_damage_case(void);
TCase *patch_fold_case(void);
TCase *patch_vectors_case(void);

/* Printed once; SEED=N in the environment replays it. */
uint64_t test_seed(void);

#endif
