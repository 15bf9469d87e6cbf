/* Signed records of members: sent to be verified, then taken into the table. */
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "mesh/inner.h"

static struct gw_mesh_pending *pending_of(struct gw_mesh *m, const uint8_t identity[GW_IDENTITY_BYTES])
{
	struct gw_mesh_pending *free = NULL;

	for (size_t i = 0; i < GW_MESH_PENDING_MAX; i++) {
		struct gw_mesh_pending *p = &m->pending[i];

		if (p->used && !memcmp(p->identity, identity, GW_IDENTITY_BYTES))
			return p;
		if (!p->used && !free)
			free = p;
	}
	return free;
}

/* Sends a record to be verified; a second one of the same host waits for anti-entropy. */
void gw_mesh_verify(struct gw_mesh *m, gw_host from, const struct gw_r_member_news *n, uint64_t now,
		    struct gw_actions *out)
{
	struct gw_mesh_pending *p = pending_of(m, n->identity);
	const struct gw_roster_entry *sender = gw_roster_at(&m->roster, from);
	struct gw_action *a;
	uint8_t *copy;

	if (!p || p->used || (sender && sender->deaf_ns > now))
		return;
	copy = gw_arena_copy(&out->arena, n->record.p, n->record.n);
	if (!copy) {
		out->err = GW_ENOMEM;
		return;
	}
	memcpy(p->identity, n->identity, GW_IDENTITY_BYTES);
	p->used = 1;
	p->generation++;
	p->state = n->state < GW_MEMBER_STATES ? (enum gw_member_state)n->state : GW_MEMBER_ALIVE;
	p->incarnation = n->incarnation;
	p->from = from;
	p->deadline_ns = now + PENDING_WAIT;
	m->pending_count++;
	a = gw_actions_add(out, GW_ACT_VERIFY_MEMBER);
	a->host = from;
	a->data = (struct gw_bytes){copy, n->record.n};
	a->key = GW_KEY(GW_KEY_MESH, (uint64_t)(p->generation & 0xffffff) << 24 | (uint64_t)(p - m->pending));
}

static struct gw_mesh_pending *pending_by_key(struct gw_mesh *m, uint64_t key)
{
	size_t i = key & 0xffffff;
	struct gw_mesh_pending *p = &m->pending[i < GW_MESH_PENDING_MAX ? i : 0];

	if (GW_KEY_MACHINE(key) != GW_KEY_MESH || i >= GW_MESH_PENDING_MAX || !p->used ||
	    (p->generation & 0xffffff) != (key >> 24 & 0xffffff))
		return NULL;
	return p;
}

static void pending_free(struct gw_mesh *m, struct gw_mesh_pending *p)
{
	p->used = 0;
	m->pending_count--;
}

void gw_mesh_verify_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	for (size_t i = 0; m->pending_count && i < GW_MESH_PENDING_MAX; i++)
		if (m->pending[i].used && now >= m->pending[i].deadline_ns)
			pending_free(m, &m->pending[i]); /* the answer got lost: ask anew when it comes up again */
	if (m->sync_again != GW_HOST_NONE && !m->pending_count) {
		gw_mesh_compare(m, m->sync_again, out);
		m->sync_again = GW_HOST_NONE;
	}
}

/* Room for one more: the host that has been gone longest is forgotten. */
static void make_room(struct gw_mesh *m)
{
	struct gw_roster_entry *oldest = NULL;

	if (gw_roster_count(&m->roster) < GW_MEMBERS_MAX)
		return;
	for (gw_host h = 1; h < m->roster.n; h++) {
		struct gw_roster_entry *e = m->roster.at[h];

		if (e && !gw_roster_is_in(e) && e->link < 0 && (!oldest || e->changed_ns < oldest->changed_ns))
			oldest = e;
	}
	if (oldest)
		gw_roster_forget(&m->roster, oldest);
}

static void newcomer(struct gw_mesh *m, struct gw_member_record *record, const struct gw_mesh_pending *p, gw_host from,
		     struct gw_actions *out)
{
	enum gw_member_state state = p ? p->state : GW_MEMBER_ALIVE;
	uint64_t incarnation = p ? p->incarnation : 0;
	struct gw_roster_entry *e;
	int err;

	/* A suspicion that is this old news begins anew, with those who have links to the host. */
	if (state == GW_MEMBER_SUSPECT)
		state = GW_MEMBER_ALIVE;
	/* Out of reach for the host itself: that is somebody's lie, and not worth more than none. */
	if (incarnation > GW_MESH_INCARNATION_JUMP) {
		incarnation = 0;
		state = GW_MEMBER_ALIVE;
	}
	make_room(m);
	err = gw_roster_add(&m->roster, record, state, incarnation, &e);
	if (err) {
		gw_mesh_note(out, GW_LOG_WARN,
			     err == GW_EDUPLICATE ? "a member's CURVE key is another's: not admitted"
						  : "a member could not be admitted",
			     from);
		return;
	}
	e->score = gw_mesh_score(m, record->identity);
	e->changed_ns = m->last_ns;
	gw_roster_news(&m->roster, e, from);
	e->record_seq = e->news_seq;
	if (!gw_roster_is_in(e))
		return;
	m->picks_dirty = 1;
	gw_mesh_tell(m, out, GW_EV_MEMBER_UP, e);
	gw_mesh_note(out, GW_LOG_INFO, "new member", e->host);
}

static void newer_record(struct gw_mesh *m, struct gw_roster_entry *e, struct gw_member_record *record, gw_host from,
			 struct gw_actions *out)
{
	int err;

	if (record->stamp_ns <= e->record->stamp_ns)
		return;
	err = gw_roster_set_record(&m->roster, e, record);
	if (err) {
		gw_mesh_note(out, GW_LOG_WARN, "a member's newer record cannot be taken", e->host);
		return;
	}
	gw_roster_news(&m->roster, e, from);
	e->record_seq = e->news_seq;
	e->retry_ns = 0;
	m->picks_dirty = 1;
	if (e->host != GW_HOST_SELF && gw_roster_is_in(e))
		gw_mesh_tell(m, out, GW_EV_MEMBER_UP, e);
}

void gw_mesh_record(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out)
{
	struct gw_mesh_pending *p = pending_by_key(m, ev->key);
	struct gw_member_record *r = ev->record;
	struct gw_roster_entry *e = gw_roster_find(&m->roster, r->identity);
	gw_host from = p ? p->from : GW_HOST_NONE;
	struct gw_statement s = {GW_MEMBER_ALIVE, 0, NULL};

	if (p && memcmp(p->identity, r->identity, GW_IDENTITY_BYTES)) {
		gw_mesh_note(out, GW_LOG_WARN, "a record was sent under another identity", from);
		pending_free(m, p);
		return;
	}
	if (m->wall_ns && r->expires_ns <= m->wall_ns) {
		if (p)
			pending_free(m, p);
		return;
	}
	if (!e) {
		newcomer(m, r, p, from, out);
	} else {
		newer_record(m, e, r, from, out);
		if (p) {
			s.state = p->state;
			s.incarnation = p->incarnation;
			gw_mesh_apply(m, e, &s, from, 1, ev->now_ns, out);
		}
	}
	if (p)
		pending_free(m, p);
	gw_mesh_flush_soon(m, ev->now_ns, out);
}

void gw_mesh_refused(struct gw_mesh *m, const struct gw_event *ev, struct gw_actions *out)
{
	struct gw_mesh_pending *p = pending_by_key(m, ev->key);
	struct gw_roster_entry *e;

	if (!p)
		return;
	e = gw_roster_at(&m->roster, p->from);
	pending_free(m, p);
	/* Only what is the sender's fault: records expire on their way, members are revoked, and this host has troubles
	 * of its own. */
	if (!e || gw_err_whose(ev->err) != GW_WHOSE_PEER || gw_err_retryable(ev->err) || ev->err == GW_EREVOKED ||
	    ++e->refusals < REFUSALS_MAX)
		return;
	gw_mesh_note(out, GW_LOG_WARN, "sends member records that do not verify: left alone", e->host);
	e->refusals = 0;
	e->deaf_ns = ev->now_ns + DEAF_FOR;
	gw_mesh_answer(m, e->host, 0, ev->now_ns, out);
	e->retry_ns = ev->now_ns + 600 * GW_MESH_SECOND;
}
