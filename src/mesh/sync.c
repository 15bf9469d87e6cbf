/* Anti-entropy: two tables compared by digest, then buckets, then lines; each side then tells what the other lacks. */
#include <string.h>

#include "base/err.h"
#include "base/num.h"
#include "mesh/inner.h"

void gw_mesh_compare(struct gw_mesh *m, gw_host with, struct gw_actions *out)
{
	struct gw_m_table_digest *d = &gw_actions_send(out, with, GW_MSG_table_digest)->u.table_digest;

	d->count = (uint32_t)gw_roster_count(&m->roster);
	d->digest = m->roster.digest;
}

void gw_mesh_sync_digest(struct gw_mesh *m, gw_host from, const struct gw_m_table_digest *d, struct gw_actions *out)
{
	struct gw_m_table_buckets *b;
	uint8_t *v;

	if (d->count == gw_roster_count(&m->roster) && d->digest == m->roster.digest)
		return;
	v = gw_arena_alloc(&out->arena, GW_ROSTER_BUCKETS * 8);
	if (!v) {
		out->err = GW_ENOMEM;
		return;
	}
	b = &gw_actions_send(out, from, GW_MSG_table_buckets)->u.table_buckets;
	for (size_t i = 0; i < GW_ROSTER_BUCKETS; i++)
		gw_put_le64(v + 8 * i, m->roster.buckets[i]);
	b->digests = (struct gw_bytes){v, GW_ROSTER_BUCKETS * 8};
}

static void put_line(const struct gw_roster_entry *e, struct gw_r_member_line *to)
{
	memcpy(to->identity, e->record->identity, GW_IDENTITY_BYTES);
	to->incarnation = e->incarnation;
	to->state = (uint8_t)e->state;
	to->stamp = e->record->stamp_ns;
}

void gw_mesh_sync_buckets(struct gw_mesh *m, gw_host from, const struct gw_m_table_buckets *b, struct gw_actions *out)
{
	uint32_t counts[GW_ROSTER_BUCKETS] = {0};
	size_t total = 0, start = gw_rng_below(&m->rng, GW_ROSTER_BUCKETS);
	struct gw_m_table_lines *l;
	uint64_t mask = 0;

	if (b->digests.n != GW_ROSTER_BUCKETS * 8)
		return;
	for (gw_host h = 0; h < m->roster.n; h++)
		if (m->roster.at[h])
			counts[gw_roster_bucket(m->roster.at[h]->record->identity)]++;
	/* As many differing buckets as one message holds whole, from a random one on: the rest comes next time. */
	for (size_t k = 0; k < GW_ROSTER_BUCKETS; k++) {
		size_t i = (start + k) % GW_ROSTER_BUCKETS;

		if (gw_le64(b->digests.p + 8 * i) == m->roster.buckets[i] || total + counts[i] > LINES_BATCH)
			continue;
		mask |= UINT64_C(1) << i;
		total += counts[i];
	}
	if (!mask)
		return;
	l = &gw_actions_send(out, from, GW_MSG_table_lines)->u.table_lines;
	l->buckets = mask;
	l->lines.v = gw_arena_array(&out->arena, total, sizeof *l->lines.v);
	if (!l->lines.v) {
		out->err = GW_ENOMEM;
		return;
	}
	for (gw_host h = 0; h < m->roster.n; h++) {
		const struct gw_roster_entry *e = m->roster.at[h];

		if (e && mask >> gw_roster_bucket(e->record->identity) & 1)
			put_line(e, &l->lines.v[l->lines.n++]);
	}
}

/* Whether our line says more than theirs. */
static int ours_is_newer(const struct gw_roster_entry *e, const struct gw_r_member_line *l)
{
	if (e->record->stamp_ns > l->stamp || e->incarnation > l->incarnation)
		return 1;
	return e->incarnation == l->incarnation && e->state > l->state;
}

struct found {
	struct gw_roster_entry *tell[SYNC_NEWS_MAX];
	size_t tells;
	uint8_t ask[NEWS_BATCH][GW_IDENTITY_BYTES];
	size_t asks;
};

static void compare_line(struct gw_mesh *m, gw_host from, const struct gw_r_member_line *l, uint64_t now,
			 struct found *f, struct gw_actions *out)
{
	const uint8_t *by = gw_roster_at(&m->roster, from)->record->identity;
	struct gw_roster_entry *e = gw_roster_find(&m->roster, l->identity);
	struct gw_statement s = {(enum gw_member_state)l->state, l->incarnation, by};

	if (l->state >= GW_MEMBER_STATES)
		return;
	if (e) {
		e->mark = m->mark;
		gw_mesh_apply(m, e, &s, from, 1, now, out);
		if (ours_is_newer(e, l) && f->tells < SYNC_NEWS_MAX)
			f->tell[f->tells++] = e;
	}
	if ((!e || l->stamp > e->record->stamp_ns) && f->asks < NEWS_BATCH)
		memcpy(f->ask[f->asks++], l->identity, GW_IDENTITY_BYTES);
}

void gw_mesh_sync_lines(struct gw_mesh *m, gw_host from, const struct gw_m_table_lines *l, uint64_t now,
			struct gw_actions *out)
{
	struct found f = {.tells = 0};

	m->mark++;
	for (size_t i = 0; i < l->lines.n; i++)
		compare_line(m, from, &l->lines.v[i], now, &f, out);
	for (gw_host h = 0; h < m->roster.n && f.tells < SYNC_NEWS_MAX; h++) {
		struct gw_roster_entry *e = m->roster.at[h];

		if (e && l->buckets >> gw_roster_bucket(e->record->identity) & 1 && e->mark != m->mark)
			f.tell[f.tells++] = e;
	}
	gw_mesh_send_news(m, from, f.tell, f.tells, 1, out);
	gw_mesh_ask_for(out, from, (const uint8_t(*)[GW_IDENTITY_BYTES])f.ask, f.asks);
}

/* A random member that is in, not one of our neighbours; NULL where there is none. */
static struct gw_roster_entry *stranger(struct gw_mesh *m)
{
	struct gw_roster_entry *chosen = NULL;
	uint64_t seen = 0;

	for (gw_host h = 1; h < m->roster.n; h++) {
		struct gw_roster_entry *e = m->roster.at[h];

		if (e && gw_roster_is_in(e) && e->link < 0 && gw_roster_dialable(e) && !gw_rng_below(&m->rng, ++seen))
			chosen = e;
	}
	return chosen;
}

void gw_mesh_sync_tick(struct gw_mesh *m, uint64_t now, struct gw_actions *out)
{
	gw_host v[GW_MESH_LINKS_MAX];
	struct gw_roster_entry *e;
	size_t n;

	if (now < m->sync_ns || m->leaving)
		return;
	m->sync_ns = now + GW_MESH_SYNC * 3 / 4 + gw_rng_below(&m->rng, GW_MESH_SYNC / 2);
	/* Strangers too: flooding and neighbours alone could leave two halves that do not know of each other. The
	 * comparison starts when the link is up. */
	if (++m->sync_round % 3 == 0 && (e = stranger(m))) {
		gw_mesh_link_borrow(m, e->host, now, out);
		return;
	}
	n = gw_mesh_neighbours(m, v, GW_MESH_LINKS_MAX);
	if (n)
		gw_mesh_compare(m, v[gw_rng_below(&m->rng, n)], out);
}
