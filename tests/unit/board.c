/* Stories of boards: what floods, what is refused, what is fetched. */
#include <stdlib.h>
#include <string.h>

#include "board_net.h"
#include "unit.h"

enum { RUN = 0x11, OTHER_RUN = 0x12, SMALL = 600, BIG = 20000, MIB = 1 << 20 };

static struct board_net net;

/* So many hosts, each linked with the two next and the one across. */
static int mesh(int hosts)
{
	int i, links = 0;

	bn_init(&net);
	for (i = 0; i < hosts; i++)
		bn_add(&net);
	for (i = 0; i < hosts; i++) {
		int to[] = {(i + 1) % hosts, (i + 2) % hosts, (i + hosts / 2) % hosts}, k;

		for (k = 0; k < 3; k++)
			if (to[k] != i && !net.hosts[i].linked[to[k]]) {
				bn_link(&net, i, to[k]);
				links++;
			}
	}
	bn_run(&net, BN_S);
	return links;
}

static uint64_t newest(int host)
{
	return gw_board_policy_count(net.hosts[host].board) && bn_policy(&net, host).head
		       ? bn_policy(&net, host).head->newest
		       : 0;
}

static int knows(int host, int manifest)
{
	struct gw_digest id = bn_id(&net, manifest);

	return gw_board_manifest(net.hosts[host].board, &id, NULL) != NULL;
}

START_TEST(a_head_reaches_all_and_is_looked_at_once)
{
	int links = mesh(12), anchor = bn_manifest(&net, RUN, 0, 0, 100 * MIB, -1, SMALL);
	int v1 = bn_manifest(&net, RUN, 0, 1, MIB, anchor, SMALL), head = bn_head(&net, RUN, 1, v1), i;

	bn_publish(&net, 0, anchor);
	bn_publish(&net, 0, v1);
	bn_publish(&net, 0, head);
	bn_run(&net, BN_S);
	for (i = 0; i < 12; i++) {
		ck_assert_uint_eq(newest(i), 1);
		ck_assert(knows(i, v1));
		ck_assert(knows(i, anchor)); /* by `previous` */
		ck_assert_uint_eq(net.hosts[i].verified_heads, i ? 1 : 0);
		ck_assert_uint_le(net.hosts[i].verified_manifests, 2);
	}
	ck_assert_uint_le(net.heads_over_links, 2 * (uint64_t)links);
	bn_free(&net);
}
END_TEST

START_TEST(large_manifests_are_asked_for)
{
	int anchor, v1, head, i;

	mesh(8);
	anchor = bn_manifest(&net, RUN, 0, 0, 100 * MIB, -1, BIG);
	v1 = bn_manifest(&net, RUN, 0, 1, MIB, anchor, BIG);
	head = bn_head(&net, RUN, 1, v1);
	bn_publish(&net, 3, anchor);
	bn_publish(&net, 3, v1);
	bn_publish(&net, 3, head);
	bn_run(&net, 5 * BN_S);
	for (i = 0; i < 8; i++) {
		ck_assert(knows(i, v1) && knows(i, anchor));
		ck_assert_uint_le(bn_counts(&net, i).manifests_accepted, 2);
		ck_assert_uint_eq(bn_counts(&net, i).manifests_unasked, 0);
	}
	bn_free(&net);
}
END_TEST

/* Heads run ahead of large manifests: who asks too early gets them as they come, without a time-out. */
START_TEST(manifests_follow_along_a_line)
{
	int anchor, v1, i;

	bn_init(&net);
	for (i = 0; i < 8; i++)
		bn_add(&net);
	for (i = 0; i < 7; i++)
		bn_link(&net, i, i + 1);
	anchor = bn_manifest(&net, RUN, 0, 0, 100 * MIB, -1, BIG);
	v1 = bn_manifest(&net, RUN, 0, 1, MIB, anchor, BIG);
	bn_publish(&net, 0, anchor);
	bn_publish(&net, 0, v1);
	bn_publish(&net, 0, bn_head(&net, RUN, 1, v1));
	bn_run(&net, 100 * BN_MS);
	for (i = 1; i < 8; i++)
		ck_assert(bn_wanted(&net, i, v1) && bn_wanted(&net, i, anchor));
	bn_free(&net);
}
END_TEST

/* Publishes versions 0 to n at host 0: an anchor and a chain. Returns the index of the anchor; v is anchor + 2v - 1 for
 * its manifest. */
static int chain(int n)
{
	int anchor = bn_manifest(&net, RUN, 0, 0, 100 * MIB, -1, SMALL), last = anchor, v;

	bn_publish(&net, 0, anchor);
	for (v = 1; v <= n; v++) {
		int m = bn_manifest(&net, RUN, (uint64_t)v - 1, (uint64_t)v, MIB, last, SMALL);
		int head = bn_head(&net, RUN, (uint64_t)v, m);

		bn_publish(&net, 0, m);
		bn_publish(&net, 0, head);
		last = m;
	}
	return anchor;
}

START_TEST(an_older_head_is_refused_again_and_again)
{
	struct gw_board_counts c;
	uint64_t persists, before;
	int anchor, head1;

	mesh(3);
	anchor = chain(2);
	head1 = anchor + 2;
	bn_run(&net, BN_S);
	ck_assert_uint_eq(newest(1), 2);
	persists = net.hosts[1].persists;
	before = bn_counts(&net, 1).heads_rolled_back; /* the first may have come late by some link */
	bn_receive(&net, 1, 2, head1);
	bn_receive(&net, 1, 2, head1);
	bn_run(&net, BN_S);
	c = bn_counts(&net, 1);
	ck_assert_uint_eq(c.heads_rolled_back, before + 2);
	ck_assert_uint_eq(newest(1), 2);
	ck_assert_uint_eq(net.hosts[1].persists, persists);
	/* One it never saw: verified, judged by its counters, refused; the sender is told better. */
	head1 = bn_head(&net, RUN, 1, anchor + 1);
	net.hosts[1].sent[GW_MSG_head] = 0;
	bn_receive(&net, 1, 2, head1);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(bn_counts(&net, 1).heads_rolled_back, before + 3);
	ck_assert_uint_eq(net.hosts[1].sent[GW_MSG_head], 1);
	bn_free(&net);
}
END_TEST

START_TEST(counters_survive_a_restart)
{
	int anchor, old;

	mesh(3);
	anchor = chain(3);
	bn_run(&net, BN_S);
	ck_assert_uint_gt(net.hosts[1].slot_bytes, 0);
	bn_unlink(&net, 1, 0);
	bn_unlink(&net, 1, 2);
	bn_restart(&net, 1);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(newest(1), 3); /* its own head, from the slot, verified again */
	ck_assert_uint_eq(net.hosts[1].verified_heads, 4);
	net.hosts[1].linked[2] = 1;
	bn_link(&net, 1, 2);
	old = bn_head(&net, RUN, 2, anchor + 1);
	bn_receive(&net, 1, 2, old);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(bn_counts(&net, 1).heads_rolled_back, 1);
	ck_assert_uint_eq(newest(1), 3);
	bn_free(&net);
}
END_TEST

START_TEST(a_damaged_slot_is_an_error)
{
	struct gw_board_config cfg = {.seed = 1};
	struct gw_board *b = NULL;
	struct gw_diag why;
	uint8_t *slot;
	size_t n, i;

	mesh(2);
	chain(1);
	bn_run(&net, BN_S);
	n = net.hosts[1].slot_bytes;
	for (i = 1; i < n; i++) {
		slot = malloc(i);
		memcpy(slot, net.hosts[1].slot, i);
		cfg.persisted = (struct gw_bytes){slot, i};
		why.text[0] = 0;
		ck_assert_int_ne(gw_board_new(&b, &cfg, &why), 0);
		ck_assert_str_ne(why.text, "");
		free(slot);
	}
	net.hosts[1].slot[3] ^= 1;
	cfg.persisted = (struct gw_bytes){net.hosts[1].slot, n};
	ck_assert_int_eq(gw_board_new(&b, &cfg, NULL), GW_EMALFORMED);
	bn_free(&net);
}
END_TEST

/* The bytes worked out in proto/BOARD.md: they load, and their counters refuse what is older. */
START_TEST(the_worked_slot)
{
	static const char head[] = "GWBOARD1\1\0\0\0\1p"
				   "godwit-counters1";
	static const uint8_t counters[24] = {1, [8] = 2, [16] = 3};
	struct bn_host *h = &net.hosts[0];
	int anchor, old, next;

	bn_init(&net);
	memcpy(h->slot, head, sizeof head - 1);
	memset(h->slot + 30, 0x11, 16);
	memcpy(h->slot + 46, counters, sizeof counters);
	memset(h->slot + 70, 0xaa, 32);
	h->slot_bytes = 106;
	bn_add(&net);
	bn_add(&net);
	bn_link(&net, 0, 1);
	anchor = bn_manifest(&net, RUN, 3, 3, MIB, -1, SMALL);
	old = bn_head(&net, RUN, 1, anchor);
	next = bn_head(&net, RUN, 3, anchor);
	strcpy(net.records[old].head.policy, "p");
	strcpy(net.records[next].head.policy, "p");
	bn_receive(&net, 0, 1, old);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(bn_counts(&net, 0).heads_rolled_back, 1);
	ck_assert_ptr_null(bn_policy(&net, 0).head);
	bn_receive(&net, 0, 1, next);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(bn_policy(&net, 0).head->sequence, 3);
	/* And they are what is written, but for the counters that moved on and the head. */
	ck_assert_mem_eq(h->slot, head, sizeof head - 1);
	ck_assert_uint_eq(h->slot_bytes, 106 + 300);
	bn_free(&net);
}
END_TEST

START_TEST(two_heads_for_one_place)
{
	int anchor, twin;

	mesh(3);
	anchor = chain(2);
	bn_run(&net, BN_S);
	twin = bn_head(&net, RUN, 2, anchor + 3);
	bn_receive(&net, 1, 2, twin);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(bn_counts(&net, 1).heads_refused, 1);
	ck_assert_int_eq(net.hosts[1].errors, 1);
	bn_free(&net);
}
END_TEST

START_TEST(a_missed_flood_is_healed)
{
	int i;

	mesh(6);
	net.hosts[4].deaf = 1;
	chain(2);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(newest(4), 0);
	net.hosts[4].deaf = 0;
	bn_run(&net, 120 * BN_S); /* some digests, at random */
	for (i = 0; i < 6; i++)
		ck_assert_uint_eq(newest(i), 2);
	bn_free(&net);
}
END_TEST

START_TEST(partitions_heal_when_links_come_up)
{
	int anchor, i;

	bn_init(&net);
	for (i = 0; i < 6; i++)
		bn_add(&net);
	for (i = 0; i < 5; i++)
		if (i != 2)
			bn_link(&net, i, i + 1); /* 0-1-2  3-4-5 */
	anchor = chain(5);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(newest(5), 0);
	bn_link(&net, 2, 3);
	bn_run(&net, BN_S); /* no timer is needed */
	for (i = 0; i < 6; i++) {
		ck_assert_uint_eq(newest(i), 5);
		ck_assert(knows(i, anchor));
		ck_assert(knows(i, anchor + 1));
	}
	bn_free(&net);
}
END_TEST

START_TEST(idle_boards_say_little)
{
	uint64_t before = 0, after = 0;
	int i, t;

	mesh(10);
	chain(1);
	bn_run(&net, 10 * BN_S);
	for (i = 0; i < 10; i++)
		for (t = 0; t < 256; t++)
			before += net.hosts[i].sent[t];
	bn_run(&net, 100 * BN_S);
	for (i = 0; i < 10; i++)
		for (t = 0; t < 256; t++)
			after += net.hosts[i].sent[t];
	ck_assert_uint_le(after - before, 10 * 21); /* one digest a host every ten seconds or so, unanswered */
	bn_free(&net);
}
END_TEST

START_TEST(garbage_is_never_passed_on)
{
	uint8_t bytes[300] = {0};
	struct gw_msg m = {.type = GW_MSG_head};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = bn_handle(2), .msg = &m};
	uint64_t sent;
	int i;

	mesh(4);
	sent = net.heads_over_links;
	m.u.head.head = (struct gw_bytes){bytes, sizeof bytes};
	for (i = 0; i < 1000; i++) {
		memcpy(bytes, &i, sizeof i);
		bn_event(&net, 1, &ev);
		if (i % 10 == 0)
			bn_run(&net, BN_MS);
	}
	ck_assert_uint_eq(net.heads_over_links, sent);
	ck_assert_uint_le(net.hosts[1].verified_heads, 40); /* soon it is not listened to */
	ck_assert_int_gt(net.hosts[1].errors, 0);
	ck_assert_uint_eq(gw_board_policy_count(net.hosts[1].board), 0);
	bn_free(&net);
}
END_TEST

START_TEST(an_expired_head_is_stale_but_the_newest)
{
	int anchor, head;

	mesh(2);
	anchor = bn_manifest(&net, RUN, 0, 0, MIB, -1, SMALL);
	head = bn_head(&net, RUN, 1, anchor);
	bn_publish(&net, 0, anchor);
	bn_publish(&net, 0, head);
	bn_run(&net, BN_S);
	ck_assert(!bn_policy(&net, 1).stale);
	net.wall_offset = 600 * BN_S;
	ck_assert(bn_policy(&net, 1).stale);
	ck_assert_uint_eq(newest(1), 0);
	ck_assert(bn_wanted(&net, 1, anchor));
	/* A host without counters does not believe one that expired two days ago. */
	net.wall_offset = 48 * 3600 * BN_S;
	bn_link(&net, bn_add(&net), 0);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(gw_board_policy_count(net.hosts[2].board), 0);
	ck_assert_uint_ge(bn_counts(&net, 2).heads_refused, 1);
	bn_free(&net);
}
END_TEST

START_TEST(a_clock_set_back_makes_no_head_fresh)
{
	int anchor, head;

	mesh(2);
	anchor = bn_manifest(&net, RUN, 0, 0, MIB, -1, SMALL);
	head = bn_head(&net, RUN, 1, anchor);
	bn_publish(&net, 0, anchor);
	bn_publish(&net, 0, head);
	bn_run(&net, BN_S);
	/* Ahead for a moment, and right again: it is as fresh as it was. */
	net.wall_offset = 7200 * BN_S;
	ck_assert(bn_policy(&net, 1).stale);
	net.wall_offset = 0;
	ck_assert(!bn_policy(&net, 1).stale);
	/* Its life goes by, and then the clock is set back to the middle of it. */
	bn_run(&net, 3700 * BN_S);
	ck_assert(bn_policy(&net, 1).stale);
	net.wall_offset = 0 - 3699 * BN_S;
	ck_assert(bn_policy(&net, 1).stale);
	bn_free(&net);
}
END_TEST

/* --- the way --- */

START_TEST(a_fresh_host_takes_anchor_and_chain)
{
	int anchor, v, k;

	mesh(2);
	anchor = chain(3);
	bn_run(&net, BN_S);
	for (k = 0; k < 4; k++)
		ck_assert(bn_wanted(&net, 1, k ? anchor + 2 * k - 1 : anchor));
	/* Newest first. */
	ck_assert_uint_gt(bn_told(&net, 1, anchor + 5)->key, bn_told(&net, 1, anchor + 3)->key);
	ck_assert_uint_eq(bn_policy(&net, 1).path_bytes, 103 * MIB);
	bn_whole(&net, 1, anchor + 5);
	ck_assert_uint_eq(net.hosts[1].paths, 0); /* the first step is not whole */
	bn_whole(&net, 1, anchor);
	ck_assert_uint_eq(net.hosts[1].paths, 1);
	ck_assert_uint_eq(net.hosts[1].path_version, 0);
	ck_assert_uint_eq(bn_policy(&net, 1).fetched, 0);
	bn_served(&net, 1, RUN, 0);
	bn_whole(&net, 1, anchor + 1);
	bn_whole(&net, 1, anchor + 3);
	ck_assert_uint_eq(bn_policy(&net, 1).fetched, 3);
	for (v = 1; v <= 3; v++) {
		ck_assert_uint_eq(net.hosts[1].paths, 1 + (uint64_t)v);
		ck_assert_uint_eq(net.hosts[1].path_version, (uint64_t)v);
		bn_served(&net, 1, RUN, (uint64_t)v);
	}
	ck_assert_uint_eq(net.hosts[1].paths, 4);
	ck_assert_uint_eq(bn_policy(&net, 1).steps, 0);
	bn_free(&net);
}
END_TEST

/* A skip 0 to 8 of so many bytes, beside the chain of which record 15 is the last. */
static int add_skip(uint64_t bytes)
{
	int skip = bn_manifest(&net, RUN, 0, 8, bytes, 15, SMALL), head = bn_head(&net, RUN, 9, 15);

	net.records[head].head.skip_count = 1;
	net.records[head].head.skips[0].manifest = bn_id(&net, skip);
	net.records[head].head.skips[0].to = 8;
	bn_seal(&net, head);
	bn_publish(&net, 0, skip);
	bn_publish(&net, 0, head);
	bn_run(&net, BN_S);
	return skip;
}

static int with_skip(uint64_t skip_bytes)
{
	chain(8);
	return add_skip(skip_bytes);
}

START_TEST(a_cheaper_skip_replaces_the_chain)
{
	int skip, k;

	mesh(2);
	bn_served(&net, 1, RUN, 0);
	skip = with_skip(5 * MIB);
	ck_assert(bn_wanted(&net, 1, skip));
	for (k = 1; k <= 8; k++)
		ck_assert(!bn_wanted(&net, 1, 2 * k - 1)); /* what was wanted on the way is given up */
	ck_assert_uint_eq(bn_policy(&net, 1).steps, 1);
	bn_free(&net);
}
END_TEST

START_TEST(a_dearer_skip_does_not)
{
	int skip, k;

	mesh(2);
	bn_served(&net, 1, RUN, 0);
	skip = with_skip(9 * MIB);
	ck_assert(!bn_wanted(&net, 1, skip));
	for (k = 1; k <= 8; k++)
		ck_assert(bn_wanted(&net, 1, 2 * k - 1));
	bn_free(&net);
}
END_TEST

START_TEST(what_is_here_counts_little)
{
	int skip, k;

	mesh(2);
	bn_served(&net, 1, RUN, 0);
	chain(8); /* fetched before the skip appears */
	bn_run(&net, BN_S);
	for (k = 1; k <= 8; k++)
		bn_whole(&net, 1, 2 * k - 1);
	skip = add_skip(2 * MIB);
	ck_assert(knows(1, skip));
	ck_assert(!bn_wanted(&net, 1, skip));
	bn_free(&net);
}
END_TEST

START_TEST(a_failed_step_is_gone_around)
{
	struct gw_event ev = {.kind = GW_EV_STAGE_FAILED, .err = GW_EBASE};
	int skip;

	mesh(2);
	bn_served(&net, 1, RUN, 0);
	skip = with_skip(5 * MIB);
	bn_whole(&net, 1, skip);
	ck_assert_uint_eq(net.hosts[1].path_version, 8);
	ev.object = bn_id(&net, skip);
	bn_event(&net, 1, &ev);
	ck_assert(bn_wanted(&net, 1, 1));
	bn_whole(&net, 1, 1);
	ck_assert_uint_eq(net.hosts[1].path_version, 1);
	/* With no other way it is tried again after a while. */
	bn_served(&net, 1, RUN, 8);
	bn_free(&net);
}
END_TEST

START_TEST(the_only_way_is_tried_again)
{
	struct gw_event ev = {.kind = GW_EV_STAGE_FAILED, .err = GW_EIO};
	int anchor;

	mesh(2);
	anchor = bn_manifest(&net, RUN, 0, 0, MIB, -1, SMALL);
	bn_publish(&net, 0, anchor);
	bn_publish(&net, 0, bn_head(&net, RUN, 1, anchor));
	bn_run(&net, BN_S);
	bn_whole(&net, 1, anchor);
	ck_assert_uint_eq(net.hosts[1].paths, 1);
	ev.object = bn_id(&net, anchor);
	bn_event(&net, 1, &ev);
	ck_assert_int_eq(bn_policy(&net, 1).no_path, 1);
	bn_run(&net, 30 * BN_S);
	ck_assert_uint_eq(net.hosts[1].paths, 1);
	bn_run(&net, 40 * BN_S);
	ck_assert_uint_eq(net.hosts[1].paths, 2);
	bn_free(&net);
}
END_TEST

START_TEST(a_host_that_proves_nothing_starts_from_an_anchor)
{
	int anchor;

	mesh(2);
	bn_served(&net, 1, RUN, 2);
	anchor = chain(2);
	bn_run(&net, BN_S);
	ck_assert(!bn_wanted(&net, 1, anchor));
	bn_served(&net, 1, RUN, UINT64_MAX);
	ck_assert(bn_wanted(&net, 1, anchor));
	bn_free(&net);
}
END_TEST

START_TEST(old_versions_are_let_go)
{
	int anchor, v, last, m, head, newer = 0;

	bn_init(&net);
	net.cfg.retain = 8;
	bn_add(&net);
	bn_add(&net);
	bn_link(&net, 0, 1);
	last = anchor = bn_manifest(&net, RUN, 0, 0, 100 * MIB, -1, SMALL);
	bn_publish(&net, 0, anchor);
	for (v = 1; v <= 20; v++) {
		m = bn_manifest(&net, RUN, (uint64_t)v - 1, (uint64_t)v, MIB, last, SMALL);
		bn_publish(&net, 0, m);
		last = m;
		if (v == 15) {
			newer = bn_manifest(&net, RUN, 15, 15, 100 * MIB, last, SMALL);
			bn_publish(&net, 0, newer);
			last = newer;
		}
		head = bn_head(&net, RUN, (uint64_t)v, m);
		if (v >= 15) {
			net.records[head].head.anchor_count = 1;
			net.records[head].head.anchors[0].manifest = bn_id(&net, newer);
			net.records[head].head.anchors[0].to = 15;
			bn_seal(&net, head);
		}
		bn_publish(&net, 0, head);
		bn_run(&net, BN_S);
		bn_whole(&net, 1, m);
		bn_served(&net, 1, RUN, (uint64_t)v);
	}
	ck_assert_uint_eq(newest(1), 20);
	ck_assert(!knows(1, anchor));
	ck_assert(!knows(0, anchor));
	ck_assert(knows(1, newer));
	ck_assert_uint_gt(net.hosts[0].drops, 0);
	ck_assert_int_eq(bn_told(&net, 0, anchor)->kind, GW_EV_FORGET);
	ck_assert(knows(1, last));
	bn_free(&net);
}
END_TEST

START_TEST(the_way_from_the_newest_anchor_stays)
{
	int anchor, v, last, m, head;

	bn_init(&net);
	net.cfg.retain = 4;
	bn_add(&net);
	bn_add(&net);
	last = anchor = bn_manifest(&net, RUN, 0, 0, 100 * MIB, -1, SMALL);
	bn_publish(&net, 0, anchor);
	for (v = 1; v <= 12; v++) {
		m = bn_manifest(&net, RUN, (uint64_t)v - 1, (uint64_t)v, MIB, last, SMALL);
		bn_publish(&net, 0, m);
		last = m;
		head = bn_head(&net, RUN, (uint64_t)v, m);
		net.records[head].head.anchor_count = 1;
		net.records[head].head.anchors[0].manifest = bn_id(&net, anchor);
		bn_seal(&net, head);
		bn_publish(&net, 0, head);
		bn_run(&net, BN_S);
	}
	/* Comes in, or was away, for much longer than `retain`. */
	bn_link(&net, 0, 1);
	bn_run(&net, 30 * BN_S);
	ck_assert_uint_eq(newest(1), 12);
	ck_assert(bn_wanted(&net, 1, anchor));
	ck_assert(bn_wanted(&net, 1, last));
	bn_whole(&net, 1, anchor);
	ck_assert_uint_gt(net.hosts[1].paths, 0);
	bn_free(&net);
}
END_TEST

START_TEST(unknown_kinds_are_carried)
{
	int anchor, odd, v1, head, i;

	mesh(4);
	anchor = bn_manifest(&net, RUN, 0, 0, MIB, -1, SMALL);
	odd = bn_manifest(&net, RUN, 0, 1, 10, anchor, SMALL);
	net.records[odd].manifest.kind = 77;
	bn_seal(&net, odd);
	v1 = bn_manifest(&net, RUN, 0, 1, MIB, odd, SMALL);
	head = bn_head(&net, RUN, 1, v1);
	bn_publish(&net, 0, anchor);
	bn_publish(&net, 0, odd);
	bn_publish(&net, 0, v1);
	bn_publish(&net, 0, head);
	bn_run(&net, 5 * BN_S);
	for (i = 1; i < 4; i++) {
		ck_assert(knows(i, odd));
		ck_assert(!bn_wanted(&net, i, odd));
		ck_assert(bn_wanted(&net, i, v1));
	}
	bn_free(&net);
}
END_TEST

START_TEST(a_head_cannot_name_another_runs_manifest)
{
	int theirs, head;

	mesh(2);
	theirs = bn_manifest(&net, OTHER_RUN, 0, 0, MIB, -1, SMALL);
	head = bn_head(&net, RUN, 1, theirs);
	bn_publish(&net, 0, theirs);
	bn_publish(&net, 0, head);
	bn_run(&net, BN_S);
	ck_assert(!bn_wanted(&net, 1, theirs));
	ck_assert_int_eq(bn_policy(&net, 1).no_path, 1);
	ck_assert_int_gt(net.hosts[1].errors, 0);
	bn_free(&net);
}
END_TEST

START_TEST(a_new_run_replaces_the_old)
{
	int anchor, next, head;

	mesh(2);
	anchor = chain(2);
	bn_run(&net, BN_S);
	ck_assert(knows(1, anchor));
	next = bn_manifest(&net, OTHER_RUN, 0, 0, MIB, -1, SMALL);
	head = bn_head(&net, OTHER_RUN, 100, next);
	net.records[head].head.created_ns = BN_WALL + BN_S;
	bn_seal(&net, head);
	bn_publish(&net, 0, next);
	bn_publish(&net, 0, head);
	bn_run(&net, BN_S);
	ck_assert_uint_eq(gw_board_policy_count(net.hosts[1].board), 1);
	ck_assert(bn_wanted(&net, 1, next));
	ck_assert(!knows(1, anchor));
	bn_free(&net);
}
END_TEST

START_TEST(policies_do_not_mix)
{
	int a, b;

	mesh(3);
	a = bn_manifest(&net, 0x21, 0, 0, MIB, -1, SMALL);
	b = bn_manifest(&net, 0x31, 0, 0, MIB, -1, SMALL);
	bn_publish(&net, 0, a);
	bn_publish(&net, 0, bn_head(&net, 0x21, 9, a));
	bn_publish(&net, 1, b);
	bn_publish(&net, 1, bn_head(&net, 0x31, 1, b));
	bn_run(&net, BN_S);
	ck_assert_uint_eq(gw_board_policy_count(net.hosts[2].board), 2);
	ck_assert(bn_wanted(&net, 2, a) && bn_wanted(&net, 2, b));
	bn_free(&net);
}
END_TEST

START_TEST(tables_stay_bounded)
{
	const struct gw_manifest *m;
	size_t at = 0, count = 0;
	uint32_t i;

	mesh(2);
	for (i = 0; i < 2000; i++) {
		struct gw_manifest one = {
			.kind = GW_KIND_TRANSITION, .to = i + 1, .object_bytes = 1, .piece_bytes = 65536};
		struct gw_event me = {.kind = GW_EV_MANIFEST, .host = bn_handle(0), .manifest = &one};

		memcpy(one.id.b, &i, sizeof i);
		one.id.b[31] = 1;
		me.raw = (struct gw_bytes){one.id.b, 32};
		bn_event(&net, 1, &me);
	}
	while ((m = gw_board_next(net.hosts[1].board, &at, NULL)))
		count++;
	ck_assert_uint_le(count, GW_BOARD_LOOSE_MAX);
	bn_free(&net);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("board");
	TCase *t = tcase_create("heads"), *u = tcase_create("path");

	tcase_add_test(t, a_head_reaches_all_and_is_looked_at_once);
	tcase_add_test(t, large_manifests_are_asked_for);
	tcase_add_test(t, manifests_follow_along_a_line);
	tcase_add_test(t, an_older_head_is_refused_again_and_again);
	tcase_add_test(t, counters_survive_a_restart);
	tcase_add_test(t, a_damaged_slot_is_an_error);
	tcase_add_test(t, the_worked_slot);
	tcase_add_test(t, two_heads_for_one_place);
	tcase_add_test(t, a_missed_flood_is_healed);
	tcase_add_test(t, partitions_heal_when_links_come_up);
	tcase_add_test(t, idle_boards_say_little);
	tcase_add_test(t, garbage_is_never_passed_on);
	tcase_add_test(t, an_expired_head_is_stale_but_the_newest);
	tcase_add_test(t, a_clock_set_back_makes_no_head_fresh);
	tcase_add_test(u, a_fresh_host_takes_anchor_and_chain);
	tcase_add_test(u, a_cheaper_skip_replaces_the_chain);
	tcase_add_test(u, a_dearer_skip_does_not);
	tcase_add_test(u, what_is_here_counts_little);
	tcase_add_test(u, a_failed_step_is_gone_around);
	tcase_add_test(u, the_only_way_is_tried_again);
	tcase_add_test(u, a_host_that_proves_nothing_starts_from_an_anchor);
	tcase_add_test(u, old_versions_are_let_go);
	tcase_add_test(u, the_way_from_the_newest_anchor_stays);
	tcase_add_test(u, unknown_kinds_are_carried);
	tcase_add_test(u, a_head_cannot_name_another_runs_manifest);
	tcase_add_test(u, a_new_run_replaces_the_old);
	tcase_add_test(u, policies_do_not_mix);
	tcase_add_test(u, tables_stay_bounded);
	suite_add_tcase(s, t);
	suite_add_tcase(s, u);
	return s;
}

UNIT_MAIN(suite)
