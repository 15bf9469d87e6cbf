/*
 * A small world for stories about a commit: the daemon's machine, the client machines of some ranks, and their memory, all
 * in one process and one step at a time. A story picks what fails, and when; after every step the world checks that no
 * rank computes with anything but one whole version, the same on all ranks.
 */
#ifndef GW_TESTS_ENGINE_WORLD_H
#define GW_TESTS_ENGINE_WORLD_H

#include <stdint.h>

#include "base/rng.h"
#include "engine/client.h"
#include "engine/engine.h"

enum { WORLD_RANKS_MAX = 3, WORLD_ELEMENTS = 48, WORLD_QUEUE = 32 };

struct world_queue {
	struct gw_msg m[WORLD_QUEUE];
	unsigned n;
};

/* What the daemon and the ranks share for one staged version. */
struct world_staged {
	void *list[WORLD_RANKS_MAX];
	size_t list_n[WORLD_RANKS_MAX];
	void *page;
	uint64_t from, to;
};

struct world_rank {
	int alive, connected;
	uint16_t memory[WORLD_ELEMENTS];
	struct gw_dev_mem mem;
	struct gw_client *client;
	struct world_queue in, out;     /* to the rank; to the daemon */
	int computing;
	uint64_t label;                 /* what it says it computes with */
	int asked_pause, asked_resume;
	uint64_t resume_version;
	int op;                         /* import: a worker's job on this rank, or 0 */
	int poisoned;
};

struct world {
	uint32_t ranks;
	int in_process;
	struct gw_rng rng;
	uint64_t now_ns;
	struct world_rank r[WORLD_RANKS_MAX];
	int daemon;                     /* alive */
	struct gw_engine *engine;
	struct gw_engine_actions actions;
	struct gw_engine_event events[64];
	unsigned event_n;
	struct world_staged *staged;
	int stage_job, prove_job;
	uint64_t stage_key, prove_key, prove_version, stage_version;
	uint64_t timer_at, timer_key;
	uint64_t table;                 /* version the daemon holds the table of as served */
	uint64_t served, failed;        /* what the daemon told last */
	int failed_err, refused;
	/* faults, in place before the step that meets them */
	int fail_op;                    /* enum gw_engine_op whose next job fails, after half its stores */
	int stuck_rank;                 /* does not pause, or -1 */
	unsigned steps;
};

void world_init(struct world *w, uint32_t ranks, int in_process, uint64_t seed);
void world_free(struct world *w);
/* A daemon starts, and all living ranks connect to it. */
void world_start_daemon(struct world *w);
/* The daemon dies: a job that writes is cut in the middle; what it sent may still arrive. */
void world_kill_daemon(struct world *w);
void world_kill_rank(struct world *w, uint32_t rank);
/* One of the things that can happen now, picked at random; 0 when nothing can. */
int world_step(struct world *w);
/* Steps until nothing can happen, or `limit`. Time runs on while ranks wait for each other. */
void world_run(struct world *w, unsigned limit);
/* To the daemon's machine. */
int world_stage(struct world *w, uint64_t to, int commit, int anchor);
/* Whether the rank's memory is exactly that version. */
int world_holds(const struct world *w, uint32_t rank, uint64_t version);
uint16_t world_bits(uint32_t rank, uint64_t version, unsigned i);

#endif
