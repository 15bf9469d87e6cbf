#include "wire/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { ARENA_MAX = 64 << 20 };

/* Handed out when memory is gone: the step goes on, `err` tells its caller to drop the actions. */
static struct gw_action scratch_action;
static struct gw_msg scratch_msg;

void gw_actions_init(struct gw_actions *a)
{
	memset(a, 0, sizeof *a);
	gw_arena_init(&a->arena, ARENA_MAX);
}

void gw_actions_free(struct gw_actions *a)
{
	gw_arena_reset(&a->arena);
	free(a->v);
	memset(a, 0, sizeof *a);
}

void gw_actions_reset(struct gw_actions *a)
{
	gw_arena_reset(&a->arena);
	a->n = 0;
	a->err = 0;
}

struct gw_action *gw_actions_add(struct gw_actions *a, enum gw_action_kind kind)
{
	if (a->n == a->cap) {
		size_t cap = a->cap ? a->cap * 2 : 16;
		struct gw_action *v = reallocarray(a->v, cap, sizeof *v);

		if (!v) {
			a->err = GW_ENOMEM;
			return memset(&scratch_action, 0, sizeof scratch_action);
		}
		a->v = v;
		a->cap = cap;
	}
	memset(&a->v[a->n], 0, sizeof a->v[0]);
	a->v[a->n].kind = kind;
	return &a->v[a->n++];
}

struct gw_msg *gw_actions_send(struct gw_actions *a, gw_host to, enum gw_msg_type type)
{
	struct gw_action *act = gw_actions_add(a, GW_ACT_SEND);
	struct gw_msg *m = gw_arena_alloc(&a->arena, sizeof *m);

	act->host = to;
	act->msg = m;
	if (!m) {
		a->err = GW_ENOMEM;
		act->kind = GW_ACT_LOG;
		act->text = "out of memory";
		m = memset(&scratch_msg, 0, sizeof scratch_msg);
	}
	m->type = type;
	return m;
}
