#include "daemon_world.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/os/clock.h"
#include "io/os/fs_os.h"
#include "mesh/record.h"
#include "os.h"
#include "trust_fixture.h"

static void make_root(struct daemon_world *w)
{
	static const char *const policies[] = {"demo", "other"};
	uint64_t now = gw_clock_wall_ns();
	struct gw_root *r = &w->root;
	struct gw_wr raw;

	memset(r, 0, sizeof *r);
	r->version = r->epoch = 1;
	r->created_ns = now - DAY_NS;
	r->expires_ns = now + 365 * DAY_NS;
	r->threshold = r->key_count = 1;
	memcpy(r->keys[0], w->root_key.pk, 32);
	r->release_count = 2;
	for (size_t i = 0; i < 2; i++) {
		(void)strcpy(r->releases[i].policy, policies[i]);
		memcpy(r->releases[i].pk, w->release.pk, 32);
		r->releases[i].from_ns = now - DAY_NS;
		r->releases[i].until_ns = now + DAY_NS;
	}
	r->admission_count = 1;
	memcpy(r->admissions[0].pk, w->admission.pk, 32);
	r->admissions[0].from_ns = now - DAY_NS;
	r->admissions[0].until_ns = now + DAY_NS;
	gw_wr_init(&raw, GW_ROOT_MAX);
	gw_wr_init(&w->root_bytes, GW_ROOT_MAX);
	ck_assert_int_eq(gw_root_write(r, &raw, NULL), 0);
	ck_assert_int_eq(gw_root_sign(raw.p, raw.n, w->root_key.sk, &w->root_bytes, NULL), 0);
	gw_wr_free(&raw);
	ck_assert_int_eq(gw_root_open(w->root_bytes.p, w->root_bytes.n, NULL, &w->root, NULL), 0);
}

void world_keys(struct daemon_world *w)
{
	ck_assert_int_eq(gw_trust_init(), 0);
	fixture_key(&w->root_key, GW_KEY_ROOT, 0x10);
	fixture_key(&w->release, GW_KEY_RELEASE, 0x20);
	fixture_key(&w->admission, GW_KEY_ADMISSION, 0x30);
	fixture_key(&w->delegated, GW_KEY_ADMISSION, 0x40);
	fixture_key(&w->stranger, GW_KEY_RELEASE, 0x60);
	make_root(w);
}

void world_keys_free(struct daemon_world *w)
{
	gw_wr_free(&w->root_bytes);
}

static struct gw_fs_ops quick_ops;
static struct gw_fs quick = {&quick_ops};

static int no_sync(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	(void)f;
	return 0;
}

static int no_sync_dir(struct gw_fs *fs, const char *dir)
{
	(void)fs;
	(void)dir;
	return 0;
}

void world_init(struct daemon_world *w, struct gw_fs *fs, unsigned workers)
{
	memset(w, 0, sizeof *w);
	world_keys(w);
	quick_ops = *gw_fs_os()->ops;
	quick_ops.sync = no_sync;
	quick_ops.sync_dir = no_sync_dir;
	w->fs = fs ? fs : &quick;
	if (fs)
		(void)strcpy(w->dir, "/state");
	else
		ck_assert_ptr_nonnull(temp_dir(w->dir));
	w->pool = gw_pool_serial();
	w->seen = calloc(SEEN_MAX, sizeof *w->seen);
	ck_assert_ptr_nonnull(w->seen);
	ck_assert_int_eq(gw_loop_new(&w->loop, NULL), 0);
	ck_assert_int_eq(gw_workers_new(&w->workers, w->loop, workers, 1024, NULL), 0);
	ck_assert_int_eq(gw_store_open(&w->store, w->fs, w->dir, 0, NULL), 0);
}

void world_free(struct daemon_world *w)
{
	gw_workers_free(w->workers);
	gw_store_free(w->store);
	gw_loop_free(w->loop);
	world_keys_free(w);
	free(w->seen);
	if (w->fs == &quick)
		temp_dir_remove(w->dir);
}

void world_reopen(struct daemon_world *w)
{
	gw_store_free(w->store);
	ck_assert_int_eq(gw_store_open(&w->store, w->fs, w->dir, 0, NULL), 0);
}

const char *world_path(const struct daemon_world *w, const char *name)
{
	static char paths[5][512];
	static unsigned next;
	char *path = paths[next++ % 5];

	(void)snprintf(path, sizeof paths[0], "%s/%s", w->dir, name);
	return path;
}

/* --- events --- */

static void put(void *ctx, const struct gw_event *ev)
{
	struct daemon_world *w = ctx;
	struct seen *s = &w->seen[w->seen_n];

	ck_assert_uint_lt(w->seen_n, SEEN_MAX);
	w->seen_n++;
	*s = (struct seen){.kind = ev->kind, .host = ev->host, .err = ev->err, .key = ev->key, .bytes = ev->bytes,
			   .object = ev->object, .piece = ev->piece, .piece_count = ev->piece_count};
	for (uint32_t i = 0; ev->have && i < ev->piece_count; i++)
		s->have += ev->have[i / 8] >> (i % 8) & 1;
	if (ev->head)
		s->head = *ev->head;
	if (ev->manifest) {
		s->manifest = *ev->manifest;
		s->manifest.digests = NULL;
	}
	if (ev->record)
		memcpy(s->identity, ev->record->identity, 32);
}

struct gw_sink world_sink(struct daemon_world *w)
{
	return (struct gw_sink){w, put};
}

void world_rest(struct daemon_world *w)
{
	ck_assert_int_eq(gw_loop_turn(w->loop, 0), 0);
	while (gw_workers_pending(w->workers))
		ck_assert_int_eq(gw_loop_turn(w->loop, 100), 0);
}

const struct seen *world_wait(struct daemon_world *w, size_t n)
{
	uint64_t end = gw_clock_mono_ns() + 10 * SECOND_NS;

	while (w->seen_n <= n && gw_clock_mono_ns() < end)
		ck_assert_int_eq(gw_loop_turn(w->loop, 50), 0);
	ck_assert_uint_lt(n, w->seen_n);
	return &w->seen[n];
}

const struct seen *world_last(const struct daemon_world *w, enum gw_event_kind kind)
{
	size_t i = w->seen_n;

	while (i && w->seen[i - 1].kind != kind)
		i--;
	return i ? &w->seen[i - 1] : NULL;
}

size_t world_count(const struct daemon_world *w, enum gw_event_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < w->seen_n; i++)
		n += w->seen[i].kind == kind;
	return n;
}

/* --- hosts --- */

void world_token(const struct daemon_world *w, const char *region, char text[GW_TOKEN_TEXT_MAX])
{
	uint64_t now = gw_clock_wall_ns();
	struct gw_delegation d = {.roles = GW_ROLES_ALL, .created_ns = now - SECOND_NS, .join_until_ns = now + 3600 * SECOND_NS,
				  .expires_ns = now + DAY_NS / 2};
	struct gw_token t = {.root = w->root.id, .root_version = 1};
	struct gw_wr wr;

	memcpy(d.pk, w->delegated.pk, sizeof d.pk);
	(void)snprintf(d.region, sizeof d.region, "%s", region);
	gw_wr_init(&wr, sizeof t.delegation);
	ck_assert_int_eq(gw_delegation_sign(&d, w->admission.sk, &wr, NULL), 0);
	memcpy(t.delegation, wr.p, wr.n);
	t.delegation_bytes = wr.n;
	gw_wr_free(&wr);
	memset(t.seed, 0x40, sizeof t.seed);
	ck_assert_int_eq(gw_token_format(&t, text, NULL), 0);
}

void world_config(const struct daemon_world *w, struct gw_config *c, const char *state, const char *region)
{
	gw_config_defaults(c);
	(void)snprintf(c->host_name, sizeof c->host_name, "a");
	(void)snprintf(c->host_region, sizeof c->host_region, "%s", region);
	(void)snprintf(c->host_state, sizeof c->host_state, "%s", world_path(w, state));
	(void)snprintf(c->host_run, sizeof c->host_run, "%s", world_path(w, "run"));
}

/* --- checkpoints --- */

void world_model(struct model *m, struct gw_rng *rng)
{
	const uint64_t shapes[][2] = {{96, 64}, {128, 32}, {64, 64}, {50, 10}};
	static const char *const names[] = {"model.embed.weight", "model.layers.0.up.weight", "model.layers.0.down.weight",
					    "model.norm.weight"};

	memset(m, 0, sizeof *m);
	(void)strcpy(m->shard[0], "model-1.safetensors");
	(void)strcpy(m->shard[1], "model-2.safetensors");
	m->shards = 2;
	for (unsigned i = 0; i < 4; i++)
		(void)model_add(m, rng, i / 2, names[i], GW_DT_BF16, 2, shapes[i]);
	model_other(m, "config.json", "{\"hidden\": 64}\n");
}

void world_step(struct model *m, struct gw_rng *rng)
{
	for (unsigned i = 0; i < 3; i++)
		model_change(&m->t[i], rng, 40, 1);
}
