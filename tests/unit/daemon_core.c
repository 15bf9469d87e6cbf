/* A whole host in this process: joined, started, asked over its control socket, stopped at odd moments, started again. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/publish.h"
#include "board/board.h"
#include "daemon.h"
#include "daemon/core.h"
#include "daemon_world.h"
#include "io/os/seqpacket.h"
#include "unit.h"
#include "wire/codec.h"

static struct daemon_world w;
static struct gw_config c;
static struct gw_core *core;
static struct gw_loop *loop; /* of one life of the host */
static struct gw_diag why;
static struct gw_rng rng;
static struct model model;
static int tool; /* a connection to the control socket */

/* --- the stage --- */

static int start(void)
{
	int err;

	why.text[0] = 0;
	ck_assert_int_eq(gw_loop_new(&loop, NULL), 0);
	err = gw_core_start(&core, loop, w.fs, &c, &why);
	if (err)
		gw_loop_free(loop);
	return err;
}

static void dial(void)
{
	ck_assert_int_eq(gw_seq_connect(world_path(&w, "run/control.sock"), &tool, NULL), 0);
}

static void must_start(void)
{
	ck_assert_msg(start() == 0, "%s", why.text);
	dial();
}

static void stop(void)
{
	close(tool);
	gw_core_stop(core);
	gw_loop_free(loop);
	core = NULL;
}

static void restart(void)
{
	stop();
	must_start();
}

static void setup(void)
{
	char token[GW_TOKEN_TEXT_MAX], text[GW_KEY_FILE_MAX];

	world_init(&w, NULL, 1);
	gw_rng_init(&rng, unit_seed());
	world_model(&model, &rng);
	world_config(&w, &c, "a", "eu");
	(void)strcpy(c.network_control, "0.0.0.0:*");
	(void)strcpy(c.network_bulk, "0.0.0.0:*");
	c.limits_workers = 2;
	(void)strcpy(c.publish_policy, "demo");
	(void)snprintf(c.publish_release_key, sizeof c.publish_release_key, "%s", world_path(&w, "release.key"));
	ck_assert_int_eq(gw_key_format(&w.release, 1, text), 0);
	write_whole(w.fs, c.publish_release_key, text, strlen(text));
	ck_assert_int_eq(chmod(c.publish_release_key, 0600), 0);
	ck_assert_int_eq(gw_fs_mkdir(w.fs, c.host_state), 0);
	write_whole(w.fs, world_path(&w, "a/root"), w.root_bytes.p, w.root_bytes.n);
	world_token(&w, "eu", token);
	ck_assert_int_eq(gw_identity_join(w.fs, &c, token, strlen(token), &why), 0);
	core = NULL;
}

static void teardown(void)
{
	if (core)
		stop();
	model_free(&model);
	world_free(&w);
}

/* --- the control socket --- */

static uint8_t frame[GW_SEQ_MESSAGE_MAX];
static struct gw_arena arena;
static struct gw_msg answer;

static void ask(const struct gw_msg *m)
{
	struct gw_wr wr;

	gw_wr_init(&wr, sizeof frame);
	ck_assert_int_eq(gw_msg_encode(m, &wr), 0);
	ck_assert_int_eq(gw_seq_send(tool, wr.p, wr.n, NULL, 0), 0);
	gw_wr_free(&wr);
}

/* The next answer; it points into `frame` and the arena. */
static const struct gw_msg *hear(void)
{
	size_t n, nfds = 0;
	int err;

	gw_arena_reset(&arena);
	gw_arena_init(&arena, 1 << 20);
	while ((err = gw_seq_recv(tool, frame, sizeof frame, &n, NULL, 0, &nfds)) == GW_EAGAIN)
		ck_assert_int_eq(gw_loop_turn(loop, 50), 0);
	ck_assert_int_eq(err, 0);
	ck_assert_int_eq(gw_msg_decode(frame, n, &arena, &answer), 0);
	return &answer;
}

static struct gw_text text(const char *s)
{
	return (struct gw_text){s, strlen(s)};
}

static void ask_publish(const char *policy, const char *path)
{
	struct gw_msg m = {.type = GW_MSG_ctl_publish};

	m.u.ctl_publish.policy = text(policy);
	m.u.ctl_publish.path = text(path);
	ask(&m);
}

static void refused(int err, const char *words)
{
	const struct gw_msg *m = hear();

	ck_assert_int_eq(m->type, GW_MSG_ctl_reply);
	ck_assert_int_eq(m->u.ctl_reply.err, err);
	ck_assert_msg(memmem(m->u.ctl_reply.text.p, m->u.ctl_reply.text.n, words, strlen(words)) != NULL, "%.*s",
		      (int)m->u.ctl_reply.text.n, m->u.ctl_reply.text.p);
}

static const struct gw_m_ctl_published *published(void)
{
	const struct gw_msg *m = hear();

	ck_assert_msg(m->type == GW_MSG_ctl_published, "%.*s", (int)m->u.ctl_reply.text.n, m->u.ctl_reply.text.p);
	return &m->u.ctl_published;
}

static const struct gw_r_policy_state *policy_state(void)
{
	struct gw_msg m = {.type = GW_MSG_ctl_policies};

	ask(&m);
	ck_assert_int_eq(hear()->type, GW_MSG_ctl_policy_states);
	ck_assert_uint_eq(answer.u.ctl_policy_states.policies.n, 1);
	return &answer.u.ctl_policy_states.policies.v[0];
}

static void write_model(const char *name)
{
	model_write(&model, w.fs, world_path(&w, name));
}

/* --- stories --- */

START_TEST(a_trainer_host_publishes_on_request)
{
	const struct gw_r_policy_state *s;
	struct gw_msg m = {.type = GW_MSG_ctl_objects};
	uint64_t sequence;

	must_start();
	write_model("v0");
	ask_publish("", "v0");
	refused(GW_EINVAL, "absolute");
	ask_publish("", world_path(&w, "nowhere"));
	refused(GW_ENOENT, "nowhere");
	ask_publish("", world_path(&w, "v0"));
	ck_assert_uint_eq(published()->version, 0);
	ck_assert_uint_eq(answer.u.ctl_published.anchor, 1);
	ask_publish("demo", world_path(&w, "v0"));
	ck_assert_uint_eq(published()->already, 1);
	world_step(&model, &rng);
	write_model("v1");
	ask_publish("demo", world_path(&w, "v1"));
	ck_assert_uint_eq(published()->version, 1);
	ck_assert_uint_gt(answer.u.ctl_published.changed, 0);
	while ((s = policy_state())->fetched != 1) /* as soon as the object is open */
		ck_assert_uint_eq(s->newest, 1);
	ck_assert(s->publishes && !s->stale && !s->no_path);
	sequence = s->sequence;
	ask(&m);
	ck_assert_uint_eq(hear()->u.ctl_object_states.objects.n, 2);
	for (size_t i = 0; i < 2; i++)
		ck_assert_uint_eq(answer.u.ctl_object_states.objects.v[i].have, answer.u.ctl_object_states.objects.v[i].pieces);
	/* It is a member still, and goes on. */
	restart();
	s = policy_state();
	ck_assert_uint_eq(s->newest, 1);
	ck_assert_uint_gt(s->sequence, sequence);
	ck_assert(!s->stale);
	world_step(&model, &rng);
	write_model("v2");
	ask_publish("", world_path(&w, "v2"));
	ck_assert_uint_eq(published()->from, 1);
}
END_TEST

START_TEST(health_shows_the_host)
{
	struct gw_msg m = {.type = GW_MSG_ctl_mesh};
	const struct gw_r_host_status *s;

	must_start();
	m.u.ctl_mesh.policy = text("demo");
	ask(&m);
	ck_assert_int_eq(hear()->type, GW_MSG_ctl_hosts);
	ck_assert_uint_eq(answer.u.ctl_hosts.hosts.n, 1);
	s = &answer.u.ctl_hosts.hosts.v[0];
	ck_assert_int_eq(memcmp(s->name.p, "a", s->name.n), 0);
	ck_assert_uint_eq(s->state, GW_HOST_SEEDING);
	m.type = GW_MSG_ctl_reply; /* no request */
	ask(&m);
	refused(GW_EUNKNOWN, "does not answer");
}
END_TEST

START_TEST(policies_are_told_apart)
{
	(void)strcpy(c.publish_policy, "demo, other");
	must_start();
	write_model("v0");
	ask_publish("", world_path(&w, "v0"));
	refused(GW_EINVAL, "name one");
	ask_publish("third", world_path(&w, "v0"));
	refused(GW_EINVAL, "publish.policy");
	ask_publish("other", world_path(&w, "v0"));
	ck_assert_uint_eq(published()->version, 0);
	ask_publish("demo", world_path(&w, "v0"));
	ck_assert_uint_eq(published()->version, 0);
	ck_assert_uint_eq(gw_board_policy_count(gw_node_board(core->node)), 2);
}
END_TEST

START_TEST(bad_configurations_do_not_start)
{
	struct gw_config good = c;

	(void)strcpy(c.publish_policy, "demo,demo");
	ck_assert_int_eq(start(), GW_ECONFIG);
	ck_assert_ptr_nonnull(strstr(why.text, "named twice"));
	(void)strcpy(c.publish_policy, "unknown");
	ck_assert_int_eq(start(), GW_EUNTRUSTED);
	(void)strcpy(c.publish_policy, "demo");
	ck_assert_int_eq(chmod(c.publish_release_key, 0644), 0);
	ck_assert_int_eq(start(), GW_EACCESS);
	ck_assert_ptr_nonnull(strstr(why.text, "chmod 600"));
	ck_assert_int_eq(chmod(c.publish_release_key, 0600), 0);
	c = good;
	(void)strcpy(c.network_control, "not an address");
	ck_assert_int_ne(start(), 0);
	c = good;
	must_start();
}
END_TEST

START_TEST(one_publication_at_a_time)
{
	must_start();
	write_model("v0");
	ask_publish("", world_path(&w, "v0"));
	ask_publish("", world_path(&w, "v0"));
	/* Which comes first is the worker's business. */
	if (hear()->type == GW_MSG_ctl_reply) {
		ck_assert_int_eq(answer.u.ctl_reply.err, GW_EAGAIN);
		ck_assert_uint_eq(published()->version, 0);
	} else {
		(void)hear();
	}
}
END_TEST

/* Stopped after so many turns since the request. */
static void stop_in_the_middle(int turns, const char *name, int hang_up)
{
	must_start();
	ask_publish("", world_path(&w, name));
	for (int i = 0; i < turns; i++)
		ck_assert_int_eq(gw_loop_turn(loop, 1), 0);
	if (hang_up) {
		close(tool);
		dial();
		ck_assert_int_eq(gw_loop_turn(loop, 1), 0);
	}
	stop();
}

START_TEST(stopped_at_any_moment_it_goes_on)
{
	write_model("v0");
	for (int i = 0; i < 24; i++)
		stop_in_the_middle(i, "v0", i % 2);
	must_start();
	ask_publish("", world_path(&w, "v0"));
	ck_assert_uint_eq(published()->version, 0);
	stop();
	world_step(&model, &rng);
	write_model("v1");
	for (int i = 0; i < 24; i++)
		stop_in_the_middle(i, "v1", i % 2);
	must_start();
	ask_publish("", world_path(&w, "v1"));
	ck_assert_uint_eq(published()->version, 1);
	ck_assert_uint_eq(gw_store_count(core->store), 2);
}
END_TEST

START_TEST(an_asker_may_hang_up)
{
	struct gw_msg m = {.type = GW_MSG_ctl_mesh};

	must_start();
	for (int i = 0; i < GW_CORE_QUERIES_MAX + 8; i++)
		ask(&m);
	(void)gw_loop_turn(loop, 1);
	close(tool);
	dial();
	write_model("v0");
	ask_publish("", world_path(&w, "v0"));
	(void)published();
}
END_TEST

START_TEST(a_damaged_manifest_costs_its_object_alone)
{
	struct gw_msg m = {.type = GW_MSG_ctl_objects};
	char path[512], hex[65];
	struct gw_digest id;
	uint8_t *p;
	size_t n;

	must_start();
	write_model("v0");
	ask_publish("", world_path(&w, "v0"));
	memcpy(id.b, published()->manifest, 32);
	world_step(&model, &rng);
	write_model("v1");
	ask_publish("", world_path(&w, "v1"));
	(void)published();
	for (int i = 0; i < 32; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", id.b[i]);
	(void)snprintf(path, sizeof path, "%s/objects/%s/manifest", c.host_state, hex);
	p = read_whole(w.fs, path, &n);
	p[n / 2] ^= 1;
	write_whole(w.fs, path, p, n);
	free(p);
	restart();
	ask(&m);
	ck_assert_uint_eq(hear()->u.ctl_object_states.objects.n, 1);
	ck_assert_uint_eq(gw_store_count(core->store), 1);
	ck_assert_uint_eq(policy_state()->newest, 1);
}
END_TEST

START_TEST(an_anchor_becomes_a_folder)
{
	struct stat a, b;

	(void)strcpy(c.serve_policy, "demo");
	must_start();
	write_model("v0");
	ask_publish("", world_path(&w, "v0"));
	(void)published();
	while (stat(world_path(&w, "a/checkpoints/demo/CURRENT"), &a))
		ck_assert_int_eq(gw_loop_turn(loop, 50), 0);
	ck_assert(same_tree(w.fs, world_path(&w, "v0"), world_path(&w, "a/checkpoints/demo/CURRENT/.")));
	restart();
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(gw_loop_turn(loop, 20), 0);
	ck_assert_int_eq(stat(world_path(&w, "a/checkpoints/demo/CURRENT"), &b), 0);
	ck_assert_uint_eq(a.st_ino, b.st_ino); /* not written again */
}
END_TEST

TCase *daemon_core_tests(void)
{
	TCase *t = tcase_create("core");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_trainer_host_publishes_on_request);
	tcase_add_test(t, health_shows_the_host);
	tcase_add_test(t, policies_are_told_apart);
	tcase_add_test(t, bad_configurations_do_not_start);
	tcase_add_test(t, one_publication_at_a_time);
	tcase_add_test(t, stopped_at_any_moment_it_goes_on);
	tcase_add_test(t, an_asker_may_hang_up);
	tcase_add_test(t, a_damaged_manifest_costs_its_object_alone);
	tcase_add_test(t, an_anchor_becomes_a_folder);
	return t;
}
