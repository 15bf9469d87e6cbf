/* Stories of a few hosts; the trace of what crossed the links is what is asserted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swarm_net.h"
#include "unit.h"

enum { KIB = 1024 };

static struct net net;

/* One trainer alone in its region, and so many hosts in the next. */
static void trainer_and(int hosts, uint32_t pieces)
{
	net_init(&net, 1);
	net_add(&net, 0);
	while (hosts--)
		net_add(&net, 1);
	net_meet(&net);
	net_object(&net, 0, pieces, 0, 64 * KIB);
	net_give(&net, 0, 0, pieces);
}

static int owner_of(int object, uint32_t piece, int region)
{
	int i;

	for (i = 0; i < net.n; i++) {
		gw_host h = i == 0 ? GW_HOST_SELF : net_handle(i);

		if (net.hosts[i].region == region && net.hosts[i].alive &&
		    gw_swarm_rank(net.hosts[0].swarm, &net.objects[object].m.id, piece % GW_SWARM_STRIPES, h) == 0)
			return i;
	}
	return -1;
}

static uint64_t bound(uint64_t payload)
{
	return payload + payload / 20 + GW_BLOCK_MAX;
}

START_TEST(owners_pull_once_across_the_border)
{
	uint64_t payload;
	uint32_t i;
	int k;

	trainer_and(6, 200);
	payload = net_payload(&net, 0);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	ck_assert_uint_eq(net_into(&net, 0, 1), payload);
	for (i = 0; i < 200; i++) {
		ck_assert_int_eq(net.crossings[0][i][1], 1);
		ck_assert_int_eq(net.crossed_by[0][i] - 1, owner_of(0, i, 1));
	}
	/* Everybody has all of it exactly once, most of it from neighbours. */
	for (k = 1; k < net.n; k++) {
		struct gw_swarm_object c = net_count(&net, k, 0);

		ck_assert_uint_eq(c.rx_bytes, payload);
		ck_assert_uint_eq(c.duplicate_bytes, 0);
		ck_assert_uint_lt(c.border_rx_bytes, payload / 2);
		ck_assert_uint_eq(c.border_rx_bytes,
				  gw_swarm_region_bytes(net.hosts[k].swarm, &net.objects[0].m.id, 1));
		ck_assert_int_eq(net_whole(&net, k, 0), 1);
	}
	net_free(&net);
}
END_TEST

/* The figure that binds: three regions, six hosts each, 128 pieces and more. */
static void three_regions(uint64_t seed, uint32_t pieces, uint32_t leaves)
{
	uint64_t payload, own = 0;
	int i;

	net_init(&net, seed);
	for (i = 0; i < 18; i++)
		net_add(&net, i / 6);
	net_meet(&net);
	net_object(&net, 0, pieces, leaves, 128 * KIB);
	net_give(&net, 0, 0, pieces + leaves);
	payload = net_payload(&net, 0);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 60 * NET_S));
	for (i = 0; i < 3; i++)
		ck_assert_uint_le(net_into(&net, 0, i), i ? bound(payload) : 0);
	for (i = 6; i < 18; i++)
		own += net_count(&net, i, 0).border_rx_bytes;
	ck_assert_uint_eq(own, net_into(&net, 0, 1) + net_into(&net, 0, 2)); /* the hosts' own counters agree */
	/* The trainer is only the first source: once for its region, a share for the others. */
	ck_assert_uint_le(net_count(&net, 0, 0).tx_bytes, payload * 3 / 2);
	net_free(&net);
}

START_TEST(border_bytes_stay_under_the_bound)
{
	three_regions(11, 128, 0);
	three_regions(12, 300, 0);
}
END_TEST

START_TEST(leaves_of_the_piece_table_come_first)
{
	three_regions(13, 600, 3);
}
END_TEST

/* A region in which nobody is linked with all: owners are asked and claims are heard over links made for it. */
START_TEST(a_large_region_needs_few_links)
{
	int i, k, links = 0;

	net_init(&net, 21);
	net.cfg.region_links = 4;
	net.no_links = 1;
	net_add(&net, 0);
	for (i = 0; i < 20; i++)
		net_add(&net, 1);
	net_meet(&net);
	net_object(&net, 0, 256, 0, 64 * KIB);
	net_give(&net, 0, 0, 256);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 60 * NET_S));
	ck_assert_uint_le(net_into(&net, 0, 1), bound(net_payload(&net, 0)));
	for (i = 1; i < net.n; i++)
		for (k = i + 1; k < net.n; k++)
			links += net.hosts[i].linked[k];
	ck_assert_int_lt(links, 20 * 19 / 2);
	net_free(&net);
}
END_TEST

START_TEST(regions_form_a_chain)
{
	const struct gw_region_cost costs[] = {{"amber", "birch", 10}, {"birch", "cedar", 10}, {"amber", "cedar", 50}};
	uint64_t payload;
	int i;

	net_init(&net, 3);
	net.cfg.costs = costs;
	net.cfg.cost_count = 3;
	for (i = 0; i < 12; i++)
		net_add(&net, i / 4);
	net_meet(&net);
	net_object(&net, 0, 256, 0, 64 * KIB);
	net_give(&net, 0, 0, 256);
	payload = net_payload(&net, 0);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 60 * NET_S));
	ck_assert_uint_eq(net.border_bytes[0][0][1], payload);
	ck_assert_uint_eq(net.border_bytes[0][1][2], payload);
	ck_assert_uint_eq(net.border_bytes[0][0][2], 0);
	net_free(&net);
}
END_TEST

START_TEST(the_second_takes_over_when_the_owner_dies)
{
	uint32_t i, stripe = 7, pulled = 0;
	uint64_t lost, payload;
	int owner, second = -1, k;

	trainer_and(5, 400);
	payload = net_payload(&net, 0);
	owner = owner_of(0, stripe, 1);
	for (k = 1; k < net.n; k++)
		if (gw_swarm_rank(net.hosts[0].swarm, &net.objects[0].m.id, stripe, net_handle(k)) == 1)
			second = k;
	ck_assert_int_ge(second, 1);
	net_want_all(&net, 0);
	while (net_count(&net, owner, 0).have < 60)
		net_run(&net, 0, net.now + 2 * NET_MS);
	lost = net_count(&net, owner, 0).border_rx_bytes;
	net_kill(&net, owner);
	net_run(&net, 0, net.now + 500 * NET_MS);
	net_suspect(&net, owner);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	for (i = stripe; i < 400; i += GW_SWARM_STRIPES) {
		if (net.crossed_by[0][i] - 1 == owner)
			continue;
		ck_assert_int_eq(net.crossed_by[0][i] - 1, second);
		pulled++;
	}
	ck_assert_uint_gt(pulled, 0);
	ck_assert_uint_gt(net.hosts[second].sent[GW_MSG_claim_ask], 0); /* it asked who is fetching */
	/* At most what died with the owner, and what was on its way to it, crossed twice. */
	ck_assert_uint_le(net_into(&net, 0, 1), payload + lost + (1 << 20));
	net_free(&net);
}
END_TEST

START_TEST(a_silent_owner_is_waited_for_only_so_long)
{
	int owner, k;

	trainer_and(4, 128);
	owner = owner_of(0, 0, 1);
	/* It is alive and a member, but does not take part. */
	for (k = 0; k < net.n; k++)
		if (k != owner)
			net_want(&net, k, 0, 1);
	for (k = 0; k < 200; k++) {
		int i, left = 0;

		net_run(&net, -1, net.now + 100 * NET_MS);
		for (i = 0; i < net.n; i++)
			left += i != owner && !net_whole(&net, i, 0);
		if (!left)
			break;
	}
	ck_assert_int_lt(k, 200);
	ck_assert_uint_le(net_into(&net, 0, 1), bound(net_payload(&net, 0)));
	net_free(&net);
}
END_TEST

START_TEST(a_bad_piece_has_one_author)
{
	uint64_t bad = 0;
	int i, named = 0;

	net_init(&net, 5);
	for (i = 0; i < 6; i++)
		net_add(&net, 0);
	net_meet(&net);
	net_object(&net, 0, 200, 0, 64 * KIB);
	net_give(&net, 0, 0, 200);
	net_give(&net, 1, 0, 200);
	net.hosts[1].liar = 1;
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	for (i = 2; i < 6; i++) {
		named += net_logged(&net, i, "does not match its digest", 1);
		ck_assert(!net_logged(&net, i, "does not match", 0));
		ck_assert(!gw_swarm_banned(net.hosts[i].swarm, net_handle(0)));
		bad += net_count(&net, i, 0).bad_bytes;
		if (net_count(&net, i, 0).bad_bytes)
			ck_assert(gw_swarm_banned(net.hosts[i].swarm, net_handle(1)));
	}
	ck_assert_int_gt(named, 0);
	ck_assert_uint_gt(bad, 0);
	net_free(&net);
}
END_TEST

START_TEST(a_late_joiner_is_served_by_its_region)
{
	uint64_t before;
	int late;

	trainer_and(4, 200);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	before = net_into(&net, 0, 1);
	net_run(&net, -1, net.now + 30 * NET_S);
	late = net_add(&net, 1);
	net_join(&net, late);
	net_want(&net, late, 0, 1);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	ck_assert_uint_eq(net_into(&net, 0, 1), before);
	ck_assert_uint_eq(net_count(&net, late, 0).rx_bytes, net_payload(&net, 0));
	ck_assert_uint_eq(net_count(&net, late, 0).border_rx_bytes, 0);
	net_free(&net);
}
END_TEST

/* It joins in the middle of a fetch and would own stripes that others have claimed: it asks, and they cross once. */
START_TEST(a_changed_view_does_not_fetch_twice)
{
	int late;

	trainer_and(3, 600);
	late = net_add(&net, 1);
	net.hosts[late].alive = 0;
	net_want(&net, 0, 0, 1);
	net_want(&net, 1, 0, 1);
	net_want(&net, 2, 0, 1);
	net_want(&net, 3, 0, 1);
	while (net_count(&net, 1, 0).have < 50)
		net_run(&net, -1, net.now + 2 * NET_MS);
	net_restart(&net, late);
	net_want(&net, late, 0, 1);
	ck_assert(net_run(&net, 0, net.now + 60 * NET_S));
	ck_assert_uint_gt(net.hosts[late].sent[GW_MSG_claim_ask], 0);
	ck_assert_uint_le(net_into(&net, 0, 1), bound(net_payload(&net, 0)));
	net_free(&net);
}
END_TEST

START_TEST(a_restart_asks_only_for_what_is_missing)
{
	struct gw_swarm_object before, after;
	uint64_t missing = 0;
	uint32_t i;

	trainer_and(1, 300);
	net_want_all(&net, 0);
	while (net_count(&net, 1, 0).have < 120)
		net_run(&net, 0, net.now + 2 * NET_MS);
	before = net_count(&net, 1, 0);
	net_kill(&net, 1);
	net_down(&net, 1);
	net_run(&net, -1, net.now + NET_S);
	for (i = 0; i < 300; i++)
		if (!(net.hosts[1].store[0].have[i / 8] >> (i % 8) & 1))
			missing += gw_manifest_piece_size(&net.objects[0].m, i);
	net_restart(&net, 1);
	net_want(&net, 1, 0, 1);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	after = net_count(&net, 1, 0);
	ck_assert_uint_gt(before.have, 0);
	ck_assert_uint_eq(after.rx_bytes, missing);
	ck_assert_uint_eq(after.duplicate_bytes, 0);
	net_free(&net);
}
END_TEST

START_TEST(credit_bounds_what_is_in_flight)
{
	net_init(&net, 6);
	net.cfg.budget_bytes = 512 * KIB;
	net_add(&net, 0);
	net_add(&net, 1);
	net_meet(&net);
	net_object(&net, 0, 20, 0, 4096 * KIB); /* pieces larger than the budget */
	net_give(&net, 0, 0, 20);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 120 * NET_S)); /* the net checks the budget at every step */
	ck_assert_uint_gt(net.hosts[1].most_in_flight, 256 * KIB);
	ck_assert_uint_le(net.hosts[1].most_in_flight, 512 * KIB);
	ck_assert_uint_eq(net_count(&net, 1, 0).rx_bytes, net_payload(&net, 0));
	net_free(&net);
}
END_TEST

START_TEST(the_window_grows_to_the_path)
{
	uint64_t began;

	net_init(&net, 7);
	net_add(&net, 0);
	net_add(&net, 1);
	net_meet(&net);
	net_object(&net, 0, 512, 0, 256 * KIB); /* 128 MiB at 100 MiB/s and 80 ms round trip */
	net_give(&net, 0, 0, 512);
	net_want_all(&net, 0);
	began = net.now;
	ck_assert(net_run(&net, 0, net.now + 60 * NET_S));
	ck_assert_uint_le(net.now - began, 1280 * NET_MS * 3 / 2 + 600 * NET_MS);
	net_free(&net);
}
END_TEST

START_TEST(who_does_not_send_is_left_alone)
{
	int i;

	net_init(&net, 8);
	for (i = 0; i < 4; i++)
		net_add(&net, 0);
	net_meet(&net);
	net_object(&net, 0, 100, 0, 64 * KIB);
	net_give(&net, 0, 0, 100);
	net_give(&net, 1, 0, 100);
	net.hosts[1].mute = 1;
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	ck_assert(net_logged(&net, 2, "does not send", 1) || net_logged(&net, 3, "does not send", 1));
	ck_assert(!net_logged(&net, 2, "does not send", 0));
	net_free(&net);
}
END_TEST

static void block_from(int to, int from, uint32_t piece, uint32_t offset, size_t n)
{
	static uint8_t data[GW_BLOCK_MAX];
	struct gw_msg m = {.type = GW_MSG_block};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(from), .msg = &m};

	memcpy(m.u.block.object, net.objects[0].m.id.b, 32);
	m.u.block.piece = piece;
	m.u.block.offset = offset;
	m.u.block.data = (struct gw_bytes){data, n};
	net_event(&net, to, &ev);
}

START_TEST(unasked_bytes_ban_their_sender)
{
	trainer_and(2, 100);
	net_want_all(&net, 0);
	block_from(1, 2, 5, 0, 64 * KIB);
	ck_assert(gw_swarm_banned(net.hosts[1].swarm, net_handle(2)));
	ck_assert(net_logged(&net, 1, "nobody asked for", 2));
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	net_free(&net);
}
END_TEST

START_TEST(senseless_requests_are_refused)
{
	struct gw_msg m = {.type = GW_MSG_piece_get};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(1), .msg = &m};
	static const struct {
		uint32_t piece, offset, bytes;
	} bad[] = {{0, 1, 100},	       {0, 0, 0},	  {0, 0, 64 * KIB + 1}, {100, 0, 64 * KIB},
		   {UINT32_MAX, 0, 1}, {0, 128 * KIB, 1}, {0, 0, 1000},		{0, UINT32_MAX, UINT32_MAX}};
	size_t i;

	trainer_and(1, 100);
	net_want(&net, 0, 0, 1);
	net_run(&net, -1, net.now + NET_S);
	for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		uint64_t before = net.hosts[0].sent[GW_MSG_piece_refuse];

		memcpy(m.u.piece_get.object, net.objects[0].m.id.b, 32);
		m.u.piece_get.piece = bad[i].piece;
		m.u.piece_get.offset = bad[i].offset;
		m.u.piece_get.bytes = bad[i].bytes;
		net_event(&net, 0, &ev);
		ck_assert_uint_eq(net.hosts[0].sent[GW_MSG_piece_refuse], before + 1);
	}
	ck_assert_uint_eq(net.hosts[0].blocks_out, 0);
	net_free(&net);
}
END_TEST

START_TEST(a_block_that_cannot_leave_is_refused)
{
	struct gw_event ev = {.kind = GW_EV_BLOCK_SENT, .host = net_handle(1), .bytes = 64 * KIB, .err = GW_EUNREACH};
	struct gw_swarm_totals t;

	trainer_and(1, 100);
	net_want(&net, 0, 0, 1);
	net_run(&net, -1, net.now + NET_S);
	ev.object = net.objects[0].m.id;
	net_event(&net, 0, &ev);
	ck_assert_uint_eq(net.hosts[0].sent[GW_MSG_piece_refuse], 1);
	gw_swarm_totals(net.hosts[0].swarm, &t);
	ck_assert_uint_eq(t.tx_bytes, 0);
	net_free(&net);
}
END_TEST

START_TEST(request_queues_are_bounded)
{
	struct gw_msg m = {.type = GW_MSG_piece_get};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(1), .msg = &m};
	struct gw_swarm_totals t;
	uint32_t i;

	trainer_and(1, 1000);
	net_want(&net, 0, 0, 1);
	net_run(&net, -1, net.now + NET_S);
	memcpy(m.u.piece_get.object, net.objects[0].m.id.b, 32);
	m.u.piece_get.bytes = 64 * KIB;
	for (i = 0; i < 999; i++) {
		m.u.piece_get.piece = i;
		net_event(&net, 0, &ev);
	}
	gw_swarm_totals(net.hosts[0].swarm, &t);
	ck_assert_uint_le(t.queued, GW_SWARM_QUEUE_PEER_MAX);
	ck_assert_uint_gt(net.hosts[0].sent[GW_MSG_piece_refuse], 0);
	net_free(&net);
}
END_TEST

START_TEST(lies_about_pieces_ban)
{
	uint8_t bits[1] = {1};
	struct gw_msg m = {.type = GW_MSG_have};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(2), .msg = &m};

	trainer_and(3, 100);
	net_want_all(&net, 0);
	net_run(&net, -1, net.now + 5 * NET_MS);
	memcpy(m.u.have.object, net.objects[0].m.id.b, 32);
	m.u.have.pieces = 100;
	m.u.have.first = 104; /* beyond the end */
	m.u.have.bits = (struct gw_bytes){bits, 1};
	net_event(&net, 1, &ev);
	ck_assert(gw_swarm_banned(net.hosts[1].swarm, net_handle(2)));
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	net_free(&net);
}
END_TEST

/* --- hosts that are up to something --- */

static struct gw_msg about(enum gw_msg_type type)
{
	struct gw_msg m = {.type = type};

	memcpy(m.u.have.object, net.objects[0].m.id.b, 32); /* the first field of all of them */
	return m;
}

static void says_it_has_all(struct net *n, int host, int from, const struct gw_msg *m)
{
	struct gw_msg have = about(GW_MSG_have);

	if (m->type != GW_MSG_have_ask)
		return;
	have.u.have.pieces = n->objects[0].pieces;
	have.u.have.whole = 1;
	net_say(n, host, from, &have);
}

static uint8_t refusal;

static void has_all_and_refuses(struct net *n, int host, int from, const struct gw_msg *m)
{
	struct gw_msg no = about(GW_MSG_piece_refuse);

	says_it_has_all(n, host, from, m);
	if (m->type != GW_MSG_piece_get)
		return;
	no.u.piece_refuse.piece = m->u.piece_get.piece;
	no.u.piece_refuse.reason = refusal;
	net_say(n, host, from, &no);
}

/* Claims everything and nothing by turns, and is always at it when asked. */
static void claims_and_does_nothing(struct net *n, int host, int from, const struct gw_msg *m)
{
	static int turn;
	struct gw_msg claim = about(GW_MSG_claim);

	if (m->type == GW_MSG_claim_ask || ++turn % 2)
		claim.u.claim.stripes = UINT64_MAX;
	net_say(n, host, from, &claim);
}

/* It is the first in hash order for a share of the stripes; what is only said must not keep the others from these. */
static void goes_on_beside(net_puppet *puppet, uint64_t within_ns)
{
	trainer_and(4, 200);
	net.hosts[2].puppet = puppet;
	net_want_all(&net, 0);
	for (int i = 0; i < 1000; i++) { /* unasked, too */
		struct gw_msg m = about(GW_MSG_have_ask);

		if (net_run(&net, 0, net.now + within_ns / 1000))
			break;
		for (int k = 1; k < net.n; k++)
			if (k != 2)
				puppet(&net, 2, k, &m);
	}
	ck_assert_int_eq(net_whole(&net, 1, 0) && net_whole(&net, 3, 0) && net_whole(&net, 4, 0), 1);
	net_free(&net);
}

START_TEST(who_has_all_and_refuses_holds_nobody_up)
{
	for (refusal = 1; refusal <= 4; refusal++)
		goes_on_beside(has_all_and_refuses, 60 * NET_S);
}
END_TEST

START_TEST(who_has_all_and_sends_nothing_holds_nobody_up)
{
	goes_on_beside(says_it_has_all, 60 * NET_S);
}
END_TEST

START_TEST(who_only_claims_holds_nobody_up_for_long)
{
	goes_on_beside(claims_and_does_nothing, 90 * NET_S);
}
END_TEST

START_TEST(small_patches_are_pushed_inside)
{
	uint64_t near = 0;
	int i;

	net_init(&net, 9);
	net.cfg.eager_max_bytes = 256 * KIB;
	net_add(&net, 0);
	for (i = 0; i < 5; i++)
		net_add(&net, 1);
	net_meet(&net);
	net_object(&net, 0, 3, 0, 64 * KIB);
	net_give(&net, 0, 0, 3);
	net_want_all(&net, 0);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	ck_assert_uint_eq(net_into(&net, 0, 1), net_payload(&net, 0));
	for (i = 1; i < net.n; i++) {
		near += net.hosts[i].asked_near_bytes;
		ck_assert_uint_eq(net_count(&net, i, 0).duplicate_bytes, 0);
	}
	ck_assert_uint_eq(near, 0); /* nobody had to ask */
	net_free(&net);
}
END_TEST

START_TEST(uploads_stay_under_the_cap)
{
	uint64_t began;

	net_init(&net, 10);
	net.cfg.upload_bytes_per_s = 4 << 20;
	net_add(&net, 0);
	net_add(&net, 1);
	net_meet(&net);
	net_object(&net, 0, 128, 0, 64 * KIB); /* 8 MiB */
	net_give(&net, 0, 0, 128);
	net_want_all(&net, 0);
	began = net.now;
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	ck_assert_uint_ge(net.now - began, 1900 * NET_MS);
	ck_assert_uint_le(net.now - began, 3500 * NET_MS);
	net_free(&net);
}
END_TEST

START_TEST(the_newest_wanted_comes_first)
{
	struct gw_swarm_object older;

	trainer_and(2, 200);
	net_object(&net, 1, 200, 0, 64 * KIB);
	net_give(&net, 0, 1, 200);
	net_want(&net, 0, 0, 1);
	net_want(&net, 0, 1, 2);
	net_run(&net, -1, net.now + NET_S);
	net_want(&net, 1, 0, 1);
	net_want(&net, 1, 1, 2);
	while (!net_whole(&net, 1, 1))
		net_run(&net, -1, net.now + NET_MS);
	older = net_count(&net, 1, 0);
	ck_assert_uint_lt(older.have, 150);
	net_free(&net);
}
END_TEST

START_TEST(unwanted_objects_stop_and_are_still_served)
{
	struct gw_event ev = {.kind = GW_EV_UNWANT};
	uint32_t had;

	trainer_and(2, 400);
	net_want(&net, 0, 0, 1);
	net_want(&net, 1, 0, 1);
	while (net_count(&net, 1, 0).have < 50)
		net_run(&net, -1, net.now + NET_MS);
	ev.object = net.objects[0].m.id;
	net_event(&net, 1, &ev);
	net_run(&net, -1, net.now + 2 * NET_S);
	had = net_count(&net, 1, 0).have;
	net_run(&net, -1, net.now + 2 * NET_S);
	ck_assert_uint_eq(net_count(&net, 1, 0).have, had);
	ck_assert_uint_eq(net_count(&net, 1, 0).in_flight, 0);
	net_want(&net, 2, 0, 1);
	while (!net_whole(&net, 2, 0))
		net_run(&net, -1, net.now + 10 * NET_MS);
	ck_assert_uint_gt(net_count(&net, 1, 0).tx_bytes, 0);
	ev.kind = GW_EV_FORGET;
	net_event(&net, 1, &ev);
	ck_assert_int_eq(gw_swarm_object(net.hosts[1].swarm, &ev.object, &(struct gw_swarm_object){0}), GW_ENOENT);
	net_free(&net);
}
END_TEST

START_TEST(a_disk_that_refuses_is_asked_again)
{
	struct gw_event ev = {.kind = GW_EV_OBJECT_FAILED, .err = GW_ENOSPACE};

	trainer_and(2, 200);
	net_want_all(&net, 0);
	while (net_count(&net, 1, 0).have < 20)
		net_run(&net, -1, net.now + NET_MS);
	ev.object = net.objects[0].m.id;
	net_event(&net, 1, &ev);
	ck_assert(net_run(&net, 0, net.now + 30 * NET_S));
	ck_assert(net_logged(&net, 1, "store refuses", -1));
	net_free(&net);
	/* A disk that stays full is filled less and less often. */
	trainer_and(2, 200);
	net_want_all(&net, 0);
	for (int i = 0; i < 4; i++) {
		while (net_count(&net, 1, 0).have < 20)
			net_run(&net, -1, net.now + NET_MS);
		net_event(&net, 1, &ev);
		net_event(&net, 1, &ev); /* the next piece */
		ck_assert_int_eq(net_run(&net, 0, net.now + (4ull << i) * NET_S), 0);
		ck_assert_uint_eq(net_count(&net, 1, 0).have, 0);
	}
	ck_assert(net_run(&net, 0, net.now + 120 * NET_S));
	net_free(&net);
}
END_TEST

/* Random kills and restarts at any moment: everybody ends whole, and only what was in flight is fetched again. */
static uint64_t stormy(uint64_t seed)
{
	uint64_t trace, waste = 0;
	struct gw_rng rng;
	int i, round, killed = -1;

	gw_rng_init(&rng, seed);
	net_init(&net, seed);
	for (i = 0; i < 12; i++)
		net_add(&net, i / 4);
	net_meet(&net);
	net_object(&net, 0, 128 + (uint32_t)gw_rng_below(&rng, 200), 0, 64 * KIB);
	net_give(&net, 0, 0, net.objects[0].pieces);
	net_want_all(&net, 0);
	for (round = 0; round < 8; round++) {
		net_run(&net, 0, net.now + gw_rng_below(&rng, 300) * NET_MS);
		if (killed >= 0) {
			net_restart(&net, killed);
			net_want(&net, killed, 0, 1);
			killed = -1;
		} else {
			killed = 1 + (int)gw_rng_below(&rng, 11);
			net_kill(&net, killed);
			if (gw_rng_below(&rng, 2))
				net_suspect(&net, killed);
			net_run(&net, 0, net.now + gw_rng_below(&rng, 500) * NET_MS);
			net_down(&net, killed);
		}
	}
	ck_assert_msg(net_run(&net, 0, net.now + 120 * NET_S), "seed %llu", (unsigned long long)seed);
	for (i = 0; i < 12; i++)
		waste += net_count(&net, i, 0).duplicate_bytes;
	ck_assert_msg(waste <= net_payload(&net, 0), "seed %llu: %llu duplicate bytes", (unsigned long long)seed,
		      (unsigned long long)waste);
	trace = net.trace;
	net_free(&net);
	return trace;
}

START_TEST(kills_at_any_moment)
{
	uint64_t seed;

	for (seed = 100; seed < 120; seed++)
		stormy(seed);
}
END_TEST

START_TEST(a_seed_replays)
{
	ck_assert_uint_eq(stormy(7), stormy(7));
	ck_assert_uint_ne(stormy(7), stormy(8));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("swarm");
	TCase *t = tcase_create("stripes"), *u = tcase_create("peers"), *v = tcase_create("storms");

	tcase_add_test(t, owners_pull_once_across_the_border);
	tcase_add_test(t, border_bytes_stay_under_the_bound);
	tcase_add_test(t, leaves_of_the_piece_table_come_first);
	tcase_add_test(t, a_large_region_needs_few_links);
	tcase_add_test(t, regions_form_a_chain);
	tcase_add_test(t, the_second_takes_over_when_the_owner_dies);
	tcase_add_test(t, a_silent_owner_is_waited_for_only_so_long);
	tcase_add_test(t, a_late_joiner_is_served_by_its_region);
	tcase_add_test(t, a_changed_view_does_not_fetch_twice);
	tcase_set_timeout(t, 60);
	tcase_add_test(u, a_bad_piece_has_one_author);
	tcase_add_test(u, a_restart_asks_only_for_what_is_missing);
	tcase_add_test(u, credit_bounds_what_is_in_flight);
	tcase_add_test(u, the_window_grows_to_the_path);
	tcase_add_test(u, who_does_not_send_is_left_alone);
	tcase_add_test(u, unasked_bytes_ban_their_sender);
	tcase_add_test(u, senseless_requests_are_refused);
	tcase_add_test(u, a_block_that_cannot_leave_is_refused);
	tcase_add_test(u, request_queues_are_bounded);
	tcase_add_test(u, lies_about_pieces_ban);
	tcase_add_test(u, who_has_all_and_refuses_holds_nobody_up);
	tcase_add_test(u, who_has_all_and_sends_nothing_holds_nobody_up);
	tcase_add_test(u, who_only_claims_holds_nobody_up_for_long);
	tcase_add_test(u, small_patches_are_pushed_inside);
	tcase_add_test(u, uploads_stay_under_the_cap);
	tcase_add_test(u, the_newest_wanted_comes_first);
	tcase_add_test(u, unwanted_objects_stop_and_are_still_served);
	tcase_add_test(u, a_disk_that_refuses_is_asked_again);
	tcase_set_timeout(u, 60);
	tcase_add_test(v, kills_at_any_moment);
	tcase_add_test(v, a_seed_replays);
	tcase_set_timeout(v, 120);
	suite_add_tcase(s, t);
	suite_add_tcase(s, u);
	suite_add_tcase(s, v);
	return s;
}

UNIT_MAIN(suite)
