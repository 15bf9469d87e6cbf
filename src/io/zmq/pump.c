#include "io/zmq/pump.h"

#include <string.h>
#include <sys/epoll.h>
#include <zmq.h>

#include "io/zmq/net.h"

static void look_at(struct gw_pump *p, struct gw_pump_socket *s)
{
	int more;

	p->first = s->next;
	if (!p->first)
		p->last = &p->first;
	s->waiting = 0;
	p->current = s;
	more = s->ready(s->ctx);
	/* Perhaps gone, with its memory, inside its own callback. */
	if (p->current == s && more)
		gw_pump_touch(s);
	p->current = NULL;
}

/* Looks once at each that waits; says whether any waits then. */
static int look_at_all(void *ctx)
{
	struct gw_pump *p = ctx;
	size_t n = 0;

	for (struct gw_pump_socket *s = p->first; s; s = s->next)
		n++;
	while (n-- && p->first)
		look_at(p, p->first);
	return p->first != NULL;
}

int gw_pump_init(struct gw_pump *p, struct gw_loop *l)
{
	*p = (struct gw_pump){l, NULL, NULL, NULL};
	p->last = &p->first;
	return gw_loop_idle(l, look_at_all, p);
}

void gw_pump_end(struct gw_pump *p)
{
	if (p->loop)
		gw_loop_unidle(p->loop, look_at_all, p);
	memset(p, 0, sizeof *p);
}

void gw_pump_touch(struct gw_pump_socket *s)
{
	struct gw_pump *p = s->pump;

	if (!p || s->waiting)
		return;
	s->waiting = 1;
	s->next = NULL;
	*p->last = s;
	p->last = &s->next;
}

static void on_signal(void *ctx, uint32_t events)
{
	(void)events;
	gw_pump_touch(ctx);
}

int gw_pump_add(struct gw_pump *p, struct gw_pump_socket *s, void *socket, int (*ready)(void *ctx), void *ctx)
{
	int fd, err;
	size_t n = sizeof fd;

	if (zmq_getsockopt(socket, ZMQ_FD, &fd, &n))
		return gw_net_error();
	memset(s, 0, sizeof *s);
	s->ready = ready;
	s->ctx = ctx;
	err = gw_loop_watch(p->loop, fd, EPOLLIN, on_signal, s, &s->watch);
	if (err)
		return err;
	s->pump = p;
	gw_pump_touch(s);
	return 0;
}

void gw_pump_remove(struct gw_pump_socket *s)
{
	struct gw_pump *p = s->pump;
	struct gw_pump_socket **at;

	if (!p)
		return;
	if (s->waiting) {
		for (at = &p->first; *at != s; at = &(*at)->next)
			;
		*at = s->next;
		if (!*at)
			p->last = at;
	}
	if (p->current == s)
		p->current = NULL;
	gw_loop_unwatch(s->watch);
	memset(s, 0, sizeof *s);
}
