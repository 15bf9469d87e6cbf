#include "io/os/thread.h"

#include <sched.h>
#include <signal.h>

#include "base/err.h"

int gw_thread_start(pthread_t *t, const char *name, void *(*run)(void *arg), void *arg)
{
	static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
	sigset_t block, before;
	int err;

	(void)sigfillset(&block);
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
		(void)sigdelset(&block, faults[i]);
	/* A thread inherits the mask of its maker. */
	(void)pthread_sigmask(SIG_SETMASK, &block, &before);
	err = pthread_create(t, NULL, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return gw_err_from_errno(err);
	(void)pthread_setname_np(*t, name);
	return 0;
}

unsigned gw_thread_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 1)
		return 1;
	return (unsigned)CPU_COUNT(&set);
}
