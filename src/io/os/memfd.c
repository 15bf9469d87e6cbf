#include "io/os/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/os/guard.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

int gw_memfd_new(const char *name, int *fd)
{
	*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (*fd < 0 && errno == EINVAL)
		*fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return *fd < 0 ? gw_err_from_errno(errno) : 0;
}

int gw_memfd_resize(int fd, uint64_t bytes)
{
	int r;

	if (bytes > INT64_MAX)
		return GW_EOVERFLOW;
	do
		r = ftruncate(fd, (off_t)bytes);
	while (r && errno == EINTR);
	return r ? gw_err_from_errno(errno) : 0;
}

static int kernel_seals(unsigned seals)
{
	return (seals & GW_SEAL_SIZE ? F_SEAL_SHRINK | F_SEAL_GROW : 0) | (seals & GW_SEAL_WRITE ? F_SEAL_WRITE : 0);
}

int gw_memfd_seal(int fd, unsigned seals)
{
	if (fcntl(fd, F_ADD_SEALS, kernel_seals(seals) | F_SEAL_SEAL))
		return errno == EBUSY ? GW_ESTATE : gw_err_from_errno(errno);
	return 0;
}

int gw_memfd_check(int fd, unsigned seals, uint64_t max_bytes, uint64_t *bytes, struct gw_diag *why)
{
	struct stat st;
	int have;

	if (fstat(fd, &st))
		return gw_diag_set(why, gw_err_from_errno(errno), "a received descriptor cannot be examined: %s", strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size < 0)
		return gw_diag_set(why, GW_EINVAL, "a received descriptor is no memory: pass a memfd");
	if ((uint64_t)st.st_size > max_bytes)
		return gw_diag_set(why, GW_ELIMIT, "a received memory has %llu bytes, more than the limit of %llu",
				   (unsigned long long)st.st_size, (unsigned long long)max_bytes);
	have = fcntl(fd, F_GET_SEALS);
	if (seals && (have < 0 || (have & kernel_seals(seals)) != kernel_seals(seals)))
		return gw_diag_set(why, GW_ESTATE, "a received memory is not sealed: add F_SEAL_SHRINK and F_SEAL_GROW%s",
				   seals & GW_SEAL_WRITE ? " and F_SEAL_WRITE" : "");
	*bytes = (uint64_t)st.st_size;
	return 0;
}

static int size_is_sealed(int fd)
{
	int have = fcntl(fd, F_GET_SEALS);

	return have >= 0 && have & F_SEAL_SHRINK;
}

int gw_shm_map(int fd, size_t bytes, int writable, struct gw_shm *out)
{
	struct stat st;
	void *p;
	int err = 0;

	memset(out, 0, sizeof *out);
	if (!bytes)
		return GW_EINVAL;
	if (fstat(fd, &st))
		return gw_err_from_errno(errno);
	if ((uint64_t)st.st_size < bytes)
		return GW_ETRUNC;
	p = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return gw_err_from_errno(errno);
	if (!size_is_sealed(fd))
		err = gw_guard_add(p, bytes, writable, &out->guard);
	if (err) {
		(void)munmap(p, bytes);
		return err;
	}
	out->p = p;
	out->n = bytes;
	return 0;
}

int gw_shm_check(const struct gw_shm *m)
{
	return m->guard && gw_guard_hit(m->guard) ? GW_ESHRUNK : 0;
}

int gw_shm_unmap(struct gw_shm *m)
{
	int hit = gw_guard_remove(m->guard);

	if (m->p)
		(void)munmap(m->p, m->n);
	memset(m, 0, sizeof *m);
	return hit ? GW_ESHRUNK : 0;
}

int gw_memfd_grow_init(struct gw_memfd_grow *g, const char *name, size_t max)
{
	*g = (struct gw_memfd_grow){-1, NULL, 0, max};
	return gw_memfd_new(name, &g->fd);
}

static size_t round_up(size_t n, size_t unit)
{
	return n > SIZE_MAX - unit ? n : (n + unit - 1) / unit * unit;
}

/* Doubles, so that a list that grows record by record is not mapped anew for each; what was not used is cut off again
 * when it is sealed, and costs no memory before, since untouched pages of a memfd do not exist. */
static void *grow(void *ctx, size_t n)
{
	struct gw_memfd_grow *g = ctx;
	size_t want = round_up(n, (size_t)1 << 20);
	void *p;

	if (n > g->max)
		return NULL;
	if (n <= g->n)
		return g->p;
	if (want < g->n * 2)
		want = g->n * 2;
	if (want > g->max)
		want = g->max;
	if (gw_memfd_resize(g->fd, want))
		return NULL;
	p = g->p ? mremap(g->p, g->n, want, MREMAP_MAYMOVE)
		 : mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	g->p = p;
	g->n = want;
	return p;
}

struct gw_list_mem gw_memfd_list_mem(struct gw_memfd_grow *g)
{
	return (struct gw_list_mem){g, grow};
}

int gw_memfd_grow_seal(struct gw_memfd_grow *g, size_t bytes)
{
	void *p;
	int err;

	if (!bytes || bytes > g->n)
		return GW_EINVAL;
	err = gw_memfd_resize(g->fd, bytes);
	if (err)
		return err;
	p = mremap(g->p, g->n, bytes, 0);
	if (p == MAP_FAILED)
		return gw_err_from_errno(errno);
	g->n = bytes;
	return gw_memfd_seal(g->fd, GW_SEAL_SIZE);
}

void gw_memfd_grow_free(struct gw_memfd_grow *g)
{
	if (g->p)
		(void)munmap(g->p, g->n);
	if (g->p || g->fd > 0)
		(void)close(g->fd);
	*g = (struct gw_memfd_grow){.fd = -1};
}
