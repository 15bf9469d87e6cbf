/*
 * How threads start: with every signal blocked but those that a fault raises (SIGBUS, SIGSEGV, SIGFPE,
 * SIGILL, SIGABRT), so that the loop's signalfd gets the rest, and with a name that `top -H` shows.
 */
#ifndef GW_IO_OS_THREAD_H
#define GW_IO_OS_THREAD_H

#include <pthread.h>

/* name: at most 15 characters. */
int gw_thread_start(pthread_t *t, const char *name, void *(*run)(void *arg), void *arg);
/* Processors this process may run on, at least 1. */
unsigned gw_thread_cpus(void);

#endif
