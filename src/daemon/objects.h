/*
 * Carries out what the node wants done with objects: opens them in the store, writes and verifies pieces, reads
 * blocks for others, drops them; all on workers, with the answers as events (wire/step.h).
 *
 * The blocks of a piece are gathered in memory and go to the disk in one write when the piece is complete
 * (PIECE_CHECK): a piece is what is verified, so half of one is worth nothing after a crash. When more than
 * gather_max_bytes is gathered, the piece that waited longest is let go.
 *
 * What the disk refuses is told as OBJECT_FAILED, after which the node asks again what is there; so is a sync that
 * failed, for every object of which the store has forgotten pieces. OBJECT_DROP also removes what is on the disk and was
 * never opened.
 *
 * All on the loop's thread.
 */
#ifndef GW_DAEMON_OBJECTS_H
#define GW_DAEMON_OBJECTS_H

#include "daemon/sink.h"
#include "io/os/store.h"
#include "io/os/worker.h"
#include "trust/root.h"
#include "wire/step.h"

struct gw_objects;

struct gw_objects_config {
	struct gw_loop *loop;
	struct gw_workers *workers;
	struct gw_store *store;
	const struct gw_root *root; /* alive as long as the objects */
	uint64_t gather_max_bytes;  /* at least that of one piece */
	struct gw_sink sink;
	/* A block that was read: queue it on the host's bulk link. 0, or an error where it cannot leave. */
	int (*send)(void *ctx, gw_host host, const struct gw_digest *object, uint32_t piece, uint64_t offset,
		    const void *p, size_t n);
	void *send_ctx;
};

int gw_objects_new(struct gw_objects **out, const struct gw_objects_config *cfg);
/* The workers are idle by now. */
void gw_objects_free(struct gw_objects *o);

/* OBJECT_OPEN, OBJECT_DROP, BLOCK_STORE, PIECE_CHECK, BLOCK_SEND; others are not for it (asserted). */
void gw_objects_act(struct gw_objects *o, const struct gw_action *act);

/* An open object, for staging and publishing: held until gw_objects_put. NULL where it is not open. */
struct gw_object *gw_objects_get(struct gw_objects *o, const struct gw_digest *id);
void gw_objects_put(struct gw_objects *o, struct gw_object *object);

#endif
