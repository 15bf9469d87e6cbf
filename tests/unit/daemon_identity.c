/* Who a host is: joining as the first host of a mesh, what is refused afterwards, and moving. */
#include <string.h>
#include <sys/stat.h>

#include "base/publish.h"
#include "daemon.h"
#include "daemon/identity.h"
#include "daemon_world.h"
#include "trust_fixture.h"
#include "unit.h"

static struct daemon_world w;
static struct gw_config c;
static struct gw_identity id;
static struct gw_diag why;
static char token[GW_TOKEN_TEXT_MAX];

static void setup(void)
{
	world_init(&w, NULL, 1);
	world_config(&w, &c, "a", "eu");
	ck_assert_int_eq(gw_fs_mkdir(w.fs, c.host_state), 0);
	write_whole(w.fs, world_path(&w, "a/root"), w.root_bytes.p, w.root_bytes.n);
	world_token(&w, "", token);
	memset(&id, 0, sizeof id);
	memset(&why, 0, sizeof why);
}

static void teardown(void)
{
	gw_identity_free(&id);
	world_free(&w);
}

static int join(void)
{
	why.text[0] = 0;
	return gw_identity_join(w.fs, &c, token, strlen(token), &why);
}

static int load(void)
{
	gw_identity_free(&id);
	why.text[0] = 0;
	return gw_identity_load(&id, w.fs, &c, &why);
}

static unsigned mode_of(const char *name)
{
	struct gw_stat st;

	ck_assert_int_eq(gw_fs_stat(w.fs, world_path(&w, name), &st), 0);
	return st.mode;
}

START_TEST(the_first_host_joins_by_itself)
{
	ck_assert_int_eq(load(), GW_ENOENT);
	ck_assert_ptr_nonnull(strstr(why.text, "--join"));
	(void)strcpy(c.host_island, "one");
	ck_assert_int_eq(join(), 0);
	ck_assert_int_eq(load(), 0);
	ck_assert_str_eq(id.member.name, "a");
	ck_assert_str_eq(id.member.region, "eu");
	ck_assert_str_eq(id.member.island, "one");
	ck_assert_uint_eq(id.member.roles, GW_ROLES_ALL);
	ck_assert_mem_eq(id.member.identity, id.key.pk, 32);
	ck_assert_mem_eq(id.member.curve, id.key.curve_pk, 32);
	ck_assert_uint_eq(mode_of("a/host.key") & 077, 0);
	(void)mode_of("a/host.key.pub");
	/* Once more with another token: the same keys, a new record. */
	ck_assert_int_eq(join(), 0);
	ck_assert_int_eq(load(), 0);
}
END_TEST

START_TEST(the_root_must_be_the_tokens)
{
	struct gw_root other = w.root;
	const struct gw_key *key = &w.stranger;
	struct blob b;

	ck_assert_int_eq(gw_fs_unlink(w.fs, world_path(&w, "a/root")), 0);
	ck_assert_int_ne(join(), 0);
	ck_assert_ptr_nonnull(strstr(why.text, "trust.root"));
	memcpy(other.keys[0], w.stranger.pk, 32);
	b = fixture_root(&other, &key, 1);
	write_whole(w.fs, world_path(&w, "a/root"), b.p, b.n);
	free(b.p);
	ck_assert_int_ne(join(), 0);
	ck_assert_int_eq(gw_fs_stat(w.fs, world_path(&w, "a/member"), &(struct gw_stat){0}), GW_ENOENT);
}
END_TEST

START_TEST(a_broken_token_makes_nothing)
{
	for (size_t i = 14; i < strlen(token); i += 7) {
		char kept = token[i];

		token[i] = kept == 'A' ? 'B' : 'A';
		ck_assert_int_ne(join(), 0);
		ck_assert_ptr_null(strstr(why.text, token + 14));
		token[i] = kept;
	}
	ck_assert_int_eq(gw_fs_stat(w.fs, world_path(&w, "a/member"), &(struct gw_stat){0}), GW_ENOENT);
}
END_TEST

START_TEST(the_record_of_another_key_is_refused)
{
	ck_assert_int_eq(join(), 0);
	ck_assert_int_eq(gw_fs_unlink(w.fs, world_path(&w, "a/host.key")), 0);
	ck_assert_int_eq(load(), GW_EUNTRUSTED);
	ck_assert_ptr_nonnull(strstr(why.text, "another host's key"));
}
END_TEST

START_TEST(damaged_records_are_refused)
{
	static const char *const names[] = {"a/root", "a/member", "a/host.key"};

	ck_assert_int_eq(join(), 0);
	for (size_t k = 0; k < 3; k++) {
		size_t n;
		uint8_t *p = read_whole(w.fs, world_path(&w, names[k]), &n);

		for (size_t i = 0; i < n; i += 11) {
			if (k < 2) { /* a key file has a comment, which may say anything */
				p[i] ^= 0x10;
				write_whole(w.fs, world_path(&w, names[k]), p, n);
				ck_assert_int_ne(load(), 0);
				ck_assert(why.text[0]);
				p[i] ^= 0x10;
			}
			write_whole(w.fs, world_path(&w, names[k]), p, i);
			ck_assert_int_ne(load(), 0);
		}
		write_whole(w.fs, world_path(&w, names[k]), p, n);
		free(p);
	}
	ck_assert_int_eq(load(), 0);
}
END_TEST

START_TEST(a_key_that_others_can_read_is_refused)
{
	ck_assert_int_eq(join(), 0);
	ck_assert_int_eq(chmod(world_path(&w, "a/host.key"), 0640), 0);
	ck_assert_int_eq(load(), GW_EACCESS);
	ck_assert_ptr_nonnull(strstr(why.text, "chmod 600"));
}
END_TEST

START_TEST(a_moved_host_says_so_itself)
{
	uint64_t stamp;
	uint8_t *p;
	size_t n;

	ck_assert_int_eq(join(), 0);
	ck_assert_int_eq(load(), 0);
	ck_assert_uint_eq(id.member.address_count, 0); /* listens on all addresses, and says none */
	stamp = id.member.stamp_ns;
	(void)strcpy(c.network_control, "10.0.0.7:7601");
	(void)strcpy(c.network_bulk, "10.0.0.7:7602");
	(void)strcpy(c.network_control_any, "203.0.113.9:7601");
	(void)strcpy(c.network_bulk_any, "203.0.113.9:7602");
	ck_assert_int_eq(load(), 0);
	ck_assert_uint_gt(id.member.stamp_ns, stamp);
	ck_assert_uint_eq(id.member.address_count, 2);
	ck_assert_str_eq(gw_member_address(&id.member, "eu")->control, "10.0.0.7:7601");
	ck_assert_str_eq(gw_member_address(&id.member, "us")->bulk, "203.0.113.9:7602");
	stamp = id.member.stamp_ns;
	p = read_whole(w.fs, world_path(&w, "a/member"), &n);
	ck_assert_uint_eq(n, id.member_n);
	ck_assert_mem_eq(p, id.member_bytes, n);
	free(p);
	ck_assert_int_eq(load(), 0);
	ck_assert_uint_eq(id.member.stamp_ns, stamp); /* signed once */
}
END_TEST

START_TEST(what_the_certificate_binds_cannot_be_configured_away)
{
	ck_assert_int_eq(join(), 0);
	(void)strcpy(c.host_region, "us");
	ck_assert_int_eq(load(), GW_ECONFIG);
	ck_assert_ptr_nonnull(strstr(why.text, "host.region is us"));
	c.host_region[0] = 0;
	ck_assert_int_eq(load(), 0);
	ck_assert_str_eq(id.member.region, "eu");
	(void)strcpy(c.host_island, "two");
	ck_assert_int_eq(load(), GW_ECONFIG);
	ck_assert_ptr_nonnull(strstr(why.text, "host.island"));
}
END_TEST

START_TEST(a_token_for_another_region_is_refused)
{
	world_token(&w, "us", token);
	ck_assert_int_ne(join(), 0);
	ck_assert_msg(strstr(why.text, "region") != NULL, "%s", why.text);
}
END_TEST

/* --- known members --- */

static size_t count, bytes;

static int each(void *ctx, const void *record, size_t n)
{
	(void)ctx;
	(void)record;
	count++;
	bytes += n;
	return 0;
}

START_TEST(known_members_are_kept)
{
	static const uint8_t text[] = "onethree";
	const struct gw_bytes v[] = {{text, 3}, {text + 3, 5}, {text, 0}};
	uint8_t *p;
	size_t n;

	ck_assert_int_eq(gw_identity_members(w.fs, &c, each, NULL, NULL), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_int_eq(gw_identity_save_members(w.fs, &c, v, 3, NULL), 0);
	ck_assert_int_eq(gw_identity_members(w.fs, &c, each, NULL, NULL), 0);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(bytes, 8);
	/* A damaged tail costs what it held, and no start. */
	p = read_whole(w.fs, world_path(&w, "a/members"), &n);
	for (size_t cut = 0; cut < n; cut++) {
		write_whole(w.fs, world_path(&w, "a/members"), p, cut);
		count = 0;
		ck_assert_int_eq(gw_identity_members(w.fs, &c, each, NULL, NULL), 0);
		ck_assert_uint_eq(count, (cut >= 5) + (size_t)(cut >= 12));
	}
	free(p);
}
END_TEST

TCase *daemon_identity_tests(void)
{
	TCase *t = tcase_create("identity");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_first_host_joins_by_itself);
	tcase_add_test(t, the_root_must_be_the_tokens);
	tcase_add_test(t, a_broken_token_makes_nothing);
	tcase_add_test(t, the_record_of_another_key_is_refused);
	tcase_add_test(t, damaged_records_are_refused);
	tcase_add_test(t, a_key_that_others_can_read_is_refused);
	tcase_add_test(t, a_moved_host_says_so_itself);
	tcase_add_test(t, what_the_certificate_binds_cannot_be_configured_away);
	tcase_add_test(t, a_token_for_another_region_is_refused);
	tcase_add_test(t, known_members_are_kept);
	return t;
}
