/*
 * An admitted member that is up to something: it links with hosts by the real keys of one that joined, keeps the links
 * alive, and misbehaves in the way that it is told. hostile_peer.py watches what becomes of its victims.
 *
 *     hostile_peer --key FILE --source ADDRESS --seed N --seconds S --mode MODE --object HEX --pieces N [--file FILE]
 *                  --identity HEX… --victim CURVE,CONTROL,BULK…
 *
 * Modes, several with commas between them: noise (any message with any fields), mangle (the
 * same in broken frames), garbage (has all, sends wrong bytes), silent (has all, sends
 * nothing), refuse (has all, is always busy), flood (asks for everything all the time), forge (heads, manifests and
 * member records that it has no right to), replay (the head and the manifest in FILE, again and again).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/hex.h"
#include "base/rng.h"
#include "io/os/clock.h"
#include "io/zmq/net.h"
#include "tests/unit/wire_random.h"
#include "trust/key.h"
#include "trust/manifest.h"
#include "trust/signed.h"
#include "wire/codec.h"

enum { VICTIMS_MAX = 4, POOL_MAX = 16, FILE_MAX = 64 * 1024, FRAME_BYTES = 512 * 1024 };

struct victim {
	void *socket[2]; /* control, bulk */
};

static struct {
	struct gw_key key;
	struct gw_rng rng;
	struct victim victims[VICTIMS_MAX];
	size_t victim_count;
	uint8_t pool[POOL_MAX][32]; /* object first, then identities */
	size_t pool_count;
	uint32_t pieces;
	uint64_t seconds, seed, sent, heard;
	const char *mode, *source;
	uint8_t file[FILE_MAX];
	size_t file_n;
} me;

static int is(const char *mode)
{
	return strstr(me.mode, mode) != NULL;
}

static int die(const char *what)
{
	fprintf(stderr, "hostile_peer: %s\n", what);
	exit(2);
}

/* --- sending --- */

static void send_bytes(struct victim *v, int bulk, const void *p, size_t n)
{
	if (zmq_send(v->socket[bulk], p, n, ZMQ_DONTWAIT) >= 0)
		me.sent++;
}

static void say(struct victim *v, int bulk, const struct gw_msg *m)
{
	struct gw_wr w;

	gw_wr_init(&w, FRAME_BYTES);
	if (!gw_msg_encode(m, &w))
		send_bytes(v, bulk, w.p, w.n);
	gw_wr_free(&w);
}

static void hello(struct victim *v)
{
	struct gw_msg m = {.type = GW_MSG_link_hello};

	m.u.link_hello.standing = 1;
	m.u.link_hello.incarnation = gw_clock_wall_ns() / 1000000000;
	say(v, 0, &m);
}

static void says_it_has_all(struct victim *v)
{
	struct gw_msg m = {.type = GW_MSG_have};

	memcpy(m.u.have.object, me.pool[0], 32);
	m.u.have.pieces = me.pieces;
	m.u.have.whole = 1;
	say(v, 0, &m);
}

/* --- what it answers --- */

static void garbage(struct victim *v, const struct gw_m_piece_get *get)
{
	static uint8_t wrong[GW_BLOCK_MAX];
	struct gw_msg m = {.type = GW_MSG_block};

	memcpy(m.u.block.object, get->object, 32);
	m.u.block.piece = get->piece;
	for (uint32_t at = 0; at < get->bytes; at += GW_BLOCK_MAX) {
		uint32_t left = get->bytes - at;

		m.u.block.offset = get->offset + at;
		m.u.block.data = (struct gw_bytes){wrong, left < GW_BLOCK_MAX ? left : GW_BLOCK_MAX};
		say(v, 1, &m);
	}
}

static void refuse(struct victim *v, const struct gw_m_piece_get *get)
{
	struct gw_msg m = {.type = GW_MSG_piece_refuse};

	memcpy(m.u.piece_refuse.object, get->object, 32);
	m.u.piece_refuse.piece = get->piece;
	m.u.piece_refuse.reason = 2;
	say(v, 0, &m);
}

static void answer(struct victim *v, const struct gw_msg *in)
{
	struct gw_msg m = {.type = GW_MSG_ack};

	switch (in->type) {
	case GW_MSG_ping:
		m.u.ack.seq = in->u.ping.seq;
		say(v, 0, &m);
		break;
	case GW_MSG_link_hello:
		m.type = GW_MSG_link_answer;
		m.u.link_answer.accepted = 1;
		say(v, 0, &m);
		break;
	case GW_MSG_have_ask:
		if (!memcmp(in->u.have_ask.object, me.pool[0], 32))
			says_it_has_all(v);
		break;
	case GW_MSG_piece_get:
		if (is("garbage"))
			garbage(v, &in->u.piece_get);
		else if (is("refuse"))
			refuse(v, &in->u.piece_get);
		break;
	default:
		break;
	}
}

static void listen_to(struct victim *v)
{
	static uint8_t frame[FRAME_BYTES];
	struct gw_arena arena;

	gw_arena_init(&arena, 4 << 20);
	for (int bulk = 0; bulk < 2; bulk++)
		for (int left = 64; left; left--) {
			int n = zmq_recv(v->socket[bulk], frame, sizeof frame, ZMQ_DONTWAIT);
			struct gw_msg m;

			if (n < 0)
				break;
			me.heard++;
			if (!gw_msg_decode(frame, (size_t)n, &arena, &m))
				answer(v, &m);
			gw_arena_reset(&arena);
		}
}

/* --- what it does by itself --- */

/* Names that mean something in most places where a name belongs, so that what follows is read too. */
static void know_things(const struct gw_shape *s, uint8_t *base)
{
	for (const struct gw_field *f = s->fields; f->kind != GW_FIELD_END; f++) {
		uint8_t *at = base + f->offset;

		if (f->kind == GW_FIELD_FIXED && f->limit <= 32 && gw_rng_below(&me.rng, 4)) {
			memcpy(at, me.pool[gw_rng_below(&me.rng, me.pool_count)], f->limit);
		} else if (f->kind == GW_FIELD_U32 && gw_rng_below(&me.rng, 2)) {
			*(uint32_t *)(void *)at = (uint32_t)gw_rng_below(&me.rng, me.pieces + 2u);
		} else if (f->kind == GW_FIELD_LIST) {
			struct gw_any_list list;

			memcpy(&list, at, sizeof list);
			for (size_t i = 0; i < list.n; i++)
				know_things(f->record, (uint8_t *)list.v + i * f->record->size);
		}
	}
}

static void mutilate(struct gw_wr *w)
{
	size_t at = w->n ? gw_rng_below(&me.rng, w->n) : 0;

	switch (gw_rng_below(&me.rng, 12)) {
	case 0:
		w->n = at;
		break;
	case 1:
		for (int i = 0; w->n && i < 8; i++)
			w->p[gw_rng_below(&me.rng, w->n < 64 ? w->n : 64)] ^= (uint8_t)(1u << gw_rng_below(&me.rng, 8));
		break;
	case 2:
		gw_wr_bytes(w, "\xdd\xff\xff\xff\xff", 5);
		break;
	default:
		break;
	}
}

static void noise(struct victim *v)
{
	struct gw_arena arena;
	const struct gw_shape *s;
	struct gw_msg m;
	struct gw_wr w;

	do
		s = gw_msg_shape((unsigned)gw_rng_below(&me.rng, gw_rng_below(&me.rng, 8) ? 128 : 256));
	while (!s);
	gw_arena_init(&arena, 4 << 20);
	gw_wr_init(&w, FRAME_BYTES);
	wire_random(&me.rng, &arena, s, &m);
	know_things(s, (uint8_t *)&m.u);
	if (!gw_msg_encode(&m, &w)) {
		if (is("mangle"))
			mutilate(&w);
		if (w.n)
			send_bytes(v, s->number == GW_MSG_block || !gw_rng_below(&me.rng, 16), w.p, w.n);
	}
	gw_wr_free(&w);
	gw_arena_reset(&arena);
}

static void flood(struct victim *v)
{
	struct gw_r_member_id ids[64];
	struct gw_msg m = {.type = GW_MSG_piece_get};

	memcpy(m.u.piece_get.object, me.pool[0], 32);
	m.u.piece_get.piece = (uint32_t)gw_rng_below(&me.rng, me.pieces);
	m.u.piece_get.bytes = GW_BLOCK_MAX >> gw_rng_below(&me.rng, 2);
	for (int i = 0; i < 16; i++)
		say(v, 0, &m);
	memset(&m, 0, sizeof m);
	m.type = GW_MSG_status_request;
	m.u.status_request.query = gw_rng_u64(&me.rng);
	say(v, 0, &m);
	memset(&m, 0, sizeof m);
	m.type = GW_MSG_member_ask;
	for (size_t i = 0; i < 64; i++)
		memcpy(ids[i].identity, me.pool[1 + i % (me.pool_count - 1)], 32);
	m.u.member_ask.hosts.v = ids;
	m.u.member_ask.hosts.n = 64;
	say(v, 0, &m);
	memset(&m, 0, sizeof m);
	m.type = GW_MSG_have_ask;
	memcpy(m.u.have_ask.object, me.pool[0], 32);
	say(v, 0, &m);
	m.type = GW_MSG_table_buckets;
	memset(&m.u, 0, sizeof m.u);
	m.u.table_buckets.digests = (struct gw_bytes){(const uint8_t *)ids, 512};
	say(v, 0, &m);
}

/* A head of its own making, signed by the only key that it has. */
static void forge(struct victim *v)
{
	struct gw_head h = {.root_epoch = 1, .sequence = UINT64_MAX - gw_rng_below(&me.rng, 1000), .newest = 1000};
	struct gw_r_member_news news = {.state = 0, .incarnation = 99};
	uint8_t *bytes = NULL, record[200];
	struct gw_msg m = {.type = GW_MSG_head};
	size_t n;

	(void)snprintf(h.policy, sizeof h.policy, "%s", "tiny-rl");
	h.created_ns = gw_clock_wall_ns();
	h.expires_ns = h.created_ns + 60000000000;
	memset(h.manifest.b, 7, 32);
	if (!gw_head_sign(&h, me.key.sk, &bytes, &n)) {
		m.u.head.head = (struct gw_bytes){bytes, n};
		say(v, 0, &m);
	}
	free(bytes);
	/* Somebody else's record, as it might look with other addresses. */
	for (size_t i = 0; i < sizeof record; i++)
		record[i] = (uint8_t)gw_rng_u64(&me.rng);
	memcpy(news.identity, me.pool[1], 32);
	news.record = (struct gw_bytes){record, sizeof record};
	memset(&m, 0, sizeof m);
	m.type = GW_MSG_member_news;
	m.u.member_news.members.v = &news;
	m.u.member_news.members.n = 1;
	say(v, 0, &m);
	/* And out of reach at a number that it cannot top. */
	news.record.n = 0;
	news.state = 2;
	news.incarnation = UINT64_MAX;
	say(v, 0, &m);
}

static void replay(struct victim *v)
{
	struct gw_msg m = {.type = GW_MSG_head};

	m.u.head.head = (struct gw_bytes){me.file, me.file_n};
	say(v, 0, &m);
}

static void turn(struct victim *v)
{
	for (int i = 0; (is("noise") || is("mangle")) && i < 32; i++)
		noise(v);
	if (is("flood"))
		flood(v);
	if (is("replay"))
		replay(v);
	if (is("forge"))
		forge(v);
	if (is("silent") || is("garbage") || is("refuse"))
		says_it_has_all(v);
}

/* --- beginning --- */

static void read_file(const char *path, uint8_t *p, size_t max, size_t *n)
{
	FILE *f = fopen(path, "rb");

	*n = f ? fread(p, 1, max, f) : 0;
	if (!f || !*n)
		die(path);
	(void)fclose(f);
}

static void add_name(const char *hex)
{
	if (me.pool_count == POOL_MAX || gw_unhex(me.pool[me.pool_count++], 32, hex))
		die("a name is not 32 bytes in hexadecimal");
}

static void connect_one(void *context, int bulk, const uint8_t key[32], const char *address, void **out)
{
	struct gw_net_config own = {0};
	char endpoint[2 * GW_NET_ENDPOINT_MAX];

	memcpy(own.curve_pk, me.key.curve_pk, 32);
	memcpy(own.curve_sk, me.key.curve_sk, 32);
	if (gw_net_socket_in(context, bulk ? GW_NET_BULK_OUT : GW_NET_CONTROL_OUT, &own, key, out, NULL) ||
	    gw_net_endpoint_from(endpoint, me.source, address) || zmq_connect(*out, endpoint))
		die("cannot connect");
}

static void add_victim(void *context, char *text)
{
	struct victim *v = &me.victims[me.victim_count];
	char *save = NULL, *key = strtok_r(text, ",", &save), *control = strtok_r(NULL, ",", &save), *bulk = strtok_r(NULL, ",", &save);
	uint8_t curve[32];

	if (me.victim_count == VICTIMS_MAX || !bulk || gw_z85_decode(curve, key))
		die("--victim CURVE,CONTROL,BULK");
	connect_one(context, 0, curve, control, &v->socket[0]);
	connect_one(context, 1, curve, bulk, &v->socket[1]);
	me.victim_count++;
}

static void options(int argc, char **argv, void *context)
{
	char text[GW_KEY_FILE_MAX];
	size_t n;

	for (int i = 1; i + 1 < argc; i += 2) {
		const char *o = argv[i];
		char *v = argv[i + 1];

		if (!strcmp(o, "--key")) {
			read_file(v, (uint8_t *)text, sizeof text, &n);
			if (gw_key_parse(&me.key, text, n, NULL))
				die("no key");
		} else if (!strcmp(o, "--source")) {
			me.source = v;
		} else if (!strcmp(o, "--seed")) {
			me.seed = strtoull(v, NULL, 10);
		} else if (!strcmp(o, "--seconds")) {
			me.seconds = strtoull(v, NULL, 10);
		} else if (!strcmp(o, "--mode")) {
			me.mode = v;
		} else if (!strcmp(o, "--object") || !strcmp(o, "--identity")) {
			add_name(v);
		} else if (!strcmp(o, "--pieces")) {
			me.pieces = (uint32_t)strtoul(v, NULL, 10);
		} else if (!strcmp(o, "--file")) {
			read_file(v, me.file, sizeof me.file, &me.file_n);
		} else if (!strcmp(o, "--victim")) {
			add_victim(context, v);
		} else {
			die(o);
		}
	}
	if (!me.victim_count || !me.pool_count || !me.mode || !me.pieces)
		die("something is missing");
}

int main(int argc, char **argv)
{
	void *context = zmq_ctx_new();
	uint64_t now, end, spoke = 0;

	if (gw_trust_init())
		die("libsodium");
	options(argc, argv, context);
	gw_rng_init(&me.rng, me.seed);
	end = gw_clock_mono_ns() + me.seconds * 1000000000;
	for (size_t i = 0; i < me.victim_count; i++)
		hello(&me.victims[i]);
	while ((now = gw_clock_mono_ns()) < end) {
		zmq_pollitem_t items[2 * VICTIMS_MAX];

		for (size_t i = 0; i < 2 * me.victim_count; i++)
			items[i] = (zmq_pollitem_t){me.victims[i / 2].socket[i % 2], 0, ZMQ_POLLIN, 0};
		(void)zmq_poll(items, (int)(2 * me.victim_count), 1);
		for (size_t i = 0; i < me.victim_count; i++)
			listen_to(&me.victims[i]);
		if (now - spoke < 2000000)
			continue;
		spoke = now;
		for (size_t i = 0; i < me.victim_count; i++) {
			if (!gw_rng_below(&me.rng, 500))
				hello(&me.victims[i]);
			turn(&me.victims[i]);
		}
	}
	printf("%llu frames sent, %llu heard\n", (unsigned long long)me.sent, (unsigned long long)me.heard);
	for (size_t i = 0; i < 2 * me.victim_count; i++)
		(void)zmq_close(me.victims[i / 2].socket[i % 2]);
	(void)zmq_ctx_term(context);
	return me.heard ? 0 : 1;
}
