#include "swarm_net.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

enum delivery_kind { TO_HOST, SENT };

struct delivery {
	struct gw_event ev;
	struct gw_msg msg;
	int to;
	uint8_t *owned;
};

static uint8_t zeros[GW_BLOCK_MAX], lies[GW_BLOCK_MAX];

const char *net_region_name(int region)
{
	static const char *const names[NET_REGIONS] = {"amber", "birch", "cedar", "dune"};

	return names[region];
}

gw_host net_handle(int host)
{
	return (gw_host)host + 1;
}

static int host_of(gw_host handle)
{
	return (int)handle - 1;
}

/* A region's handle as that host numbers it: its own is 0. */
static uint32_t region_handle(const struct net *n, int host, int region)
{
	int own = n->hosts[host].region;

	return (uint32_t)(region == own ? 0 : region < own ? region + 1 : region);
}

static int object_index(const struct net *n, const uint8_t *id)
{
	int i;

	for (i = 0; i < NET_OBJECTS; i++)
		if (n->objects[i].pieces && memcmp(n->objects[i].m.id.b, id, 32) == 0)
			return i;
	ck_abort_msg("an object nobody made");
	return -1;
}

static void mix(struct net *n, uint64_t v)
{
	uint64_t s = n->trace ^ v;

	n->trace = gw_splitmix64(&s);
}

static void later(struct net *n, uint64_t at, int to, const struct gw_event *ev, const struct gw_msg *msg,
		  uint8_t *owned)
{
	struct delivery *d = calloc(1, sizeof *d);

	d->ev = *ev;
	d->to = to;
	d->owned = owned;
	if (msg)
		d->msg = *msg;
	ck_assert_int_eq(gw_heap_push(&n->events, at, msg != NULL, d), 0);
}

static uint64_t delay(const struct net *n, int a, int b)
{
	return n->hosts[a].region == n->hosts[b].region ? n->near_ns : n->far_ns;
}

/* --- actions --- */

static void count_request(struct net *n, int from, int to, const struct gw_msg *m)
{
	struct net_host *h = &n->hosts[from];

	if (m->type != GW_MSG_piece_get)
		return;
	if (h->region == n->hosts[to].region)
		h->asked_near_bytes += m->u.piece_get.bytes;
	else
		h->asked_far_bytes += m->u.piece_get.bytes;
}

static void send_msg(struct net *n, int from, const struct gw_action *a)
{
	int to = host_of(a->host);
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(from)};
	struct gw_msg msg = *a->msg;
	uint8_t *owned = NULL;

	n->hosts[from].sent[msg.type]++;
	mix(n, (uint64_t)from << 40 | (uint64_t)to << 32 | msg.type);
	if (!n->hosts[from].linked[to])
		return;
	count_request(n, from, to, &msg);
	if (msg.type == GW_MSG_piece_get && n->hosts[to].mute)
		return;
	if (msg.type == GW_MSG_have && msg.u.have.bits.n) {
		owned = malloc(msg.u.have.bits.n);
		memcpy(owned, msg.u.have.bits.p, msg.u.have.bits.n);
		msg.u.have.bits.p = owned;
	}
	later(n, n->now + delay(n, from, to), to, &ev, &msg, owned);
}

void net_say(struct net *n, int from, int to, const struct gw_msg *m)
{
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(from)};

	if (n->hosts[from].linked[to])
		later(n, n->now + delay(n, from, to), to, &ev, m, NULL);
}

static void count_crossing(struct net *n, int object, int from, int to, const struct gw_action *a)
{
	int rf = n->hosts[from].region, rt = n->hosts[to].region;

	if (rf == rt)
		return;
	n->border_bytes[object][rf][rt] += a->bytes;
	if (a->offset == 0) {
		n->crossings[object][a->piece][rt]++;
		if (!n->crossed_by[object][a->piece])
			n->crossed_by[object][a->piece] = to + 1;
	}
}

static void send_block(struct net *n, int from, const struct gw_action *a)
{
	struct net_host *h = &n->hosts[from];
	int to = host_of(a->host), object = object_index(n, a->object.b);
	struct gw_event ev = {.kind = GW_EV_MSG, .host = net_handle(from)}, sent = {.kind = GW_EV_BLOCK_SENT,
										    .host = a->host,
										    .object = a->object,
										    .piece = a->piece,
										    .bytes = a->bytes};
	struct gw_msg msg = {.type = GW_MSG_block};

	ck_assert(h->store[object].have[a->piece / 8] >> (a->piece % 8) & 1);
	ck_assert_uint_le(a->bytes, GW_BLOCK_MAX);
	if (h->uplink_free_ns < n->now)
		h->uplink_free_ns = n->now;
	h->uplink_free_ns += a->bytes * 1000000000ull / n->uplink_bytes_per_s;
	later(n, h->uplink_free_ns, from, &sent, NULL, NULL);
	if (!h->linked[to])
		return;
	h->blocks_out++;
	count_crossing(n, object, from, to, a);
	memcpy(msg.u.block.object, a->object.b, 32);
	msg.u.block.piece = a->piece;
	msg.u.block.offset = (uint32_t)a->offset;
	msg.u.block.data.p = h->liar ? lies : zeros;
	msg.u.block.data.n = (size_t)a->bytes;
	later(n, h->uplink_free_ns + delay(n, from, to), to, &ev, &msg, NULL);
}

static void open_object(struct net *n, int host, const struct gw_digest *id)
{
	int object = object_index(n, id->b);
	struct net_store *st = &n->hosts[host].store[object];
	struct gw_event ev = {
		.kind = GW_EV_OBJECT_OPEN, .object = *id, .piece_count = n->objects[object].pieces, .have = st->have};

	st->open = 1;
	later(n, n->now + 100000, host, &ev, NULL, NULL);
}

static void store_block(struct net *n, int host, const struct gw_action *a)
{
	struct net_store *st = &n->hosts[host].store[object_index(n, a->object.b)];

	if (a->offset == 0)
		st->got[a->piece] = st->bad[a->piece] = 0;
	st->got[a->piece] += (uint32_t)a->bytes;
	st->bad[a->piece] |= a->data.p == lies;
}

static void check_piece(struct net *n, int host, const struct gw_action *a)
{
	int object = object_index(n, a->object.b);
	struct net_store *st = &n->hosts[host].store[object];
	struct gw_event ev = {.kind = GW_EV_PIECE_OK, .object = a->object, .piece = a->piece, .host = a->host};

	ck_assert_uint_eq(st->got[a->piece], gw_manifest_piece_size(&n->objects[object].m, a->piece));
	if (st->bad[a->piece])
		ev.kind = GW_EV_PIECE_BAD;
	else
		st->have[a->piece / 8] |= (uint8_t)(1u << (a->piece % 8));
	later(n, n->now + 200000, host, &ev, NULL, NULL);
}

static void link_both(struct net *n, int a, int b)
{
	struct gw_event ev = {.kind = GW_EV_LINK_UP};

	if (n->hosts[a].linked[b])
		return;
	n->hosts[a].linked[b] = n->hosts[b].linked[a] = 1;
	ev.host = net_handle(b);
	later(n, n->now + delay(n, a, b), a, &ev, NULL, NULL);
	ev.host = net_handle(a);
	later(n, n->now + delay(n, a, b), b, &ev, NULL, NULL);
}

static void connect_to(struct net *n, int from, int to)
{
	struct gw_event ev = {.kind = GW_EV_LINK_DOWN, .host = net_handle(to)};

	if (n->hosts[to].alive)
		link_both(n, from, to);
	else
		later(n, n->now + 10 * delay(n, from, to), from, &ev, NULL, NULL);
}

static void act(struct net *n, int host, const struct gw_action *a)
{
	struct net_host *h = &n->hosts[host];
	struct gw_event ev = {.kind = GW_EV_TIMER, .key = a->key};

	switch (a->kind) {
	case GW_ACT_TIMER:
		ck_assert_uint_eq(GW_KEY_MACHINE(a->key), GW_KEY_SWARM);
		later(n, a->at_ns > n->now ? a->at_ns : n->now, host, &ev, NULL, NULL);
		break;
	case GW_ACT_SEND:
		send_msg(n, host, a);
		break;
	case GW_ACT_CONNECT:
		connect_to(n, host, host_of(a->host));
		break;
	case GW_ACT_DISCONNECT:
		break; /* the other side may still want it: it stays */
	case GW_ACT_OBJECT_OPEN:
		open_object(n, host, &a->object);
		break;
	case GW_ACT_BLOCK_SEND:
		send_block(n, host, a);
		break;
	case GW_ACT_BLOCK_STORE:
		store_block(n, host, a);
		break;
	case GW_ACT_PIECE_CHECK:
		check_piece(n, host, a);
		break;
	case GW_ACT_TELL:
		ck_assert_int_eq(a->event.kind, GW_EV_OBJECT_WHOLE);
		h->store[object_index(n, a->event.object.b)].whole++;
		break;
	case GW_ACT_LOG:
		if (h->log_count < NET_LOGS) {
			h->log_host[h->log_count] = a->host;
			h->logs[h->log_count++] = a->text;
		}
		break;
	default:
		ck_abort_msg("an action that the swarm has no business with: %d", (int)a->kind);
	}
}

/* What must hold after every step. */
static void check_host(struct net *n, int host)
{
	struct gw_swarm_totals t;

	gw_swarm_totals(n->hosts[host].swarm, &t);
	ck_assert_uint_le(t.in_flight_bytes, n->cfg.budget_bytes ? n->cfg.budget_bytes : 64 << 20);
	ck_assert_uint_le(t.queued, GW_SWARM_QUEUE_MAX);
	if (t.in_flight_bytes > n->hosts[host].most_in_flight)
		n->hosts[host].most_in_flight = t.in_flight_bytes;
}

void net_event(struct net *n, int host, struct gw_event *ev)
{
	struct net_host *h = &n->hosts[host];
	size_t i;

	if (!h->alive)
		return;
	if (h->puppet) {
		if (ev->kind == GW_EV_MSG)
			h->puppet(n, host, host_of(ev->host), ev->msg);
		return;
	}
	ev->now_ns = n->now;
	ev->wall_ns = 1800000000 * NET_S + n->now;
	n->steps++;
	gw_actions_reset(&n->out);
	ck_assert_int_eq(gw_swarm_step(h->swarm, ev, &n->out), 0);
	for (i = 0; i < n->out.n; i++)
		act(n, host, &n->out.v[i]);
	check_host(n, host);
}

/* --- the net --- */

void net_init(struct net *n, uint64_t seed)
{
	memset(n, 0, sizeof *n);
	memset(lies, 0xbd, sizeof lies);
	gw_rng_init(&n->rng, seed);
	gw_heap_init(&n->events);
	gw_actions_init(&n->out);
	n->now = 1000 * NET_S;
	n->uplink_bytes_per_s = 100 << 20;
	n->near_ns = NET_MS / 2;
	n->far_ns = 40 * NET_MS;
}

static void drop(struct delivery *d)
{
	free(d->owned);
	free(d);
}

void net_free(struct net *n)
{
	int i;

	while (gw_heap_top(&n->events))
		drop(gw_heap_pop(&n->events).ptr);
	gw_heap_free(&n->events);
	gw_actions_free(&n->out);
	for (i = 0; i < n->n; i++)
		gw_swarm_free(n->hosts[i].swarm);
}

static void boot(struct net *n, int host)
{
	struct net_host *h = &n->hosts[host];
	struct gw_swarm_config cfg = n->cfg;
	struct gw_event ev = {.kind = GW_EV_START};

	cfg.seed = gw_rng_u64(&n->rng);
	cfg.region = net_region_name(h->region);
	memcpy(cfg.identity, h->identity, sizeof cfg.identity);
	gw_swarm_free(h->swarm);
	ck_assert_int_eq(gw_swarm_new(&h->swarm, &cfg, NULL), 0);
	h->alive = 1;
	net_event(n, host, &ev);
}

int net_add(struct net *n, int region)
{
	struct net_host *h = &n->hosts[n->n];
	size_t i;

	ck_assert_int_lt(n->n, NET_HOSTS);
	h->region = region;
	for (i = 0; i < sizeof h->identity; i++)
		h->identity[i] = (uint8_t)gw_rng_u64(&n->rng);
	boot(n, n->n);
	return n->n++;
}

/* `host` learns that `who` is up. */
static void introduce(struct net *n, int host, int who)
{
	const char *name = net_region_name(n->hosts[who].region);
	struct gw_event ev = {.kind = GW_EV_MEMBER_UP,
			      .host = net_handle(who),
			      .region = region_handle(n, host, n->hosts[who].region),
			      .identity = n->hosts[who].identity,
			      .region_name = {name, strlen(name)}};

	net_event(n, host, &ev);
}

void net_join(struct net *n, int host)
{
	int i;

	for (i = 0; i < n->n; i++) {
		if (i == host || !n->hosts[i].alive)
			continue;
		introduce(n, i, host);
		introduce(n, host, i);
		if (n->hosts[i].region == n->hosts[host].region)
			link_both(n, i, host);
	}
}

void net_meet(struct net *n)
{
	int i, k;

	for (i = 0; i < n->n; i++)
		for (k = 0; k < n->n; k++)
			if (i != k) {
				introduce(n, i, k);
				if (!n->no_links && n->hosts[i].region == n->hosts[k].region)
					link_both(n, i, k);
			}
	net_run(n, -1, n->now + 3 * NET_S); /* links up, views settled */
}

void net_object(struct net *n, int object, uint32_t pieces, uint32_t leaves, uint32_t piece_bytes)
{
	struct net_object *o = &n->objects[object];

	o->pieces = pieces + leaves;
	o->m.piece_bytes = piece_bytes;
	o->m.object_pieces = pieces;
	o->m.table_pieces = leaves;
	o->m.object_bytes = (uint64_t)(pieces - 1) * piece_bytes + piece_bytes / 2;
	o->m.digest_count = leaves ? leaves : pieces;
	o->m.created_ns = 1;
	memset(o->m.id.b, 0x40 + object, sizeof o->m.id.b);
	ck_assert_uint_eq(gw_manifest_pieces(&o->m), o->pieces);
}

void net_give(struct net *n, int host, int object, uint32_t pieces)
{
	uint32_t i;

	for (i = 0; i < pieces; i++)
		n->hosts[host].store[object].have[i / 8] |= (uint8_t)(1u << (i % 8));
}

void net_want(struct net *n, int host, int object, uint64_t key)
{
	struct gw_event ev = {.kind = GW_EV_WANT,
			      .object = n->objects[object].m.id,
			      .manifest = &n->objects[object].m,
			      .raw = {(const uint8_t *)"signed", 6},
			      .key = key};

	net_event(n, host, &ev);
}

void net_want_all(struct net *n, int object)
{
	int i;

	for (i = 0; i < n->n; i++)
		if (n->hosts[i].alive)
			net_want(n, i, object, 1);
}

static void unlink_both(struct net *n, int a, int b)
{
	struct gw_event ev = {.kind = GW_EV_LINK_DOWN, .host = net_handle(b)};

	n->hosts[a].linked[b] = n->hosts[b].linked[a] = 0;
	later(n, n->now + delay(n, a, b), a, &ev, NULL, NULL);
}

void net_kill(struct net *n, int host)
{
	int i;

	n->hosts[host].alive = 0;
	n->hosts[host].uplink_free_ns = 0;
	for (i = 0; i < n->n; i++)
		if (n->hosts[i].linked[host])
			unlink_both(n, i, host);
}

void net_restart(struct net *n, int host)
{
	int i;

	for (i = 0; i < NET_OBJECTS; i++)
		n->hosts[host].store[i].open = n->hosts[host].store[i].whole = 0;
	boot(n, host);
	net_join(n, host);
}

static void tell_all(struct net *n, int host, enum gw_event_kind kind)
{
	int i;

	for (i = 0; i < n->n; i++) {
		struct gw_event ev = {.kind = kind, .host = net_handle(host)};

		if (i != host)
			net_event(n, i, &ev);
	}
}

void net_suspect(struct net *n, int host)
{
	tell_all(n, host, GW_EV_MEMBER_SUSPECT);
}

void net_down(struct net *n, int host)
{
	tell_all(n, host, GW_EV_MEMBER_DOWN);
}

int net_whole(const struct net *n, int host, int object)
{
	return n->hosts[host].store[object].whole;
}

static int all_whole(const struct net *n, int object)
{
	int i;

	for (i = 0; i < n->n; i++)
		if (n->hosts[i].alive && !n->hosts[i].puppet && !net_whole(n, i, object))
			return 0;
	return 1;
}

int net_run(struct net *n, int object, uint64_t until_ns)
{
	const struct gw_heap_item *top;

	while ((top = gw_heap_top(&n->events)) && top->when_ns <= until_ns) {
		struct gw_heap_item item = gw_heap_pop(&n->events);
		struct delivery *d = item.ptr;
		int dead_link = item.key && !n->hosts[d->to].linked[host_of(d->ev.host)];

		n->now = item.when_ns;
		if (item.key)
			d->ev.msg = &d->msg;
		if (!dead_link)
			net_event(n, d->to, &d->ev);
		drop(d);
		if (object >= 0 && all_whole(n, object))
			return 1;
	}
	if (until_ns > n->now)
		n->now = until_ns;
	return object >= 0 && all_whole(n, object);
}

uint64_t net_payload(const struct net *n, int object)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < n->objects[object].pieces; i++)
		bytes += gw_manifest_piece_size(&n->objects[object].m, i);
	return bytes;
}

uint64_t net_into(const struct net *n, int object, int region)
{
	uint64_t bytes = 0;
	int r;

	for (r = 0; r < NET_REGIONS; r++)
		bytes += n->border_bytes[object][r][region];
	return bytes;
}

int net_logged(const struct net *n, int host, const char *part, int about)
{
	const struct net_host *h = &n->hosts[host];
	size_t i;

	for (i = 0; i < h->log_count; i++)
		if (strstr(h->logs[i], part) && (about < 0 || h->log_host[i] == net_handle(about)))
			return 1;
	return 0;
}

struct gw_swarm_object net_count(const struct net *n, int host, int object)
{
	struct gw_swarm_object c;

	ck_assert_int_eq(gw_swarm_object(n->hosts[host].swarm, &n->objects[object].m.id, &c), 0);
	return c;
}
