/*
 * A TCP forwarder that counts what crosses borders between regions, for demonstrations and tests.
 *
 *   forward --region NAME=ADDRESS-PREFIX … --port ADDR:PORT=TARGET-ADDR:PORT,CHANNEL … --count FILE
 *           [--corrupt CHANNEL=BYTES]
 *
 * Each --port line listens and passes connections on to its target. The source region of a connection is
 * that of its peer's address, the other one that of the target (--region eu=127.0.2. covers 127.0.2.*).
 * On SIGUSR1, and at SIGTERM or SIGINT, FILE is replaced by one JSON document:
 *   [{"from": REGION, "to": REGION, "channel": CHANNEL, "bytes": N}, …]
 * where bytes flowed from `from` to `to`, over connections that either side opened.
 *
 * With --corrupt one bit in every BYTES bytes of that channel is flipped from the first SIGUSR2 to the second, from the
 * third to the fourth, and so on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REGIONS = 16, CHANNELS = 4, PORTS = 256, BUFFER = 128 * 1024, NAME = 32 };

struct region {
	char name[NAME], prefix[NAME];
};

struct side;

/* What an epoll event points to. */
struct watched {
	enum { LISTENER, SIDE, SIGNALS } kind;
	int fd;
};

struct port {
	struct watched w;
	struct sockaddr_in target;
	unsigned channel, to;
};

/* One direction's buffer lies with the side that it was read from. */
struct side {
	struct watched w;
	struct side *other;
	uint64_t *count;  /* where bytes read from here are added */
	unsigned channel;
	size_t n, at;     /* read, and of those already written to the other side */
	int eof, connecting, shut, dead;
	uint32_t events;
	uint8_t buf[BUFFER];
};

static struct region regions[REGIONS];
static unsigned region_count, port_count, channel_count;
static char channels[CHANNELS][NAME];
static struct port ports[PORTS];
static uint64_t counts[REGIONS][REGIONS][CHANNELS];
static int ep;
static const char *count_file;
static int corrupting;
static unsigned corrupt_channel = CHANNELS;
static uint64_t corrupt_every, corrupt_left; /* bytes */

static void die(const char *what, const char *detail)
{
	(void)fprintf(stderr, "forward: %s: %s\n", what, detail);
	exit(2);
}

static unsigned region_of(struct in_addr a)
{
	char text[INET_ADDRSTRLEN];

	(void)inet_ntop(AF_INET, &a, text, sizeof text);
	for (unsigned i = 0; i < region_count; i++)
		if (!strncmp(text, regions[i].prefix, strlen(regions[i].prefix)))
			return i;
	return REGIONS;
}

static unsigned channel_named(const char *name)
{
	for (unsigned i = 0; i < channel_count; i++)
		if (!strcmp(channels[i], name))
			return i;
	if (channel_count == CHANNELS || strlen(name) >= NAME)
		die("too many channels, or too long a name", name);
	(void)snprintf(channels[channel_count], NAME, "%s", name);
	return channel_count++;
}

static struct sockaddr_in parse_address(const char *text)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	char host[INET_ADDRSTRLEN];
	const char *colon = strrchr(text, ':');
	long port = colon ? strtol(colon + 1, NULL, 10) : 0;

	if (!colon || (size_t)(colon - text) >= sizeof host || port < 1 || port > 65535)
		die("not ADDRESS:PORT", text);
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = 0;
	if (inet_pton(AF_INET, host, &sa.sin_addr) != 1)
		die("not an IPv4 address", host);
	sa.sin_port = htons((uint16_t)port);
	return sa;
}

static void add_region(char *text)
{
	char *eq = strchr(text, '=');

	if (!eq || region_count == REGIONS || eq - text >= NAME || strlen(eq + 1) >= NAME)
		die("bad --region", text);
	*eq = 0;
	(void)snprintf(regions[region_count].name, NAME, "%s", text);
	(void)snprintf(regions[region_count++].prefix, NAME, "%s", eq + 1);
}

static void set_corrupt(char *text)
{
	char *eq = strchr(text, '=');

	corrupt_every = eq ? strtoull(eq + 1, NULL, 10) : 0;
	if (!corrupt_every)
		die("bad --corrupt", text);
	*eq = 0;
	corrupt_channel = channel_named(text);
	corrupt_left = corrupt_every;
}

static void watch(struct watched *w, uint32_t events, int op)
{
	struct epoll_event ev = {.events = events, .data = {.ptr = w}};

	if (epoll_ctl(ep, op, w->fd, &ev))
		die("epoll_ctl", strerror(errno));
}

static void add_port(char *text)
{
	char *eq = strchr(text, '='), *comma = eq ? strchr(eq, ',') : NULL;
	struct sockaddr_in sa;
	struct port *p = &ports[port_count];
	int one = 1;

	if (!comma || port_count == PORTS)
		die("bad --port", text);
	*eq = *comma = 0;
	sa = parse_address(text);
	p->target = parse_address(eq + 1);
	p->channel = channel_named(comma + 1);
	p->to = region_of(p->target.sin_addr);
	if (p->to == REGIONS)
		die("target in no --region", eq + 1);
	p->w.kind = LISTENER;
	p->w.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	(void)setsockopt(p->w.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(p->w.fd, (struct sockaddr *)&sa, sizeof sa) || listen(p->w.fd, 128))
		die(text, strerror(errno));
	watch(&p->w, EPOLLIN, EPOLL_CTL_ADD);
	port_count++;
}

static void write_counts(void)
{
	char temp[4096];
	const char *comma = "";
	FILE *f;

	(void)snprintf(temp, sizeof temp, "%s.tmp", count_file);
	f = fopen(temp, "w");
	if (!f)
		die(temp, strerror(errno));
	(void)fputc('[', f);
	for (unsigned a = 0; a < region_count; a++)
		for (unsigned b = 0; b < region_count; b++)
			for (unsigned c = 0; c < channel_count; c++) {
				if (!counts[a][b][c])
					continue;
				(void)fprintf(f, "%s\n  {\"from\": \"%s\", \"to\": \"%s\", \"channel\": \"%s\", \"bytes\": %llu}",
					      comma, regions[a].name, regions[b].name, channels[c],
					      (unsigned long long)counts[a][b][c]);
				comma = ",";
			}
	(void)fputs("\n]\n", f);
	if (fclose(f) || rename(temp, count_file))
		die(count_file, strerror(errno));
}

static void want(struct side *s)
{
	uint32_t events = 0;

	if (!s->eof && !s->connecting && s->n == 0)
		events |= EPOLLIN;
	if (s->connecting || s->other->n > s->other->at)
		events |= EPOLLOUT;
	if (events != s->events)
		watch(&s->w, events, EPOLL_CTL_MOD);
	s->events = events;
}

static void accept_one(struct port *p)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	int fd = accept4(p->w.fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
	struct side *a, *b;
	unsigned from;

	if (fd < 0)
		return;
	from = region_of(peer.sin_addr);
	if (from == REGIONS) { /* it would go uncounted */
		(void)fprintf(stderr, "forward: a connection from an address in no --region was refused\n");
		close(fd);
		return;
	}
	a = calloc(1, sizeof *a);
	b = calloc(1, sizeof *b);
	if (!a || !b)
		die("accept", "out of memory");
	a->w = (struct watched){SIDE, fd};
	b->w = (struct watched){SIDE, socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
	a->other = b;
	b->other = a;
	a->count = &counts[from][p->to][p->channel];
	b->count = &counts[p->to][from][p->channel];
	a->channel = b->channel = p->channel;
	b->connecting = 1;
	(void)setsockopt(a->w.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	(void)setsockopt(b->w.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (b->w.fd < 0 || (connect(b->w.fd, (struct sockaddr *)&p->target, sizeof p->target) && errno != EINPROGRESS)) {
		close(a->w.fd);
		if (b->w.fd >= 0)
			close(b->w.fd);
		free(a);
		free(b);
		return;
	}
	watch(&a->w, 0, EPOLL_CTL_ADD);
	watch(&b->w, 0, EPOLL_CTL_ADD);
	want(a);
	want(b);
}

/* Both sides are freed after the batch of events, since the batch may still name them. */
static void end(struct side *s)
{
	s->dead = s->other->dead = 1;
}

static void flush(struct side *from)
{
	struct side *to = from->other;

	while (from->at < from->n) {
		ssize_t r = send(to->w.fd, from->buf + from->at, from->n - from->at, MSG_NOSIGNAL);

		if (r < 0 && errno == EAGAIN)
			return;
		if (r <= 0) {
			end(from);
			return;
		}
		*from->count += (uint64_t)r;
		from->at += (size_t)r;
	}
	from->n = from->at = 0;
	if (from->eof && !to->shut) {
		to->shut = 1;
		(void)shutdown(to->w.fd, SHUT_WR);
	}
}

static void corrupt(struct side *s)
{
	size_t at = 0;

	if (!corrupting || s->channel != corrupt_channel)
		return;
	while (s->n - at >= corrupt_left) {
		at += (size_t)corrupt_left;
		s->buf[at - 1] ^= 0x10;
		corrupt_left = corrupt_every;
	}
	corrupt_left -= s->n - at;
}

static void on_side(struct side *s, uint32_t events)
{
	int err = 0;
	socklen_t len = sizeof err;

	if (s->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
		(void)getsockopt(s->w.fd, SOL_SOCKET, SO_ERROR, &err, &len);
		if (err) {
			end(s);
			return;
		}
		s->connecting = 0;
	}
	if (events & EPOLLERR) {
		end(s);
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP) && s->n == 0 && !s->eof) {
		ssize_t r = recv(s->w.fd, s->buf, sizeof s->buf, 0);

		if (r < 0 && errno != EAGAIN) {
			end(s);
			return;
		}
		s->eof = r == 0;
		s->n = r > 0 ? (size_t)r : 0;
		corrupt(s);
	}
	if (!s->other->connecting)
		flush(s);
	if (!s->connecting)
		flush(s->other);
	if (s->eof && s->other->eof && !s->n && !s->other->n)
		end(s);
	if (!s->dead) {
		want(s);
		want(s->other);
	}
}

static void reap(struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		struct watched *w = ev[i].data.ptr;
		struct side *s = (struct side *)(void *)w, *other;

		if (!w || w->kind != SIDE || !s->dead)
			continue;
		other = s->other;
		for (int j = i; j < n; j++)
			if (ev[j].data.ptr == s || ev[j].data.ptr == other)
				ev[j].data.ptr = NULL;
		close(s->w.fd);
		close(other->w.fd);
		free(s);
		free(other);
	}
}

static void loop(struct watched *signals)
{
	struct epoll_event ev[64];

	for (;;) {
		int n = epoll_wait(ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			struct watched *w = ev[i].data.ptr;
			struct signalfd_siginfo info;

			if (w->kind == LISTENER) {
				accept_one((struct port *)(void *)w);
			} else if (w->kind == SIDE) {
				struct side *s = (struct side *)(void *)w;

				if (!s->dead)
					on_side(s, ev[i].events);
			} else if (read(signals->fd, &info, sizeof info) == sizeof info) {
				if (info.ssi_signo == SIGUSR2) {
					corrupting = !corrupting;
					continue;
				}
				write_counts();
				if (info.ssi_signo != SIGUSR1)
					return;
			}
		}
		reap(ev, n);
	}
}

int main(int argc, char **argv)
{
	struct watched signals = {SIGNALS, -1};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	ep = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--region"))
			add_region(argv[i + 1]);
		else if (!strcmp(argv[i], "--port"))
			add_port(argv[i + 1]);
		else if (!strcmp(argv[i], "--count"))
			count_file = argv[i + 1];
		else if (!strcmp(argv[i], "--corrupt"))
			set_corrupt(argv[i + 1]);
		else
			die("unknown option", argv[i]);
	}
	if (!count_file || !port_count || argc % 2 == 0)
		die("usage", "forward --region NAME=PREFIX … --port ADDR:PORT=TARGET:PORT,CHANNEL … --count FILE [--corrupt CHANNEL=BYTES]");
	signals.fd = signalfd(-1, &set, SFD_CLOEXEC);
	watch(&signals, EPOLLIN, EPOLL_CTL_ADD);
	loop(&signals);
	return 0;
}
