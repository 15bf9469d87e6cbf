/* What the attach*.c files share. */
#ifndef GW_DAEMON_ATTACH_INSIDE_H
#define GW_DAEMON_ATTACH_INSIDE_H

#include "daemon/attach.h"
#include "daemon/server.h"
#include "engine/plan.h"
#include "engine/proof.h"
#include "io/os/memfd.h"

/* A connection: one rank. Its memory outlives it while the group's jobs use it. */
struct gw_attach_conn {
	struct gw_attach *a;
	struct gw_peer *peer;          /* NULL once closed */
	struct gw_decl *decl;
	struct gw_shm *segments;
	struct gw_dev_mem *mem;
	uint32_t segment_n, segment_cap;
	struct gw_attach_group *group; /* from eng_attach on */
	uint32_t rank;
	int let_go;                    /* its end is nobody's business any more */
	unsigned ops;                  /* jobs that may write to it */
	int down;                      /* it ended while they ran */
	int pidfd;
	struct gw_watch *pidwatch;
	struct gw_timer timer;         /* by when it has declared itself */
};

/* What is staged: for each rank a list in a memfd, and the one commit page. */
struct gw_attach_staged {
	uint8_t run[16];
	uint64_t from, to, records;
	uint32_t ranks;
	struct gw_memfd_grow *grow;
	const struct gw_list_header **lists;
	int page_fd;
	struct gw_shm page;
	struct gw_table *table;
};

/* All ranks of one running engine. */
struct gw_attach_group {
	struct gw_attach *a;
	uint8_t instance[16];
	uint32_t ranks;
	struct gw_attach_conn **conns;   /* by rank; NULL while not there */
	struct gw_rank_mem *mem;         /* by rank, once all are there */
	struct gw_plan *plan;
	struct gw_table *table;          /* of what is served, or was last */
	struct gw_attach_staged *staged;
	unsigned jobs;
	int dead;                        /* freed when its jobs and connections are gone */
	uint64_t proven, opaque;
	struct gw_refusal no;            /* of the last PROVE or STAGE */
};

enum gw_attach_note_kind { GW_NOTE_SERVED, GW_NOTE_STAGED, GW_NOTE_FAILED, GW_NOTE_CHANGED, GW_NOTE_SCRUBBED };
struct gw_attach_note {
	enum gw_attach_note_kind kind;
	uint64_t version;
	int err;
	char text[512];
};

struct gw_attach {
	struct gw_attach_config cfg;
	struct gw_loop *loop;
	struct gw_workers *workers;
	struct gw_pool *pool;
	struct gw_server *server;
	struct gw_engine *engine;
	struct gw_attach_group *group;   /* the one that the machine is about, or NULL */
	struct gw_attach_patch *patch;   /* being staged */
	int scrubbing;

	struct gw_engine_actions actions;
	struct gw_engine_event *events;
	size_t event_n, event_cap;
	struct gw_attach_note *notes;
	size_t note_n, note_cap;
	int running, ending;

	uint64_t told_served;
	uint64_t last_apply_ns, last_pause_ns, last_records;
	char last_error[512];
};

/* attach.c */
int gw_attach_feed(struct gw_attach *a, const struct gw_engine_event *ev);
void gw_attach_group_try_free(struct gw_attach_group *g);
void gw_attach_staged_free(struct gw_attach_staged *s);
/* Keeps for people where a check found what it should not. */
void gw_attach_note_found(struct gw_attach_conn *c, enum gw_engine_op op, const struct gw_list_found *found);

/* attach_conn.c: the server's callbacks, and refusing one connection */
int gw_attach_conn_opened(void *arg, struct gw_peer *p, const struct gw_seq_peer *who, void **ctx);
int gw_attach_conn_message(void *ctx, const struct gw_msg *m, const int *fds, size_t nfds);
void gw_attach_conn_closed(void *ctx);
void gw_attach_conn_refuse(struct gw_attach_conn *c, const struct gw_refusal *no);
void gw_attach_conn_let_go(struct gw_attach_conn *c, const char *text);
void gw_attach_conn_free(struct gw_attach_conn *c);

/* attach_job.c: work on threads. Errors mean that nothing was begun. */
int gw_attach_job_prove(struct gw_attach_group *g, uint64_t key, uint64_t version);
int gw_attach_job_stage(struct gw_attach_group *g, uint64_t key, struct gw_attach_patch *patch);
int gw_attach_job_op(struct gw_attach_conn *c, enum gw_engine_op op);

#endif
