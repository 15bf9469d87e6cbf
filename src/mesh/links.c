/* Which links stand: picking by rendezvous weight, dialling, repair, and links borrowed for an errand. */
#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "mesh/inner.h"

/* Rendezvous hash (Thaler and Ravishankar, 1998). One-sided, so that the picks of two hosts are independent and the
 * graph of all picks is random: such a graph with three picks a host is connected with overwhelming probability. */
uint64_t gw_mesh_score(const struct gw_mesh *m, const uint8_t identity[GW_IDENTITY_BYTES])
{
	const uint8_t *own = m->roster.at[GW_HOST_SELF]->record->identity;

	return gw_siphash13(gw_le64(own), gw_le64(own + 8), identity, GW_IDENTITY_BYTES);
}

struct gw_mesh_link *gw_mesh_link_of(struct gw_mesh *m, gw_host host)
{
	const struct gw_roster_entry *e = gw_roster_at(&m->roster, host);

	return e && e->link >= 0 ? &m->links[e->link] : NULL;
}

struct gw_mesh_link *gw_mesh_link_get(struct gw_mesh *m, gw_host host)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, host);
	struct gw_mesh_link *l = gw_mesh_link_of(m, host);

	if (l || !e || host == GW_HOST_SELF)
		return l;
	for (int i = 0; i < GW_MESH_LINKS_MAX; i++) {
		l = &m->links[i];
		if (l->host != GW_HOST_NONE)
			continue;
		memset(l, 0, sizeof *l);
		l->host = host;
		l->up = e->linked;
		l->heard_ns = m->last_ns;
		l->quiet_ns = GW_MESH_QUIET + gw_rng_below(&m->rng, GW_MESH_TICK);
		e->link = i;
		return l;
	}
	return NULL;
}

int gw_mesh_link_standing(const struct gw_mesh_link *l)
{
	return l->host != GW_HOST_NONE && l->up && !l->muted && (l->want || l->theirs);
}

int gw_mesh_link_watched(const struct gw_mesh_link *l, uint64_t now)
{
	return gw_mesh_link_standing(l) || l->watch_until_ns > now;
}

static unsigned standing_count(const struct gw_mesh *m)
{
	unsigned n = 0;

	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++)
		n += (unsigned)gw_mesh_link_standing(&m->links[i]);
	return n;
}

static void hello(struct gw_mesh *m, const struct gw_mesh_link *l, struct gw_actions *out)
{
	struct gw_m_link_hello *h = &gw_actions_send(out, l->host, GW_MSG_link_hello)->u.link_hello;

	h->standing = l->want;
	h->incarnation = m->self->incarnation;
}

/* Asks for the link unless it is there or asked for. A host that is up through its own dial is asked for too, so that
 * the link outlives its wish. */
static void dial(struct gw_mesh *m, struct gw_mesh_link *l, struct gw_actions *out)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, l->host);

	if (l->asked || (!l->up && !gw_roster_dialable(e)))
		return;
	l->asked = 1;
	gw_actions_add(out, GW_ACT_CONNECT)->host = l->host;
}

static void release(struct gw_mesh_link *l, struct gw_actions *out)
{
	if (l->asked)
		gw_actions_add(out, GW_ACT_DISCONNECT)->host = l->host;
	l->asked = 0;
}

static void free_slot(struct gw_mesh *m, struct gw_mesh_link *l)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, l->host);

	if (e)
		e->link = -1;
	l->host = GW_HOST_NONE;
}

static void backoff(struct gw_mesh *m, struct gw_roster_entry *e, uint64_t now)
{
	uint64_t wait = GW_MESH_SECOND << (e->fails < 5 ? e->fails : 5);

	e->fails = e->fails < 255 ? e->fails + 1 : 255;
	e->retry_ns = now + wait / 2 + gw_rng_below(&m->rng, wait);
	m->picks_dirty = 1;
}

struct gw_mesh_link *gw_mesh_link_borrow(struct gw_mesh *m, gw_host host, uint64_t now, struct gw_actions *out)
{
	const struct gw_roster_entry *e = gw_roster_at(&m->roster, host);
	struct gw_mesh_link *l = gw_mesh_link_of(m, host);

	if (l && l->up && (l->want || l->theirs))
		return l;
	if (!e || host == GW_HOST_SELF || ((!l || !l->up) && !gw_roster_dialable(e)))
		return NULL;
	l = gw_mesh_link_get(m, host);
	if (!l)
		return NULL;
	l->temp_until_ns = now + TEMP_LINK;
	dial(m, l, out);
	return l;
}

/* --- picks --- */

struct picks {
	gw_host v[2 * (GW_MESH_NEAR + GW_MESH_FAR)];
	size_t n;
};

static int picked(const struct picks *p, gw_host h)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i] == h)
			return 1;
	return 0;
}

static int region_picked(const struct gw_mesh *m, const struct picks *p, uint32_t region)
{
	for (size_t i = 0; i < p->n; i++)
		if (m->roster.at[p->v[i]]->region == region)
			return 1;
	return 0;
}

static int pickable(const struct gw_mesh *m, const struct gw_roster_entry *e, uint64_t now)
{
	const struct gw_mesh_link *l = e->link >= 0 ? &m->links[e->link] : NULL;

	if (!gw_roster_is_in(e) || e->host == GW_HOST_SELF)
		return 0;
	if (l && l->up)
		return e->retry_ns <= now || l->want;
	return gw_roster_dialable(e) && e->retry_ns <= now;
}

/* The member of highest weight that is not picked yet, of the own region or of the others; with `fresh` only of a
 * region without a pick. */
static const struct gw_roster_entry *best(const struct gw_mesh *m, const struct picks *p, int near, int fresh,
					  uint64_t now)
{
	const struct gw_roster_entry *top = NULL;

	for (gw_host h = 1; h < m->roster.n; h++) {
		const struct gw_roster_entry *e = m->roster.at[h];

		if (!e || (e->region == 0) != near || (top && e->score <= top->score) || !pickable(m, e, now))
			continue;
		if (!picked(p, h) && !(fresh && region_picked(m, p, e->region)))
			top = e;
	}
	return top;
}

static void choose(const struct gw_mesh *m, struct picks *p, uint64_t now)
{
	size_t factor = m->self->record->dial ? 1 : 2; /* who is not dialled opens all its links itself */
	size_t near = GW_MESH_NEAR * factor, all = near + GW_MESH_FAR * factor;
	const struct gw_roster_entry *e;

	p->n = 0;
	while (p->n < near && (e = best(m, p, 1, 0, now)))
		p->v[p->n++] = e->host;
	/* A small region is made up for by more links across. */
	while (p->n < all && ((e = best(m, p, 0, 1, now)) || (e = best(m, p, 0, 0, now))))
		p->v[p->n++] = e->host;
}

static void pick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	struct picks p;

	m->picks_dirty = 0;
	choose(m, &p, now);
	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++) {
		struct gw_mesh_link *l = &m->links[i];

		if (l->host == GW_HOST_NONE || !l->want || picked(&p, l->host))
			continue;
		l->want = 0;
		m->neighbours_dirty = 1;
		if (l->up)
			hello(m, l, out);
	}
	for (size_t i = 0; i < p.n; i++) {
		struct gw_mesh_link *l = gw_mesh_link_get(m, p.v[i]);

		if (!l || l->want)
			continue;
		l->want = 1;
		dial(m, l, out);
		if (l->up) {
			m->neighbours_dirty = 1;
			l->sent_seq = m->roster.news_seq;
			hello(m, l, out);
			gw_mesh_compare(m, l->host, out);
		}
	}
}

/* --- events --- */

void gw_mesh_link_up(struct gw_mesh *m, gw_host host, uint64_t now, struct gw_actions *out)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, host);
	struct gw_mesh_link *l = gw_mesh_link_of(m, host);

	if (!e)
		return;
	e->linked = 1;
	e->fails = 0;
	if (!l) /* it dialled us and will say why */
		return;
	l->up = 1;
	l->heard_ns = now;
	l->phase = PROBE_IDLE;
	l->theirs = 0;
	l->muted = (uint8_t)!gw_roster_is_in(e);
	l->sent_seq = m->roster.news_seq;
	m->neighbours_dirty = 1;
	hello(m, l, out);
	if (l->want || l->temp_until_ns > now)
		gw_mesh_compare(m, host, out);
	gw_mesh_probe_link_up(m, host, out);
}

void gw_mesh_link_down(struct gw_mesh *m, gw_host host, uint64_t now)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, host);
	struct gw_mesh_link *l = gw_mesh_link_of(m, host);

	if (e)
		e->linked = 0;
	if (!e || !l)
		return;
	if (gw_mesh_link_standing(l)) {
		l->watch_until_ns = now + WATCH_AFTER_LOSS;
	} else if (!l->up && l->asked && gw_roster_is_in(e) && l->watch_until_ns <= now) {
		/* A member that cannot be dialled though it should: see whether it lives. */
		l->watch_until_ns = now + WATCH_AFTER_LOSS;
		l->heard_ns = now;
	}
	if (l->asked && !l->up)
		backoff(m, e, now);
	l->up = l->theirs = l->asked = 0;
	l->temp_until_ns = 0;
	m->picks_dirty = m->neighbours_dirty = 1;
	if (!gw_roster_is_in(e) && !l->want)
		free_slot(m, l);
}

void gw_mesh_link_drop(struct gw_mesh *m, struct gw_roster_entry *e, struct gw_actions *out)
{
	struct gw_mesh_link *l = gw_mesh_link_of(m, e->host);

	m->picks_dirty = 1;
	if (!l)
		return;
	if (gw_mesh_link_standing(l))
		m->neighbours_dirty = 1;
	l->want = 0;
	l->muted = 1;
	l->phase = PROBE_IDLE;
	l->temp_until_ns = l->watch_until_ns = 0;
	release(l, out);
	if (!l->up)
		free_slot(m, l);
}

void gw_mesh_link_unmute(struct gw_mesh *m, struct gw_roster_entry *e)
{
	struct gw_mesh_link *l = gw_mesh_link_of(m, e->host);

	m->picks_dirty = 1;
	if (!l || !l->muted)
		return;
	l->muted = 0;
	l->heard_ns = m->last_ns;
	l->sent_seq = m->roster.news_seq;
	m->neighbours_dirty = 1;
}

void gw_mesh_hello(struct gw_mesh *m, gw_host from, const struct gw_m_link_hello *h, uint64_t now,
		   struct gw_actions *out)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, from);
	struct gw_mesh_link *l = gw_mesh_link_of(m, from);
	struct gw_statement alive = {GW_MEMBER_ALIVE, h->incarnation, NULL};
	int was = l ? gw_mesh_link_standing(l) : 0, accept;

	gw_mesh_apply(m, e, &alive, from, 0, now, out);
	if (!gw_roster_is_in(e) || e->state == GW_MEMBER_SUSPECT || e->incarnation > h->incarnation)
		gw_mesh_send_news(m, from, &e, 1, 0, out); /* what is held against it: it will refute */
	if (h->standing)
		l = gw_mesh_link_get(m, from);
	accept = l && l->up && (l->want || l->theirs || standing_count(m) < GW_MESH_STANDING_MAX);
	if (h->standing)
		gw_actions_send(out, from, GW_MSG_link_answer)->u.link_answer.accepted = (uint8_t)accept;
	if (!l)
		return;
	l->theirs = (uint8_t)(accept && h->standing);
	if (!h->standing)
		l->watch_until_ns = 0;
	if (gw_mesh_link_standing(l) != was)
		m->neighbours_dirty = 1;
	if (gw_mesh_link_standing(l) && !was)
		l->sent_seq = m->roster.news_seq;
}

void gw_mesh_answer(struct gw_mesh *m, gw_host from, int accepted, uint64_t now, struct gw_actions *out)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, from);
	struct gw_mesh_link *l = gw_mesh_link_of(m, from);

	if (accepted || !l || !l->want)
		return;
	e->retry_ns = now + 60 * GW_MESH_SECOND;
	l->want = 0;
	m->picks_dirty = m->neighbours_dirty = 1;
	if (!l->theirs && l->temp_until_ns <= now)
		release(l, out);
}

void gw_mesh_peers(struct gw_mesh *m, gw_host from, const struct gw_m_neighbours *n)
{
	struct gw_mesh_link *l = gw_mesh_link_of(m, from);

	if (!l)
		return;
	l->peer_count = 0;
	for (size_t i = 0; i < n->hosts.n && l->peer_count < PEERS_MAX; i++) {
		const struct gw_roster_entry *e = gw_roster_find(&m->roster, n->hosts.v[i].identity);

		if (e && e->host != GW_HOST_SELF && e->host != from)
			l->peers[l->peer_count++] = e->host;
	}
}

/* Tells the neighbours who the neighbours are. */
static void tell_neighbours(struct gw_mesh *m, struct gw_actions *out)
{
	gw_host v[PEERS_MAX];
	size_t n = gw_mesh_neighbours(m, v, PEERS_MAX);

	m->neighbours_dirty = 0;
	for (size_t i = 0; i < n; i++) {
		struct gw_m_neighbours *msg = &gw_actions_send(out, v[i], GW_MSG_neighbours)->u.neighbours;

		msg->hosts.v = gw_arena_array(&out->arena, n, sizeof *msg->hosts.v);
		if (!msg->hosts.v) {
			out->err = GW_ENOMEM;
			return;
		}
		msg->hosts.n = n;
		for (size_t j = 0; j < n; j++)
			memcpy(msg->hosts.v[j].identity, m->roster.at[v[j]]->record->identity, GW_IDENTITY_BYTES);
	}
}

/* Now and then one of those that are gone is dialled: that is how the halves of a partition find each other again, and how
 * a host that left and came back hears from those that it cannot dial itself. */
static void revive(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	gw_host chosen = GW_HOST_NONE;
	uint64_t seen = 0;

	if (now < m->revive_ns)
		return;
	m->revive_ns = now + REVIVE_EVERY / 2 + gw_rng_below(&m->rng, REVIVE_EVERY);
	for (gw_host h = 1; h < m->roster.n; h++) {
		const struct gw_roster_entry *e = m->roster.at[h];

		if (!e || gw_roster_is_in(e) || e->host == GW_HOST_SELF || !gw_roster_dialable(e) || e->link >= 0 ||
		    (m->wall_ns && e->record->expires_ns <= m->wall_ns))
			continue;
		if (!gw_rng_below(&m->rng, ++seen))
			chosen = h;
	}
	if (chosen != GW_HOST_NONE)
		gw_mesh_link_borrow(m, chosen, now, out);
}

void gw_mesh_links_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	if (m->leaving)
		return;
	if (m->picks_dirty || now >= m->repick_ns) {
		m->repick_ns = now + REPICK_EVERY; /* hosts that could not be dialled may be picked again */
		pick(m, now, out);
	}
	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++) {
		struct gw_mesh_link *l = &m->links[i];

		if (l->host == GW_HOST_NONE)
			continue;
		if (l->want && !l->up && !l->asked) {
			struct gw_roster_entry *e = gw_roster_at(&m->roster, l->host);

			if (e->retry_ns <= now)
				dial(m, l, out);
			else
				m->picks_dirty = 1; /* somebody else until it may be dialled again */
		}
		if (!l->want && l->asked && l->temp_until_ns <= now)
			release(l, out);
		if (!(l->up && l->theirs) && !l->asked && !l->want && l->watch_until_ns <= now)
			free_slot(m, l);
	}
	revive(m, now, out);
	if (m->neighbours_dirty)
		tell_neighbours(m, out);
}
