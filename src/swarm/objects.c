/*
 * Objects from WANT to FORGET.
 */
#include "base/log.h"
#include "swarm/inner.h"

enum { RETRY_DOUBLINGS = 4 };
#define RETRY_NS (5 * SECOND)

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

static void become_whole(struct gw_swarm *s, struct object *o)
{
	o->whole = 1;
	o->failures = 0;
	gw_swarm_news_whole(s, o);
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

/* The disk refused. What was in flight is lost; after a while the store is asked again what it holds: 5 to 80 s, since
 * what comes over a border for a full disk is wasted. */
void gw_swarm_object_failed(struct gw_swarm *s, const struct gw_event *ev)
{
	struct object *o = gw_swarm_object_get(s, ev->object.b);

	if (!o || (!o->opened && !o->opening)) /* several pieces fail at once */
		return;
	gw_swarm_log_host(s, GW_LOG_ERR, GW_HOST_SELF, "the store refuses an object; trying again in a while");
	gw_swarm_flights_drop_object(s, o, 1);
	gw_swarm_serve_drop_object(s, o);
	holders_free(o);
	bitmaps_free(o);
	o->opened = o->opening = o->whole = o->has_news = 0;
	o->have = 0;
	o->claimed = 0;
	o->retry_ns = s->now + (RETRY_NS << o->failures);
	if (o->failures < RETRY_DOUBLINGS)
		o->failures++;
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
	o->progress_ns = o->here_ns = o->stripes[i % GW_SWARM_STRIPES].news_ns = s->now;
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
