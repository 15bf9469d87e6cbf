/* Objects: blocks gathered into pieces, pieces checked and served, and what a disk that refuses leads to. */
#include <string.h>

#include "base/num.h"
#include "daemon.h"
#include "daemon/objects.h"
#include "daemon_world.h"
#include "io/os/clock.h"
#include "io/os/fs_os.h"
#include "trust_fixture.h"
#include "unit.h"

enum { PIECE = 64 * 1024, PIECES = 4, OBJECT = 3 * PIECE + 1000, BLOCK = 16 * 1024 };

static struct daemon_world w;
static struct gw_objects *objects;
static struct gw_manifest m;
static uint8_t object[OBJECT], digests[32 * PIECES], *signed_bytes;
static size_t signed_n;

static struct {
	unsigned calls, full; /* of them refused as full */
	int err;
	uint8_t bytes[PIECE];
	size_t n;
} sent;

/* --- a disk whose syncs can fail --- */

static struct gw_fs_ops shaky_ops;
static struct gw_fs shaky = {&shaky_ops};
static int sync_err, write_err;

static int shaky_sync(struct gw_fs *fs, struct gw_file *f)
{
	return sync_err ? sync_err : w.fs->ops->sync(fs, f);
}

static int shaky_pwrite(struct gw_fs *fs, struct gw_file *f, const void *p, size_t n, uint64_t at)
{
	return write_err ? write_err : gw_fs_os()->ops->pwrite(fs, f, p, n, at);
}

/* --- the stage --- */

static int send_block(void *ctx, gw_host host, const struct gw_digest *id, uint32_t piece, uint64_t offset, const void *p,
		      size_t n)
{
	(void)ctx;
	(void)host;
	(void)id;
	(void)piece;
	(void)offset;
	sent.calls++;
	if (sent.full) {
		sent.full--;
		return GW_EAGAIN;
	}
	memcpy(sent.bytes, p, n);
	sent.n = n;
	return sent.err;
}

static void make_object(void)
{
	struct gw_rng rng;

	gw_rng_init(&rng, unit_seed());
	for (size_t i = 0; i < OBJECT; i++)
		object[i] = (uint8_t)gw_rng_u64(&rng);
	m = (struct gw_manifest){.kind = GW_KIND_ANCHOR, .encoding = GW_ENCODING_PLAIN, .policy = "demo",
				 .created_ns = gw_clock_wall_ns(), .object_bytes = OBJECT, .tensor_table_bytes = 500,
				 .piece_bytes = PIECE, .object_pieces = PIECES, .digest_count = PIECES, .digests = digests};
	m.expires_ns = m.created_ns + DAY_NS;
	for (size_t i = 0; i < PIECES; i++)
		gw_digest_of(object + i * PIECE, i < 3 ? PIECE : 1000, (struct gw_digest *)(digests + 32 * i));
	ck_assert_int_eq(gw_manifest_sign(&m, w.release.sk, &signed_bytes, &signed_n), 0);
}

static void start(uint64_t gather_max)
{
	struct gw_objects_config cfg = {.loop = w.loop, .workers = w.workers, .store = w.store, .root = &w.root,
					.gather_max_bytes = gather_max, .sink = world_sink(&w), .send = send_block};

	ck_assert_int_eq(gw_objects_new(&objects, &cfg), 0);
}

static void setup(void)
{
	sync_err = write_err = 0;
	memset(&sent, 0, sizeof sent);
	world_init(&w, NULL, 2);
	shaky_ops = *w.fs->ops;
	shaky_ops.sync = shaky_sync;
	shaky_ops.pwrite = shaky_pwrite;
	gw_store_free(w.store);
	ck_assert_int_eq(gw_store_open(&w.store, &shaky, w.dir, 0, NULL), 0);
	make_object();
	start(64 << 20);
}

/* As the host stops: workers first, whatever is under way. */
static void teardown(void)
{
	gw_workers_free(w.workers);
	gw_objects_free(objects);
	ck_assert_int_eq(gw_workers_new(&w.workers, w.loop, 1, 8, NULL), 0);
	world_free(&w);
	free(signed_bytes);
}

static void restart(void)
{
	world_rest(&w);
	gw_objects_free(objects);
	world_reopen(&w);
	start(64 << 20);
}

static void act(enum gw_action_kind kind, gw_host host, uint32_t piece)
{
	struct gw_action a = {.kind = kind, .host = host, .object = m.id, .piece = piece};

	if (kind == GW_ACT_OBJECT_OPEN)
		a.data = (struct gw_bytes){signed_bytes, signed_n};
	gw_objects_act(objects, &a);
}

static void block(gw_host host, uint32_t piece, uint64_t at)
{
	uint64_t size = gw_manifest_piece_size(&m, piece);
	struct gw_action a = {.kind = GW_ACT_BLOCK_STORE, .host = host, .object = m.id, .piece = piece, .offset = at,
			      .data = {object + (size_t)piece * PIECE + at, gw_min_u64(BLOCK, size - at)}};

	gw_objects_act(objects, &a);
}

static void whole_piece(gw_host host, uint32_t piece)
{
	uint64_t size = gw_manifest_piece_size(&m, piece);

	for (uint64_t at = (size - 1) / BLOCK * BLOCK + BLOCK; at; at -= BLOCK)
		block(host, piece, at - BLOCK); /* backwards */
	act(GW_ACT_PIECE_CHECK, host, piece);
}

static const struct seen *opened(void)
{
	size_t n = w.seen_n;

	act(GW_ACT_OBJECT_OPEN, GW_HOST_SELF, 0);
	return world_wait(&w, n);
}

static void get(uint32_t piece, uint64_t offset, size_t n)
{
	struct gw_action a = {.kind = GW_ACT_BLOCK_SEND, .host = 9, .object = m.id, .piece = piece, .offset = offset, .bytes = n};

	gw_objects_act(objects, &a);
}

/* --- stories --- */

START_TEST(pieces_arrive_and_stay)
{
	const struct seen *s = opened();

	ck_assert_int_eq(s->kind, GW_EV_OBJECT_OPEN);
	ck_assert_uint_eq(s->piece_count, PIECES);
	ck_assert_uint_eq(s->have, 0);
	for (uint32_t i = PIECES; i > 0; i--) {
		whole_piece(2, i - 1);
		s = world_wait(&w, w.seen_n);
		ck_assert_int_eq(s->kind, GW_EV_PIECE_OK);
		ck_assert_uint_eq(s->piece, i - 1);
	}
	ck_assert_uint_eq(opened()->have, PIECES);
	restart();
	ck_assert_uint_eq(opened()->have, PIECES);
}
END_TEST

START_TEST(a_wrong_piece_names_its_sender)
{
	const struct seen *s;

	opened();
	object[PIECE + 77] ^= 1;
	whole_piece(5, 1);
	s = world_wait(&w, 1);
	ck_assert_int_eq(s->kind, GW_EV_PIECE_BAD);
	ck_assert_uint_eq(s->host, 5);
	ck_assert_uint_eq(s->piece, 1);
	object[PIECE + 77] ^= 1;
	whole_piece(6, 1);
	ck_assert_int_eq(world_wait(&w, 2)->kind, GW_EV_PIECE_OK);
	/* Blocks of two hosts are never mixed. */
	block(5, 2, 0);
	object[2 * PIECE] ^= 1;
	whole_piece(7, 2);
	object[2 * PIECE] ^= 1;
	s = world_wait(&w, 3);
	ck_assert_int_eq(s->kind, GW_EV_PIECE_BAD);
	ck_assert_uint_eq(s->host, 7);
}
END_TEST

START_TEST(only_what_the_root_allows_is_opened)
{
	const struct seen *s;

	signed_bytes[40] ^= 1;
	s = opened();
	ck_assert_int_eq(s->kind, GW_EV_OBJECT_FAILED);
	signed_bytes[40] ^= 1;
	world_rest(&w);
	ck_assert_int_eq(opened()->kind, GW_EV_OBJECT_OPEN); /* a failure is forgotten */
}
END_TEST

START_TEST(blocks_are_served)
{
	const struct seen *s;

	opened();
	whole_piece(2, 1);
	world_wait(&w, 1);
	get(1, BLOCK, BLOCK);
	s = world_wait(&w, 2);
	ck_assert_int_eq(s->kind, GW_EV_BLOCK_SENT);
	ck_assert_int_eq(s->err, 0);
	ck_assert_uint_eq(s->bytes, BLOCK);
	ck_assert_mem_eq(sent.bytes, object + PIECE + BLOCK, BLOCK);
	/* Not here: nothing is sent, and it is not counted as sent. */
	get(2, 0, BLOCK);
	ck_assert_int_ne(world_wait(&w, 3)->err, 0);
	ck_assert_uint_eq(sent.calls, 1);
	/* No link any more. */
	sent.err = GW_EUNREACH;
	get(1, 0, BLOCK);
	ck_assert_int_eq(world_wait(&w, 4)->err, GW_EUNREACH);
	/* A full queue: offered again, read once. */
	sent.err = 0;
	sent.full = 2;
	sent.calls = 0;
	get(1, 0, BLOCK);
	ck_assert_int_eq(world_wait(&w, 5)->err, 0);
	ck_assert_uint_eq(sent.calls, 3);
	ck_assert_mem_eq(sent.bytes, object + PIECE, BLOCK);
}
END_TEST

START_TEST(what_waits_at_the_end_is_let_go)
{
	opened();
	whole_piece(2, 0);
	world_wait(&w, 1);
	sent.full = 1000000;
	get(0, 0, BLOCK);
	while (!sent.calls)
		ck_assert_int_eq(gw_loop_turn(w.loop, 10), 0);
	block(3, 1, 0);
	/* teardown: the block still waits for room, the other piece for its rest */
}
END_TEST

START_TEST(dropped_objects_leave_the_disk)
{
	opened();
	whole_piece(2, 0);
	world_wait(&w, 1);
	block(2, 1, 0);
	act(GW_ACT_OBJECT_DROP, 0, 0);
	ck_assert_ptr_null(gw_objects_get(objects, &m.id));
	ck_assert_int_eq(opened()->err, GW_EAGAIN); /* it is leaving */
	world_rest(&w);
	ck_assert_uint_eq(gw_store_count(w.store), 0);
	ck_assert_uint_eq(opened()->have, 0);
}
END_TEST

START_TEST(an_object_that_is_being_opened_is_dropped_too)
{
	for (int i = 0; i < 20; i++) {
		act(GW_ACT_OBJECT_OPEN, 0, 0);
		if (i % 2)
			(void)gw_loop_turn(w.loop, 0);
		act(GW_ACT_OBJECT_DROP, 0, 0);
		world_rest(&w);
		world_rest(&w);
		ck_assert_uint_eq(gw_store_count(w.store), 0);
	}
}
END_TEST

START_TEST(what_was_never_opened_is_dropped_too)
{
	opened();
	restart();
	ck_assert_uint_eq(gw_store_count(w.store), 1);
	act(GW_ACT_OBJECT_DROP, 0, 0);
	act(GW_ACT_OBJECT_DROP, 0, 0);
	world_rest(&w);
	ck_assert_uint_eq(gw_store_count(w.store), 0);
}
END_TEST

START_TEST(an_object_in_use_stays_readable)
{
	struct gw_object *o;
	uint8_t byte;

	opened();
	whole_piece(2, 0);
	world_wait(&w, 1);
	o = gw_objects_get(objects, &m.id);
	ck_assert_ptr_nonnull(o);
	act(GW_ACT_OBJECT_DROP, 0, 0);
	world_rest(&w);
	ck_assert_int_eq(gw_object_read(o, 0, 5, &byte, 1), 0);
	ck_assert_uint_eq(byte, object[5]);
	gw_objects_put(objects, o);
	ck_assert_uint_eq(opened()->have, 0);
}
END_TEST

START_TEST(a_full_disk_is_told)
{
	const struct seen *s;

	opened();
	write_err = GW_ENOSPACE;
	whole_piece(2, 0);
	s = world_wait(&w, 1);
	ck_assert_int_eq(s->kind, GW_EV_OBJECT_FAILED);
	ck_assert_int_eq(s->err, GW_ENOSPACE);
	write_err = 0;
	ck_assert_uint_eq(opened()->have, 0); /* the node asks again what is there */
	whole_piece(2, 0);
	ck_assert_int_eq(world_wait(&w, 3)->kind, GW_EV_PIECE_OK);
	/* And one that may not hold any more. */
	gw_objects_free(objects);
	gw_store_free(w.store);
	ck_assert_int_eq(gw_store_open(&w.store, &shaky, world_path(&w, "small"), PIECE, NULL), 0);
	start(64 << 20);
	ck_assert_int_eq(opened()->err, GW_ENOSPACE);
}
END_TEST

START_TEST(what_a_failed_sync_forgot_is_told)
{
	const struct seen *s;

	opened();
	whole_piece(2, 0);
	world_wait(&w, 1);
	sync_err = GW_EIO;
	s = world_wait(&w, 2); /* the group sync is due a second after its first piece */
	ck_assert_int_eq(s->kind, GW_EV_OBJECT_FAILED);
	ck_assert_int_eq(s->err, GW_EIO);
	sync_err = 0;
	ck_assert_uint_eq(opened()->have, 0);
	whole_piece(3, 0);
	ck_assert_int_eq(world_wait(&w, 4)->kind, GW_EV_PIECE_OK);
}
END_TEST

START_TEST(gathering_has_a_bound)
{
	const struct seen *s;

	gw_objects_free(objects);
	start(2 * PIECE);
	opened();
	block(1, 0, 0);
	block(2, 1, 0);
	block(3, 2, 0); /* lets go of the first */
	whole_piece(2, 1);
	ck_assert_int_eq(world_wait(&w, 1)->kind, GW_EV_PIECE_OK);
	act(GW_ACT_PIECE_CHECK, 1, 0);
	s = world_wait(&w, 2);
	ck_assert_int_eq(s->kind, GW_EV_OBJECT_FAILED);
	ck_assert_int_eq(s->err, GW_ENOMEM);
}
END_TEST

START_TEST(what_makes_no_sense_does_nothing)
{
	struct gw_action far = {.kind = GW_ACT_BLOCK_STORE, .object = m.id, .piece = 0, .offset = UINT64_MAX - 3,
				.data = {object, 8}};

	block(1, 0, 0); /* not open */
	act(GW_ACT_PIECE_CHECK, 1, 0);
	get(0, 0, BLOCK);
	ck_assert_int_ne(w.seen[0].err, 0);
	opened();
	gw_objects_act(objects, &far);
	far.piece = PIECES;
	far.offset = 0;
	gw_objects_act(objects, &far);
	get(0, 0, GW_BLOCK_MAX + 1);
	ck_assert_int_ne(world_wait(&w, 2)->err, 0);
	world_rest(&w);
	ck_assert_uint_eq(w.seen_n, 3);
}
END_TEST

TCase *daemon_objects_tests(void)
{
	TCase *t = tcase_create("objects");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, pieces_arrive_and_stay);
	tcase_add_test(t, a_wrong_piece_names_its_sender);
	tcase_add_test(t, only_what_the_root_allows_is_opened);
	tcase_add_test(t, blocks_are_served);
	tcase_add_test(t, what_waits_at_the_end_is_let_go);
	tcase_add_test(t, dropped_objects_leave_the_disk);
	tcase_add_test(t, an_object_that_is_being_opened_is_dropped_too);
	tcase_add_test(t, what_was_never_opened_is_dropped_too);
	tcase_add_test(t, an_object_in_use_stays_readable);
	tcase_add_test(t, a_full_disk_is_told);
	tcase_add_test(t, what_a_failed_sync_forgot_is_told);
	tcase_add_test(t, gathering_has_a_bound);
	tcase_add_test(t, what_makes_no_sense_does_nothing);
	return t;
}
