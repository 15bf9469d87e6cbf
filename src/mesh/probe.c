/* Liveness of the hosts at the other end of our links: pings, questions to witnesses, accusations. */
#include <string.h>

#include "base/log.h"
#include "mesh/inner.h"

void gw_mesh_health(struct gw_mesh *m, int change)
{
	if (change > 0) {
		m->health_good = 0;
		if (m->health < HEALTH_MAX)
			m->health++;
	} else if (m->health && ++m->health_good >= 8) { /* worse at once, better slowly */
		m->health_good = 0;
		m->health--;
	}
}

void gw_mesh_forgive(struct gw_mesh *m, uint64_t gap)
{
	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++) {
		struct gw_mesh_link *l = &m->links[i];

		if (l->host == GW_HOST_NONE)
			continue;
		l->heard_ns += gap;
		l->phase_ns += gap;
		l->pinged_ns += gap;
		if (l->watch_until_ns)
			l->watch_until_ns += gap;
	}
	for (size_t i = 0; i < GW_MESH_ERRANDS_MAX; i++)
		m->errands[i].deadline_ns += gap;
	for (size_t i = 0; i < m->suspect_count; i++) {
		struct gw_roster_entry *e = gw_roster_at(&m->roster, m->suspects[i]);

		if (e && e->suspicion)
			e->suspicion->since_ns += gap;
	}
}

void gw_mesh_ping(struct gw_mesh *m, gw_host host, uint32_t seq, struct gw_actions *out)
{
	(void)m;
	gw_actions_send(out, host, GW_MSG_ping)->u.ping.seq = seq;
}

/* --- errands --- */

static struct gw_mesh_errand *errand_new(struct gw_mesh *m)
{
	for (size_t i = 0; i < GW_MESH_ERRANDS_MAX; i++)
		if (m->errands[i].target == GW_HOST_NONE)
			return &m->errands[i];
	return NULL;
}

static void ask_witness(struct gw_mesh *m, gw_host witness, gw_host target, uint32_t seq, struct gw_actions *out)
{
	struct gw_m_probe_request *q = &gw_actions_send(out, witness, GW_MSG_probe_request)->u.probe_request;

	q->seq = seq;
	memcpy(q->identity, m->roster.at[target]->record->identity, GW_IDENTITY_BYTES);
}

static void reply(struct gw_mesh *m, const struct gw_mesh_errand *e, int heard, struct gw_actions *out)
{
	const struct gw_roster_entry *target = gw_roster_at(&m->roster, e->target);
	struct gw_m_probe_reply *r;

	if (!target)
		return;
	r = &gw_actions_send(out, e->other, GW_MSG_probe_reply)->u.probe_reply;
	r->seq = e->seq;
	r->heard = (uint8_t)heard;
	memcpy(r->identity, target->record->identity, GW_IDENTITY_BYTES);
}

void gw_mesh_probe_request(struct gw_mesh *m, gw_host from, const struct gw_m_probe_request *q, uint64_t now,
			   struct gw_actions *out)
{
	const struct gw_roster_entry *e = gw_roster_find(&m->roster, q->identity);
	struct gw_mesh_errand *errand = errand_new(m);
	struct gw_mesh_link *l;

	/* Unknown or too busy: no answer, which counts as no evidence. */
	if (!e || e->host == GW_HOST_SELF || !errand)
		return;
	l = gw_mesh_link_borrow(m, e->host, now, out);
	*errand = (struct gw_mesh_errand){.target = e->host, .other = from, .relay = 1, .seq = q->seq};
	errand->deadline_ns = now + PROBE_WAIT;
	if (l && l->up) {
		errand->sent = 1;
		gw_mesh_ping(m, e->host, ++m->seq, out);
	} else if (!l) {
		reply(m, errand, 0, out);
		errand->target = GW_HOST_NONE;
	}
}

void gw_mesh_probe_link_up(struct gw_mesh *m, gw_host host, struct gw_actions *out)
{
	for (size_t i = 0; i < GW_MESH_ERRANDS_MAX; i++) {
		struct gw_mesh_errand *e = &m->errands[i];

		if (e->target == GW_HOST_NONE || e->sent)
			continue;
		if (e->relay && e->target == host) {
			e->sent = 1;
			gw_mesh_ping(m, host, ++m->seq, out);
		} else if (!e->relay && e->other == host && gw_roster_at(&m->roster, e->target)) {
			ask_witness(m, host, e->target, e->seq, out);
			e->target = GW_HOST_NONE;
		}
	}
}

static void errands_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	for (size_t i = 0; i < GW_MESH_ERRANDS_MAX; i++) {
		struct gw_mesh_errand *e = &m->errands[i];

		if (e->target == GW_HOST_NONE || now < e->deadline_ns)
			continue;
		if (e->relay)
			reply(m, e, 0, out);
		e->target = GW_HOST_NONE;
	}
}

/* --- what is heard --- */

void gw_mesh_heard(struct gw_mesh *m, gw_host from, uint64_t now, struct gw_actions *out)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, from);
	struct gw_mesh_link *l = gw_mesh_link_of(m, from);

	for (size_t i = 0; i < GW_MESH_ERRANDS_MAX; i++) {
		struct gw_mesh_errand *errand = &m->errands[i];

		if (errand->target == from && errand->relay && errand->sent) {
			reply(m, errand, 1, out);
			errand->target = GW_HOST_NONE;
		}
	}
	e->heard_ns = now;
	if (!l)
		return;
	if (l->phase == PROBE_DIRECT)
		gw_mesh_health(m, -1);
	l->heard_ns = now;
	l->phase = PROBE_IDLE;
	/* It lives and does not know what is said of it. */
	if (e->state != GW_MEMBER_ALIVE && now - l->told_ns >= GW_MESH_SECOND) {
		l->told_ns = now;
		gw_mesh_send_news(m, from, &e, 1, 0, out);
	}
}

void gw_mesh_probe_reply(struct gw_mesh *m, gw_host from, const struct gw_m_probe_reply *r, uint64_t now,
			 struct gw_actions *out)
{
	const struct gw_roster_entry *e = gw_roster_find(&m->roster, r->identity);
	struct gw_mesh_link *l = e ? gw_mesh_link_of(m, e->host) : NULL;

	(void)from;
	(void)out;
	if (!l || l->phase == PROBE_IDLE || r->seq != l->seq)
		return;
	l->answered_witnesses++;
	if (!r->heard)
		return;
	/* The link is bad, not the host. */
	l->heard_ns = now;
	l->phase = PROBE_IDLE;
}

/* --- probing --- */

/* Who hears from nobody at all should doubt itself, not them. */
static int isolated(const struct gw_mesh *m, uint64_t now)
{
	unsigned watched = 0;

	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++) {
		const struct gw_mesh_link *l = &m->links[i];

		if (l->host == GW_HOST_NONE || !gw_mesh_link_watched(l, now))
			continue;
		watched++;
		if (l->up && now - l->heard_ns < GW_MESH_QUIET + 2 * PROBE_WAIT)
			return 0;
	}
	return watched >= 3;
}

static int ask_one(struct gw_mesh *m, gw_host witness, const struct gw_mesh_link *l, uint64_t now,
		   struct gw_actions *out)
{
	const struct gw_roster_entry *e = gw_roster_at(&m->roster, witness);
	struct gw_mesh_errand *errand;
	struct gw_mesh_link *w;

	if (!e || e->state != GW_MEMBER_ALIVE || witness == l->host || witness == GW_HOST_SELF)
		return 0;
	w = gw_mesh_link_borrow(m, witness, now, out);
	if (!w)
		return 0;
	if (w->up) {
		ask_witness(m, witness, l->host, l->seq, out);
		return 1;
	}
	errand = errand_new(m);
	if (!errand)
		return 0;
	*errand = (struct gw_mesh_errand){.target = l->host, .other = witness, .seq = l->seq};
	errand->deadline_ns = now + 2 * PROBE_WAIT;
	return 1;
}

/* First the host's own neighbours, from a random start; then ours, who will have to dial it. */
static void ask_witnesses(struct gw_mesh *m, struct gw_mesh_link *l, uint64_t now, struct gw_actions *out)
{
	gw_host ours[GW_MESH_LINKS_MAX];
	size_t n = gw_mesh_neighbours(m, ours, GW_MESH_LINKS_MAX), at;
	unsigned asked = 0;

	l->seq = ++m->seq;
	at = l->peer_count ? gw_rng_below(&m->rng, l->peer_count) : 0;
	for (size_t i = 0; i < l->peer_count && asked < WITNESSES_ASKED; i++)
		asked += (unsigned)ask_one(m, l->peers[(at + i) % l->peer_count], l, now, out);
	at = n ? gw_rng_below(&m->rng, n) : 0;
	for (size_t i = 0; i < n && asked < WITNESSES_ASKED; i++)
		asked += (unsigned)ask_one(m, ours[(at + i) % n], l, now, out);
	l->asked_witnesses = (uint8_t)asked;
	l->answered_witnesses = 0;
}

static void accuse(struct gw_mesh *m, struct gw_mesh_link *l, uint64_t now, struct gw_actions *out)
{
	struct gw_roster_entry *e = gw_roster_at(&m->roster, l->host);
	struct gw_statement s = {GW_MEMBER_SUSPECT, e->incarnation, m->self->record->identity};

	l->phase = PROBE_ACCUSED;
	l->phase_ns = now;
	if (l->answered_witnesses < l->asked_witnesses)
		gw_mesh_health(m, 1); /* even a "not heard" would have been an answer */
	gw_mesh_note(out, GW_LOG_INFO, "no answer from a member: suspected", l->host);
	gw_mesh_apply(m, e, &s, GW_HOST_SELF, 0, now, out);
}

static void enter(struct gw_mesh *m, struct gw_mesh_link *l, enum probe_phase phase, uint64_t now,
		  struct gw_actions *out)
{
	l->phase = phase;
	l->phase_ns = l->pinged_ns = now;
	if (l->up)
		gw_mesh_ping(m, l->host, ++m->seq, out);
	if (phase == PROBE_INDIRECT)
		ask_witnesses(m, l, now, out);
}

static void probe(struct gw_mesh *m, struct gw_mesh_link *l, uint64_t now, struct gw_actions *out)
{
	const struct gw_roster_entry *e = gw_roster_at(&m->roster, l->host);
	uint64_t wait = PROBE_WAIT * (1 + m->health), gone = now - l->phase_ns;

	switch (l->phase) {
	case PROBE_IDLE:
		if (now - l->heard_ns >= l->quiet_ns) {
			l->quiet_ns = GW_MESH_QUIET + gw_rng_below(&m->rng, GW_MESH_TICK);
			enter(m, l, PROBE_DIRECT, now, out);
		}
		break;
	case PROBE_DIRECT:
		if (gone >= wait)
			enter(m, l, PROBE_INDIRECT, now, out);
		break;
	case PROBE_INDIRECT:
		if (gone >= wait && !isolated(m, now))
			accuse(m, l, now, out);
		break;
	case PROBE_ACCUSED:
		if (e->state == GW_MEMBER_ALIVE) { /* it has refuted */
			l->phase = PROBE_IDLE;
			l->heard_ns = now;
		} else if (l->up && now - l->pinged_ns >= 2 * GW_MESH_SECOND) {
			l->pinged_ns = now;
			gw_mesh_ping(m, l->host, ++m->seq, out);
		}
		break;
	}
}

void gw_mesh_probe_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	errands_tick(m, now, out);
	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++) {
		struct gw_mesh_link *l = &m->links[i];

		if (l->host != GW_HOST_NONE && !l->muted && gw_mesh_link_watched(l, now))
			probe(m, l, now, out);
	}
}
