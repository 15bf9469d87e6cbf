/*
 * The daemon's machine for one attached engine: all its ranks, from attach to attach lost.
 *
 *     detached ─ all ranks declared ─> proving ─> serving <──────────────────────────────┐
 *     serving ─ STAGE ─> staging ─> handing ─ all ranks hold it ─> staged                │
 *     staged ─ COMMIT ─> pausing ─> checking ─> writing, each place read back ─ decide new ─> resuming ─> serving
 *     a failure before the first write: decide old, resume; after it: decide old, undoing, then resume
 *     a place that holds what it should not before the first write: nothing is written, all is proven again
 *     an undo that cannot be checked, or a proof that fails: poisoned, and proven against all that is known
 *     poisoned ─ STAGE of an anchor, COMMIT ─> as above, and a proof before the decision
 *     an engine that claims no version and holds none that is known begins poisoned; one whose claim is wrong is refused
 *
 * The machine tells; it does nothing itself. Work on memory is an action per rank whose result comes back as an
 * event, so that it may run on a worker or in the engine's own process. Every wait has a timer.
 *
 * A rank that goes away voids the engine: what was begun is undone on the others, then they are let go, to
 * attach again with it. RANK_DOWN of a rank comes when no work on its memory is under way any more, and stands for that
 * work's result.
 */
#ifndef GW_ENGINE_ENGINE_H
#define GW_ENGINE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/commit.h"
#include "engine/op.h"
#include "engine/plan.h"
#include "patch/apply.h"

enum gw_engine_state {
	GW_ENGINE_DETACHED,
	GW_ENGINE_PROVING,
	GW_ENGINE_SERVING,
	GW_ENGINE_STAGING,   /* a worker makes the lists; the engine serves */
	GW_ENGINE_HANDING,   /* the ranks take the lists; the engine serves */
	GW_ENGINE_STAGED,
	GW_ENGINE_PAUSING,
	GW_ENGINE_CHECKING,
	GW_ENGINE_WRITING,
	GW_ENGINE_RESUMING,
	GW_ENGINE_UNDOING,
	GW_ENGINE_POISONED,
};

enum gw_engine_event_kind {
	GW_EE_RANK_UP,    /* rank, ranks, version, in_process: its declaration is whole */
	GW_EE_RANK_DOWN,  /* rank */
	GW_EE_PROVED,     /* key, err, version: answer to PROVE */
	GW_EE_STAGE,      /* version, anchor: a patch to that version is at hand */
	GW_EE_LISTED,     /* key, err: answer to STAGE: the lists are made, and replace what was staged */
	GW_EE_TAKEN,      /* rank, version, err: the rank holds its list and the page */
	GW_EE_COMMIT,     /* commit what is staged, or is being staged, as soon as it is */
	GW_EE_SCRUB,      /* prove again while serving */
	GW_EE_PAUSED,     /* rank, version */
	GW_EE_DID,        /* rank, op, err, found: answer to OP */
	GW_EE_DECIDED,    /* decision: answer to DECIDE */
	GW_EE_RESUMED,    /* rank, version */
	GW_EE_TIMER,      /* key */
};

struct gw_engine_event {
	enum gw_engine_event_kind kind;
	uint64_t now_ns; /* monotonic */
	uint32_t rank, ranks;
	uint64_t version;
	int err;
	int anchor, in_process;
	enum gw_engine_op op;
	struct gw_list_found found;
	enum gw_decision decision;
	uint64_t key;
};

enum gw_engine_action_kind {
	GW_EA_PROVE,     /* key, version: against that one, or (GW_VERSION_NONE) any that is known */
	GW_EA_ATTACH_OK, /* all ranks: proven, version */
	GW_EA_REFUSE,    /* all ranks, err: with what PROVE found; then close them. No RANK_DOWN comes of it */
	GW_EA_STAGE,     /* key, version: make the lists */
	GW_EA_HAND,      /* rank: send list and page */
	GW_EA_UNSTAGE,   /* all ranks: forget the staged lists */
	GW_EA_PAUSE,     /* rank, version */
	GW_EA_OP,        /* rank, op */
	GW_EA_DECIDE,    /* decision: answer DECIDED before any other event */
	GW_EA_RESUME,    /* rank, version */
	GW_EA_POISON,    /* all ranks, err: stay paused */
	GW_EA_LET_GO,    /* rank: close its connection. No RANK_DOWN comes of it */
	GW_EA_TIMER,     /* at_ns, key */
	GW_EA_STATE,     /* the state changed */
	GW_EA_SERVED,    /* version, pause_ns, apply_ns: all ranks resumed with it */
	GW_EA_FAILED,    /* version (asked for), err: it is not served; what was served still is, unless a POISON came */
};

struct gw_engine_action {
	enum gw_engine_action_kind kind;
	uint32_t rank;
	uint64_t version;
	int err;
	enum gw_engine_op op;
	enum gw_decision decision;
	uint64_t at_ns, key;
	uint64_t pause_ns, apply_ns;
};

/* Grown by the machine, emptied by the caller between steps. */
struct gw_engine_actions {
	struct gw_engine_action *v;
	size_t n, cap;
	int err; /* sticky GW_ENOMEM */
};

struct gw_engine_limits {
	uint64_t hand_ns, pause_ns, op_ns, resume_ns; /* how long a rank may take */
};

struct gw_engine;

int gw_engine_new(struct gw_engine **out, const struct gw_engine_limits *limits);
void gw_engine_free(struct gw_engine *e);
void gw_engine_limits_default(struct gw_engine_limits *l);
/* 0, or GW_ENOMEM (the actions are then not to be executed), or GW_ESTATE for an event that has no place
 * now: nothing happened, and for STAGE, COMMIT and SCRUB the asker is told so. */
int gw_engine_step(struct gw_engine *e, const struct gw_engine_event *ev, struct gw_engine_actions *out);

enum gw_engine_state gw_engine_state(const struct gw_engine *e);
const char *gw_engine_state_text(enum gw_engine_state s);
/* What is served, or GW_VERSION_NONE; what is staged and committable, or GW_VERSION_NONE. */
uint64_t gw_engine_served(const struct gw_engine *e);
uint64_t gw_engine_staged(const struct gw_engine *e);
uint32_t gw_engine_ranks(const struct gw_engine *e);        /* attached */
uint32_t gw_engine_ranks_wanted(const struct gw_engine *e);

#endif
