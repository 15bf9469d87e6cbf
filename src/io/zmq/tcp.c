/* Apart from inbound.c because <linux/tcp.h> and <netinet/tcp.h> exclude each other. */
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "io/zmq/inbound.h"

int gw_tcp_consumed(int fd, uint64_t *bytes)
{
	struct tcp_info info;
	socklen_t n = sizeof info;
	int unread = 0;

	memset(&info, 0, sizeof info);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) ||
	    n < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
		return GW_EUNSUP;
	/* What still lies in the kernel is the kernel's to bound. */
	if (ioctl(fd, FIONREAD, &unread) || unread < 0)
		unread = 0;
	*bytes = info.tcpi_bytes_received;
	*bytes -= (uint64_t)unread < *bytes ? (uint64_t)unread : *bytes;
	return 0;
}

void gw_tcp_shutdown(int fd)
{
	int protocol = 0;
	socklen_t n = sizeof protocol;

	/* The descriptor may have been closed and be somebody else's by now; of ours only TCP connections can be hit,
	 * and those are opened again. */
	if (!getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) && protocol == IPPROTO_TCP)
		(void)shutdown(fd, SHUT_RDWR);
}

uint64_t gw_wire_bytes(size_t n)
{
	return n + 64;
}

/* 64 bytes a second: what a peer's heartbeats, if it sends any, may add. */
uint64_t gw_undelivered_allowed(uint64_t max, uint64_t age_ns)
{
	return max + (1 << 20) + age_ns / 1000000000 * 64;
}
