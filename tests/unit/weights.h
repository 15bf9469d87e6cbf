/* What the files of the weights tests share. */
#ifndef GW_TESTS_WEIGHTS_H
#define GW_TESTS_WEIGHTS_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

TCase *json_case(void);
TCase *safetensors_case(void);
TCase *checkpoint_case(void);

/* A file: the JSON's length, the JSON, and data_bytes bytes 0, 1, 2, … Malloced. */
uint8_t *file_of(const char *json, size_t data_bytes, size_t *n);

#endif
