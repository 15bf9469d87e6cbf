/* A host's disk and engine, modelled: verified pieces survive a crash, blocks under way do not. */
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "sim.h"

enum { GRAIN = 512 }; /* bytes a bit of sim_piece_work.got stands for */

struct sim_object *sim_object(const struct sim *s, const struct gw_digest *id)
{
	for (size_t i = s->object_count; i-- > 0;)
		if (!memcmp(&s->objects[i]->manifest.id, id, sizeof *id))
			return s->objects[i];
	return NULL;
}

struct sim_stored *sim_stored(const struct sim_host *h, const struct gw_digest *id)
{
	struct sim_stored *st = h->store;

	while (st && memcmp(&st->object->manifest.id, id, sizeof *id) != 0)
		st = st->next;
	return st;
}

static uint32_t pieces(const struct sim_object *o)
{
	return o->manifest.object_pieces + o->manifest.table_pieces;
}

/* The same as gw_manifest_piece_size, by the manifest's page: leaves of the table first. */
static uint64_t piece_size(const struct sim_object *o, uint32_t i)
{
	const struct gw_manifest *m = &o->manifest;
	uint64_t table = (uint64_t)m->object_pieces * 32;

	if (i < m->table_pieces)
		return gw_min_u64(GW_TABLE_LEAF_BYTES, table - (uint64_t)i * GW_TABLE_LEAF_BYTES);
	i -= m->table_pieces;
	return gw_min_u64(m->piece_bytes, m->object_bytes - (uint64_t)i * m->piece_bytes);
}

static int has(const struct sim_stored *st, uint32_t piece)
{
	return st->have[piece / 8] >> piece % 8 & 1;
}

int sim_whole(const struct sim_stored *st)
{
	return st && st->have_count == pieces(st->object);
}

static struct sim_stored *make_stored(struct sim_host *h, struct sim_object *o)
{
	struct sim_stored *st = calloc(1, sizeof *st);

	if (!st)
		abort();
	st->object = o;
	st->have = calloc(pieces(o) / 8 + 1, 1);
	if (!st->have)
		abort();
	st->next = h->store;
	h->store = st;
	return st;
}

void sim_store_whole(struct sim_host *h, struct sim_object *o)
{
	struct sim_stored *st = make_stored(h, o);

	memset(st->have, 0xff, pieces(o) / 8 + 1);
	st->have_count = pieces(o);
}

static void work_free(struct sim_piece_work *w)
{
	free(w->got);
	free(w);
}

static void stored_free(struct sim_stored *st)
{
	while (st->work) {
		struct sim_piece_work *next = st->work->next;

		work_free(st->work);
		st->work = next;
	}
	free(st->have);
	free(st);
}

void sim_store_crash(struct sim_host *h)
{
	for (struct sim_stored *st = h->store; st; st = st->next) {
		st->open = 0;
		while (st->work) {
			struct sim_piece_work *next = st->work->next;

			work_free(st->work);
			st->work = next;
		}
	}
}

void sim_store_free(struct sim_host *h)
{
	while (h->store) {
		struct sim_stored *next = h->store->next;

		stored_free(h->store);
		h->store = next;
	}
}

static void object_open(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct sim_object *o = sim_object(s, &a->object);
	struct gw_event ev = {.kind = GW_EV_OBJECT_OPEN, .object = a->object};
	struct sim_stored *st;

	SIM_CHECK(s, h, o, "opens an object that nobody published");
	SIM_CHECK(s, h, a->data.n == o->raw_n && !memcmp(a->data.p, o->raw, o->raw_n),
		  "opens an object with other bytes than its manifest's");
	st = sim_stored(h, &a->object);
	if (!st)
		st = make_stored(h, o);
	st->open = 1;
	ev.piece_count = pieces(o);
	ev.have = st->have;
	sim_feed_later(s, h->index, MS, &ev);
}

static struct sim_piece_work *work_of(struct sim_stored *st, uint32_t piece, int make)
{
	struct sim_piece_work *w = st->work;

	while (w && w->piece != piece)
		w = w->next;
	if (w || !make)
		return w;
	w = calloc(1, sizeof *w);
	if (!w)
		abort();
	w->piece = piece;
	w->got = calloc(GW_PIECE_MAX / GRAIN / 8, 1);
	if (!w->got)
		abort();
	w->next = st->work;
	st->work = w;
	return w;
}

static void drop_work(struct sim_stored *st, uint32_t piece)
{
	for (struct sim_piece_work **at = &st->work; *at; at = &(*at)->next) {
		struct sim_piece_work *w = *at;

		if (w->piece != piece)
			continue;
		*at = w->next;
		work_free(w);
		return;
	}
}

static void block_store(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct sim_stored *st = sim_stored(h, &a->object);
	struct sim_piece_work *w;
	uint64_t size;

	SIM_CHECK(s, h, st && st->open, "stores a block of an object that is not open");
	SIM_CHECK(s, h, a->piece < pieces(st->object), "stores a block of piece %u, there is none", a->piece);
	size = piece_size(st->object, a->piece);
	SIM_CHECK(s, h, a->data.n && a->offset + a->data.n <= size, "stores a block beyond its piece");
	SIM_CHECK(s, h, a->offset % GRAIN == 0 && (a->data.n % GRAIN == 0 || a->offset + a->data.n == size),
		  "stores a block of odd bounds");
	if (has(st, a->piece))
		return;
	w = work_of(st, a->piece, 1);
	for (uint64_t i = a->offset / GRAIN; i < gw_div_up(a->offset + a->data.n, GRAIN); i++)
		w->got[i / 8] |= (uint8_t)(1 << i % 8);
	w->bad |= (int)((uintptr_t)a->data.p & 1); /* the tag, see net.c */
}

static void piece_check(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct sim_stored *st = sim_stored(h, &a->object);
	struct gw_event ev = {.kind = GW_EV_PIECE_OK, .object = a->object, .piece = a->piece, .host = a->host};
	struct sim_piece_work *w;
	uint64_t size;

	SIM_CHECK(s, h, st && st->open && a->piece < pieces(st->object), "checks a piece that it cannot have");
	size = piece_size(st->object, a->piece);
	w = work_of(st, a->piece, 0);
	SIM_CHECK(s, h, w || has(st, a->piece), "checks a piece of which no block came");
	for (uint64_t i = 0; w && i < gw_div_up(size, GRAIN); i++)
		SIM_CHECK(s, h, w->got[i / 8] >> i % 8 & 1, "checks piece %u before all its blocks are stored",
			  a->piece);
	if (w && w->bad)
		ev.kind = GW_EV_PIECE_BAD;
	sim_feed_later(s, h->index, MS / 2 + size, &ev); /* a nanosecond a byte: 1 GB/s */
}

static void verified(struct sim *s, struct sim_host *h, const struct gw_event *ev)
{
	struct sim_stored *st = sim_stored(h, &ev->object);

	if (!st)
		return;
	if (ev->kind == GW_EV_PIECE_OK && !has(st, ev->piece)) {
		st->have[ev->piece / 8] |= (uint8_t)(1 << ev->piece % 8);
		st->have_count++;
	}
	drop_work(st, ev->piece);
	(void)s;
}

static void block_send(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct sim_stored *st = sim_stored(h, &a->object);
	int to = sim_index(h, s, a->host);
	struct sim_frame *f;

	SIM_CHECK(s, h, st && st->open, "serves an object that is not open");
	SIM_CHECK(s, h, a->piece < pieces(st->object) && has(st, a->piece),
		  "serves piece %u, which it has not verified", a->piece);
	SIM_CHECK(s, h,
		  a->bytes && a->bytes <= GW_BLOCK_MAX && a->offset + a->bytes <= piece_size(st->object, a->piece),
		  "serves bytes beyond a piece");
	if (to < 0)
		return;
	f = calloc(1, sizeof *f);
	if (!f)
		abort();
	f->from = h->index;
	f->to = to;
	f->bulk = 1;
	f->object = a->object;
	f->piece = a->piece;
	f->offset = (uint32_t)a->offset;
	f->n = a->bytes;
	f->bad = h->liar;
	sim_net_send(s, f);
}

static void object_drop(struct sim_host *h, const struct gw_action *a)
{
	for (struct sim_stored **at = &h->store; *at; at = &(*at)->next) {
		struct sim_stored *st = *at;

		if (memcmp(&st->object->manifest.id, &a->object, sizeof a->object) != 0)
			continue;
		*at = st->next;
		stored_free(st);
		return;
	}
}

/* --- the engine --- */

static void stage(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct sim_stored *st = sim_stored(h, &a->object);
	struct gw_event ev = {.kind = GW_EV_SERVED};

	SIM_CHECK(s, h, sim_whole(st), "stages version %llu before all its pieces are verified",
		  (unsigned long long)a->version);
	SIM_CHECK(s, h, st->object->manifest.kind == GW_KIND_ANCHOR || (int64_t)st->object->manifest.from == h->served,
		  "stages a transition from %llu while version %lld is served",
		  (unsigned long long)st->object->manifest.from, (long long)h->served);
	SIM_CHECK(s, h, st->object->manifest.to == a->version, "a path names another version than its object's");
	ev.version = a->version;
	ev.object = a->object;
	ev.run = st->object->manifest.run;
	sim_feed_later(s, h->index, 50 * MS + gw_rng_below(&s->rng, 50 * MS), &ev);
}

static void served(struct sim *s, struct sim_host *h, const struct gw_event *ev)
{
	struct sim_object *o = sim_object(s, &ev->object);

	if (!o) /* at start: what the engine serves anyway */
		return;
	SIM_CHECK(s, h, sim_whole(sim_stored(h, &ev->object)), "serves a version that it does not have");
	SIM_CHECK(s, h, (int64_t)ev->version >= h->served, "goes back from version %lld to %llu", (long long)h->served,
		  (unsigned long long)ev->version);
	h->served = (int64_t)ev->version;
	o->last_served_ns = s->now_ns;
}

void sim_store_action(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	switch (a->kind) {
	case GW_ACT_OBJECT_OPEN:
		object_open(s, h, a);
		break;
	case GW_ACT_OBJECT_DROP:
		object_drop(h, a);
		break;
	case GW_ACT_BLOCK_SEND:
		block_send(s, h, a);
		break;
	case GW_ACT_BLOCK_STORE:
		block_store(s, h, a);
		break;
	case GW_ACT_PIECE_CHECK:
		piece_check(s, h, a);
		break;
	case GW_ACT_PATH:
		stage(s, h, a);
		break;
	default:
		sim_fail(s, h, "an action of kind %d, which nobody executes", (int)a->kind);
	}
}

/* What changes on disk or in the engine before the machine hears of it; at START, what it must be told. */
void sim_store_event(struct sim *s, struct sim_host *h, const struct gw_event *ev)
{
	if (ev->kind == GW_EV_PIECE_OK || ev->kind == GW_EV_PIECE_BAD)
		verified(s, h, ev);
	if (ev->kind == GW_EV_SERVED)
		served(s, h, ev);
	if (ev->kind != GW_EV_START)
		return;
	for (struct sim_stored *st = h->store; st; st = st->next) {
		struct gw_event m = {.kind = GW_EV_MANIFEST,
				     .host = GW_HOST_SELF,
				     .manifest = &st->object->manifest,
				     .raw = {st->object->raw, st->object->raw_n}};

		sim_feed(s, h->index, &m);
	}
	if (h->served >= 0 && s->object_count) {
		struct gw_event now = {.kind = GW_EV_SERVED, .version = (uint64_t)h->served};

		now.run = s->objects[0]->manifest.run;
		sim_feed(s, h->index, &now);
	}
}
