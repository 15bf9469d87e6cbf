/* The publisher: what it announces, what lies in the store and beside it, and what it refuses. */
#include <string.h>

#include "base/publish.h"
#include "daemon.h"
#include "daemon/publish.h"
#include "daemon_world.h"
#include "io/os/clock.h"
#include "patch/patch.h"
#include "trust/freshness.h"
#include "trust/tensor_table.h"
#include "unit.h"

static struct daemon_world w;
static struct gw_publisher *pub;
static struct gw_rng rng;
static struct model model;
static struct gw_publish_result res;

/* --- the stage --- */

static int start_publisher(const char *policy, const struct gw_key *key, struct gw_diag *why)
{
	struct gw_publisher_config cfg = {
		.policy = policy,
		.fs = w.fs,
		.state = w.dir,
		.loop = w.loop,
		.workers = w.workers,
		.pool = &w.pool,
		.store = w.store,
		.root = &w.root,
		.release = key,
		.head_expiry_ns = 180000000000,
		.head_renew_ns = 20000000000,
		.sink = world_sink(&w),
	};
	int err = gw_publisher_new(&pub, &cfg, why);

	if (!err)
		gw_publisher_start(pub);
	return err;
}

static void open_stage(void)
{
	world_init(&w, NULL, 2);
	gw_rng_init(&rng, unit_seed());
	world_model(&model, &rng);
	pub = NULL;
}

static void setup(void)
{
	open_stage();
	ck_assert_int_eq(start_publisher("demo", &w.release, NULL), 0);
}

static void teardown(void)
{
	world_rest(&w);
	gw_publisher_free(pub);
	model_free(&model);
	world_free(&w);
}

/* The host stops and starts again. */
static void restart(void)
{
	world_rest(&w);
	gw_publisher_free(pub);
	world_reopen(&w);
	ck_assert_int_eq(start_publisher("demo", &w.release, NULL), 0);
}

static void keep(void *ctx, const struct gw_publish_result *r)
{
	res = *r;
	*(int *)ctx = 1;
}

static int publish_as(const char *path, int has_version, uint64_t version, int anchor)
{
	struct gw_publish_request req = {world_path(&w, path), has_version, version, anchor};
	int done = 0;

	memset(&res, 0, sizeof res);
	ck_assert_int_eq(gw_publisher_publish(pub, &req, keep, &done), 0);
	while (!done)
		ck_assert_int_eq(gw_loop_turn(w.loop, 100), 0);
	world_rest(&w);
	return res.err;
}

/* The model as it is now, as the next version. */
static int publish(const char *path)
{
	model_write(&model, w.fs, world_path(&w, path));
	return publish_as(path, 0, 0, 0);
}

static int step_and_publish(const char *path)
{
	world_step(&model, &rng);
	return publish(path);
}

static struct gw_object *open_object(const struct gw_digest *id)
{
	struct gw_manifest m;
	struct gw_object *o;
	uint8_t *p;
	size_t n;

	ck_assert_int_eq(gw_store_manifest(w.store, id, &p, &n), 0);
	ck_assert_int_eq(gw_root_open_manifest(&w.root, p, n, &m, NULL), 0);
	ck_assert_int_eq(gw_object_open(&o, w.store, &m, p, n, NULL), 0);
	free(p);
	return o;
}

static int is_there(const char *name)
{
	struct gw_stat st;

	return !gw_fs_stat(w.fs, world_path(&w, name), &st);
}

/* --- stories --- */

START_TEST(the_first_version_is_an_anchor)
{
	const struct seen *head, *m;
	struct gw_object *o;

	ck_assert_uint_eq(gw_publisher_newest(pub), UINT64_MAX);
	ck_assert_uint_eq(w.seen_n, 0);
	ck_assert_int_eq(publish("v0"), 0);
	ck_assert(res.anchor && !res.already);
	ck_assert_uint_eq(res.version, 0);
	m = &w.seen[0];
	head = &w.seen[1];
	ck_assert_uint_eq(w.seen_n, 2);
	ck_assert_int_eq(m->kind, GW_EV_MANIFEST);
	ck_assert_uint_eq(m->host, GW_HOST_SELF);
	ck_assert_uint_eq(m->manifest.kind, GW_KIND_ANCHOR);
	ck_assert_uint_eq(m->manifest.from + m->manifest.to, 0);
	ck_assert(gw_digest_is_zero(&m->manifest.previous));
	ck_assert(gw_digest_equal(&m->manifest.id, &res.manifest));
	ck_assert_int_eq(head->kind, GW_EV_HEAD);
	ck_assert_int_eq(gw_head_names(&head->head, &m->manifest, NULL), 0);
	ck_assert_uint_eq(head->head.anchor_count, 1);
	ck_assert(gw_digest_equal(&head->head.anchors[0].manifest, &res.manifest));
	ck_assert(gw_head_is_fresh(&head->head, gw_clock_wall_ns()));
	ck_assert_uint_eq(head->head.root_epoch, 1);
	o = open_object(&res.manifest);
	ck_assert(gw_object_complete(o));
	gw_object_close(o);
	ck_assert(same_tree(w.fs, world_path(&w, "v0"), world_path(&w, "publish/demo/base-0")));
	ck_assert(!is_there("publish/demo/patch"));
}
END_TEST

START_TEST(versions_follow_each_other)
{
	struct gw_manifest before;
	const struct seen *m;
	uint64_t sequence;

	ck_assert_int_eq(publish("v0"), 0);
	before = world_last(&w, GW_EV_MANIFEST)->manifest;
	sequence = world_last(&w, GW_EV_HEAD)->head.sequence;
	ck_assert_int_eq(step_and_publish("v1"), 0);
	m = world_last(&w, GW_EV_MANIFEST);
	ck_assert(!res.anchor);
	ck_assert_uint_eq(m->manifest.kind, GW_KIND_TRANSITION);
	ck_assert_uint_eq(m->manifest.from, 0);
	ck_assert_uint_eq(m->manifest.to, 1);
	ck_assert(gw_digest_equal(&m->manifest.previous, &before.id));
	ck_assert_mem_eq(&m->manifest.before, &before.after, sizeof before.after);
	ck_assert_mem_eq(m->manifest.run, before.run, GW_RUN_BYTES);
	ck_assert_uint_gt(world_last(&w, GW_EV_HEAD)->head.sequence, sequence);
	ck_assert_uint_eq(world_last(&w, GW_EV_HEAD)->head.newest, 1);
	ck_assert_uint_eq(m->manifest.changed, res.changed);
	ck_assert(same_tree(w.fs, world_path(&w, "v1"), world_path(&w, "publish/demo/base-1")));
	ck_assert(!is_there("publish/demo/base-0"));
	ck_assert_uint_eq(gw_store_count(w.store), 2);
}
END_TEST

START_TEST(numbers_only_rise)
{
	ck_assert_int_eq(publish("v0"), 0);
	world_step(&model, &rng);
	model_write(&model, w.fs, world_path(&w, "later"));
	ck_assert_int_eq(publish_as("later", 1, 7, 0), 0);
	ck_assert_uint_eq(res.from, 0);
	ck_assert_uint_eq(world_last(&w, GW_EV_HEAD)->head.newest, 7);
	ck_assert_int_eq(publish_as("v0", 1, 3, 0), GW_EINVAL);
	ck_assert_ptr_nonnull(strstr(res.why.text, "version 3 is not above 7"));
	ck_assert_int_eq(publish_as("v0", 1, UINT64_MAX, 0), GW_EINVAL);
	ck_assert_int_eq(publish_as("v0", 0, 0, 0), 0); /* an older state, as a new version */
	ck_assert_uint_eq(res.version, 8);
}
END_TEST

START_TEST(the_same_content_is_published_once)
{
	ck_assert_int_eq(publish("v0"), 0);
	ck_assert_int_eq(publish_as("v0", 0, 0, 0), 0);
	ck_assert(res.already);
	ck_assert_uint_eq(res.version, 0);
	/* Whoever missed the answer asks again, by number. */
	ck_assert_int_eq(publish_as("v0", 1, 0, 0), 0);
	ck_assert(res.already);
	world_step(&model, &rng);
	model_write(&model, w.fs, world_path(&w, "v1"));
	ck_assert_int_eq(publish_as("v1", 1, 0, 0), GW_EINVAL);
	ck_assert_ptr_nonnull(strstr(res.why.text, "version 0 is published with other content"));
	ck_assert_uint_eq(world_count(&w, GW_EV_MANIFEST), 1);
	ck_assert_uint_eq(gw_store_count(w.store), 1);
}
END_TEST

START_TEST(two_anchors_are_listed)
{
	const struct gw_head *h;

	ck_assert_int_eq(publish("v0"), 0);
	for (int i = 1; i <= 3; i++) {
		const char *name = i == 1 ? "v1" : i == 2 ? "v2" : "v3";

		world_step(&model, &rng);
		model_write(&model, w.fs, world_path(&w, name));
		ck_assert_int_eq(publish_as(name, 0, 0, 1), 0);
		ck_assert(res.anchor);
		ck_assert_uint_eq(world_last(&w, GW_EV_MANIFEST)->manifest.from, (uint64_t)i);
	}
	h = &world_last(&w, GW_EV_HEAD)->head;
	ck_assert_uint_eq(h->anchor_count, 2);
	ck_assert_uint_eq(h->anchors[0].to, 2);
	ck_assert_uint_eq(h->anchors[1].to, 3);
	ck_assert(gw_digest_equal(&h->anchors[1].manifest, &h->manifest));
}
END_TEST

START_TEST(one_at_a_time)
{
	struct gw_publish_request req = {.path = world_path(&w, "v0")};
	int done = 0, never = 0;

	model_write(&model, w.fs, world_path(&w, "v0"));
	ck_assert_int_eq(gw_publisher_publish(pub, &req, keep, &done), 0);
	ck_assert_int_eq(gw_publisher_publish(pub, &req, keep, &never), GW_EAGAIN);
	while (!done)
		ck_assert_int_eq(gw_loop_turn(w.loop, 100), 0);
	ck_assert_int_eq(res.err, 0);
	ck_assert(!never);
}
END_TEST

START_TEST(a_restart_goes_on)
{
	uint8_t run[GW_RUN_BYTES];
	const struct gw_head *h;
	uint64_t sequence;

	ck_assert_int_eq(publish("v0"), 0);
	ck_assert_int_eq(step_and_publish("v1"), 0);
	memcpy(run, gw_publisher_run(pub), sizeof run);
	sequence = world_last(&w, GW_EV_HEAD)->head.sequence;
	for (int i = 0; i < 3; i++) {
		restart();
		h = &world_last(&w, GW_EV_HEAD)->head;
		ck_assert_uint_gt(h->sequence, sequence);
		sequence = h->sequence;
		ck_assert_uint_eq(h->newest, 1);
		ck_assert_mem_eq(h->run, run, sizeof run);
	}
	ck_assert_int_eq(step_and_publish("v2"), 0);
	ck_assert_uint_eq(res.from, 1);
	ck_assert_uint_eq(world_last(&w, GW_EV_HEAD)->head.newest, 2);
}
END_TEST

START_TEST(a_later_run_is_no_rollback)
{
	struct gw_counters c = {0};
	enum gw_freshness fresh;
	const struct gw_head *h;

	ck_assert_int_eq(publish("v0"), 0);
	for (int i = 0; i < 5; i++)
		restart();
	gw_counters_advance(&c, &world_last(&w, GW_EV_HEAD)->head);
	ck_assert_int_eq(gw_fs_unlink(w.fs, world_path(&w, "slots/publish-demo")), 0);
	while (gw_clock_wall_ns() / 1000 <= c.sequence)
		; /* five restarts in a moment ran ahead of the clock, by some milliseconds */
	restart();
	ck_assert_int_eq(publish_as("v0", 0, 0, 0), 0);
	h = &world_last(&w, GW_EV_HEAD)->head;
	ck_assert_mem_ne(h->run, c.run, GW_RUN_BYTES);
	ck_assert_int_eq(gw_head_judge(&c, h, gw_clock_wall_ns(), 0, &fresh, NULL), 0);
	ck_assert_int_eq(fresh, GW_HEAD_FRESH);
}
END_TEST

START_TEST(leftovers_of_a_kill_are_swept)
{
	size_t n;
	uint8_t *record;

	ck_assert_int_eq(publish("v0"), 0);
	record = read_whole(w.fs, world_path(&w, "slots/publish-demo"), &n);
	ck_assert_int_eq(step_and_publish("v1"), 0);
	/* As if it had died before the record of version 1: the object and the new base are there. */
	write_whole(w.fs, world_path(&w, "slots/publish-demo"), record, n);
	free(record);
	write_whole(w.fs, world_path(&w, "publish/demo/patch"), "x", 1);
	model_free(&model);
	world_model(&model, &rng);
	model_write(&model, w.fs, world_path(&w, "publish/demo/base-0"));
	restart();
	ck_assert_uint_eq(gw_publisher_newest(pub), 0);
	ck_assert_uint_eq(gw_store_count(w.store), 1);
	ck_assert(!is_there("publish/demo/base-1"));
	ck_assert(!is_there("publish/demo/patch"));
	ck_assert(is_there("publish/demo/base-0"));
}
END_TEST

START_TEST(heads_are_renewed)
{
	size_t first;

	ck_assert_int_eq(publish("v0"), 0);
	gw_publisher_pace(pub, 2000000000, 1000000);
	gw_publisher_start(pub); /* the timer that is set has the old pace */
	first = w.seen_n;
	for (size_t i = first; i < first + 3; i++) {
		const struct seen *s = world_wait(&w, i);

		ck_assert_int_eq(s->kind, GW_EV_HEAD);
		ck_assert_uint_eq(s->head.sequence, s[-1].head.sequence + 1);
		ck_assert_uint_eq(s->head.newest, 0);
		ck_assert_uint_eq(s->head.expires_ns - s->head.created_ns, 2000000000);
		ck_assert_uint_ge(s->head.created_ns, s[-1].head.created_ns);
	}
}
END_TEST

START_TEST(a_damaged_base_is_not_built_upon)
{
	const char *shard = world_path(&w, "publish/demo/base-0/model-1.safetensors");
	uint8_t *p;
	size_t n;

	ck_assert_int_eq(publish("v0"), 0);
	p = read_whole(w.fs, shard, &n);
	p[n - 5] ^= 0x40;
	write_whole(w.fs, shard, p, n);
	free(p);
	ck_assert_int_eq(step_and_publish("v1"), GW_EBASE);
	ck_assert_ptr_nonnull(strstr(res.why.text, "base-0"));
	ck_assert_ptr_nonnull(strstr(res.why.text, "--anchor"));
	ck_assert_uint_eq(world_count(&w, GW_EV_MANIFEST), 1);
	ck_assert_int_eq(gw_publish_remove(w.fs, world_path(&w, "publish/demo/base-0")), 0);
	ck_assert_int_ne(publish_as("v1", 0, 0, 0), 0);
	ck_assert_ptr_nonnull(strstr(res.why.text, "own copy of version 0"));
	ck_assert_int_eq(publish_as("v1", 0, 0, 1), 0);
	ck_assert_uint_eq(res.version, 1);
	ck_assert_int_eq(step_and_publish("v2"), 0);
	ck_assert(!res.anchor);
}
END_TEST

START_TEST(what_cannot_be_read_changes_nothing)
{
	ck_assert_int_eq(publish("v0"), 0);
	ck_assert_int_ne(publish_as("nowhere", 0, 0, 0), 0);
	ck_assert_ptr_nonnull(strstr(res.why.text, "nowhere"));
	ck_assert_uint_eq(gw_publisher_newest(pub), 0);
	ck_assert_int_eq(step_and_publish("v1"), 0);
	ck_assert_uint_eq(res.version, 1);
}
END_TEST

START_TEST(keys_and_names_are_checked_first)
{
	struct gw_diag why = {""};
	char name[GW_POLICY_NAME_MAX + 2];

	gw_publisher_free(pub);
	ck_assert_int_eq(start_publisher("demo", &w.stranger, &why), GW_EUNTRUSTED);
	why.text[0] = 0;
	ck_assert_int_eq(start_publisher("unknown", &w.release, &why), GW_EUNTRUSTED);
	ck_assert_ptr_nonnull(strstr(why.text, "unknown"));
	memset(name, 'p', sizeof name - 1);
	name[sizeof name - 1] = 0;
	why.text[0] = 0;
	ck_assert_int_eq(start_publisher(name, &w.release, &why), GW_ECONFIG);
	ck_assert_int_eq(start_publisher("a/b", &w.release, NULL), GW_ECONFIG);
	ck_assert_int_eq(start_publisher("demo", &w.release, NULL), 0);
	/* A key that ends while the process lives signs nothing more. */
	ck_assert_int_eq(publish("v0"), 0);
	w.root.releases[0].until_ns = gw_clock_wall_ns() - 1;
	ck_assert_int_eq(step_and_publish("v1"), GW_EEXPIRED);
	ck_assert_uint_eq(world_count(&w, GW_EV_HEAD), 1);
	w.root.releases[0].until_ns = UINT64_MAX;
	ck_assert_int_eq(publish_as("v1", 0, 0, 0), 0);
}
END_TEST

START_TEST(a_damaged_record_is_named)
{
	struct gw_diag why = {""};
	uint8_t *p;
	size_t n;

	ck_assert_int_eq(publish("v0"), 0);
	gw_publisher_free(pub);
	p = read_whole(w.fs, world_path(&w, "slots/publish-demo"), &n);
	p[n - 1] ^= 1;
	write_whole(w.fs, world_path(&w, "slots/publish-demo"), p, n);
	free(p);
	ck_assert_int_eq(start_publisher("demo", &w.release, &why), GW_EDIGEST);
	ck_assert_ptr_nonnull(strstr(why.text, "publish-demo"));
	pub = NULL;
}
END_TEST

/* --- the object --- */

static void compare_tables(const struct gw_object_view *v)
{
	struct gw_patch_info info;
	struct gw_tensor_table t;
	struct gw_patch *pt;

	ck_assert_int_eq(gw_patch_open(&pt, v->payload, v->payload_bytes, NULL), 0);
	gw_patch_info(pt, &info);
	ck_assert_int_eq(gw_tensor_table_open(&t, v->tensor_table, v->tensor_table_bytes, NULL), 0);
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *a = gw_patch_tensor(pt, i);
		struct gw_tensor_row b;

		if (a->kind == GW_TENSOR_REMOVED)
			continue;
		ck_assert_int_eq(gw_tensor_table_next(&t, &b), 1);
		ck_assert_uint_eq(b.name_bytes, strlen(a->name));
		ck_assert_mem_eq(b.name, a->name, b.name_bytes);
		ck_assert_uint_eq(b.dtype, a->dtype);
		ck_assert_uint_eq(b.rank, a->rank);
		ck_assert_uint_eq(b.axis, a->axis);
		ck_assert_mem_eq(b.shape, a->shape, a->rank * sizeof a->shape[0]);
		ck_assert_mem_eq(b.print, a->print_new, sizeof b.print);
	}
	ck_assert_uint_eq(t.left, 0);
	gw_patch_close(pt);
}

/* Every piece as its digest says, whoever asks; the tables of object and patch agree. */
static void check_object(const struct gw_digest *id, uint32_t leaves)
{
	struct gw_object *o = open_object(id);
	const struct gw_manifest *m = gw_object_manifest(o);
	struct gw_object_view v;
	struct gw_digest d;

	ck_assert_uint_eq(m->table_pieces, leaves);
	ck_assert_uint_eq(gw_object_pieces(o), m->object_pieces + leaves);
	for (uint32_t i = 0; i < gw_object_pieces(o); i++)
		ck_assert_int_eq(gw_object_check(o, i, 1), 0);
	ck_assert_int_eq(gw_object_map(o, &v), 0);
	gw_digest_of(v.tensor_table, v.tensor_table_bytes, &d);
	ck_assert(gw_digest_equal(&d, &m->tensor_table));
	compare_tables(&v);
	ck_assert_int_eq(gw_object_unmap(&v), 0);
	gw_object_close(o);
}

START_TEST(objects_hold_what_their_manifests_say)
{
	ck_assert_int_eq(publish("v0"), 0);
	check_object(&res.manifest, 0);
	/* A tensor goes, another comes, a file changes. */
	free(model.t[3].p);
	model.n--;
	(void)model_add(&model, &rng, 1, "model.other.weight", GW_DT_F32, 1, (const uint64_t[]){77});
	(void)strcpy(model.other[0].text, "{}\n");
	ck_assert_int_eq(step_and_publish("v1"), 0);
	check_object(&res.manifest, 0);
	ck_assert(same_tree(w.fs, world_path(&w, "v1"), world_path(&w, "publish/demo/base-1")));
}
END_TEST

START_TEST(large_objects_have_a_piece_table)
{
	(void)model_add(&model, &rng, 1, "model.large.weight", GW_DT_F32, 2, (const uint64_t[]){2200, 4096});
	ck_assert_int_eq(publish("v0"), 0);
	ck_assert_uint_gt(res.pieces, GW_INLINE_DIGESTS);
	check_object(&res.manifest, 1);
}
END_TEST

TCase *daemon_publish_tests(void)
{
	TCase *t = tcase_create("publish");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_first_version_is_an_anchor);
	tcase_add_test(t, versions_follow_each_other);
	tcase_add_test(t, numbers_only_rise);
	tcase_add_test(t, the_same_content_is_published_once);
	tcase_add_test(t, two_anchors_are_listed);
	tcase_add_test(t, one_at_a_time);
	tcase_add_test(t, a_restart_goes_on);
	tcase_add_test(t, a_later_run_is_no_rollback);
	tcase_add_test(t, leftovers_of_a_kill_are_swept);
	tcase_add_test(t, heads_are_renewed);
	tcase_add_test(t, a_damaged_base_is_not_built_upon);
	tcase_add_test(t, what_cannot_be_read_changes_nothing);
	tcase_add_test(t, keys_and_names_are_checked_first);
	tcase_add_test(t, a_damaged_record_is_named);
	tcase_add_test(t, objects_hold_what_their_manifests_say);
	tcase_add_test(t, large_objects_have_a_piece_table);
	return t;
}
