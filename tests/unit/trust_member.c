#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "trust_tests.h"

static int open_member(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_member m;

	return gw_member_open(&fix.root, NOW_NS, p, n, &m, why);
}

START_TEST(a_member_is_checked_from_the_root_alone)
{
	struct gw_member m;

	ck_assert_int_eq(gw_member_open(&fix.root, NOW_NS, fix.member_bytes.p, fix.member_bytes.n, &m, NULL), 0);
	ck_assert_str_eq(m.name, "rollout-3");
	ck_assert_str_eq(m.region, "eu-west"); /* the token's */
	ck_assert_uint_eq(m.roles, GW_ROLE_ISLAND);
	ck_assert_mem_eq(m.identity, fix.host.pk, 32);
	ck_assert_mem_eq(m.curve, fix.host.curve_pk, 32);
	ck_assert_uint_eq(m.stamp_ns, NOW_NS);
	ck_assert_str_eq(gw_member_address(&m, "eu-west")->control, "10.9.0.3:7402");
	ck_assert_str_eq(gw_member_address(&m, "us-east")->bulk, "203.0.113.9:7403");
	m.addresses[0].scope = GW_SCOPE_REGION;
	ck_assert_ptr_null(gw_member_address(&m, "us-east"));
	ck_assert_uint_le(fix.member_bytes.n, 1024);
	/* Not by another root, nor when its time has ended. */
	fix.root.admissions[0].pk[0] ^= 1;
	ck_assert_int_eq(open_member(fix.member_bytes.p, fix.member_bytes.n, NULL), GW_EUNTRUSTED);
	fix.root.admissions[0].pk[0] ^= 1;
	ck_assert_int_eq(gw_member_open(&fix.root, m.expires_ns, fix.member_bytes.p, fix.member_bytes.n, &m, NULL), GW_EEXPIRED);
}
END_TEST

static int refused_naming_a_part(const void *p, size_t n, struct gw_diag *why)
{
	int err = open_member(p, n, why);

	/* Which of the three is wrong is said; the test asks for "refused". */
	ck_assert(!err || strstr(why->text, "delegation") || strstr(why->text, "certificate") ||
		  strstr(why->text, "presence") || strstr(why->text, "member record"));
	return err;
}

START_TEST(every_flipped_bit_of_a_member_is_refused)
{
	every_change_is_refused(fix.member_bytes, refused_naming_a_part, "refused");
}
END_TEST

/* A member of the token, with something changed; 0 or the error of making it. */
#define JOIN(change) join(__extension__({ struct gw_member j_m = fix.member, *m = &j_m; (void)m; change; j_m; }))

static int join(struct gw_member m)
{
	struct gw_wr w;
	int err;

	gw_wr_init(&w, GW_MEMBER_MAX);
	err = gw_token_join(&fix.token, &fix.root, &fix.host, NOW_NS, &m, &w, NULL);
	gw_wr_free(&w);
	return err;
}

START_TEST(a_token_grants_no_more_than_it_says)
{
	ck_assert_int_eq(JOIN((void)0), 0);
	ck_assert_int_eq(JOIN(strcpy(m->region, "us-east")), GW_EINVAL);
	ck_assert_int_eq(JOIN(m->roles = GW_ROLE_SEED), GW_EINVAL);
	ck_assert_int_eq(JOIN(m->roles = 1u << 31), GW_EINVAL);
	ck_assert_int_eq(JOIN(m->name[0] = 0), GW_EINVAL);
	ck_assert_int_eq(JOIN(strcpy(m->island, "a b")), GW_EINVAL);
	ck_assert_int_eq(JOIN(m->address_count = GW_MEMBER_ADDRESSES_MAX + 1), GW_EINVAL);
	ck_assert_int_eq(JOIN(m->addresses[0].scope = 3), GW_EINVAL);
	ck_assert_int_eq(JOIN(strcpy(m->addresses[1].bulk, "nowhere")), GW_EINVAL);
	ck_assert_int_eq(JOIN(m->address_count = 0), 0);
}
END_TEST

/* The same claims, signed by hand with the keys of a token: the reader must refuse them. */
static int forged(void (*change)(struct gw_member *m), const struct gw_key *delegated, const struct gw_key *identity)
{
	struct gw_member m = fix.member, out;
	struct gw_wr w;
	int err;

	change(&m);
	gw_wr_init(&w, GW_MEMBER_MAX);
	err = gw_member_make(&m, fix.delegation_bytes.p, fix.delegation_bytes.n, delegated->sk, identity->sk, &w, NULL);
	ck_assert_int_eq(err, 0);
	err = gw_member_open(&fix.root, NOW_NS, w.p, w.n, &out, NULL);
	gw_wr_free(&w);
	return err;
}

static void more_region(struct gw_member *m)
{
	strcpy(m->region, "us-east");
	strcpy(m->delegation.region, "us-east");
}

static void more_roles(struct gw_member *m)
{
	m->roles = m->delegation.roles = GW_ROLES_ALL;
}

static void more_time(struct gw_member *m)
{
	m->expires_ns = m->delegation.expires_ns = NOW_NS + 900 * DAY_NS;
}

static void before_time(struct gw_member *m)
{
	m->issued_ns = m->delegation.created_ns = 1;
}

static void other_delegated(struct gw_member *m)
{
	memcpy(m->delegation.pk, fix.stranger.pk, 32);
}

static void nothing(struct gw_member *m)
{
	(void)m;
}

START_TEST(claims_beyond_the_delegation_are_refused)
{
	ck_assert_int_eq(forged(nothing, &fix.delegated, &fix.host), 0);
	ck_assert_int_eq(forged(more_region, &fix.delegated, &fix.host), GW_EMALFORMED);
	ck_assert_int_eq(forged(more_roles, &fix.delegated, &fix.host), GW_EMALFORMED);
	ck_assert_int_eq(forged(more_time, &fix.delegated, &fix.host), GW_EMALFORMED);
	ck_assert_int_eq(forged(before_time, &fix.delegated, &fix.host), GW_EMALFORMED);
	ck_assert_int_eq(forged(other_delegated, &fix.stranger, &fix.host), GW_ESIGNATURE);
}
END_TEST

START_TEST(nobody_speaks_for_another_identity)
{
	/* Certificate for fix.host, presence by somebody else: spliced from two records. */
	struct gw_key other;
	struct gw_member m = fix.member;
	struct gw_wr w;

	fixture_key(&other, GW_KEY_HOST, 0x77);
	gw_wr_init(&w, GW_MEMBER_MAX);
	ck_assert_int_eq(gw_member_renew(&m, fix.member_bytes.p, fix.member_bytes.n, other.sk, &w, NULL), GW_EINVAL);
	memcpy(m.identity, other.pk, 32);
	ck_assert_int_eq(gw_member_renew(&m, fix.member_bytes.p, fix.member_bytes.n, other.sk, &w, NULL), 0);
	ck_assert_int_eq(open_member(w.p, w.n, NULL), GW_ESIGNATURE);
	gw_wr_free(&w);
}
END_TEST

START_TEST(a_host_that_moves_says_so_itself)
{
	struct gw_member m = fix.member, back;
	struct gw_wr w;

	m.stamp_ns++;
	m.address_count = 1;
	strcpy(m.addresses[0].control, "198.51.100.7:9000");
	gw_wr_init(&w, GW_MEMBER_MAX);
	ck_assert_int_eq(gw_member_renew(&m, fix.member_bytes.p, fix.member_bytes.n, fix.host.sk, &w, NULL), 0);
	/* Long after its token ended. */
	ck_assert_int_eq(gw_member_open(&fix.root, NOW_NS + 80 * DAY_NS, w.p, w.n, &back, NULL), 0);
	ck_assert_uint_eq(back.stamp_ns, NOW_NS + 1);
	ck_assert_str_eq(back.addresses[0].control, "198.51.100.7:9000");
	ck_assert_int_eq(gw_member_may_join(&back, NOW_NS + 80 * DAY_NS, NULL), GW_EEXPIRED);
	gw_wr_free(&w);
}
END_TEST

START_TEST(tokens_round_trip_and_say_when_damaged)
{
	char text[GW_TOKEN_TEXT_MAX + 8];
	struct gw_token t;
	size_t n = strlen(fix.token_text);

	ck_assert_uint_lt(n, GW_TOKEN_TEXT_MAX);
	(void)strcpy(text + 2, fix.token_text);
	memcpy(text, "\n ", 2);
	strcat(text, "\r\n");
	ck_assert_int_eq(gw_token_parse(&t, text, strlen(text), NULL), 0);
	ck_assert_str_eq(t.bootstraps[0].address, "10.1.2.3:7401");
	ck_assert_str_eq(t.grant.region, "eu-west");
	ck_assert(gw_digest_equal(&t.root, &fix.root.id));
	for (size_t cut = 0; cut < n; cut++) {
		struct gw_diag why = {""};

		ck_assert_int_ne(gw_token_parse(&t, fix.token_text, cut, &why), 0);
		ck_assert_ptr_null(strstr(why.text, fix.token_text + n / 2));
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(text, fix.token_text, n + 1);
		text[i] = text[i] == 'A' ? 'B' : 'A';
		ck_assert_msg(gw_token_parse(&t, text, n, NULL) != 0, "character %zu", i);
	}
	memcpy(text, fix.token_text, n);
	text[12] = '2';
	ck_assert_int_eq(gw_token_parse(&t, text, n, NULL), GW_EVERSION);
}
END_TEST

START_TEST(tokens_end)
{
	struct gw_member m = fix.member;
	struct gw_diag why = {""};
	struct gw_wr w;

	gw_wr_init(&w, GW_MEMBER_MAX);
	ck_assert_int_eq(gw_token_join(&fix.token, &fix.root, &fix.host, fix.delegation.join_until_ns, &m, &w, &why),
			 GW_EEXPIRED);
	ck_assert_ptr_nonnull(strstr(why.text, "token"));
	ck_assert_int_eq(gw_token_join(&fix.token, &fix.root, &fix.release, NOW_NS, &m, &w, NULL), GW_EINVAL);
	/* A newcomer's clock behind the issuer's, and no root at hand yet. */
	ck_assert_int_eq(gw_token_join(&fix.token, NULL, &fix.host, fix.delegation.created_ns - SECOND_NS, &m, &w, NULL), 0);
	ck_assert_int_eq(open_member(w.p, w.n, NULL), 0);
	gw_wr_free(&w);
}
END_TEST

START_TEST(the_largest_token_and_member_fit)
{
	struct gw_token t = fix.token;
	struct gw_delegation d = fix.delegation;
	struct gw_member m = fix.member;
	char text[GW_TOKEN_TEXT_MAX];
	struct gw_wr w;

	memset(d.region, 'r', GW_NAME_MAX);
	gw_wr_init(&w, GW_DELEGATION_MAX);
	ck_assert_int_eq(gw_delegation_sign(&d, fix.admission.sk, &w, NULL), 0);
	memcpy(t.delegation, w.p, w.n);
	t.delegation_bytes = w.n;
	gw_wr_free(&w);
	t.bootstrap_count = GW_TOKEN_BOOTSTRAPS_MAX;
	for (size_t i = 0; i < GW_TOKEN_BOOTSTRAPS_MAX; i++) {
		memset(t.bootstraps[i].address, 'h', GW_ADDRESS_MAX);
		memcpy(t.bootstraps[i].address + GW_ADDRESS_MAX - 6, ":65535", 6);
	}
	ck_assert_int_eq(gw_token_format(&t, text, NULL), 0);
	ck_assert_int_eq(gw_token_parse(&t, text, strlen(text), NULL), 0);

	memset(m.name, 'n', GW_NAME_MAX);
	memset(m.region, 'r', GW_NAME_MAX);
	memset(m.island, 'i', GW_NAME_MAX);
	m.address_count = GW_MEMBER_ADDRESSES_MAX;
	for (size_t i = 0; i < GW_MEMBER_ADDRESSES_MAX; i++) {
		m.addresses[i].scope = GW_SCOPE_ANY;
		memcpy(m.addresses[i].control, t.bootstraps[0].address, GW_ADDRESS_MAX + 1);
		memcpy(m.addresses[i].bulk, t.bootstraps[0].address, GW_ADDRESS_MAX + 1);
	}
	gw_wr_init(&w, GW_MEMBER_MAX);
	ck_assert_int_eq(gw_token_join(&t, &fix.root, &fix.host, NOW_NS, &m, &w, NULL), 0);
	ck_assert_int_eq(open_member(w.p, w.n, NULL), 0);
	gw_wr_free(&w);
	/* A key that is not the one delegated makes no token. */
	t.seed[0] ^= 1;
	ck_assert_int_eq(gw_token_format(&t, text, NULL), GW_EINVAL);
}
END_TEST

START_TEST(roles_have_names)
{
	char buf[32];

	ck_assert_uint_eq(gw_roles_parse("island"), GW_ROLE_ISLAND);
	ck_assert_uint_eq(gw_roles_parse("seed,join"), GW_ROLE_SEED | GW_ROLE_JOIN);
	ck_assert_uint_eq(gw_roles_parse(""), 0);
	ck_assert_uint_eq(gw_roles_parse("seed,"), 0);
	ck_assert_uint_eq(gw_roles_parse("seed,king"), 0);
	ck_assert_str_eq(gw_roles_format(buf, GW_ROLES_ALL), "island,seed,relay,join");
	ck_assert_str_eq(gw_roles_format(buf, 0), "");
}
END_TEST

/* --- joining --- */

START_TEST(join_sockets_admit_by_record)
{
	struct gw_m_join_request req = {.member = {fix.member_bytes.p, fix.member_bytes.n}};
	struct gw_member m;

	ck_assert_int_eq(gw_join_check(&fix.root, NOW_NS, &req, &m, NULL), 0);
	ck_assert_int_eq(gw_join_check(&fix.root, fix.delegation.join_until_ns, &req, &m, NULL), GW_EEXPIRED);
	req.member.n--;
	ck_assert_int_ne(gw_join_check(&fix.root, NOW_NS, &req, &m, NULL), 0);
}
END_TEST

START_TEST(newcomers_walk_from_the_pinned_root)
{
	struct gw_r_root_record roots[2] = {{{fix.root_bytes.p, fix.root_bytes.n}}, {{fix.root2_bytes.p, fix.root2_bytes.n}}};
	struct gw_m_join_reply reply = {0};
	struct gw_digest wrong = fix.root.id;
	struct gw_root out;

	reply.roots.v = roots;
	reply.roots.n = 2;
	ck_assert_int_eq(gw_join_roots(&reply, &fix.root.id, NULL, &out, NULL), 0);
	ck_assert_uint_eq(out.version, 2);
	wrong.b[0] ^= 1;
	ck_assert_int_eq(gw_join_roots(&reply, &wrong, NULL, &out, NULL), GW_EDIGEST);
	ck_assert_uint_eq(out.version, 0);
	reply.roots.v = roots + 1;
	reply.roots.n = 1;
	ck_assert_int_eq(gw_join_roots(&reply, &fix.root.id, NULL, &out, NULL), GW_EDIGEST);
	ck_assert_int_eq(gw_join_roots(&reply, &fix.root.id, &fix.root, &out, NULL), 0);
	ck_assert_uint_eq(out.version, 2);
	reply.roots.n = 0;
	ck_assert_int_eq(gw_join_roots(&reply, &fix.root.id, NULL, &out, NULL), GW_EMALFORMED);
	ck_assert_int_eq(gw_join_roots(&reply, &fix.root.id, &fix.root, &out, NULL), 0);
	ck_assert_uint_eq(out.version, 1);
}
END_TEST

TCase *trust_member_tests(void (*set_up)(void), void (*tear_down)(void))
{
	TCase *t = tcase_create("members");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_member_is_checked_from_the_root_alone);
	tcase_add_test(t, every_flipped_bit_of_a_member_is_refused);
	tcase_add_test(t, a_token_grants_no_more_than_it_says);
	tcase_add_test(t, claims_beyond_the_delegation_are_refused);
	tcase_add_test(t, nobody_speaks_for_another_identity);
	tcase_add_test(t, a_host_that_moves_says_so_itself);
	tcase_add_test(t, tokens_round_trip_and_say_when_damaged);
	tcase_add_test(t, tokens_end);
	tcase_add_test(t, the_largest_token_and_member_fit);
	tcase_add_test(t, roles_have_names);
	tcase_add_test(t, join_sockets_admit_by_record);
	tcase_add_test(t, newcomers_walk_from_the_pinned_root);
	return t;
}
