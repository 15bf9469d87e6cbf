/* What is said about members: applied to the table and passed on. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "mesh/inner.h"

/* Higher jumps are mistakes or malice: refutations go up by one. */
#define INCARNATION_JUMP GW_MESH_INCARNATION_JUMP

static void set_flush(struct gw_mesh *m, uint64_t at, struct gw_actions *out)
{
	struct gw_action *a;

	if (m->flush_set)
		return;
	m->flush_set = 1;
	a = gw_actions_add(out, GW_ACT_TIMER);
	a->at_ns = at;
	a->key = GW_KEY(GW_KEY_MESH, FLUSH_KEY);
}

void gw_mesh_flush_soon(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	set_flush(m, now + FLUSH_DELAY, out);
}

void gw_mesh_reincarnate(struct gw_mesh *m, uint64_t above, uint64_t now, struct gw_actions *out)
{
	uint8_t *slot = gw_arena_alloc(&out->arena, 8);
	struct gw_action *a;

	gw_roster_set(&m->roster, m->self, GW_MEMBER_ALIVE, gw_max_u64(above, m->self->incarnation) + 1);
	gw_roster_news(&m->roster, m->self, GW_HOST_NONE);
	if (!slot) {
		out->err = GW_ENOMEM;
		return;
	}
	gw_put_le64(slot, m->self->incarnation);
	a = gw_actions_add(out, GW_ACT_PERSIST);
	a->slot = "mesh";
	a->data = (struct gw_bytes){slot, 8};
	gw_mesh_flush(m, now, out);
}

static void about_self(struct gw_mesh *m, const struct gw_statement *s, uint64_t now, struct gw_actions *out)
{
	uint64_t above;

	if (m->leaving || s->incarnation < m->self->incarnation)
		return;
	if (s->state == GW_MEMBER_ALIVE && s->incarnation == m->self->incarnation)
		return;
	if (s->state == GW_MEMBER_SUSPECT || s->state == GW_MEMBER_DEAD)
		gw_mesh_health(m, 1);
	/* In steps that the others follow: who claims to have seen a number out of reach shall not lead us there. */
	above = gw_min_u64(s->incarnation - m->self->incarnation, INCARNATION_JUMP / 2);
	if (m->self->incarnation < UINT64_MAX - INCARNATION_JUMP)
		gw_mesh_reincarnate(m, m->self->incarnation + above, now, out);
}

static int suspects_add(struct gw_mesh *m, gw_host host)
{
	if (m->suspect_count == m->suspect_cap) {
		size_t cap = m->suspect_cap ? m->suspect_cap * 2 : 16;
		gw_host *v = reallocarray(m->suspects, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		m->suspects = v;
		m->suspect_cap = cap;
	}
	m->suspects[m->suspect_count++] = host;
	return 0;
}

/* Adds the witness; 1 where that is new. */
static int witness(struct gw_suspicion *s, const uint8_t *by)
{
	static const uint8_t nobody[16];

	if (!by)
		by = nobody;
	for (unsigned i = 0; i < s->count; i++)
		if (!memcmp(s->by[i], by, 16))
			return 0;
	if (s->count == GW_WITNESSES)
		return 0;
	memcpy(s->by[s->count++], by, 16);
	return 1;
}

static void now_alive(struct gw_mesh *m, struct gw_roster_entry *e, uint64_t incarnation, struct gw_actions *out)
{
	enum gw_member_state was = e->state;

	gw_roster_set(&m->roster, e, GW_MEMBER_ALIVE, incarnation);
	e->changed_ns = m->last_ns;
	if (was == GW_MEMBER_ALIVE)
		return;
	gw_mesh_link_unmute(m, e);
	gw_mesh_tell(m, out, GW_EV_MEMBER_UP, e);
	if (was != GW_MEMBER_SUSPECT)
		gw_mesh_note(out, GW_LOG_NOTICE, "member is back", e->host);
}

/* 1 where it was news. */
static int now_suspect(struct gw_mesh *m, struct gw_roster_entry *e, const struct gw_statement *s, uint64_t now,
		       struct gw_actions *out)
{
	struct gw_suspicion *sus = e->suspicion;

	if (e->state == GW_MEMBER_SUSPECT) {
		if (s->incarnation > e->incarnation) {
			sus->count = 0;
			gw_roster_set(&m->roster, e, GW_MEMBER_SUSPECT, s->incarnation);
		}
		return witness(sus, s->by);
	}
	sus = calloc(1, sizeof *sus);
	if (!sus || suspects_add(m, e->host)) {
		free(sus);
		out->err = GW_ENOMEM;
		return 0;
	}
	sus->since_ns = now;
	witness(sus, s->by);
	gw_roster_set(&m->roster, e, GW_MEMBER_SUSPECT, s->incarnation);
	e->suspicion = sus;
	e->changed_ns = now;
	gw_mesh_tell(m, out, GW_EV_MEMBER_SUSPECT, e);
	return 1;
}

static void now_gone(struct gw_mesh *m, struct gw_roster_entry *e, const struct gw_statement *s, uint64_t now,
		     struct gw_actions *out)
{
	int was_in = gw_roster_is_in(e);

	gw_roster_set(&m->roster, e, s->state, s->incarnation);
	e->changed_ns = now;
	if (!was_in)
		return;
	gw_mesh_tell(m, out, GW_EV_MEMBER_DOWN, e);
	gw_mesh_note(out, GW_LOG_NOTICE, s->state == GW_MEMBER_DEAD ? "member is dead" : "member has left", e->host);
	gw_mesh_link_drop(m, e, out);
}

static struct gw_m_member_news *news_message(gw_host to, struct gw_actions *out)
{
	struct gw_m_member_news *n = &gw_actions_send(out, to, GW_MSG_member_news)->u.member_news;

	n->members.v = gw_arena_array(&out->arena, NEWS_BATCH, sizeof *n->members.v);
	if (!n->members.v)
		out->err = GW_ENOMEM;
	return n->members.v ? n : NULL;
}

static int heard_itself(const struct gw_roster_entry *e, uint64_t now)
{
	return e->linked && e->heard_ns && now - e->heard_ns < GW_MESH_QUIET + PROBE_WAIT;
}

static int heard_lately(struct gw_mesh *m, const struct gw_roster_entry *e, uint64_t now)
{
	const struct gw_mesh_link *l = gw_mesh_link_of(m, e->host);

	return l && l->up && now - l->heard_ns < GW_MESH_QUIET + PROBE_WAIT;
}

/* Whether others say of a host that it is silent or gone, and this one heard it itself a moment ago. Who leaves says so
 * itself over its standing links. */
static int known_better(struct gw_mesh *m, const struct gw_roster_entry *e, const struct gw_statement *s, gw_host from,
			uint64_t now)
{
	const struct gw_mesh_link *l = gw_mesh_link_of(m, e->host);

	if (from == e->host || from == GW_HOST_SELF || s->state == GW_MEMBER_ALIVE || !heard_itself(e, now))
		return 0;
	return s->state != GW_MEMBER_LEFT || (l && gw_mesh_link_standing(l));
}

/* So that it can refute it for those that do not hear it. */
static void tell_accused(struct gw_roster_entry *e, const struct gw_statement *s, uint64_t now, struct gw_actions *out)
{
	struct gw_m_member_news *n;

	if (e->told_ns && now - e->told_ns < TELL_EVERY)
		return;
	e->told_ns = now;
	n = news_message(e->host, out);
	if (!n)
		return;
	memcpy(n->members.v[0].identity, e->record->identity, GW_IDENTITY_BYTES);
	n->members.v[0].incarnation = s->incarnation;
	n->members.v[0].state = (uint8_t)s->state;
	if (s->by)
		memcpy(n->members.v[0].by, s->by, 16);
	n->members.n = 1;
}

void gw_mesh_apply(struct gw_mesh *m, struct gw_roster_entry *e, const struct gw_statement *said, gw_host from,
		   int compared, uint64_t now, struct gw_actions *out)
{
	struct gw_statement s = *said;
	int news = 1;

	if (e->host == GW_HOST_SELF) {
		about_self(m, &s, now, out);
		return;
	}
	if (!gw_roster_is_in(e) && m->wall_ns && e->record->expires_ns <= m->wall_ns)
		return; /* it must renew its record first */
	if (s.incarnation < e->incarnation)
		return;
	if (s.incarnation - e->incarnation > INCARNATION_JUMP && (from != e->host || s.state != GW_MEMBER_ALIVE))
		return; /* the host itself knows best */
	if (s.incarnation == e->incarnation && s.state < e->state)
		return;
	if (gw_roster_is_in(e) && known_better(m, e, &s, from, now)) {
		tell_accused(e, &s, now, out);
		return;
	}
	if (s.state == GW_MEMBER_DEAD && gw_roster_is_in(e) && (compared || heard_lately(m, e, now)))
		s.state = GW_MEMBER_SUSPECT;
	if (s.incarnation == e->incarnation && s.state == e->state && s.state != GW_MEMBER_SUSPECT)
		return;
	switch (s.state) {
	case GW_MEMBER_ALIVE:
		now_alive(m, e, s.incarnation, out);
		break;
	case GW_MEMBER_SUSPECT:
		/* Somebody's doubt about one who is gone here proves nothing. */
		news = gw_roster_is_in(e) && now_suspect(m, e, &s, now, out);
		break;
	default:
		now_gone(m, e, &s, now, out);
		break;
	}
	if (!news)
		return;
	gw_roster_news(&m->roster, e, from);
	gw_mesh_flush_soon(m, now, out);
	/* Who has a link to the suspect looks for itself; its silence, if so, is one more witness. */
	if (s.state == GW_MEMBER_SUSPECT && heard_lately(m, e, now) && from != GW_HOST_SELF)
		gw_mesh_send_news(m, e->host, &e, 1, 0, out);
}

/* --- suspicion --- */

/* How long a suspect has: shorter with more independent witnesses (Lifeguard, section IV-B, with its logarithm drawn as
 * a straight line over three witnesses). */
static uint64_t grace(const struct gw_suspicion *s)
{
	unsigned n = s->count ? s->count - 1 : 0;

	return GW_MESH_LONE - (GW_MESH_LONE - GW_MESH_SURE) * n / (GW_WITNESSES - 1);
}

void gw_mesh_suspicion_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->suspect_count; i++) {
		struct gw_roster_entry *e = gw_roster_at(&m->roster, m->suspects[i]);
		struct gw_statement dead;

		if (!e || !e->suspicion)
			continue;
		m->suspects[kept++] = e->host;
		if (now - e->suspicion->since_ns < grace(e->suspicion) || heard_lately(m, e, now))
			continue;
		kept--;
		dead = (struct gw_statement){GW_MEMBER_DEAD, e->incarnation, NULL};
		gw_mesh_apply(m, e, &dead, GW_HOST_SELF, 0, now, out);
	}
	m->suspect_count = kept;
}

/* --- sending --- */

static size_t put_member(const struct gw_roster_entry *e, int record, struct gw_r_member_news *to)
{
	size_t n = e->suspicion ? e->suspicion->count : 1;

	for (size_t i = 0; i < n; i++) {
		memset(&to[i], 0, sizeof to[i]);
		memcpy(to[i].identity, e->record->identity, GW_IDENTITY_BYTES);
		to[i].incarnation = e->incarnation;
		to[i].state = (uint8_t)e->state;
		if (e->suspicion)
			memcpy(to[i].by, e->suspicion->by[i], 16);
	}
	if (record)
		to[0].record = e->record->raw;
	return n;
}

void gw_mesh_send_news(struct gw_mesh *m, gw_host to, struct gw_roster_entry *const *v, size_t n, int records,
		       struct gw_actions *out)
{
	struct gw_m_member_news *msg = NULL;

	(void)m;
	for (size_t i = 0; i < n; i++) {
		if (!msg || msg->members.n + GW_WITNESSES > NEWS_BATCH)
			msg = news_message(to, out);
		if (!msg)
			return;
		msg->members.n += put_member(v[i], records, msg->members.v + msg->members.n);
	}
}

/* Sends a link the oldest news that it has not heard, one message; returns whether more is left. */
static int flush_link(struct gw_mesh *m, struct gw_mesh_link *l, struct gw_actions *out)
{
	struct gw_roster_entry *e = m->roster.newest;
	struct gw_m_member_news *msg = NULL;

	if (!e || e->news_seq <= l->sent_seq)
		return 0;
	while (e->older && e->older->news_seq > l->sent_seq)
		e = e->older;
	for (; e; e = e->newer) {
		if (msg && msg->members.n + GW_WITNESSES > NEWS_BATCH)
			return 1;
		if (e->news_from != l->host && (e->host != l->host || e->state != GW_MEMBER_ALIVE)) {
			if (!msg && !(msg = news_message(l->host, out)))
				return 0;
			msg->members.n += put_member(e, e->record_seq > l->sent_seq, msg->members.v + msg->members.n);
		}
		l->sent_seq = e->news_seq;
	}
	return 0;
}

void gw_mesh_flush(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	int more = 0;

	m->flush_set = 0;
	for (size_t i = 0; i < GW_MESH_LINKS_MAX; i++)
		if (gw_mesh_link_standing(&m->links[i]))
			more |= flush_link(m, &m->links[i], out);
	if (more)
		set_flush(m, now + FLUSH_DELAY, out);
}

void gw_mesh_ask_for(struct gw_actions *out, gw_host to, const uint8_t (*ids)[GW_IDENTITY_BYTES], size_t n)
{
	struct gw_m_member_ask *a;

	if (!n)
		return;
	a = &gw_actions_send(out, to, GW_MSG_member_ask)->u.member_ask;
	a->hosts.v = gw_arena_array(&out->arena, n, sizeof *a->hosts.v);
	if (!a->hosts.v) {
		out->err = GW_ENOMEM;
		return;
	}
	a->hosts.n = n;
	for (size_t i = 0; i < n; i++)
		memcpy(a->hosts.v[i].identity, ids[i], GW_IDENTITY_BYTES);
}

void gw_mesh_asked(struct gw_mesh *m, gw_host from, const struct gw_m_member_ask *a, struct gw_actions *out)
{
	struct gw_roster_entry *v[NEWS_BATCH];
	size_t n = 0;

	for (size_t i = 0; i < a->hosts.n && n < NEWS_BATCH; i++) {
		v[n] = gw_roster_find(&m->roster, a->hosts.v[i].identity);
		n += v[n] != NULL;
	}
	gw_mesh_send_news(m, from, v, n, 1, out);
}

void gw_mesh_news(struct gw_mesh *m, gw_host from, const struct gw_m_member_news *n, uint64_t now,
		  struct gw_actions *out)
{
	uint8_t ask[NEWS_BATCH][GW_IDENTITY_BYTES];
	size_t asks = 0;

	for (size_t i = 0; i < n->members.n; i++) {
		const struct gw_r_member_news *v = &n->members.v[i];
		struct gw_roster_entry *e = gw_roster_find(&m->roster, v->identity);
		struct gw_statement s = {(enum gw_member_state)v->state, v->incarnation, v->by};

		if (v->state >= GW_MEMBER_STATES)
			continue;
		if (v->record.n &&
		    (!e || v->record.n != e->record->raw.n || memcmp(v->record.p, e->record->raw.p, v->record.n)))
			gw_mesh_verify(m, from, v, now, out);
		if (e)
			gw_mesh_apply(m, e, &s, from, 0, now, out);
		else if (!v->record.n && asks < NEWS_BATCH)
			memcpy(ask[asks++], v->identity, GW_IDENTITY_BYTES);
	}
	gw_mesh_ask_for(out, from, (const uint8_t(*)[GW_IDENTITY_BYTES])ask, asks);
	/* A full message with new records: there is more where it comes from. */
	if (m->pending_count && n->members.n + GW_WITNESSES > NEWS_BATCH)
		m->sync_again = from;
}
