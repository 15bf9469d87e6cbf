/*
 * Serving engines: the attach socket RUN/godwitd.sock (proto/ATTACH.md), and the machine of engine/engine.h
 * carried out. One engine at a time, of any number of ranks.
 *
 * It plugs into a loop: messages, timers and results come on the loop's thread; proving, staging, checking, writing and
 * undoing run on the workers, over memory that stays mapped until they are done, whatever becomes of the engine.
 *
 * Everything here is called on the loop's thread, and so are the hooks, but for those marked "worker".
 */
#ifndef GW_DAEMON_ATTACH_H
#define GW_DAEMON_ATTACH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/pool.h"
#include "engine/engine.h"
#include "engine/table.h"
#include "io/os/loop.h"
#include "io/os/worker.h"

/* What the rest of the daemon knows, and hears. */
struct gw_attach_hooks {
	void *ctx;
	/* The table of a version, held for the caller, or NULL. run NULL: any run. */
	struct gw_table *(*find)(void *ctx, const uint8_t run[16], uint64_t version);
	/* Known versions, i = 0 the likeliest; NULL at the end. */
	struct gw_table *(*at)(void *ctx, uint32_t i);
	/* Worker. Durable on return: a commit may lead there. */
	int (*keep)(void *ctx, struct gw_table *t, struct gw_diag *why);
	/* Worker; may be NULL. Tells `each` all bits of a tensor of that version, where they are at hand. */
	void (*bits)(void *ctx, const struct gw_table *t, const char *tensor,
		     void (*each)(void *arg, const void *p, uint64_t n), void *arg);
	/* All ranks computed with the version from here on. Once, after an attach (pause 0) or a commit. */
	void (*served)(void *ctx, const uint8_t run[16], uint64_t version);
	/* A stage or commit came to nothing: what was asked for, and why, for people. */
	void (*failed)(void *ctx, uint64_t version, int err, const char *text);
	/* The lists of a version are with all ranks. */
	void (*staged)(void *ctx, uint64_t version);
	/* The state changed (status tells). */
	void (*changed)(void *ctx);
	/* A scrub ended; err 0: proven. */
	void (*scrubbed)(void *ctx, int err, const char *text);
};

struct gw_attach_config {
	const char *path;          /* of the socket */
	gid_t group;               /* admitted besides root and this user; (gid_t)-1: none */
	uint64_t list_max_bytes;   /* of one rank's staged list */
	struct gw_engine_limits limits;
	struct gw_attach_hooks hooks;
};

struct gw_attach;

int gw_attach_new(struct gw_attach **out, struct gw_loop *loop, struct gw_workers *workers, struct gw_pool *pool,
		  const struct gw_attach_config *cfg, struct gw_diag *why);
/* The end of the process, in this order: stop (nothing is begun any more, not even to finish a commit: the engine side does
 * that when it is let go), gw_workers_free, free. */
void gw_attach_stop(struct gw_attach *a);
void gw_attach_free(struct gw_attach *a);

/* A patch at hand: p stays valid and unchanged until `release` is called, which happens once, on the loop's thread,
 * also on error. `check` (worker, may be NULL) says after reading whether the bytes were sound (a mapped file that
 * shrank). */
struct gw_attach_patch {
	const void *p;
	size_t n;
	uint8_t run[16];
	uint64_t from, to;
	int anchor;        /* a patch from nothing: from is not looked at; must be what the bytes say */
	int (*check)(struct gw_attach_patch *patch);
	void (*release)(struct gw_attach_patch *patch);
};

/* Stages it over what is served, or over what is staged already; commits as soon as that is done where commit is set.
 * An answer comes by hooks (staged, served, failed). Errors at once: GW_EAGAIN where something is under way,
 * GW_ENOTREADY without an engine, GW_EBASE where the patch is from another version, GW_EPOISONED for anything but an
 * anchor on a poisoned engine. */
int gw_attach_stage(struct gw_attach *a, struct gw_attach_patch *patch, int commit, struct gw_diag *why);
/* Commits what is staged or being staged. */
int gw_attach_commit(struct gw_attach *a, struct gw_diag *why);
/* Proves the resident weights again. */
int gw_attach_scrub(struct gw_attach *a, struct gw_diag *why);

struct gw_attach_status {
	enum gw_engine_state state;
	uint8_t run[16];
	uint64_t served, staged;       /* GW_VERSION_NONE where none */
	char engine[128];              /* name and version; empty where none is attached */
	uint32_t ranks, ranks_wanted;
	uint64_t last_apply_ns, last_pause_ns, last_records;
	uint64_t proven, opaque;       /* tensors */
	char last_error[512];
};
void gw_attach_status(const struct gw_attach *a, struct gw_attach_status *s);

#endif
