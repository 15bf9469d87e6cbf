#include "engine_world.h"

#include <stdlib.h>
#include <string.h>

#include "engine/plan.h"
#include "unit.h"

/* About a third of the elements change with each version; the others never do. */
uint16_t world_bits(uint32_t rank, uint64_t version, unsigned i)
{
	uint64_t k = i;

	return (uint16_t)(i % 3 == version % 3 || i % 5 == 0 ? gw_splitmix64(&(uint64_t){k * 131 + rank * 7 + version * 1009})
							     : i * 17 + rank);
}

int world_holds(const struct world *w, uint32_t rank, uint64_t version)
{
	for (unsigned i = 0; i < WORLD_ELEMENTS; i++)
		if (w->r[rank].memory[i] != world_bits(rank, version, i))
			return 0;
	return 1;
}

static void check_world(const struct world *w)
{
	uint64_t label = GW_VERSION_NONE;

	for (uint32_t i = 0; i < w->ranks; i++) {
		const struct world_rank *r = &w->r[i];

		if (!r->alive || !r->computing)
			continue;
		ck_assert_msg(world_holds(w, i, r->label), "rank %u computes with bits that are not version %llu, step %u", i,
			      (unsigned long long)r->label, w->steps);
		ck_assert_msg(label == GW_VERSION_NONE || label == r->label, "ranks compute with different versions, step %u",
			      w->steps);
		label = r->label;
	}
}

/* --- queues --- */

static void put(struct world_queue *q, const struct gw_msg *m)
{
	ck_assert_uint_lt(q->n, WORLD_QUEUE);
	q->m[q->n++] = *m;
}

static struct gw_msg take(struct world_queue *q)
{
	struct gw_msg m = q->m[0];

	memmove(q->m, q->m + 1, --q->n * sizeof q->m[0]);
	return m;
}

/* --- staged lists --- */

static void *grow(void *ctx, size_t n)
{
	void **p = ctx, *v = realloc(*p, (n + 7) & ~(size_t)7);

	if (v)
		*p = v;
	return v;
}

static void make_list(struct world *w, struct world_staged *s, uint32_t rank)
{
	static const uint8_t run[16] = {1};
	const struct gw_list_header *h;
	struct gw_list_build *b;
	uint64_t at[WORLD_ELEMENTS];
	uint16_t old_bits[WORLD_ELEMENTS], new_bits[WORLD_ELEMENTS];
	size_t n = 0;

	for (unsigned i = 0; i < WORLD_ELEMENTS; i++) {
		if (w->r[rank].memory[i] == world_bits(rank, s->to, i))
			continue;
		at[n] = 2 * i;
		old_bits[n] = w->r[rank].memory[i];
		new_bits[n++] = world_bits(rank, s->to, i);
	}
	ck_assert_uint_gt(n, 0);
	ck_assert_int_eq(gw_list_build_new(&b, (struct gw_list_mem){.ctx = &s->list[rank], .grow = grow}, run, s->from,
					   s->to, 1 << 20), 0);
	ck_assert_int_eq(gw_list_add(b, 0, 2, at, old_bits, new_bits, n), 0);
	ck_assert_int_eq(gw_list_finish(b, &h, NULL), 0);
	s->list_n[rank] = h->bytes;
	gw_list_build_free(b);
}

static struct world_staged *make_staged(struct world *w, uint64_t from, uint64_t to)
{
	static const uint8_t run[16] = {1};
	struct world_staged *s = calloc(1, sizeof *s);

	s->from = from;
	s->to = to;
	for (uint32_t i = 0; i < w->ranks; i++)
		make_list(w, s, i);
	s->page = aligned_alloc(64, GW_COMMIT_PAGE_BYTES);
	ck_assert_int_eq(gw_commit_init(s->page, run, from, to, w->ranks), 0);
	return s;
}

/* Shared memory lives as long as anybody may hold it: here, until the world ends. */
static struct world_staged *kept[4096];
static unsigned kept_n;

static void keep(struct world_staged *s)
{
	if (s)
		kept[kept_n++] = s;
}

/* --- the daemon --- */

static void event(struct world *w, const struct gw_engine_event *ev, int first)
{
	ck_assert_uint_lt(w->event_n, 64);
	if (first)
		memmove(w->events + 1, w->events, w->event_n * sizeof *ev);
	w->events[first ? 0 : w->event_n] = *ev;
	w->event_n++;
}

static void to_rank(struct world *w, uint32_t rank, const struct gw_msg *m)
{
	if (w->r[rank].connected)
		put(&w->r[rank].in, m);
}

static void to_all(struct world *w, const struct gw_msg *m)
{
	for (uint32_t i = 0; i < w->ranks; i++)
		to_rank(w, i, m);
}

static void act(struct world *w, const struct gw_engine_action *a)
{
	struct gw_msg m = {0};
	struct gw_engine_event ev = {0};

	switch (a->kind) {
	case GW_EA_PROVE:
		w->prove_job = 1;
		w->prove_key = a->key;
		w->prove_version = a->version;
		break;
	case GW_EA_ATTACH_OK:
		m.type = GW_MSG_eng_attach_ok;
		m.u.eng_attach_ok.version = a->version;
		to_all(w, &m);
		break;
	case GW_EA_REFUSE:
		m.type = GW_MSG_eng_refused;
		m.u.eng_refused.err = a->err;
		m.u.eng_refused.text = (struct gw_text){.p = "refused", .n = 7};
		to_all(w, &m);
		w->refused = a->err;
		break;
	case GW_EA_STAGE:
		w->stage_job = 1;
		w->stage_key = a->key;
		w->stage_version = a->version;
		break;
	case GW_EA_HAND:
		m.type = GW_MSG_eng_stage;
		m.u.eng_stage.run[0] = 1;
		m.u.eng_stage.from = w->staged->from;
		m.u.eng_stage.to = w->staged->to;
		m.u.eng_stage.list_bytes = w->staged->list_n[a->rank];
		m.u.eng_stage.records = ((struct gw_list_header *)w->staged->list[a->rank])->records;
		to_rank(w, a->rank, &m);
		break;
	case GW_EA_UNSTAGE:
		m.type = GW_MSG_eng_unstage;
		to_all(w, &m);
		keep(w->staged);
		w->staged = NULL;
		break;
	case GW_EA_PAUSE:
		m.type = GW_MSG_eng_pause;
		m.u.eng_pause.to = a->version;
		to_rank(w, a->rank, &m);
		break;
	case GW_EA_OP:
		if (w->in_process) {
			m.type = GW_MSG_eng_apply;
			m.u.eng_apply.to = w->staged->to;
			m.u.eng_apply.op = (uint8_t)a->op;
			to_rank(w, a->rank, &m);
		} else {
			w->r[a->rank].op = (int)a->op;
		}
		break;
	case GW_EA_DECIDE:
		ev.kind = GW_EE_DECIDED;
		ev.decision = gw_commit_decide(w->staged->page, a->decision);
		event(w, &ev, 1);
		break;
	case GW_EA_RESUME:
		m.type = GW_MSG_eng_resume;
		m.u.eng_resume.run[0] = 1;
		m.u.eng_resume.version = a->version;
		w->table = a->version;
		to_rank(w, a->rank, &m);
		break;
	case GW_EA_POISON:
		m.type = GW_MSG_eng_poison;
		m.u.eng_poison.text = (struct gw_text){.p = "poison", .n = 6};
		to_all(w, &m);
		break;
	case GW_EA_LET_GO:
		m.type = GW_MSG_eng_bye;
		to_rank(w, a->rank, &m);
		w->r[a->rank].connected = 2; /* let go: its end is no event */
		break;
	case GW_EA_TIMER:
		w->timer_at = a->at_ns;
		w->timer_key = a->key;
		break;
	case GW_EA_STATE: break;
	case GW_EA_SERVED: w->served = a->version; break;
	case GW_EA_FAILED:
		w->failed = a->version;
		w->failed_err = a->err;
		break;
	}
}

static int feed(struct world *w, struct gw_engine_event ev)
{
	int first = 1, result = 0;

	event(w, &ev, 0);
	while (w->event_n > 0) {
		struct gw_engine_event next = w->events[0];
		int err;

		memmove(w->events, w->events + 1, --w->event_n * sizeof next);
		next.now_ns = w->now_ns;
		w->actions.n = 0;
		err = gw_engine_step(w->engine, &next, &w->actions);
		if (first)
			result = err;
		first = 0;
		for (size_t i = 0; !err && i < w->actions.n; i++)
			act(w, &w->actions.v[i]);
	}
	return result;
}

static int proves(struct world *w, uint64_t version)
{
	for (uint32_t i = 0; i < w->ranks; i++)
		if (!world_holds(w, i, version))
			return 0;
	return 1;
}

static void finish_prove(struct world *w)
{
	struct gw_engine_event ev = {.kind = GW_EE_PROVED, .key = w->prove_key, .err = GW_EFINGERPRINT};

	w->prove_job = 0;
	for (uint64_t v = 0; v < 8; v++)
		if ((w->prove_version == GW_VERSION_NONE || w->prove_version == v) && proves(w, v)) {
			ev.err = 0;
			ev.version = v;
		}
	feed(w, ev);
}

static void finish_stage(struct world *w)
{
	struct gw_engine_event ev = {.kind = GW_EE_LISTED, .key = w->stage_key};
	struct world_staged *s = make_staged(w, gw_engine_served(w->engine), w->stage_version);

	w->stage_job = 0;
	keep(w->staged);
	w->staged = s;
	feed(w, ev);
}

/* The first half of the places gets the new (or old) bits, as a writer that dies leaves it. */
static void half_write(struct world *w, uint32_t rank, int to_new)
{
	struct gw_list_header *h = w->staged->list[rank];
	struct gw_list_part p;
	uint64_t at;

	(void)gw_list_set_state(h, to_new ? GW_LIST_WRITING : GW_LIST_UNDOING);
	ck_assert_int_eq(gw_list_part(h, 0, &p), 0);
	at = p.base;
	for (unsigned i = 0; i < p.count / 2; i++) {
		at += (uint64_t)(p.gaps[2 * i] | p.gaps[2 * i + 1] << 8) * 2;
		memcpy((uint8_t *)w->r[rank].memory + at, (to_new ? p.new_bits : p.old_bits) + 2 * i, 2);
	}
}

static void finish_op(struct world *w, uint32_t rank)
{
	struct world_rank *r = &w->r[rank];
	struct gw_engine_event ev = {.kind = GW_EE_DID, .rank = rank, .op = (enum gw_engine_op)r->op};
	struct gw_device dev = gw_device_cpu();

	if (w->fail_op == r->op) {
		w->fail_op = 0;
		if (r->op != GW_OP_CHECK)
			half_write(w, rank, r->op == GW_OP_WRITE);
		ev.err = GW_EDEVICE;
	} else {
		ev.err = gw_op_run((enum gw_engine_op)r->op, w->staged->list[rank], &dev, &r->mem, 1, &ev.found);
	}
	r->op = 0;
	if (!r->alive)
		ev.kind = GW_EE_RANK_DOWN;
	feed(w, ev);
}

static void from_rank(struct world *w, uint32_t rank)
{
	struct gw_msg m = take(&w->r[rank].out);
	struct gw_engine_event ev = {.rank = rank};

	switch (m.type) {
	case GW_MSG_eng_staged:
		ev.kind = GW_EE_TAKEN;
		ev.version = m.u.eng_staged.to;
		ev.err = (int)m.u.eng_staged.err;
		break;
	case GW_MSG_eng_paused:
		ev.kind = GW_EE_PAUSED;
		ev.version = m.u.eng_paused.to;
		break;
	case GW_MSG_eng_resumed:
		ev.kind = GW_EE_RESUMED;
		ev.version = m.u.eng_resumed.version;
		break;
	case GW_MSG_eng_applied:
		ev.kind = GW_EE_DID;
		ev.op = (enum gw_engine_op)m.u.eng_applied.op;
		ev.err = (int)m.u.eng_applied.err;
		ev.found = (struct gw_list_found){.old_n = m.u.eng_applied.old_n, .new_n = m.u.eng_applied.new_n,
						  .neither_n = m.u.eng_applied.neither_n};
		break;
	default: ck_abort_msg("the rank sent message %d", (int)m.type);
	}
	if (w->r[rank].connected == 1)
		feed(w, ev);
}

static void connect_rank(struct world *w, uint32_t rank)
{
	struct world_rank *r = &w->r[rank];
	struct gw_engine_event ev = {.kind = GW_EE_RANK_UP, .rank = rank, .ranks = w->ranks, .in_process = w->in_process};

	ev.version = gw_client_state(r->client) == GW_CLIENT_DETACHED ? r->label : gw_client_version(r->client);
	if (gw_engine_state(w->engine) != GW_ENGINE_DETACHED)
		return;
	r->connected = 1;
	r->in.n = r->out.n = 0;
	ck_assert_int_eq(feed(w, ev), 0);
}

/* --- the ranks --- */

static void rank_lost(struct world *w, uint32_t rank);

static void rank_step(struct world *w, uint32_t rank, struct gw_client_event *ev)
{
	struct world_rank *r = &w->r[rank];
	struct gw_client_actions out;
	int close_it = 0;

	ev->now_ns = w->now_ns;
	gw_client_step(r->client, ev, &out);
	for (size_t i = 0; i < out.n; i++) {
		const struct gw_client_action *a = &out.v[i];

		switch (a->kind) {
		case GW_CA_SEND:
			if (r->connected && w->daemon)
				put(&r->out, &a->msg);
			break;
		case GW_CA_ATTACHED:
			if (gw_client_state(r->client) == GW_CLIENT_SERVING) {
				r->label = a->version;
				r->computing = 1;
			}
			break;
		case GW_CA_PAUSE: r->asked_pause = 1; break;
		case GW_CA_RESUME:
			r->asked_resume = 1;
			r->resume_version = a->version;
			r->poisoned = 0;
			break;
		case GW_CA_POISONED: /* an engine that was asked to pause does so all the same */
			r->computing = 0;
			r->asked_pause = r->asked_resume = 0;
			r->poisoned = 1;
			break;
		case GW_CA_CLOSE: close_it = 1; break;
		case GW_CA_DROP_LIST:
		case GW_CA_REFUSED: break;
		}
	}
	if (close_it && r->connected)
		rank_lost(w, rank);
}

static void rank_lost(struct world *w, uint32_t rank)
{
	struct world_rank *r = &w->r[rank];
	struct gw_engine_event down = {.kind = GW_EE_RANK_DOWN, .rank = rank};
	struct gw_client_event ev = {.kind = GW_CE_LOST};
	int was = r->connected;

	r->connected = 0;
	r->in.n = r->out.n = 0;
	rank_step(w, rank, &ev);
	if (was == 1 && w->daemon && !r->op)
		feed(w, down);
}

static void to_client(struct world *w, uint32_t rank)
{
	struct gw_msg m = take(&w->r[rank].in);
	struct gw_client_event ev = {.kind = GW_CE_MSG, .msg = &m};

	if (m.type == GW_MSG_eng_stage) {
		/* The pair that the message brought: the newest for that version. */
		struct world_staged *s = w->staged && w->staged->to == m.u.eng_stage.to ? w->staged : NULL;

		for (unsigned i = kept_n; i > 0 && !s; i--)
			if (kept[i - 1]->to == m.u.eng_stage.to)
				s = kept[i - 1];
		ck_assert_ptr_nonnull(s);
		ev.list = s->list[rank];
		ev.list_n = s->list_n[rank];
		ev.page = s->page;
		ev.page_n = GW_COMMIT_PAGE_BYTES;
	}
	rank_step(w, rank, &ev);
}

/* --- what can happen --- */

enum choice { TO_CLIENT, FROM_RANK, PAUSED, RESUMED, OP, PROVE, STAGE, LOST, RECONNECT };

struct possible {
	enum choice c;
	uint32_t rank;
};

static unsigned possibilities(const struct world *w, struct possible *p)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < w->ranks; i++) {
		const struct world_rank *r = &w->r[i];

		if (w->daemon && r->op)
			p[n++] = (struct possible){OP, i};
		if (!r->alive)
			continue;
		if (r->connected && r->in.n)
			p[n++] = (struct possible){TO_CLIENT, i};
		else if (r->connected && !w->daemon)
			p[n++] = (struct possible){LOST, i};
		if (w->daemon && r->connected && r->out.n)
			p[n++] = (struct possible){FROM_RANK, i};
		if (r->asked_pause && w->stuck_rank != (int)i)
			p[n++] = (struct possible){PAUSED, i};
		else if (r->asked_resume && w->stuck_rank != (int)i)
			p[n++] = (struct possible){RESUMED, i};
		if (w->daemon && !r->connected && gw_client_state(r->client) != GW_CLIENT_SETTLING && w->refused == 0 &&
		    gw_engine_state(w->engine) == GW_ENGINE_DETACHED)
			p[n++] = (struct possible){RECONNECT, i};
	}
	if (w->daemon && w->prove_job)
		p[n++] = (struct possible){PROVE, 0};
	if (w->daemon && w->stage_job)
		p[n++] = (struct possible){STAGE, 0};
	return n;
}

int world_step(struct world *w)
{
	struct possible p[64];
	unsigned n = possibilities(w, p);
	struct gw_client_event ev = {0};
	struct possible c;

	w->steps++;
	if (n == 0)
		return 0;
	w->now_ns += 1000;
	c = p[gw_rng_below(&w->rng, n)];
	switch (c.c) {
	case TO_CLIENT: to_client(w, c.rank); break;
	case FROM_RANK: from_rank(w, c.rank); break;
	case PAUSED:
		w->r[c.rank].asked_pause = 0;
		w->r[c.rank].computing = 0;
		ev.kind = GW_CE_PAUSED;
		rank_step(w, c.rank, &ev);
		break;
	case RESUMED:
		w->r[c.rank].asked_resume = 0;
		w->r[c.rank].computing = 1;
		w->r[c.rank].label = w->r[c.rank].resume_version;
		ev.kind = GW_CE_RESUMED;
		rank_step(w, c.rank, &ev);
		break;
	case OP: finish_op(w, c.rank); break;
	case PROVE: finish_prove(w); break;
	case STAGE: finish_stage(w); break;
	case LOST: rank_lost(w, c.rank); break;
	case RECONNECT: connect_rank(w, c.rank); break;
	}
	check_world(w);
	return 1;
}

/* Nothing can happen but that time passes: clients look at the page, and the machine's timer fires. */
static int tick(struct world *w)
{
	struct gw_engine_event ev = {.kind = GW_EE_TIMER, .key = w->timer_key};
	struct gw_client_event t = {.kind = GW_CE_TICK};
	int settling = 0;

	w->now_ns += 1000000000;
	for (uint32_t i = 0; i < w->ranks; i++)
		if (w->r[i].alive && gw_client_state(w->r[i].client) == GW_CLIENT_SETTLING) {
			settling = 1;
			rank_step(w, i, &t);
		}
	if (w->daemon && w->timer_at) {
		if (w->now_ns < w->timer_at)
			return 1;
		w->timer_at = 0;
		feed(w, ev);
		settling = 1;
	}
	check_world(w);
	return settling;
}

void world_run(struct world *w, unsigned limit)
{
	for (unsigned i = 0; i < limit; i++)
		if (!world_step(w) && !tick(w))
			return;
	ck_abort_msg("the world does not come to rest");
}

int world_stage(struct world *w, uint64_t to, int commit, int anchor)
{
	struct gw_engine_event ev = {.kind = GW_EE_STAGE, .version = to, .anchor = anchor};
	int err = feed(w, ev);

	w->failed = w->served = GW_VERSION_NONE;
	w->failed_err = 0;
	ev.kind = GW_EE_COMMIT;
	return err || !commit ? err : feed(w, ev);
}

/* --- beginnings and ends --- */

void world_init(struct world *w, uint32_t ranks, int in_process, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	w->ranks = ranks;
	w->in_process = in_process;
	w->stuck_rank = -1;
	w->now_ns = 1;
	gw_rng_init(&w->rng, seed);
	for (uint32_t i = 0; i < ranks; i++) {
		struct world_rank *r = &w->r[i];
		struct gw_client_config cfg = {.rank = i, .ranks = ranks, .in_process = in_process, .dev = gw_device_cpu(),
					       .mem = &r->mem, .segments = 1, .settle_ns = 10000000000,
					       .doubt_ns = 60000000000};

		for (unsigned k = 0; k < WORLD_ELEMENTS; k++)
			r->memory[k] = world_bits(i, 0, k);
		r->alive = 1;
		r->mem = (struct gw_dev_mem){.addr = (uintptr_t)r->memory, .bytes = sizeof r->memory};
		ck_assert_int_eq(gw_client_new(&r->client, &cfg), 0);
	}
}

void world_start_daemon(struct world *w)
{
	struct gw_engine_limits l;

	gw_engine_limits_default(&l);
	w->daemon = 1;
	w->refused = 0;
	ck_assert_int_eq(gw_engine_new(&w->engine, &l), 0);
}

void world_kill_daemon(struct world *w)
{
	for (uint32_t i = 0; i < w->ranks; i++) {
		if (w->staged && (w->r[i].op == GW_OP_WRITE || w->r[i].op == GW_OP_UNDO))
			half_write(w, i, w->r[i].op == GW_OP_WRITE);
		w->r[i].op = 0;
		w->r[i].out.n = 0;
	}
	w->daemon = 0;
	gw_engine_free(w->engine);
	w->engine = NULL;
	keep(w->staged);
	w->staged = NULL;
	w->stage_job = w->prove_job = 0;
	w->timer_at = 0;
	w->event_n = 0;
}

void world_kill_rank(struct world *w, uint32_t rank)
{
	struct world_rank *r = &w->r[rank];
	struct gw_engine_event down = {.kind = GW_EE_RANK_DOWN, .rank = rank};
	int was = r->connected;

	r->alive = r->connected = r->computing = 0;
	r->asked_pause = r->asked_resume = 0;
	r->in.n = r->out.n = 0;
	if (was == 1 && w->daemon && !r->op)
		feed(w, down);
	check_world(w);
}

void world_free(struct world *w)
{
	keep(w->staged);
	for (unsigned i = 0; i < kept_n; i++) {
		for (uint32_t k = 0; k < WORLD_RANKS_MAX; k++)
			free(kept[i]->list[k]);
		free(kept[i]->page);
		free(kept[i]);
	}
	kept_n = 0;
	for (uint32_t i = 0; i < w->ranks; i++)
		gw_client_free(w->r[i].client);
	gw_engine_free(w->engine);
	free(w->actions.v);
}
