/* The roster, and what one mesh machine says to what it is told. Whole meshes: tests/sim/mesh_test.c. */
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "mesh/mesh.h"
#include "unit.h"

#define SECOND GW_MESH_SECOND

static struct gw_member_record *record(int i, const char *region, uint64_t stamp)
{
	struct gw_member_record r = {.stamp_ns = stamp,
				     .expires_ns = UINT64_MAX,
				     .dial = GW_DIAL_ANY,
				     .name = "n",
				     .region = region,
				     .island = "",
				     .raw = {(const uint8_t *)&stamp, sizeof stamp}};
	struct gw_member_record *out;

	gw_put_le32(r.identity, (uint32_t)i);
	gw_put_le32(r.curve, (uint32_t)i);
	ck_assert_int_eq(gw_member_record_new(&r, &out), 0);
	return out;
}

static struct gw_roster_entry *add(struct gw_roster *r, int i, const char *region)
{
	struct gw_member_record *rec = record(i, region, 1);
	struct gw_roster_entry *e = NULL;

	ck_assert_int_eq(gw_roster_add(r, rec, GW_MEMBER_ALIVE, 0, &e), 0);
	gw_member_record_unref(rec);
	return e;
}

static struct gw_roster roster(void)
{
	struct gw_member_record *self = record(0, "here", 1);
	struct gw_roster r;

	ck_assert_int_eq(gw_roster_init(&r, 7, self), 0);
	gw_member_record_unref(self);
	return r;
}

START_TEST(records_are_copied_and_bounded)
{
	char name[66], text[80] = "region";
	struct gw_member_record r = {.name = "a", .region = text, .island = ""}, *out;
	uint8_t big[GW_MEMBER_RAW_MAX + 1] = {0};

	ck_assert_int_eq(gw_member_record_new(&r, &out), 0);
	text[0] = 'X';
	ck_assert_str_eq(out->region, "region");
	ck_assert_ptr_eq(gw_member_record_ref(out), out);
	gw_member_record_unref(out);
	gw_member_record_unref(out);
	gw_member_record_unref(NULL);
	memset(name, 'n', 65);
	name[65] = 0;
	r.name = name;
	ck_assert_int_eq(gw_member_record_new(&r, &out), GW_ELIMIT);
	r.name = "a";
	r.region = "";
	ck_assert_int_eq(gw_member_record_new(&r, &out), GW_EINVAL);
	r.region = "r";
	r.raw = (struct gw_bytes){big, sizeof big};
	ck_assert_int_eq(gw_member_record_new(&r, &out), GW_ELIMIT);
}
END_TEST

START_TEST(roster_gives_handles_once)
{
	struct gw_roster r = roster();
	struct gw_roster_entry *a = add(&r, 1, "here"), *b = add(&r, 2, "there"), *c;
	struct gw_member_record *again = record(1, "here", 1), *thief = record(9, "here", 1);

	ck_assert_uint_eq(a->host, 1);
	ck_assert_uint_eq(a->region, 0);
	ck_assert_uint_eq(b->region, 1);
	ck_assert_str_eq(gw_roster_region_name(&r, 1), "there");
	ck_assert_str_eq(gw_roster_region_name(&r, 7), "");
	ck_assert_int_eq(gw_roster_add(&r, again, GW_MEMBER_ALIVE, 0, &c), GW_EEXIST);
	memcpy(thief->curve, again->curve, 32);
	ck_assert_int_eq(gw_roster_add(&r, thief, GW_MEMBER_ALIVE, 0, &c), GW_EDUPLICATE);
	ck_assert_ptr_eq(gw_roster_find_curve(&r, again->curve), a);
	gw_roster_news(&r, a, GW_HOST_NONE);
	gw_roster_forget(&r, a);
	ck_assert_ptr_null(gw_roster_at(&r, 1));
	ck_assert_ptr_null(r.newest);
	ck_assert_int_eq(gw_roster_add(&r, again, GW_MEMBER_ALIVE, 0, &c), 0);
	ck_assert_uint_eq(c->host, 3);
	ck_assert_uint_eq(gw_roster_count(&r), 3);
	gw_member_record_unref(again);
	gw_member_record_unref(thief);
	gw_roster_free(&r);
}
END_TEST

START_TEST(equal_rosters_have_equal_digests)
{
	struct gw_roster a = roster(), b = roster();
	struct gw_roster_entry *e, *f;
	struct gw_member_record *newer = record(2, "moved", 5);

	for (int i = 1; i < 50; i++)
		add(&a, i, "x");
	for (int i = 49; i > 0; i--)
		add(&b, i, "x");
	ck_assert_uint_eq(a.digest, b.digest);
	e = gw_roster_at(&a, 2);
	f = gw_roster_find(&b, e->record->identity);
	gw_roster_set(&a, e, GW_MEMBER_SUSPECT, 0);
	ck_assert_uint_eq(a.digest, b.digest); /* suspicion is no difference */
	gw_roster_set(&a, e, GW_MEMBER_DEAD, 0);
	ck_assert_uint_ne(a.digest, b.digest);
	gw_roster_set(&b, f, GW_MEMBER_DEAD, 0);
	ck_assert_uint_eq(a.digest, b.digest);
	ck_assert_int_eq(gw_roster_set_record(&a, e, newer), 0);
	ck_assert_str_eq(gw_roster_region_name(&a, e->region), "moved");
	ck_assert_uint_ne(a.buckets[gw_roster_bucket(newer->identity)], b.buckets[gw_roster_bucket(newer->identity)]);
	gw_roster_forget(&a, e);
	gw_roster_forget(&b, f);
	ck_assert_uint_eq(a.digest, b.digest);
	ck_assert_mem_eq(a.buckets, b.buckets, sizeof a.buckets);
	gw_member_record_unref(newer);
	gw_roster_free(&a);
	gw_roster_free(&b);
}
END_TEST

START_TEST(roster_is_bounded)
{
	struct gw_roster r = roster();
	struct gw_member_record *one;
	struct gw_roster_entry *e;
	char region[16];

	for (int i = 1; i < GW_MEMBERS_MAX; i++) {
		snprintf(region, sizeof region, "r%d", i < GW_REGIONS_MAX ? i : 1);
		add(&r, i, region);
	}
	one = record(GW_MEMBERS_MAX, "r1", 1);
	ck_assert_int_eq(gw_roster_add(&r, one, GW_MEMBER_ALIVE, 0, &e), GW_ELIMIT);
	gw_roster_forget(&r, gw_roster_at(&r, 5));
	ck_assert_int_eq(gw_roster_add(&r, one, GW_MEMBER_ALIVE, 0, &e), 0);
	gw_member_record_unref(one);
	gw_roster_forget(&r, e);
	one = record(GW_MEMBERS_MAX + 1, "one region too many", 1);
	ck_assert_int_eq(gw_roster_add(&r, one, GW_MEMBER_ALIVE, 0, &e), GW_ELIMIT);
	gw_member_record_unref(one);
	gw_roster_free(&r);
}
END_TEST

/* --- one machine --- */

struct bench {
	struct gw_mesh *m;
	struct gw_actions out;
	uint64_t now;
};

static void step(struct bench *b, struct gw_event *ev)
{
	ev->now_ns = b->now;
	ev->wall_ns = SECOND + b->now;
	gw_actions_reset(&b->out);
	ck_assert_int_eq(gw_mesh_step(b->m, ev, &b->out), 0);
}

static void tick(struct bench *b, uint64_t ns)
{
	struct gw_event ev = {.kind = GW_EV_TIMER, .key = GW_KEY(GW_KEY_MESH, 1)};

	b->now += ns;
	step(b, &ev);
}

static void hear(struct bench *b, gw_host from, const struct gw_msg *msg)
{
	struct gw_event ev = {.kind = GW_EV_MSG, .host = from, .msg = msg};

	step(b, &ev);
}

static const struct gw_action *find(const struct bench *b, enum gw_action_kind kind, gw_host host)
{
	for (size_t i = 0; i < b->out.n; i++)
		if (b->out.v[i].kind == kind && (host == GW_HOST_NONE || b->out.v[i].host == host))
			return &b->out.v[i];
	return NULL;
}

static const struct gw_msg *sent(const struct bench *b, gw_host to, enum gw_msg_type type)
{
	for (size_t i = 0; i < b->out.n; i++)
		if (b->out.v[i].kind == GW_ACT_SEND && b->out.v[i].host == to && b->out.v[i].msg->type == type)
			return b->out.v[i].msg;
	return NULL;
}

static const struct gw_event *told(const struct bench *b, enum gw_event_kind kind)
{
	for (size_t i = 0; i < b->out.n; i++)
		if (b->out.v[i].kind == GW_ACT_MEMBER && b->out.v[i].event.kind == kind)
			return &b->out.v[i].event;
	return NULL;
}

/* A host that knows 1 … others, with links up to all of them. */
static void begin(struct bench *b, int others)
{
	struct gw_member_record *v[8];
	struct gw_mesh_config c = {.seed = 3, .bootstrap = v + 1, .bootstrap_count = (size_t)others};
	struct gw_event ev = {.kind = GW_EV_START};

	for (int i = 0; i <= others; i++)
		v[i] = record(i, i % 2 ? "odd" : "even", 1);
	c.self = v[0];
	b->now = SECOND;
	gw_actions_init(&b->out);
	ck_assert_int_eq(gw_mesh_new(&c, &b->m), 0);
	for (int i = 0; i <= others; i++)
		gw_member_record_unref(v[i]);
	step(b, &ev);
	ev.kind = GW_EV_LINK_UP;
	for (ev.host = 1; ev.host <= (gw_host)others; ev.host++)
		step(b, &ev);
}

static void end(struct bench *b)
{
	gw_mesh_free(b->m);
	gw_actions_free(&b->out);
}

static struct gw_msg say(struct gw_r_member_news *n, int about, enum gw_member_state state, uint64_t incarnation)
{
	struct gw_msg m = {.type = GW_MSG_member_news};

	memset(n, 0, sizeof *n);
	gw_put_le32(n->identity, (uint32_t)about);
	n->state = (uint8_t)state;
	n->incarnation = incarnation;
	n->by[0] = 9;
	m.u.member_news.members.v = n;
	m.u.member_news.members.n = 1;
	return m;
}

START_TEST(start_persists_before_it_speaks)
{
	struct bench b;
	struct gw_member_record *self = record(0, "even", 1);
	uint8_t stored[8];
	struct gw_mesh_config c = {.seed = 1, .self = self, .stored = {stored, 8}};
	struct gw_event ev = {.kind = GW_EV_START};

	gw_put_le64(stored, 41);
	gw_actions_init(&b.out);
	ck_assert_int_eq(gw_mesh_new(&c, &b.m), 0);
	b.now = SECOND;
	step(&b, &ev);
	ck_assert_int_eq(b.out.v[0].kind, GW_ACT_PERSIST);
	ck_assert_str_eq(b.out.v[0].slot, "mesh");
	ck_assert_uint_eq(gw_le64(b.out.v[0].data.p), 42);
	gw_member_record_unref(self);
	end(&b);
}
END_TEST

START_TEST(the_dead_of_a_former_life_come_back)
{
	struct gw_member_record *v[4];
	struct gw_mesh_config c = {
		.seed = 3, .bootstrap = v + 1, .bootstrap_count = 1, .bootstrap_dead = 1, .bootstrap_left = 1};
	struct gw_event ev = {.kind = GW_EV_START};
	const struct gw_roster *r;
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 2, GW_MEMBER_ALIVE, 1);
	struct gw_member_record *kept[3];
	struct gw_mesh_kinds k;
	struct bench b = {.now = SECOND};

	for (int i = 0; i < 4; i++)
		v[i] = record(i, "even", 1);
	c.self = v[0];
	gw_actions_init(&b.out);
	ck_assert_int_eq(gw_mesh_new(&c, &b.m), 0);
	for (int i = 0; i < 4; i++)
		gw_member_record_unref(v[i]);
	r = gw_mesh_roster(b.m);
	ck_assert_int_eq(gw_roster_at(r, 1)->state, GW_MEMBER_ALIVE);
	ck_assert_int_eq(gw_roster_at(r, 2)->state, GW_MEMBER_DEAD);
	ck_assert_int_eq(gw_roster_at(r, 3)->state, GW_MEMBER_LEFT);
	step(&b, &ev);
	ck_assert_uint_eq(told(&b, GW_EV_MEMBER_UP)->host, 1);
	ck_assert_int_eq(gw_roster_is_in(gw_roster_at(r, 2)), 0);
	/* They are kept as what they are, until there is nobody else to begin with. */
	k = gw_mesh_known(b.m, kept, 3);
	ck_assert(k.in == 1 && k.dead == 1 && k.left == 1);
	for (gw_host h = 1; h <= 3; h++)
		ck_assert_ptr_eq(kept[h - 1], gw_roster_at(r, h)->record);
	k = gw_mesh_known(b.m, kept, 2);
	ck_assert(k.in == 1 && k.dead == 1 && k.left == 0);
	gw_put_le32(n.identity, 1);
	n.state = GW_MEMBER_LEFT;
	hear(&b, 1, &m);
	k = gw_mesh_known(b.m, kept, 3);
	ck_assert(k.in == 3 && k.dead == 0 && k.left == 0);
	n.state = GW_MEMBER_ALIVE;
	/* Both are known, so both are heard when they come. */
	for (ev.host = 2; ev.host <= 3; ev.host++) {
		ev.kind = GW_EV_LINK_UP;
		step(&b, &ev);
		gw_put_le32(n.identity, ev.host);
		hear(&b, ev.host, &m);
		ck_assert_ptr_nonnull(told(&b, GW_EV_MEMBER_UP));
		ck_assert_uint_eq(told(&b, GW_EV_MEMBER_UP)->host, ev.host);
		ck_assert_int_eq(gw_roster_is_in(gw_roster_at(r, ev.host)), 1);
	}
	end(&b);
}
END_TEST

START_TEST(accused_refutes)
{
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 0, GW_MEMBER_SUSPECT, 1);
	const struct gw_msg *answer;
	struct bench b;

	begin(&b, 4);
	hear(&b, 1, &m);
	ck_assert_ptr_nonnull(find(&b, GW_ACT_PERSIST, GW_HOST_NONE));
	ck_assert(find(&b, GW_ACT_PERSIST, GW_HOST_NONE) < find(&b, GW_ACT_SEND, GW_HOST_NONE));
	for (gw_host h = 1; h <= 4; h++) {
		answer = sent(&b, h, GW_MSG_member_news);
		ck_assert_ptr_nonnull(answer);
		ck_assert_uint_eq(answer->u.member_news.members.v[0].incarnation, 2);
		ck_assert_uint_eq(answer->u.member_news.members.v[0].state, GW_MEMBER_ALIVE);
	}
	hear(&b, 2, &m); /* old by now */
	ck_assert_ptr_null(find(&b, GW_ACT_PERSIST, GW_HOST_NONE));
	end(&b);
}
END_TEST

START_TEST(silence_is_probed_witnessed_and_accused)
{
	struct gw_msg peers = {.type = GW_MSG_neighbours}, no = {.type = GW_MSG_probe_reply};
	struct gw_r_member_id ids[1] = {{{0}}};
	const struct gw_msg *q = NULL;
	struct gw_msg ack = {.type = GW_MSG_ack};
	int pinged = 0, asked = 0, suspected = 0, dead = 0;
	struct bench b;

	begin(&b, 4);
	gw_put_le32(ids[0].identity, 2);
	peers.u.neighbours.hosts.v = ids;
	peers.u.neighbours.hosts.n = 1;
	hear(&b, 1, &peers); /* host 1 has host 2 as its neighbour */
	for (int i = 0; i < 60 && !dead; i++) {
		tick(&b, SECOND / 2);
		pinged |= sent(&b, 1, GW_MSG_ping) != NULL;
		suspected |= told(&b, GW_EV_MEMBER_SUSPECT) != NULL;
		dead |= told(&b, GW_EV_MEMBER_DOWN) != NULL;
		q = sent(&b, 2, GW_MSG_probe_request);
		if (q) {
			ck_assert(pinged && !suspected);
			asked = 1;
			no.u.probe_reply.seq = q->u.probe_request.seq;
			memcpy(no.u.probe_reply.identity, q->u.probe_request.identity, 32);
			for (gw_host h = 2; h <= 4; h++)
				hear(&b, h, &no);
		}
		for (gw_host h = 2; h <= 4; h++)
			hear(&b, h, &ack);
	}
	ck_assert(pinged && asked && suspected && dead);
	ck_assert_uint_gt(b.now, 12 * SECOND);
	ck_assert_uint_lt(b.now, 20 * SECOND);
	ck_assert_uint_eq(gw_mesh_local_health(b.m), 0); /* the witnesses answered */
	end(&b);
}
END_TEST

START_TEST(who_hears_from_nobody_accuses_nobody)
{
	struct bench b;

	begin(&b, 4);
	for (int i = 0; i < 120; i++) {
		tick(&b, SECOND / 2);
		ck_assert_ptr_null(told(&b, GW_EV_MEMBER_SUSPECT));
	}
	end(&b);
}
END_TEST

START_TEST(starved_host_forgives)
{
	struct bench b;

	begin(&b, 4);
	tick(&b, SECOND / 2);
	tick(&b, 30 * SECOND);
	for (int i = 0; i < 3; i++) {
		ck_assert_ptr_null(sent(&b, 1, GW_MSG_ping));
		tick(&b, SECOND / 4);
	}
	ck_assert_uint_eq(gw_mesh_local_health(b.m), 1);
	end(&b);
}
END_TEST

START_TEST(records_are_verified_before_they_count)
{
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 77, GW_MEMBER_ALIVE, 4);
	struct gw_member_record *r = record(77, "odd", 3);
	struct gw_event answer = {.kind = GW_EV_REFUSED, .host = 1, .err = GW_ESIGNATURE};
	struct bench b;

	begin(&b, 4);
	hear(&b, 1, &m); /* unknown, and no record: it is asked for */
	ck_assert_ptr_nonnull(sent(&b, 1, GW_MSG_member_ask));
	n.record = r->raw;
	hear(&b, 1, &m);
	ck_assert_ptr_nonnull(find(&b, GW_ACT_VERIFY_MEMBER, 1));
	ck_assert_ptr_null(told(&b, GW_EV_MEMBER_UP));
	answer.key = find(&b, GW_ACT_VERIFY_MEMBER, 1)->key;
	hear(&b, 2, &m); /* under way already */
	ck_assert_ptr_null(find(&b, GW_ACT_VERIFY_MEMBER, GW_HOST_NONE));
	step(&b, &answer);
	ck_assert_ptr_null(gw_roster_find(gw_mesh_roster(b.m), r->identity));
	hear(&b, 2, &m);
	answer.kind = GW_EV_MEMBER_RECORD;
	answer.record = r;
	step(&b, &answer); /* an answer to the old question */
	ck_assert_uint_eq(gw_roster_find(gw_mesh_roster(b.m), r->identity)->incarnation, 0);
	answer.key = 0;
	end(&b);
	gw_member_record_unref(r);
}
END_TEST

START_TEST(membership_ends_with_its_record)
{
	struct gw_member_record r = {.stamp_ns = 5,
				     .expires_ns = 100 * SECOND,
				     .dial = GW_DIAL_ANY,
				     .name = "n",
				     .region = "even",
				     .island = ""},
				*short_lived, *renewed;
	struct gw_event ev = {.kind = GW_EV_MEMBER_RECORD, .host = GW_HOST_NONE};
	const struct gw_roster_entry *e;
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 50, GW_MEMBER_ALIVE, 9);
	struct bench b;
	int down = 0;

	begin(&b, 2);
	gw_put_le32(r.identity, 50);
	gw_put_le32(r.curve, 50);
	ck_assert_int_eq(gw_member_record_new(&r, &short_lived), 0);
	r.stamp_ns = 6;
	r.expires_ns = UINT64_MAX;
	ck_assert_int_eq(gw_member_record_new(&r, &renewed), 0);
	ev.record = short_lived;
	step(&b, &ev);
	ck_assert_ptr_nonnull(told(&b, GW_EV_MEMBER_UP));
	e = gw_roster_find(gw_mesh_roster(b.m), r.identity);
	for (int i = 0; i < 400 && !down; i++) {
		tick(&b, SECOND / 2);
		down = told(&b, GW_EV_MEMBER_DOWN) != NULL && told(&b, GW_EV_MEMBER_DOWN)->host == e->host;
	}
	ck_assert(down);
	ck_assert_int_eq(e->state, GW_MEMBER_LEFT);
	hear(&b, 1, &m); /* being alive is not enough */
	ck_assert_int_eq(e->state, GW_MEMBER_LEFT);
	step(&b, &ev); /* nor is the old record */
	ck_assert_int_eq(e->state, GW_MEMBER_LEFT);
	ev.record = renewed;
	step(&b, &ev);
	hear(&b, 1, &m);
	ck_assert_int_eq(e->state, GW_MEMBER_ALIVE);
	gw_member_record_unref(short_lived);
	gw_member_record_unref(renewed);
	end(&b);
}
END_TEST

START_TEST(a_host_that_sends_forgeries_is_left_alone)
{
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 77, GW_MEMBER_ALIVE, 4);
	struct gw_event answer = {.kind = GW_EV_REFUSED, .host = 1, .err = GW_ESIGNATURE};
	struct bench b;
	int named = 0;

	begin(&b, 4);
	n.record = (struct gw_bytes){(const uint8_t *)"forged", 6};
	for (int i = 0; i < 3; i++) {
		hear(&b, 1, &m);
		answer.key = find(&b, GW_ACT_VERIFY_MEMBER, 1)->key;
		step(&b, &answer);
		named |= find(&b, GW_ACT_LOG, 1) != NULL;
	}
	ck_assert(named);
	ck_assert_ptr_nonnull(find(&b, GW_ACT_DISCONNECT, 1));
	end(&b);
}
END_TEST

START_TEST(what_strangers_say_is_bounded)
{
	struct gw_r_member_news n[64];
	struct gw_msg m = {.type = GW_MSG_member_news};
	size_t verifying = 0;
	struct bench b;

	begin(&b, 4);
	m.u.member_news.members.v = n;
	m.u.member_news.members.n = 64;
	for (int k = 0; k < 100; k++) {
		for (int i = 0; i < 64; i++) {
			say(&n[i], 1000 + 64 * k + i, GW_MEMBER_ALIVE, 1);
			n[i].record = (struct gw_bytes){(const uint8_t *)"x", 1};
		}
		hear(&b, 1, &m);
		for (size_t i = 0; i < b.out.n; i++)
			verifying += b.out.v[i].kind == GW_ACT_VERIFY_MEMBER;
	}
	ck_assert_uint_eq(verifying, GW_MESH_PENDING_MAX);
	ck_assert_uint_eq(gw_roster_count(gw_mesh_roster(b.m)), 5);
	end(&b);
}
END_TEST

START_TEST(odd_statements_do_nothing)
{
	struct gw_r_member_news n;
	struct gw_msg m;
	struct bench b;

	begin(&b, 4);
	m = say(&n, 2, (enum gw_member_state)200, 1);
	hear(&b, 1, &m);
	m = say(&n, 2, GW_MEMBER_DEAD, UINT64_MAX); /* an incarnation out of reach */
	hear(&b, 1, &m);
	ck_assert_int_eq(gw_roster_at(gw_mesh_roster(b.m), 2)->state, GW_MEMBER_ALIVE);
	m = say(&n, 2, GW_MEMBER_DEAD, 1); /* but it was heard a moment ago */
	hear(&b, 1, &m);
	ck_assert_int_eq(gw_roster_at(gw_mesh_roster(b.m), 2)->state, GW_MEMBER_SUSPECT);
	ck_assert_ptr_nonnull(sent(&b, 2, GW_MSG_member_news)); /* and is told */
	end(&b);
}
END_TEST

/* One who says that it saw this host, or one that is new here, at a number that cannot be topped. */
START_TEST(incarnations_stay_in_reach)
{
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 0, GW_MEMBER_DEAD, UINT64_MAX);
	struct gw_member_record *r = record(77, "odd", 3);
	struct gw_event answer = {.kind = GW_EV_MEMBER_RECORD, .host = 1, .record = r};
	const struct gw_roster_entry *e;
	struct gw_msg hello = {.type = GW_MSG_link_hello};
	uint64_t before = 1;
	struct bench b;

	begin(&b, 4);
	for (int i = 0; i < 100; i++) {
		hear(&b, 1, &m);
		e = gw_roster_at(gw_mesh_roster(b.m), GW_HOST_SELF);
		ck_assert_int_eq(e->state, GW_MEMBER_ALIVE);
		ck_assert_uint_gt(e->incarnation, before);
		ck_assert_uint_lt(e->incarnation - before, UINT64_C(1) << 32); /* the others take it */
		before = e->incarnation;
	}
	m = say(&n, 77, GW_MEMBER_DEAD, UINT64_MAX);
	n.record = r->raw;
	hear(&b, 1, &m);
	answer.key = find(&b, GW_ACT_VERIFY_MEMBER, 1)->key;
	step(&b, &answer);
	e = gw_roster_find(gw_mesh_roster(b.m), r->identity);
	ck_assert_int_eq(e->state, GW_MEMBER_ALIVE);
	ck_assert_uint_eq(e->incarnation, 0);
	/* What a host says of itself counts, however far it was driven. */
	hello.u.link_hello.incarnation = UINT64_C(5) << 32;
	hear(&b, 2, &hello);
	ck_assert_uint_eq(gw_roster_at(gw_mesh_roster(b.m), 2)->incarnation, UINT64_C(5) << 32);
	gw_member_record_unref(r);
	end(&b);
}
END_TEST

START_TEST(who_is_heard_is_not_gone_by_the_word_of_others)
{
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 2, GW_MEMBER_LEFT, 1), hello = {.type = GW_MSG_link_hello, .u.link_hello = {1, 1}};
	struct bench b;

	begin(&b, 4);
	hear(&b, 2, &hello);
	hear(&b, 1, &m);
	ck_assert_int_eq(gw_roster_at(gw_mesh_roster(b.m), 2)->state, GW_MEMBER_ALIVE);
	ck_assert_ptr_nonnull(sent(&b, 2, GW_MSG_member_news)); /* it can say that it is there */
	m.u.member_news.members.v[0].state = GW_MEMBER_SUSPECT;
	tick(&b, SECOND / 2);
	hear(&b, 3, &m);
	ck_assert_int_eq(gw_roster_at(gw_mesh_roster(b.m), 2)->state, GW_MEMBER_ALIVE);
	ck_assert_uint_eq(sent(&b, 2, GW_MSG_member_news)->u.member_news.members.v[0].state, GW_MEMBER_SUSPECT);
	m = say(&n, 2, GW_MEMBER_LEFT, 1);
	hear(&b, 2, &m);
	ck_assert_int_eq(gw_roster_at(gw_mesh_roster(b.m), 2)->state, GW_MEMBER_LEFT);
	end(&b);
}
END_TEST

START_TEST(old_records_are_nobodys_fault)
{
	const int errs[] = {GW_EEXPIRED, GW_EREVOKED, GW_EAGAIN, GW_ENOMEM, GW_EINTR};
	struct gw_r_member_news n;
	struct gw_msg m = say(&n, 77, GW_MEMBER_ALIVE, 4);
	struct gw_event answer = {.kind = GW_EV_REFUSED, .host = 1};
	struct bench b;

	begin(&b, 4);
	n.record = (struct gw_bytes){(const uint8_t *)"expired", 7};
	for (size_t i = 0; i < 10; i++) {
		hear(&b, 1, &m);
		answer.key = find(&b, GW_ACT_VERIFY_MEMBER, 1)->key;
		answer.err = errs[i % 5];
		step(&b, &answer);
		ck_assert_ptr_null(find(&b, GW_ACT_LOG, 1));
		ck_assert_ptr_null(find(&b, GW_ACT_DISCONNECT, 1));
	}
	end(&b);
}
END_TEST

/* Any message in any order from anybody: sound state, bounded actions. Run under sanitizers. */
START_TEST(noise)
{
	struct gw_r_member_news n[64];
	struct gw_r_member_line lines[64];
	uint8_t digests[512] = {1};
	struct gw_rng rng;
	struct bench b;

	gw_rng_init(&rng, 5);
	begin(&b, 6);
	for (int k = 0; k < 20000; k++) {
		struct gw_msg m = {.type = (enum gw_msg_type)(1 + gw_rng_below(&rng, 12))};
		gw_host from = (gw_host)gw_rng_below(&rng, 9);

		for (int i = 0; i < 64; i++) {
			say(&n[i], (int)gw_rng_below(&rng, 9), (enum gw_member_state)gw_rng_below(&rng, 5),
			    gw_rng_below(&rng, 6));
			memcpy(lines[i].identity, n[i].identity, 32);
			lines[i].state = n[i].state;
			lines[i].incarnation = n[i].incarnation;
			lines[i].stamp = gw_rng_below(&rng, 3);
		}
		switch ((int)m.type) {
		case GW_MSG_member_news:
			m.u.member_news.members.v = n;
			m.u.member_news.members.n = gw_rng_below(&rng, 65);
			break;
		case GW_MSG_table_lines:
			m.u.table_lines.buckets = gw_rng_u64(&rng);
			m.u.table_lines.lines.v = lines;
			m.u.table_lines.lines.n = gw_rng_below(&rng, 65);
			break;
		case GW_MSG_table_buckets:
			m.u.table_buckets.digests = (struct gw_bytes){digests, gw_rng_below(&rng, 2) ? 512 : 100};
			break;
		case GW_MSG_probe_request:
		case GW_MSG_probe_reply:
			memcpy(m.u.probe_reply.identity, n[0].identity, 32);
			break;
		case GW_MSG_link_hello:
			m.u.link_hello.standing = (uint8_t)gw_rng_below(&rng, 2);
			m.u.link_hello.incarnation = gw_rng_below(&rng, 5);
			break;
		default:
			break;
		}
		hear(&b, from, &m);
		ck_assert_uint_lt(b.out.n, 1000);
		if (gw_rng_below(&rng, 4) == 0) {
			struct gw_event ev = {.kind = gw_rng_below(&rng, 2) ? GW_EV_LINK_UP : GW_EV_LINK_DOWN};

			ev.host = 1 + (gw_host)gw_rng_below(&rng, 8);
			step(&b, &ev);
		}
		if (gw_rng_below(&rng, 3) == 0)
			tick(&b, gw_rng_below(&rng, SECOND));
	}
	ck_assert_uint_eq(gw_roster_count(gw_mesh_roster(b.m)), 7);
	end(&b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("mesh");
	TCase *t = tcase_create("all");

	tcase_add_test(t, records_are_copied_and_bounded);
	tcase_add_test(t, roster_gives_handles_once);
	tcase_add_test(t, equal_rosters_have_equal_digests);
	tcase_add_test(t, roster_is_bounded);
	tcase_add_test(t, start_persists_before_it_speaks);
	tcase_add_test(t, the_dead_of_a_former_life_come_back);
	tcase_add_test(t, accused_refutes);
	tcase_add_test(t, silence_is_probed_witnessed_and_accused);
	tcase_add_test(t, who_hears_from_nobody_accuses_nobody);
	tcase_add_test(t, starved_host_forgives);
	tcase_add_test(t, records_are_verified_before_they_count);
	tcase_add_test(t, membership_ends_with_its_record);
	tcase_add_test(t, a_host_that_sends_forgeries_is_left_alone);
	tcase_add_test(t, what_strangers_say_is_bounded);
	tcase_add_test(t, odd_statements_do_nothing);
	tcase_add_test(t, incarnations_stay_in_reach);
	tcase_add_test(t, who_is_heard_is_not_gone_by_the_word_of_others);
	tcase_add_test(t, old_records_are_nobodys_fault);
	tcase_add_test(t, noise);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
