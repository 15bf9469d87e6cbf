/* What tests of io/os share. */
#ifndef GW_TESTS_UNIT_OS_H
#define GW_TESTS_UNIT_OS_H

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

TCase *os_loop_case(void);

/* A folder of its own for a test, removed with all that is in it. */
static inline int temp_remove(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

/* The name lies in buf (at least 64 bytes). */
static inline char *temp_dir(char *buf)
{
	(void)snprintf(buf, 64, "/tmp/gw-test-XXXXXX");
	return mkdtemp(buf);
}

static inline void temp_dir_remove(const char *dir)
{
	(void)nftw(dir, temp_remove, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
