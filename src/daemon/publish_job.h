/*
 * One publication, from two checkpoints to a signed object in the store. Runs on a worker; touches nothing of
 * the loop.
 */
#ifndef GW_DAEMON_PUBLISH_JOB_H
#define GW_DAEMON_PUBLISH_JOB_H

#include "base/pool.h"
#include "daemon/publish.h"
#include "io/os/store.h"

struct gw_publish_job {
	/* given */
	const char *policy, *dir; /* dir: STATE/publish/POLICY, is there */
	struct gw_fs *fs;
	struct gw_pool *pool;
	struct gw_store *store;
	const struct gw_root *root;
	const struct gw_key *release;
	const char *source;       /* the checkpoint to publish */
	const char *base;         /* the base's folder, or NULL for the first version */
	int anchor;
	int same_only;            /* `to` is published: nothing but its very content is right */
	uint8_t run[GW_RUN_BYTES];
	uint64_t from, to;
	struct gw_digest previous; /* the manifest that ends in `from` */
	/* made */
	struct gw_publish_result result;
	uint8_t *signed_bytes;    /* malloced: the manifest */
	size_t signed_n;
};

/* The patch, while it is made: in `dir`. */
#define GW_PUBLISH_PATCH_NAME "patch"

/* Fills `made`. On 0, and result.already 0: the object is durable, and the folder base-TO holds the new version. On
 * error nothing of it is left. */
int gw_publish_job_run(struct gw_publish_job *j);

/* STATE/publish/POLICY/base-VERSION, malloced. */
char *gw_publish_base_path(const char *dir, uint64_t version);

#endif
