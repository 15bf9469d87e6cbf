/*
 * The real file table (base/file.h). Every descriptor is close-on-exec; EINTR and short transfers are
 * retried; a path's last component is not followed where the table says so.
 *
 * Mappings are guarded (guard.h): the first one installs the SIGBUS handler of the process.
 *
 * Thread-safe; one gw_file may be used by several threads at once, as pread and pwrite may.
 */
#ifndef GW_IO_OS_FS_OS_H
#define GW_IO_OS_FS_OS_H

#include "base/file.h"

/* The one table of this process; nothing to free. */
struct gw_fs *gw_fs_os(void);

/* The descriptor behind an open file, for the few callers that pass it on. It stays the file's. */
int gw_fs_os_fd(const struct gw_file *f);

#endif
