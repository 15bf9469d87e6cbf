/* proto/vectors/patch.txt: two checkpoints (single files) and the patch between them, whose bytes proto/PATCH.md
 * explains. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../crash/crash_fs.h"
#include "base/hex.h"
#include "model.h"
#include "patch/diff.h"
#include "patch/disk.h"
#include "patch_file.h"

enum { LINE_MAX_BYTES = 4096 };

/* The value of a line "name HEX". */
static size_t vector(const char *name, uint8_t *out)
{
	const char *top = getenv("top_srcdir");
	char path[512], line[2 * LINE_MAX_BYTES];
	size_t n = 0;
	FILE *f;

	(void)snprintf(path, sizeof path, "%s/proto/vectors/patch.txt", top ? top : ".");
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (!n && fgets(line, sizeof line, f)) {
		char *hex = strchr(line, ' ');

		line[strcspn(line, "\n")] = 0;
		if (!hex || strncmp(line, name, (size_t)(hex - line)) || name[hex - line])
			continue;
		n = strlen(hex + 1) / 2;
		ck_assert_int_eq(gw_unhex(out, n, hex + 1), 0);
	}
	(void)fclose(f);
	ck_assert_uint_gt(n, 0);
	return n;
}

START_TEST(bytes_are_those_of_the_page)
{
	uint8_t old[LINE_MAX_BYTES], new_[LINE_MAX_BYTES], want[LINE_MAX_BYTES], *got;
	size_t old_n = vector("old", old), new_n = vector("new", new_), want_n = vector("patch", want), got_n;
	struct gw_pool pool = gw_pool_serial();
	struct crash_fs *c = crash_fs_new(1);
	struct gw_fs *fs = crash_fs_table(c);
	struct gw_checkpoint *a, *b;
	struct gw_patch *pt;

	write_whole(fs, "/old", old, old_n);
	write_whole(fs, "/new", new_, new_n);
	ck_assert_int_eq(gw_checkpoint_open(&a, fs, "/old", NULL), 0);
	ck_assert_int_eq(gw_checkpoint_open(&b, fs, "/new", NULL), 0);
	ck_assert_int_eq(gw_diff(a, b, fs, &pool, NULL, "/patch", NULL, NULL), 0);
	got = read_whole(fs, "/patch", &got_n);
	ck_assert_uint_eq(got_n, want_n);
	ck_assert_mem_eq(got, want, want_n);
	ck_assert_int_eq(gw_patch_open(&pt, want, want_n, NULL), 0);
	ck_assert_int_eq(gw_disk_apply(pt, a, fs, &pool, NULL, "/new2", NULL, NULL), 0);
	ck_assert(same_tree(fs, "/new", "/new2"));
	gw_patch_close(pt);
	gw_checkpoint_close(a);
	gw_checkpoint_close(b);
	free(got);
	crash_fs_free(c);
}
END_TEST

TCase *patch_vectors_case(void)
{
	TCase *t = tcase_create("vectors");

	tcase_add_test(t, bytes_are_those_of_the_page);
	return t;
}
