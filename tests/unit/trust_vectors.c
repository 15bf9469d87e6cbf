/* proto/vectors/trust.txt: the bytes that the pages promise. GODWIT_VECTORS=FILE in the environment writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trust_tests.h"

START_TEST(bytes_are_those_of_the_vectors)
{
	const char *top = getenv("top_srcdir"), *write_to = getenv("GODWIT_VECTORS");
	char path[4096], *line = NULL;
	size_t cap = 0, at = 0;
	ssize_t n;
	struct gw_wr w;
	FILE *f;

	gw_wr_init(&w, 1 << 20);
	fixture_print(&fix, &w);
	ck_assert_int_eq(w.err, 0);
	if (write_to) {
		f = fopen(write_to, "w");
		ck_assert_ptr_nonnull(f);
		ck_assert_uint_eq(fwrite(w.p, 1, w.n, f), w.n);
		(void)fclose(f);
	}
	(void)snprintf(path, sizeof path, "%s/proto/vectors/trust.txt", top ? top : ".");
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s", path);
	while ((n = getline(&line, &cap, f)) > 0) {
		if (line[0] == '#')
			continue;
		ck_assert_uint_le((size_t)n, w.n - at);
		ck_assert_msg(!memcmp(line, w.p + at, (size_t)n), "differs: %.40s", line);
		at += (size_t)n;
	}
	ck_assert_uint_eq(at, w.n);
	free(line);
	(void)fclose(f);
	gw_wr_free(&w);
}
END_TEST

TCase *trust_vector_tests(void (*set_up)(void), void (*tear_down)(void))
{
	TCase *t = tcase_create("vectors");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, bytes_are_those_of_the_vectors);
	return t;
}
