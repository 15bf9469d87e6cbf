#include "daemon/server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "wire/codec.h"

enum { FDS_MAX = 2, ARENA_BYTES = 8 << 20, RECEIVE_TURN = 64 };
static const uint64_t finish_ns = 5000000000;

struct gw_peer {
	struct gw_server *s;
	struct gw_peer *next, **link;
	int fd;
	int broken;    /* a send failed: close on the next turn */
	int finishing;
	struct gw_watch *watch;
	struct gw_timer timer;
	void *ctx;
};

struct gw_server {
	struct gw_server_config cfg;
	char *path;
	struct gw_loop *loop;
	int fd;
	struct gw_watch *watch;
	struct gw_peer *peers;
	size_t n;
	uint8_t *frame;
	struct gw_arena arena;
};

static void close_peer(struct gw_peer *p)
{
	struct gw_server *s = p->s;

	*p->link = p->next;
	if (p->next)
		p->next->link = p->link;
	s->n--;
	gw_timer_stop(s->loop, &p->timer);
	gw_loop_unwatch(p->watch);
	s->cfg.closed(p->ctx);
	close(p->fd);
	free(p);
}

static void finish_late(void *ctx)
{
	close_peer(ctx);
}

/* One packet: 0, GW_EAGAIN where there is none, or an error that ends the peer. */
static int receive(struct gw_peer *p)
{
	struct gw_server *s = p->s;
	struct gw_msg m;
	int fds[FDS_MAX], err;
	size_t n, nfds = 0;

	err = gw_seq_recv(p->fd, s->frame, GW_SEQ_MESSAGE_MAX, &n, fds, s->cfg.fds_max, &nfds);
	if (err)
		return err;
	if (!p->finishing) {
		err = gw_msg_decode(s->frame, n, &s->arena, &m);
		if (err == GW_EUNKNOWN && !s->cfg.unknown)
			err = 0;
		else if (!err || err == GW_EUNKNOWN) /* then the message is all zeros */
			err = s->cfg.message(p->ctx, &m, fds, nfds);
		gw_arena_reset(&s->arena);
	}
	gw_seq_close_fds(fds, nfds);
	return err;
}

static void peer_ready(void *ctx, uint32_t events)
{
	struct gw_peer *p = ctx;
	int err = 0;

	if (p->broken || (events & EPOLLERR))
		err = GW_ECLOSED;
	for (int i = 0; !err && i < RECEIVE_TURN; i++)
		err = receive(p);
	if (err == GW_EAGAIN && !p->broken)
		return;
	if (err)
		close_peer(p);
}

static int new_peer(struct gw_server *s, int fd, const struct gw_seq_peer *who)
{
	struct gw_peer *p;
	int err;

	if (who->uid != 0 && who->uid != geteuid() && (s->cfg.group == (gid_t)-1 || who->gid != s->cfg.group))
		return GW_EACCESS;
	if (s->n >= s->cfg.peers_max)
		return GW_ELIMIT;
	p = calloc(1, sizeof *p);
	if (!p)
		return GW_ENOMEM;
	p->s = s;
	p->fd = fd;
	p->timer = (struct gw_timer){.fire = finish_late, .ctx = p};
	err = s->cfg.opened(s->cfg.arg, p, who, &p->ctx);
	if (err)
		goto err0;
	err = gw_loop_watch(s->loop, fd, EPOLLIN, peer_ready, p, &p->watch);
	if (err)
		goto err1;
	p->link = &s->peers;
	p->next = s->peers;
	if (p->next)
		p->next->link = &p->next;
	s->peers = p;
	s->n++;
	return 0;
err1:
	s->cfg.closed(p->ctx);
err0:
	free(p);
	return err;
}

static void listener_ready(void *ctx, uint32_t events)
{
	struct gw_server *s = ctx;
	struct gw_seq_peer who;
	int fd;

	(void)events;
	while (gw_seq_accept(s->fd, &fd, &who) == 0) {
		int err = new_peer(s, fd, &who);

		if (err) {
			GW_LOG(GW_LOG_WARN, "local peer refused", "socket", s->path, "why", gw_err_text(err), NULL);
			close(fd);
		}
	}
}

int gw_server_new(struct gw_server **out, struct gw_loop *l, const struct gw_server_config *cfg, struct gw_diag *why)
{
	struct gw_server *s = calloc(1, sizeof *s);
	int err = GW_ENOMEM;

	if (!s)
		return GW_ENOMEM;
	s->cfg = *cfg;
	s->loop = l;
	gw_arena_init(&s->arena, ARENA_BYTES);
	s->path = strdup(cfg->path);
	s->frame = malloc(GW_SEQ_MESSAGE_MAX);
	if (!s->path || !s->frame)
		goto err0;
	err = gw_seq_listen(cfg->path, cfg->group == (gid_t)-1 ? 0600 : 0660, &s->fd, why);
	if (err)
		goto err0;
	err = gw_loop_watch(l, s->fd, EPOLLIN, listener_ready, s, &s->watch);
	if (err)
		goto err1;
	*out = s;
	return 0;
err1:
	close(s->fd);
err0:
	free(s->frame);
	free(s->path);
	free(s);
	return err;
}

void gw_server_free(struct gw_server *s)
{
	if (!s)
		return;
	gw_loop_unwatch(s->watch);
	while (s->peers)
		close_peer(s->peers);
	close(s->fd);
	unlink(s->path);
	gw_arena_reset(&s->arena);
	free(s->frame);
	free(s->path);
	free(s);
}

int gw_peer_send(struct gw_peer *p, const struct gw_msg *m, const int *fds, size_t nfds)
{
	struct gw_wr w;
	int err;

	if (p->broken)
		return GW_ECLOSED;
	gw_wr_init(&w, GW_SEQ_MESSAGE_MAX);
	err = gw_msg_encode(m, &w);
	if (!err)
		err = gw_seq_send(p->fd, w.p, w.n, fds, nfds);
	gw_wr_free(&w);
	if (!err)
		return 0;
	/* A full socket means a peer that has left hundreds of messages unread. */
	p->broken = 1;
	gw_loop_watch_events(p->watch, EPOLLIN | EPOLLOUT);
	gw_timer_set(p->s->loop, &p->timer, gw_loop_now_ns(p->s->loop));
	return GW_ECLOSED;
}

void gw_peer_finish(struct gw_peer *p)
{
	if (p->finishing)
		return;
	p->finishing = 1;
	gw_timer_set(p->s->loop, &p->timer, gw_loop_now_ns(p->s->loop) + finish_ns);
}

int gw_peer_fd(const struct gw_peer *p)
{
	return p->fd;
}
