/*
 * A demonstration engine: it holds the weights of a real checkpoint in memory shared by libgodwit, attaches to godwitd, and
 * computes with them for every request. Tests and the quickstart ask it what it computed with.
 *
 *     demo_engine --checkpoint DIR --socket RUN/godwitd.sock --listen PATH [--ranks N [--rank R --instance HEX]]
 *                 [--version V] [--run HEX] [--in-process] [--digest]
 *
 * With --rank it is one worker process of N, else it holds all N ranks. --listen is a Unix socket for lines:
 *     gen SEED   {"version", "run", "digest", "sum", "matrices", "bytes", "ms"}; waits while paused
 *     state      {"state", "version", "pauses", "last_pause_ms"}
 * --digest loads, prints one `gen 0` line with the version given, and ends: what a fresh load computes with.
 *
 * Requests are computed between two looks at the daemon's wishes, as an engine looks between two decode steps.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hex.h"
#include "demo_model.h"
#include "io/os/clock.h"

enum { CLIENTS_MAX = 32, LINE_MAX_BYTES = 256 };

struct client {
	int fd;
	char line[LINE_MAX_BYTES];
	size_t n;
};

struct demo {
	const char *checkpoint, *socket, *listen;
	uint32_t ranks, rank, held; /* of the engine; ours, or held = ranks for all */
	int one_rank, in_process, digest_only;
	uint8_t instance[16], run[16];
	uint64_t version;
	struct demo_rank r[DEMO_RANKS_MAX];
	/* serving */
	unsigned paused, poisoned; /* ranks that are */
	int rank_paused[DEMO_RANKS_MAX], rank_poisoned[DEMO_RANKS_MAX];
	uint64_t paused_ns, last_pause_ns;
	unsigned pauses;
	int listener;
	struct client clients[CLIENTS_MAX];
};

static volatile sig_atomic_t ended;

static void on_signal(int signo)
{
	(void)signo;
	ended = 1;
}

/* --- answers --- */

static int print_result(const struct demo *d, char *out, size_t n, uint64_t seed)
{
	uint64_t t = gw_clock_mono_ns();
	char digest[65], run[33];
	struct demo_result r;

	demo_compute(d->r, d->held, seed, &r);
	return snprintf(out, n,
			"{\"version\": %lld, \"run\": \"%s\", \"digest\": \"%s\", \"sum\": %.9g, \"matrices\": %u, \"bytes\": "
			"%llu, \"ms\": %.3f}\n",
			(long long)d->version, gw_hex(run, d->run, 16), gw_hex(digest, r.digest, 32), r.sum, r.matrices,
			(unsigned long long)r.bytes, (double)(gw_clock_mono_ns() - t) / 1e6);
}

static int print_state(const struct demo *d, char *out, size_t n)
{
	return snprintf(out, n, "{\"state\": \"%s\", \"version\": %lld, \"pauses\": %u, \"last_pause_ms\": %.3f}\n",
			d->poisoned ? "poisoned" : d->paused ? "paused" : "serving", (long long)d->version, d->pauses,
			(double)d->last_pause_ns / 1e6);
}

static void drop_client(struct client *c)
{
	close(c->fd);
	c->fd = -1;
	c->n = 0;
}

static void reply(struct client *c, const char *text)
{
	if (send(c->fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		drop_client(c);
}

/* Answers the whole lines that can be answered now; a request to compute waits while paused. */
static void answer(struct demo *d, struct client *c)
{
	char out[512], *end;

	while (c->fd >= 0 && (end = memchr(c->line, '\n', c->n))) {
		size_t used = (size_t)(end - c->line) + 1;

		*end = 0;
		if (strcmp(c->line, "state") == 0) {
			print_state(d, out, sizeof out);
		} else if (strncmp(c->line, "gen ", 4) == 0) {
			if (d->paused && !d->poisoned) {
				*end = '\n';
				return;
			}
			if (d->poisoned)
				snprintf(out, sizeof out, "{\"error\": \"poisoned\"}\n");
			else
				print_result(d, out, sizeof out, strtoull(c->line + 4, NULL, 10));
		} else {
			snprintf(out, sizeof out, "{\"error\": \"gen SEED, or state\"}\n");
		}
		memmove(c->line, c->line + used, c->n - used);
		c->n -= used;
		reply(c, out);
	}
	if (c->n == sizeof c->line)
		drop_client(c);
}

static void read_client(struct demo *d, struct client *c)
{
	ssize_t n = recv(c->fd, c->line + c->n, sizeof c->line - c->n, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop_client(c);
		return;
	}
	c->n += (size_t)n;
	answer(d, c);
}

static void accept_client(struct demo *d)
{
	int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);

	for (int i = 0; fd >= 0 && i < CLIENTS_MAX; i++)
		if (d->clients[i].fd < 0) {
			d->clients[i].fd = fd;
			return;
		}
	if (fd >= 0)
		close(fd);
}

/* --- the daemon's wishes --- */

static void say(const struct demo *d, uint32_t i, const char *what, const char *more)
{
	printf("rank %u: %s%s%s\n", d->r[i].rank, what, more[0] ? " " : "", more);
	fflush(stdout);
}

static void count(struct demo *d)
{
	unsigned was = d->paused;

	d->paused = d->poisoned = 0;
	for (uint32_t i = 0; i < d->held; i++) {
		d->paused += (unsigned)d->rank_paused[i];
		d->poisoned += (unsigned)d->rank_poisoned[i];
	}
	if (!was && d->paused) {
		d->paused_ns = gw_clock_mono_ns();
		d->pauses++;
	} else if (was && !d->paused) {
		d->last_pause_ns = gw_clock_mono_ns() - d->paused_ns;
	}
}

static void wish(struct demo *d, uint32_t i, const struct godwit_event *ev)
{
	char text[64];

	snprintf(text, sizeof text, "version %lld", (long long)ev->version);
	switch (ev->kind) {
	case GODWIT_PAUSE:
		d->rank_paused[i] = 1;
		count(d);
		say(d, i, "pause", "");
		(void)godwit_engine_paused(d->r[i].engine); /* a daemon that is gone by now is an event to come */
		break;
	case GODWIT_RESUME:
		d->version = ev->version;
		memcpy(d->run, ev->run, sizeof d->run);
		d->rank_paused[i] = d->rank_poisoned[i] = 0;
		count(d);
		say(d, i, "resume", text);
		(void)godwit_engine_resumed(d->r[i].engine);
		break;
	case GODWIT_ATTACHED:
		say(d, i, "attached", text);
		break;
	case GODWIT_LOST:
		say(d, i, "lost the daemon", "");
		break;
	case GODWIT_REFUSED:
		say(d, i, "refused:", ev->text);
		break;
	case GODWIT_POISONED:
		d->rank_poisoned[i] = 1;
		count(d);
		say(d, i, "poisoned:", ev->text);
		break;
	case GODWIT_NONE:
		break;
	}
}

static int look(struct demo *d)
{
	struct godwit_event ev;
	int n;

	for (uint32_t i = 0; i < d->held; i++) {
		while ((n = godwit_engine_next(d->r[i].engine, &ev, 0)) > 0)
			wish(d, i, &ev);
		if (n < 0) {
			fprintf(stderr, "demo_engine: %s\n", godwit_engine_error(d->r[i].engine));
			return n;
		}
	}
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (d->clients[i].fd >= 0 && d->clients[i].n)
			answer(d, &d->clients[i]);
	return 0;
}

static int serve(struct demo *d)
{
	struct pollfd p[DEMO_RANKS_MAX + 1 + CLIENTS_MAX];

	while (!ended) {
		nfds_t n = 0;
		int err;

		for (uint32_t i = 0; i < d->held; i++)
			p[n++] = (struct pollfd){.fd = godwit_engine_fd(d->r[i].engine), .events = POLLIN};
		p[n++] = (struct pollfd){.fd = d->listener, .events = POLLIN};
		for (int i = 0; i < CLIENTS_MAX; i++)
			p[n++] = (struct pollfd){.fd = d->clients[i].fd, .events = POLLIN};
		if (poll(p, n, -1) < 0 && errno != EINTR)
			return gw_err_from_errno(errno);
		err = look(d);
		if (err)
			return err;
		if (p[d->held].revents)
			accept_client(d);
		for (int i = 0; i < CLIENTS_MAX; i++)
			if (p[d->held + 1 + (uint32_t)i].revents && d->clients[i].fd >= 0)
				read_client(d, &d->clients[i]);
	}
	return 0;
}

/* --- start --- */

static int make_rank(struct demo *d, uint32_t i, struct gw_diag *why)
{
	struct godwit_engine_info info = {.size = sizeof info, .engine = "demo", .engine_version = godwit_library_version(),
					  .rank = d->one_rank ? d->rank : i, .ranks = d->ranks,
					  .in_process = d->in_process, .version = d->version};
	struct demo_rank *r = &d->r[i];
	uint32_t segment;
	void *p;
	int err = demo_rank_plan(r, d->checkpoint, info.rank, d->ranks, why);

	if (err)
		return err;
	memcpy(info.instance, d->instance, sizeof info.instance);
	memcpy(info.run, d->run, sizeof info.run);
	err = godwit_engine_new(&r->engine, d->socket ? d->socket : "", &info);
	if (err)
		return gw_diag_set(why, err, "rank %u of %u: %s (several ranks need --instance)", info.rank, d->ranks,
				   godwit_strerror(err));
	for (int s = 0; s < 2; s++) {
		err = godwit_engine_add_segment(r->engine, r->bytes[s], &p, &segment);
		if (err)
			return gw_diag_set(why, err, "%s", godwit_engine_error(r->engine));
		r->memory[s] = p;
	}
	err = demo_rank_load(r, d->checkpoint, why);
	return err ? err : demo_rank_declare(r, why);
}

/* All ranks at once: the daemon answers when it has heard from the last. */
static int attach(struct demo *d, struct gw_diag *why)
{
	uint32_t done = 0;

	while (done < d->held && !ended) {
		done = 0;
		for (uint32_t i = 0; i < d->held; i++) {
			struct demo_rank *r = &d->r[i];
			int err = godwit_engine_version(r->engine) == GODWIT_VERSION_UNKNOWN ?
					  godwit_engine_attach(r->engine, d->held > 1 ? 5 : 200) : 0;

			if (err && err != GW_ETIMEOUT)
				return gw_diag_set(why, err, "%s", godwit_engine_error(r->engine));
			done += err == 0;
		}
	}
	if (ended)
		return GW_EINTR;
	d->version = godwit_engine_version(d->r[0].engine);
	printf("attached version %lld\n", (long long)d->version);
	fflush(stdout);
	return 0;
}

static int open_listener(struct demo *d, struct gw_diag *why)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	if (strlen(d->listen) >= sizeof a.sun_path)
		return gw_diag_set(why, GW_EINVAL, "%s: longer than a socket's path may be", d->listen);
	strcpy(a.sun_path, d->listen);
	(void)unlink(d->listen); /* one that a killed engine left */
	d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (d->listener < 0 || bind(d->listener, (struct sockaddr *)&a, sizeof a) || listen(d->listener, 16))
		return gw_diag_set(why, gw_err_from_errno(errno), "%s: %s", d->listen, strerror(errno));
	return 0;
}

static int parse(int argc, char **argv, struct demo *d, struct gw_diag *why)
{
	static const struct option longs[] = {
		{"checkpoint", 1, NULL, 'c'}, {"socket", 1, NULL, 's'},   {"listen", 1, NULL, 'l'},
		{"ranks", 1, NULL, 'n'},      {"rank", 1, NULL, 'r'},     {"instance", 1, NULL, 'i'},
		{"version", 1, NULL, 'v'},    {"run", 1, NULL, 'u'},      {"in-process", 0, NULL, 'p'},
		{"digest", 0, NULL, 'd'},     {NULL, 0, NULL, 0},
	};
	int c, bad = 0;

	d->ranks = 1;
	d->version = GODWIT_VERSION_UNKNOWN;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'c': d->checkpoint = optarg; break;
		case 's': d->socket = optarg; break;
		case 'l': d->listen = optarg; break;
		case 'n': d->ranks = (uint32_t)strtoul(optarg, NULL, 10); break;
		case 'r':
			d->rank = (uint32_t)strtoul(optarg, NULL, 10);
			d->one_rank = 1;
			break;
		case 'i': bad |= gw_unhex(d->instance, 16, optarg); break;
		case 'u': bad |= gw_unhex(d->run, 16, optarg); break;
		case 'v': d->version = strtoull(optarg, NULL, 10); break;
		case 'p': d->in_process = 1; break;
		case 'd': d->digest_only = 1; break;
		default: bad = 1;
		}
	d->held = d->one_rank ? 1 : d->ranks;
	if (bad || optind != argc || !d->checkpoint || d->held == 0 || d->held > DEMO_RANKS_MAX ||
	    (!d->digest_only && (!d->socket || !d->listen)))
		return gw_diag_set(why, GW_EINVAL, "see the head of tools/demo_engine.c for its options");
	if (!d->one_rank && d->ranks > 1)
		d->instance[0] |= 1; /* a name for all ranks that this process holds: its pid follows */
	for (int i = 0; !d->one_rank && d->ranks > 1 && i < 4; i++)
		d->instance[4 + i] = (uint8_t)((unsigned)getpid() >> 8 * i);
	return 0;
}

int main(int argc, char **argv)
{
	struct demo d = {.listener = -1};
	struct gw_diag why = {""};
	char line[512];
	int err = parse(argc, argv, &d, &why);

	for (int i = 0; i < CLIENTS_MAX; i++)
		d.clients[i].fd = -1;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	for (uint32_t i = 0; !err && i < d.held; i++)
		err = make_rank(&d, i, &why);
	if (!err && d.digest_only) {
		print_result(&d, line, sizeof line, 0);
		fputs(line, stdout);
	} else if (!err) {
		err = attach(&d, &why);
		if (!err)
			err = open_listener(&d, &why);
		if (!err)
			err = serve(&d);
	}
	if (err && err != GW_EINTR)
		fprintf(stderr, "demo_engine: %s\n", why.text[0] ? why.text : gw_err_text(err));
	for (uint32_t i = 0; i < d.held; i++)
		demo_rank_free(&d.r[i]);
	if (d.listener >= 0) {
		close(d.listener);
		unlink(d.listen);
	}
	return gw_err_exit_code(err == GW_EINTR ? 0 : err);
}
