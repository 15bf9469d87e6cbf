#include "board_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "unit.h"

struct delivery {
	struct gw_event ev;
	struct gw_msg msg;
	int to;
	uint8_t *owned[2];
};

gw_host bn_handle(int host)
{
	return (gw_host)host + 1;
}

static void later(struct board_net *n, uint64_t ns, int to, const struct gw_event *ev, const struct delivery *like)
{
	struct delivery *d = calloc(1, sizeof *d);

	if (like)
		*d = *like;
	d->ev = *ev;
	d->to = to;
	ck_assert_int_eq(gw_heap_push(&n->events, n->now + ns, 0, d), 0);
}

static void *copy(const void *p, size_t n)
{
	void *q = malloc(n ? n : 1);

	if (n)
		memcpy(q, p, n);
	return q;
}

static void own_bytes(struct delivery *d, int i, struct gw_bytes *b)
{
	d->owned[i] = copy(b->p, b->n);
	b->p = d->owned[i];
}

static void send_msg(struct board_net *n, int from, const struct gw_action *a)
{
	int to = (int)a->host - 1;
	struct gw_event ev = {.kind = GW_EV_MSG, .host = bn_handle(from)};
	struct delivery d = {.msg = *a->msg};
	struct gw_msg *m = &d.msg;

	n->hosts[from].sent[m->type]++;
	n->heads_over_links += m->type == GW_MSG_head;
	if (!n->hosts[from].linked[to] || n->hosts[to].deaf)
		return;
	switch (m->type) {
	case GW_MSG_head:
		own_bytes(&d, 0, &m->u.head.head);
		own_bytes(&d, 1, &m->u.head.manifest);
		break;
	case GW_MSG_manifest:
		own_bytes(&d, 0, &m->u.manifest.manifest);
		break;
	case GW_MSG_manifest_ask:
		d.owned[0] = copy(m->u.manifest_ask.ids.v, m->u.manifest_ask.ids.n * sizeof *m->u.manifest_ask.ids.v);
		m->u.manifest_ask.ids.v = (void *)d.owned[0];
		break;
	case GW_MSG_board_digest:
		d.owned[0] =
			copy(m->u.board_digest.heads.v, m->u.board_digest.heads.n * sizeof *m->u.board_digest.heads.v);
		m->u.board_digest.heads.v = (void *)d.owned[0];
		break;
	default:
		ck_assert_int_eq(m->type, GW_MSG_head_ask);
	}
	later(n, BN_MS, to, &ev, &d);
}

static const struct bn_record *record_of(const struct board_net *n, const struct gw_bytes *raw)
{
	int i;

	for (i = 0; i < n->record_count; i++)
		if (n->records[i].n == raw->n && memcmp(n->records[i].raw, raw->p, raw->n) == 0)
			return &n->records[i];
	return NULL;
}

static void verify(struct board_net *n, int host, const struct gw_action *a)
{
	const struct bn_record *r = record_of(n, &a->data);
	int is_head = a->kind == GW_ACT_VERIFY_HEAD;
	struct gw_event ev = {.kind = GW_EV_REFUSED, .host = a->host, .key = a->key, .err = GW_ESIGNATURE};

	ck_assert_uint_eq(GW_KEY_MACHINE(a->key), GW_KEY_BOARD);
	if (is_head)
		n->hosts[host].verified_heads++;
	else
		n->hosts[host].verified_manifests++;
	if (r && r->is_head == is_head) {
		ev.kind = is_head ? GW_EV_HEAD : GW_EV_MANIFEST;
		ev.err = 0;
		ev.head = &r->head;
		ev.manifest = &r->manifest;
		ev.raw = (struct gw_bytes){r->raw, r->n};
	}
	later(n, BN_MS / 10, host, &ev, NULL);
}

static void take_tell(struct bn_host *h, const struct gw_event *ev)
{
	ck_assert_uint_lt(h->tell_count, BN_TELLS);
	h->tells[h->tell_count].kind = ev->kind;
	h->tells[h->tell_count].object = ev->object;
	h->tells[h->tell_count++].key = ev->key;
	if (ev->kind == GW_EV_WANT) {
		ck_assert_ptr_nonnull(ev->manifest);
		ck_assert_uint_gt(ev->raw.n, 0);
	}
}

static void act(struct board_net *n, int host, const struct gw_action *a)
{
	struct bn_host *h = &n->hosts[host];
	struct gw_event ev = {.kind = GW_EV_TIMER, .key = a->key};

	switch (a->kind) {
	case GW_ACT_TIMER:
		later(n, a->at_ns > n->now ? a->at_ns - n->now : 0, host, &ev, NULL);
		break;
	case GW_ACT_SEND:
		send_msg(n, host, a);
		break;
	case GW_ACT_VERIFY_HEAD:
	case GW_ACT_VERIFY_MANIFEST:
		verify(n, host, a);
		break;
	case GW_ACT_TELL:
		take_tell(h, &a->event);
		break;
	case GW_ACT_PATH:
		h->path = a->object;
		h->path_version = a->version;
		h->paths++;
		break;
	case GW_ACT_OBJECT_DROP:
		h->dropped = a->object;
		h->drops++;
		break;
	case GW_ACT_PERSIST:
		ck_assert_str_eq(a->slot, "board");
		ck_assert_uint_le(a->data.n, BN_SLOT);
		memcpy(h->slot, a->data.p, a->data.n);
		h->slot_bytes = a->data.n;
		h->persists++;
		break;
	case GW_ACT_LOG:
		h->errors += a->level == GW_LOG_ERR;
		h->warnings += a->level == GW_LOG_WARN;
		break;
	default:
		ck_abort_msg("an action that the board has no business with: %d", (int)a->kind);
	}
}

/* Counters are durable before a head leaves. */
static void check_order(const struct gw_actions *out, enum gw_event_kind kind)
{
	size_t i;
	int sent = 0;

	for (i = 0; kind == GW_EV_HEAD && i < out->n; i++) {
		sent |= out->v[i].kind == GW_ACT_SEND || out->v[i].kind == GW_ACT_TELL;
		ck_assert(!(sent && out->v[i].kind == GW_ACT_PERSIST));
	}
}

void bn_event(struct board_net *n, int host, struct gw_event *ev)
{
	struct bn_host *h = &n->hosts[host];
	size_t i;

	if (!h->alive)
		return;
	ev->now_ns = n->now;
	ev->wall_ns = BN_WALL + n->now + n->wall_offset;
	gw_actions_reset(&n->out);
	ck_assert_int_eq(gw_board_step(h->board, ev, &n->out), 0);
	check_order(&n->out, ev->kind);
	for (i = 0; i < n->out.n; i++)
		act(n, host, &n->out.v[i]);
}

static void drop(struct delivery *d)
{
	free(d->owned[0]);
	free(d->owned[1]);
	free(d);
}

void bn_run(struct board_net *n, uint64_t ns)
{
	const struct gw_heap_item *top;
	uint64_t until = n->now + ns;

	while ((top = gw_heap_top(&n->events)) && top->when_ns <= until) {
		struct gw_heap_item item = gw_heap_pop(&n->events);
		struct delivery *d = item.ptr;

		n->now = item.when_ns;
		if (d->ev.kind == GW_EV_MSG)
			d->ev.msg = &d->msg;
		bn_event(n, d->to, &d->ev);
		drop(d);
	}
	n->now = until;
}

void bn_init(struct board_net *n)
{
	memset(n, 0, sizeof *n);
	gw_heap_init(&n->events);
	gw_actions_init(&n->out);
	n->now = BN_S;
}

void bn_free(struct board_net *n)
{
	int i;

	while (gw_heap_top(&n->events))
		drop(gw_heap_pop(&n->events).ptr);
	gw_heap_free(&n->events);
	gw_actions_free(&n->out);
	for (i = 0; i < n->n; i++)
		gw_board_free(n->hosts[i].board);
	for (i = 0; i < n->record_count; i++)
		free(n->records[i].raw);
}

static void boot(struct board_net *n, int host)
{
	struct bn_host *h = &n->hosts[host];
	struct gw_board_config cfg = n->cfg;
	struct gw_event ev = {.kind = GW_EV_START};

	cfg.seed = (uint64_t)host + 1;
	cfg.persisted = (struct gw_bytes){h->slot, h->slot_bytes};
	gw_board_free(h->board);
	ck_assert_int_eq(gw_board_new(&h->board, &cfg, NULL), 0);
	h->alive = 1;
	bn_event(n, host, &ev);
}

int bn_add(struct board_net *n)
{
	boot(n, n->n);
	return n->n++;
}

void bn_restart(struct board_net *n, int host)
{
	memset(n->hosts[host].linked, 0, sizeof n->hosts[host].linked);
	boot(n, host);
}

static void link_event(struct board_net *n, int a, int b, enum gw_event_kind kind)
{
	struct gw_event ev = {.kind = kind, .host = bn_handle(b)};

	n->hosts[a].linked[b] = kind == GW_EV_LINK_UP;
	bn_event(n, a, &ev);
}

void bn_link(struct board_net *n, int a, int b)
{
	n->hosts[a].linked[b] = n->hosts[b].linked[a] = 1;
	link_event(n, a, b, GW_EV_LINK_UP);
	link_event(n, b, a, GW_EV_LINK_UP);
}

void bn_unlink(struct board_net *n, int a, int b)
{
	link_event(n, a, b, GW_EV_LINK_DOWN);
	link_event(n, b, a, GW_EV_LINK_DOWN);
}

/* --- records --- */

void bn_seal(struct board_net *n, int record)
{
	struct bn_record *r = &n->records[record];
	static uint32_t serial;

	serial++;
	memcpy(r->raw + 8, &serial, sizeof serial);
	gw_digest_of(r->raw, r->n, r->is_head ? &r->head.id : &r->manifest.id);
}

static int record_new(struct board_net *n, int is_head, size_t bytes)
{
	struct bn_record *r = &n->records[n->record_count];

	ck_assert_int_lt(n->record_count, BN_RECORDS);
	r->is_head = is_head;
	r->n = bytes;
	r->raw = calloc(1, bytes);
	memcpy(r->raw, is_head ? "head" : "mani", 4);
	return n->record_count++;
}

int bn_manifest(struct board_net *n, uint8_t run, uint64_t from, uint64_t to, uint64_t bytes, int previous, size_t pad)
{
	int i = record_new(n, 0, pad);
	struct gw_manifest *m = &n->records[i].manifest;

	m->kind = from == to ? GW_KIND_ANCHOR : GW_KIND_TRANSITION;
	m->encoding = GW_ENCODING_PLAIN;
	snprintf(m->policy, sizeof m->policy, "policy-%u", (unsigned)(run & 0xf0));
	memset(m->run, run, sizeof m->run);
	m->from = from;
	m->to = to;
	m->created_ns = BN_WALL + (unsigned)i;
	m->object_bytes = bytes;
	m->piece_bytes = GW_PIECE_MIN;
	m->object_pieces = (uint32_t)((bytes + GW_PIECE_MIN - 1) / GW_PIECE_MIN);
	m->digest_count = m->object_pieces;
	if (previous >= 0)
		m->previous = n->records[previous].manifest.id;
	bn_seal(n, i);
	return i;
}

int bn_head(struct board_net *n, uint8_t run, uint64_t sequence, int manifest)
{
	int i = record_new(n, 1, 300);
	struct gw_head *h = &n->records[i].head;

	snprintf(h->policy, sizeof h->policy, "policy-%u", (unsigned)(run & 0xf0));
	memset(h->run, run, sizeof h->run);
	h->root_epoch = 1;
	h->sequence = sequence;
	h->newest = n->records[manifest].manifest.to;
	h->manifest = n->records[manifest].manifest.id;
	h->created_ns = BN_WALL;
	h->expires_ns = BN_WALL + 300 * BN_S;
	bn_seal(n, i);
	return i;
}

struct gw_digest bn_id(const struct board_net *n, int record)
{
	return n->records[record].is_head ? n->records[record].head.id : n->records[record].manifest.id;
}

void bn_publish(struct board_net *n, int host, int record)
{
	const struct bn_record *r = &n->records[record];
	struct gw_event ev = {.kind = r->is_head ? GW_EV_HEAD : GW_EV_MANIFEST,
			      .host = GW_HOST_SELF,
			      .head = &r->head,
			      .manifest = &r->manifest,
			      .raw = {r->raw, r->n}};

	bn_event(n, host, &ev);
}

void bn_receive(struct board_net *n, int host, int from, int record)
{
	const struct bn_record *r = &n->records[record];
	struct gw_msg m = {.type = r->is_head ? GW_MSG_head : GW_MSG_manifest};
	struct gw_event ev = {.kind = GW_EV_MSG, .host = bn_handle(from), .msg = &m};

	if (r->is_head)
		m.u.head.head = (struct gw_bytes){r->raw, r->n};
	else
		m.u.manifest.manifest = (struct gw_bytes){r->raw, r->n};
	bn_event(n, host, &ev);
}

void bn_whole(struct board_net *n, int host, int manifest)
{
	struct gw_event ev = {.kind = GW_EV_OBJECT_WHOLE, .object = bn_id(n, manifest)};

	bn_event(n, host, &ev);
}

void bn_served(struct board_net *n, int host, uint8_t run, uint64_t version)
{
	uint8_t bytes[GW_RUN_BYTES];
	struct gw_event ev = {.kind = GW_EV_SERVED, .run = bytes, .version = version};

	memset(bytes, run, sizeof bytes);
	bn_event(n, host, &ev);
}

const struct bn_tell *bn_told(const struct board_net *n, int host, int manifest)
{
	const struct bn_host *h = &n->hosts[host];
	struct gw_digest id = bn_id(n, manifest);
	size_t i;

	for (i = h->tell_count; i-- > 0;)
		if (memcmp(&h->tells[i].object, &id, sizeof id) == 0)
			return &h->tells[i];
	return NULL;
}

int bn_wanted(const struct board_net *n, int host, int manifest)
{
	const struct bn_tell *t = bn_told(n, host, manifest);

	return t && t->kind == GW_EV_WANT && t->key > 0;
}

struct gw_board_policy bn_policy(const struct board_net *n, int host)
{
	struct gw_board_policy p;

	ck_assert_uint_ge(gw_board_policy_count(n->hosts[host].board), 1);
	gw_board_policy(n->hosts[host].board, 0, BN_WALL + n->now + n->wall_offset, &p);
	return p;
}

struct gw_board_counts bn_counts(const struct board_net *n, int host)
{
	struct gw_board_counts c;

	gw_board_counts(n->hosts[host].board, &c);
	return c;
}
