/* One process at a time: a lock on a folder that ends with the process, however it ends. */
#ifndef GW_IO_OS_LOCK_H
#define GW_IO_OS_LOCK_H

#include "base/err.h"

/* Takes DIR/lock (made when missing, 0600) for as long as *fd is open. GW_ESTATE, with its process id, where another
 * process holds it. */
int gw_lock_folder(const char *dir, int *fd, struct gw_diag *why);

#endif
