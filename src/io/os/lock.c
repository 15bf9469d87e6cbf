#include "io/os/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* For people alone; the lock itself does not depend on it. */
static void sign(int fd)
{
	char text[24];
	int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());

	if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n)
		return;
}

static int refuse(int fd, const char *dir, struct gw_diag *why)
{
	char pid[24] = "";
	ssize_t n = pread(fd, pid, sizeof pid - 1, 0);

	pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
	return gw_diag_set(why, GW_ESTATE, "%s is in use by another process (%s); stop that one, or choose another folder "
			   "(--state)", dir, pid[0] ? pid : "unknown");
}

int gw_lock_folder(const char *dir, int *out, struct gw_diag *why)
{
	char path[4096];
	int fd, err;

	if (snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path)
		return gw_diag_set(why, GW_EINVAL, "%.80s…: too long", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		err = gw_err_from_errno(errno);
		return gw_diag_set(why, err, "cannot write %s: %s", path, gw_err_text(err));
	}
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		err = errno == EWOULDBLOCK ? refuse(fd, dir, why) : gw_err_from_errno(errno);
		(void)close(fd);
		return gw_diag_set(why, err, "cannot lock %s: %s", path, gw_err_text(err));
	}
	sign(fd);
	*out = fd;
	return 0;
}
