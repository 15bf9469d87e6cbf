/* Stories about commits that fail, at every step. */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "engine_world.h"
#include "unit.h"

enum { LIMIT = 4000 };

static void attach(struct world *w)
{
	world_start_daemon(w);
	world_run(w, LIMIT);
	ck_assert_int_eq(gw_engine_state(w->engine), GW_ENGINE_SERVING);
	ck_assert_uint_eq(gw_engine_served(w->engine), 0);
}

/* Everybody alive computes, with that version. */
static void all_serve(const struct world *w, uint64_t version)
{
	for (uint32_t i = 0; i < w->ranks; i++)
		if (w->r[i].alive) {
			ck_assert_int_eq(w->r[i].computing, 1);
			ck_assert_uint_eq(w->r[i].label, version);
			ck_assert_int_eq(world_holds(w, i, version), 1);
		}
}

START_TEST(a_version_is_staged_and_committed)
{
	struct world w;

	world_init(&w, (uint32_t)_i % 3 + 1, _i / 3, 7);
	attach(&w);
	for (uint64_t v = 1; v < 5; v++) {
		ck_assert_int_eq(world_stage(&w, v, 1, 0), 0);
		world_run(&w, LIMIT);
		ck_assert_uint_eq(w.served, v);
		all_serve(&w, v);
	}
	world_free(&w);
}
END_TEST

START_TEST(staged_twice_commits_once)
{
	struct world w;

	world_init(&w, 2, 0, 3);
	attach(&w);
	ck_assert_int_eq(world_stage(&w, 1, 0, 0), 0);
	world_run(&w, LIMIT);
	ck_assert_uint_eq(gw_engine_staged(w.engine), 1);
	all_serve(&w, 0);
	ck_assert_int_eq(world_stage(&w, 2, 1, 0), 0);
	world_run(&w, LIMIT);
	ck_assert_uint_eq(w.served, 2);
	all_serve(&w, 2);
	world_free(&w);
}
END_TEST

/* After whatever happened: a new daemon proves what is there and goes on. */
static void goes_on(struct world *w, uint64_t next)
{
	if (!w->daemon)
		world_start_daemon(w);
	world_run(w, LIMIT);
	ck_assert_int_eq(gw_engine_state(w->engine), GW_ENGINE_SERVING);
	ck_assert_int_eq(world_stage(w, next, 1, 0), 0);
	world_run(w, LIMIT);
	ck_assert_uint_eq(w->served, next);
	all_serve(w, next);
}

/* The daemon dies after k steps of a commit, in many orders. */
START_TEST(daemon_dies_at_every_step)
{
	int in_process = _i % 2, done = 0;
	unsigned olds = 0, news = 0;

	for (unsigned k = 0; !done; k++)
		for (uint64_t seed = 0; seed < 40; seed++) {
			struct world w;
			uint64_t v;
			unsigned i;

			world_init(&w, (uint32_t)(_i / 2) + 1, in_process, seed);
			attach(&w);
			ck_assert_int_eq(world_stage(&w, 1, 1, 0), 0);
			for (i = 0; i < k && world_step(&w); i++)
				continue;
			done |= i < k && seed == 39;
			world_kill_daemon(&w);
			world_run(&w, LIMIT);
			v = w.r[0].label;
			ck_assert(v == 0 || v == 1);
			all_serve(&w, v);
			news += v == 1;
			olds += v == 0;
			goes_on(&w, 2);
			world_free(&w);
		}
	ck_assert_uint_gt(olds, 0);
	ck_assert_uint_gt(news, 0);
}
END_TEST

/* A rank dies after k steps: the daemon undoes on the other, and lets it go. */
START_TEST(rank_dies_at_every_step)
{
	int done = 0;

	for (unsigned k = 0; !done; k++)
		for (uint64_t seed = 0; seed < 40; seed++) {
			struct world w;
			unsigned i;

			world_init(&w, 2, _i, seed);
			attach(&w);
			ck_assert_int_eq(world_stage(&w, 1, 1, 0), 0);
			for (i = 0; i < k && world_step(&w); i++)
				continue;
			done |= i < k && seed == 39;
			world_kill_rank(&w, 1);
			world_run(&w, LIMIT);
			ck_assert_int_eq(gw_engine_state(w.engine), GW_ENGINE_DETACHED);
			/* The one that is left holds a whole version, and knows which. */
			all_serve(&w, w.r[0].label);
			world_free(&w);
		}
}
END_TEST

/* Both die: the page alone decides, and a rank that waits for a dead one gives up in poison. */
START_TEST(daemon_and_rank_die)
{
	unsigned poisoned = 0;

	for (unsigned k = 0; k < 60; k++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct world w;

			world_init(&w, 2, _i, seed);
			attach(&w);
			ck_assert_int_eq(world_stage(&w, 1, 1, 0), 0);
			for (unsigned i = 0; i < k && world_step(&w); i++)
				continue;
			world_kill_daemon(&w);
			world_kill_rank(&w, 1);
			world_run(&w, LIMIT);
			poisoned += (unsigned)w.r[0].poisoned;
			if (!w.r[0].poisoned)
				all_serve(&w, w.r[0].label);
			world_free(&w);
		}
	ck_assert_uint_gt(poisoned, 0);
}
END_TEST

START_TEST(an_op_that_fails_is_undone)
{
	struct world w;

	for (uint64_t seed = 0; seed < 50; seed++) {
		world_init(&w, 2, 0, seed);
		attach(&w);
		w.fail_op = _i;
		ck_assert_int_eq(world_stage(&w, 1, 1, 0), 0);
		world_run(&w, LIMIT);
		ck_assert_uint_eq(w.failed, 1);
		ck_assert_int_eq(w.failed_err, GW_EDEVICE);
		all_serve(&w, 0);
		goes_on(&w, 1);
		world_free(&w);
	}
}
END_TEST

/* Something else wrote to the weights: nothing is written, all is proven again, and it is poisoned until an anchor. */
START_TEST(a_place_that_holds_neither)
{
	struct world w;
	uint64_t before[WORLD_ELEMENTS / 4];

	world_init(&w, 2, _i, 5);
	attach(&w);
	ck_assert_int_eq(world_stage(&w, 1, 0, 0), 0);
	world_run(&w, LIMIT);
	/* Element 1 changes with version 1, so the list names it. */
	w.r[1].computing = 0;
	w.r[1].memory[1] ^= 0x8000;
	memcpy(before, w.r[1].memory, sizeof before);
	ck_assert_int_eq(gw_engine_staged(w.engine) == 1, 1);
	{
		struct gw_engine_event ev = {.kind = GW_EE_COMMIT, .now_ns = w.now_ns};

		w.actions.n = 0;
		ck_assert_int_eq(gw_engine_step(w.engine, &ev, &w.actions), 0);
		for (size_t i = 0; i < w.actions.n; i++)
			if (w.actions.v[i].kind == GW_EA_PAUSE) {
				struct gw_msg m = {.type = GW_MSG_eng_pause};

				m.u.eng_pause.to = 1;
				w.r[w.actions.v[i].rank].in.m[w.r[w.actions.v[i].rank].in.n++] = m;
			}
	}
	world_run(&w, LIMIT);
	ck_assert_int_eq(memcmp(before, w.r[1].memory, sizeof before), 0);
	ck_assert_int_eq(gw_engine_state(w.engine), GW_ENGINE_POISONED);
	ck_assert_int_eq(w.r[0].computing, 0);
	ck_assert_int_eq(w.r[0].poisoned, 1);
	/* A patch cannot help; an anchor does. */
	ck_assert_int_eq(world_stage(&w, 1, 1, 0), GW_ESTATE);
	ck_assert_int_eq(world_stage(&w, 2, 1, 1), 0);
	world_run(&w, LIMIT);
	ck_assert_int_eq(gw_engine_state(w.engine), GW_ENGINE_SERVING);
	all_serve(&w, 2);
	world_free(&w);
}
END_TEST

/* An anchor that is to cure a poison, cut at every step. */
START_TEST(daemon_dies_while_it_cures)
{
	for (unsigned k = 0; k < 60; k++)
		for (uint64_t seed = 0; seed < 10; seed++) {
			struct world w;
			struct gw_engine_event scrub = {.kind = GW_EE_SCRUB};

			world_init(&w, 2, _i, seed);
			attach(&w);
			w.r[0].computing = w.r[1].computing = 0; /* about to be found out */
			w.r[1].memory[2] ^= 1;
			w.actions.n = 0;
			ck_assert_int_eq(gw_engine_step(w.engine, &scrub, &w.actions), 0);
			w.prove_job = 1;
			w.prove_key = w.actions.v[0].key;
			w.prove_version = 0;
			world_run(&w, LIMIT);
			ck_assert_int_eq(gw_engine_state(w.engine), GW_ENGINE_POISONED);
			ck_assert_int_eq(world_stage(&w, 1, 1, 1), 0);
			for (unsigned i = 0; i < k && world_step(&w); i++)
				continue;
			world_kill_daemon(&w);
			world_run(&w, LIMIT);
			/* Either nobody computes, or all with the anchor. */
			ck_assert_int_eq(w.r[0].computing, w.r[1].computing);
			if (w.r[0].computing)
				all_serve(&w, 1);
			world_free(&w);
		}
}
END_TEST

START_TEST(a_rank_that_does_not_pause)
{
	struct world w;

	world_init(&w, 2, 0, 9);
	attach(&w);
	w.stuck_rank = 1;
	ck_assert_int_eq(world_stage(&w, 1, 1, 0), 0);
	world_run(&w, LIMIT);
	ck_assert_uint_eq(w.failed, 1);
	ck_assert_int_eq(w.failed_err, GW_ETIMEOUT);
	ck_assert_int_eq(world_holds(&w, 0, 0), 1);
	w.stuck_rank = -1;
	goes_on(&w, 1);
	world_free(&w);
}
END_TEST

START_TEST(weights_that_are_not_what_they_claim)
{
	struct world w;

	world_init(&w, 2, 0, 4);
	w.r[1].memory[3] ^= 1;
	world_start_daemon(&w);
	world_run(&w, LIMIT);
	ck_assert_int_eq(w.refused, GW_EFINGERPRINT);
	ck_assert_int_eq(gw_engine_state(w.engine), GW_ENGINE_DETACHED);
	ck_assert_int_eq(w.r[0].computing, 0);
	world_free(&w);
}
END_TEST

/* An engine that does not say what it holds: nobody knows, and an anchor makes it known. */
START_TEST(weights_of_no_known_version)
{
	struct world w;

	world_init(&w, 2, 0, 4);
	for (uint32_t i = 0; i < 2; i++) {
		w.r[i].label = GW_VERSION_NONE;
		w.r[i].memory[5] ^= 3;
	}
	world_start_daemon(&w);
	world_run(&w, LIMIT);
	ck_assert_int_eq(w.refused, 0);
	ck_assert_int_eq(gw_engine_state(w.engine), GW_ENGINE_POISONED);
	ck_assert_int_eq(w.r[0].computing + w.r[1].computing, 0);
	ck_assert_int_eq(world_stage(&w, 1, 1, 0), GW_ESTATE);
	ck_assert_int_eq(world_stage(&w, 1, 1, 1), 0);
	world_run(&w, LIMIT);
	all_serve(&w, 1);
	world_free(&w);
}
END_TEST

/* A daemon that hangs in a pause may still write: nobody computes, until it goes on, or is gone. */
START_TEST(daemon_hangs_in_a_pause)
{
	for (unsigned k = 0; k < 60; k++)
		for (int dies = 0; dies < 2; dies++) {
			struct gw_client_event tick = {.kind = GW_CE_TICK};
			struct world w;
			unsigned i;

			world_init(&w, 2, _i, k);
			attach(&w);
			ck_assert_int_eq(world_stage(&w, 1, 1, 0), 0);
			for (i = 0; i < k && world_step(&w); i++)
				continue;
			for (i = 0; i < 2; i++)
				if (gw_client_state(w.r[i].client) == GW_CLIENT_PAUSED) {
					struct gw_client_actions out;

					tick.now_ns = w.now_ns + 61000000000;
					gw_client_step(w.r[i].client, &tick, &out);
					ck_assert_int_eq(gw_client_state(w.r[i].client), GW_CLIENT_POISONED);
					ck_assert_uint_eq(gw_client_version(w.r[i].client), GW_VERSION_NONE);
				}
			if (dies)
				world_kill_daemon(&w);
			world_run(&w, LIMIT);
			ck_assert(dies || w.served == 1);
			all_serve(&w, w.r[0].label);
			world_free(&w);
		}
}
END_TEST

TCase *engine_story_tests(void)
{
	TCase *t = tcase_create("story");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, a_version_is_staged_and_committed, 0, 6);
	tcase_add_test(t, staged_twice_commits_once);
	tcase_add_loop_test(t, daemon_dies_at_every_step, 0, 6);
	tcase_add_loop_test(t, rank_dies_at_every_step, 0, 2);
	tcase_add_loop_test(t, daemon_and_rank_die, 0, 2);
	tcase_add_loop_test(t, an_op_that_fails_is_undone, GW_OP_CHECK, GW_OP_WRITE + 1);
	tcase_add_loop_test(t, a_place_that_holds_neither, 0, 2);
	tcase_add_loop_test(t, daemon_dies_while_it_cures, 0, 2);
	tcase_add_test(t, a_rank_that_does_not_pause);
	tcase_add_test(t, weights_that_are_not_what_they_claim);
	tcase_add_test(t, weights_of_no_known_version);
	tcase_add_loop_test(t, daemon_hangs_in_a_pause, 0, 2);
	return t;
}
