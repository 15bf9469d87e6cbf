/* A file system in memory with checkpoints and patches in it, for the tests of diff, apply and fold. */
#ifndef GW_TESTS_PATCH_WORLD_H
#define GW_TESTS_PATCH_WORLD_H

#include <check.h>
#include <stdint.h>

#include "../crash/crash_fs.h"
#include "model.h"
#include "patch/disk.h"

/* A pool that claims several workers and runs its tasks in an order of its own. */
int run_backwards(struct gw_pool *pool, size_t n, int (*task)(void *arg, size_t i, unsigned worker), void *arg);

struct world {
	struct crash_fs *c;
	struct gw_fs *fs;
	struct gw_pool pool;
	struct gw_rng rng;
	struct gw_diag why;
	struct gw_disk_report report;
	struct gw_progress *watch;
};

void world_init(struct world *w);
void world_free(struct world *w);

/* old NULL: from nothing. */
int make_patch(struct world *w, const char *old, const char *new_, const char *path);
int apply_bytes(struct world *w, const uint8_t *p, size_t n, const char *base, const char *out);
int apply(struct world *w, const char *patch, const char *base, const char *out);
int apply_in_place(struct world *w, const char *patch, const char *dir);
/* The file system keeps a short list of what is not synced: a power cut empties it. */
void settle(struct world *w);

#define OK(x)                                                                                                          \
	do {                                                                                                           \
		int err_ = (x);                                                                                        \
		ck_assert_msg(!err_, "%s: %d %s", #x, err_, w.why.text);                                               \
	} while (0)

#endif
