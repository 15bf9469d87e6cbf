#include "io/os/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

/* Written under the lock, read by the handler without: `from` is set last and cleared first. */
struct gw_guard {
	_Atomic uintptr_t from;
	_Atomic size_t n;
	atomic_int writable, hit;
};

static struct gw_guard slots[GW_GUARD_MAX];
static atomic_size_t used; /* no slot at or after this index was ever taken */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static int installed;
static uintptr_t page_mask;

/* mmap is a bare system call here, so calling it from the handler is sound. */
static int zero_pages(uintptr_t at, size_t n, int prot)
{
	return mmap((void *)at, n, prot, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

/* From the faulting page to the end: a file that was cut has nothing behind the cut either, and one fault then
 * serves for all. A range of huge pages cannot be covered in part and is covered whole. */
static int cover(struct gw_guard *g, uintptr_t from, uintptr_t at)
{
	uintptr_t page = at & page_mask;
	size_t n = atomic_load(&g->n);
	int prot = atomic_load(&g->writable) ? PROT_READ | PROT_WRITE : PROT_READ;

	atomic_store(&g->hit, 1);
	return zero_pages(page, n - (page - from), prot) || zero_pages(from, n, prot);
}

static int cover_any(uintptr_t at)
{
	size_t n = atomic_load(&used);

	for (size_t i = 0; i < n; i++) {
		uintptr_t from = atomic_load(&slots[i].from);

		if (from && at >= from && at - from < atomic_load(&slots[i].n))
			return cover(&slots[i], from, at);
	}
	return 0;
}

static void pass_on(int signo, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(signo, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(signo);
	} else {
		/* Die of it as if we had not been here: a fault comes again at once, a sent one is sent again. */
		(void)sigaction(SIGBUS, &before, NULL);
		if (info->si_code <= 0)
			(void)raise(signo);
	}
}

static void on_sigbus(int signo, siginfo_t *info, void *context)
{
	/* si_code is positive only for what the kernel raised. */
	if (info->si_code <= 0 || !cover_any((uintptr_t)info->si_addr))
		pass_on(signo, info, context);
}

static int install(void)
{
	struct sigaction sa;

	if (installed)
		return 0;
	page_mask = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_sigbus;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
	(void)sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, NULL, &before) || sigaction(SIGBUS, &sa, NULL))
		return GW_EINVAL;
	installed = 1;
	return 0;
}

static struct gw_guard *free_slot(void)
{
	size_t n = atomic_load(&used), i = 0;

	while (i < n && atomic_load(&slots[i].from))
		i++;
	if (i == GW_GUARD_MAX)
		return NULL;
	if (i == n)
		atomic_store(&used, n + 1);
	return &slots[i];
}

int gw_guard_add(void *p, size_t n, int writable, struct gw_guard **out)
{
	struct gw_guard *g;
	int err;

	pthread_mutex_lock(&lock);
	err = install();
	g = err ? NULL : free_slot();
	if (g) {
		atomic_store(&g->n, n);
		atomic_store(&g->writable, writable);
		atomic_store(&g->hit, 0);
		atomic_store(&g->from, (uintptr_t)p);
		*out = g;
	} else if (!err) {
		err = GW_ELIMIT;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

int gw_guard_hit(const struct gw_guard *g)
{
	return atomic_load(&g->hit);
}

int gw_guard_remove(struct gw_guard *g)
{
	int hit;

	if (!g)
		return 0;
	pthread_mutex_lock(&lock);
	hit = atomic_load(&g->hit);
	atomic_store(&g->from, 0);
	pthread_mutex_unlock(&lock);
	return hit;
}
