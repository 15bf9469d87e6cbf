/*
 * A file system in memory that forgets. It keeps each file twice, as programs see it and as the disk holds it, by
 * sectors of 512 bytes, and each folder as a list of changes not yet synced. Every operation that changes anything
 * counts; from a chosen one on nothing works any more, as if the process had died inside it. What is left is then
 *
 *     killed     all that programs saw: a process died, the page cache lives
 *     power cut  what was synced, and of the rest, sector by sector and change by change, what chance wrote in time
 *
 * One operation can instead fail and leave the process alive: a full disk writes half; a failed sync loses the
 * unsynced sectors for good while programs go on seeing them, as Linux does.
 */
#ifndef GW_TESTS_CRASH_FS_H
#define GW_TESTS_CRASH_FS_H

#include "base/file.h"

struct crash_fs;

struct crash_fs *crash_fs_new(uint64_t seed);
void crash_fs_free(struct crash_fs *c);
struct gw_fs *crash_fs_table(struct crash_fs *c);

/* Operations that changed something since the last boot. */
uint64_t crash_fs_ops(const struct crash_fs *c);
/* The process dies in the operation of that number (1 = the next one; 0: never). That operation happened, or did
 * half, or did not, as chance wants. */
void crash_fs_die_at(struct crash_fs *c, uint64_t op);
int crash_fs_dead(const struct crash_fs *c);
/* The operation of that number fails with err. */
void crash_fs_fail_at(struct crash_fs *c, uint64_t op, int err);
/* Every write and creation fails with that error until it is 0. */
void crash_fs_full(struct crash_fs *c, int err);
/* What a new process finds. Open files of the old one must be closed first. */
void crash_fs_reboot(struct crash_fs *c, int power_cut);
/* Flips a bit of a file on the disk and as seen. */
void crash_fs_damage(struct crash_fs *c, const char *path, uint64_t byte);

#endif
