#include <assert.h>
#include <msgpack.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "unit.h"
#include "wire_random.h"

static uint64_t seed(void)
{
	const char *s = getenv("SEED");
	uint64_t v = s ? strtoull(s, NULL, 0) : 20240607;

	(void)fprintf(stderr, "SEED=%llu\n", (unsigned long long)v);
	return v;
}

/* This and each_message also run outside a test, where libcheck's assertions cannot. */
static char *rendered(const struct gw_msg *m)
{
	struct gw_wr w;
	uint8_t *p;
	size_t n;
	int err;

	gw_wr_init(&w, 16 << 20);
	wire_render(m, &w);
	gw_wr_u8(&w, 0);
	err = gw_wr_take(&w, &p, &n);
	assert(!err);
	return (char *)p;
}

/* A decoder that a frame cannot harm must survive this one, whatever it answers. */
static int decode(const void *p, size_t n)
{
	/* A copy of exactly that size, so that a sanitizer sees a read past its end. */
	uint8_t *exact = malloc(n ? n : 1);
	struct gw_arena a;
	struct gw_msg m;
	int err;

	memcpy(exact, p, n);
	gw_arena_init(&a, 4 << 20);
	err = gw_msg_decode(exact, n, &a, &m);
	if (err)
		ck_assert_int_eq(m.type, GW_MSG_NONE);
	gw_arena_reset(&a);
	free(exact);
	return err;
}

static void each_message(void (*test)(struct gw_rng *r, struct gw_arena *a, const struct gw_msg *m,
				      const struct gw_wr *frame),
			 int rounds)
{
	struct gw_arena a;
	struct gw_rng r;
	struct gw_msg m;
	unsigned walked = 0;

	gw_rng_init(&r, seed());
	gw_arena_init(&a, 64 << 20);
	for (unsigned number = 1; number < 256; number++) {
		if (!gw_msg_shape(number))
			continue;
		walked++;
		for (int i = 0; i < rounds; i++) {
			struct gw_wr w;
			int err;

			gw_wr_init(&w, GW_FRAME_MAX);
			wire_random(&r, &a, gw_msg_shape(number), &m);
			err = gw_msg_encode(&m, &w);
			assert(!err);
			test(&r, &a, &m, &w);
			gw_wr_free(&w);
			gw_arena_reset(&a);
		}
	}
	assert(walked);
}

static void round_trip(struct gw_rng *r, struct gw_arena *a, const struct gw_msg *m, const struct gw_wr *frame)
{
	char *sent = rendered(m), *got;
	msgpack_unpacked other;
	struct gw_msg back;
	size_t at = 0;

	(void)r;
	ck_assert_int_eq(gw_msg_decode(frame->p, frame->n, a, &back), 0);
	got = rendered(&back);
	ck_assert_str_eq(sent, got);
	free(sent);
	free(got);
	/* msgpack-c agrees that this is one array. */
	msgpack_unpacked_init(&other);
	ck_assert_int_eq(msgpack_unpack_next(&other, (const char *)frame->p, frame->n, &at), MSGPACK_UNPACK_SUCCESS);
	ck_assert_uint_eq(at, frame->n);
	ck_assert_int_eq(other.data.type, MSGPACK_OBJECT_ARRAY);
	ck_assert_uint_eq(other.data.via.array.ptr[0].via.u64, (uint64_t)m->type);
	msgpack_unpacked_destroy(&other);
}

START_TEST(every_message_round_trips)
{
	each_message(round_trip, 20);
}
END_TEST

static void cut(struct gw_rng *r, struct gw_arena *a, const struct gw_msg *m, const struct gw_wr *frame)
{
	(void)r;
	(void)a;
	(void)m;
	/* Long frames are long because of long fields: their ends and a sample between. */
	for (size_t n = 0; n < frame->n; n += n < 600 || frame->n - n < 600 ? 1 : 997)
		ck_assert_int_eq(decode(frame->p, n), GW_ETRUNC);
}

START_TEST(truncation_at_every_byte_is_an_error)
{
	each_message(cut, 2);
}
END_TEST

static void flip(struct gw_rng *r, struct gw_arena *a, const struct gw_msg *m, const struct gw_wr *frame)
{
	(void)a;
	(void)m;
	for (int i = 0; i < 200; i++) {
		size_t at = gw_rng_below(r, frame->n < 400 || i % 2 ? frame->n : 400);
		uint8_t was = frame->p[at];

		frame->p[at] = (uint8_t)(i % 3 ? was ^ 1u << gw_rng_below(r, 8) : gw_rng_u64(r));
		(void)decode(frame->p, frame->n);
		if (i % 4)
			frame->p[at] = was;
	}
}

START_TEST(flipped_bits_never_crash)
{
	each_message(flip, 2);
}
END_TEST

/* The wire knows at most four arrays in one another: a record holds no list. */
START_TEST(records_are_flat)
{
	for (unsigned number = 1; number < 256; number++) {
		const struct gw_shape *s = gw_msg_shape(number);

		for (const struct gw_field *f = s ? s->fields : NULL; f && f->kind != GW_FIELD_END; f++) {
			if (f->kind != GW_FIELD_LIST)
				continue;
			for (const struct gw_field *g = f->record->fields; g->kind != GW_FIELD_END; g++)
				ck_assert_msg(g->kind != GW_FIELD_LIST, "record %s holds the list %s", f->record->name, g->name);
		}
	}
	ck_assert_ptr_null(gw_msg_shape(0));
	ck_assert_ptr_null(gw_msg_shape(256));
	ck_assert_str_eq(gw_msg_name(GW_MSG_join_reply), "join_reply");
	ck_assert_str_eq(gw_msg_name(GW_MSG_NONE), "unknown");
}
END_TEST

/* --- single rules, on join_request [128, member, root, root_version] and join_reply --- */

static int decode_request(const void *p, size_t n, struct gw_msg *m)
{
	static struct gw_arena a;

	gw_arena_init(&a, 1 << 20);
	return gw_msg_decode(p, n, &a, m);
}

START_TEST(missing_last_fields_are_zero_and_more_are_ignored)
{
	const uint8_t few[] = {0x92, 0xcc, 128, 0xc4, 2, 'h', 'i'};
	uint8_t more[64] = {0x96, 0xcd, 0, 128, 0xc5, 0, 2, 'h', 'i', 0xc4, 32};
	const uint8_t tail[] = {0xd1, 0, 7, 0x92, 0x01, 0x91, 0xa1, 'x', 0xc3}; /* 7, [1, ["x"]], true */
	struct gw_msg m;

	ck_assert_int_eq(decode_request(few, sizeof few, &m), 0);
	ck_assert_uint_eq(m.u.join_request.member.n, 2);
	ck_assert_uint_eq(m.u.join_request.root_version, 0);

	memset(more + 11, 0xab, 32);
	memcpy(more + 43, tail, sizeof tail);
	ck_assert_int_eq(decode_request(more, 43 + sizeof tail, &m), 0);
	ck_assert_int_eq(m.type, GW_MSG_join_request);
	ck_assert_mem_eq(m.u.join_request.member.p, "hi", 2);
	ck_assert_uint_eq(m.u.join_request.root[31], 0xab);
	ck_assert_uint_eq(m.u.join_request.root_version, 7);
}
END_TEST

/* proto/MESSAGES.md, "Worked bytes" */
START_TEST(the_page_is_right)
{
	const uint8_t request[] = {0x94, 0xcc, 0x80, 0xc4, 2, 'h', 'i', 0xc4, 0x20};
	const uint8_t reply[] = {0x96, 0xcc, 0x81, 0xd0, 0xbf, 0xab, 't', 'o', 'k', 'e', 'n',
				 ' ',  'e',  'n',  'd',  'e',  'd',  0x90, 0x90, 0x90};
	struct gw_msg m = {.type = GW_MSG_join_request};
	struct gw_wr w;

	gw_wr_init(&w, GW_FRAME_MAX);
	m.u.join_request.member = (struct gw_bytes){(const uint8_t *)"hi", 2};
	memset(m.u.join_request.root, 0xab, 32);
	m.u.join_request.root_version = 7;
	ck_assert_int_eq(gw_msg_encode(&m, &w), 0);
	ck_assert_uint_eq(w.n, sizeof request + 33);
	ck_assert_mem_eq(w.p, request, sizeof request);
	ck_assert_uint_eq(w.p[w.n - 1], 7);
	w.n = 0;
	memset(&m, 0, sizeof m);
	m.type = GW_MSG_join_reply;
	m.u.join_reply.status = GW_EEXPIRED;
	m.u.join_reply.reason = (struct gw_text){"token ended", 11};
	ck_assert_int_eq(gw_msg_encode(&m, &w), 0);
	ck_assert_uint_eq(w.n, sizeof reply);
	ck_assert_mem_eq(w.p, reply, sizeof reply);
	gw_wr_free(&w);
}
END_TEST

START_TEST(odd_frames_are_refused)
{
	static const struct {
		const char *what;
		int err;
		uint8_t bytes[16];
		size_t n;
	} odd[] = {
		{"empty", GW_ETRUNC, {0}, 0},
		{"not an array", GW_EMALFORMED, {0x01}, 1},
		{"empty array", GW_EMALFORMED, {0x90}, 1},
		{"no number", GW_EMALFORMED, {0x91, 0xa1, 'x'}, 3},
		{"negative number", GW_EMALFORMED, {0x91, 0xff}, 2},
		{"number 0", GW_EUNKNOWN, {0x91, 0x00}, 2},
		{"number 255", GW_EUNKNOWN, {0x91, 0xcc, 255}, 3},
		{"number 256 + 128", GW_EUNKNOWN, {0x91, 0xcd, 1, 128}, 4},
		{"trailing byte", GW_ETRAILING, {0x91, 0x01, 0x00}, 3},
		{"nil", GW_EMALFORMED, {0x92, 0x01, 0xc0}, 3},
		{"map", GW_EMALFORMED, {0x92, 0x01, 0x80}, 3},
		{"float", GW_EMALFORMED, {0x92, 0x01, 0xca, 0, 0, 0, 0}, 7},
		{"extension", GW_EMALFORMED, {0x92, 0x01, 0xd4, 0, 0}, 5},
		{"reserved 0xc1", GW_EMALFORMED, {0x92, 0x01, 0xc1}, 3},
		{"array of 2^32-1", GW_ETRUNC, {0xdd, 0xff, 0xff, 0xff, 0xff, 1, 1, 1}, 8},
		{"list of 2^32-1", GW_ETRUNC, {0x92, 0xcc, 128, 0xdd, 0xff, 0xff, 0xff, 0xff}, 8},
		{"bytes of 2^32-1", GW_ETRUNC, {0x92, 0xcc, 128, 0xc6, 0xff, 0xff, 0xff, 0xff}, 8},
		{"five deep", GW_ELIMIT, {0x92, 0x01, 0x91, 0x91, 0x91, 0x91, 0x01}, 7},
		{"text for bytes", GW_EMALFORMED, {0x92, 0xcc, 128, 0xa1, 'x'}, 5},
		{"a fixed field cut", GW_EMALFORMED, {0x93, 0xcc, 128, 0xc4, 0, 0xc4, 1, 'x'}, 8},
		{"number for bytes", GW_EMALFORMED, {0x92, 0xcc, 128, 0x01}, 4},
		{"text with NUL", GW_EMALFORMED, {0x93, 0xcc, 129, 0x00, 0xa1, 0x00}, 6},
		{"text not UTF-8", GW_EMALFORMED, {0x93, 0xcc, 129, 0x00, 0xa2, 0xc0, 0x80}, 7},
		{"i64 over its range", GW_EMALFORMED, {0x92, 0xcc, 129, 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0}, 12},
		{"bool for i64", GW_EMALFORMED, {0x92, 0xcc, 129, 0xc3}, 4},
		{"list entry no array", GW_EMALFORMED, {0x94, 0xcc, 129, 0x00, 0xa0, 0x91, 0x01}, 7},
		{"list over its limit", GW_ELIMIT, {0x94, 0xcc, 129, 0x00, 0xa0, 0x99, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
		 0x90, 0x90}, 15},
	};

	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
		int err = decode(odd[i].bytes, odd[i].n);

		ck_assert_msg(err == odd[i].err, "%s: %s", odd[i].what, gw_err_name(err));
	}
}
END_TEST

/* One array of `entries` zeros in p; the frame's size. */
static size_t zeros(uint8_t *p, uint32_t entries)
{
	p[0] = 0xdd;
	for (int i = 0; i < 4; i++)
		p[1 + i] = (uint8_t)(entries >> (24 - 8 * i));
	return 5 + entries;
}

START_TEST(size_and_token_limits_come_before_anything_else)
{
	uint8_t *p = calloc(1, GW_FRAME_MAX + 1);

	ck_assert_int_eq(gw_frame_scan(p, GW_FRAME_MAX + 1), GW_ELIMIT);
	ck_assert_int_eq(gw_frame_scan(p, zeros(p, GW_FRAME_TOKENS_MAX - 1)), 0);
	ck_assert_int_eq(gw_frame_scan(p, zeros(p, GW_FRAME_TOKENS_MAX)), GW_ELIMIT);
	free(p);
}
END_TEST

START_TEST(integers_come_in_any_width)
{
	static const struct {
		uint8_t bytes[12]; /* of the status field */
		size_t n;
		int64_t value;
	} same[] = {
		{{0x05}, 1, 5},
		{{0xcc, 5}, 2, 5},
		{{0xcd, 0, 5}, 3, 5},
		{{0xd2, 0, 0, 0, 5}, 5, 5},
		{{0xcf, 0, 0, 0, 0, 0, 0, 0, 5}, 9, 5},
		{{0xd3, 0, 0, 0, 0, 0, 0, 0, 5}, 9, 5},
		{{0xff}, 1, -1},
		{{0xd0, 0x80}, 2, -128},
		{{0xd1, 0xff, 0xff}, 3, -1},
		{{0xd2, 0x80, 0, 0, 0}, 5, INT32_MIN},
		{{0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, 9, INT64_MIN},
		{{0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 9, INT64_MAX},
	};
	uint8_t bytes[16] = {0x92, 0xd1, 0, 129};
	struct gw_msg m;

	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
		memcpy(bytes + 4, same[i].bytes, sizeof same[i].bytes);
		ck_assert_int_eq(decode_request(bytes, 4 + same[i].n, &m), 0);
		ck_assert_int_eq(m.u.join_reply.status, same[i].value);
	}
}
END_TEST

START_TEST(encoder_refuses_what_the_decoder_would)
{
	static uint8_t big[3000];
	struct gw_r_root_record roots[9];
	struct gw_msg m = {.type = GW_MSG_join_request};
	struct gw_wr w;

	memset(roots, 0, sizeof roots);
	gw_wr_init(&w, GW_FRAME_MAX);
	gw_wr_u8(&w, 77);
	m.u.join_request.member = (struct gw_bytes){big, sizeof big};
	ck_assert_int_eq(gw_msg_encode(&m, &w), GW_ELIMIT);
	memset(&m, 0, sizeof m);
	m.type = GW_MSG_join_reply;
	m.u.join_reply.reason = (struct gw_text){"a\0b", 3};
	ck_assert_int_eq(gw_msg_encode(&m, &w), GW_EINVAL);
	m.u.join_reply.reason = (struct gw_text){"\xff", 1};
	ck_assert_int_eq(gw_msg_encode(&m, &w), GW_EINVAL);
	m.u.join_reply.reason = (struct gw_text){NULL, 0};
	m.u.join_reply.roots.v = roots;
	m.u.join_reply.roots.n = 9;
	ck_assert_int_eq(gw_msg_encode(&m, &w), GW_ELIMIT);
	m.type = (enum gw_msg_type)250;
	ck_assert_int_eq(gw_msg_encode(&m, &w), GW_EUNKNOWN);
	ck_assert_uint_eq(w.n, 1); /* as it was */
	ck_assert_int_eq(w.err, 0);
	gw_wr_free(&w);
	gw_wr_init(&w, 4); /* too small a buffer is sticky, as in base/buf.h */
	m.type = GW_MSG_join_reply;
	m.u.join_reply.roots.n = 3;
	ck_assert_int_eq(gw_msg_encode(&m, &w), GW_ELIMIT);
	ck_assert_int_eq(w.err, GW_ELIMIT);
	gw_wr_free(&w);
}
END_TEST

START_TEST(lists_that_the_arena_cannot_hold_are_over_a_limit)
{
	const uint8_t frame[] = {0x94, 0xcc, 129, 0x00, 0xa0, 0x98, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90};
	struct gw_arena a;
	struct gw_msg m;

	gw_arena_init(&a, 64);
	ck_assert_int_eq(gw_msg_decode(frame, sizeof frame, &a, &m), GW_ELIMIT);
	gw_arena_reset(&a);
}
END_TEST

START_TEST(utf8_is_strict)
{
	static const struct {
		const char *text;
		int ok;
	} t[] = {
		{"plain", 1},        {"\xc3\xa9", 1},         {"\xe2\x82\xac", 1},     {"\xf0\x9f\x98\x80", 1},
		{"\xf4\x8f\xbf\xbf", 1}, {"\x80", 0},         {"\xc3", 0},             {"\xc0\x80", 0},
		{"\xc1\xbf", 0},     {"\xe0\x80\x80", 0},     {"\xed\xa0\x80", 0},     {"\xf0\x80\x80\x80", 0},
		{"\xf4\x90\x80\x80", 0}, {"\xf5\x80\x80\x80", 0}, {"\xe2\x82", 0},     {"a\xe2\x28\xa1", 0},
	};

	for (size_t i = 0; i < sizeof t / sizeof t[0]; i++)
		ck_assert_int_eq(gw_utf8_ok(t[i].text, strlen(t[i].text)), t[i].ok);
	ck_assert(gw_utf8_ok("a\nb", 3));
	ck_assert(!gw_utf8_printable("a\nb", 3));
	ck_assert(!gw_utf8_printable("\x7f", 1));
	ck_assert(gw_utf8_printable("", 0));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("wire");
	TCase *t = tcase_create("messages");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, every_message_round_trips);
	tcase_add_test(t, truncation_at_every_byte_is_an_error);
	tcase_add_test(t, flipped_bits_never_crash);
	tcase_add_test(t, records_are_flat);
	tcase_add_test(t, missing_last_fields_are_zero_and_more_are_ignored);
	tcase_add_test(t, the_page_is_right);
	tcase_add_test(t, odd_frames_are_refused);
	tcase_add_test(t, size_and_token_limits_come_before_anything_else);
	tcase_add_test(t, integers_come_in_any_width);
	tcase_add_test(t, encoder_refuses_what_the_decoder_would);
	tcase_add_test(t, lists_that_the_arena_cannot_hold_are_over_a_limit);
	tcase_add_test(t, utf8_is_strict);
	suite_add_tcase(s, t);
	return s;
}

/* For the second reader (tests/py/messages_ref.py): frames, and what they must read as. */
static void print_frame(struct gw_rng *r, struct gw_arena *a, const struct gw_msg *m, const struct gw_wr *frame)
{
	char *text = rendered(m);

	(void)r;
	(void)a;
	for (size_t i = 0; i < frame->n; i++)
		(void)printf("%02x", frame->p[i]);
	(void)printf(" %s\n", text);
	free(text);
}

int main(int argc, char **argv)
{
	SRunner *r;
	int failed;

	if (argc > 1 && !strcmp(argv[1], "dump")) {
		each_message(print_frame, 5);
		return EXIT_SUCCESS;
	}
	r = srunner_create(suite());
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
