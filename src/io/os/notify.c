#include "io/os/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"

int gw_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	ssize_t sent;
	int fd, err;

	if (!n)
		return 0;
	if ((path[0] != '/' && path[0] != '@') || n >= sizeof a.sun_path)
		return GW_EINVAL;
	memcpy(a.sun_path, path, n);
	if (path[0] == '@')
		a.sun_path[0] = '\0'; /* abstract */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return gw_err_from_errno(errno);
	sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&a,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	err = sent < 0 ? gw_err_from_errno(errno) : 1;
	(void)close(fd);
	return err;
}

static uint64_t env_number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	unsigned long long v;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	v = strtoull(text, &end, 10);
	return errno || *end ? 0 : v;
}

uint64_t gw_notify_watchdog_ns(void)
{
	uint64_t pid = env_number("WATCHDOG_PID"), us = env_number("WATCHDOG_USEC");

	if ((pid && pid != (uint64_t)getpid()) || us > UINT64_MAX / 1000)
		return 0;
	return us * 1000;
}
