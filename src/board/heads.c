/*
 * Heads: the rules, the flood, the comparison with a neighbour.
 */
#include "base/log.h"
#include "board/inner.h"

enum { ANSWERS_MAX = 16 }; /* heads sent, or asked for, for one digest */

static struct policy *policy_by_name(const struct gw_board *b, const char *name)
{
	size_t i;

	for (i = 0; i < b->policy_count; i++)
		if (strcmp(b->policies[i]->name, name) == 0)
			return b->policies[i];
	return NULL;
}

struct policy *gw_board_policy_of_run(const struct gw_board *b, const uint8_t run[GW_RUN_BYTES])
{
	size_t i;

	for (i = 0; i < b->policy_count; i++)
		if (memcmp(b->policies[i]->counters.run, run, GW_RUN_BYTES) == 0)
			return b->policies[i];
	return NULL;
}

struct policy *gw_board_policy_of_head(const struct gw_board *b, const struct gw_digest *id)
{
	size_t i;

	for (i = 0; i < b->policy_count; i++)
		if (b->policies[i]->head && gw_digest_equal(&b->policies[i]->head->id, id))
			return b->policies[i];
	return NULL;
}

static struct policy *policy_make(struct gw_board *b, const char *name)
{
	struct policy *p = policy_by_name(b, name);

	if (p || b->policy_count == GW_BOARD_POLICIES_MAX)
		return p;
	p = calloc(1, sizeof *p);
	if (!p) {
		b->err = GW_ENOMEM;
		return NULL;
	}
	memcpy(p->name, name, strlen(name) + 1);
	p->fetched = GW_VERSION_NONE;
	b->policies[b->policy_count++] = p;
	return p;
}

/* --- sending --- */

void gw_board_send_head(struct gw_board *b, struct policy *p, struct link *l)
{
	const struct entry *e = gw_board_entry(b, &p->head->manifest);
	struct gw_m_head *m = &gw_actions_send(b->out, l->host, GW_MSG_head)->u.head;

	/* Copies: a later event of the same step may replace them. */
	m->head.p = gw_arena_copy(&b->out->arena, p->raw, p->n);
	m->head.n = m->head.p ? p->n : 0;
	if (e && e->n <= SMALL_MANIFEST) {
		m->manifest.p = gw_arena_copy(&b->out->arena, e->raw, e->n);
		m->manifest.n = m->manifest.p ? e->n : 0;
	}
	if (!m->head.p)
		b->err = GW_ENOMEM;
	gw_board_link_learn(l, &p->head->id);
	b->counts.heads_sent++;
}

static void flood(struct gw_board *b, struct policy *p)
{
	const struct gw_map_entry *e;
	size_t at = 0;

	while ((e = gw_map_next(&b->links, &at)))
		if (!gw_board_link_knows(e->value, &p->head->id))
			gw_board_send_head(b, p, e->value);
}

/* --- taking --- */

static void refused(struct gw_board *b, const struct gw_event *ev, struct policy *p, int err)
{
	struct link *l = gw_board_link(b, ev->host);

	if (err != GW_EEXPIRED) /* the clock may be what is wrong */
		gw_board_refuse(b, &ev->head->id, err);
	switch (err) {
	case GW_EROLLBACK:
		if (ev->host == GW_HOST_SELF)
			break; /* the one of the slot, when this host's publisher was faster */
		b->counts.heads_rolled_back++;
		if (ev->host != GW_HOST_SELF) /* ours: stored before, and a newer one came while it was verified */
			gw_board_log(b, GW_LOG_WARN, ev->host, "an older head was sent again: refused");
		if (l && p && p->head)
			gw_board_send_head(b, p, l); /* it may only be behind */
		break;
	case GW_EEQUIVOCATE:
		b->counts.heads_refused++;
		gw_board_log(b, GW_LOG_ERR, ev->host, "two heads are signed for one place: the second is refused");
		break;
	case GW_EEXPIRED:
		b->counts.heads_refused++;
		gw_board_log(b, GW_LOG_WARN, ev->host, "a head expired long ago, and no counters are stored: refused");
		break;
	default:
		b->counts.heads_refused++;
		gw_board_log(b, GW_LOG_WARN, ev->host, "a head was refused");
	}
}

/* Puts it in the place of the one before. */
static int install(struct gw_board *b, struct policy *p, const struct gw_event *ev)
{
	struct gw_head *head = malloc(sizeof *head);
	uint64_t life;
	uint8_t *raw = malloc(ev->raw.n ? ev->raw.n : 1);

	if (!head || !raw) {
		free(head);
		free(raw);
		return GW_ENOMEM;
	}
	*head = *ev->head;
	if (ev->raw.n)
		memcpy(raw, ev->raw.p, ev->raw.n);
	free(p->head);
	free(p->raw);
	p->head = head;
	p->raw = raw;
	p->n = ev->raw.n;
	p->from = ev->host;
	/* A wall clock that is set back must not make it fresh again. */
	life = head->expires_ns - gw_min_u64(gw_max_u64(b->wall, head->created_ns), head->expires_ns);
	p->stale_ns = b->now + life;
	return 0;
}

void gw_board_on_head(struct gw_board *b, const struct gw_event *ev)
{
	enum gw_freshness fresh = GW_HEAD_FRESH;
	struct gw_digest old = {{0}};
	struct policy *p = policy_by_name(b, ev->head->policy);
	const struct gw_counters none = {0};
	int err;

	err = gw_head_judge(p ? &p->counters : &none, ev->head, b->wall, b->cfg.freshness_floor_ns, &fresh, NULL);
	if (err) {
		refused(b, ev, p, err);
		return;
	}
	if (fresh == GW_HEAD_KNOWN && p->head) {
		b->counts.heads_known++;
		return;
	}
	p = policy_make(b, ev->head->policy);
	if (!p) {
		if (!b->err)
			gw_board_log(b, GW_LOG_ERR, ev->host, "a head of one policy too many: refused");
		return;
	}
	if (p->head)
		old = p->head->id;
	if (install(b, p, ev) != 0) {
		b->err = GW_ENOMEM;
		return;
	}
	if (!gw_board_is_zero(&old))
		gw_board_refuse(b, &old, GW_EROLLBACK); /* its replay need not be verified again */
	b->counts.heads_accepted++;
	if (fresh != GW_HEAD_KNOWN) {
		gw_counters_advance(&p->counters, p->head);
		gw_board_persist(b);
	}
	flood(b, p);
	b->reconsider = 1;
}

/* --- comparing --- */

void gw_board_send_digest(struct gw_board *b, struct link *l)
{
	struct gw_m_board_digest *m = &gw_actions_send(b->out, l->host, GW_MSG_board_digest)->u.board_digest;
	struct gw_r_head_line *v = gw_arena_array(&b->out->arena, DIGEST_HEADS_MAX, sizeof *v);
	size_t i;

	if (!v) {
		b->err = GW_ENOMEM;
		return;
	}
	m->heads.v = v;
	for (i = 0; i < b->policy_count && m->heads.n < DIGEST_HEADS_MAX; i++) {
		const struct policy *p = b->policies[i];

		if (!p->head)
			continue;
		memcpy(v[m->heads.n].run, p->head->run, GW_RUN_BYTES);
		v[m->heads.n].root_epoch = p->head->root_epoch;
		v[m->heads.n].sequence = p->head->sequence;
		memcpy(v[m->heads.n].id, p->head->id.b, sizeof p->head->id.b);
		m->heads.n++;
	}
	b->counts.digests_sent++;
}

/* Below, equal, above: like memcmp. */
static int compare(const struct gw_head *h, const struct gw_r_head_line *line)
{
	if (h->root_epoch != line->root_epoch)
		return h->root_epoch < line->root_epoch ? -1 : 1;
	if (h->sequence != line->sequence)
		return h->sequence < line->sequence ? -1 : 1;
	return 0;
}

static int mentions(const struct gw_m_board_digest *m, const uint8_t run[GW_RUN_BYTES])
{
	size_t i;

	for (i = 0; i < m->heads.n; i++)
		if (memcmp(m->heads.v[i].run, run, GW_RUN_BYTES) == 0)
			return 1;
	return 0;
}

void gw_board_on_digest(struct gw_board *b, struct link *l, const struct gw_m_board_digest *m)
{
	size_t i, answers = 0;

	for (i = 0; i < m->heads.n && answers < ANSWERS_MAX; i++) {
		const struct gw_r_head_line *line = &m->heads.v[i];
		struct policy *p = gw_board_policy_of_run(b, line->run);
		int cmp = p && p->head ? compare(p->head, line) : -1;
		struct gw_digest id;

		memcpy(id.b, line->id, sizeof id.b);
		if (cmp > 0) {
			gw_board_send_head(b, p, l);
			answers++;
		} else if (cmp < 0 && !gw_map_get(&b->refused, &id, sizeof id)) {
			memcpy(gw_actions_send(b->out, l->host, GW_MSG_head_ask)->u.head_ask.run, line->run,
			       GW_RUN_BYTES);
			answers++;
		}
	}
	for (i = 0; i < b->policy_count && answers < ANSWERS_MAX; i++) {
		if (!b->policies[i]->head || mentions(m, b->policies[i]->head->run))
			continue;
		gw_board_send_head(b, b->policies[i], l);
		answers++;
	}
}

void gw_board_on_head_ask(struct gw_board *b, struct link *l, const struct gw_m_head_ask *m)
{
	struct policy *p = gw_board_policy_of_run(b, m->run);

	if (p && p->head)
		gw_board_send_head(b, p, l);
}
