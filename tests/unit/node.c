/* What a node keeps inside, and what it says about itself. Whole meshes of nodes: tests/sim/sim_test.c. */
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "node/inner.h"
#include "unit.h"

#define SECOND GW_MESH_SECOND

START_TEST(a_link_lives_while_anybody_wants_it)
{
	struct gw_wishes w = {NULL, 0};
	int err;

	ck_assert(gw_wish(&w, 500, GW_KEY_MESH, 1, &err) && !err);
	ck_assert(!gw_wish(&w, 500, GW_KEY_SWARM, 1, &err) && !err);
	ck_assert(!gw_wish(&w, 500, GW_KEY_MESH, 1, &err));
	ck_assert(!gw_wish(&w, 500, GW_KEY_MESH, 0, &err));
	ck_assert(!gw_wish(&w, 500, GW_KEY_MESH, 0, &err)); /* has let go already */
	ck_assert(gw_wish(&w, 500, GW_KEY_SWARM, 0, &err));
	ck_assert(!gw_wish(&w, 500, GW_KEY_SWARM, 0, &err));
	ck_assert(gw_wish(&w, 500, GW_KEY_SWARM, 1, &err));
	gw_wishes_end(&w, 500);
	gw_wishes_end(&w, 100000);			   /* never heard of */
	ck_assert(gw_wish(&w, 500, GW_KEY_MESH, 1, &err)); /* LINK_DOWN: ask anew */
	ck_assert(!gw_wish(&w, GW_HOST_NONE, GW_KEY_MESH, 1, &err));
	ck_assert_int_eq(err, GW_ELIMIT);
	free(w.of);
}
END_TEST

START_TEST(states_have_names)
{
	ck_assert_str_eq(gw_host_state_name(GW_HOST_UNREACHABLE), "unreachable");
	ck_assert_str_eq(gw_host_state_name(GW_HOST_SERVING), "serving");
	ck_assert_str_eq(gw_host_state_name(GW_HOST_STATES_COUNT), "unknown");
}
END_TEST

struct bench {
	struct gw_node *n;
	struct gw_actions out;
	uint64_t now;
};

static struct gw_member_record *record(int i)
{
	struct gw_member_record r = {.stamp_ns = 1,
				     .expires_ns = UINT64_MAX,
				     .dial = GW_DIAL_ANY,
				     .name = "name",
				     .region = i % 2 ? "odd" : "even",
				     .island = "isle"},
				*out;

	gw_put_le32(r.identity, (uint32_t)i);
	gw_put_le32(r.curve, (uint32_t)i);
	ck_assert_int_eq(gw_member_record_new(&r, &out), 0);
	return out;
}

static void step(struct bench *b, struct gw_event *ev)
{
	ev->now_ns = b->now;
	ev->wall_ns = SECOND + b->now;
	gw_actions_reset(&b->out);
	ck_assert_int_eq(gw_node_step(b->n, ev, &b->out), 0);
	for (size_t i = 0; i < b->out.n; i++) {
		ck_assert_int_ne(b->out.v[i].kind, GW_ACT_MEMBER);
		ck_assert_int_ne(b->out.v[i].kind, GW_ACT_TELL);
	}
}

static void begin(struct bench *b, int others)
{
	struct gw_member_record *v[8];
	struct gw_node_config c = {.seed = 3};
	struct gw_event ev = {.kind = GW_EV_START};
	struct gw_diag why = {""};

	for (int i = 0; i <= others; i++)
		v[i] = record(i);
	c.mesh = (struct gw_mesh_config){.self = v[0], .bootstrap = v + 1, .bootstrap_count = (size_t)others};
	b->now = SECOND;
	gw_actions_init(&b->out);
	ck_assert_int_eq(gw_node_new(&c, &b->n, &why), 0);
	for (int i = 0; i <= others; i++)
		gw_member_record_unref(v[i]);
	step(b, &ev);
	ev.kind = GW_EV_LINK_UP;
	for (ev.host = 1; ev.host <= (gw_host)others; ev.host++)
		step(b, &ev);
}

static void end(struct bench *b)
{
	gw_node_free(b->n);
	gw_actions_free(&b->out);
}

static void tick(struct bench *b, uint64_t ns)
{
	struct gw_event ev = {.kind = GW_EV_TIMER, .key = GW_KEY(GW_KEY_NODE, HEALTH_KEY)};

	b->now += ns;
	step(b, &ev);
}

static const struct gw_msg *sent(const struct bench *b, gw_host to, enum gw_msg_type type)
{
	for (size_t i = 0; i < b->out.n; i++)
		if (b->out.v[i].kind == GW_ACT_SEND && b->out.v[i].host == to && b->out.v[i].msg->type == type)
			return b->out.v[i].msg;
	return NULL;
}

static const struct gw_action *health(const struct bench *b)
{
	for (size_t i = 0; i < b->out.n; i++)
		if (b->out.v[i].kind == GW_ACT_HEALTH)
			return &b->out.v[i];
	return NULL;
}

START_TEST(a_host_says_what_was_reported)
{
	struct gw_r_host_status said = {.policy = {"p", 1},
					.engine = {"vllm", 4},
					.ranks = 8,
					.staged = 3,
					.state = GW_HOST_POISONED,
					.last_error = {"oh", 2}},
				out[GW_NODE_POLICIES_MAX];
	struct gw_arena a;
	struct bench b;
	char name[8];

	begin(&b, 2);
	gw_arena_init(&a, 1 << 20);
	ck_assert_uint_eq(gw_node_status(b.n, 1, &a, out), 1);
	ck_assert_uint_eq(out[0].state, GW_HOST_IDLE);
	ck_assert_int_eq(out[0].served, -1);
	ck_assert_int_eq(gw_node_report(b.n, &said), 0);
	said.ranks = 16;
	ck_assert_int_eq(gw_node_report(b.n, &said), 0);
	ck_assert_uint_eq(gw_node_status(b.n, 1, &a, out), 1);
	ck_assert_uint_eq(out[0].ranks, 16);
	ck_assert_uint_eq(out[0].state, GW_HOST_POISONED);
	ck_assert_mem_eq(out[0].engine.p, "vllm", 4);
	ck_assert_mem_eq(out[0].name.p, "name", 4);
	ck_assert_mem_eq(out[0].region.p, "even", 4);
	ck_assert_mem_eq(out[0].island.p, "isle", 4);
	for (int i = 1; i < GW_NODE_POLICIES_MAX; i++) {
		snprintf(name, sizeof name, "p%d", i);
		said.policy = (struct gw_text){name, 2};
		ck_assert_int_eq(gw_node_report(b.n, &said), 0);
	}
	said.policy = (struct gw_text){"q", 1};
	ck_assert_int_eq(gw_node_report(b.n, &said), GW_ELIMIT);
	said.policy = (struct gw_text){"p", 1};
	said.last_error.n = 257;
	ck_assert_int_eq(gw_node_report(b.n, &said), GW_ELIMIT);
	ck_assert_uint_eq(gw_node_status(b.n, 1, &a, out), GW_NODE_POLICIES_MAX);
	gw_arena_reset(&a);
	end(&b);
}
END_TEST

START_TEST(traffic_is_counted_by_region)
{
	static const uint8_t bytes[100];
	struct gw_msg m = {.type = GW_MSG_block};
	struct gw_event in = {.kind = GW_EV_MSG, .msg = &m}, out = {.kind = GW_EV_BLOCK_SENT, .bytes = 7};
	struct bench b;

	begin(&b, 3);
	m.u.block.data = (struct gw_bytes){bytes, sizeof bytes};
	for (in.host = 1; in.host <= 3; in.host++) {
		out.host = in.host;
		step(&b, &in);
		step(&b, &out);
	}
	ck_assert_uint_eq(gw_node_traffic(b.n, 0).rx_bytes, 100); /* host 2 */
	ck_assert_uint_eq(gw_node_traffic(b.n, 0).tx_bytes, 7);
	ck_assert_uint_eq(gw_node_border(b.n).rx_bytes, 200);
	ck_assert_uint_eq(gw_node_border(b.n).tx_bytes, 14);
	ck_assert_uint_eq(gw_node_traffic(b.n, UINT32_MAX).rx_bytes, 0);
	end(&b);
}
END_TEST

START_TEST(a_question_goes_on_once_and_answers_go_back)
{
	struct gw_r_host_status below = {.name = {"far", 3}, .region = {"odd", 3}, .served = 9};
	struct gw_msg q = {.type = GW_MSG_status_request}, r = {.type = GW_MSG_status_reply};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = 1, .msg = &q};
	const struct gw_msg *m;
	struct bench b;

	begin(&b, 4);
	q.u.status_request.origin[0] = 77;
	q.u.status_request.query = 5;
	step(&b, &ev);
	ck_assert_ptr_null(sent(&b, 1, GW_MSG_status_request));
	for (gw_host h = 2; h <= 4; h++)
		ck_assert_uint_eq(sent(&b, h, GW_MSG_status_request)->u.status_request.hops, 1);
	ev.host = 2;
	step(&b, &ev); /* the wave comes from elsewhere too */
	ck_assert_uint_eq(b.out.n, 0);
	r.u.status_reply.origin[0] = 77;
	r.u.status_reply.query = 5;
	r.u.status_reply.hosts.v = &below;
	r.u.status_reply.hosts.n = 1;
	ev.msg = &r;
	step(&b, &ev);
	tick(&b, SECOND / 20);
	m = sent(&b, 1, GW_MSG_status_reply);
	ck_assert_ptr_nonnull(m);
	ck_assert_uint_eq(m->u.status_reply.hosts.n, 2); /* ours and that of below */
	ck_assert_mem_eq(m->u.status_reply.hosts.v[1].name.p, "far", 3);
	ck_assert_int_eq(m->u.status_reply.hosts.v[1].served, 9);
	end(&b);
}
END_TEST

START_TEST(the_asker_counts_and_names_who_is_missing)
{
	struct gw_r_host_status from = {.name = {"x", 1}, .served = 1};
	struct gw_msg r = {.type = GW_MSG_status_reply};
	struct gw_event ask = {.kind = GW_EV_HEALTH, .key = 42}, ev = {.kind = GW_EV_MSG, .msg = &r};
	const struct gw_action *h;
	struct bench b;
	int waves = 0;

	begin(&b, 3);
	step(&b, &ask);
	r.u.status_reply.query = sent(&b, 1, GW_MSG_status_request)->u.status_request.query;
	memcpy(r.u.status_reply.origin, sent(&b, 1, GW_MSG_status_request)->u.status_request.origin, 32);
	r.u.status_reply.hosts.v = &from;
	r.u.status_reply.hosts.n = 1;
	for (int k = 0; k < 2; k++)
		for (ev.host = 1; ev.host <= 2; ev.host++) { /* each twice: counted once */
			gw_put_le32(from.identity, ev.host);
			step(&b, &ev);
		}
	gw_put_le32(from.identity, 99); /* no member */
	step(&b, &ev);
	while (!(h = health(&b))) {
		ck_assert_uint_lt(b.now, 5 * SECOND);
		tick(&b, SECOND / 20);
		waves += sent(&b, 3, GW_MSG_status_request) != NULL;
	}
	ck_assert_int_eq(waves, 1); /* the missing were asked once more */
	ck_assert_uint_ge(b.now, 4 * SECOND);
	ck_assert_uint_eq(h->key, 42);
	ck_assert_uint_eq(h->msg->u.status_reply.hosts.n, 4);
	ck_assert_uint_eq(h->msg->u.status_reply.hosts.v[3].state, GW_HOST_UNREACHABLE);
	ck_assert_uint_eq(h->msg->u.status_reply.hosts.v[3].identity[0], 3);
	end(&b);
}
END_TEST

START_TEST(too_many_questions_are_not_passed_on)
{
	struct gw_msg q = {.type = GW_MSG_status_request};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = 1, .msg = &q}, ask = {.kind = GW_EV_HEALTH, .key = 9};
	struct bench b;
	int passed = 0;

	begin(&b, 3);
	for (unsigned i = 0; i < 3 * GW_NODE_QUERIES_MAX; i++) {
		q.u.status_request.query = i + 1;
		step(&b, &ev);
		passed += sent(&b, 2, GW_MSG_status_request) != NULL;
	}
	ck_assert_int_eq(passed, GW_NODE_QUERIES_MAX);
	step(&b, &ask); /* answered all the same: with nothing */
	ck_assert_ptr_nonnull(health(&b));
	ck_assert_uint_eq(health(&b)->msg->u.status_reply.hosts.n, 0);
	for (int i = 0; i < 7; i++)
		tick(&b, SECOND);
	step(&b, &ev);
	ck_assert_ptr_nonnull(sent(&b, 2, GW_MSG_status_request)); /* they ended */
	end(&b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("node");
	TCase *t = tcase_create("all");

	tcase_add_test(t, a_link_lives_while_anybody_wants_it);
	tcase_add_test(t, states_have_names);
	tcase_add_test(t, a_host_says_what_was_reported);
	tcase_add_test(t, traffic_is_counted_by_region);
	tcase_add_test(t, a_question_goes_on_once_and_answers_go_back);
	tcase_add_test(t, the_asker_counts_and_names_who_is_missing);
	tcase_add_test(t, too_many_questions_are_not_passed_on);
	suite_add_tcase(s, t);
	return s;
}

UNIT_MAIN(suite)
