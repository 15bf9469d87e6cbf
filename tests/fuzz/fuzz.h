/*
 * A fuzz target: one function that is given bytes and aborts (assert) when a property does not hold. The same file
 * links with replay.c for `make check`, or with a fuzzer by run.sh (`make fuzz`), which defines FUZZER: then a target may
 * bring a mutator of its own.
 *
 * The corpus is tests/fuzz/NAME.hex: an input a line in hexadecimal, '#' starts a comment, '=' an input that
 * is only run as it is. Inputs that once broke something stay there.
 */
#ifndef GW_TESTS_FUZZ_H
#define GW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* "message": names the corpus. */
extern const char fuzz_name[];

#endif
