/*
 * Memory that two processes hold: memfds that are made here and passed on, and descriptors that came from the
 * other side, which are checked before they are mapped.
 *
 * A memfd whose size is sealed cannot be cut under its reader. One that is not (an engine's own segment may not be)
 * is mapped guarded: see guard.h, and ask gw_shm_check after reading.
 */
#ifndef GW_IO_OS_MEMFD_H
#define GW_IO_OS_MEMFD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "patch/list.h"

enum gw_memfd_seal {
	GW_SEAL_SIZE = 1,  /* neither shrinks nor grows any more */
	GW_SEAL_WRITE = 2, /* nobody writes any more; no writable mapping may be left */
};

/* Empty, sealable, close-on-exec. The name shows in /proc/PID/maps, nothing else. */
int gw_memfd_new(const char *name, int *fd);
int gw_memfd_resize(int fd, uint64_t bytes);
/* Adds seals, and forbids further ones. */
int gw_memfd_seal(int fd, unsigned seals);
/* What a received descriptor is: GW_EINVAL where it is no regular memory (memfd, shm or file), GW_ELIMIT where it
 * has more than max bytes, GW_ESTATE where one of `seals` is missing. *bytes gets its size. */
int gw_memfd_check(int fd, unsigned seals, uint64_t max_bytes, uint64_t *bytes, struct gw_diag *why);

/* A mapping of a whole descriptor or the front of it. */
struct gw_shm {
	uint8_t *p;
	size_t n;
	struct gw_guard *guard; /* NULL where the size is sealed */
};

/* bytes > 0 and no more than the descriptor has (GW_ETRUNC). The descriptor may be closed afterwards. */
int gw_shm_map(int fd, size_t bytes, int writable, struct gw_shm *out);
/* GW_ESHRUNK where memory was lost under the mapping; what was read is not to be believed. */
int gw_shm_check(const struct gw_shm *m);
/* As check; does nothing on a zeroed one. */
int gw_shm_unmap(struct gw_shm *m);

/* Memory for a staged list: a memfd with its writable mapping, growing up to max bytes. Give gw_list_build_new what
 * gw_memfd_list_mem returns; after gw_list_finish call gw_memfd_grow_seal, and the descriptor can be passed on. */
struct gw_memfd_grow {
	int fd;
	uint8_t *p;
	size_t n, max; /* mapped bytes; the most */
};

int gw_memfd_grow_init(struct gw_memfd_grow *g, const char *name, size_t max);
struct gw_list_mem gw_memfd_list_mem(struct gw_memfd_grow *g);
/* Cuts it to `bytes` (a list's length) and seals the size; writing stays possible, for the list's state word. */
int gw_memfd_grow_seal(struct gw_memfd_grow *g, size_t bytes);
/* Unmaps and closes; does nothing on a zeroed one, or after free. */
void gw_memfd_grow_free(struct gw_memfd_grow *g);

#endif
