/*
 * Unix sockets of type SOCK_SEQPACKET: message bounds are kept, descriptors travel along (SCM_RIGHTS), and the
 * kernel says who is at the other end (SO_PEERCRED). For engine attach and for control by tools.
 *
 * All descriptors made here, received ones included, are close-on-exec; sockets do not block. GW_EAGAIN: wait for
 * EPOLLIN or EPOLLOUT. GW_ECLOSED: the other side is gone.
 */
#ifndef GW_IO_OS_SEQPACKET_H
#define GW_IO_OS_SEQPACKET_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	GW_SEQ_MESSAGE_MAX = 128 * 1024, /* bytes; below what Linux takes with its default send buffer */
	GW_SEQ_FDS_MAX = 32,             /* descriptors in one message */
};

struct gw_seq_peer {
	pid_t pid; /* as seen from this PID namespace; 0 when it is in another one */
	uid_t uid;
	gid_t gid;
};

/* Makes the socket file with these permission bits. A dead socket file is replaced; one that somebody still
 * answers is GW_EEXIST, anything else at that path too. The path is limited to 107 bytes. */
int gw_seq_listen(const char *path, mode_t mode, int *fd, struct gw_diag *why);
/* The next connection, or GW_EAGAIN. GW_ELIMIT: out of descriptors; stop watching for a while. */
int gw_seq_accept(int listener, int *fd, struct gw_seq_peer *peer);
int gw_seq_connect(const char *path, int *fd, struct gw_diag *why);
/* A connected pair, for tests and for children. */
int gw_seq_pair(int fd[2]);
int gw_seq_peer(int fd, struct gw_seq_peer *peer);

/* 1 … GW_SEQ_MESSAGE_MAX bytes and at most GW_SEQ_FDS_MAX descriptors, which stay the caller's; all or nothing. */
int gw_seq_send(int fd, const void *p, size_t n, const int *fds, size_t nfds);
/* One message. GW_ELIMIT where it is longer than cap or brings more than cap_fds descriptors: it is consumed and
 * its descriptors are closed (drop the peer then). On success fds[0 … *nfds) are the caller's to close. */
int gw_seq_recv(int fd, void *p, size_t cap, size_t *n, int *fds, size_t cap_fds, size_t *nfds);
/* Blocks until a message can be received (or sent), at most timeout_ms (-1: for ever); GW_ETIMEOUT. For tools and
 * engines, which have no loop. */
int gw_seq_wait(int fd, int for_send, int timeout_ms);

void gw_seq_close_fds(int *fds, size_t n);

#endif
