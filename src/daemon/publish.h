/*
 * The trainer's side: turns a checkpoint folder into a signed version of a policy, and keeps its head fresh.
 *
 * One publication at a time and policy, on a worker: diff against the base, tensor table, pieces, manifest, all into
 * the store; then the base moves on; then the record of what is published (slot "publish-POLICY"); only then
 * the node hears of it. Killed before that, the version was never published: what is left of it is swept at the next
 * start, and publishing it again is safe. A record that the disk refuses leaves the version before as the newest; where
 * even that one cannot be written again the disk may hold either, and nothing is published or removed until it can.
 *
 * The base is this host's own copy of the newest version, STATE/publish/POLICY/base-VERSION: the trainer's folders
 * may go away at any time. It is held against the signed fingerprint before anything is made of it.
 *
 * The first publication of a policy begins a run (a random id) with an anchor. A version whose content is that of the
 * base is not published again, so whoever missed the answer may ask once more. A head lists the two newest anchors.
 *
 * Sequences of heads rise, over restarts and in a later run too: those of a run begin at the microseconds since the
 * epoch, which no run that began earlier has reached. All on the loop's thread but the job itself.
 */
#ifndef GW_DAEMON_PUBLISH_H
#define GW_DAEMON_PUBLISH_H

#include "base/pool.h"
#include "daemon/sink.h"
#include "io/os/store.h"
#include "io/os/worker.h"
#include "trust/key.h"
#include "trust/root.h"

struct gw_publisher;

struct gw_publisher_config {
	const char *policy;           /* copied */
	struct gw_fs *fs;
	const char *state;            /* STATE */
	struct gw_loop *loop;
	struct gw_workers *workers;
	struct gw_pool *pool;         /* for the job; not used by others meanwhile, or taking turns */
	struct gw_store *store;
	const struct gw_root *root;
	const struct gw_key *release; /* alive as long as the publisher; the root must allow it */
	uint64_t head_expiry_ns, head_renew_ns;
	struct gw_sink sink;
};

struct gw_publish_request {
	const char *path;   /* of the checkpoint */
	int has_version;    /* else the next number, or 0; that of the newest is for asking again */
	uint64_t version;
	int anchor;         /* publish it whole even though a base is there */
};

struct gw_publish_result {
	int err;
	struct gw_diag why;
	int already;        /* the base holds just this content: nothing was published */
	uint8_t run[GW_RUN_BYTES];
	uint64_t version, from;
	int anchor;
	struct gw_digest manifest;
	uint64_t patch_bytes, object_bytes, full_bytes, changed, elements;
	uint32_t pieces;
	uint64_t took_ns;
};

/* Reads what was published before and sweeps what was not. */
int gw_publisher_new(struct gw_publisher **out, const struct gw_publisher_config *cfg, struct gw_diag *why);
/* No job may be under way: free the workers first. */
void gw_publisher_free(struct gw_publisher *p);

/* Announces what is published, and renews the head from now on. After the node's START. */
void gw_publisher_start(struct gw_publisher *p);

/* From the next renewal on. */
void gw_publisher_pace(struct gw_publisher *p, uint64_t head_expiry_ns, uint64_t head_renew_ns);

/* `done` comes on the loop's thread. GW_EAGAIN while another publication is under way: done is not called. */
int gw_publisher_publish(struct gw_publisher *p, const struct gw_publish_request *req,
			 void (*done)(void *ctx, const struct gw_publish_result *res), void *ctx);

const char *gw_publisher_policy(const struct gw_publisher *p);
/* The newest version published, or UINT64_MAX. */
uint64_t gw_publisher_newest(const struct gw_publisher *p);
const uint8_t *gw_publisher_run(const struct gw_publisher *p);

#endif
