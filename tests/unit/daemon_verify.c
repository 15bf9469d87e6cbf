/* Verification on workers: what is right comes back as it was sent, what is wrong in any bit is refused. */
#include <string.h>

#include "daemon.h"
#include "daemon/verify.h"
#include "daemon_world.h"
#include "io/os/clock.h"
#include "trust_fixture.h"
#include "unit.h"

static struct daemon_world w;
static struct gw_verify verify;
static struct blob head, manifest, member;
static struct gw_member admitted;
static unsigned admissions;

static void admit(void *ctx, const struct gw_member *m)
{
	(void)ctx;
	admitted = *m;
	admissions++;
}

static void make_records(void)
{
	static uint8_t digest[32];
	uint64_t now = gw_clock_wall_ns();
	struct gw_manifest m = {.kind = GW_KIND_ANCHOR, .encoding = GW_ENCODING_PLAIN, .policy = "demo", .created_ns = now,
				.expires_ns = now + DAY_NS, .object_bytes = 1000, .tensor_table_bytes = 500,
				.piece_bytes = GW_PIECE_MIN, .object_pieces = 1, .digest_count = 1, .digests = digest};
	struct gw_head h = {.policy = "demo", .root_epoch = 1, .sequence = 5, .created_ns = now,
			    .expires_ns = now + 60 * SECOND_NS};
	char text[GW_TOKEN_TEXT_MAX];
	struct gw_member own = {.name = "a", .region = "eu"};
	struct gw_token token;
	struct gw_key host;
	struct gw_wr wr;

	ck_assert_int_eq(gw_manifest_sign(&m, w.release.sk, &manifest.p, &manifest.n), 0);
	h.manifest = m.id;
	ck_assert_int_eq(gw_head_sign(&h, w.release.sk, &head.p, &head.n), 0);
	fixture_key(&host, GW_KEY_HOST, 0x50);
	world_token(&w, "", text);
	ck_assert_int_eq(gw_token_parse(&token, text, strlen(text), NULL), 0);
	gw_wr_init(&wr, GW_MEMBER_MAX);
	ck_assert_int_eq(gw_token_join(&token, &w.root, &host, now, &own, &wr, NULL), 0);
	ck_assert_int_eq(gw_wr_take(&wr, &member.p, &member.n), 0);
}

static void setup(void)
{
	world_init(&w, NULL, 2);
	verify = (struct gw_verify){.workers = w.workers, .root = &w.root, .sink = world_sink(&w), .member = admit};
	admissions = 0;
	make_records();
}

static void teardown(void)
{
	free(head.p);
	free(manifest.p);
	free(member.p);
	world_free(&w);
}

static void ask(enum gw_action_kind kind, const void *p, size_t n, uint64_t key)
{
	struct gw_action a = {.kind = kind, .host = 3, .key = key, .data = {p, n}};

	gw_verify_act(&verify, &a);
}

START_TEST(what_is_right_comes_back)
{
	const struct seen *s;

	ask(GW_ACT_VERIFY_HEAD, head.p, head.n, 11);
	s = world_wait(&w, 0);
	ck_assert_int_eq(s->kind, GW_EV_HEAD);
	ck_assert_uint_eq(s->key, 11);
	ck_assert_uint_eq(s->host, 3);
	ck_assert_uint_eq(s->head.sequence, 5);
	ask(GW_ACT_VERIFY_MANIFEST, manifest.p, manifest.n, 12);
	s = world_wait(&w, 1);
	ck_assert_int_eq(s->kind, GW_EV_MANIFEST);
	ck_assert_str_eq(s->manifest.policy, "demo");
	ask(GW_ACT_VERIFY_MEMBER, member.p, member.n, 13);
	s = world_wait(&w, 2);
	ck_assert_int_eq(s->kind, GW_EV_MEMBER_RECORD);
	ck_assert_uint_eq(admissions, 1);
	ck_assert_mem_eq(s->identity, admitted.identity, 32);
	ck_assert_uint_eq(verify.pending, 0);
}
END_TEST

static void every_byte(enum gw_action_kind kind, const struct blob *b)
{
	for (size_t i = 0; i < b->n; i++) {
		b->p[i] ^= (uint8_t)(1u << (i % 8));
		ask(kind, b->p, b->n, i);
		b->p[i] ^= (uint8_t)(1u << (i % 8));
		if (i % 256 == 255)
			world_rest(&w);
	}
	world_rest(&w);
	ck_assert_uint_eq(w.seen_n, b->n);
	for (size_t i = 0; i < w.seen_n; i++) {
		ck_assert_int_eq(w.seen[i].kind, GW_EV_REFUSED);
		ck_assert_int_lt(w.seen[i].err, 0);
		ck_assert_uint_eq(w.seen[i].host, 3);
	}
	ck_assert_uint_eq(admissions, 0);
}

START_TEST(any_flipped_bit_of_a_head_is_refused)
{
	every_byte(GW_ACT_VERIFY_HEAD, &head);
}
END_TEST

START_TEST(any_flipped_bit_of_a_manifest_is_refused)
{
	every_byte(GW_ACT_VERIFY_MANIFEST, &manifest);
}
END_TEST

START_TEST(any_flipped_bit_of_a_member_record_is_refused)
{
	every_byte(GW_ACT_VERIFY_MEMBER, &member);
}
END_TEST

START_TEST(records_do_not_stand_in_for_each_other)
{
	ask(GW_ACT_VERIFY_HEAD, manifest.p, manifest.n, 1);
	ask(GW_ACT_VERIFY_MANIFEST, head.p, head.n, 2);
	ask(GW_ACT_VERIFY_MEMBER, head.p, head.n, 3);
	ask(GW_ACT_VERIFY_HEAD, head.p, 0, 4);
	world_rest(&w);
	ck_assert_uint_eq(world_count(&w, GW_EV_REFUSED), 4);
}
END_TEST

START_TEST(too_many_at_once_are_refused_for_now)
{
	for (uint64_t i = 0; i < 1100; i++) /* more than the workers take */
		ask(GW_ACT_VERIFY_HEAD, head.p, head.n, i);
	ck_assert_uint_gt(world_count(&w, GW_EV_REFUSED), 0);
	ck_assert_int_eq(world_last(&w, GW_EV_REFUSED)->err, GW_EAGAIN);
	world_rest(&w);
	ck_assert_uint_eq(w.seen_n, 1100);
	verify.pending = GW_VERIFY_MAX;
	ask(GW_ACT_VERIFY_HEAD, head.p, head.n, 1);
	ck_assert_int_eq(w.seen[1100].err, GW_EAGAIN);
	verify.pending = 0;
}
END_TEST

START_TEST(the_log_cannot_be_flooded)
{
	static const char one[] = "one", two[] = "two";
	static char many[GW_QUIET_EVENTS + 9][2];
	struct gw_quiet q = {0};
	int said = 0;

	for (int i = 0; i < 1000; i++)
		said += gw_quiet_may_say(&q, one, 5);
	ck_assert_int_eq(said, GW_QUIET_LINES);
	ck_assert(gw_quiet_may_say(&q, two, 5)); /* another event is heard all the same */
	ck_assert(!gw_quiet_may_say(&q, one, 4 + GW_QUIET_NS));
	ck_assert(gw_quiet_may_say(&q, one, 5 + GW_QUIET_NS));
	for (size_t i = 0; i < sizeof many / sizeof many[0]; i++)
		ck_assert(gw_quiet_may_say(&q, many[i], 6 + GW_QUIET_NS));
}
END_TEST

TCase *daemon_verify_tests(void)
{
	TCase *t = tcase_create("verify");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_is_right_comes_back);
	tcase_add_test(t, any_flipped_bit_of_a_head_is_refused);
	tcase_add_test(t, any_flipped_bit_of_a_manifest_is_refused);
	tcase_add_test(t, any_flipped_bit_of_a_member_record_is_refused);
	tcase_add_test(t, records_do_not_stand_in_for_each_other);
	tcase_add_test(t, too_many_at_once_are_refused_for_now);
	tcase_add_test(t, the_log_cannot_be_flooded);
	return t;
}
