#include "io/os/seqpacket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "io/os/clock.h"

enum { BACKLOG = 128, KERNEL_FDS_MAX = 253 /* SCM_MAX_FD */ };

static int error_of(int errnum)
{
	switch (errnum) {
	case EPIPE:
	case ECONNRESET:
	case ENOTCONN:
		return GW_ECLOSED;
	case EMFILE:
	case ENFILE:
	case ETOOMANYREFS:
		return GW_ELIMIT;
	case ENOBUFS:
	case EAGAIN:
		return GW_EAGAIN;
	case ECONNREFUSED:
		return GW_EUNREACH;
	default:
		return gw_err_from_errno(errnum);
	}
}

static int address(const char *path, struct sockaddr_un *a, struct gw_diag *why)
{
	size_t n = strlen(path);

	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	if (!n || n >= sizeof a->sun_path)
		return gw_diag_set(why, GW_EINVAL, "%s: a socket's path has 1 to %zu bytes", path, sizeof a->sun_path - 1);
	memcpy(a->sun_path, path, n);
	return 0;
}

static int new_socket(int *fd)
{
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return *fd < 0 ? error_of(errno) : 0;
}

/* A socket file that a process left behind is in the way of bind and answers nobody. */
static int remove_dead(const char *path, const struct sockaddr_un *a, struct gw_diag *why)
{
	struct stat st;
	int fd, err, alive;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : gw_diag_set(why, error_of(errno), "%s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return gw_diag_set(why, GW_EEXIST, "%s is in the way and no socket; remove it or choose another path", path);
	err = new_socket(&fd);
	if (err)
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	alive = !connect(fd, (const struct sockaddr *)a, sizeof *a) || errno != ECONNREFUSED;
	(void)close(fd);
	if (alive)
		return gw_diag_set(why, GW_EEXIST, "%s is in use: another process answers there", path);
	if (unlink(path) && errno != ENOENT)
		return gw_diag_set(why, error_of(errno), "cannot remove the dead socket %s: %s", path, strerror(errno));
	return 0;
}

int gw_seq_listen(const char *path, mode_t mode, int *fd, struct gw_diag *why)
{
	struct sockaddr_un a;
	int err = address(path, &a, why);

	if (!err)
		err = remove_dead(path, &a, why);
	if (!err)
		err = new_socket(fd);
	if (err)
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	/* Linux makes the file with the socket's own mode less the umask: narrow from the first moment on; chmod then
	 * gives back what the umask took. */
	if (fchmod(*fd, mode) || bind(*fd, (const struct sockaddr *)&a, sizeof a) || chmod(path, mode) ||
	    listen(*fd, BACKLOG)) {
		err = gw_diag_set(why, error_of(errno), "cannot listen at %s: %s", path, strerror(errno));
		(void)close(*fd);
		return err;
	}
	return 0;
}

int gw_seq_peer(int fd, struct gw_seq_peer *peer)
{
	struct ucred c;
	socklen_t n = sizeof c;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n))
		return error_of(errno);
	*peer = (struct gw_seq_peer){c.pid, c.uid, c.gid};
	return 0;
}

int gw_seq_accept(int listener, int *fd, struct gw_seq_peer *peer)
{
	int err;

	do
		*fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (*fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (*fd < 0)
		return error_of(errno);
	err = gw_seq_peer(*fd, peer);
	if (err)
		(void)close(*fd);
	return err;
}

int gw_seq_connect(const char *path, int *fd, struct gw_diag *why)
{
	struct sockaddr_un a;
	int err = address(path, &a, why);

	if (!err)
		err = new_socket(fd);
	if (err)
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	if (connect(*fd, (const struct sockaddr *)&a, sizeof a)) {
		err = errno == ENOENT ? GW_EUNREACH : error_of(errno);
		(void)gw_diag_set(why, err, "cannot reach %s: %s; is the daemon running?", path, strerror(errno));
		(void)close(*fd);
	}
	return err;
}

int gw_seq_pair(int fd[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) ? error_of(errno) : 0;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(KERNEL_FDS_MAX * sizeof(int))];
};

int gw_seq_send(int fd, const void *p, size_t n, const int *fds, size_t nfds)
{
	struct iovec iov = {(void *)(uintptr_t)p, n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	union control c;
	ssize_t r;

	/* Nothing at all would look like the end of the connection. */
	if (!n)
		return GW_EINVAL;
	if (n > GW_SEQ_MESSAGE_MAX || nfds > GW_SEQ_FDS_MAX)
		return GW_ELIMIT;
	if (nfds) {
		memset(&c, 0, sizeof c);
		m.msg_control = c.bytes;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, nfds * sizeof(int));
	}
	do
		r = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? error_of(errno) : 0;
}

void gw_seq_close_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		(void)close(fds[i]);
		fds[i] = -1;
	}
}

/* Collects what came into fds and closes what is more; returns whether there was more. */
static int take_fds(struct msghdr *m, int *fds, size_t cap, size_t *n)
{
	int surplus = 0;

	*n = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (*n < cap) {
				fds[(*n)++] = fd;
			} else {
				(void)close(fd);
				surplus = 1;
			}
		}
	}
	return surplus;
}

int gw_seq_recv(int fd, void *p, size_t cap, size_t *n, int *fds, size_t cap_fds, size_t *nfds)
{
	struct iovec iov = {p, cap};
	union control c;
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
	size_t got_fds = 0;
	ssize_t r;
	int over;

	*n = *nfds = 0;
	do
		r = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return error_of(errno);
	/* MSG_CTRUNC: the kernel had no descriptor left for us and dropped some. */
	over = take_fds(&m, fds, cap_fds, &got_fds) || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	if (over || r == 0) {
		gw_seq_close_fds(fds, got_fds);
		return over ? GW_ELIMIT : GW_ECLOSED;
	}
	*n = (size_t)r;
	*nfds = got_fds;
	return 0;
}

int gw_seq_wait(int fd, int for_send, int timeout_ms)
{
	struct pollfd p = {fd, for_send ? POLLOUT : POLLIN, 0};
	uint64_t end = gw_clock_mono_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000u;

	for (;;) {
		int r = poll(&p, 1, timeout_ms);
		uint64_t now;

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return error_of(errno);
		now = gw_clock_mono_ns();
		if (r == 0 || (timeout_ms >= 0 && now >= end))
			return GW_ETIMEOUT;
		if (timeout_ms >= 0)
			timeout_ms = (int)((end - now + 999999) / 1000000);
	}
}
