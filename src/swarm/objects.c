/*
 * Objects from WANT to FORGET, who has what of them, and the news about that.
 */
#include <stdio.h>

#include "base/log.h"
#include "swarm/inner.h"

enum { NEAR_MAX = 64, RETRY_NS = 5 };

struct object *gw_swarm_object_get(const struct gw_swarm *s, const uint8_t id[32])
{
	return gw_map_get(&s->objects, id, 32);
}

int gw_swarm_object_fetching(const struct object *o)
{
	return o->key && o->opened && !o->whole;
}

static void bitmaps_free(struct object *o)
{
	free(o->own);
	free(o->busy);
	free(o->covered);
	free(o->multi);
	free(o->news);
	free(o->first);
	free(o->avail);
	o->own = o->busy = o->covered = o->multi = o->news = o->first = NULL;
	o->avail = NULL;
}

static void holders_free(struct object *o)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		free(o->holders[i]->bits);
		free(o->holders[i]);
	}
	o->holder_count = 0;
}

void gw_swarm_object_free(void *v)
{
	struct object *o = v;

	while (o->flights) {
		struct flight *f = o->flights;

		o->flights = f->next;
		free(f);
	}
	holders_free(o);
	bitmaps_free(o);
	free(o->by_region);
	free((void *)o->raw.p);
	free(o);
}

static int bitmaps_make(struct object *o)
{
	o->own = calloc(o->words, sizeof *o->own);
	o->busy = calloc(o->words, sizeof *o->busy);
	o->covered = calloc(o->words, sizeof *o->covered);
	o->multi = calloc(o->words, sizeof *o->multi);
	o->news = calloc(o->words, sizeof *o->news);
	o->first = calloc(o->words, sizeof *o->first);
	o->avail = calloc(o->n, 1);
	return o->own && o->busy && o->covered && o->multi && o->news && o->first && o->avail ? 0 : GW_ENOMEM;
}

/* By key, largest first; equal ones in order of arrival. */
static void order_put(struct gw_swarm *s, struct object *o)
{
	size_t i = 0, at;

	for (at = 0; at < s->object_count && s->order[at] != o; at++)
		;
	if (at < s->object_count)
		memmove(&s->order[at], &s->order[at + 1], (--s->object_count - at) * sizeof *s->order);
	while (i < s->object_count && s->order[i]->key >= o->key)
		i++;
	memmove(&s->order[i + 1], &s->order[i], (s->object_count - i) * sizeof *s->order);
	s->order[i] = o;
	s->object_count++;
}

static struct object *object_new(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = calloc(1, sizeof *o);
	uint8_t *raw = malloc(ev->raw.n ? ev->raw.n : 1);

	if (!o || !raw || gw_map_put(&s->objects, ev->object.b, 32, o, NULL) != 0) {
		free(o);
		free(raw);
		s->err = GW_ENOMEM;
		return NULL;
	}
	if (ev->raw.n)
		memcpy(raw, ev->raw.p, ev->raw.n);
	o->raw.p = raw;
	o->raw.n = ev->raw.n;
	o->id = ev->object;
	o->m = *ev->manifest;
	o->m.digests = NULL;
	o->n = gw_manifest_pieces(&o->m);
	o->leaves = o->m.table_pieces;
	o->words = (o->n + 63) / 64;
	o->change = 1;
	o->ranks_view = UINT64_MAX;
	o->count.pieces = o->n;
	return o;
}

static void ask_store(struct gw_swarm *s, struct object *o)
{
	struct gw_action *a = gw_actions_add(s->out, GW_ACT_OBJECT_OPEN);

	a->object = o->id;
	a->data = o->raw;
	o->opening = 1;
	o->retry_ns = 0;
}

/* The manifest was verified, so these can only be a publisher's mistake. */
static int sizes_ok(const struct gw_manifest *m)
{
	uint64_t pieces = (uint64_t)m->object_pieces + m->table_pieces;

	return m->object_bytes > 0 && pieces > 0 && pieces <= GW_SWARM_PIECES_MAX && m->piece_bytes >= 1 &&
	       m->piece_bytes <= GW_PIECE_MAX;
}

void gw_swarm_object_want(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);

	if (!o) {
		if (!ev->manifest || !sizes_ok(ev->manifest) || s->object_count >= GW_SWARM_OBJECTS_MAX) {
			gw_swarm_log_host(s, GW_LOG_ERR, GW_HOST_NONE,
					  "an object cannot be fetched: too many objects or pieces");
			return;
		}
		o = object_new(s, ev);
		if (!o)
			return;
	}
	o->key = ev->key;
	order_put(s, o);
	o->change++;
	o->reconsider = 1;
	if (!o->opened && !o->opening)
		ask_store(s, o);
	else if (gw_swarm_object_fetching(o))
		gw_swarm_look_around(s, o);
}

void gw_swarm_object_unwant(struct gw_swarm *s, struct object *o)
{
	o->key = 0;
	order_put(s, o);
	gw_swarm_flights_drop_object(s, o, 1);
	if (o->claimed) {
		size_t i;

		o->claimed = 0;
		for (i = 0; i < s->regions[0].n; i++)
			if (s->regions[0].members[i]->linked)
				gw_swarm_claims_tell(s, o, s->regions[0].members[i]);
	}
}

void gw_swarm_object_forget(struct gw_swarm *s, struct object *o)
{
	size_t i;

	gw_swarm_object_unwant(s, o);
	gw_swarm_serve_drop_object(s, o);
	for (i = 0; i < s->object_count && s->order[i] != o; i++)
		;
	memmove(&s->order[i], &s->order[i + 1], (--s->object_count - i) * sizeof *s->order);
	gw_map_del(&s->objects, o->id.b, 32);
	gw_swarm_object_free(o);
}

static void tell_whole(struct gw_swarm *s, struct object *o)
{
	struct gw_action *a = gw_actions_add(s->out, GW_ACT_TELL);

	a->event.kind = GW_EV_OBJECT_WHOLE;
	a->event.now_ns = s->now;
	a->event.wall_ns = s->wall;
	a->event.object = o->id;
}

static void have_send(struct gw_swarm *s, struct object *o, struct peer *p, const uint64_t *bits, size_t from,
		      size_t to);

static void become_whole(struct gw_swarm *s, struct object *o)
{
	size_t i;

	o->whole = 1;
	o->has_news = 0;
	for (i = 0; i < o->holder_count; i++)
		if (o->holders[i]->tells && o->holders[i]->peer->linked)
			have_send(s, o, o->holders[i]->peer, NULL, 0, 0);
	o->claimed = 0; /* the news says so */
	holders_free(o);
	free(o->own);
	free(o->busy);
	free(o->covered);
	free(o->multi);
	free(o->news);
	free(o->avail);
	o->own = o->busy = o->covered = o->multi = o->news = NULL;
	o->avail = NULL;
	tell_whole(s, o);
}

static uint32_t count_have(struct object *o, const uint8_t *have)
{
	uint32_t i, n = 0;

	o->leaves_left = o->leaves;
	for (i = 0; i < o->n; i++) {
		if (!have || !(have[i / 8] >> (i % 8) & 1))
			continue;
		bit_set(o->own, i);
		bit_set(o->busy, i);
		n++;
		o->leaves_left -= i < o->leaves;
	}
	return n;
}

void gw_swarm_object_open(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);
	size_t i;

	if (!o || !o->opening)
		return;
	o->opening = 0;
	if (ev->piece_count != o->n) {
		gw_swarm_log_host(s, GW_LOG_ERR, GW_HOST_SELF, "the store counts other pieces than the manifest");
		return;
	}
	if (bitmaps_make(o) != 0) {
		bitmaps_free(o);
		s->err = GW_ENOMEM;
		return;
	}
	o->opened = 1;
	o->opened_ns = o->progress_ns = s->now;
	o->have = count_have(o, ev->have);
	for (i = 0; i < GW_SWARM_STRIPES; i++)
		o->stripes[i].news_ns = s->now;
	o->reconsider = 1;
	if (o->have == o->n) {
		memset(o->first, 0xff, o->words * sizeof *o->first); /* nobody gave it to us here */
		become_whole(s, o);
	} else if (gw_swarm_object_fetching(o)) {
		gw_swarm_look_around(s, o);
	}
}

/* The disk refused. What was in flight is lost; after a while the store is asked again what it holds. */
void gw_swarm_object_failed(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);

	if (!o)
		return;
	gw_swarm_log_host(s, GW_LOG_ERR, GW_HOST_SELF, "the store refuses an object; trying again in a while");
	gw_swarm_flights_drop_object(s, o, 1);
	gw_swarm_serve_drop_object(s, o);
	holders_free(o);
	bitmaps_free(o);
	o->opened = o->opening = o->whole = o->has_news = 0;
	o->have = 0;
	o->claimed = 0;
	o->retry_ns = s->now + RETRY_NS * SECOND;
}

void gw_swarm_object_retry(struct gw_swarm *s, struct object *o)
{
	if (o->retry_ns && o->retry_ns <= s->now)
		ask_store(s, o);
}

void gw_swarm_piece_here(struct gw_swarm *s, struct object *o, uint32_t i)
{
	if (!o->opened || o->whole || bit_get(o->own, i))
		return;
	bit_set(o->own, i);
	bit_set(o->busy, i);
	bit_set(o->news, i);
	o->have++;
	if (i < o->leaves && --o->leaves_left == 0)
		o->change++;
	o->has_news = 1;
	o->progress_ns = o->stripes[i % GW_SWARM_STRIPES].news_ns = s->now;
	o->reconsider = 1;
	if (o->have == o->n)
		become_whole(s, o);
	else if (!s->news_at)
		gw_swarm_timer_set(s, TIMER_NEWS, &s->news_at, s->now + s->cfg.have_delay_ns);
}

void gw_swarm_count_region(struct gw_swarm *s, struct object *o, uint32_t region, uint64_t bytes)
{
	struct region_bytes *v;
	size_t i;

	for (i = 0; i < o->region_count; i++) {
		if (o->by_region[i].region != region)
			continue;
		o->by_region[i].bytes += bytes;
		return;
	}
	if (o->region_count > GW_SWARM_REGIONS_MAX)
		return;
	v = reallocarray(o->by_region, o->region_count + 1, sizeof *v);
	if (!v) {
		s->err = GW_ENOMEM;
		return;
	}
	o->by_region = v;
	v[o->region_count].region = region;
	v[o->region_count++].bytes = bytes;
}

/* --- holders --- */

struct holder *gw_swarm_holder_get(const struct object *o, const struct peer *p)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++)
		if (o->holders[i]->peer == p)
			return o->holders[i];
	return NULL;
}

/* One whose place somebody else may have: it is of no use now. */
static struct holder *holder_spare(struct object *o, int near)
{
	size_t i;

	for (i = 0; i < o->holder_count; i++) {
		struct holder *h = o->holders[i];

		if ((h->peer->region == 0) == near && !h->claims && !h->count && !h->whole &&
		    (!h->peer->linked || h->peer->banned || h->unknown) && !h->tells)
			return h;
	}
	return NULL;
}

struct holder *gw_swarm_holder_make(struct gw_swarm *s, struct object *o, struct peer *p)
{
	struct holder *h = gw_swarm_holder_get(o, p);
	size_t i, same = 0, max;
	int near = p->region == 0;

	if (h)
		return h;
	for (i = 0; i < o->holder_count; i++)
		same += (o->holders[i]->peer->region == 0) == near;
	max = near ? NEAR_MAX : GW_SWARM_PEERS_MAX - NEAR_MAX;
	if (same >= max || o->holder_count == GW_SWARM_PEERS_MAX) {
		h = holder_spare(o, near);
		if (h) {
			free(h->bits);
			memset(h, 0, sizeof *h);
			h->peer = p;
		}
		return h;
	}
	h = calloc(1, sizeof *h);
	if (!h) {
		s->err = GW_ENOMEM;
		return NULL;
	}
	h->peer = p;
	o->holders[o->holder_count++] = h;
	return h;
}

uint64_t gw_swarm_holder_word(const struct object *o, const struct holder *h, size_t w)
{
	return h->whole ? valid_word(o, w) : h->bits ? h->bits[w] : 0;
}

static void avail_add(struct gw_swarm *s, struct object *o, uint32_t i)
{
	if (o->avail[i]++ == 0) {
		bit_set(o->covered, i);
		o->stripes[i % GW_SWARM_STRIPES].news_ns = s->now;
		o->progress_ns = s->now;
	} else {
		bit_set(o->multi, i);
	}
}

static void avail_take(struct object *o, uint32_t i)
{
	o->avail[i]--;
	if (o->avail[i] == 0)
		bit_clear(o->covered, i);
	if (o->avail[i] <= 1)
		bit_clear(o->multi, i);
}

void gw_swarm_holder_clear(struct object *o, struct holder *h)
{
	size_t w;

	for (w = 0; h->near && o->avail && w < o->words; w++) {
		uint64_t bits = gw_swarm_holder_word(o, h, w);

		for (; bits; bits &= bits - 1)
			avail_take(o, (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits));
	}
	free(h->bits);
	h->bits = NULL;
	h->count = 0;
	h->near = h->whole = h->unknown = h->answered = 0;
	h->asked_ns = h->news_ns = h->dry = 0;
	o->change++;
	o->reconsider = 1;
}

void gw_swarm_holder_lacks(struct object *o, struct holder *h, uint32_t piece)
{
	if (h->whole) {
		gw_swarm_holder_clear(o, h); /* whole it is not: ask again */
		return;
	}
	if (!h->bits || !bit_get(h->bits, piece))
		return;
	bit_clear(h->bits, piece);
	h->count--;
	if (h->near)
		avail_take(o, piece);
	o->change++;
	o->reconsider = 1;
}

/* --- questions and news --- */

void gw_swarm_have_ask(struct gw_swarm *s, struct object *o, struct holder *h)
{
	if (!h || !h->peer->linked)
		return;
	h->asked_ns = s->now;
	memcpy(gw_swarm_send_about(s, h->peer, GW_MSG_have_ask)->u.have_ask.object, o->id.b, 32);
}

/* Words [from, to) of the bitmap, in one message; bits NULL: all of it. */
static void have_send(struct gw_swarm *s, struct object *o, struct peer *p, const uint64_t *bits, size_t from,
		      size_t to)
{
	struct gw_m_have *m = &gw_swarm_send_about(s, p, GW_MSG_have)->u.have;
	size_t w, n;
	uint8_t *text;

	memcpy(m->object, o->id.b, 32);
	m->pieces = o->n;
	m->whole = bits == NULL;
	if (!bits)
		return;
	n = gw_min_u64((o->n + 7) / 8 - from * 8, (to - from) * 8);
	text = gw_arena_alloc(&s->out->arena, (to - from) * 8);
	if (!text) {
		s->err = GW_ENOMEM;
		return;
	}
	for (w = from; w < to; w++)
		gw_put_le64(text + (w - from) * 8, bits[w]);
	m->first = (uint32_t)(from * 64);
	m->bits.p = text;
	m->bits.n = n;
}

static void have_send_span(struct gw_swarm *s, struct object *o, struct peer *p, const uint64_t *bits, size_t from,
			   size_t to)
{
	for (; from < to; from += HAVE_BITS_MAX / 8)
		have_send(s, o, p, bits, from, gw_min_u64(to, from + HAVE_BITS_MAX / 8));
}

static void push_first(struct gw_swarm *s, struct object *o, struct peer *p)
{
	uint32_t i;

	if (!s->cfg.eager_max_bytes || o->m.object_bytes > s->cfg.eager_max_bytes || p->region != 0)
		return;
	for (i = 0; i < o->n; i++)
		if (bit_get(o->first, i))
			gw_swarm_serve_push(s, o, i, p);
}

static int may_tell(const struct object *o, const struct peer *p)
{
	size_t i, far = 0;

	for (i = 0; i < o->holder_count; i++)
		far += o->holders[i]->tells && o->holders[i]->peer->region != 0;
	return p->region == 0 || far < GW_SWARM_ASKERS_MAX;
}

void gw_swarm_on_have_ask(struct gw_swarm *s, struct peer *p, const struct gw_m_have_ask *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct holder *h;

	if (!o || !o->opened || (!o->whole && !o->key && !o->have)) {
		memcpy(gw_swarm_send_about(s, p, GW_MSG_have)->u.have.object, m->object, 32); /* pieces 0 */
		return;
	}
	if (o->whole) {
		have_send(s, o, p, NULL, 0, 0);
		push_first(s, o, p);
		return;
	}
	h = gw_swarm_holder_make(s, o, p);
	if (h && may_tell(o, p))
		h->tells = 1;
	have_send_span(s, o, p, o->own, 0, o->words);
	push_first(s, o, p);
	if (p->region != 0 || !h || !gw_swarm_object_fetching(o))
		return;
	if (o->claimed)
		gw_swarm_claims_tell(s, o, p);
	if (!h->asked_ns || h->unknown) {
		h->unknown = 0;
		h->answered = 0;
		gw_swarm_have_ask(s, o, h);
	}
}

static void holder_whole(struct gw_swarm *s, struct object *o, struct holder *h)
{
	size_t w;

	for (w = 0; h->near && w < o->words; w++) {
		uint64_t bits = valid_word(o, w) & ~gw_swarm_holder_word(o, h, w);

		for (; bits; bits &= bits - 1)
			avail_add(s, o, (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits));
	}
	free(h->bits);
	h->bits = NULL;
	h->whole = 1;
	h->claims = 0;
	h->count = o->n;
}

/* The bits that are new; GW_EMALFORMED for some that are no pieces. */
static int holder_bits(struct gw_swarm *s, struct object *o, struct holder *h, const struct gw_m_have *m)
{
	size_t i;

	if (m->first % 8 || m->first > o->n || m->bits.n > (o->n - m->first + 7) / 8)
		return GW_EMALFORMED;
	if (!h->bits && m->bits.n)
		h->bits = calloc(o->words, sizeof *h->bits);
	if (!h->bits && m->bits.n)
		return GW_ENOMEM;
	for (i = 0; i < m->bits.n * 8; i++) {
		uint32_t piece = m->first + (uint32_t)i;

		if (!(m->bits.p[i / 8] >> (i % 8) & 1))
			continue;
		if (piece >= o->n)
			return GW_EMALFORMED;
		if (bit_get(h->bits, piece))
			continue;
		bit_set(h->bits, piece);
		h->count++;
		h->news_ns = s->now;
		if (h->near)
			avail_add(s, o, piece);
	}
	if (h->count == o->n)
		holder_whole(s, o, h);
	return 0;
}

void gw_swarm_on_have(struct gw_swarm *s, struct peer *p, const struct gw_m_have *m)
{
	struct object *o = gw_swarm_object_get(s, m->object);
	struct holder *h = o ? gw_swarm_holder_get(o, p) : NULL;

	if (!h || !gw_swarm_object_fetching(o) || p->banned || !h->asked_ns)
		return;
	o->change++;
	o->reconsider = 1;
	if (!h->answered)
		h->news_ns = s->now;
	h->answered = 1;
	h->unknown = m->pieces == 0;
	if (h->unknown && (h->bits || h->whole)) {
		gw_swarm_holder_clear(o, h);
		h->asked_ns = s->now;
		h->answered = h->unknown = 1;
	}
	if (h->unknown || h->whole)
		return;
	if (m->pieces != o->n) {
		gw_swarm_peer_ban(s, p, "counts other pieces than the manifest: not asked again");
		return;
	}
	h->near = p->region == 0;
	if (m->whole) {
		holder_whole(s, o, h);
		h->news_ns = s->now;
	} else {
		switch (holder_bits(s, o, h, m)) {
		case GW_ENOMEM:
			s->err = GW_ENOMEM;
			break;
		case GW_EMALFORMED:
			gw_swarm_peer_ban(s, p, "sends a malformed list of pieces: not asked again");
			break;
		}
	}
}

static void news_send(struct gw_swarm *s, struct object *o)
{
	size_t i, from = 0, to = o->words;

	while (from < to && !o->news[from])
		from++;
	while (to > from && !o->news[to - 1])
		to--;
	for (i = 0; i < o->holder_count; i++) {
		const struct holder *h = o->holders[i];

		if (h->tells && !h->whole && h->peer->linked)
			have_send_span(s, o, h->peer, o->news, from, to);
	}
	memset(o->news, 0, o->words * sizeof *o->news);
	o->has_news = 0;
}

void gw_swarm_news_flush(struct gw_swarm *s)
{
	size_t i;

	for (i = 0; i < s->object_count; i++)
		if (s->order[i]->has_news)
			news_send(s, s->order[i]);
}

/* Some more links inside the region, from a random place in its list. */
static void region_links(struct gw_swarm *s)
{
	struct region *r = &s->regions[0];
	size_t i, linked = 0, start;

	for (i = 0; i < r->n; i++)
		linked += r->members[i]->linked || r->members[i]->connecting;
	if (linked >= r->n || linked >= s->cfg.region_links)
		return;
	start = (size_t)gw_rng_below(&s->rng, r->n);
	for (i = 0; i < r->n && linked < s->cfg.region_links; i++) {
		struct peer *p = r->members[(start + i) % r->n];

		if (p->linked || p->connecting || p->banned)
			continue;
		gw_swarm_link_need(s, p);
		linked++;
	}
}

void gw_swarm_look_around(struct gw_swarm *s, struct object *o)
{
	struct region *r = &s->regions[0];
	size_t i;

	region_links(s);
	for (i = 0; i < r->n; i++) {
		struct peer *p = r->members[i];
		struct holder *h;

		if (!gw_swarm_peer_usable(s, p))
			continue;
		h = gw_swarm_holder_make(s, o, p);
		if (!h)
			break;
		if (!h->asked_ns ||
		    (!h->whole && s->now >= gw_max_u64(h->asked_ns, h->news_ns) + s->cfg.claim_timeout_ns))
			gw_swarm_have_ask(s, o, h);
	}
}
