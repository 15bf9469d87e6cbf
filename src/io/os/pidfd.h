/*
 * Hearing of a process's end: a descriptor that becomes readable (EPOLLIN) when the process is gone. Unlike a PID
 * it cannot come to mean another process.
 */
#ifndef GW_IO_OS_PIDFD_H
#define GW_IO_OS_PIDFD_H

#include <sys/types.h>

/* Of a process, GW_ENOENT where there is none. */
int gw_pidfd_open(pid_t pid, int *fd);
/* Of who is at the other end of a Unix socket. By SO_PEERPIDFD where the kernel has it (6.5), else by the PID it
 * reports: then a process that ended and whose PID was taken again in between is mistaken. GW_EUNSUP where the peer
 * is in another PID namespace; the socket's own end (EPOLLHUP) is then the only sign. */
int gw_pidfd_of_peer(int socket, int *fd);
/* 1 when the process has ended. */
int gw_pidfd_ended(int fd);

#endif
