#include "control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/publish.h"
#include "io/os/seqpacket.h"
#include "wire/codec.h"

int control_open(struct control *c, const char *run, struct gw_diag *why)
{
	const char *env = getenv("GODWIT_RUN");
	char *path = gw_path_join(run ? run : env && env[0] ? env : CONTROL_RUN_DEFAULT, "control.sock");
	int err;

	memset(c, 0, sizeof *c);
	gw_arena_init(&c->arena, 8 << 20);
	c->frame = malloc(GW_SEQ_MESSAGE_MAX);
	if (!path || !c->frame) {
		free(path);
		free(c->frame);
		return GW_ENOMEM;
	}
	err = gw_seq_connect(path, &c->fd, NULL);
	if (err) {
		gw_diag_set(why, err = err == GW_EACCESS ? err : GW_EUNREACH,
			    "no daemon answers at %s; is godwitd running, and as whom?", path);
		free(c->frame);
	}
	free(path);
	return err;
}

int control_send(struct control *c, const struct gw_msg *m, struct gw_diag *why)
{
	struct gw_wr w;
	int err;

	gw_wr_init(&w, GW_SEQ_MESSAGE_MAX);
	err = gw_msg_encode(m, &w);
	if (!err)
		err = gw_seq_send(c->fd, w.p, w.n, NULL, 0);
	gw_wr_free(&w);
	return err ? gw_diag_set(why, err == GW_ECLOSED ? GW_EUNREACH : err, "the request cannot be sent: %s", gw_err_text(err))
		   : 0;
}

static int take_reply(const struct gw_m_ctl_reply *r, struct gw_diag *why)
{
	if (!r->err)
		return 0;
	return gw_diag_set(why, r->err < 0 && r->err > -1000 ? (int)r->err : GW_EIO, "%.*s", (int)r->text.n, r->text.p);
}

int control_next(struct control *c, enum gw_msg_type want, int timeout_ms, struct gw_msg *answer, struct gw_diag *why)
{
	size_t n, nfds = 0;
	int err = gw_seq_wait(c->fd, 0, timeout_ms);

	gw_arena_reset(&c->arena);
	if (!err)
		err = gw_seq_recv(c->fd, c->frame, GW_SEQ_MESSAGE_MAX, &n, NULL, 0, &nfds);
	if (!err)
		err = gw_msg_decode(c->frame, n, &c->arena, answer);
	if (err == GW_ECLOSED)
		return gw_diag_set(why, GW_EUNREACH, "the daemon went away before it answered");
	if (err)
		return gw_diag_set(why, err, "asking the daemon: %s", gw_err_text(err));
	if (answer->type == GW_MSG_ctl_reply)
		err = take_reply(&answer->u.ctl_reply, why);
	if (!err && answer->type != want)
		err = gw_diag_set(why, GW_EMALFORMED, "the daemon gave another answer than asked for");
	return err;
}

int control_ask(struct control *c, const struct gw_msg *request, enum gw_msg_type want, int timeout_ms,
		struct gw_msg *answer, struct gw_diag *why)
{
	int err = control_send(c, request, why);

	return err ? err : control_next(c, want, timeout_ms, answer, why);
}

void control_close(struct control *c)
{
	close(c->fd);
	gw_arena_reset(&c->arena);
	free(c->frame);
}
