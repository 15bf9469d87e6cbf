#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "trust_tests.h"

/* A copy of exactly that size, so that a sanitizer sees a read past its end. */
static int open_copy(const uint8_t *p, size_t n, int (*open)(const void *p, size_t n, struct gw_diag *why),
		     struct gw_diag *why)
{
	uint8_t *exact = malloc(n ? n : 1);
	int err;

	memcpy(exact, p, n);
	err = open(exact, n, why);
	free(exact);
	return err;
}

void every_change_is_refused(struct blob b, int (*open)(const void *p, size_t n, struct gw_diag *why), const char *named)
{
	struct gw_diag first = {""};

	ck_assert_msg(open(b.p, b.n, &first) == 0, "%s: %s", named, first.text);
	for (size_t bit = 0; bit < 8 * b.n; bit++) {
		struct gw_diag why = {""};

		b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(open_copy(b.p, b.n, open, &why) != 0, "%s: bit %zu", named, bit);
		ck_assert_msg(strstr(why.text, named) != NULL, "bit %zu: \"%s\" does not name the %s", bit, why.text, named);
		b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t n = 0; n < b.n; n++) {
		struct gw_diag why = {""};

		ck_assert_msg(open_copy(b.p, n, open, &why) != 0, "%s: cut at %zu", named, n);
		ck_assert_msg(strstr(why.text, named) != NULL, "cut at %zu: \"%s\"", n, why.text);
	}
}

static int open_pinned(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_root r;

	return gw_root_open(p, n, &fix.root.id, &r, why);
}

static int open_unpinned(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_root r;

	return gw_root_open(p, n, NULL, &r, why);
}

static int open_second(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_root r;

	return gw_root_next(&fix.root, p, n, &r, why);
}

START_TEST(roots_open_and_follow)
{
	struct gw_root r, next;

	ck_assert_int_eq(gw_root_open(fix.root_bytes.p, fix.root_bytes.n, &fix.root.id, &r, NULL), 0);
	ck_assert_uint_eq(r.version, 1);
	ck_assert_str_eq(r.releases[0].policy, "demo");
	ck_assert(gw_digest_equal(&r.id, &fix.root.id));
	ck_assert_int_eq(gw_root_next(&r, fix.root2_bytes.p, fix.root2_bytes.n, &next, NULL), 0);
	ck_assert_uint_eq(next.epoch, 2);
	ck_assert_int_eq(gw_root_next(&next, fix.root_bytes.p, fix.root_bytes.n, &r, NULL), GW_EROLLBACK);
	ck_assert_int_eq(gw_root_next(&next, fix.root2_bytes.p, fix.root2_bytes.n, &r, NULL), GW_EROLLBACK);
	ck_assert_int_eq(gw_root_open(fix.root2_bytes.p, fix.root2_bytes.n, &fix.root.id, &r, NULL), GW_EDIGEST);
}
END_TEST

START_TEST(every_flipped_bit_of_a_root_is_refused)
{
	every_change_is_refused(fix.root_bytes, open_pinned, "root record");
	every_change_is_refused(fix.root_bytes, open_unpinned, "root record");
	every_change_is_refused(fix.root2_bytes, open_second, "root record");
}
END_TEST

/* Opens r, signed by these, as the successor of the fixture's (old) or by itself. */
static int signed_by(struct gw_root *r, const struct gw_root *old, const struct gw_key *a, const struct gw_key *b,
		     const struct gw_key *c)
{
	const struct gw_key *keys[] = {a, b, c};
	struct blob bytes = fixture_root(r, keys, c ? 3 : b ? 2 : a ? 1 : 0);
	struct gw_root out;
	int err = old ? gw_root_next(old, bytes.p, bytes.n, &out, NULL) : gw_root_open(bytes.p, bytes.n, NULL, &out, NULL);

	free(bytes.p);
	return err;
}

START_TEST(thresholds_count_each_key_once)
{
	const struct gw_key *k = fix.root_keys, *new_key = &fix.new_root_key;
	struct gw_root r = fix.root, r2 = fix.root2;

	ck_assert_int_eq(signed_by(&r, NULL, NULL, NULL, NULL), GW_ESIGNATURE);
	ck_assert_int_eq(signed_by(&r, NULL, &k[0], NULL, NULL), GW_ESIGNATURE);
	ck_assert_int_eq(signed_by(&r, NULL, &k[0], &k[0], NULL), GW_ESIGNATURE); /* sign adds nothing */
	ck_assert_int_eq(signed_by(&r, NULL, &k[0], &fix.stranger, NULL), GW_ESIGNATURE);
	ck_assert_int_eq(signed_by(&r, NULL, &k[1], &k[2], NULL), 0);
	ck_assert_int_eq(signed_by(&r, NULL, &k[1], &k[2], &fix.stranger), 0);
	/* The successor: two of the old keys and two of the new. */
	ck_assert_int_eq(signed_by(&r2, &fix.root, &k[0], new_key, NULL), GW_ESIGNATURE);
	ck_assert_int_eq(signed_by(&r2, &fix.root, &k[0], &k[2], NULL), GW_ESIGNATURE); /* k[2] is not among the new */
	ck_assert_int_eq(signed_by(&r2, &fix.root, &k[0], &k[1], NULL), 0);	       /* both are old and new */
	ck_assert_int_eq(signed_by(&r2, &fix.root, &k[0], &k[2], new_key), 0);
}
END_TEST

START_TEST(a_signature_repeated_by_hand_is_refused)
{
	/* One good signature, its entry copied: two entries, one key. */
	const struct gw_key *one[] = {&fix.root_keys[0]};
	struct blob b = fixture_root(&fix.root, one, 1);
	struct gw_root out;
	uint8_t *twice = malloc(b.n + 96);

	memcpy(twice, b.p, b.n - 1);
	memcpy(twice + b.n - 1, b.p + b.n - 97, 96);
	twice[b.n + 95] = 2;
	ck_assert_int_eq(gw_root_open(twice, b.n + 96, NULL, &out, NULL), GW_EDUPLICATE);
	free(twice);
	free(b.p);
}
END_TEST

START_TEST(a_root_that_skips_or_keeps_the_epoch_is_refused)
{
	const struct gw_key *k = fix.root_keys;
	struct gw_root r = fix.root2;

	r.version = 3;
	r.epoch = 3;
	ck_assert_int_eq(signed_by(&r, &fix.root, &k[0], &k[1], NULL), GW_EAGAIN);
	r.version = 2;
	r.epoch = 1;
	ck_assert_int_eq(signed_by(&r, &fix.root, &k[0], &k[1], NULL), GW_EMALFORMED);
}
END_TEST

#define ODD_ROOT(change) \
	do { \
		struct gw_root odd_r = fix.root, *r = &odd_r; \
		struct gw_wr w; \
		change; \
		gw_wr_init(&w, GW_ROOT_MAX); \
		ck_assert_msg(gw_root_write(r, &w, NULL) == GW_EINVAL, #change); \
		gw_wr_free(&w); \
	} while (0)

START_TEST(odd_roots_are_not_made)
{
	ODD_ROOT(r->version = 0);
	ODD_ROOT(r->epoch = 0);
	ODD_ROOT(r->threshold = 0);
	ODD_ROOT(r->threshold = 4);
	ODD_ROOT(r->key_count = 0);
	ODD_ROOT(r->key_count = GW_ROOT_KEYS_MAX + 1);
	ODD_ROOT(memcpy(r->keys[1], r->keys[0], 32)); /* would count twice */
	ODD_ROOT(r->expires_ns = r->created_ns);
	ODD_ROOT(r->releases[0].policy[0] = 0);
	ODD_ROOT(r->releases[0].until_ns = r->releases[0].from_ns);
	ODD_ROOT((r->releases[1] = r->releases[0], r->release_count = 2));
	ODD_ROOT(r->release_count = GW_ROOT_RELEASES_MAX + 1);
	ODD_ROOT((r->admissions[1] = r->admissions[0], r->admission_count = 2));
	ODD_ROOT(r->admissions[0].until_ns = 0);
}
END_TEST

/* The reader refuses the same, and thresholds that this version does not know, though signed. */
START_TEST(odd_roots_are_not_read)
{
	static const struct {
		size_t at;
		uint8_t value;
		int err;
	} odd[] = {
		{16, 0, GW_EMALFORMED},  /* version 0 */
		{48, 0, GW_EMALFORMED},  /* threshold 0 */
		{48, 9, GW_EMALFORMED},
		{49, 17, GW_ELIMIT},     /* keys */
		{50, 2, GW_EUNSUP},      /* release threshold */
		{51, 0, GW_EUNSUP},
		{52, 200, GW_ELIMIT},
		{54, 17, GW_ELIMIT},
		{49, 2, GW_EMALFORMED},  /* what follows is read shifted by a key */
	};

	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		struct gw_wr w, a, b;
		struct gw_root out;

		gw_wr_init(&w, GW_ROOT_MAX);
		gw_wr_init(&a, GW_ROOT_MAX);
		gw_wr_init(&b, GW_ROOT_MAX);
		ck_assert_int_eq(gw_root_write(&fix.root, &w, NULL), 0);
		w.p[odd[i].at] = odd[i].value;
		ck_assert_int_eq(gw_root_sign(w.p, w.n, fix.root_keys[0].sk, &a, NULL), 0);
		ck_assert_int_eq(gw_root_sign(a.p, a.n, fix.root_keys[1].sk, &b, NULL), 0);
		ck_assert_msg(gw_root_open(b.p, b.n, NULL, &out, NULL) == odd[i].err, "case %zu: %s", i,
			      gw_err_name(gw_root_open(b.p, b.n, NULL, &out, NULL)));
		gw_wr_free(&w);
		gw_wr_free(&a);
		gw_wr_free(&b);
	}
}
END_TEST

START_TEST(the_largest_root_fits)
{
	static struct gw_root r;
	struct gw_key k[GW_ROOT_KEYS_MAX];
	const struct gw_key *keys[GW_ROOT_KEYS_MAX];
	struct gw_root back;
	struct blob b;

	r = fix.root;
	r.key_count = r.threshold = GW_ROOT_KEYS_MAX;
	for (size_t i = 0; i < GW_ROOT_KEYS_MAX; i++) {
		fixture_key(&k[i], GW_KEY_ROOT, (uint8_t)(0x80 + i));
		keys[i] = &k[i];
		memcpy(r.keys[i], k[i].pk, 32);
	}
	r.release_count = GW_ROOT_RELEASES_MAX;
	for (size_t i = 0; i < GW_ROOT_RELEASES_MAX; i++) {
		r.releases[i] = r.releases[0];
		memset(r.releases[i].policy, 'p', GW_POLICY_NAME_MAX);
		r.releases[i].policy[0] = (char)('0' + i / 10);
		r.releases[i].policy[1] = (char)('0' + i % 10);
	}
	r.admission_count = GW_ROOT_ADMISSIONS_MAX;
	for (size_t i = 0; i < GW_ROOT_ADMISSIONS_MAX; i++) {
		r.admissions[i] = r.admissions[0];
		r.admissions[i].pk[0] = (uint8_t)i;
	}
	b = fixture_root(&r, keys, GW_ROOT_KEYS_MAX);
	ck_assert_int_eq(gw_root_open(b.p, b.n, NULL, &back, NULL), 0);
	ck_assert_str_eq(back.releases[63].policy, r.releases[63].policy);
	free(b.p);
}
END_TEST

START_TEST(only_the_role_signs)
{
	struct gw_manifest m = fix.transition, back;
	struct gw_head h = fix.head, opened;
	struct gw_root r = fix.root;
	struct gw_diag why = {""};
	uint8_t *bytes;
	size_t n;

	ck_assert_int_eq(gw_root_allows_release(&r, "demo", fix.release.pk, NOW_NS, NULL), 0);
	ck_assert_int_eq(gw_root_allows_release(&r, "other", fix.release.pk, NOW_NS, NULL), GW_EUNTRUSTED);
	ck_assert_int_eq(gw_root_allows_release(&r, "demo", fix.admission.pk, NOW_NS, &why), GW_EUNTRUSTED);
	ck_assert_ptr_nonnull(strstr(why.text, "demo"));
	ck_assert_int_eq(gw_root_allows_release(&r, "demo", fix.release.pk, r.releases[0].until_ns, NULL), GW_EEXPIRED);
	ck_assert_int_eq(gw_root_allows_release(&r, "demo", fix.release.pk, r.releases[0].from_ns - 1, NULL), GW_EEXPIRED);
	ck_assert_int_eq(gw_root_allows_release(&r, "demo", fix.release.pk, r.expires_ns, NULL), GW_EEXPIRED);
	ck_assert_int_eq(gw_root_allows_admission(&r, fix.admission.pk, NOW_NS, NULL), 0);
	ck_assert_int_eq(gw_root_allows_admission(&r, fix.release.pk, NOW_NS, NULL), GW_EUNTRUSTED);
	ck_assert_int_eq(gw_root_allows_admission(&r, fix.admission.pk, NOW_NS + 91 * DAY_NS, NULL), GW_EEXPIRED);

	/* A stranger's manifest; a release key's manifest for a policy that is not its own. */
	ck_assert_int_eq(gw_manifest_sign(&m, fix.stranger.sk, &bytes, &n), 0);
	ck_assert_int_eq(gw_root_open_manifest(&r, bytes, n, &back, NULL), GW_EUNTRUSTED);
	free(bytes);
	strcpy(m.policy, "other");
	ck_assert_int_eq(gw_manifest_sign(&m, fix.release.sk, &bytes, &n), 0);
	ck_assert_int_eq(gw_root_open_manifest(&r, bytes, n, &back, NULL), GW_EUNTRUSTED);
	free(bytes);

	/* A head by a release key that has ended since, and one made under a root that is not here yet. */
	ck_assert_int_eq(gw_root_open_head(&r, r.releases[0].until_ns, fix.head_bytes.p, fix.head_bytes.n, &opened, NULL),
			 GW_EEXPIRED);
	h.root_epoch = 2;
	ck_assert_int_eq(gw_head_sign(&h, fix.release.sk, &bytes, &n), 0);
	ck_assert_int_eq(gw_root_open_head(&r, NOW_NS, bytes, n, &opened, NULL), GW_EAGAIN);
	free(bytes);
	/* After the rotation the old release key is nobody's. */
	ck_assert_int_eq(gw_root_open_head(&fix.root2, NOW_NS, fix.head_bytes.p, fix.head_bytes.n, &opened, NULL), GW_EUNTRUSTED);
}
END_TEST

TCase *trust_root_tests(void (*set_up)(void), void (*tear_down)(void))
{
	TCase *t = tcase_create("roots");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, roots_open_and_follow);
	tcase_add_test(t, every_flipped_bit_of_a_root_is_refused);
	tcase_add_test(t, thresholds_count_each_key_once);
	tcase_add_test(t, a_signature_repeated_by_hand_is_refused);
	tcase_add_test(t, a_root_that_skips_or_keeps_the_epoch_is_refused);
	tcase_add_test(t, odd_roots_are_not_made);
	tcase_add_test(t, odd_roots_are_not_read);
	tcase_add_test(t, the_largest_root_fits);
	tcase_add_test(t, only_the_role_signs);
	return t;
}
