/*
 * The publisher under every cut. A trainer publishes three versions; the process dies, or the power fails, or one operation
 * of the disk is refused, in every single operation of the second publication in turn. In the lives that follow nothing is
 * announced twice with different content, heads only rise, the store holds what was announced and nothing else, and
 * publishing goes on.
 */
#include <pthread.h>
#include <string.h>

#include "../unit/daemon_world.h"
#include "../unit/unit.h"
#include "base/publish.h"
#include "crash_fs.h"
#include "io/os/fs_os.h"
#include "trust/freshness.h"
#include "weights/checkpoint.h"

enum { VERSIONS = 4 };

/* --- a crash_fs that the loop and a worker may use at a time --- */

static pthread_mutex_t disk_lock;
static struct crash_fs *disk;
static struct gw_fs *inner;
static int full_after; /* the first operation that is refused fills the disk up */

#define LOCKED(call) \
	do { \
		int e_; \
		pthread_mutex_lock(&disk_lock); \
		e_ = inner->ops->call; \
		if (e_ == GW_EIO && full_after) \
			crash_fs_full(disk, GW_ENOSPACE); \
		pthread_mutex_unlock(&disk_lock); \
		return e_; \
	} while (0)

static int l_open(struct gw_fs *fs, const char *path, unsigned flags, struct gw_file **out)
{
	(void)fs;
	LOCKED(open(inner, path, flags, out));
}

static void l_close(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	pthread_mutex_lock(&disk_lock);
	inner->ops->close(inner, f);
	pthread_mutex_unlock(&disk_lock);
}

static int l_pread(struct gw_fs *fs, struct gw_file *f, void *p, size_t n, uint64_t at)
{
	(void)fs;
	LOCKED(pread(inner, f, p, n, at));
}

static int l_pwrite(struct gw_fs *fs, struct gw_file *f, const void *p, size_t n, uint64_t at)
{
	(void)fs;
	LOCKED(pwrite(inner, f, p, n, at));
}

static int l_resize(struct gw_fs *fs, struct gw_file *f, uint64_t size)
{
	(void)fs;
	LOCKED(resize(inner, f, size));
}

static int l_sync(struct gw_fs *fs, struct gw_file *f)
{
	(void)fs;
	LOCKED(sync(inner, f));
}

static int l_fstat(struct gw_fs *fs, struct gw_file *f, struct gw_stat *st)
{
	(void)fs;
	LOCKED(fstat(inner, f, st));
}

static int l_map(struct gw_fs *fs, struct gw_file *f, struct gw_mapping *m)
{
	(void)fs;
	LOCKED(map(inner, f, m));
}

static int l_mapping_check(struct gw_fs *fs, const struct gw_mapping *m)
{
	(void)fs;
	LOCKED(mapping_check(inner, m));
}

static int l_unmap(struct gw_fs *fs, struct gw_mapping *m)
{
	(void)fs;
	LOCKED(unmap(inner, m));
}

static int l_stat(struct gw_fs *fs, const char *path, struct gw_stat *st)
{
	(void)fs;
	LOCKED(stat(inner, path, st));
}

static int l_list(struct gw_fs *fs, const char *dir, int (*each)(void *ctx, const char *name), void *ctx)
{
	(void)fs;
	LOCKED(list(inner, dir, each, ctx));
}

static int l_mkdir(struct gw_fs *fs, const char *path)
{
	(void)fs;
	LOCKED(mkdir(inner, path));
}

static int l_unlink(struct gw_fs *fs, const char *path)
{
	(void)fs;
	LOCKED(unlink(inner, path));
}

static int l_rename(struct gw_fs *fs, const char *from, const char *to)
{
	(void)fs;
	LOCKED(rename(inner, from, to));
}

static int l_symlink(struct gw_fs *fs, const char *target, const char *path)
{
	(void)fs;
	LOCKED(symlink(inner, target, path));
}

static int l_sync_dir(struct gw_fs *fs, const char *dir)
{
	(void)fs;
	LOCKED(sync_dir(inner, dir));
}

static uint64_t l_nonce(struct gw_fs *fs)
{
	uint64_t n;

	(void)fs;
	pthread_mutex_lock(&disk_lock);
	n = inner->ops->nonce(inner);
	pthread_mutex_unlock(&disk_lock);
	return n;
}

static const struct gw_fs_ops locked_ops = {
	l_open, l_close, l_pread, l_pwrite, l_resize, l_sync,	l_fstat,   l_map,      l_mapping_check,
	l_unmap, l_stat, l_list,  l_mkdir,  l_unlink, l_rename, l_symlink, l_sync_dir, l_nonce,
};
static struct gw_fs locked = {&locked_ops};

/* --- what the mesh has heard --- */

struct mesh {
	struct gw_digest manifest[VERSIONS]; /* by version; zero: never announced */
	uint64_t sequence, newest;
	int any;
};

static void hear_version(struct mesh *m, uint64_t version, const struct gw_digest *id)
{
	ck_assert_uint_lt(version, VERSIONS);
	if (gw_digest_is_zero(&m->manifest[version]))
		m->manifest[version] = *id;
	ck_assert_msg(gw_digest_equal(&m->manifest[version], id), "version %llu was announced with other content",
		      (unsigned long long)version);
}

static void hear(struct mesh *m, const struct daemon_world *w, size_t *heard)
{
	for (; *heard < w->seen_n; (*heard)++) {
		const struct seen *s = &w->seen[*heard];

		if (s->kind == GW_EV_MANIFEST) {
			hear_version(m, s->manifest.to, &s->manifest.id);
			continue;
		}
		ck_assert_int_eq(s->kind, GW_EV_HEAD);
		ck_assert_uint_gt(s->head.sequence, m->sequence);
		ck_assert_uint_ge(s->head.newest, m->newest);
		m->sequence = s->head.sequence;
		m->newest = s->head.newest;
		m->any = 1;
		hear_version(m, s->head.newest, &s->head.manifest);
		for (uint32_t i = 0; i < s->head.anchor_count; i++)
			hear_version(m, s->head.anchors[i].to, &s->head.anchors[i].manifest);
	}
}

/* --- a life of the trainer host --- */

struct life {
	struct daemon_world w;
	struct gw_publisher *pub;
	size_t heard;
};

static struct model models[VERSIONS];

static int born(struct life *l, struct mesh *m)
{
	struct gw_publisher_config cfg;
	int err;

	memset(l, 0, sizeof *l);
	world_init(&l->w, &locked, 1);
	cfg = (struct gw_publisher_config){.policy = "demo", .fs = &locked, .state = l->w.dir, .loop = l->w.loop,
					   .workers = l->w.workers, .pool = &l->w.pool, .store = l->w.store, .root = &l->w.root,
					   .release = &l->w.release, .head_expiry_ns = 180000000000,
					   .head_renew_ns = 20000000000, .sink = world_sink(&l->w)};
	err = gw_publisher_new(&l->pub, &cfg, NULL);
	if (err)
		return err;
	gw_publisher_start(l->pub);
	hear(m, &l->w, &l->heard);
	return 0;
}

/* What a dead process would still have announced, nobody hears. */
static void end(struct life *l, struct mesh *m)
{
	gw_workers_free(l->w.workers);
	if (!crash_fs_dead(disk))
		hear(m, &l->w, &l->heard);
	gw_publisher_free(l->pub);
	ck_assert_int_eq(gw_workers_new(&l->w.workers, l->w.loop, 1, 8, NULL), 0);
	world_free(&l->w);
}

static void keep(void *ctx, const struct gw_publish_result *r)
{
	*(struct gw_publish_result *)ctx = *r;
}

static struct gw_publish_result publish(struct life *l, struct mesh *m, int model)
{
	char path[16];
	struct gw_publish_request req = {.path = path};
	struct gw_publish_result res = {.err = 1};

	(void)snprintf(path, sizeof path, "/v%d", model);
	ck_assert_int_eq(gw_publisher_publish(l->pub, &req, keep, &res), 0);
	while (res.err > 0)
		ck_assert_int_eq(gw_loop_turn(l->w.loop, 100), 0);
	world_rest(&l->w);
	if (!crash_fs_dead(disk))
		hear(m, &l->w, &l->heard);
	return res;
}

/* --- what must hold --- */

struct count {
	struct life *l;
	const struct mesh *m;
	size_t n;
};

static int check_object(void *ctx, const struct gw_digest *id)
{
	struct count *c = ctx;
	struct gw_manifest m;
	struct gw_object *o;
	uint8_t *p;
	size_t n;

	ck_assert_int_eq(gw_store_manifest(c->l->w.store, id, &p, &n), 0);
	ck_assert_int_eq(gw_root_open_manifest(&c->l->w.root, p, n, &m, NULL), 0);
	ck_assert_uint_lt(m.to, VERSIONS);
	ck_assert(gw_digest_equal(&c->m->manifest[m.to], id)); /* nothing that was not announced */
	ck_assert_int_eq(gw_object_open(&o, c->l->w.store, &m, p, n, NULL), 0);
	for (uint32_t i = 0; i < gw_object_pieces(o); i++)
		ck_assert_int_eq(gw_object_check(o, i, 1), 0);
	ck_assert(gw_object_complete(o));
	gw_object_close(o);
	free(p);
	c->n++;
	return 0;
}

/* The store is what was announced; the base is the newest version. */
static void check(struct life *l, const struct mesh *m)
{
	struct count c = {l, m, 0};
	size_t announced = 0;
	char base[64], source[16];

	ck_assert_int_eq(gw_store_list(l->w.store, check_object, &c), 0);
	for (int v = 0; v < VERSIONS; v++)
		announced += !gw_digest_is_zero(&m->manifest[v]);
	ck_assert_uint_eq(c.n, announced);
	if (!m->any)
		return;
	ck_assert_uint_eq(gw_publisher_newest(l->pub), m->newest);
	(void)snprintf(base, sizeof base, "/state/publish/demo/base-%llu", (unsigned long long)m->newest);
	(void)snprintf(source, sizeof source, "/v%llu", (unsigned long long)m->newest);
	ck_assert(same_tree(&locked, base, source));
}

/* --- the stories --- */

enum harm {
	KILL,
	POWER_CUT,
	REFUSE,           /* one operation, and the process lives on */
	REFUSE_AND_KILL,  /* … it is killed at once */
	FULL,             /* as REFUSE, by a full disk */
	REFUSE_AND_FULL,  /* one operation, and all writes after it for a while */
	REFUSE_FULL_KILL, /* … and it is killed before the disk has room again */
};

static void make_disk(uint64_t seed)
{
	char path[16];

	disk = crash_fs_new(seed);
	inner = crash_fs_table(disk);
	for (int i = 0; i < VERSIONS; i++) {
		(void)snprintf(path, sizeof path, "/v%d", i);
		model_write(&models[i], &locked, path);
	}
	ck_assert_int_eq(gw_fs_sync_dir(&locked, "/"), 0);
}

static void harm_at(enum harm harm, uint64_t op)
{
	full_after = harm == REFUSE_AND_FULL || harm == REFUSE_FULL_KILL;
	if (harm == KILL || harm == POWER_CUT)
		crash_fs_die_at(disk, op);
	else
		crash_fs_fail_at(disk, op, harm == FULL ? GW_ENOSPACE : GW_EIO);
}

static void no_more_harm(void)
{
	full_after = 0;
	crash_fs_fail_at(disk, 0, 0);
	crash_fs_full(disk, 0);
}

static int lives_on(enum harm harm)
{
	return harm == REFUSE || harm == FULL || harm == REFUSE_AND_FULL;
}

/* Publishes up to version `last`; harm comes at operation `op` of its publication. 0 when that was too late to matter. */
static int story(enum harm harm, int last, uint64_t op, uint64_t seed)
{
	struct mesh m = {.sequence = 0};
	struct gw_publish_result res;
	struct life l;
	int met;

	make_disk(seed);
	ck_assert_int_eq(born(&l, &m), 0);
	for (int v = 0; v < last; v++)
		ck_assert_int_eq(publish(&l, &m, v).err, 0);
	harm_at(harm, op);
	op += crash_fs_ops(disk);
	res = publish(&l, &m, last);
	met = crash_fs_ops(disk) >= op;
	ck_assert(res.err || res.version == (uint64_t)last);
	if (lives_on(harm)) {
		no_more_harm();
		ck_assert_int_eq(publish(&l, &m, last).err, 0); /* it takes the same again */
		check(&l, &m);
	}
	end(&l, &m);
	no_more_harm();
	crash_fs_reboot(disk, harm == POWER_CUT || lives_on(harm));
	ck_assert_int_eq(born(&l, &m), 0);
	check(&l, &m);
	/* Whether it came through or not, asking again settles it. */
	ck_assert_int_eq(publish(&l, &m, last).err, 0);
	ck_assert_uint_eq(m.newest, (uint64_t)last);
	check(&l, &m);
	ck_assert_int_eq(publish(&l, &m, last + 1).err, 0);
	ck_assert_uint_eq(m.newest, (uint64_t)last + 1);
	check(&l, &m);
	end(&l, &m);
	crash_fs_free(disk);
	return met;
}

static void every_operation(enum harm harm)
{
	for (int last = 0; last < 2; last++) {
		uint64_t op = 1;

		while (story(harm, last, op, unit_seed() + op))
			op++;
		ck_assert_uint_gt(op, 20);
	}
}

START_TEST(killed_in_every_operation)
{
	every_operation(KILL);
}
END_TEST

START_TEST(without_power_in_every_operation)
{
	every_operation(POWER_CUT);
}
END_TEST

START_TEST(every_operation_refused)
{
	every_operation(REFUSE);
	every_operation(REFUSE_AND_KILL);
}
END_TEST

START_TEST(the_disk_full_at_every_operation)
{
	every_operation(FULL);
}
END_TEST

/* The record that was refused may be on the disk, and the old one cannot be written again. */
START_TEST(refused_and_full_at_every_operation)
{
	every_operation(REFUSE_AND_FULL);
	every_operation(REFUSE_FULL_KILL);
}
END_TEST

START_TEST(full_for_a_while)
{
	struct mesh m = {.sequence = 0};
	struct life l;

	make_disk(unit_seed());
	ck_assert_int_eq(born(&l, &m), 0);
	ck_assert_int_eq(publish(&l, &m, 0).err, 0);
	crash_fs_full(disk, GW_ENOSPACE);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(publish(&l, &m, 1).err, GW_ENOSPACE);
	ck_assert_uint_eq(m.newest, 0);
	crash_fs_full(disk, 0);
	ck_assert_int_eq(publish(&l, &m, 1).err, 0);
	check(&l, &m);
	end(&l, &m);
	crash_fs_free(disk);
}
END_TEST

/* --- */

static void setup(void)
{
	pthread_mutexattr_t a;
	struct gw_rng rng;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE); /* `list` calls back */
	pthread_mutex_init(&disk_lock, &a);
	full_after = 0;
	pthread_mutexattr_destroy(&a);
	gw_rng_init(&rng, unit_seed());
	world_model(&models[0], &rng);
	for (int i = 1; i < VERSIONS; i++) {
		model_copy(&models[i], &models[i - 1]);
		world_step(&models[i], &rng);
	}
}

static void teardown(void)
{
	for (int i = 0; i < VERSIONS; i++)
		model_free(&models[i]);
	pthread_mutex_destroy(&disk_lock);
}

static Suite *suite(void)
{
	Suite *s = suite_create("crash/publish");
	TCase *t = tcase_create("publish");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, killed_in_every_operation);
	tcase_add_test(t, without_power_in_every_operation);
	tcase_add_test(t, every_operation_refused);
	tcase_add_test(t, the_disk_full_at_every_operation);
	tcase_add_test(t, refused_and_full_at_every_operation);
	tcase_add_test(t, full_for_a_while);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
