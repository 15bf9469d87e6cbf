/*
 * What the tests of src/daemon share: a state folder, keys and a root that hold now, a loop with workers, a store, and a
 * sink that keeps the events it is given.
 */
#ifndef GW_TESTS_DAEMON_WORLD_H
#define GW_TESTS_DAEMON_WORLD_H

#include "daemon/config.h"
#include "daemon/publish.h"
#include "daemon/sink.h"
#include "io/os/pool.h"
#include "io/os/store.h"
#include "io/os/worker.h"
#include "model.h"
#include "trust/root.h"
#include "trust/token.h"

enum { SEEN_MAX = 4096 };

/* An event, with copies of what it pointed to. */
struct seen {
	enum gw_event_kind kind;
	gw_host host;
	int err;
	uint64_t key, bytes;
	struct gw_digest object;
	uint32_t piece, piece_count, have; /* have: pieces in the bitmap */
	struct gw_head head;
	struct gw_manifest manifest; /* without digests */
	uint8_t identity[32];
};

struct daemon_world {
	char dir[64];
	struct gw_fs *fs;
	struct gw_loop *loop;
	struct gw_workers *workers;
	struct gw_pool pool;
	struct gw_store *store;
	struct gw_key root_key, release, admission, delegated, stranger;
	struct gw_root root;
	struct gw_wr root_bytes;
	struct seen *seen;
	size_t seen_n;
};

/* Keys, root, loop, workers and a serial pool; with a store in `dir` of `fs`. NULL: a temporary folder of the real file
 * system, whose syncs do nothing, since nothing here cuts the power. Policies: "demo" and "other". */
void world_init(struct daemon_world *w, struct gw_fs *fs, unsigned workers);
void world_free(struct daemon_world *w);
/* The store closed and opened again, as by another process. */
void world_reopen(struct daemon_world *w);
/* Keys and root alone. */
void world_keys(struct daemon_world *w);
void world_keys_free(struct daemon_world *w);
/* DIR/NAME, in a buffer that the next four calls leave alone. */
const char *world_path(const struct daemon_world *w, const char *name);

struct gw_sink world_sink(struct daemon_world *w);
/* Turns the loop until nothing is under way. */
void world_rest(struct daemon_world *w);
/* Turns until event number n (counted from 0) has been seen; fails after ten seconds. */
const struct seen *world_wait(struct daemon_world *w, size_t n);
/* The last event of that kind, or NULL. */
const struct seen *world_last(const struct daemon_world *w, enum gw_event_kind kind);
size_t world_count(const struct daemon_world *w, enum gw_event_kind kind);

/* A token of this root, for that region ("" any), that names no host to ask. NUL-terminated. */
void world_token(const struct daemon_world *w, const char *region, char text[GW_TOKEN_TEXT_MAX]);
/* A configuration for a host in dir/STATE. */
void world_config(const struct daemon_world *w, struct gw_config *c, const char *state, const char *region);

/* A small bf16 checkpoint of four tensors in two shards, and the next one, which differs a little. */
void world_model(struct model *m, struct gw_rng *rng);
void world_step(struct model *m, struct gw_rng *rng);

#endif
