/*
 * A deterministic world for the state machines: N hosts in R regions in one process, virtual time, one event
 * at a time, every invariant checked after each. A seed fixes everything: the same seed gives the same trace hash.
 *
 * What is modelled: links as io/zmq has them (one a pair, while either end asks; TCP order; dials that fail, take a
 * round trip and a half, and need the other end to know the caller), delay, jitter, loss (as delay spikes, since TCP
 * resends), messages dropped at a full queue, rates per host and per region border, partitions, hosts that crash (by
 * themselves or with their machine), restart with what was durable (which of the members too), or do not get the
 * processor for a while. All
 * control messages go through the real codec. Blocks carry a tag, good or bad, in place of content; signatures are
 * looked up in a registry of what was signed.
 *
 * world.c runs it, net.c carries frames, ids.c signs, store.c keeps pieces and plays the engine, check.c judges.
 * A broken invariant prints seed, time, host and reason, and ends the process.
 */
#ifndef GW_TESTS_SIM_H
#define GW_TESTS_SIM_H

#include "base/heap.h"
#include "base/map.h"
#include "base/rng.h"
#include "mesh/mesh.h"
#include "trust/manifest.h"
#include "wire/step.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define EPOCH_NS (UINT64_C(1700000000) * SECOND) /* wall time at the start */

enum { SIM_HOSTS_MAX = 12000, SIM_REGIONS_MAX = 32, SIM_SLOTS = 4, SIM_FRAMING = 42 /* CURVE and ZMTP, a message */ };

struct sim;
struct sim_host;

/* The machine under test: mesh alone, or the whole node. */
struct sim_ops {
	/* It begins with what `h` knows. */
	int (*make)(struct sim *s, struct sim_host *h, void **out);
	void (*free)(void *machine);
	int (*step)(void *machine, const struct gw_event *ev, struct gw_actions *out);
	const struct gw_mesh *(*mesh)(const void *machine);
	/* Told after every step of the host; may be NULL. */
	void (*check)(struct sim *s, struct sim_host *h);
};
extern const struct sim_ops sim_mesh_ops, sim_node_ops;

struct sim_config {
	uint64_t seed;
	int hosts, regions;
	int undialable;		     /* the last so many of the hosts have no address */
	int late;		     /* the last so many (before those) are started by the test, with sim_join */
	double loss;		     /* share of messages that TCP has to send again */
	double drop;		     /* share that vanishes at a full queue */
	uint64_t nic_bytes_per_s;    /* 0: no limit */
	uint64_t border_bytes_per_s; /* each way; 0: no limit */
	uint64_t eager_max_bytes;
	const struct sim_ops *ops;
};

/* Something signed that exists in this world. */
struct sim_object {
	struct gw_manifest manifest;
	uint8_t *raw, *digests;
	size_t raw_n;
	uint64_t border_rx[SIM_REGIONS_MAX]; /* piece payload that entered the region */
	uint64_t published_ns, last_served_ns;
};

struct sim_piece_work {
	uint32_t piece;
	uint8_t *got; /* a bit for 512 bytes */
	int bad, checking;
	struct sim_piece_work *next;
};

/* What a host's disk holds of an object. */
struct sim_stored {
	struct sim_object *object;
	uint8_t *have;
	uint32_t have_count;
	int open;
	struct sim_piece_work *work; /* lost in a crash */
	struct sim_stored *next;
};

struct sim_slot {
	const char *name;
	uint8_t *p;
	size_t n;
};

struct sim_host {
	int index, region;
	uint32_t life; /* counts starts; events of earlier lives are dropped */
	int running, started, left;
	int expected_dead; /* the test means it to count as gone */
	int liar;	   /* sends bad blocks */
	uint64_t frozen_until_ns;
	void *machine;
	struct gw_actions actions;
	struct gw_member_record *record;
	/* durable */
	struct sim_slot slots[SIM_SLOTS];
	struct sim_stored *store;
	int64_t served; /* the engine outlives the daemon */
	struct gw_member_record **known; /* members kept for the next start, with a reference each */
	struct gw_mesh_kinds known_of;
	uint64_t known_table, known_ns;	 /* the roster's digest then, and when */
	/* measured */
	uint64_t nic_out_ns, nic_in_ns; /* busy until */
	uint64_t sent_bytes, sent_messages, rx_border;
	uint64_t highest_head;
	uint64_t health_key; /* of the last HEALTH answer */
	size_t health_count, health_unreachable, health_serving;
};

struct sim_link {
	int end[2];
	int ask[2], dialing[2];
	int up;
	int ghost; /* one end is gone and the other does not know yet */
	uint32_t epoch;
	uint64_t fifo_ns[2][2]; /* direction, bulk */
	struct sim_frame *held, **held_tail;
};

struct sim {
	struct sim_config config;
	struct gw_rng rng;
	uint64_t now_ns;
	struct gw_heap heap;
	struct sim_host *hosts;
	struct gw_map links;
	uint64_t delay_ns[SIM_REGIONS_MAX][SIM_REGIONS_MAX];
	uint64_t border_out_ns[SIM_REGIONS_MAX], border_in_ns[SIM_REGIONS_MAX];
	int partitioned;
	int *group;
	struct gw_map signed_records; /* signed bytes → struct sim_signed */
	struct sim_object **objects;
	size_t object_count;
	int64_t head_version; /* newest published; -1 none */
	uint64_t head_sequence;
	uint64_t trace, events;
	int deaths; /* verdicts of death on hosts that lived and were not meant to die */
	int quiet;
	const char *story;
};

/* --- world.c --- */
struct sim *sim_new(const struct sim_config *config);
void sim_free(struct sim *s);
/* Boots all hosts but the late ones, knowing each other. */
void sim_boot(struct sim *s);
/* Starts a host that nobody knows: it knows `via`, and via gets its record as from the join socket. */
void sim_join(struct sim *s, int host, int via);
void sim_run(struct sim *s, uint64_t for_ns);
/* Runs until done() says so; returns 0 if it did within that time. */
int sim_run_until(struct sim *s, uint64_t for_ns, int (*done)(struct sim *s, void *ctx), void *ctx);
/* The process dies; with its machine if `silent`: then no link says so before its time-out. */
void sim_crash(struct sim *s, int host, int silent);
/* It begins with the members that it has kept. */
void sim_restart(struct sim *s, int host);
/* The host does not run for a while; what comes for it waits. */
void sim_freeze(struct sim *s, int host, uint64_t for_ns);
/* The good-bye of a graceful stop, then the stop half a second later. */
void sim_leave(struct sim *s, int host);
void sim_partition(struct sim *s, int (*group)(const struct sim *s, int host));
void sim_heal(struct sim *s);
/* Feeds an event now; fills in the times. */
void sim_feed(struct sim *s, int host, struct gw_event *ev);
/* The same after a delay; what ev points to must stay, `life` drops it after a restart. */
void sim_feed_later(struct sim *s, int host, uint64_t delay_ns, const struct gw_event *ev);
_Noreturn void sim_fail(const struct sim *s, const struct sim_host *h, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define SIM_CHECK(s, h, cond, ...)                                                                                     \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			sim_fail((s), (h), __VA_ARGS__);                                                               \
	} while (0)
/* The index of a host's handle; -1 where the host does not know it. And back: GW_HOST_NONE. */
int sim_index(const struct sim_host *h, const struct sim *s, gw_host handle);
gw_host sim_handle(const struct sim *s, const struct sim_host *h, int index);
void sim_trace(struct sim *s, uint64_t a, uint64_t b, uint64_t c);

/* --- things that happen later --- */
enum sim_kind { SIM_FEED, SIM_FRAME, SIM_DIALED, SIM_LINK_TIMEOUT, SIM_CALL };
struct sim_frame {
	int from, to;
	uint32_t epoch, life;
	int bulk;
	size_t n, size; /* size on the wire */
	uint8_t *bytes; /* an encoded message; NULL for a block */
	struct gw_digest object;
	uint32_t piece, offset;
	int bad;
	struct sim_frame *next;
};
struct sim_later {
	enum sim_kind kind;
	int host, other;
	uint32_t life, epoch;
	struct gw_event ev;
	struct sim_frame *frame;
	void (*call)(struct sim *s, void *ctx);
	void *ctx;
};
struct sim_later *sim_at(struct sim *s, uint64_t at_ns, enum sim_kind kind, int host);
/* Calls back at that time. */
void sim_call_at(struct sim *s, uint64_t at_ns, void (*call)(struct sim *s, void *ctx), void *ctx);

/* --- net.c --- */
void sim_net_connect(struct sim *s, int a, int b);
void sim_net_disconnect(struct sim *s, int a, int b);
void sim_net_send(struct sim *s, struct sim_frame *f);
void sim_net_frame(struct sim *s, struct sim_frame *f);
void sim_net_dialed(struct sim *s, const struct sim_later *l);
void sim_net_timeout(struct sim *s, const struct sim_later *l);
void sim_net_host_gone(struct sim *s, int host, int silent);
void sim_net_cut(struct sim *s);
void sim_net_healed(struct sim *s);
int sim_net_linked(const struct sim *s, int a, int b);
void sim_net_free(struct sim *s);

/* --- ids.c --- */
void sim_identity(int index, uint8_t out[32]);
int sim_identity_index(const uint8_t identity[32]);
struct gw_member_record *sim_record_new(const struct sim *s, int index, uint64_t stamp_ns);
/* Answers VERIFY_MEMBER, VERIFY_HEAD, VERIFY_MANIFEST by an event a little later. */
void sim_verify(struct sim *s, struct sim_host *h, const struct gw_action *a);

/* --- store.c --- */
struct sim_object *sim_object(const struct sim *s, const struct gw_digest *id);
struct sim_stored *sim_stored(const struct sim_host *h, const struct gw_digest *id);
void sim_store_action(struct sim *s, struct sim_host *h, const struct gw_action *a);
void sim_store_event(struct sim *s, struct sim_host *h, const struct gw_event *ev);
void sim_store_crash(struct sim_host *h);
void sim_store_free(struct sim_host *h);
int sim_whole(const struct sim_stored *st);
/* The host has all of it: it was published there. */
void sim_store_whole(struct sim_host *h, struct sim_object *o);

/* --- check.c --- */
void sim_check_action(struct sim *s, struct sim_host *h, const struct gw_action *a);
void sim_check_host(struct sim *s, struct sim_host *h);
/* All running hosts hold all running hosts for alive, and nobody else; returns 0 if so. */
int sim_tables_agree(struct sim *s, void *ctx);

#endif
