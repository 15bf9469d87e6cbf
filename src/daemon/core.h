/*
 * The running host: puts events into the node and carries out the actions that come back, by handing them to the part
 * that does such things. Everything here is on the loop's thread.
 *
 * An event that arises while actions are being carried out waits until they are done, so that the node is never
 * entered twice and actions keep their order.
 */
#ifndef GW_DAEMON_CORE_H
#define GW_DAEMON_CORE_H

#include "daemon/config.h"
#include "daemon/identity.h"
#include "daemon/members.h"
#include "daemon/objects.h"
#include "daemon/publish.h"
#include "daemon/quiet.h"
#include "daemon/sink.h"
#include "daemon/slots.h"
#include "daemon/verify.h"
#include "io/os/loop.h"
#include "io/os/store.h"
#include "io/os/worker.h"
#include "node/node.h"

enum { GW_CORE_PUBLISHERS_MAX = 8, GW_CORE_QUERIES_MAX = 64 };

struct gw_control;
struct gw_engine_requests;
struct gw_island;
struct gw_links;
struct gw_requests;

/* A health query on its way: answered exactly once, with NULL where there is no answer. */
struct gw_core_query {
	uint64_t key;
	void (*answer)(void *ctx, const struct gw_m_status_reply *reply);
	void *ctx;
};

struct gw_core_pending;

struct gw_core {
	struct gw_config *cfg;
	struct gw_fs *fs;
	struct gw_loop *loop;
	struct gw_workers *workers;
	struct gw_pool pool;
	struct gw_store *store;
	struct gw_slots slots;
	struct gw_identity identity;
	struct gw_node *node;
	struct gw_actions actions;
	struct gw_objects *objects;
	struct gw_verify verify;
	struct gw_quiet quiet;
	struct gw_links *links;
	struct gw_island *island;
	struct gw_engine_requests *engine_requests;
	struct gw_requests *requests;
	struct gw_control *control;
	struct gw_key release;
	struct gw_publisher *publishers[GW_CORE_PUBLISHERS_MAX];
	uint32_t publisher_count;
	struct gw_core_query queries[GW_CORE_QUERIES_MAX];
	uint64_t next_query;
	struct gw_core_pending *first, **last; /* events that wait */
	struct gw_members members;
	struct gw_timer expire_timer;
	int busy, stopping;
};

/* Reads the state folder and starts all parts. On error what was started is stopped. `cfg` stays the caller's. */
int gw_core_start(struct gw_core **out, struct gw_loop *loop, struct gw_fs *fs, struct gw_config *cfg, struct gw_diag *why);
/* SIGHUP changed *cfg: the parts that hold a copy of a key take it over. */
void gw_core_reconfigured(struct gw_core *core);
/* Says good-bye to the mesh; the loop should turn for a moment after it, so that the words get out. */
void gw_core_leave(struct gw_core *core);
/* The end of the loop as well: it must not turn any more, since timers of the machines cannot be taken back. */
void gw_core_stop(struct gw_core *core);

/* now_ns and wall_ns are filled in. */
void gw_core_put(struct gw_core *core, const struct gw_event *ev);
/* Events that still wait come to nothing: the host stops. */
void gw_core_drop_pending(struct gw_core *core);
struct gw_sink gw_core_sink(struct gw_core *core);
/* Whether the counters of the heads that are acted on are on the disk. While they are not, the board is silent and
 * nothing is served because of them. */
int gw_core_heads_durable(const struct gw_core *core);

/* GW_EAGAIN when too many are under way. */
int gw_core_health(struct gw_core *core, void (*answer)(void *ctx, const struct gw_m_status_reply *reply), void *ctx);
/* Forgets the queries of an asker that is gone. */
void gw_core_health_cancel(struct gw_core *core, const void *ctx);

/* NULL where this host does not publish that policy; a NULL name means the only one. */
struct gw_publisher *gw_core_publisher(struct gw_core *core, const char *policy);

#endif
