/* Stories about whole hosts: versions are published, carried and served while things go wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "stories.h"
#include "whole.h"

enum { TRAINER = 0, PIECES = 160 };

static struct sim *world(uint64_t seed, const char *story, struct sim_config c)
{
	struct sim *s;

	c.seed = seed;
	c.ops = &sim_node_ops;
	if (!c.hosts)
		c.hosts = 21;
	if (!c.regions)
		c.regions = 3;
	if (!c.nic_bytes_per_s)
		c.nic_bytes_per_s = 200u << 20;
	if (!c.border_bytes_per_s)
		c.border_bytes_per_s = 50u << 20;
	s = sim_new(&c);
	s->story = story;
	sim_boot(s);
	sim_trainer_starts(s, TRAINER);
	sim_run(s, 4 * SECOND);
	return s;
}

static void served_within(struct sim *s, uint64_t ns)
{
	if (!sim_run_until(s, ns, sim_all_serve_head, NULL))
		return;
	for (int i = 0; i < s->config.hosts; i++) {
		const struct sim_host *h = &s->hosts[i];
		struct gw_swarm_totals t;

		if (!h->running || h->left || h->served == s->head_version)
			continue;
		gw_swarm_totals(gw_node_swarm(sim_node(h)), &t);
		fprintf(stderr, "  host %d (region %d): serves %lld; rx %llu, in flight %llu, banned %u, stalled %u\n",
			i, h->region, (long long)h->served, (unsigned long long)t.rx_bytes,
			(unsigned long long)t.in_flight_bytes, t.banned, t.stalled);
	}
	sim_fail(s, NULL, "version %lld is not served by all after %llu s", (long long)s->head_version,
		 (unsigned long long)(ns / SECOND));
}

static uint64_t payload(const struct sim_object *o)
{
	return o->manifest.object_bytes + (o->manifest.table_pieces ? (uint64_t)o->manifest.object_pieces * 32 : 0);
}

/* Where nothing fails, each region takes in a version once. */
static void crossed_once(const struct sim *s, const struct sim_object *o)
{
	for (int r = 0; r < s->config.regions; r++) {
		uint64_t most = payload(o) * 105 / 100 + GW_BLOCK_MAX;

		SIM_CHECK(s, NULL, o->border_rx[r] <= (r == s->hosts[TRAINER].region ? 0 : most),
			  "version %llu entered region %d with %llu bytes: %.3f times its payload",
			  (unsigned long long)o->manifest.to, r, (unsigned long long)o->border_rx[r],
			  (double)o->border_rx[r] / (double)payload(o));
	}
}

/* The version's time from publication to the last host against the time its bytes need over one border. */
static void print_speed(const struct sim *s, const struct sim_object *o)
{
	uint64_t bound = payload(o) * SECOND / s->config.border_bytes_per_s, took = o->last_served_ns - o->published_ns;

	printf("  version %llu: %.1f MB at all %d hosts in %.2f s (the border alone takes %.2f s)\n",
	       (unsigned long long)o->manifest.to, (double)payload(o) / 1e6, s->config.hosts, (double)took / 1e9,
	       (double)bound / 1e9);
}

static struct sim_object *publish(struct sim *s, uint64_t to, uint32_t pieces)
{
	return sim_publish(s, TRAINER, to ? GW_KIND_TRANSITION : GW_KIND_ANCHOR, to ? to - 1 : 0, to, pieces);
}

static void versions_reach_all(uint64_t seed)
{
	struct sim *s = world(seed, "versions reach all", (struct sim_config){.hosts = 24});
	struct sim_object *o;

	for (uint64_t v = 0; v <= 3; v++) {
		o = publish(s, v, v ? PIECES : 4 * PIECES); /* the anchor has a piece table */
		served_within(s, 20 * SECOND);
		crossed_once(s, o);
		if (v < 2)
			print_speed(s, o);
	}
	sim_free(s);
}

/* Versions come faster than they spread. None is dropped on the way, and none is fetched twice. */
static void a_trainer_in_a_hurry(uint64_t seed)
{
	struct sim *s = world(seed, "in a hurry", (struct sim_config){.hosts = 21, .border_bytes_per_s = 20u << 20});
	uint64_t bytes = 0;

	bytes += payload(publish(s, 0, PIECES));
	served_within(s, 20 * SECOND);
	for (uint64_t v = 1; v <= 8; v++) {
		bytes += payload(publish(s, v, PIECES));
		sim_run(s, gw_rng_below(&s->rng, 700) * MS);
	}
	served_within(s, 30 * SECOND);
	for (size_t i = 0; i < s->object_count; i++)
		crossed_once(s, s->objects[i]);
	for (int i = 1; i < s->config.hosts; i++) {
		uint64_t rx = gw_node_traffic(sim_node(&s->hosts[i]), 0).rx_bytes +
			      gw_node_border(sim_node(&s->hosts[i])).rx_bytes;

		SIM_CHECK(s, &s->hosts[i], rx <= bytes * 103 / 100, "received %.2f times what was published",
			  (double)rx / (double)bytes);
	}
	sim_free(s);
}

/* One or two pieces a version, pushed inside a region. */
static void small_patches_are_quick(uint64_t seed)
{
	struct sim *s = world(seed, "small patches", (struct sim_config){.eager_max_bytes = 256 << 10});

	publish(s, 0, PIECES);
	served_within(s, 20 * SECOND);
	for (uint64_t v = 1; v <= 5; v++) {
		publish(s, v, 1 + (uint32_t)v % 3);
		served_within(s, 2 * SECOND);
	}
	sim_free(s);
}

static int cut_off(const struct sim *s, int host)
{
	return s->hosts[host].region == s->config.regions - 1;
}

static void a_partition_heals(uint64_t seed)
{
	struct sim *s = world(seed, "partition and heal", (struct sim_config){.hosts = 21});

	publish(s, 0, PIECES);
	sim_run(s, seed % 3000 * MS); /* the cut comes at any moment of it */
	sim_partition(s, cut_off);
	sim_run(s, 5 * SECOND);
	publish(s, 1, PIECES);
	sim_run(s, 25 * SECOND);
	for (int i = 0; i < s->config.hosts; i++)
		SIM_CHECK(s, &s->hosts[i], cut_off(s, i) ? s->hosts[i].served <= 0 : s->hosts[i].served == 1,
			  "serves %lld during the partition", (long long)s->hosts[i].served);
	publish(s, 2, PIECES);
	sim_run(s, 5 * SECOND);
	sim_heal(s);
	s->quiet = 1;
	served_within(s, 60 * SECOND);
	if (sim_run_until(s, 60 * SECOND, sim_tables_agree, NULL))
		sim_fail(s, NULL, "member tables do not agree after a partition healed");
	sim_free(s);
}

static void a_starved_host_stays(uint64_t seed)
{
	struct sim *s = world(seed, "starved for 8 s", (struct sim_config){.hosts = 21});

	publish(s, 0, PIECES);
	sim_run(s, seed % 1000 * MS);
	sim_freeze(s, 1 + (int)(seed % 20), 8 * SECOND); /* a verdict of death on it ends the story */
	sim_run(s, 9 * SECOND);
	served_within(s, 20 * SECOND);
	SIM_CHECK(s, NULL, sim_tables_agree(s, NULL), "a starved host is missing");
	sim_free(s);
}

static void a_silent_host_goes_and_comes_back(uint64_t seed)
{
	struct sim *s = world(seed, "silent for 20 s", (struct sim_config){.hosts = 21});
	int host = 1 + (int)(seed % 20);

	publish(s, 0, PIECES);
	served_within(s, 20 * SECOND);
	s->hosts[host].expected_dead = 1;
	sim_freeze(s, host, 25 * SECOND);
	sim_run(s, 20 * SECOND);
	for (int i = 0; i < s->config.hosts; i++)
		if (i != host)
			SIM_CHECK(s, &s->hosts[i],
				  gw_roster_at(gw_mesh_roster(gw_node_mesh(sim_node(&s->hosts[i]))),
					       sim_handle(s, &s->hosts[i], host))
						  ->state == GW_MEMBER_DEAD,
				  "holds the silent alive");
	publish(s, 1, PIECES);
	sim_run(s, 10 * SECOND);
	s->hosts[host].expected_dead = 0;
	served_within(s, 30 * SECOND);
	if (sim_run_until(s, 30 * SECOND, sim_tables_agree, NULL))
		sim_fail(s, NULL, "a host that was silent is not back");
	sim_free(s);
}

/* The host of a region that owns the most stripes of an object. */
static int busiest_owner(const struct sim *s, int region, const struct sim_object *o)
{
	int best = -1, most = -1;

	for (int i = 0; i < s->config.hosts; i++) {
		int owns = 0;

		if (s->hosts[i].region != region)
			continue;
		for (uint32_t stripe = 0; stripe < GW_SWARM_STRIPES; stripe++)
			owns += gw_swarm_rank(gw_node_swarm(sim_node(&s->hosts[i])), &o->manifest.id, stripe,
					      GW_HOST_SELF) == 0;
		if (owns > most) {
			most = owns;
			best = i;
		}
	}
	return best;
}

static void an_owner_fails_in_the_middle(uint64_t seed)
{
	struct sim *s =
		world(seed, "an owner fails", (struct sim_config){.hosts = 24, .border_bytes_per_s = 10u << 20});
	struct sim_object *o = publish(s, 0, PIECES);
	const struct sim_stored *st;
	uint32_t before;
	uint64_t fetched;
	int owner;

	sim_run(s, 500 * MS + seed % 400 * MS);
	owner = busiest_owner(s, 1, o);
	sim_crash(s, owner, seed % 2 == 0);
	served_within(s, 40 * SECOND); /* the second in order took over */
	st = sim_stored(&s->hosts[owner], &o->manifest.id);
	before = st ? st->have_count : 0;
	sim_restart(s, owner);
	served_within(s, 40 * SECOND);
	/* What it had verified is not fetched again. */
	fetched = gw_node_traffic(sim_node(&s->hosts[owner]), 0).rx_bytes +
		  gw_node_border(sim_node(&s->hosts[owner])).rx_bytes;
	SIM_CHECK(s, &s->hosts[owner], fetched <= (PIECES - before) * (uint64_t)GW_PIECE_MIN * 102 / 100,
		  "had %u pieces and fetched %llu bytes after its restart", before, (unsigned long long)fetched);
	for (int r = 1; r < s->config.regions; r++)
		SIM_CHECK(s, NULL, o->border_rx[r] <= payload(o) * 13 / 10 + GW_BLOCK_MAX,
			  "region %d took in %.2f times the payload", r, (double)o->border_rx[r] / (double)payload(o));
	sim_free(s);
}

static void a_lossy_network_is_no_obstacle(uint64_t seed)
{
	struct sim *s = world(seed, "lossy network", (struct sim_config){.hosts = 21, .loss = 0.03, .drop = 0.002});

	for (uint64_t v = 0; v <= 2; v++) {
		publish(s, v, PIECES);
		served_within(s, 60 * SECOND);
	}
	sim_free(s);
}

static void a_liar_is_named(uint64_t seed)
{
	struct sim *s = world(seed, "a liar", (struct sim_config){.hosts = 24});
	int liar = 3 + (int)(seed % 21), accusers = 0;
	uint64_t bad[2] = {0, 0};

	s->hosts[liar].liar = 1;
	for (uint64_t v = 0; v <= 2; v++) {
		publish(s, v, 2 * PIECES);
		served_within(s, 40 * SECOND);
		for (int i = 0; i < s->config.hosts; i++) {
			struct gw_swarm_totals t;

			gw_swarm_totals(gw_node_swarm(sim_node(&s->hosts[i])), &t);
			bad[v > 0] += v == 0 || v == 2 ? t.bad_bytes : 0;
		}
	}
	for (int i = 0; i < s->config.hosts; i++) {
		const struct gw_swarm *w = gw_node_swarm(sim_node(&s->hosts[i]));
		struct gw_swarm_totals t;

		gw_swarm_totals(w, &t);
		accusers += gw_swarm_banned(w, sim_handle(s, &s->hosts[i], liar));
		SIM_CHECK(s, &s->hosts[i], t.banned == (t.bad_bytes > 0), "bans %u hosts after %llu bad bytes",
			  t.banned, (unsigned long long)t.bad_bytes);
		/* What was under way to it when it was found out, and no more. */
		SIM_CHECK(s, &s->hosts[i], t.bad_bytes <= 16u << 20, "took %llu bad bytes from one liar",
			  (unsigned long long)t.bad_bytes);
	}
	SIM_CHECK(s, NULL, accusers > 0, "nobody found the liar");
	sim_free(s);
}

static void the_trainer_crashes(uint64_t seed)
{
	struct sim *s = world(seed, "trainer crash", (struct sim_config){.hosts = 21, .border_bytes_per_s = 10u << 20});

	publish(s, 0, PIECES);
	served_within(s, 30 * SECOND);
	publish(s, 1, PIECES);
	sim_run(s, 100 * MS + seed % 1500 * MS);
	s->hosts[TRAINER].expected_dead = 1; /* it is away for up to 35 s */
	sim_crash(s, TRAINER, 0);
	sim_run(s, 5 * SECOND + seed % 30 * SECOND);
	sim_restart(s, TRAINER);
	sim_run(s, 3 * SECOND); /* verdicts that its return has not overtaken yet */
	served_within(s, 40 * SECOND);
	if (sim_run_until(s, 20 * SECOND, sim_tables_agree, NULL))
		sim_fail(s, NULL, "the trainer is back, but not to all");
	s->hosts[TRAINER].expected_dead = 0;
	publish(s, 2, PIECES);
	served_within(s, 20 * SECOND);
	sim_free(s);
}

static void nobody_takes_an_expired_head_for_fresh(uint64_t seed)
{
	struct sim *s = world(seed, "stale head", (struct sim_config){.hosts = 21});
	struct gw_board_policy p;

	publish(s, 0, PIECES);
	served_within(s, 20 * SECOND);
	sim_crash(s, TRAINER, 1);
	for (int round = 0; round < 2; round++) {
		sim_run(s, 150 * SECOND);
		for (int i = 1; i < s->config.hosts; i++) {
			gw_board_policy(gw_node_board(sim_node(&s->hosts[i])), 0, EPOCH_NS + s->now_ns, &p);
			SIM_CHECK(s, &s->hosts[i], p.stale == round, "the head of a trainer that is gone is %s",
				  p.stale ? "stale too early" : "taken for fresh");
			SIM_CHECK(s, &s->hosts[i], s->hosts[i].served == 0, "gave up what it serves");
		}
	}
	sim_restart(s, TRAINER);
	s->hosts[TRAINER].served = 0;
	sim_run(s, 40 * SECOND);
	for (int i = 0; i < s->config.hosts; i++) {
		gw_board_policy(gw_node_board(sim_node(&s->hosts[i])), 0, EPOCH_NS + s->now_ns, &p);
		SIM_CHECK(s, &s->hosts[i], !p.stale, "is stale though the trainer is back");
	}
	sim_free(s);
}

static void a_late_host_catches_up(uint64_t seed)
{
	struct sim *s = world(seed, "late host", (struct sim_config){.hosts = 22, .late = 1});
	uint64_t border = 0, after = 0;

	for (uint64_t v = 0; v <= 2; v++) {
		publish(s, v, PIECES);
		served_within(s, 20 * SECOND);
	}
	for (size_t i = 0; i < s->object_count; i++)
		border += s->objects[i]->border_rx[s->hosts[21].region];
	sim_join(s, 21, (int)(seed % 21));
	served_within(s, 30 * SECOND);
	for (size_t i = 0; i < s->object_count; i++)
		after += s->objects[i]->border_rx[s->hosts[21].region];
	SIM_CHECK(s, NULL, after == border, "what its region has came over the border again: %llu bytes",
		  (unsigned long long)(after - border));
	sim_free(s);
}

static void the_cheapest_path_is_taken(uint64_t seed)
{
	struct sim *s = world(seed, "skip", (struct sim_config){.hosts = 21});
	int host = 1 + (int)(seed % 20);
	uint64_t fetched;

	publish(s, 0, PIECES);
	served_within(s, 20 * SECOND);
	sim_crash(s, host, 0);
	for (uint64_t v = 1; v <= 4; v++) {
		publish(s, v, PIECES);
		served_within(s, 20 * SECOND);
	}
	sim_publish(s, TRAINER, GW_KIND_TRANSITION, 0, 4, PIECES + 40); /* costs less than four steps */
	sim_run(s, SECOND);
	sim_restart(s, host);
	served_within(s, 30 * SECOND);
	fetched = gw_node_traffic(sim_node(&s->hosts[host]), 0).rx_bytes +
		  gw_node_border(sim_node(&s->hosts[host])).rx_bytes;
	SIM_CHECK(s, &s->hosts[host], fetched <= 2 * PIECES * (uint64_t)GW_PIECE_MIN,
		  "fetched %llu bytes where a skip was there", (unsigned long long)fetched);
	sim_free(s);
}

/* Feeds `to` a head as if one of its neighbours had sent it. */
static void send_head(struct sim *s, int to, struct gw_bytes head)
{
	struct gw_msg m = {.type = GW_MSG_head};
	struct gw_event ev = {.kind = GW_EV_MSG, .msg = &m};

	SIM_CHECK(s, &s->hosts[to], gw_mesh_neighbours(gw_node_mesh(sim_node(&s->hosts[to])), &ev.host, 1) == 1,
		  "has no neighbour");
	m.u.head.head = head;
	sim_feed(s, to, &ev);
}

static void an_old_head_is_refused(uint64_t seed)
{
	struct sim *s = world(seed, "replayed head", (struct sim_config){.hosts = 21});
	const struct gw_event *old, *future;
	struct gw_board_counts before, after;
	uint8_t forged[GW_HEAD_MAX];

	publish(s, 0, PIECES);
	served_within(s, 20 * SECOND);
	s->head_sequence += 10;
	old = sim_make_head(s, s->head_sequence - 5, 100 * SECOND); /* signed, and never to be believed */
	publish(s, 1, PIECES);
	served_within(s, 20 * SECOND);
	future = sim_make_head(s, s->head_sequence + 100, 100 * SECOND);
	memcpy(forged, future->raw.p, future->raw.n);
	forged[future->raw.n / 2] ^= 1;
	for (int i = 1; i < s->config.hosts; i++) {
		const struct gw_board *b = gw_node_board(sim_node(&s->hosts[i]));

		gw_board_counts(b, &before);
		send_head(s, i, old->raw);
		send_head(s, i, (struct gw_bytes){forged, future->raw.n});
		sim_run(s, 100 * MS); /* check() sees to it that no head goes back */
		gw_board_counts(b, &after);
		SIM_CHECK(s, &s->hosts[i],
			  after.heads_rolled_back > before.heads_rolled_back &&
				  after.heads_refused > before.heads_refused &&
				  s->hosts[i].highest_head < s->head_sequence + 50,
			  "took a head that is old or forged");
	}
	/* Not even after a restart: the counters are stored. */
	sim_crash(s, 5, 0);
	sim_restart(s, 5);
	sim_run(s, 5 * SECOND);
	send_head(s, 5, old->raw);
	sim_run(s, 10 * SECOND);
	SIM_CHECK(s, &s->hosts[5], s->hosts[5].served == 1, "went back");
	sim_free(s);
}

static void health_shows_every_host(uint64_t seed)
{
	struct sim *s = world(seed, "health", (struct sim_config){.hosts = 24, .undialable = 2});
	struct gw_event ask = {.kind = GW_EV_HEALTH};

	publish(s, 0, PIECES);
	served_within(s, 20 * SECOND);
	for (int i = 0; i < s->config.hosts; i++) {
		ask.key = 1000 + (uint64_t)i;
		sim_feed(s, i, &ask);
		sim_run(s, 2 * SECOND);
		SIM_CHECK(s, &s->hosts[i],
			  s->hosts[i].health_key == ask.key && s->hosts[i].health_count == 24 &&
				  s->hosts[i].health_serving == 24 && !s->hosts[i].health_unreachable,
			  "sees %zu hosts, %zu serving, %zu unreachable", s->hosts[i].health_count,
			  s->hosts[i].health_serving, s->hosts[i].health_unreachable);
	}
	sim_crash(s, 5, 1);
	sim_freeze(s, 6, 5 * SECOND);
	for (int later = 0; later < 2; later++) { /* at once, and when its death is known */
		ask.key++;
		sim_feed(s, 1, &ask);
		sim_run(s, 4 * SECOND);
		SIM_CHECK(s, &s->hosts[1],
			  s->hosts[1].health_key == ask.key && s->hosts[1].health_count == 24 &&
				  s->hosts[1].health_unreachable == (later ? 1 : 2),
			  "sees %zu hosts, %zu unreachable, with one gone and %d starved", s->hosts[1].health_count,
			  s->hosts[1].health_unreachable, !later);
		sim_run(s, 25 * SECOND);
	}
	sim_free(s);
}

/* All that a host sends while nothing is published: liveness, anti-entropy, and a head every 20 s. HOSTS=n for another
 * size. */
static void idle_traffic_is_small(uint64_t seed)
{
	const char *hosts = getenv("HOSTS");
	int n = hosts ? atoi(hosts) : 100;
	struct sim *s = world(seed, "idle", (struct sim_config){.hosts = n, .regions = n >= 1000 ? 10 : 4});
	uint64_t bytes = 0, most = 0;
	struct sim_object *o;

	o = publish(s, 0, PIECES);
	served_within(s, 120 * SECOND);
	crossed_once(s, o);
	print_speed(s, o);
	sim_run(s, 70 * SECOND); /* links that were borrowed for the transfer are given back */
	for (int i = 0; i < n; i++)
		s->hosts[i].sent_bytes = 0;
	sim_run(s, 60 * SECOND);
	for (int i = 0; i < n; i++) {
		bytes += s->hosts[i].sent_bytes;
		most = gw_max_u64(most, s->hosts[i].sent_bytes);
	}
	printf("  idle: %d hosts send %.0f bytes/s each (the busiest %.0f bytes/s)\n", n, (double)bytes / 60 / n,
	       (double)most / 60);
	SIM_CHECK(s, NULL, bytes / 60 / (uint64_t)n < 2000, "an idle host sends too much");
	sim_free(s);
}

/* Everything at once, chosen by the seed; then quiet, and all must be well. */
static void chaos(uint64_t seed)
{
	struct sim_config c = {.hosts = 24, .regions = 3 + (int)(seed % 3), .late = 2, .undialable = (int)(seed % 4)};
	struct sim *s;
	struct gw_rng rng;
	uint64_t version = 0;
	int joined = 0;

	gw_rng_init(&rng, seed * 77);
	c.loss = gw_rng_unit(&rng) * 0.03;
	c.drop = seed % 2 ? gw_rng_unit(&rng) * 0.002 : 0;
	c.eager_max_bytes = seed % 3 ? 0 : 128 << 10;
	s = world(seed, "chaos", c);
	s->quiet = 1; /* who is cut off, crashed and starved at once may well be held dead for a while */
	publish(s, 0, PIECES);
	for (int step = 0; step < 30; step++) {
		int host = (int)gw_rng_below(&rng, (uint64_t)c.hosts), via = TRAINER;
		struct sim_host *h = &s->hosts[host];
		int late = host >= c.hosts - c.undialable - c.late && host < c.hosts - c.undialable;

		switch (gw_rng_below(&rng, 8)) {
		case 0:
		case 1:
			if (h->running)
				sim_crash(s, host, (int)gw_rng_below(&rng, 2));
			break;
		case 2:
			if (!h->running && (!late || joined >> host & 1))
				sim_restart(s, host);
			break;
		case 3:
			if (h->running)
				sim_freeze(s, host, gw_rng_below(&rng, 12) * SECOND);
			break;
		case 4:
			if (!s->partitioned)
				sim_partition(s, cut_off);
			break;
		case 5:
			sim_heal(s);
			break;
		case 6:
			if (s->hosts[TRAINER].running)
				publish(s, ++version, PIECES / 2 + (uint32_t)gw_rng_below(&rng, PIECES));
			break;
		default:
			if (late && !h->running && !(joined >> host & 1) && s->hosts[via].running) {
				joined |= 1 << host;
				sim_join(s, host, via);
			}
			break;
		}
		sim_run(s, gw_rng_below(&rng, 4) * SECOND + gw_rng_below(&rng, 1000) * MS);
	}
	sim_heal(s);
	for (int i = 0; i < c.hosts; i++)
		if (!s->hosts[i].running && s->hosts[i].life)
			sim_restart(s, i);
	sim_run(s, 12 * SECOND);
	if (!s->hosts[TRAINER].running)
		sim_restart(s, TRAINER);
	served_within(s, 120 * SECOND);
	if (sim_run_until(s, 60 * SECOND, sim_tables_agree, NULL))
		sim_fail(s, NULL, "member tables do not agree after all is quiet");
	s->quiet = 0;
	publish(s, ++version, PIECES);
	served_within(s, 30 * SECOND);
	sim_free(s);
}

static void the_same_seed_is_the_same_run(uint64_t seed)
{
	uint64_t trace[2];

	for (int i = 0; i < 2; i++) {
		struct sim *s = world(seed, "determinism", (struct sim_config){.hosts = 21, .loss = 0.01});

		publish(s, 0, PIECES);
		sim_run(s, 600 * MS);
		sim_crash(s, 4, 0);
		sim_run(s, 10 * SECOND);
		sim_restart(s, 4);
		sim_run(s, 10 * SECOND);
		trace[i] = s->trace;
		sim_free(s);
	}
	if (trace[0] != trace[1]) {
		fprintf(stderr, "seed %llu: two runs differ\n", (unsigned long long)seed);
		exit(1);
	}
	printf("  trace %016llx\n", (unsigned long long)trace[0]);
}

int main(void)
{
	static const struct story stories[] = {
		{"versions reach all", versions_reach_all},
		{"in a hurry", a_trainer_in_a_hurry},
		{"small patches", small_patches_are_quick},
		{"partition and heal", a_partition_heals},
		{"starved for 8 s", a_starved_host_stays},
		{"silent for 20 s", a_silent_host_goes_and_comes_back},
		{"an owner fails", an_owner_fails_in_the_middle},
		{"lossy network", a_lossy_network_is_no_obstacle},
		{"a liar", a_liar_is_named},
		{"trainer crash", the_trainer_crashes},
		{"stale head", nobody_takes_an_expired_head_for_fresh},
		{"late host", a_late_host_catches_up},
		{"skip", the_cheapest_path_is_taken},
		{"replayed head", an_old_head_is_refused},
		{"health", health_shows_every_host},
		{"idle", idle_traffic_is_small},
		{"determinism", the_same_seed_is_the_same_run},
		{"chaos", chaos},
	};

	return stories_main(stories, sizeof stories / sizeof *stories, 2);
}
