/*
 * A Unix SOCK_SEQPACKET socket on the loop, for engines (attach.h) and tools (control.h): accepts, checks who is
 * there, and turns packets into messages of proto/messages.def.
 *
 * A peer that is not admitted, sends what does not decode, or does not read what it is sent is dropped. Messages of
 * numbers that this daemon does not know are skipped: a newer peer may send them.
 *
 * Everything happens on the loop's thread.
 */
#ifndef GW_DAEMON_SERVER_H
#define GW_DAEMON_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "io/os/loop.h"
#include "io/os/seqpacket.h"
#include "wire/msg.h"

struct gw_server;
struct gw_peer;

struct gw_server_config {
	const char *path;
	gid_t group;         /* whose members are admitted too; (gid_t)-1: none. Always: root and this process's user */
	size_t peers_max;
	size_t fds_max;      /* descriptors that a message may bring, at most 2 */
	int unknown;         /* messages of unknown kinds are handed over as well, all zeros, since their senders wait; else skipped */
	/* New peer; *ctx is given to the others. An error refuses it. */
	int (*opened)(void *arg, struct gw_peer *p, const struct gw_seq_peer *who, void **ctx);
	/* fds are the callee's to use and the server's to close. An error drops the peer (closed is called). */
	int (*message)(void *ctx, const struct gw_msg *m, const int *fds, size_t nfds);
	/* The peer is gone, or was dropped, or the server ends; p is dead on return. */
	void (*closed)(void *ctx);
	void *arg;
};

int gw_server_new(struct gw_server **out, struct gw_loop *l, const struct gw_server_config *cfg, struct gw_diag *why);
/* Closes all peers (calling closed) and removes the socket file. */
void gw_server_free(struct gw_server *s);

/* GW_ECLOSED where the peer is gone or does not read; its end is told by `closed` later, never from inside. */
int gw_peer_send(struct gw_peer *p, const struct gw_msg *m, const int *fds, size_t nfds);
/* After a last message: what the peer still sends is thrown away; it is closed when it closes, or after some
 * seconds. `message` is not called any more, `closed` is. */
void gw_peer_finish(struct gw_peer *p);
int gw_peer_fd(const struct gw_peer *p);

#endif
