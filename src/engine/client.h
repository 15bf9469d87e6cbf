/*
 * The engine side's machine, one for each rank. It answers the daemon, asks the engine to pause and to resume, and when
 * the daemon is gone it puts the memory into one whole version by itself.
 *
 * When the daemon is lost inside a pause: the page decides (engine/commit.h). Old: the old bits of the list are written
 * over all its places and checked; new: the new bits are checked. When all ranks of the host have settled, the engine
 * resumes with that version. A daemon that is there but silent may still write: after a while the engine is told that
 * it is poisoned, and stays so until the daemon speaks or is gone. What cannot be checked, or does not settle in time, is poisoned: the engine stays
 * paused and serves nothing until a daemon has proven it again.
 *
 * It touches memory (segments, list, page) that its caller mapped; it calls nothing else. Not thread-safe: one thread
 * at a time.
 */
#ifndef GW_ENGINE_CLIENT_H
#define GW_ENGINE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/commit.h"
#include "engine/table.h"
#include "patch/apply.h"
#include "patch/list.h"
#include "wire/msg.h"

enum gw_client_state {
	GW_CLIENT_DETACHED,  /* never attached, or refused */
	GW_CLIENT_SERVING,   /* proven; computes, or may */
	GW_CLIENT_PAUSING,   /* the engine was asked to pause */
	GW_CLIENT_PAUSED,    /* it has, and the daemon knows */
	GW_CLIENT_RESUMING,  /* the engine was told to go on */
	GW_CLIENT_SETTLING,  /* the daemon was lost in a pause; waiting for the other ranks */
	GW_CLIENT_POISONED,
};

enum gw_client_event_kind {
	GW_CE_MSG,     /* msg; for eng_stage: list, list_n, page, page_n as mapped from its descriptors */
	GW_CE_LOST,    /* the connection to the daemon is gone */
	GW_CE_PAUSED,  /* the engine has paused, as asked */
	GW_CE_RESUMED, /* the engine goes on, as told */
	GW_CE_TICK,    /* time passes; wanted often while settling, now and then while paused */
};

struct gw_client_event {
	enum gw_client_event_kind kind;
	uint64_t now_ns;
	const struct gw_msg *msg;
	void *list, *page;
	size_t list_n, page_n;
};

enum gw_client_action_kind {
	GW_CA_SEND,      /* msg */
	GW_CA_DROP_LIST, /* list, page: this pair may be unmapped */
	GW_CA_ATTACHED,  /* version: proven */
	GW_CA_REFUSED,   /* as the event's msg says */
	GW_CA_PAUSE,     /* the engine is to stop computing, then say PAUSED */
	GW_CA_RESUME,    /* version: go on with it, then say RESUMED */
	GW_CA_POISONED,  /* text: stop computing; what the weights are cannot be proven */
	GW_CA_CLOSE,     /* the daemon broke the protocol: close the connection, then say LOST; err */
};

struct gw_client_action {
	enum gw_client_action_kind kind;
	uint64_t version;
	int err;
	void *list, *page;
	char text[512];
	struct gw_msg msg;
};

enum { GW_CLIENT_ACTIONS_MAX = 8 };
struct gw_client_actions {
	struct gw_client_action v[GW_CLIENT_ACTIONS_MAX];
	size_t n;
};

struct gw_client_config {
	uint32_t rank, ranks;
	int in_process;
	struct gw_device dev;
	const struct gw_dev_mem *mem; /* the segments, in order; the caller's, kept */
	uint32_t segments;
	uint64_t settle_ns;           /* how long the other ranks may take */
	uint64_t doubt_ns;            /* how long a pause may last before the engine is told that nothing can be served */
};

struct gw_client;

int gw_client_new(struct gw_client **out, const struct gw_client_config *cfg);
void gw_client_free(struct gw_client *c);
/* What an event with a list says no to, it drops again by an action: list and page are the client's until then. */
void gw_client_step(struct gw_client *c, const struct gw_client_event *ev, struct gw_client_actions *out);
enum gw_client_state gw_client_state(const struct gw_client *c);
/* What the memory is known to hold: GW_VERSION_NONE while in a pause or poisoned. */
uint64_t gw_client_version(const struct gw_client *c);
const uint8_t *gw_client_run(const struct gw_client *c);

#endif
