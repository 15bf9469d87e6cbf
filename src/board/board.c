#include "board/board.h"

#include "base/log.h"
#include "board/inner.h"

enum { MAGIC = 0x626f6172, MUTE_AFTER = 3, VERIFY_A_LINK = 32 };
#define MUTE_NS (60 * SECOND)

static void defaults(struct gw_board_config *c)
{
	if (!c->freshness_floor_ns)
		c->freshness_floor_ns = GW_FRESHNESS_FLOOR_NS;
	if (!c->digest_interval_ns)
		c->digest_interval_ns = 10 * SECOND;
	if (!c->ask_timeout_ns)
		c->ask_timeout_ns = 2 * SECOND;
	if (!c->stage_retry_ns)
		c->stage_retry_ns = 60 * SECOND;
	if (!c->retain)
		c->retain = 64;
}

int gw_board_new(struct gw_board **out, const struct gw_board_config *cfg, struct gw_diag *why)
{
	struct gw_board *b = calloc(1, sizeof *b);
	int err;

	if (!b)
		return GW_ENOMEM;
	b->magic = MAGIC;
	b->cfg = *cfg;
	b->cfg.persisted = (struct gw_bytes){0};
	defaults(&b->cfg);
	gw_rng_init(&b->rng, cfg->seed);
	gw_map_init(&b->entries, gw_rng_u64(&b->rng));
	gw_map_init(&b->links, gw_rng_u64(&b->rng));
	gw_map_init(&b->refused, gw_rng_u64(&b->rng));
	err = gw_board_load(b, &cfg->persisted, why);
	if (err) {
		gw_board_free(b);
		return err;
	}
	*out = b;
	return 0;
}

void gw_board_free(struct gw_board *b)
{
	size_t i;

	if (!b)
		return;
	assert(b->magic == MAGIC);
	for (i = 0; i < b->policy_count; i++) {
		free(b->policies[i]->head);
		free(b->policies[i]->raw);
		free(b->policies[i]);
	}
	gw_map_free(&b->entries, gw_board_entry_free);
	gw_map_free(&b->links, free);
	gw_map_free(&b->refused, NULL);
	free(b);
}

/* --- what the other files use --- */

void gw_board_log(struct gw_board *b, int level, gw_host host, const char *text)
{
	struct gw_action *a = gw_actions_add(b->out, GW_ACT_LOG);

	a->level = level;
	a->host = host;
	a->text = text;
}

void gw_board_timer(struct gw_board *b, uint64_t which, uint64_t *slot, uint64_t at_ns)
{
	struct gw_action *a = gw_actions_add(b->out, GW_ACT_TIMER);

	a->at_ns = *slot = at_ns;
	a->key = GW_KEY(GW_KEY_BOARD, which);
}

int gw_board_is_zero(const struct gw_digest *id)
{
	static const struct gw_digest zero;

	return memcmp(id, &zero, sizeof zero) == 0;
}

struct link *gw_board_link(const struct gw_board *b, gw_host host)
{
	return gw_map_get(&b->links, &host, sizeof host);
}

int gw_board_link_knows(const struct link *l, const struct gw_digest *id)
{
	size_t i;

	for (i = 0; i < LINK_IDS; i++)
		if (gw_digest_equal(&l->known[i], id))
			return 1;
	return 0;
}

void gw_board_link_learn(struct link *l, const struct gw_digest *id)
{
	if (gw_board_link_knows(l, id))
		return;
	l->known[l->known_at] = *id;
	l->known_at = (uint8_t)((l->known_at + 1) % LINK_IDS);
}

struct link *gw_board_link_any(struct gw_board *b, gw_host but)
{
	size_t n = gw_map_count(&b->links), at = 0, skip;
	const struct gw_map_entry *e;
	struct link *l = NULL;

	if (!n)
		return NULL;
	if (n > 1 && gw_board_link(b, but))
		n--;
	else
		but = GW_HOST_NONE;
	skip = (size_t)gw_rng_below(&b->rng, n);
	while ((e = gw_map_next(&b->links, &at))) {
		l = e->value;
		if (l->host != but && skip-- == 0)
			break;
	}
	return l;
}

static void link_up(struct gw_board *b, gw_host host)
{
	struct link *l = gw_board_link(b, host);

	if (host == GW_HOST_SELF || host == GW_HOST_NONE)
		return;
	if (!l) {
		if (gw_map_count(&b->links) >= GW_BOARD_LINKS_MAX)
			return;
		l = calloc(1, sizeof *l);
		if (!l || gw_map_put(&b->links, &host, sizeof host, l, NULL) != 0) {
			free(l);
			b->err = GW_ENOMEM;
			return;
		}
		l->host = host;
	}
	gw_board_send_digest(b, l);
	if (!b->digest_at)
		gw_board_timer(b, TIMER_DIGEST, &b->digest_at,
			       b->now + b->cfg.digest_interval_ns / 2 +
				       gw_rng_below(&b->rng, b->cfg.digest_interval_ns));
	b->reconsider = 1; /* somebody to ask */
}

/* --- verification --- */

static struct verifying *verifying_slot(struct gw_board *b, uint64_t key)
{
	size_t i;

	for (i = 0; i < GW_BOARD_VERIFY_MAX; i++)
		if (b->verifying[i].key == key)
			return &b->verifying[i];
	return NULL;
}

static int is_verifying(const struct gw_board *b, const struct gw_digest *id)
{
	size_t i;

	for (i = 0; i < GW_BOARD_VERIFY_MAX; i++)
		if (b->verifying[i].key && gw_digest_equal(&b->verifying[i].id, id))
			return 1;
	return 0;
}

static void verified(struct gw_board *b, struct verifying *v)
{
	struct link *l = gw_board_link(b, v->host);

	if (l && l->verifying)
		l->verifying--;
	v->key = 0;
}

void gw_board_refuse(struct gw_board *b, const struct gw_digest *id, int err)
{
	struct refusal *r = &b->refusals[b->refusal_at];

	if (gw_map_get(&b->refused, id, sizeof *id))
		return;
	if (r->err)
		gw_map_del(&b->refused, &r->id, sizeof r->id);
	r->id = *id;
	r->err = err;
	if (gw_map_put(&b->refused, id, sizeof *id, r, NULL) != 0) {
		r->err = 0;
		b->err = GW_ENOMEM;
		return;
	}
	b->refusal_at = (b->refusal_at + 1) % GW_BOARD_REFUSED_MAX;
}

/* Known for what it is without another look: current, or refused before. */
static int is_known_head(struct gw_board *b, const struct gw_digest *id)
{
	const struct refusal *r = gw_map_get(&b->refused, id, sizeof *id);

	if (gw_board_policy_of_head(b, id)) {
		b->counts.heads_known++;
		return 1;
	}
	if (!r)
		return 0;
	if (r->err == GW_EROLLBACK)
		b->counts.heads_rolled_back++;
	else
		b->counts.heads_refused++;
	return 1;
}

static int is_known_manifest(struct gw_board *b, const struct gw_digest *id)
{
	if (gw_board_entry(b, id))
		return 1;
	if (!gw_map_get(&b->refused, id, sizeof *id))
		return 0;
	b->counts.manifests_refused++;
	return 1;
}

void gw_board_verify(struct gw_board *b, struct link *l, const struct gw_bytes *raw, int is_head)
{
	struct verifying *v;
	struct gw_action *a;
	struct gw_digest id;
	uint8_t *copy;

	gw_digest_of(raw->p, raw->n, &id);
	if (l && is_head)
		gw_board_link_learn(l, &id);
	if (is_head ? is_known_head(b, &id) : is_known_manifest(b, &id))
		return;
	v = verifying_slot(b, 0);
	if (!v || is_verifying(b, &id) || (l && l->verifying >= VERIFY_A_LINK))
		return;
	copy = gw_arena_copy(&b->out->arena, raw->p, raw->n);
	if (!copy) {
		b->err = GW_ENOMEM;
		return;
	}
	v->key = GW_KEY(GW_KEY_BOARD, ++b->verify_key);
	v->id = id;
	v->host = l ? l->host : GW_HOST_SELF;
	v->is_head = (uint8_t)is_head;
	if (l)
		l->verifying++;
	a = gw_actions_add(b->out, is_head ? GW_ACT_VERIFY_HEAD : GW_ACT_VERIFY_MANIFEST);
	a->host = v->host;
	a->key = v->key;
	a->object = id;
	a->data.p = copy;
	a->data.n = raw->n;
}

/* A signature that does not hold is the sender's fault: three of them, and it is not listened to for a minute. What
 * may be our own lack (an older root, no memory) is not held against anyone. */
static void on_refused(struct gw_board *b, const struct gw_event *ev)
{
	struct verifying *v = GW_KEY_MACHINE(ev->key) == GW_KEY_BOARD ? verifying_slot(b, ev->key) : NULL;
	struct link *l;

	if (!v)
		return;
	l = gw_board_link(b, v->host);
	if (v->is_head)
		b->counts.heads_refused++;
	else
		b->counts.manifests_refused++;
	gw_board_log(b, GW_LOG_WARN, v->host,
		     v->is_head ? "a head did not verify: refused" : "a manifest did not verify: refused");
	if (!gw_err_retryable(ev->err)) {
		gw_board_refuse(b, &v->id, ev->err);
		if (l && ++l->refused >= MUTE_AFTER) {
			l->refused = 0;
			l->muted_until_ns = b->now + MUTE_NS;
			gw_board_log(b, GW_LOG_ERR, l->host,
				     "sends what does not verify: not listened to for a minute");
		}
	}
	if (!v->is_head)
		gw_board_asked_done(b, &v->id);
	verified(b, v);
	b->reconsider = 1;
}

/* The id of verified bytes, and the end of their verification. */
static void verified_by_key(struct gw_board *b, const struct gw_event *ev)
{
	struct verifying *v = GW_KEY_MACHINE(ev->key) == GW_KEY_BOARD ? verifying_slot(b, ev->key) : NULL;
	struct link *l = v ? gw_board_link(b, v->host) : NULL;

	if (l)
		l->refused = 0;
	if (v)
		verified(b, v);
}

/* --- the step --- */

static void on_msg(struct gw_board *b, const struct gw_event *ev)
{
	const struct gw_msg *m = ev->msg;
	struct link *l = gw_board_link(b, ev->host);

	if (!l || l->muted_until_ns > b->now)
		return;
	switch (m->type) {
	case GW_MSG_head:
		gw_board_verify(b, l, &m->u.head.head, 1);
		if (m->u.head.manifest.n)
			gw_board_verify(b, l, &m->u.head.manifest, 0);
		break;
	case GW_MSG_manifest:
		gw_board_verify(b, l, &m->u.manifest.manifest, 0);
		break;
	case GW_MSG_manifest_ask:
		gw_board_on_manifest_ask(b, l, &m->u.manifest_ask);
		break;
	case GW_MSG_board_digest:
		gw_board_on_digest(b, l, &m->u.board_digest);
		break;
	case GW_MSG_head_ask:
		gw_board_on_head_ask(b, l, &m->u.head_ask);
		break;
	default:
		break;
	}
}

static void on_timer(struct gw_board *b, const struct gw_event *ev)
{
	struct link *l;

	if (GW_KEY_MACHINE(ev->key) != GW_KEY_BOARD)
		return;
	if ((ev->key & 0xff) == TIMER_DIGEST && b->digest_at && b->now >= b->digest_at) {
		b->digest_at = 0;
		l = gw_board_link_any(b, GW_HOST_NONE);
		if (!l)
			return; /* the next link starts it again */
		gw_board_send_digest(b, l);
		gw_board_timer(b, TIMER_DIGEST, &b->digest_at,
			       b->now + b->cfg.digest_interval_ns / 2 +
				       gw_rng_below(&b->rng, b->cfg.digest_interval_ns));
	} else if ((ev->key & 0xff) == TIMER_ASK && b->ask_at && b->now >= b->ask_at) {
		b->ask_at = 0;
		gw_board_ask_again(b);
		b->reconsider = 1;
	}
}

static void on_served(struct gw_board *b, const struct gw_event *ev)
{
	size_t i;

	if (!ev->run)
		return;
	for (i = 0; i < b->served_count; i++)
		if (memcmp(b->served[i].run, ev->run, GW_RUN_BYTES) == 0)
			break;
	if (i == GW_BOARD_POLICIES_MAX) { /* the one told of longest ago gives way */
		memmove(&b->served[0], &b->served[1], (--i) * sizeof b->served[0]);
		b->served_count = i;
	}
	if (i == b->served_count) {
		memcpy(b->served[i].run, ev->run, GW_RUN_BYTES);
		b->served_count++;
	}
	b->served[i].version = ev->version;
	for (i = 0; i < b->policy_count; i++)
		if (memcmp(b->policies[i]->counters.run, ev->run, GW_RUN_BYTES) == 0)
			memset(&b->policies[i]->path_told, 0, sizeof b->policies[i]->path_told);
	b->reconsider = 1;
}

static void on_stage_failed(struct gw_board *b, const struct gw_event *ev)
{
	struct entry *e = gw_board_entry(b, &ev->object);
	size_t i;

	if (!e)
		return;
	e->failed_until_ns = b->now + b->cfg.stage_retry_ns;
	gw_board_log(b, GW_LOG_WARN, GW_HOST_SELF, "a step could not be staged: looking for another way");
	for (i = 0; i < b->policy_count; i++)
		if (gw_digest_equal(&b->policies[i]->path_told, &ev->object))
			memset(&b->policies[i]->path_told, 0, sizeof b->policies[i]->path_told);
	b->reconsider = 1;
}

static void dispatch(struct gw_board *b, const struct gw_event *ev)
{
	struct entry *e;

	switch (ev->kind) {
	case GW_EV_START:
		gw_board_load_heads(b);
		break;
	case GW_EV_TIMER:
		on_timer(b, ev);
		break;
	case GW_EV_MSG:
		on_msg(b, ev);
		break;
	case GW_EV_LINK_UP:
		link_up(b, ev->host);
		break;
	case GW_EV_LINK_DOWN:
		free(gw_map_del(&b->links, &ev->host, sizeof ev->host));
		break;
	case GW_EV_HEAD:
		verified_by_key(b, ev);
		gw_board_on_head(b, ev);
		break;
	case GW_EV_MANIFEST:
		verified_by_key(b, ev);
		gw_board_on_manifest(b, ev);
		break;
	case GW_EV_REFUSED:
		on_refused(b, ev);
		break;
	case GW_EV_OBJECT_WHOLE:
		e = gw_board_entry(b, &ev->object);
		if (e && !e->whole) {
			e->whole = 1;
			b->reconsider = 1;
		}
		break;
	case GW_EV_SERVED:
		on_served(b, ev);
		break;
	case GW_EV_STAGE_FAILED:
		on_stage_failed(b, ev);
		break;
	default:
		break;
	}
}

int gw_board_step(struct gw_board *b, const struct gw_event *ev, struct gw_actions *out)
{
	assert(b->magic == MAGIC);
	b->now = ev->now_ns;
	b->wall = ev->wall_ns;
	b->out = out;
	b->err = 0;
	dispatch(b, ev);
	if (b->reconsider) {
		b->reconsider = 0;
		gw_board_reach(b);
		gw_board_paths(b);
	}
	b->out = NULL;
	return b->err ? b->err : out->err;
}

/* --- looking in --- */

size_t gw_board_policy_count(const struct gw_board *b)
{
	return b->policy_count;
}

void gw_board_policy(const struct gw_board *b, size_t i, uint64_t wall_ns, struct gw_board_policy *out)
{
	const struct policy *p = b->policies[i];

	assert(i < b->policy_count);
	out->policy = p->name;
	out->run = p->counters.run;
	out->head = p->head;
	out->stale = !p->head || b->now >= p->stale_ns || !gw_head_is_fresh(p->head, wall_ns);
	out->served = gw_board_served_version(b, p->counters.run);
	out->fetched = p->fetched;
	out->steps = p->steps;
	out->path_bytes = p->path_bytes;
	out->no_path = p->no_path;
}

const struct gw_manifest *gw_board_manifest(const struct gw_board *b, const struct gw_digest *id, struct gw_bytes *raw)
{
	const struct entry *e = gw_board_entry(b, id);

	if (e && raw)
		*raw = (struct gw_bytes){e->raw, e->n};
	return e ? &e->m : NULL;
}

const struct gw_manifest *gw_board_version(const struct gw_board *b, const uint8_t run[GW_RUN_BYTES], uint64_t version)
{
	const struct gw_manifest *best = NULL, *m;
	size_t at = 0;

	while ((m = gw_board_next(b, &at, NULL))) {
		if (m->to != version || memcmp(m->run, run, GW_RUN_BYTES) != 0 || !gw_manifest_applies(m))
			continue;
		if (!best ||
		    (m->kind == GW_KIND_TRANSITION && (best->kind != GW_KIND_TRANSITION || m->from > best->from)))
			best = m;
	}
	return best;
}

const struct gw_manifest *gw_board_next(const struct gw_board *b, size_t *at, struct gw_bytes *raw)
{
	const struct gw_map_entry *me = gw_map_next(&b->entries, at);
	const struct entry *e = me ? me->value : NULL;

	if (e && raw)
		*raw = (struct gw_bytes){e->raw, e->n};
	return e ? &e->m : NULL;
}

void gw_board_counts(const struct gw_board *b, struct gw_board_counts *out)
{
	*out = b->counts;
}
