/*
 * The store under every cut. A host fetches an object piece by piece, out of order, some of it wrong at first, with
 * group syncs and slot writes between; the process dies, or the power fails, inside every single operation in turn.
 * What the next process finds must be right, and it must be able to go on.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../unit/os.h"
#include "../unit/unit.h"
#include "base/num.h"
#include "base/rng.h"
#include "crash_fs.h"
#include "io/os/fs_os.h"
#include "io/os/store.h"
#include "io/os/store_impl.h"
#include "io/os/thread.h"

enum { PIECE = 64 * 1024, WHOLE = 4, TAIL = 1000, OBJECT = WHOLE * PIECE + TAIL, DATA_PIECES = WHOLE + 1, BLOCK = 40000 };

/* A manifest as trust would have opened it, and the object that it speaks of. */
struct sample {
	struct gw_manifest m;
	uint8_t signed_bytes[200];
	uint8_t object[OBJECT];
	uint8_t digests[DATA_PIECES * 32], leaf[32];
	uint32_t pieces;
};

static void make_sample(struct sample *s, uint64_t seed, int with_table)
{
	struct gw_rng rng;

	memset(s, 0, sizeof *s);
	gw_rng_init(&rng, seed);
	for (size_t i = 0; i < OBJECT; i++)
		s->object[i] = (uint8_t)gw_rng_u64(&rng);
	for (size_t i = 0; i < sizeof s->signed_bytes; i++)
		s->signed_bytes[i] = (uint8_t)gw_rng_u64(&rng);
	for (size_t i = 0; i < DATA_PIECES; i++)
		gw_digest_of(s->object + i * PIECE, i < WHOLE ? PIECE : TAIL, (struct gw_digest *)(s->digests + i * 32));
	gw_digest_of(s->digests, sizeof s->digests, (struct gw_digest *)s->leaf);
	gw_digest_of(s->signed_bytes, sizeof s->signed_bytes, &s->m.id);
	(void)strcpy(s->m.policy, "test");
	s->m.kind = GW_KIND_TRANSITION;
	s->m.object_bytes = OBJECT;
	s->m.tensor_table_bytes = 777;
	s->m.piece_bytes = PIECE;
	s->m.object_pieces = DATA_PIECES;
	s->m.table_pieces = with_table ? 1 : 0;
	s->m.digest_count = with_table ? 1 : DATA_PIECES;
	s->m.digests = with_table ? s->leaf : s->digests;
	s->pieces = gw_manifest_pieces(&s->m);
	ck_assert_uint_eq(s->pieces, DATA_PIECES + s->m.table_pieces);
}

static const uint8_t *piece_bytes(const struct sample *s, uint32_t piece, size_t *n)
{
	*n = (size_t)gw_manifest_piece_size(&s->m, piece);
	return piece < s->m.table_pieces ? s->digests : s->object + (size_t)(piece - s->m.table_pieces) * PIECE;
}

static int put_piece(struct gw_object *o, const struct sample *s, uint32_t piece)
{
	size_t n;
	const uint8_t *p = piece_bytes(s, piece, &n);
	int err = 0;

	for (size_t at = 0; !err && at < n; at += BLOCK)
		err = gw_object_write(o, piece, at, p + at, gw_min_u64(BLOCK, n - at));
	return err ? err : gw_object_check(o, piece, 5);
}

/* What the process believed when it died. A call that outlives the death of the process, as it does here, tells it
 * nothing any more. */
struct belief {
	struct crash_fs *c;
	uint8_t verified, durable; /* bits by piece */
	uint64_t counter, counter_durable; /* the slot: being written, written */
	int opened;
};

static int put_counter(struct gw_store *st, struct belief *b, uint64_t v)
{
	uint8_t bytes[8];
	int err;

	gw_put_le64(bytes, v);
	b->counter = v;
	err = gw_store_put(st, "counter", bytes, sizeof bytes, NULL);
	if (!err && !crash_fs_dead(b->c))
		b->counter_durable = v;
	return err;
}

static int put_and_believe(struct gw_object *o, const struct sample *s, uint32_t piece, struct belief *b)
{
	int err = put_piece(o, s, piece);

	if (!err && !crash_fs_dead(b->c))
		b->verified |= (uint8_t)(1u << piece);
	return err;
}

static int sync_and_believe(struct gw_store *st, struct belief *b)
{
	int err = gw_store_sync(st, NULL, NULL);

	if (!err && !crash_fs_dead(b->c))
		b->durable = b->verified;
	return err;
}

/* Fetches all that is missing in an order of its own. */
static int fetch(struct gw_store *st, struct gw_object *o, const struct sample *s, struct belief *b)
{
	const uint8_t wrong[100] = {1};
	uint8_t have;
	int err = 0;

	gw_object_have(o, &have);
	for (uint32_t k = 0; !err && k < s->pieces; k++) {
		/* The piece table first, or nothing can be checked; the rest backwards. */
		uint32_t piece = k < s->m.table_pieces ? k : s->pieces - 1 - (k - s->m.table_pieces);

		if (have >> piece & 1)
			continue;
		if (k == 2) {
			err = gw_object_write(o, piece, 300, wrong, sizeof wrong);
			if (!err && gw_object_check(o, piece, 5) == 0)
				ck_abort_msg("a wrong piece was taken");
		}
		if (!err)
			err = put_and_believe(o, s, piece, b);
		if (!err && k % 2 == 1)
			err = sync_and_believe(st, b);
		if (!err && k % 2 == 0)
			err = put_counter(st, b, b->counter + 1);
	}
	return err ? err : sync_and_believe(st, b);
}

static int live(struct gw_fs *fs, const struct sample *s, struct belief *b)
{
	struct gw_store *st;
	struct gw_object *o;
	int err = gw_store_open(&st, fs, "/state", 0, NULL);

	if (err)
		return err;
	err = gw_object_open(&o, st, &s->m, s->signed_bytes, sizeof s->signed_bytes, NULL);
	if (!err) {
		b->opened = 1;
		err = fetch(st, o, s, b);
		gw_object_close(o);
	}
	gw_store_free(st);
	return err;
}

static void check_counter(struct gw_store *st, const struct belief *b)
{
	uint8_t *p;
	size_t n;
	int err = gw_store_get(st, "counter", &p, &n, NULL);

	if (err == GW_ENOENT) {
		ck_assert_uint_eq(b->counter_durable, 0);
		return;
	}
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(n, 8);
	ck_assert(gw_le64(p) == b->counter || gw_le64(p) == b->counter_durable);
	free(p);
}

static void check_piece(struct gw_object *o, const struct sample *s, uint32_t piece)
{
	static uint8_t got[PIECE];
	size_t n;
	const uint8_t *want = piece_bytes(s, piece, &n);

	ck_assert_int_eq(gw_object_read(o, piece, 0, got, n), 0);
	ck_assert_mem_eq(got, want, n);
}

static void check_whole(struct gw_object *o, const struct sample *s)
{
	struct gw_object_view v;

	ck_assert_int_eq(gw_object_complete(o), 1);
	ck_assert_int_eq(gw_object_map(o, &v), 0);
	ck_assert_uint_eq(v.payload_bytes, OBJECT - 777);
	ck_assert_mem_eq(v.tensor_table, s->object, 777);
	ck_assert_mem_eq(v.payload, s->object + 777, OBJECT - 777);
	ck_assert_int_eq(gw_object_view_check(&v), 0);
	ck_assert_int_eq(gw_object_unmap(&v), 0);
}

/* What a new process finds, and that it can end what the old one began. */
static void check_after(struct crash_fs *c, const struct sample *s, const struct belief *b, int power_cut)
{
	struct belief now = {.c = c, .counter = b->counter + 10};
	struct gw_store *st;
	struct gw_object *o;
	uint8_t have, promised = power_cut ? b->durable : b->verified, *raw;
	size_t n;

	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	check_counter(st, b);
	ck_assert_uint_le(gw_store_count(st), 1);
	if (b->opened) {
		ck_assert_int_eq(gw_store_manifest(st, &s->m.id, &raw, &n), 0);
		ck_assert_mem_eq(raw, s->signed_bytes, sizeof s->signed_bytes);
		free(raw);
	}
	ck_assert_int_eq(gw_object_open(&o, st, &s->m, s->signed_bytes, sizeof s->signed_bytes, NULL), 0);
	gw_object_have(o, &have);
	ck_assert_uint_eq(have & promised, promised);
	for (uint32_t i = 0; i < s->pieces; i++) {
		if (have >> i & 1)
			check_piece(o, s, i);
	}
	now.verified = have;
	ck_assert_int_eq(fetch(st, o, s, &now), 0);
	check_whole(o, s);
	gw_object_close(o);
	gw_store_free(st);
	/* And that is what the disk holds. */
	crash_fs_reboot(c, 1);
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	ck_assert_uint_eq(gw_store_bytes(st), s->m.table_pieces ? 5 * PIECE + 32 * DATA_PIECES - PIECE + 4096 : OBJECT);
	ck_assert_int_eq(gw_object_open(&o, st, &s->m, s->signed_bytes, sizeof s->signed_bytes, NULL), 0);
	check_whole(o, s);
	gw_object_close(o);
	gw_store_free(st);
}

static void cut_everywhere(int with_table, int power_cut, uint64_t seed)
{
	static struct sample s;
	uint64_t op = 0;
	int died;

	make_sample(&s, seed, with_table);
	do {
		struct crash_fs *c = crash_fs_new(seed + op);
		struct belief b = {.c = c};

		crash_fs_die_at(c, ++op);
		(void)live(crash_fs_table(c), &s, &b);
		died = crash_fs_dead(c);
		crash_fs_reboot(c, power_cut);
		check_after(c, &s, &b, power_cut);
		crash_fs_free(c);
	} while (died);
	ck_assert_uint_gt(op, 60); /* the test itself: there was much to cut */
}

START_TEST(killed_inside_every_operation)
{
	cut_everywhere(_i, 0, 100);
}
END_TEST

START_TEST(power_cut_inside_every_operation)
{
	for (uint64_t seed = 0; seed < 4; seed++)
		cut_everywhere(_i, 1, 1000 * seed);
}
END_TEST

/* Each operation fails once, the process lives and tries again, and then the power fails: nothing may be claimed
 * that is not there. A failed sync is the hard one: the pages that it lost look fine until the power fails. */
static void fail_everywhere(int failure, uint64_t seed)
{
	static struct sample s;
	uint64_t op = 0, ops;

	make_sample(&s, seed, 1);
	do {
		struct crash_fs *c = crash_fs_new(seed + op);
		struct belief b = {.c = c};
		int tries = 0;

		crash_fs_fail_at(c, ++op, failure);
		/* In one process, so that what it remembers is put to the test as well. */
		while (live(crash_fs_table(c), &s, &b))
			ck_assert_int_lt(++tries, 5);
		ops = crash_fs_ops(c);
		crash_fs_reboot(c, 1);
		b.durable = b.verified = (uint8_t)((1u << s.pieces) - 1);
		check_after(c, &s, &b, 1);
		crash_fs_free(c);
	} while (op < ops);
}

START_TEST(a_disk_that_fails_once)
{
	fail_everywhere(_i ? GW_EIO : GW_ENOSPACE, 7);
}
END_TEST

/* As above, but with the object held open over the failure. */
START_TEST(a_sync_that_fails_loses_no_piece_for_good)
{
	static struct sample s;
	struct crash_fs *c = crash_fs_new((uint64_t)_i);
	struct belief b = {.c = c};
	struct gw_store *st;
	struct gw_object *o;
	uint8_t have;
	size_t n;

	make_sample(&s, 3, 0);
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_int_eq(put_piece(o, &s, 0), 0);
	ck_assert_int_eq(gw_object_sync(o, NULL), 0);
	ck_assert_int_eq(put_piece(o, &s, 1), 0);
	/* Half of a piece, written before the failure. */
	ck_assert_int_eq(gw_object_write(o, 2, 0, piece_bytes(&s, 2, &n), PIECE / 2), 0);
	crash_fs_fail_at(c, 1, GW_EIO);
	ck_assert_int_eq(gw_object_sync(o, NULL), GW_EIO);
	gw_object_have(o, &have);
	ck_assert_uint_eq(have, 1);
	/* The rest of it, and what was forgotten. */
	ck_assert_int_eq(gw_object_write(o, 2, PIECE / 2, piece_bytes(&s, 2, &n) + PIECE / 2, PIECE / 2), 0);
	ck_assert_int_eq(gw_object_check(o, 2, 0), 0);
	ck_assert_int_eq(gw_object_check(o, 1, 0), 0); /* still seen, so it need not be fetched; but it is written again */
	ck_assert_int_eq(put_piece(o, &s, 3), 0);
	ck_assert_int_eq(put_piece(o, &s, 4), 0);
	ck_assert_int_eq(gw_object_sync(o, NULL), 0);
	gw_object_close(o);
	gw_store_free(st);
	crash_fs_reboot(c, 1);
	b.durable = b.verified = 0x1f;
	check_after(c, &s, &b, 1);
	crash_fs_free(c);
}
END_TEST

START_TEST(a_full_disk_leaves_the_object_as_it_was)
{
	static struct sample s;
	struct crash_fs *c = crash_fs_new(1);
	struct gw_store *st;
	struct gw_object *o;

	make_sample(&s, 4, 0);
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	crash_fs_full(c, GW_ENOSPACE);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), GW_ENOSPACE);
	crash_fs_full(c, 0);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_int_eq(put_piece(o, &s, 0), 0);
	crash_fs_full(c, GW_ENOSPACE);
	ck_assert_int_eq(put_piece(o, &s, 1), GW_ENOSPACE);
	ck_assert_int_eq(gw_object_sync(o, NULL), GW_ENOSPACE); /* the record of pieces does not fit */
	check_piece(o, &s, 0);
	crash_fs_full(c, 0);
	ck_assert_int_eq(gw_object_sync(o, NULL), 0);
	ck_assert_int_eq(put_piece(o, &s, 1), 0);
	ck_assert_uint_eq(gw_object_have_count(o), 2);
	gw_object_close(o);
	gw_store_free(st);
	crash_fs_free(c);
}
END_TEST

START_TEST(only_pieces_in_flight_are_lost_by_a_kill)
{
	static struct sample s;
	struct crash_fs *c = crash_fs_new(1);
	struct gw_store *st;
	struct gw_object *o;
	size_t n;
	uint8_t have;

	make_sample(&s, 5, 0);
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
		ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
		gw_object_have(o, &have);
		ck_assert_uint_eq(have, turn ? 5 : 0);
		if (!turn) {
			ck_assert_int_eq(put_piece(o, &s, 0), 0);
			ck_assert_int_eq(put_piece(o, &s, 2), 0);
			ck_assert_int_eq(gw_object_write(o, 1, 0, piece_bytes(&s, 1, &n), PIECE), 0); /* not checked */
		}
		gw_object_close(o);
		gw_store_free(st);
		crash_fs_reboot(c, 0);
	}
	/* A power cut without any sync: nothing is promised, nothing wrong is claimed. */
	crash_fs_free(c);
}
END_TEST

START_TEST(the_rules_of_writing_and_checking)
{
	static struct sample s, other;
	struct crash_fs *c = crash_fs_new(1);
	struct gw_store *st;
	struct gw_object *o, *same;
	struct gw_object_view v;
	uint8_t b[10];

	make_sample(&s, 6, 1);
	make_sample(&other, 7, 1);
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 2 * OBJECT, NULL), 0);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, other.signed_bytes, sizeof other.signed_bytes, NULL), GW_EDIGEST);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_int_eq(gw_object_open(&same, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_ptr_eq(o, same);
	gw_object_close(same);
	ck_assert_int_eq(gw_object_open(&same, st, &other.m, other.signed_bytes, sizeof other.signed_bytes, NULL), GW_ENOSPACE);
	/* The table, then what it vouches for. */
	ck_assert_int_eq(put_piece(o, &s, 1), GW_EAGAIN);
	ck_assert_int_eq(put_piece(o, &other, 0), GW_EDIGEST);
	ck_assert_int_eq(put_piece(o, &s, 0), 0);
	ck_assert_int_eq(put_piece(o, &other, 1), GW_EDIGEST);
	ck_assert_int_eq(gw_object_read(o, 1, 0, b, 1), GW_ENOENT);
	ck_assert_int_eq(put_piece(o, &s, 1), 0);
	ck_assert_int_eq(gw_object_write(o, 1, 0, b, 1), GW_EEXIST);
	/* Bounds. */
	ck_assert_int_eq(gw_object_write(o, 2, PIECE - 1, b, 2), GW_EINVAL);
	ck_assert_int_eq(gw_object_write(o, 5, TAIL, b, 1), GW_EINVAL);
	ck_assert_int_eq(gw_object_write(o, 6, 0, b, 1), GW_EINVAL);
	ck_assert_int_eq(gw_object_write(o, 2, UINT64_MAX, b, 2), GW_EINVAL);
	ck_assert_int_eq(gw_object_write(o, 2, 0, b, 0), GW_EINVAL);
	ck_assert_int_eq(gw_object_read(o, 1, PIECE, b, 1), GW_EINVAL);
	ck_assert_int_eq(gw_object_check(o, 6, 0), GW_EINVAL);
	ck_assert_int_eq(gw_object_map(o, &v), GW_ESTATE);
	/* When a sync is due. */
	ck_assert_int_eq(gw_store_sync_due(st, 6), 0);
	ck_assert_int_eq(gw_store_sync_due(st, 5 + GW_STORE_GROUP_NS), 1);
	ck_assert_int_eq(gw_store_sync(st, NULL, NULL), 0);
	ck_assert_int_eq(gw_store_sync_due(st, UINT64_MAX), 0);
	/* Damage that is found later. */
	gw_object_close(o);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_uint_eq(gw_object_have_count(o), 2);
	gw_object_close(o);
	gw_store_free(st);
	crash_fs_free(c);
}
END_TEST

static int count_id(void *ctx, const struct gw_digest *id)
{
	(void)id;
	++*(int *)ctx;
	return 0;
}

static void object_file(const struct sample *s, const char *name, char path[200])
{
	static const char digits[] = "0123456789abcdef";
	size_t n = strlen(strcpy(path, "state/objects/"));

	for (size_t i = 0; i < 32; i++) {
		path[n++] = digits[s->m.id.b[i] >> 4];
		path[n++] = digits[s->m.id.b[i] & 15];
	}
	path[n++] = '/';
	(void)strcpy(path + n, name);
}

START_TEST(damage_is_found_and_never_claimed)
{
	static struct sample s;
	struct crash_fs *c = crash_fs_new(1);
	struct belief b = {.c = c};
	struct gw_store *st;
	struct gw_object *o;
	struct gw_diag why = {""};
	char path[200];
	uint8_t *p, have;
	size_t n;

	make_sample(&s, 8, 0);
	ck_assert_int_eq(live(crash_fs_table(c), &s, &b), 0);
	object_file(&s, "data", path);
	crash_fs_damage(c, path, 5);
	crash_fs_damage(c, "state/slots/counter", 44);
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	ck_assert_int_eq(gw_store_get(st, "counter", &p, &n, &why), GW_EDIGEST);
	ck_assert(strstr(why.text, "counter"));
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_int_eq(gw_object_check(o, 0, 0), GW_EDIGEST);
	ck_assert_uint_eq(gw_object_have_count(o), DATA_PIECES - 1);
	ck_assert_int_eq(gw_object_sync(o, NULL), 0);
	gw_object_close(o);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_uint_eq(gw_object_have_count(o), DATA_PIECES - 1);
	ck_assert_int_eq(put_piece(o, &s, 0), 0);
	check_whole(o, &s);
	gw_object_close(o);
	/* The record of pieces: as good as none. */
	object_file(&s, "have", path);
	for (uint64_t byte = 0; byte < 8 + 32 + 4 + 1 + 32; byte += 7) {
		crash_fs_damage(c, path, byte);
		ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
		/* Perhaps some by the other list: those were verified. */
		ck_assert_uint_lt(gw_object_have_count(o), DATA_PIECES);
		gw_object_have(o, &have);
		for (uint32_t i = 0; i < DATA_PIECES; i++) {
			if (have >> i & 1)
				check_piece(o, &s, i);
		}
		gw_object_close(o);
	}
	object_file(&s, "manifest", path);
	crash_fs_damage(c, path, 100);
	ck_assert_int_eq(gw_store_manifest(st, &s.m.id, &p, &n), GW_EDIGEST);
	gw_store_free(st);
	crash_fs_free(c);
}
END_TEST

/* A drop is cut inside every operation: the object is then there or not, and what it claims is right. */
static void drop_everywhere(int power_cut)
{
	static struct sample s;
	uint64_t op = 0;
	int died;

	make_sample(&s, 9, 0);
	do {
		struct crash_fs *c = crash_fs_new(op);
		struct belief b = {.c = c}, none = {.c = c};
		struct gw_store *st;

		ck_assert_int_eq(live(crash_fs_table(c), &s, &b), 0);
		ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
		crash_fs_die_at(c, ++op);
		(void)gw_store_drop(st, &s.m.id, NULL);
		died = crash_fs_dead(c);
		gw_store_free(st);
		crash_fs_reboot(c, power_cut);
		none.counter = none.counter_durable = b.counter_durable;
		check_after(c, &s, &none, power_cut);
		crash_fs_free(c);
	} while (died);
	ck_assert_uint_gt(op, 4);
}

START_TEST(a_drop_cut_anywhere)
{
	drop_everywhere(_i);
}
END_TEST

START_TEST(a_dropped_object_can_still_be_read)
{
	static struct sample s;
	struct crash_fs *c = crash_fs_new(1);
	struct gw_store *st;
	struct gw_object *o, *fresh;
	int n = 0;

	make_sample(&s, 10, 0);
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	ck_assert_int_eq(gw_store_drop(st, &s.m.id, NULL), GW_ENOENT);
	ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_int_eq(put_piece(o, &s, 0), 0);
	ck_assert_uint_eq(gw_store_bytes(st), OBJECT);
	ck_assert_int_eq(gw_store_drop(st, &s.m.id, NULL), 0);
	ck_assert_uint_eq(gw_store_bytes(st), 0);
	check_piece(o, &s, 0);
	ck_assert_int_eq(put_piece(o, &s, 1), GW_ECLOSED);
	ck_assert_int_eq(gw_object_sync(o, NULL), GW_ECLOSED);
	ck_assert_int_eq(gw_object_open(&fresh, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	ck_assert_ptr_ne(fresh, o);
	ck_assert_uint_eq(gw_object_have_count(fresh), 0);
	gw_object_close(o);
	ck_assert_int_eq(put_piece(fresh, &s, 1), 0);
	ck_assert_int_eq(gw_store_list(st, count_id, &n), 0);
	ck_assert_int_eq(n, 1);
	gw_object_close(fresh);
	gw_store_free(st);
	crash_fs_free(c);
}
END_TEST

static int live_draft(struct gw_fs *fs, const struct sample *s, int *committed)
{
	struct gw_store *st;
	struct gw_draft *d;
	int err = gw_store_open(&st, fs, "/state", 0, NULL);

	*committed = 0;
	if (err)
		return err;
	err = gw_draft_new(&d, st, NULL);
	if (!err) {
		err = gw_fs_pwrite(fs, gw_draft_file(d), s->object, OBJECT, 0);
		if (err)
			gw_draft_abort(d);
	}
	if (!err)
		err = gw_draft_commit(d, &s->m, s->signed_bytes, sizeof s->signed_bytes,
				      s->m.table_pieces ? s->digests : NULL, s->m.table_pieces ? sizeof s->digests : 0, NULL);
	*committed = !err;
	gw_store_free(st);
	return err;
}

START_TEST(what_is_made_here_appears_whole_or_not_at_all)
{
	static struct sample s;
	uint64_t op = 0;
	int died, committed;

	make_sample(&s, 11, _i & 1);
	do {
		struct crash_fs *c = crash_fs_new(op);
		struct belief b = {.c = c};
		struct gw_store *st;
		struct gw_object *o;

		crash_fs_die_at(c, ++op);
		(void)live_draft(crash_fs_table(c), &s, &committed);
		died = crash_fs_dead(c);
		crash_fs_reboot(c, _i >> 1);
		ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
		if (committed)
			ck_assert_uint_eq(gw_store_count(st), 1);
		if (gw_store_count(st)) {
			b.verified = b.durable = (uint8_t)((1u << s.pieces) - 1);
			b.opened = 1;
			ck_assert_int_eq(gw_object_open(&o, st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
			check_whole(o, &s);
			gw_object_close(o);
		}
		gw_store_free(st);
		check_after(c, &s, &b, 0);
		crash_fs_free(c);
	} while (died);
	ck_assert_uint_gt(op, 15);
}
END_TEST

/* --- the page proto/STORE.md --- */

/* The bytes of the worked example after that many others. */
static size_t worked(int skip, uint8_t *out, size_t cap)
{
	char path[300], line[300];
	size_t n = 0;
	FILE *f;
	int inside = 0;

	(void)snprintf(path, sizeof path, "%s/proto/STORE.md", getenv("top_srcdir") ? getenv("top_srcdir") : "..");
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s", path);
	while (fgets(line, sizeof line, f)) {
		int used;
		unsigned v;

		if (!strncmp(line, "Worked", 6))
			inside = skip-- == 0;
		if (!inside || strncmp(line, "    ", 4))
			continue;
		for (const char *p = line; sscanf(p, " %2x%n", &v, &used) == 1 && n < cap; p += used)
			out[n++] = (uint8_t)v;
	}
	(void)fclose(f);
	return n;
}

static void compare_file(struct gw_fs *fs, const char *path, int example)
{
	uint8_t want[200], *got;
	size_t n = worked(example, want, sizeof want), m;

	ck_assert_int_eq(gw_store_read_file(fs, path, 1000, &got, &m), 0);
	ck_assert_uint_eq(m, n);
	ck_assert_mem_eq(got, want, n);
	free(got);
}

START_TEST(files_are_as_the_page_says)
{
	struct crash_fs *c = crash_fs_new(1);
	struct gw_digest id;
	struct gw_store *st;

	for (uint8_t i = 0; i < 32; i++)
		id.b[i] = i;
	ck_assert_int_eq(gw_store_open(&st, crash_fs_table(c), "/state", 0, NULL), 0);
	ck_assert_int_eq(gw_have_save(crash_fs_table(c), "/state", &id, 9, (const uint8_t[]){1, 1}, NULL), 0);
	compare_file(crash_fs_table(c), "/state/have", 0);
	ck_assert_int_eq(gw_store_put(st, "x", "42", 2, NULL), 0);
	compare_file(crash_fs_table(c), "/state/slots/x", 1);
	gw_store_free(st);
	crash_fs_free(c);
}
END_TEST

/* --- on a real disk, from several threads --- */

struct crowd {
	struct gw_store *st;
	struct gw_object *o;
	const struct sample *s;
	atomic_uint next;
	atomic_int done;
};

static void *fetch_some(void *arg)
{
	struct crowd *c = arg;
	uint32_t piece;

	while ((piece = atomic_fetch_add(&c->next, 1)) < 2 * c->s->pieces) {
		/* Each piece is fetched by two at once, as at the end of a fetch. */
		uint32_t mine = piece % c->s->pieces;
		int err;

		do
			err = put_piece(c->o, c->s, mine);
		while (err == GW_EAGAIN);
		if (err && err != GW_EEXIST)
			return (void *)1;
	}
	return NULL;
}

static void *sync_often(void *arg)
{
	struct crowd *c = arg;

	while (!atomic_load(&c->done)) {
		if (gw_store_sync(c->st, NULL, NULL))
			return (void *)1;
		(void)gw_store_sync_due(c->st, 0);
	}
	return NULL;
}

START_TEST(many_threads_on_a_real_disk)
{
	static struct sample s;
	struct crowd c = {.s = &s};
	pthread_t t[4];
	char dir[64];
	void *r;

	make_sample(&s, 12, 0);
	ck_assert_ptr_nonnull(temp_dir(dir));
	ck_assert_int_eq(gw_store_open(&c.st, gw_fs_os(), dir, 0, NULL), 0);
	ck_assert_int_eq(gw_object_open(&c.o, c.st, &s.m, s.signed_bytes, sizeof s.signed_bytes, NULL), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(gw_thread_start(&t[i], "store", i ? fetch_some : sync_often, &c), 0);
	for (int i = 3; i >= 0; i--) {
		if (!i)
			atomic_store(&c.done, 1);
		ck_assert_int_eq(pthread_join(t[i], &r), 0);
		ck_assert_ptr_null(r);
	}
	check_whole(c.o, &s);
	gw_object_close(c.o);
	gw_store_free(c.st);
	temp_dir_remove(dir);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("store");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, the_rules_of_writing_and_checking);
	tcase_add_loop_test(t, killed_inside_every_operation, 0, 2);
	tcase_add_loop_test(t, power_cut_inside_every_operation, 0, 2);
	tcase_add_loop_test(t, a_disk_that_fails_once, 0, 2);
	tcase_add_loop_test(t, a_sync_that_fails_loses_no_piece_for_good, 0, 20);
	tcase_add_test(t, a_full_disk_leaves_the_object_as_it_was);
	tcase_add_test(t, only_pieces_in_flight_are_lost_by_a_kill);
	tcase_add_test(t, damage_is_found_and_never_claimed);
	tcase_add_loop_test(t, a_drop_cut_anywhere, 0, 2);
	tcase_add_test(t, a_dropped_object_can_still_be_read);
	tcase_add_loop_test(t, what_is_made_here_appears_whole_or_not_at_all, 0, 4);
	tcase_add_test(t, files_are_as_the_page_says);
	tcase_add_test(t, many_threads_on_a_real_disk);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
