#include "tools/client.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/publish.h"
#include "io/os/seqpacket.h"
#include "wire/codec.h"

int client_open(struct client *c, struct args *a)
{
	const char *run = arg_value(a, "run"), *env = getenv("GODWIT_RUN");
	char *path;
	int err;

	memset(c, 0, sizeof *c);
	c->fd = -1;
	gw_arena_init(&c->arena, 1 << 20);
	run = run ? run : env && env[0] ? env : "/run/godwit";
	path = gw_path_join(run, "control.sock");
	c->frame = malloc(GW_SEQ_MESSAGE_MAX);
	err = path && c->frame ? gw_seq_connect(path, &c->fd, NULL) : GW_ENOMEM;
	if (err && err != GW_ENOMEM)
		err = gw_diag_set(&a->why, GW_EUNREACH, "no daemon answers at %s (%s): is godwitd running on this host? --run names "
				  "its socket folder", path, gw_err_text(err));
	free(path);
	if (err)
		client_close(c);
	return err;
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	gw_arena_reset(&c->arena);
	free(c->frame);
	c->fd = -1;
	c->frame = NULL;
}

int client_send(struct client *c, const struct gw_msg *m, struct args *a)
{
	struct gw_wr w;
	int err;

	gw_wr_init(&w, GW_SEQ_MESSAGE_MAX);
	err = gw_msg_encode(m, &w);
	if (!err)
		err = gw_seq_send(c->fd, w.p, w.n, NULL, 0);
	gw_wr_free(&w);
	return err ? gw_diag_set(&a->why, err == GW_ECLOSED ? GW_EUNREACH : err, "the request cannot be sent: %s",
				 gw_err_text(err)) : 0;
}

static int take_reply(const struct gw_m_ctl_reply *r, struct args *a)
{
	int err = r->err < 0 && r->err > -1000 ? (int)r->err : r->err ? GW_EMALFORMED : 0;

	return err ? gw_diag_set(&a->why, err, "%.*s", (int)r->text.n, r->text.p) : 0;
}

int client_recv(struct client *c, struct gw_msg *out, enum gw_msg_type want, int timeout_ms, struct args *a)
{
	size_t n, fds = 0;
	int err = gw_seq_wait(c->fd, 0, timeout_ms);

	gw_arena_reset(&c->arena);
	if (!err)
		err = gw_seq_recv(c->fd, c->frame, GW_SEQ_MESSAGE_MAX, &n, NULL, 0, &fds);
	if (err)
		return gw_diag_set(&a->why, err == GW_ECLOSED ? GW_EUNREACH : err, "the daemon did not answer: %s",
				   gw_err_text(err));
	err = gw_msg_decode(c->frame, n, &c->arena, out);
	if (!err && out->type == GW_MSG_ctl_reply && want != GW_MSG_ctl_reply) {
		err = take_reply(&out->u.ctl_reply, a);
		return err ? err : gw_diag_set(&a->why, GW_EMALFORMED, "the daemon answered something else than was asked");
	}
	if (!err && out->type == GW_MSG_ctl_reply)
		return take_reply(&out->u.ctl_reply, a);
	if (!err && out->type != want)
		err = GW_EMALFORMED;
	return err ? gw_diag_set(&a->why, err, "the daemon's answer: %s", gw_err_text(err)) : 0;
}
