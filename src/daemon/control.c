#include "daemon/control.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "daemon/server.h"

enum { PEERS_MAX = 64 };

struct peer {
	struct gw_control *c;
	struct peer *next, **link;
	struct gw_peer *peer;
	uint64_t who;
};

struct gw_control {
	struct gw_server *server;
	gw_control_request *request;
	void *ctx;
	struct peer *peers;
	uint64_t last;
};

static int opened(void *arg, struct gw_peer *p, const struct gw_seq_peer *who, void **ctx)
{
	struct gw_control *c = arg;
	struct peer *peer = calloc(1, sizeof *peer);

	(void)who;
	if (!peer)
		return GW_ENOMEM;
	*peer = (struct peer){.c = c, .peer = p, .who = ++c->last, .next = c->peers, .link = &c->peers};
	if (peer->next)
		peer->next->link = &peer->next;
	c->peers = peer;
	*ctx = peer;
	return 0;
}

static void closed(void *ctx)
{
	struct peer *peer = ctx;

	*peer->link = peer->next;
	if (peer->next)
		peer->next->link = peer->link;
	free(peer);
}

static int message(void *ctx, const struct gw_msg *m, const int *fds, size_t nfds)
{
	struct peer *peer = ctx;
	int err = peer->c->request(peer->c->ctx, peer->who, m);

	(void)fds;
	(void)nfds;
	if (err != GW_EUNKNOWN)
		return err;
	gw_control_reply(peer->c, peer->who, GW_EUNKNOWN, "this daemon does not answer such a request");
	return 0;
}

int gw_control_new(struct gw_control **out, struct gw_loop *l, const char *path, gid_t group,
		   gw_control_request *request, void *ctx, struct gw_diag *why)
{
	struct gw_control *c = calloc(1, sizeof *c);
	struct gw_server_config cfg = {.path = path, .group = group, .peers_max = PEERS_MAX, .unknown = 1, .opened = opened,
				       .message = message, .closed = closed, .arg = c};
	int err;

	if (!c)
		return GW_ENOMEM;
	c->request = request;
	c->ctx = ctx;
	err = gw_server_new(&c->server, l, &cfg, why);
	if (err) {
		free(c);
		return err;
	}
	*out = c;
	return 0;
}

void gw_control_free(struct gw_control *c)
{
	if (!c)
		return;
	gw_server_free(c->server);
	free(c);
}

void gw_control_send(struct gw_control *c, uint64_t who, const struct gw_msg *m)
{
	for (struct peer *p = c->peers; p; p = p->next)
		if (p->who == who) {
			(void)gw_peer_send(p->peer, m, NULL, 0); /* a broken one is closed by the server */
			return;
		}
}

void gw_control_reply(struct gw_control *c, uint64_t who, int err, const char *text)
{
	struct gw_msg m = {.type = GW_MSG_ctl_reply};
	char clean[512]; /* a path in it may be of any bytes */

	m.u.ctl_reply.err = err;
	m.u.ctl_reply.text = (struct gw_text){.p = clean, .n = gw_utf8_clean(clean, sizeof clean, text)};
	gw_control_send(c, who, &m);
}
