/* Stories about membership alone. */
#include <stdio.h>
#include <stdlib.h>

#include "stories.h"

static struct sim *world(uint64_t seed, const char *story, struct sim_config c)
{
	struct sim *s;

	c.seed = seed;
	c.ops = &sim_mesh_ops;
	s = sim_new(&c);
	s->story = story;
	sim_boot(s);
	return s;
}

static void agree_within(struct sim *s, uint64_t ns, const char *when)
{
	if (sim_run_until(s, ns, sim_tables_agree, NULL))
		sim_fail(s, NULL, "member tables do not agree %s", when);
}

static const struct gw_roster_entry *view(const struct sim *s, int host, int of)
{
	const struct gw_mesh *m = s->config.ops->mesh(s->hosts[host].machine);

	return gw_roster_find(gw_mesh_roster(m), s->hosts[of].record->identity);
}

struct verdict {
	int host;
	enum gw_member_state state;
};

/* Every other running host sees it so. */
static int all_see(struct sim *s, void *ctx)
{
	const struct verdict *v = ctx;

	for (int i = 0; i < s->config.hosts; i++) {
		const struct gw_roster_entry *e;

		if (i == v->host || !s->hosts[i].running || s->hosts[i].frozen_until_ns > s->now_ns)
			continue;
		e = view(s, i, v->host);
		if (!e || e->state != v->state)
			return 0;
	}
	return 1;
}

static void links_stand(struct sim *s)
{
	for (int i = 0; i < s->config.hosts; i++) {
		gw_host v[GW_MESH_LINKS_MAX];
		size_t n, near = 0;

		if (!s->hosts[i].running)
			continue;
		n = gw_mesh_neighbours(s->config.ops->mesh(s->hosts[i].machine), v, GW_MESH_LINKS_MAX);
		for (size_t k = 0; k < n; k++)
			near += s->hosts[sim_index(&s->hosts[i], s, v[k])].region == s->hosts[i].region;
		SIM_CHECK(s, &s->hosts[i], near >= 2 && n - near >= 1 && n <= GW_MESH_STANDING_MAX,
			  "has %zu standing links, %zu of them in its region", n, near);
	}
}

static void a_mesh_stands(uint64_t seed)
{
	struct sim *s = world(seed, "a mesh stands", (struct sim_config){.hosts = 24, .regions = 3});

	agree_within(s, 5 * SECOND, "after a start");
	sim_run(s, 5 * SECOND);
	links_stand(s);
	sim_run(s, 60 * SECOND);
	SIM_CHECK(s, NULL, sim_tables_agree(s, NULL), "a quiet mesh lost somebody");
	links_stand(s);
	sim_free(s);
}

static void a_host_joins_and_leaves(uint64_t seed)
{
	struct sim *s = world(seed, "join and leave", (struct sim_config){.hosts = 24, .regions = 3, .late = 3});
	struct verdict left = {22, GW_MEMBER_LEFT};

	sim_run(s, 3 * SECOND);
	sim_join(s, 21, (int)(seed % 21));
	sim_join(s, 22, (int)(seed % 21));
	agree_within(s, 10 * SECOND, "after two joined");
	sim_join(s, 23, 22);
	agree_within(s, 10 * SECOND, "after one joined through a newcomer");
	sim_run(s, 5 * SECOND);
	links_stand(s);
	sim_leave(s, 22);
	if (sim_run_until(s, SECOND, all_see, &left))
		sim_fail(s, NULL, "a good-bye did not reach all within a second");
	sim_free(s);
}

static int all_have_record(struct sim *s, void *ctx)
{
	const struct sim_host *moved = ctx;

	for (int i = 0; i < s->config.hosts; i++)
		if (view(s, i, moved->index)->record->stamp_ns != moved->record->stamp_ns)
			return 0;
	return 1;
}

/* It gets another address: its new record, signed by itself, replaces the old one everywhere. */
static void a_host_moves(uint64_t seed)
{
	struct sim *s = world(seed, "a host moves", (struct sim_config){.hosts = 24, .regions = 3});
	struct sim_host *h = &s->hosts[seed % 24];
	struct gw_event ev = {.kind = GW_EV_MEMBER_RECORD, .host = GW_HOST_NONE};
	struct gw_member_record *old = h->record;

	sim_run(s, 5 * SECOND);
	h->record = ev.record = sim_record_new(s, h->index, EPOCH_NS + 1);
	sim_feed(s, h->index, &ev);
	if (sim_run_until(s, 2 * SECOND, all_have_record, h))
		sim_fail(s, h, "its new record did not reach all within two seconds");
	gw_member_record_unref(old);
	sim_free(s);
}

static void a_starved_host_stays(uint64_t seed)
{
	struct sim *s = world(seed, "starved for 8 s", (struct sim_config){.hosts = 24, .regions = 3});

	sim_run(s, 5 * SECOND);
	for (int i = 0; i < 3; i++) {
		sim_freeze(s, (int)((seed + (uint64_t)i * 7) % 24), 8 * SECOND);
		sim_run(s, 20 * SECOND); /* a verdict of death on it ends the story */
	}
	/* Eight hosts at once, as when a kernel upgrade of a rack goes wrong. */
	for (int i = 0; i < 8; i++)
		sim_freeze(s, i, 8 * SECOND);
	sim_run(s, 20 * SECOND);
	SIM_CHECK(s, NULL, sim_tables_agree(s, NULL), "a starved host is missing");
	sim_free(s);
}

static void a_silent_host_goes_and_comes_back(uint64_t seed)
{
	struct sim *s = world(seed, "silent for 20 s", (struct sim_config){.hosts = 24, .regions = 3});
	int host = (int)(seed % 24);
	struct verdict dead = {host, GW_MEMBER_DEAD}, alive = {host, GW_MEMBER_ALIVE};
	uint64_t before;

	sim_run(s, 5 * SECOND);
	before = view(s, (host + 1) % 24, host)->incarnation;
	s->hosts[host].expected_dead = 1;
	sim_freeze(s, host, 30 * SECOND);
	if (sim_run_until(s, 20 * SECOND, all_see, &dead))
		sim_fail(s, NULL, "host %d was silent for 20 s and is not dead to all", host);
	sim_run(s, 11 * SECOND);
	if (sim_run_until(s, 10 * SECOND, all_see, &alive))
		sim_fail(s, NULL, "host %d runs again and is not back", host);
	s->hosts[host].expected_dead = 0;
	SIM_CHECK(s, NULL, view(s, (host + 1) % 24, host)->incarnation > before, "back with an old incarnation");
	agree_within(s, 10 * SECOND, "after a host came back");
	sim_free(s);
}

static void a_machine_fails(uint64_t seed)
{
	struct sim *s = world(seed, "a machine fails", (struct sim_config){.hosts = 24, .regions = 3});
	int host = (int)(seed % 24);
	struct verdict dead = {host, GW_MEMBER_DEAD};

	sim_run(s, 5 * SECOND);
	sim_crash(s, host, 1);
	if (sim_run_until(s, 20 * SECOND, all_see, &dead))
		sim_fail(s, NULL, "host %d is gone for 20 s and not dead to all", host);
	sim_run(s, 20 * SECOND);
	sim_restart(s, host);
	agree_within(s, 15 * SECOND, "after the machine came back");
	/* A process that is restarted at once is not missed. */
	sim_crash(s, (host + 5) % 24, 0);
	sim_run(s, 3 * SECOND);
	sim_restart(s, (host + 5) % 24);
	agree_within(s, 10 * SECOND, "after a quick restart");
	sim_free(s);
}

static int first_region(const struct sim *s, int host)
{
	return s->hosts[host].region == 0;
}

static void a_partition_heals(uint64_t seed)
{
	struct sim *s = world(seed, "partition and heal", (struct sim_config){.hosts = 24, .regions = 3});

	sim_run(s, 5 * SECOND);
	sim_partition(s, first_region);
	sim_run(s, (10 + seed * 29 % 60) * SECOND);
	sim_heal(s);
	s->quiet = 1; /* verdicts from before the heal are still spreading */
	agree_within(s, 60 * SECOND, "after a partition healed");
	s->quiet = 0;
	sim_run(s, 30 * SECOND);
	SIM_CHECK(s, NULL, sim_tables_agree(s, NULL), "the mesh fell apart again");
	links_stand(s);
	sim_free(s);
}

/* --- going and coming back --- */

enum going { LEAVES, IS_KILLED, FAILS_SILENTLY, GOINGS };
static const char *const ways[] = {"left", "were killed", "failed silently"};

static void goes(struct sim *s, int host, enum going how)
{
	s->hosts[host].expected_dead = 1;
	if (how == LEAVES)
		sim_leave(s, host);
	else
		sim_crash(s, host, how == FAILS_SILENTLY);
}

static void comes_back(struct sim *s, int host)
{
	sim_restart(s, host);
	s->hosts[host].expected_dead = 0;
}

struct return_of {
	struct sim_config world;
	int joins; /* the last host joins through the first one, which stops `settled_ns` later */
	uint64_t settled_ns;
	enum going how;
	int first, last; /* those that go */
	uint64_t away_ns;
	uint64_t apart_ns; /* between their starts */
	uint64_t starved_ns; /* all others do not run for so long from the first return on */
};

static int goes_away(const struct return_of *r, int host)
{
	return host >= r->first && host <= r->last;
}

/* Whoever went, for however long, and whoever noticed what of it: all are one mesh again soon. */
static void return_of(uint64_t seed, const struct return_of *r)
{
	struct sim *s = world(seed, "comes back", r->world);
	char when[160];

	(void)snprintf(when, sizeof when,
		       "after hosts %d to %d of %d (%d without address, %d joined) %s after %.2f s for %.2f s", r->first,
		       r->last, r->world.hosts, r->world.undialable, r->joins, ways[r->how], (double)r->settled_ns / 1e9,
		       (double)r->away_ns / 1e9);
	s->quiet = 1; /* suspicions from before may end in a verdict that is refuted at once */
	if (r->joins)
		sim_join(s, r->world.hosts - 1, 0);
	sim_run(s, r->settled_ns);
	for (int i = r->first; i <= r->last; i++)
		goes(s, i, r->how);
	sim_run(s, (r->how == LEAVES ? SECOND / 2 : 0) + r->away_ns); /* the good-bye takes half a second */
	for (int i = 0; i < r->world.hosts; i++)
		if (r->starved_ns && !goes_away(r, i))
			sim_freeze(s, i, r->starved_ns);
	for (int i = r->first; i <= r->last; i++) {
		comes_back(s, i);
		sim_run(s, r->apart_ns);
	}
	sim_run(s, r->starved_ns);
	agree_within(s, 40 * SECOND, when);
	sim_run(s, 15 * SECOND); /* a suspicion that was running has ended */
	agree_within(s, 15 * SECOND, when);
	s->quiet = 0;
	sim_run(s, 30 * SECOND);
	SIM_CHECK(s, NULL, sim_tables_agree(s, NULL), "the mesh fell apart again %s", when);
	sim_free(s);
}

/* From before anybody notices to long after all have: silence, suspicion, death, the time-out of a connection. */
static const uint64_t aways[] = {0,	      50 * MS,	   300 * MS,	1 * SECOND,  2500 * MS,	  4 * SECOND,  6 * SECOND,
				 9 * SECOND, 13 * SECOND, 16 * SECOND, 22 * SECOND, 45 * SECOND, 100 * SECOND};

static void at_every_instant(uint64_t seed, struct return_of r)
{
	for (int how = 0; how < GOINGS; how++)
		for (size_t i = 0; i < sizeof aways / sizeof *aways; i++) {
			r.how = (enum going)how;
			r.away_ns = aways[i] + (aways[i] ? seed * 37 % 50 * MS : 0);
			r.apart_ns = i % 3 * SECOND;
			r.starved_ns = i % 2 * 3 * SECOND;
			return_of(seed + i, &r);
		}
}

/* One of two, the other, both; on a network and on machines that have little to spare. */
static void one_of_two_comes_back(uint64_t seed)
{
	for (int busy = 0; busy <= 1; busy++)
		for (int who = 0; who < 3; who++)
			at_every_instant(seed, (struct return_of){
				.world = {.hosts = 2, .regions = 2, .loss = 0.05 * busy, .drop = 0.02 * busy},
				.settled_ns = 5 * SECOND,
				.first = who == 1,
				.last = who >= 1,
			});
}

/* Whom nobody can dial but the one that goes: it cannot dial them when it is back. */
static void the_only_address_comes_back(uint64_t seed)
{
	for (int last = 0; last <= 1; last++) /* or the only two */
		at_every_instant(seed, (struct return_of){.world = {.hosts = 3 + last, .regions = 2, .undialable = 2},
							  .settled_ns = 5 * SECOND,
							  .last = last});
}

static void some_of_many_come_back(uint64_t seed)
{
	at_every_instant(seed, (struct return_of){.world = {.hosts = 12, .regions = 3, .loss = 0.02, .drop = 0.01},
						  .settled_ns = 5 * SECOND,
						  .first = 2,
						  .last = 5});
}

/* Whom it let in a moment ago nobody else knows. */
static void a_host_that_let_one_in_comes_back(uint64_t seed)
{
	static const uint64_t settled[] = {0, 1 * MS, 20 * MS, 100 * MS, 700 * MS, 2 * SECOND, 4 * SECOND, 20 * SECOND};

	for (size_t i = 0; i < sizeof settled / sizeof *settled; i++)
		for (int who = 0; who < 3; who++)
			at_every_instant(seed, (struct return_of){
				.world = {.hosts = 2, .regions = 2, .late = 1},
				.joins = 1,
				.settled_ns = settled[i],
				.first = who == 1,
				.last = who >= 1,
			});
}

static void a_lossy_network_kills_nobody(uint64_t seed)
{
	struct sim *s = world(seed, "lossy network",
			      (struct sim_config){.hosts = 24, .regions = 3, .loss = 0.05, .drop = 0.01});

	sim_run(s, 120 * SECOND);
	agree_within(s, 10 * SECOND, "on a lossy network");
	sim_free(s);
}

static void hosts_behind_nat_take_part(uint64_t seed)
{
	struct sim *s = world(seed, "no address", (struct sim_config){.hosts = 24, .regions = 3, .undialable = 5});
	struct verdict dead = {22, GW_MEMBER_DEAD};

	agree_within(s, 5 * SECOND, "with hosts that cannot be dialled");
	sim_run(s, 60 * SECOND);
	links_stand(s);
	sim_crash(s, 22, 1);
	if (sim_run_until(s, 20 * SECOND, all_see, &dead))
		sim_fail(s, NULL, "a host without address is gone for 20 s and not dead to all");
	sim_restart(s, 22);
	agree_within(s, 15 * SECOND, "after it came back");
	sim_free(s);
}

static void the_same_seed_is_the_same_run(uint64_t seed)
{
	uint64_t trace[2];

	for (int i = 0; i < 2; i++) {
		struct sim *s =
			world(seed, "determinism", (struct sim_config){.hosts = 24, .regions = 3, .loss = 0.02});

		sim_crash(s, 3, 1);
		sim_run(s, 30 * SECOND);
		sim_restart(s, 3);
		sim_run(s, 20 * SECOND);
		trace[i] = s->trace;
		sim_free(s);
	}
	if (trace[0] != trace[1]) {
		fprintf(stderr, "seed %llu: two runs differ\n", (unsigned long long)seed);
		exit(1);
	}
}

/* HOSTS=n for another size. */
static void idle_traffic_is_small(uint64_t seed)
{
	const char *hosts = getenv("HOSTS");
	int n = hosts ? atoi(hosts) : 200;
	struct sim *s = world(seed, "idle", (struct sim_config){.hosts = n, .regions = n >= 1000 ? 10 : 4});
	uint64_t bytes = 0, messages = 0, most = 0;

	agree_within(s, 30 * SECOND, "in a big mesh");
	sim_run(s, 30 * SECOND); /* the news of all the starts is through */
	for (int i = 0; i < n; i++)
		s->hosts[i].sent_bytes = s->hosts[i].sent_messages = 0;
	sim_run(s, 60 * SECOND);
	for (int i = 0; i < n; i++) {
		bytes += s->hosts[i].sent_bytes;
		messages += s->hosts[i].sent_messages;
		most = s->hosts[i].sent_bytes > most ? s->hosts[i].sent_bytes : most;
	}
	printf("  idle: %d hosts send %.0f bytes/s and %.1f messages/s each (the busiest %.0f bytes/s)\n", n,
	       (double)bytes / 60 / n, (double)messages / 60 / n, (double)most / 60);
	SIM_CHECK(s, NULL, bytes / 60 / (uint64_t)n < 2000, "an idle host sends too much");
	sim_free(s);
}

int main(void)
{
	static const struct story stories[] = {
		{"a mesh stands", a_mesh_stands},
		{"join and leave", a_host_joins_and_leaves},
		{"a host moves", a_host_moves},
		{"starved for 8 s", a_starved_host_stays},
		{"silent for 20 s", a_silent_host_goes_and_comes_back},
		{"a machine fails", a_machine_fails},
		{"partition and heal", a_partition_heals},
		{"one of two comes back", one_of_two_comes_back},
		{"the only address comes back", the_only_address_comes_back},
		{"some of many come back", some_of_many_come_back},
		{"who let one in comes back", a_host_that_let_one_in_comes_back},
		{"lossy network", a_lossy_network_kills_nobody},
		{"no address", hosts_behind_nat_take_part},
		{"determinism", the_same_seed_is_the_same_run},
		{"idle", idle_traffic_is_small},
	};

	return stories_main(stories, sizeof stories / sizeof *stories, 2);
}
