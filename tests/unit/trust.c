/* Records of a policy: names, keys, manifests, heads, tensor tables, freshness. Roots and members: trust_root.c,
 * trust_member.c. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "trust_tests.h"
#include "unit.h"

struct fixture fix;

static void set_up(void)
{
	ck_assert_int_eq(gw_trust_init(), 0);
	fixture_make(&fix);
}

static void tear_down(void)
{
	fixture_free(&fix);
}

/* --- names --- */

START_TEST(names_and_addresses)
{
	static const char *const good[] = {"demo", "Qwen2.5-7B", "a", "0_x"};
	static const char *const bad[] = {"", ".hidden", "-x", "a b", "a/b", "a\n", "caf\xc3\xa9", "..", "a:b"};
	static const char *const reachable[] = {"h:1", "10.0.0.1:65535", "[fd00::1]:7400", "host-1.eu.example:7400"};
	static const char *const nowhere[] = {"",	"h",	  "h:",	    "h:0",     "h:01",	  "h:65536", "h:1x",
					      ":1",	"a b:1",  "[]:1",   "[g::]:1", "fd00::1:7400", "[1.2]:3", "h:999999"};

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		ck_assert_msg(gw_name_ok(good[i], strlen(good[i]), 63), "%s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ck_assert_msg(!gw_name_ok(bad[i], strlen(bad[i]), 63), "%s", bad[i]);
	ck_assert(!gw_name_ok("abcd", 4, 3));
	for (size_t i = 0; i < sizeof reachable / sizeof reachable[0]; i++)
		ck_assert_msg(gw_address_ok(reachable[i], strlen(reachable[i])), "%s", reachable[i]);
	for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
		ck_assert_msg(!gw_address_ok(nowhere[i], strlen(nowhere[i])), "%s", nowhere[i]);
}
END_TEST

/* --- keys --- */

START_TEST(key_files_round_trip)
{
	char text[GW_KEY_FILE_MAX], again[GW_KEY_FILE_MAX];

	for (int kind = GW_KEY_ROOT; kind <= GW_KEY_HOST; kind++) {
		struct gw_key made, back;

		ck_assert_int_eq(gw_key_make(&made, (enum gw_key_kind)kind, "for a test", NULL), 0);
		ck_assert_int_eq(gw_key_kind_parse(gw_key_kind_name(made.kind)), kind);
		for (int secret = 0; secret < 2; secret++) {
			ck_assert_int_eq(gw_key_format(&made, secret, text), 0);
			ck_assert_int_eq(gw_key_parse(&back, text, strlen(text), NULL), 0);
			ck_assert_int_eq(back.secret, secret);
			ck_assert_str_eq(back.comment, "for a test");
			ck_assert_mem_eq(back.pk, made.pk, 32);
			ck_assert_mem_eq(back.curve_pk, made.curve_pk, 32);
			if (secret)
				ck_assert_mem_eq(back.sk, made.sk, 64);
			ck_assert_int_eq(gw_key_format(&back, secret, again), 0);
			ck_assert_str_eq(text, again);
		}
		ck_assert_int_eq(gw_key_format(&back, 1, again), 0);
		back.secret = 0;
		ck_assert_int_eq(gw_key_format(&back, 1, again), GW_EINVAL);
	}
}
END_TEST

START_TEST(damaged_key_files_are_refused_and_not_shown)
{
	char text[GW_KEY_FILE_MAX], bad[GW_KEY_FILE_MAX + 1];
	struct gw_key k;
	size_t n;

	ck_assert_int_eq(gw_key_format(&fix.host, 1, text), 0);
	n = strlen(text);
	for (size_t cut = 0; cut < n; cut++) {
		struct gw_diag why = {""};

		ck_assert_int_ne(gw_key_parse(&k, text, cut, &why), 0);
		ck_assert_ptr_null(strstr(why.text, "UFBQ")); /* the seed, 0x50 bytes, in base64 */
	}
	for (size_t i = 0; i < n; i++) {
		if (!memcmp(text + i, "comment: ", 9)) {
			i += 9; /* only the comment's text may change */
			continue;
		}
		memcpy(bad, text, n + 1);
		bad[i] = (char)(bad[i] ^ 1);
		/* The last character of a base64 line may not be canonical, but the key it stands for is checked by its
		 * id; the curve key has no such check, and its own bits decide. */
		if (!gw_key_parse(&k, bad, n, NULL))
			ck_assert_msg(i > (size_t)(strstr(text, "curve: ") - text), "byte %zu", i);
	}
	memcpy(bad, text, n);
	bad[n] = '\n';
	ck_assert_int_eq(gw_key_parse(&k, bad, n + 1, NULL), GW_ETRAILING);
	bad[11] = '2';
	ck_assert_int_eq(gw_key_parse(&k, bad, n, NULL), GW_EVERSION);
	ck_assert_int_eq(gw_key_make(&k, GW_KEY_ROOT, "two\nlines", NULL), GW_EINVAL);
}
END_TEST

START_TEST(z85_is_that_of_zeromq)
{
	/* The client's public key in ZeroMQ's RFC 32. */
	const char *text = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
	const uint8_t bytes[32] = {0x54, 0xfc, 0xba, 0x24, 0xe9, 0x32, 0x49, 0x96, 0x93, 0x16, 0xfb, 0x61, 0x7c, 0x87, 0x2b, 0xb0,
				   0xc1, 0xd1, 0xff, 0x14, 0x80, 0x04, 0x27, 0xc5, 0x94, 0xcb, 0xfa, 0xcf, 0x1b, 0xc2, 0xd6, 0x52};
	char out[GW_Z85_CHARS];
	uint8_t key[32];

	ck_assert_int_eq(gw_z85_decode(key, text), 0);
	ck_assert_mem_eq(key, bytes, 32);
	ck_assert_str_eq(gw_z85_encode(out, bytes), text);
	ck_assert_int_eq(gw_z85_decode(key, "short"), GW_EMALFORMED);
	ck_assert_int_eq(gw_z85_decode(key, "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf~"), GW_EMALFORMED);
	ck_assert_int_eq(gw_z85_decode(key, "#####>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"), GW_EMALFORMED); /* over 32 bits */
}
END_TEST

/* --- manifests and heads --- */

static int open_transition(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_manifest m;

	return gw_root_open_manifest(&fix.root, p, n, &m, why);
}

static int open_anchor(const void *p, size_t n, struct gw_diag *why)
{
	return open_transition(p, n, why);
}

static int open_head(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_head h;

	return gw_root_open_head(&fix.root, NOW_NS, p, n, &h, why);
}

START_TEST(manifests_and_heads_open)
{
	struct gw_manifest m;
	struct gw_head h;

	ck_assert_int_eq(gw_root_open_manifest(&fix.root, fix.transition_bytes.p, fix.transition_bytes.n, &m, NULL), 0);
	ck_assert_str_eq(m.policy, "demo");
	ck_assert_uint_eq(m.to, 8);
	ck_assert_uint_eq(m.changed, 1234);
	ck_assert(gw_digest_equal(&m.id, &fix.transition.id));
	ck_assert_mem_eq(m.digests, fix.digests, 64);
	ck_assert_int_eq(gw_manifest_applies(&m), 1);
	ck_assert_int_eq(gw_root_open_head(&fix.root, NOW_NS, fix.head_bytes.p, fix.head_bytes.n, &h, NULL), 0);
	ck_assert_uint_eq(h.newest, 8);
	ck_assert(gw_digest_equal(&h.anchors[0].manifest, &fix.anchor.id));
	ck_assert_int_eq(gw_head_names(&h, &m, NULL), 0);
}
END_TEST

START_TEST(every_flipped_bit_and_every_cut_is_refused)
{
	every_change_is_refused(fix.transition_bytes, open_transition, "manifest");
	every_change_is_refused(fix.anchor_bytes, open_anchor, "manifest");
	every_change_is_refused(fix.head_bytes, open_head, "head");
}
END_TEST

/* Signs what gw_manifest_sign would refuse to, and opens it. */
static int signed_and_opened(const struct gw_manifest *m, struct gw_diag *why)
{
	struct gw_manifest back;
	struct gw_wr w;
	int err;

	gw_wr_init(&w, 1 << 20);
	gw_manifest_write(m, &w);
	ck_assert_int_eq(gw_signed_seal(&w, 0, fix.release.sk), 0);
	err = gw_manifest_open(w.p, w.n, fix.release.pk, &back, why);
	gw_wr_free(&w);
	return err;
}

#define ODD(base, change) \
	do { \
		struct gw_manifest odd_m = (base), *m = &odd_m; \
		struct gw_diag why = {""}; \
		uint8_t *bytes; \
		size_t n; \
		change; \
		ck_assert_msg(signed_and_opened(m, &why) != 0, #change); \
		ck_assert_ptr_nonnull(strstr(why.text, "manifest")); \
		ck_assert_int_eq(gw_manifest_sign(m, fix.release.sk, &bytes, &n), GW_EINVAL); \
	} while (0)

START_TEST(odd_manifests_are_refused_though_signed)
{
	ck_assert_int_eq(signed_and_opened(&fix.transition, NULL), 0);
	ODD(fix.transition, m->kind = 0);
	ODD(fix.transition, m->encoding = 0);
	ODD(fix.transition, strcpy(m->policy, "no/name"));
	ODD(fix.transition, m->policy[0] = 0);
	ODD(fix.transition, m->from = m->to);
	ODD(fix.transition, m->from = m->to + 1);
	ODD(fix.transition, m->expires_ns = m->created_ns);
	ODD(fix.transition, m->object_bytes = 0);
	ODD(fix.transition, m->object_bytes = UINT64_MAX);
	ODD(fix.transition, m->object_bytes += 65536);
	ODD(fix.transition, m->tensor_table_bytes = 0);
	ODD(fix.transition, m->tensor_table_bytes = m->object_bytes);
	ODD(fix.transition, m->piece_bytes = 0);
	ODD(fix.transition, m->piece_bytes = 65537);
	ODD(fix.transition, m->piece_bytes = 8 << 20);
	ODD(fix.transition, m->object_pieces = 1);
	ODD(fix.transition, m->table_pieces = 1);
	ODD(fix.transition, m->digest_count = 1);
	ODD(fix.transition, m->changed = m->elements + 1);
	ODD(fix.anchor, m->to = 1);
	ODD(fix.anchor, m->before.lane[1] = 1);
	ODD(fix.anchor, m->table_pieces = m->digest_count = 0);
	ODD(fix.anchor, m->table_pieces = m->digest_count = 2);
}
END_TEST

START_TEST(trailing_bytes_under_a_signature_are_refused)
{
	struct gw_manifest m;
	struct gw_head h;
	struct gw_wr w;

	gw_wr_init(&w, 4096);
	gw_manifest_write(&fix.transition, &w);
	gw_wr_u8(&w, 0);
	ck_assert_int_eq(gw_signed_seal(&w, 0, fix.release.sk), 0);
	ck_assert_int_eq(gw_manifest_open(w.p, w.n, fix.release.pk, &m, NULL), GW_ETRAILING);
	w.n = 0;
	gw_head_write(&fix.head, &w);
	gw_wr_u8(&w, 0);
	ck_assert_int_eq(gw_signed_seal(&w, 0, fix.release.sk), 0);
	ck_assert_int_eq(gw_head_open(w.p, w.n, fix.release.pk, &h, NULL), GW_ETRAILING);
	gw_wr_free(&w);
}
END_TEST

START_TEST(unknown_kinds_are_carried_and_not_applied)
{
	struct gw_manifest m = fix.transition, back;
	uint8_t *bytes;
	size_t n;

	m.kind = 77;
	m.from = 99; /* means whatever that kind says */
	ck_assert_int_eq(gw_manifest_sign(&m, fix.release.sk, &bytes, &n), 0);
	ck_assert_int_eq(gw_manifest_open(bytes, n, fix.release.pk, &back, NULL), 0);
	ck_assert_int_eq(gw_manifest_applies(&back), 0);
	free(bytes);
	m = fix.transition;
	m.encoding = GW_ENCODING_SEALED;
	ck_assert_int_eq(gw_manifest_applies(&m), 0);
}
END_TEST

START_TEST(one_kind_of_record_never_passes_for_another)
{
	struct gw_manifest m;
	struct gw_head h;
	struct gw_diag why = {""};
	uint8_t *p = malloc(GW_MANIFEST_MAX + 1);

	ck_assert_int_eq(gw_head_open(fix.transition_bytes.p, fix.transition_bytes.n, fix.release.pk, &h, NULL), GW_EMALFORMED);
	ck_assert_int_eq(gw_manifest_open(fix.head_bytes.p, fix.head_bytes.n, fix.release.pk, &m, NULL), GW_EMALFORMED);
	ck_assert_int_eq(gw_manifest_open(fix.transition_bytes.p, fix.transition_bytes.n, fix.stranger.pk, &m, &why),
			 GW_ESIGNATURE);
	memset(p, 0, GW_MANIFEST_MAX + 1);
	memcpy(p, fix.transition_bytes.p, fix.transition_bytes.n);
	ck_assert_int_eq(gw_manifest_open(p, GW_MANIFEST_MAX + 1, fix.release.pk, &m, NULL), GW_ELIMIT);
	p[15] = '2';
	ck_assert_int_eq(gw_manifest_open(p, fix.transition_bytes.n, fix.release.pk, &m, NULL), GW_EVERSION);
	free(p);
}
END_TEST

START_TEST(pieces_add_up)
{
	const struct gw_manifest *m = &fix.anchor;
	uint8_t table[513 * 32];
	struct gw_digest d;
	uint64_t sum = 0;

	memset(table, 9, sizeof table);
	memset(table + 512 * 32, 8, 32);
	ck_assert_uint_eq(gw_manifest_pieces(m), 514);
	ck_assert_uint_eq(gw_manifest_piece_size(m, 0), sizeof table); /* one leaf */
	for (uint32_t i = 1; i < 514; i++)
		sum += gw_manifest_piece_size(m, i);
	ck_assert_uint_eq(sum, m->object_bytes);
	ck_assert_uint_eq(gw_manifest_piece_size(m, 513), 65536 - 7);
	ck_assert_uint_eq(gw_manifest_piece_size(m, 514), 0);
	ck_assert_int_eq(gw_manifest_piece_digest(m, 0, NULL, &d), 0);
	ck_assert_mem_eq(d.b, fix.digests, 32);
	ck_assert_int_eq(gw_manifest_piece_digest(m, 1, NULL, &d), GW_EAGAIN);
	ck_assert_int_eq(gw_manifest_piece_digest(m, 513, table, &d), 0);
	ck_assert_int_eq(d.b[0], 8);
	ck_assert_int_eq(gw_manifest_piece_digest(m, 514, table, &d), GW_EINVAL);
	m = &fix.transition;
	ck_assert_int_eq(gw_manifest_piece_digest(m, 1, NULL, &d), 0);
	ck_assert_mem_eq(d.b, fix.digests + 32, 32);
	ck_assert_uint_eq(gw_manifest_piece_size(m, 1), 100000 - 65536);

	ck_assert_uint_eq(gw_piece_bytes_for(1), 64 << 10);
	ck_assert_uint_eq(gw_piece_bytes_for(128 << 20), 128 << 10);
	ck_assert_uint_eq(gw_piece_bytes_for((256 << 20) - 1), 128 << 10);
	ck_assert_uint_eq(gw_piece_bytes_for(UINT64_MAX), 4 << 20);
}
END_TEST

#define ODD_HEAD(change) \
	do { \
		struct gw_head odd_h = fix.head, back, *h = &odd_h; \
		struct gw_wr w; \
		uint8_t *bytes; \
		size_t n; \
		change; \
		gw_wr_init(&w, 1 << 20); \
		gw_head_write(h, &w); \
		ck_assert_int_eq(gw_signed_seal(&w, 0, fix.release.sk), 0); \
		ck_assert_msg(gw_head_open(w.p, w.n, fix.release.pk, &back, NULL) != 0, #change); \
		gw_wr_free(&w); \
		ck_assert_int_eq(gw_head_sign(h, fix.release.sk, &bytes, &n), GW_EINVAL); \
	} while (0)

START_TEST(odd_heads_are_refused_though_signed)
{
	ODD_HEAD(h->policy[0] = '/');
	ODD_HEAD(h->root_epoch = 0);
	ODD_HEAD(h->sequence = 0);
	ODD_HEAD(h->expires_ns = h->created_ns);
	ODD_HEAD(h->expires_ns = h->created_ns + GW_HEAD_LIFE_MAX_NS + 1);
	ODD_HEAD(memset(h->manifest.b, 0, 32));
	ODD_HEAD(memset(h->anchors[0].manifest.b, 0, 32));
	ODD_HEAD(h->anchors[0].to = 1);
	ODD_HEAD(h->skips[0].from = h->skips[0].to);
	ODD_HEAD(h->skips[0].to = h->newest + 1);
}
END_TEST

START_TEST(full_heads_fit)
{
	struct gw_head h = fix.head, back;
	uint8_t *bytes;
	size_t n;

	memset(h.policy, 'p', GW_POLICY_NAME_MAX);
	h.anchor_count = h.skip_count = GW_HEAD_LIST_MAX;
	for (uint32_t i = 0; i < GW_HEAD_LIST_MAX; i++) {
		h.anchors[i] = fix.head.anchors[0];
		h.skips[i] = fix.head.skips[0];
	}
	ck_assert_int_eq(gw_head_sign(&h, fix.release.sk, &bytes, &n), 0);
	ck_assert_uint_le(n, GW_HEAD_MAX);
	ck_assert_int_eq(gw_head_open(bytes, n, fix.release.pk, &back, NULL), 0);
	ck_assert_uint_eq(back.skip_count, GW_HEAD_LIST_MAX);
	free(bytes);
}
END_TEST

/* --- tensor tables --- */

static int open_table(const void *p, size_t n, struct gw_diag *why)
{
	struct gw_tensor_table t;
	struct gw_digest d;
	int err = gw_tensor_table_open(&t, p, n, why);

	gw_digest_of(p, n, &d);
	if (!err && !gw_digest_equal(&d, &fix.transition.tensor_table))
		err = gw_diag_set(why, GW_EDIGEST, "tensor table refused");
	return err;
}

START_TEST(tensor_tables_read_back_strictly)
{
	struct gw_tensor_row row;
	struct gw_tensor_table t;

	ck_assert_int_eq(gw_tensor_table_open(&t, fix.table_bytes.p, fix.table_bytes.n, NULL), 0);
	ck_assert_uint_eq(t.rows, 3);
	ck_assert_int_eq(gw_tensor_table_next(&t, &row), 1);
	ck_assert_mem_eq(row.name, "model.embed.weight", 18);
	ck_assert_uint_eq(row.shape[0], 32000);
	ck_assert_int_eq(gw_tensor_table_next(&t, &row), 1);
	ck_assert_uint_eq(row.print[0], 0x1122334455667788);
	ck_assert_int_eq(gw_tensor_table_next(&t, &row), 1);
	ck_assert_uint_eq(row.rank, 0);
	ck_assert_int_eq(gw_tensor_table_next(&t, &row), 0);
	every_change_is_refused(fix.table_bytes, open_table, "tensor table");
}
END_TEST

START_TEST(tensor_tables_are_measured_at_the_start_of_an_object)
{
	struct gw_wr w;
	size_t n = 0;

	gw_wr_init(&w, 8192);
	gw_wr_bytes(&w, fix.table_bytes.p, fix.table_bytes.n);
	gw_wr_bytes(&w, "payload", 7);
	ck_assert_int_eq(gw_tensor_table_measure(w.p, w.n, &n, NULL), 0);
	ck_assert_uint_eq(n, fix.table_bytes.n);
	for (size_t cut = 0; cut < fix.table_bytes.n; cut++)
		ck_assert_int_lt(gw_tensor_table_measure(w.p, cut, &n, NULL), 0);
	gw_wr_free(&w);
}
END_TEST

START_TEST(odd_tensor_rows_are_refused)
{
	const struct gw_tensor_row good = {"b", 1, 11, 2, 1, {2, 3}, {0, 0}};
	struct gw_tensor_row bad[8], first = good;
	struct gw_tensor_table t;
	char name[GW_TENSOR_NAME_MAX + 1];
	struct gw_wr w;

	memset(name, 'x', sizeof name);
	for (size_t i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].name_bytes = 0;
	bad[1].dtype = 0;
	bad[2].rank = GW_TENSOR_RANK_MAX + 1;
	bad[3].axis = 2;
	bad[4].shape[0] = bad[4].shape[1] = 1ull << 33;
	bad[5].name = "\x1b";
	bad[6].name = "\xff";
	bad[7].name = name;
	bad[7].name_bytes = sizeof name;
	gw_wr_init(&w, 8192);
	for (size_t i = 0; i < 8; i++)
		ck_assert_int_eq(gw_tensor_table_add(&w, &bad[i]), GW_EINVAL);
	/* Names must rise: the same twice, and a lower one second. */
	for (int i = 0; i < 2; i++) {
		w.n = 0;
		gw_tensor_table_begin(&w, 2);
		ck_assert_int_eq(gw_tensor_table_add(&w, &good), 0);
		first.name = i ? "a" : "b";
		ck_assert_int_eq(gw_tensor_table_add(&w, &first), 0);
		ck_assert_int_eq(gw_tensor_table_open(&t, w.p, w.n, NULL), GW_EMALFORMED);
	}
	/* A count that the bytes cannot hold. */
	w.n = 0;
	gw_tensor_table_begin(&w, UINT32_MAX);
	ck_assert_int_eq(gw_tensor_table_open(&t, w.p, w.n, NULL), GW_ELIMIT);
	w.n = 0;
	gw_tensor_table_begin(&w, GW_TENSOR_ROWS_MAX);
	ck_assert_int_eq(gw_tensor_table_open(&t, w.p, w.n, NULL), GW_ETRUNC);
	gw_wr_free(&w);
}
END_TEST

/* --- freshness --- */

static int judge(const struct gw_counters *c, const struct gw_head *h, uint64_t wall_ns, enum gw_freshness *out,
		 struct gw_diag *why)
{
	return gw_head_judge(c, h, wall_ns, GW_FRESHNESS_FLOOR_NS, out, why);
}

START_TEST(an_older_head_is_refused)
{
	struct gw_head old = fix.head, other = fix.head;
	struct gw_counters c = {0};
	enum gw_freshness f;
	struct gw_diag why = {""};

	ck_assert_int_eq(judge(&c, &fix.head, NOW_NS, &f, NULL), 0);
	ck_assert_int_eq(f, GW_HEAD_FRESH);
	gw_counters_advance(&c, &fix.head);
	ck_assert_int_eq(judge(&c, &fix.head, NOW_NS, &f, NULL), 0);
	ck_assert_int_eq(f, GW_HEAD_KNOWN);

	old.sequence--;
	ck_assert_int_eq(judge(&c, &old, NOW_NS, &f, &why), GW_EROLLBACK);
	ck_assert_ptr_nonnull(strstr(why.text, "head of demo"));
	old.sequence += 2;
	old.newest--; /* a later head cannot take a version back */
	ck_assert_int_eq(judge(&c, &old, NOW_NS, &f, NULL), GW_EROLLBACK);
	old.run[0] ^= 1; /* a new run of the policy begins again */
	ck_assert_int_eq(judge(&c, &old, NOW_NS, &f, NULL), 0);
	old.sequence = fix.head.sequence - 1; /* but an old run cannot come back */
	ck_assert_int_eq(judge(&c, &old, NOW_NS, &f, NULL), GW_EROLLBACK);

	other.id.b[0] ^= 1;
	ck_assert_int_eq(judge(&c, &other, NOW_NS, &f, NULL), GW_EEQUIVOCATE);
}
END_TEST

START_TEST(a_new_root_undoes_a_fast_forward)
{
	struct gw_head thief = fix.head, owner = fix.head;
	struct gw_counters c = {0};
	enum gw_freshness f;

	thief.sequence = UINT64_MAX;
	thief.newest = UINT64_MAX;
	gw_counters_advance(&c, &thief);
	owner.sequence++;
	ck_assert_int_eq(judge(&c, &owner, NOW_NS, &f, NULL), GW_EROLLBACK);
	owner.root_epoch = 2;
	ck_assert_int_eq(judge(&c, &owner, NOW_NS, &f, NULL), 0);
	gw_counters_advance(&c, &owner);
	ck_assert_int_eq(judge(&c, &thief, NOW_NS, &f, NULL), GW_EROLLBACK);
}
END_TEST

START_TEST(an_expired_head_is_never_fresh)
{
	struct gw_head next = fix.head;
	struct gw_counters c = {0};
	enum gw_freshness f;

	ck_assert_int_eq(gw_head_is_fresh(&fix.head, fix.head.expires_ns - 1), 1);
	ck_assert_int_eq(gw_head_is_fresh(&fix.head, fix.head.expires_ns), 0);
	/* Counters stored: a later one is the newest known however old, and stale. */
	gw_counters_advance(&c, &fix.head);
	next.sequence++;
	ck_assert_int_eq(judge(&c, &next, next.expires_ns + 1000 * DAY_NS, &f, NULL), 0);
	ck_assert_int_eq(f, GW_HEAD_STALE);
	/* None stored: only within the floor. */
	memset(&c, 0, sizeof c);
	ck_assert_int_eq(judge(&c, &next, next.expires_ns + GW_FRESHNESS_FLOOR_NS, &f, NULL), 0);
	ck_assert_int_eq(f, GW_HEAD_STALE);
	ck_assert_int_eq(judge(&c, &next, next.expires_ns + GW_FRESHNESS_FLOOR_NS + 1, &f, NULL), GW_EEXPIRED);
	/* A clock that was set back by days. */
	ck_assert_int_eq(judge(&c, &next, next.created_ns - 3 * DAY_NS, &f, NULL), 0);
	ck_assert_int_eq(f, GW_HEAD_STALE);
	ck_assert_int_eq(judge(&c, &next, next.created_ns - GW_CLOCK_SKEW_NS, &f, NULL), 0);
	ck_assert_int_eq(f, GW_HEAD_FRESH);
}
END_TEST

START_TEST(mixed_manifests_and_heads_are_refused)
{
	struct gw_manifest m = fix.transition;

	ck_assert_int_eq(gw_head_names(&fix.head, &m, NULL), 0);
	m.run[3] ^= 1;
	ck_assert_int_eq(gw_head_names(&fix.head, &m, NULL), GW_EWRONGRUN);
	m = fix.transition;
	m.id.b[0] ^= 1;
	ck_assert_int_eq(gw_head_names(&fix.head, &m, NULL), GW_EDIGEST);
	m = fix.transition;
	strcpy(m.policy, "other");
	ck_assert_int_eq(gw_head_names(&fix.head, &m, NULL), GW_EWRONGRUN);
	m = fix.transition;
	m.to++;
	ck_assert_int_eq(gw_head_names(&fix.head, &m, NULL), GW_EMALFORMED);
}
END_TEST

START_TEST(counters_round_trip)
{
	struct gw_counters c;

	ck_assert_uint_eq(fix.counters_bytes.n, GW_COUNTERS_BYTES);
	ck_assert_int_eq(gw_counters_read(&c, fix.counters_bytes.p, fix.counters_bytes.n, NULL), 0);
	ck_assert(gw_counters_known(&c));
	ck_assert_uint_eq(c.sequence, 40);
	ck_assert(gw_digest_equal(&c.head, &fix.head.id));
	for (size_t n = 0; n < fix.counters_bytes.n; n++)
		ck_assert_int_ne(gw_counters_read(&c, fix.counters_bytes.p, n, NULL), 0);
	ck_assert(!gw_counters_known(&c));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("trust");
	TCase *t = tcase_create("policy records");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, names_and_addresses);
	tcase_add_test(t, key_files_round_trip);
	tcase_add_test(t, damaged_key_files_are_refused_and_not_shown);
	tcase_add_test(t, z85_is_that_of_zeromq);
	tcase_add_test(t, manifests_and_heads_open);
	tcase_add_test(t, every_flipped_bit_and_every_cut_is_refused);
	tcase_add_test(t, odd_manifests_are_refused_though_signed);
	tcase_add_test(t, trailing_bytes_under_a_signature_are_refused);
	tcase_add_test(t, unknown_kinds_are_carried_and_not_applied);
	tcase_add_test(t, one_kind_of_record_never_passes_for_another);
	tcase_add_test(t, pieces_add_up);
	tcase_add_test(t, odd_heads_are_refused_though_signed);
	tcase_add_test(t, full_heads_fit);
	tcase_add_test(t, tensor_tables_read_back_strictly);
	tcase_add_test(t, tensor_tables_are_measured_at_the_start_of_an_object);
	tcase_add_test(t, odd_tensor_rows_are_refused);
	tcase_add_test(t, an_older_head_is_refused);
	tcase_add_test(t, a_new_root_undoes_a_fast_forward);
	tcase_add_test(t, an_expired_head_is_never_fresh);
	tcase_add_test(t, mixed_manifests_and_heads_are_refused);
	tcase_add_test(t, counters_round_trip);
	suite_add_tcase(s, t);
	suite_add_tcase(s, trust_root_tests(set_up, tear_down));
	suite_add_tcase(s, trust_member_tests(set_up, tear_down));
	suite_add_tcase(s, trust_vector_tests(set_up, tear_down));
	return s;
}

UNIT_MAIN(suite)
