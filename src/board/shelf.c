/*
 * Manifests: what the heads reach is kept and asked for; what they do not reach any more goes.
 */
#include "base/log.h"
#include "board/inner.h"

enum { ANSWER_BYTES_MAX = 128 * 1024 };

struct entry *gw_board_entry(const struct gw_board *b, const struct gw_digest *id)
{
	return gw_map_get(&b->entries, id, sizeof *id);
}

void gw_board_entry_free(void *v)
{
	struct entry *e = v;

	free(e->raw);
	free(e);
}

static void tell(struct gw_board *b, const struct entry *e, enum gw_event_kind kind)
{
	struct gw_action *a = gw_actions_add(b->out, GW_ACT_TELL);

	a->event.kind = kind;
	a->event.now_ns = b->now;
	a->event.wall_ns = b->wall;
	a->event.object = e->m.id;
}

/* Takes it off the shelf; `drop`: its object leaves the disk too. */
static void entry_remove(struct gw_board *b, struct entry *e, int drop)
{
	if (!e->was_reachable)
		b->loose--;
	if (e->told)
		tell(b, e, GW_EV_FORGET);
	if (drop && (e->mine || e->told))
		gw_actions_add(b->out, GW_ACT_OBJECT_DROP)->object = e->m.id;
	gw_map_del(&b->entries, &e->m.id, sizeof e->m.id);
	gw_board_entry_free(e);
}

/* Room for one more: the oldest that no head reaches goes, but not from the disk. */
static int make_room(struct gw_board *b)
{
	const struct gw_map_entry *me;
	size_t at = 0;

	if (gw_map_count(&b->entries) < GW_BOARD_MANIFESTS_MAX && b->loose < GW_BOARD_LOOSE_MAX)
		return 1;
	while ((me = gw_map_next(&b->entries, &at))) {
		struct entry *e = me->value;

		if (e->reachable || (b->loose >= GW_BOARD_LOOSE_MAX && e->was_reachable))
			continue;
		entry_remove(b, e, 0);
		return 1;
	}
	return 0;
}

static struct entry *entry_add(struct gw_board *b, const struct gw_event *ev)
{
	struct entry *e = calloc(1, sizeof *e);
	uint8_t *raw = malloc(ev->raw.n ? ev->raw.n : 1);
	const uint8_t *digests = ev->manifest->digests;

	if (!e || !raw || gw_map_put(&b->entries, &ev->manifest->id, sizeof ev->manifest->id, e, NULL) != 0) {
		free(e);
		free(raw);
		b->err = GW_ENOMEM;
		return NULL;
	}
	if (ev->raw.n)
		memcpy(raw, ev->raw.p, ev->raw.n);
	e->m = *ev->manifest;
	e->raw = raw;
	e->n = ev->raw.n;
	e->m.digests = NULL;
	if (digests && digests >= ev->raw.p && digests < ev->raw.p + ev->raw.n)
		e->m.digests = raw + (digests - ev->raw.p);
	b->loose++;
	return e;
}

static int answer(struct gw_board *b, struct link *l, const struct entry *e, size_t *bytes)
{
	struct gw_m_manifest *m;

	*bytes += e->n;
	if (*bytes > ANSWER_BYTES_MAX)
		return 0;
	m = &gw_actions_send(b->out, l->host, GW_MSG_manifest)->u.manifest;
	m->manifest.p = gw_arena_copy(&b->out->arena, e->raw, e->n);
	m->manifest.n = m->manifest.p ? e->n : 0;
	b->counts.manifests_sent++;
	return 1;
}

/* A head runs ahead of its manifest, so who is told of it may ask too early: it gets the manifest when it comes. */
static void owe(struct link *l, const struct gw_digest *id)
{
	size_t i;

	for (i = 0; i < LINK_OWED; i++)
		if (gw_digest_equal(&l->owed[i], id))
			return;
	l->owed[l->owed_at] = *id;
	l->owed_at = (uint8_t)((l->owed_at + 1) % LINK_OWED);
}

static void pay(struct gw_board *b, const struct entry *e)
{
	const struct gw_map_entry *me;
	size_t i, at = 0, bytes;

	while ((me = gw_map_next(&b->links, &at))) {
		struct link *l = me->value;

		for (i = 0; i < LINK_OWED; i++) {
			if (!gw_digest_equal(&l->owed[i], &e->m.id))
				continue;
			memset(&l->owed[i], 0, sizeof l->owed[i]);
			bytes = 0;
			answer(b, l, e, &bytes);
		}
	}
}

void gw_board_on_manifest(struct gw_board *b, const struct gw_event *ev)
{
	struct entry *e = gw_board_entry(b, &ev->manifest->id);
	int asked = ev->host == GW_HOST_SELF;
	size_t i;

	for (i = 0; i < b->ask_count; i++)
		asked |= gw_digest_equal(&b->asks[i].id, &ev->manifest->id);
	gw_board_asked_done(b, &ev->manifest->id);
	if (!e) {
		if (!make_room(b)) {
			gw_board_log(b, GW_LOG_ERR, ev->host, "more manifests than there is room for: refused");
			return;
		}
		e = entry_add(b, ev);
		if (!e)
			return;
		b->counts.manifests_accepted++;
		b->counts.manifests_unasked += !asked;
		pay(b, e);
	}
	if (ev->host == GW_HOST_SELF)
		e->mine = 1;
	b->reconsider = 1;
}

void gw_board_on_manifest_ask(struct gw_board *b, struct link *l, const struct gw_m_manifest_ask *m)
{
	size_t i, bytes = 0, back = gw_min_u64(m->back, BACK_MAX);
	const struct entry *e = NULL, *first = NULL;
	struct gw_digest id;

	for (i = 0; i < m->ids.n; i++) {
		memcpy(id.b, m->ids.v[i].object, sizeof id.b);
		e = gw_board_entry(b, &id);
		if (i == 0)
			first = e;
		if (!e)
			owe(l, &id);
		else if (!answer(b, l, e, &bytes))
			return;
	}
	for (e = first; e && back--;) {
		e = gw_board_entry(b, &e->m.previous);
		if (e && !answer(b, l, e, &bytes))
			return;
	}
}

/* --- asking --- */

void gw_board_asked_done(struct gw_board *b, const struct gw_digest *id)
{
	size_t i;

	for (i = 0; i < b->ask_count; i++) {
		if (memcmp(&b->asks[i].id, id, sizeof *id) != 0)
			continue;
		memmove(&b->asks[i], &b->asks[i + 1], (--b->ask_count - i) * sizeof b->asks[0]);
		return;
	}
}

static void ask_send(struct gw_board *b, gw_host host, const struct gw_digest *ids, size_t n)
{
	struct gw_m_manifest_ask *m = &gw_actions_send(b->out, host, GW_MSG_manifest_ask)->u.manifest_ask;
	size_t i;

	m->ids.v = gw_arena_array(&b->out->arena, n, sizeof *m->ids.v);
	if (!m->ids.v) {
		b->err = GW_ENOMEM;
		return;
	}
	for (i = 0; i < n; i++)
		memcpy(m->ids.v[i].object, ids[i].b, sizeof ids[i].b);
	m->ids.n = n;
	m->back = BACK_MAX;
}

/* All that nobody was asked for yet goes to one host: who sent the head, or after that anybody. */
static void ask_flush(struct gw_board *b, gw_host preferred, gw_host but)
{
	struct link *l = gw_board_link(b, preferred);
	struct gw_digest ids[ASK_IDS_MAX];
	size_t i, n = 0;

	if (!l)
		l = gw_board_link_any(b, but);
	if (!l)
		return;
	for (i = 0; i < b->ask_count && n < ASK_IDS_MAX; i++) {
		if (b->asks[i].host != GW_HOST_NONE)
			continue;
		b->asks[i].host = l->host;
		b->asks[i].at_ns = b->now;
		ids[n++] = b->asks[i].id;
	}
	if (!n)
		return;
	ask_send(b, l->host, ids, n);
	if (!b->ask_at)
		gw_board_timer(b, TIMER_ASK, &b->ask_at, b->now + b->cfg.ask_timeout_ns);
}

void gw_board_ask_again(struct gw_board *b)
{
	gw_host last = GW_HOST_NONE;
	size_t i;

	for (i = 0; i < b->ask_count; i++) {
		if (b->asks[i].host == GW_HOST_NONE || b->now < b->asks[i].at_ns + b->cfg.ask_timeout_ns)
			continue;
		last = b->asks[i].host;
		b->asks[i].host = GW_HOST_NONE;
	}
	ask_flush(b, GW_HOST_NONE, last);
	if (b->ask_count && !b->ask_at)
		gw_board_timer(b, TIMER_ASK, &b->ask_at, b->now + b->cfg.ask_timeout_ns);
}

static void ask(struct gw_board *b, const struct gw_digest *id)
{
	size_t i;

	for (i = 0; i < b->ask_count; i++)
		if (gw_digest_equal(&b->asks[i].id, id))
			return;
	if (b->ask_count == GW_BOARD_ASKS_MAX)
		return; /* when these are here */
	b->asks[b->ask_count++] = (struct asking){.id = *id, .host = GW_HOST_NONE};
}

/* --- reach --- */

/* Marks a manifest of the head's run; NULL: it is missing (and now asked for), or of something else. */
static struct entry *reach_one(struct gw_board *b, const struct policy *p, const struct gw_digest *id)
{
	struct entry *e;

	if (gw_board_is_zero(id))
		return NULL;
	e = gw_board_entry(b, id);
	if (!e) {
		ask(b, id);
		return NULL;
	}
	if (memcmp(e->m.run, p->head->run, GW_RUN_BYTES) != 0 || strcmp(e->m.policy, p->head->policy) != 0)
		return NULL;
	if (!e->was_reachable)
		b->loose--;
	e->reachable = e->was_reachable = 1;
	return e;
}

/* How far back `previous` is followed: over what is retained, and in any case to the newest anchor, without which
 * nobody who comes in, or was away for long, would find a way. */
static uint64_t floor_version(const struct gw_board *b, const struct policy *p)
{
	uint64_t newest = p->head->newest, served = gw_board_served_version(b, p->head->run);
	uint64_t low = newest > b->cfg.retain ? newest - b->cfg.retain : 0, need = newest, anchor = 0;
	uint32_t i;

	if (!p->head->anchor_count)
		return low;
	if (served != GW_VERSION_NONE)
		need = gw_min_u64(need, served);
	for (i = 0; i < p->head->anchor_count; i++) {
		need = gw_min_u64(need, p->head->anchors[i].to);
		anchor = gw_max_u64(anchor, p->head->anchors[i].to);
	}
	return gw_min_u64(gw_max_u64(low, need), anchor);
}

/* Whether it could be followed to its end: a link that is missing hides what lies behind it. */
static int reach_chain(struct gw_board *b, const struct policy *p, const struct gw_digest *id, uint64_t floor)
{
	size_t left = GW_BOARD_MANIFESTS_MAX;
	struct gw_digest at = *id;
	struct entry *e;

	while (left-- && (e = reach_one(b, p, &at)) && e->m.to > floor)
		at = e->m.previous;
	return e != NULL || gw_board_is_zero(&at);
}

static void reach_policy(struct gw_board *b, struct policy *p)
{
	const struct entry *newest = gw_board_entry(b, &p->head->manifest);
	uint32_t i;

	p->chain_known = 0;
	if (newest && gw_head_names(p->head, &newest->m, NULL) != 0) {
		gw_board_log(b, GW_LOG_ERR, p->from, "a head and the manifest it names contradict each other");
		return;
	}
	for (i = 0; i < p->head->anchor_count; i++)
		reach_one(b, p, &p->head->anchors[i].manifest);
	for (i = 0; i < p->head->skip_count; i++)
		reach_one(b, p, &p->head->skips[i].manifest);
	p->chain_known = (uint8_t)reach_chain(b, p, &p->head->manifest, floor_version(b, p));
}

/* While a link of the chain is missing, what was reached before counts as reached. */
static void reach_still(struct gw_board *b, const struct policy *p)
{
	const struct gw_map_entry *me;
	size_t at = 0;

	while ((me = gw_map_next(&b->entries, &at))) {
		struct entry *e = me->value;

		if (e->was_reachable && memcmp(e->m.run, p->head->run, GW_RUN_BYTES) == 0 &&
		    e->m.to >= floor_version(b, p))
			e->reachable = 1;
	}
}

/* No head reaches it, and none will: it was reached before, is older than what is kept, or of a run that ended. What
 * this host serves stays. */
static int is_over(const struct gw_board *b, const struct entry *e)
{
	size_t i;

	if (e->reachable || gw_board_served_version(b, e->m.run) == e->m.to)
		return 0;
	for (i = 0; i < b->policy_count; i++) {
		const struct policy *p = b->policies[i];

		if (!p->head || strcmp(p->name, e->m.policy) != 0)
			continue;
		if (memcmp(p->head->run, e->m.run, GW_RUN_BYTES) != 0)
			return e->m.created_ns < p->head->created_ns &&
			       gw_board_served_version(b, e->m.run) == GW_VERSION_NONE;
		if (gw_digest_equal(&p->path_told, &e->m.id) &&
		    gw_board_served_version(b, e->m.run) != p->head->newest)
			return 0; /* the engine may be at it */
		return e->was_reachable || e->m.to < floor_version(b, p);
	}
	return 0;
}

void gw_board_reach(struct gw_board *b)
{
	const struct gw_map_entry *me;
	gw_host from = GW_HOST_NONE;
	size_t i, at = 0;

	while ((me = gw_map_next(&b->entries, &at)))
		((struct entry *)me->value)->reachable = 0;
	for (i = 0; i < b->policy_count; i++) {
		if (!b->policies[i]->head)
			continue;
		reach_policy(b, b->policies[i]);
		if (!b->policies[i]->chain_known)
			reach_still(b, b->policies[i]);
		from = b->policies[i]->from;
	}
	at = 0;
	while ((me = gw_map_next(&b->entries, &at)))
		if (is_over(b, me->value))
			entry_remove(b, me->value, 1);
	ask_flush(b, from, GW_HOST_NONE);
}
