#include "io/os/pidfd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; newer than the headers of Debian 12 */
#endif

int gw_pidfd_open(pid_t pid, int *fd)
{
	long r = syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */

	if (r < 0)
		return errno == ESRCH ? GW_ENOENT : gw_err_from_errno(errno);
	*fd = (int)r;
	return 0;
}

int gw_pidfd_of_peer(int socket, int *fd)
{
	struct ucred cred = {0};
	socklen_t n = sizeof *fd;

	if (!getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, fd, &n))
		return fcntl(*fd, F_SETFD, FD_CLOEXEC) ? gw_err_from_errno(errno) : 0;
	n = sizeof cred;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &n))
		return gw_err_from_errno(errno);
	return cred.pid > 0 ? gw_pidfd_open(cred.pid, fd) : GW_EUNSUP;
}

int gw_pidfd_ended(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	return poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}
