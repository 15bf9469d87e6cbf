#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/table.h"

enum { MAGIC = 0x656e67 };

struct rank {
	int up, in_process;
	int waiting; /* for the answer that the state is about */
	int err;     /* of the last op */
	struct gw_list_found found;
};

enum purpose { FOR_ATTACH, FOR_RECHECK, FOR_POISON, FOR_ANCHOR, FOR_SCRUB };
enum after { AFTER_NEW, AFTER_OLD_UNDO, AFTER_OLD_RESUME, AFTER_OLD_PROVE };

struct gw_engine {
	unsigned magic;
	struct gw_engine_limits limits;
	enum gw_engine_state state;
	struct rank *ranks;
	uint32_t wanted, up;
	uint64_t served;        /* or GW_VERSION_NONE */
	uint64_t staged;        /* what the ranks hold a list for, or GW_VERSION_NONE */
	uint64_t to;            /* what is being staged or committed */
	uint64_t claim;
	int commit;             /* as soon as it is staged */
	int failed;             /* why the commit under way does not succeed; 0 */
	int lost;               /* a rank went away in the middle of a commit */
	int proving;            /* a PROVE is out */
	enum purpose purpose;
	enum after after;
	enum gw_engine_op op;
	uint64_t key;           /* of the PROVE or STAGE that is out, and of the timer that counts */
	uint64_t asked_ns, paused_ns;
	/* of the step */
	uint64_t now_ns;
	struct gw_engine_actions *out;
};

static struct gw_engine_action scratch; /* handed out when memory is gone; the actions are then dropped */

void gw_engine_limits_default(struct gw_engine_limits *l)
{
	const uint64_t second = 1000000000;

	*l = (struct gw_engine_limits){
		.hand_ns = 30 * second, .pause_ns = 30 * second, .op_ns = 30 * second, .resume_ns = 30 * second};
}

int gw_engine_new(struct gw_engine **out, const struct gw_engine_limits *limits)
{
	struct gw_engine *e = calloc(1, sizeof *e);

	if (!e)
		return GW_ENOMEM;
	e->magic = MAGIC;
	e->limits = *limits;
	e->served = e->staged = e->to = e->claim = GW_VERSION_NONE;
	*out = e;
	return 0;
}

void gw_engine_free(struct gw_engine *e)
{
	if (!e)
		return;
	free(e->ranks);
	e->magic = 0;
	free(e);
}

/* --- telling --- */

static struct gw_engine_action *act(struct gw_engine *e, enum gw_engine_action_kind kind)
{
	struct gw_engine_actions *a = e->out;

	if (a->n == a->cap) {
		size_t cap = a->cap ? a->cap * 2 : 16;
		struct gw_engine_action *v = reallocarray(a->v, cap, sizeof *v);

		if (!v) {
			a->err = GW_ENOMEM;
			return memset(&scratch, 0, sizeof scratch);
		}
		a->v = v;
		a->cap = cap;
	}
	memset(&a->v[a->n], 0, sizeof a->v[0]);
	a->v[a->n].kind = kind;
	return &a->v[a->n++];
}

static void enter(struct gw_engine *e, enum gw_engine_state s)
{
	if (e->state != s) {
		e->state = s;
		act(e, GW_EA_STATE);
	}
}

/* Sets the one timer that counts; earlier ones are stale from here on. */
static void wait_until(struct gw_engine *e, uint64_t ns)
{
	struct gw_engine_action *a = act(e, GW_EA_TIMER);

	a->key = ++e->key;
	a->at_ns = e->now_ns + ns;
}

/* An action for each attached rank, whose answers the state then waits for. */
static void each_rank(struct gw_engine *e, enum gw_engine_action_kind kind, uint64_t version, enum gw_engine_op op)
{
	for (uint32_t i = 0; i < e->wanted; i++) {
		struct gw_engine_action *a;

		e->ranks[i].waiting = e->ranks[i].up;
		if (!e->ranks[i].up)
			continue;
		a = act(e, kind);
		a->rank = i;
		a->version = version;
		a->op = op;
	}
}

static int all_answered(const struct gw_engine *e)
{
	for (uint32_t i = 0; i < e->wanted; i++)
		if (e->ranks[i].waiting)
			return 0;
	return 1;
}

static void tell_failed(struct gw_engine *e, uint64_t version, int err)
{
	struct gw_engine_action *a = act(e, GW_EA_FAILED);

	a->version = version;
	a->err = err;
}

static void prove(struct gw_engine *e, enum purpose purpose, uint64_t version)
{
	struct gw_engine_action *a = act(e, GW_EA_PROVE);

	a->key = ++e->key;
	a->version = version;
	e->proving = 1;
	e->purpose = purpose;
	if (purpose != FOR_POISON && purpose != FOR_SCRUB)
		enter(e, GW_ENGINE_PROVING);
}

static void unstage(struct gw_engine *e)
{
	act(e, GW_EA_UNSTAGE);
	e->staged = GW_VERSION_NONE;
	e->to = GW_VERSION_NONE;
	e->commit = 0;
}

/* --- ends --- */

static void detach(struct gw_engine *e)
{
	uint64_t to = e->to;

	if (e->staged != GW_VERSION_NONE || to != GW_VERSION_NONE)
		unstage(e);
	if (to != GW_VERSION_NONE)
		tell_failed(e, to, e->failed ? e->failed : GW_ECLOSED);
	each_rank(e, GW_EA_LET_GO, 0, GW_OP_NONE);
	free(e->ranks);
	e->ranks = NULL;
	e->wanted = e->up = 0;
	e->served = e->claim = GW_VERSION_NONE;
	e->failed = e->lost = e->proving = 0;
	e->key++;
	enter(e, GW_ENGINE_DETACHED);
}

static void poison(struct gw_engine *e, int err)
{
	uint64_t to = e->to;

	e->served = GW_VERSION_NONE;
	act(e, GW_EA_POISON)->err = err;
	if (to != GW_VERSION_NONE) {
		unstage(e);
		tell_failed(e, to, err);
	}
	e->failed = 0;
	if (e->lost) {
		detach(e);
		return;
	}
	enter(e, GW_ENGINE_POISONED);
	prove(e, FOR_POISON, GW_VERSION_NONE);
}

/* All that will resume have. */
static void resumed(struct gw_engine *e)
{
	uint64_t to = e->to;
	int failed = e->failed, committed = to != GW_VERSION_NONE;

	if (e->lost) {
		if (committed && !failed)
			e->to = GW_VERSION_NONE; /* it did not fail: the ranks that are left serve it */
		detach(e);
		return;
	}
	if (committed)
		unstage(e);
	e->failed = 0;
	enter(e, GW_ENGINE_SERVING);
	if (committed && failed) {
		tell_failed(e, to, failed);
	} else if (committed) {
		struct gw_engine_action *a = act(e, GW_EA_SERVED);

		a->version = to;
		a->pause_ns = e->now_ns - e->paused_ns;
		a->apply_ns = e->now_ns - e->asked_ns;
	}
}

static void resume(struct gw_engine *e, uint64_t version)
{
	enter(e, GW_ENGINE_RESUMING);
	e->served = version;
	each_rank(e, GW_EA_RESUME, version, GW_OP_NONE);
	if (all_answered(e)) /* none is left */
		resumed(e);
	else
		wait_until(e, e->limits.resume_ns);
}

/* After a commit came to nothing: with what was served, or back into the poison it was to cure. */
static void go_back(struct gw_engine *e)
{
	if (e->served == GW_VERSION_NONE)
		poison(e, e->failed);
	else
		resume(e, e->served);
}

/* --- commit --- */

static void decide(struct gw_engine *e, enum gw_decision d, enum after after)
{
	e->after = after;
	act(e, GW_EA_DECIDE)->decision = d;
}

static void give_up(struct gw_engine *e, int err, enum after after)
{
	if (!e->failed)
		e->failed = err;
	decide(e, GW_DECISION_OLD, after);
}

static void start_pause(struct gw_engine *e)
{
	e->commit = 0;
	e->failed = 0;
	e->paused_ns = e->now_ns;
	enter(e, GW_ENGINE_PAUSING);
	each_rank(e, GW_EA_PAUSE, e->to, GW_OP_NONE);
	wait_until(e, e->limits.pause_ns);
}

static void op_done(struct gw_engine *e);

static void start_op(struct gw_engine *e, enum gw_engine_state state, enum gw_engine_op op)
{
	e->op = op;
	enter(e, state);
	for (uint32_t i = 0; i < e->wanted; i++) {
		e->ranks[i].err = 0;
		memset(&e->ranks[i].found, 0, sizeof e->ranks[i].found);
	}
	each_rank(e, GW_EA_OP, e->to, op);
	if (all_answered(e)) /* none is left */
		op_done(e);
	else
		wait_until(e, e->limits.op_ns);
}

/* 0, the error of an op, or GW_EBASE where a place did not hold what it should. */
static int op_result(const struct gw_engine *e)
{
	int err = 0;

	for (uint32_t i = 0; i < e->wanted; i++) {
		const struct rank *r = &e->ranks[i];

		if (!r->up)
			continue;
		if (r->err)
			return r->err;
		if (!gw_op_ok(e->op, &r->found))
			err = GW_EBASE;
	}
	return err;
}

static void checked(struct gw_engine *e)
{
	int err = op_result(e);

	if (e->lost)
		give_up(e, GW_ECLOSED, AFTER_OLD_RESUME);
	else if (err == GW_EBASE)
		give_up(e, err, AFTER_OLD_PROVE);
	else if (err)
		give_up(e, err, AFTER_OLD_RESUME);
	else
		start_op(e, GW_ENGINE_WRITING, GW_OP_WRITE);
}

static void written(struct gw_engine *e)
{
	int err = op_result(e);

	if (e->lost || err)
		give_up(e, err == GW_EBASE ? GW_EDEVICE : err ? err : GW_ECLOSED, AFTER_OLD_UNDO);
	else if (e->served == GW_VERSION_NONE)
		prove(e, FOR_ANCHOR, e->to);
	else
		decide(e, GW_DECISION_NEW, AFTER_NEW);
}

static void op_done(struct gw_engine *e)
{
	if (e->op == GW_OP_CHECK)
		checked(e);
	else if (e->op == GW_OP_WRITE)
		written(e);
	else if (op_result(e))
		poison(e, GW_EPOISONED);
	else
		go_back(e);
}

static int on_decided(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (e->after == AFTER_NEW && ev->decision == GW_DECISION_OLD) {
		/* The engine side thought this daemon gone. */
		e->failed = GW_EDOUBT;
		start_op(e, GW_ENGINE_UNDOING, GW_OP_UNDO);
	} else if (e->after == AFTER_NEW) {
		resume(e, e->to);
	} else if (ev->decision != GW_DECISION_OLD) {
		poison(e, GW_EPOISONED);
	} else if (e->after == AFTER_OLD_UNDO) {
		start_op(e, GW_ENGINE_UNDOING, GW_OP_UNDO);
	} else if (e->after == AFTER_OLD_PROVE && e->served != GW_VERSION_NONE) {
		prove(e, FOR_RECHECK, e->served);
	} else {
		go_back(e);
	}
	return 0;
}

static int on_did(struct gw_engine *e, const struct gw_engine_event *ev)
{
	struct rank *r = &e->ranks[ev->rank];

	if (!r->waiting || ev->op != e->op ||
	    (e->state != GW_ENGINE_CHECKING && e->state != GW_ENGINE_WRITING && e->state != GW_ENGINE_UNDOING))
		return GW_ESTATE;
	r->waiting = 0;
	r->err = ev->err;
	r->found = ev->found;
	if (all_answered(e))
		op_done(e);
	return 0;
}

/* --- attach and proof --- */

static int on_rank_up(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (e->state != GW_ENGINE_DETACHED || ev->rank >= ev->ranks || (e->wanted && ev->ranks != e->wanted) ||
	    (e->wanted && e->ranks[ev->rank].up))
		return GW_ESTATE;
	if (!e->wanted) {
		e->ranks = calloc(ev->ranks, sizeof *e->ranks);
		if (!e->ranks)
			return GW_ENOMEM;
		e->wanted = ev->ranks;
		e->claim = ev->version;
	}
	if (e->claim != ev->version)
		e->claim = GW_VERSION_NONE;
	e->ranks[ev->rank].up = 1;
	e->ranks[ev->rank].in_process = ev->in_process;
	if (++e->up == e->wanted)
		prove(e, FOR_ATTACH, e->claim);
	return 0;
}

static void proved_attach(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (ev->err == GW_EFINGERPRINT && e->claim == GW_VERSION_NONE) {
		/* It does not say what it holds, and nobody knows: an anchor can make it something known. */
		act(e, GW_EA_POISON)->err = ev->err;
		enter(e, GW_ENGINE_POISONED);
		return;
	}
	if (ev->err) {
		act(e, GW_EA_REFUSE)->err = ev->err;
		for (uint32_t i = 0; i < e->wanted; i++)
			e->ranks[i].up = 0;
		detach(e);
		return;
	}
	e->served = ev->version;
	act(e, GW_EA_ATTACH_OK)->version = ev->version;
	enter(e, GW_ENGINE_SERVING);
}

static int on_proved(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (!e->proving || ev->key != e->key)
		return GW_ESTATE;
	e->proving = 0;
	switch (e->purpose) {
	case FOR_ATTACH:
		proved_attach(e, ev);
		break;
	case FOR_RECHECK:
		if (ev->err)
			poison(e, ev->err);
		else
			resume(e, e->served);
		break;
	case FOR_POISON:
		if (!ev->err)
			resume(e, ev->version);
		break;
	case FOR_ANCHOR:
		if (ev->err || e->lost)
			give_up(e, ev->err ? ev->err : GW_ECLOSED, AFTER_OLD_UNDO);
		else
			decide(e, GW_DECISION_NEW, AFTER_NEW);
		break;
	case FOR_SCRUB:
		if (ev->err)
			poison(e, ev->err);
		break;
	}
	return 0;
}

/* --- staging --- */

static int on_stage(struct gw_engine *e, const struct gw_engine_event *ev)
{
	struct gw_engine_action *a;
	int cure = e->state == GW_ENGINE_POISONED && ev->anchor;

	if ((e->state != GW_ENGINE_SERVING && e->state != GW_ENGINE_STAGED && !cure) || e->proving)
		return GW_ESTATE;
	e->to = ev->version;
	e->commit = 0;
	e->failed = 0;
	e->asked_ns = e->now_ns;
	enter(e, GW_ENGINE_STAGING);
	a = act(e, GW_EA_STAGE);
	a->key = ++e->key;
	a->version = ev->version;
	return 0;
}

/* What was staged before is staged still, or nothing is. */
static void stage_failed(struct gw_engine *e, int err)
{
	uint64_t to = e->to;

	e->commit = 0;
	e->to = e->staged;
	if (e->staged != GW_VERSION_NONE)
		enter(e, GW_ENGINE_STAGED);
	else
		enter(e, e->served == GW_VERSION_NONE ? GW_ENGINE_POISONED : GW_ENGINE_SERVING);
	tell_failed(e, to, err);
}

static int on_listed(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (e->state != GW_ENGINE_STAGING || ev->key != e->key)
		return GW_ESTATE;
	if (ev->err) {
		stage_failed(e, ev->err);
		return 0;
	}
	e->staged = e->to;
	enter(e, GW_ENGINE_HANDING);
	each_rank(e, GW_EA_HAND, e->to, GW_OP_NONE);
	wait_until(e, e->limits.hand_ns);
	return 0;
}

static void hand_failed(struct gw_engine *e, int err)
{
	uint64_t to = e->to;

	unstage(e);
	enter(e, e->served == GW_VERSION_NONE ? GW_ENGINE_POISONED : GW_ENGINE_SERVING);
	tell_failed(e, to, err);
}

static int on_taken(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (e->state != GW_ENGINE_HANDING || ev->version != e->to || !e->ranks[ev->rank].waiting)
		return GW_ESTATE;
	if (ev->err) {
		hand_failed(e, ev->err);
		return 0;
	}
	e->ranks[ev->rank].waiting = 0;
	if (!all_answered(e))
		return 0;
	e->key++;
	enter(e, GW_ENGINE_STAGED);
	if (e->commit)
		start_pause(e);
	return 0;
}

static int on_commit(struct gw_engine *e)
{
	if (e->state == GW_ENGINE_STAGING || e->state == GW_ENGINE_HANDING)
		e->commit = 1;
	else if (e->state == GW_ENGINE_STAGED && !e->proving)
		start_pause(e);
	else
		return GW_ESTATE;
	return 0;
}

static int on_paused(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (e->state != GW_ENGINE_PAUSING || ev->version != e->to)
		return GW_ESTATE;
	e->ranks[ev->rank].waiting = 0;
	if (all_answered(e))
		start_op(e, GW_ENGINE_CHECKING, GW_OP_CHECK);
	return 0;
}

static int on_resumed(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (e->state != GW_ENGINE_RESUMING || ev->version != e->served)
		return GW_ESTATE;
	e->ranks[ev->rank].waiting = 0;
	if (all_answered(e))
		resumed(e);
	return 0;
}

/* --- what does not come --- */

static void drop(struct gw_engine *e, uint32_t rank)
{
	e->ranks[rank].up = e->ranks[rank].waiting = 0;
	e->up--;
	e->lost = 1;
}

static int on_rank_down(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (!e->wanted || ev->rank >= e->wanted || !e->ranks[ev->rank].up)
		return GW_ESTATE;
	drop(e, ev->rank);
	switch (e->state) {
	case GW_ENGINE_DETACHED:
		e->lost = 0;
		if (e->up == 0)
			detach(e);
		break;
	case GW_ENGINE_PAUSING:
		give_up(e, GW_ECLOSED, AFTER_OLD_RESUME);
		break;
	case GW_ENGINE_CHECKING:
	case GW_ENGINE_WRITING:
	case GW_ENGINE_UNDOING:
		if (all_answered(e))
			op_done(e);
		break;
	case GW_ENGINE_RESUMING:
		if (all_answered(e))
			resumed(e);
		break;
	case GW_ENGINE_PROVING:
		/* Inside a commit the proof's end goes on with what is left; at attach there is nothing to keep. */
		if (e->purpose != FOR_ATTACH)
			break;
		detach(e);
		break;
	default:
		detach(e);
	}
	return 0;
}

static int on_timer(struct gw_engine *e, const struct gw_engine_event *ev)
{
	if (ev->key != e->key)
		return 0;
	switch (e->state) {
	case GW_ENGINE_HANDING:
		hand_failed(e, GW_ETIMEOUT);
		break;
	case GW_ENGINE_PAUSING:
		give_up(e, GW_ETIMEOUT, AFTER_OLD_RESUME);
		break;
	case GW_ENGINE_CHECKING:
	case GW_ENGINE_WRITING:
	case GW_ENGINE_UNDOING:
		/* Work of this daemon always ends; a rank that works itself and does not answer is let go, and follows
		 * the page. */
		for (uint32_t i = 0; i < e->wanted; i++)
			if (e->ranks[i].waiting && e->ranks[i].in_process) {
				act(e, GW_EA_LET_GO)->rank = i;
				drop(e, i);
			}
		if (all_answered(e))
			op_done(e);
		else
			wait_until(e, e->limits.op_ns);
		break;
	case GW_ENGINE_RESUMING:
		for (uint32_t i = 0; i < e->wanted; i++)
			if (e->ranks[i].waiting) {
				act(e, GW_EA_LET_GO)->rank = i;
				drop(e, i);
			}
		resumed(e);
		break;
	default:
		break;
	}
	return 0;
}

static int on_scrub(struct gw_engine *e)
{
	if (e->state != GW_ENGINE_SERVING || e->proving)
		return GW_ESTATE;
	prove(e, FOR_SCRUB, e->served);
	return 0;
}

static int dispatch(struct gw_engine *e, const struct gw_engine_event *ev)
{
	switch (ev->kind) {
	case GW_EE_RANK_UP: return on_rank_up(e, ev);
	case GW_EE_RANK_DOWN: return on_rank_down(e, ev);
	case GW_EE_PROVED: return on_proved(e, ev);
	case GW_EE_STAGE: return on_stage(e, ev);
	case GW_EE_LISTED: return on_listed(e, ev);
	case GW_EE_COMMIT: return on_commit(e);
	case GW_EE_SCRUB: return on_scrub(e);
	case GW_EE_DECIDED: return on_decided(e, ev);
	case GW_EE_TIMER: return on_timer(e, ev);
	case GW_EE_TAKEN:
	case GW_EE_PAUSED:
	case GW_EE_DID:
	case GW_EE_RESUMED:
		break;
	}
	/* The rest is about an attached rank. */
	if (ev->rank >= e->wanted || !e->ranks[ev->rank].up)
		return GW_ESTATE;
	switch (ev->kind) {
	case GW_EE_TAKEN: return on_taken(e, ev);
	case GW_EE_PAUSED: return on_paused(e, ev);
	case GW_EE_DID: return on_did(e, ev);
	case GW_EE_RESUMED: return on_resumed(e, ev);
	default: return GW_ESTATE;
	}
}

int gw_engine_step(struct gw_engine *e, const struct gw_engine_event *ev, struct gw_engine_actions *out)
{
	int err;

	e->now_ns = ev->now_ns;
	e->out = out;
	err = dispatch(e, ev);
	e->out = NULL;
	return err ? err : out->err;
}

enum gw_engine_state gw_engine_state(const struct gw_engine *e)
{
	return e->state;
}

const char *gw_engine_state_text(enum gw_engine_state s)
{
	static const char *const text[] = {
		[GW_ENGINE_DETACHED] = "detached", [GW_ENGINE_PROVING] = "proving",   [GW_ENGINE_SERVING] = "serving",
		[GW_ENGINE_STAGING] = "staging",   [GW_ENGINE_HANDING] = "handing",   [GW_ENGINE_STAGED] = "staged",
		[GW_ENGINE_PAUSING] = "pausing",   [GW_ENGINE_CHECKING] = "checking", [GW_ENGINE_WRITING] = "writing",
		[GW_ENGINE_RESUMING] = "resuming", [GW_ENGINE_UNDOING] = "undoing",   [GW_ENGINE_POISONED] = "poisoned",
	};

	return text[s];
}

uint64_t gw_engine_served(const struct gw_engine *e)
{
	return e->served;
}

uint64_t gw_engine_staged(const struct gw_engine *e)
{
	return e->state == GW_ENGINE_STAGED ? e->staged : GW_VERSION_NONE;
}

uint32_t gw_engine_ranks(const struct gw_engine *e)
{
	return e->up;
}

uint32_t gw_engine_ranks_wanted(const struct gw_engine *e)
{
	return e->wanted;
}
