/* Starting and stopping a host: the state folder read, the parts made, in the order in which they need each other. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/publish.h"
#include "daemon/control.h"
#include "daemon/core.h"
#include "daemon/engine_requests.h"
#include "daemon/island.h"
#include "daemon/links.h"
#include "daemon/requests.h"
#include "io/os/clock.h"
#include "io/os/pool.h"

enum { JOBS_MAX = 8192, WORKERS_DEFAULT_MAX = 8 };

#define EXPIRE_NS 30000000000ull

static unsigned worker_count(const struct gw_config *c)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (c->limits_workers)
		return (unsigned)c->limits_workers;
	return cores < 1 ? 1 : cores > WORKERS_DEFAULT_MAX ? WORKERS_DEFAULT_MAX : (unsigned)cores;
}

static int make_folders(const struct gw_config *c, struct gw_fs *fs, struct gw_diag *why)
{
	int err = gw_fs_mkdir(fs, c->host_run);

	if (err && err != GW_EEXIST)
		return gw_diag_set(why, err, "cannot make %s: %s", c->host_run, gw_err_text(err));
	(void)gw_publish_sweep(fs, c->host_state);
	return 0;
}

/* --- the node --- */

struct boot {
	struct gw_core *core;
	struct gw_member_record *v[GW_MEMBERS_KEPT];
	size_t n, of[GW_IDENTITY_STATES]; /* in all; of those in, dead, left */
	unsigned state;
};

static int add_bootstrap(void *ctx, const void *bytes, size_t n)
{
	struct boot *b = ctx;
	struct gw_member m;

	if (!n) {
		b->state += b->state + 1 < GW_IDENTITY_STATES;
		return 0;
	}
	if (b->n == GW_MEMBERS_KEPT || gw_member_open(&b->core->identity.root, gw_clock_wall_ns(), bytes, n, &m, NULL))
		return 0; /* expired, or of another mesh: of no use */
	if (gw_verify_record(&m, (struct gw_bytes){bytes, n}, &b->v[b->n]))
		return GW_ENOMEM;
	b->n++;
	b->of[b->state]++;
	gw_links_admit(b->core->links, &m);
	return 0;
}

static int slot(struct gw_core *c, const char *name, uint8_t **p, struct gw_bytes *out, struct gw_diag *why)
{
	size_t n = 0;
	int err = gw_store_get(c->store, name, p, &n, why);

	out->p = *p;
	out->n = n;
	return err == GW_ENOENT ? 0 : err;
}

static int costs(const struct gw_config *c, const char *region, struct gw_region_cost **out, size_t *n)
{
	struct gw_region_cost *v = calloc(c->cost_count + 1, sizeof *v);

	if (!v)
		return GW_ENOMEM;
	for (uint32_t i = 0; i < c->cost_count; i++)
		v[i] = (struct gw_region_cost){region, c->costs[i].region, c->costs[i].cost};
	*out = v;
	*n = c->cost_count;
	return 0;
}

static int make_node(struct gw_core *c, struct gw_diag *why)
{
	struct gw_node_config cfg = {0};
	struct gw_member_record *self = NULL;
	struct gw_region_cost *cost = NULL;
	struct boot *b = calloc(1, sizeof *b);
	uint8_t *mesh = NULL, *board = NULL;
	int err = b ? 0 : GW_ENOMEM;

	randombytes_buf(&cfg.seed, sizeof cfg.seed);
	if (!err) {
		b->core = c;
		err = gw_identity_members(c->fs, c->cfg, add_bootstrap, b, why);
	}
	if (!err)
		err = gw_verify_record(&c->identity.member,
				       (struct gw_bytes){c->identity.member_bytes, c->identity.member_n}, &self);
	if (!err)
		err = slot(c, "mesh", &mesh, &cfg.mesh.stored, why);
	if (!err)
		err = slot(c, "board", &board, &cfg.board.persisted, why);
	if (!err)
		err = costs(c->cfg, c->identity.member.region, &cost, &cfg.swarm.cost_count);
	if (!err) {
		cfg.mesh.self = self;
		cfg.mesh.bootstrap = b->v;
		cfg.mesh.bootstrap_count = b->of[0];
		cfg.mesh.bootstrap_dead = b->of[1];
		cfg.mesh.bootstrap_left = b->of[2];
		cfg.board.freshness_floor_ns = c->cfg->trust_freshness_floor;
		cfg.swarm.costs = cost;
		cfg.swarm.budget_bytes = c->cfg->limits_memory / 4;
		cfg.swarm.eager_max_bytes = c->cfg->limits_eager_max;
		cfg.swarm.upload_bytes_per_s = c->cfg->limits_rate;
		err = gw_node_new(&cfg, &c->node, why);
	}
	for (size_t i = 0; b && i < b->n; i++)
		gw_member_record_unref(b->v[i]);
	gw_member_record_unref(self);
	free(b);
	free(cost);
	free(mesh);
	free(board);
	return err;
}

/* --- what is in the store --- */

struct known {
	struct gw_core *core;
	struct gw_diag *why;
};

static int tell_object(void *ctx, const struct gw_digest *id)
{
	struct known *k = ctx;
	struct gw_manifest m;
	struct gw_event ev = {.kind = GW_EV_MANIFEST, .host = GW_HOST_SELF, .manifest = &m};
	struct gw_diag why = {""};
	uint8_t *bytes;
	char name[65];
	size_t n;
	int err;

	err = gw_store_manifest(k->core->store, id, &bytes, &n);
	if (err) {
		GW_LOG(GW_LOG_WARN, "an object's manifest cannot be read", "object", gw_hex(name, id->b, sizeof id->b), "error",
		       gw_err_text(err), NULL);
		/* What is damaged is of no use to anybody; what the disk would not give just now may be. */
		return err == GW_EDIGEST || err == GW_ELIMIT ? gw_store_drop(k->core->store, id, k->why) : 0;
	}
	if (!gw_root_open_manifest(&k->core->identity.root, bytes, n, &m, &why)) {
		ev.raw = (struct gw_bytes){bytes, n};
		gw_core_put(k->core, &ev);
	} else {
		GW_LOG(GW_LOG_WARN, "an object is kept that this root does not let anybody use", "object",
		       gw_hex(name, id->b, sizeof id->b), "why", why.text, NULL);
	}
	free(bytes);
	return 0;
}

/* --- publishers --- */

static int add_publisher(struct gw_core *c, const char *policy, struct gw_diag *why)
{
	struct gw_publisher_config cfg = {
		.policy = policy,
		.fs = c->fs,
		.state = c->cfg->host_state,
		.loop = c->loop,
		.workers = c->workers,
		.pool = &c->pool,
		.store = c->store,
		.root = &c->identity.root,
		.release = &c->release,
		.head_expiry_ns = c->cfg->publish_head_expiry,
		.head_renew_ns = c->cfg->publish_head_renew,
		.sink = gw_core_sink(c),
	};

	int err;

	if (c->publisher_count == GW_CORE_PUBLISHERS_MAX)
		return gw_diag_set(why, GW_ECONFIG, "publish.policy: at most %d", GW_CORE_PUBLISHERS_MAX);
	if (gw_core_publisher(c, policy)) /* two of one policy would contradict each other */
		return gw_diag_set(why, GW_ECONFIG, "publish.policy: %s is named twice", policy);
	err = gw_publisher_new(&c->publishers[c->publisher_count], &cfg, why);
	c->publisher_count += !err;
	return err;
}

static int make_publishers(struct gw_core *c, struct gw_diag *why)
{
	char *list = c->cfg->publish_policy, *names, *save = NULL;
	int err = 0;

	if (!list[0])
		return 0;
	err = gw_identity_release_key(&c->release, c->fs, c->cfg, why);
	names = strdup(list);
	if (!names)
		err = err ? err : GW_ENOMEM;
	for (char *name = err ? NULL : strtok_r(names, ", ", &save); !err && name; name = strtok_r(NULL, ", ", &save))
		err = add_publisher(c, name, why);
	free(names);
	return err;
}

/* --- from time to time --- */

static void expire(void *ctx)
{
	struct gw_core *c = ctx;

	gw_links_expire(c->links);
	(void)gw_timer_set(c->loop, &c->expire_timer, gw_loop_now_ns(c->loop) + EXPIRE_NS);
}

/* --- life --- */

static void admit(void *ctx, const struct gw_member *m)
{
	gw_links_admit(((struct gw_core *)ctx)->links, m);
}

static int send_block(void *ctx, gw_host host, const struct gw_digest *object, uint32_t piece, uint64_t offset,
		      const void *p, size_t n)
{
	return gw_links_send_block(((struct gw_core *)ctx)->links, host, object, piece, offset, p, n);
}

static int request(void *ctx, uint64_t who, const struct gw_msg *m)
{
	struct gw_core *c = ctx;
	int err = gw_requests_handle(c->requests, who, m);

	return err == GW_EUNKNOWN ? gw_engine_requests_handle(c->engine_requests, who, m) : err;
}

static int make_control(struct gw_core *c, struct gw_diag *why)
{
	char *path = gw_path_join(c->cfg->host_run, "control.sock");
	int err = path ? gw_control_new(&c->control, c->loop, path, (gid_t)-1, request, c, why) : GW_ENOMEM;

	free(path);
	if (err)
		return err;
	gw_requests_join(c->requests, c->control);
	gw_engine_requests_join(c->engine_requests, gw_island_attach(c->island), c->control);
	return 0;
}

static int make_parts(struct gw_core *c, struct gw_diag *why)
{
	struct gw_objects_config objects = {
		.loop = c->loop, .root = &c->identity.root, .gather_max_bytes = c->cfg->limits_memory / 2,
		.sink = gw_core_sink(c), .send = send_block, .send_ctx = c};
	int err = gw_workers_new(&c->workers, c->loop, worker_count(c->cfg), JOBS_MAX, why);

	if (!err)
		err = gw_pool_threads_init(&c->pool, worker_count(c->cfg), why);
	if (!err)
		err = gw_store_open(&c->store, c->fs, c->cfg->host_state, c->cfg->limits_disk, why);
	if (c->store)
		gw_slots_init(&c->slots, c->store, c->loop);
	if (!err)
		err = gw_links_new(&c->links, c, why);
	if (!err)
		err = make_node(c, why);
	c->verify = (struct gw_verify){.workers = c->workers, .root = &c->identity.root, .sink = gw_core_sink(c),
				       .member = admit, .member_ctx = c, .quiet = &c->quiet};
	objects.workers = c->workers;
	objects.store = c->store;
	if (!err)
		err = gw_objects_new(&c->objects, &objects);
	if (!err)
		err = gw_engine_requests_new(&c->engine_requests, c->fs);
	if (!err)
		err = gw_requests_new(&c->requests, c);
	if (!err)
		err = gw_island_new(&c->island, c, why);
	if (!err)
		err = make_publishers(c, why);
	return err ? err : make_control(c, why);
}

/* What `godwit mesh invite --bootstrap` wants to be told. */
static void say_join_address(const struct gw_core *c)
{
	char key[GW_Z85_CHARS];

	if (c->cfg->network_join[0])
		GW_LOG(GW_LOG_NOTICE, "newcomers can join here", "address", c->cfg->network_join, "key",
		       gw_z85_encode(key, c->identity.key.curve_pk), NULL);
}

static int begin(struct gw_core *c, struct gw_diag *why)
{
	struct gw_event start = {.kind = GW_EV_START};
	struct known k = {c, why};
	int err;

	gw_members_begin(c);
	gw_core_put(c, &start);
	gw_island_report(c->island);
	say_join_address(c);
	err = gw_store_list(c->store, tell_object, &k);
	if (err)
		return err;
	for (uint32_t i = 0; i < c->publisher_count; i++)
		gw_publisher_start(c->publishers[i]);
	c->expire_timer.fire = expire;
	c->expire_timer.ctx = c;
	return gw_timer_set(c->loop, &c->expire_timer, gw_loop_now_ns(c->loop) + EXPIRE_NS);
}

int gw_core_start(struct gw_core **out, struct gw_loop *loop, struct gw_fs *fs, struct gw_config *cfg, struct gw_diag *why)
{
	struct gw_core *c = calloc(1, sizeof *c);
	int err;

	if (!c)
		return GW_ENOMEM;
	c->cfg = cfg;
	c->fs = fs;
	c->loop = loop;
	c->last = &c->first;
	gw_actions_init(&c->actions);
	err = make_folders(cfg, fs, why);
	if (!err)
		err = gw_identity_load(&c->identity, fs, cfg, why);
	if (!err)
		err = make_parts(c, why);
	if (!err)
		err = begin(c, why);
	if (err) {
		gw_core_stop(c);
		return err;
	}
	*out = c;
	return 0;
}

void gw_core_stop(struct gw_core *c)
{
	if (!c)
		return;
	c->stopping = 1;
	gw_members_end(c);
	gw_timer_stop(c->loop, &c->expire_timer);
	gw_island_stop(c->island);
	if (c->workers)
		gw_workers_free(c->workers);
	gw_requests_free(c->requests);
	gw_control_free(c->control);
	for (uint32_t i = 0; i < c->publisher_count; i++)
		gw_publisher_free(c->publishers[i]);
	gw_island_free(c->island);
	gw_engine_requests_free(c->engine_requests);
	gw_objects_free(c->objects);
	gw_node_free(c->node);
	gw_links_free(c->links);
	gw_slots_end(&c->slots);
	if (c->store)
		gw_store_free(c->store);
	gw_pool_threads_free(&c->pool);
	gw_key_wipe(&c->release);
	gw_identity_free(&c->identity);
	gw_core_drop_pending(c);
	gw_actions_free(&c->actions);
	free(c);
}
