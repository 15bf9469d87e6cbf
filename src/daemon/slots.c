#include "daemon/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define RETRY_NS 1000000000ull

static struct gw_slot *slot_of(struct gw_slots *s, const char *name)
{
	for (size_t i = 0; i < GW_SLOTS_MAX; i++) {
		if (s->v[i].name && strcmp(s->v[i].name, name))
			continue;
		s->v[i].name = name;
		return &s->v[i];
	}
	abort(); /* more slots than the machines have */
}

static int any_late(const struct gw_slots *s)
{
	for (size_t i = 0; i < GW_SLOTS_MAX; i++)
		if (s->v[i].p)
			return 1;
	return 0;
}

static void try_again(void *ctx)
{
	struct gw_slots *s = ctx;

	for (size_t i = 0; i < GW_SLOTS_MAX; i++) {
		struct gw_slot *slot = &s->v[i];

		if (!slot->p || gw_store_put(s->store, slot->name, slot->p, slot->n, NULL))
			continue;
		GW_LOG(GW_LOG_NOTICE, "state is durable again", "slot", slot->name, NULL);
		free(slot->p);
		slot->p = NULL;
	}
	if (any_late(s))
		(void)gw_timer_set(s->loop, &s->timer, gw_loop_now_ns(s->loop) + RETRY_NS);
}

void gw_slots_init(struct gw_slots *s, struct gw_store *store, struct gw_loop *loop)
{
	memset(s, 0, sizeof *s);
	s->store = store;
	s->loop = loop;
	s->timer.fire = try_again;
	s->timer.ctx = s;
}

void gw_slots_end(struct gw_slots *s)
{
	if (s->loop)
		gw_timer_stop(s->loop, &s->timer);
	for (size_t i = 0; i < GW_SLOTS_MAX; i++)
		free(s->v[i].p);
	memset(s, 0, sizeof *s);
}

static int keep(struct gw_slots *s, struct gw_slot *slot, struct gw_bytes data)
{
	uint8_t *p = malloc(data.n ? data.n : 1);

	if (!p)
		return GW_ENOMEM;
	if (data.n)
		memcpy(p, data.p, data.n);
	free(slot->p);
	slot->p = p;
	slot->n = data.n;
	return s->timer.node ? 0 : gw_timer_set(s->loop, &s->timer, gw_loop_now_ns(s->loop) + RETRY_NS);
}

int gw_slots_put(struct gw_slots *s, const char *name, struct gw_bytes data)
{
	struct gw_slot *slot = slot_of(s, name);
	struct gw_diag why = {""};
	int err = gw_store_put(s->store, name, data.p, data.n, &why);

	if (!err) {
		free(slot->p);
		slot->p = NULL;
		return 0;
	}
	GW_LOG(GW_LOG_ERR, "state cannot be made durable; what depends on it waits", "slot", name, "error",
	       why.text[0] ? why.text : gw_err_text(err), NULL);
	return keep(s, slot, data) ? GW_ENOMEM : err;
}

int gw_slots_late(const struct gw_slots *s, const char *name)
{
	for (size_t i = 0; i < GW_SLOTS_MAX; i++)
		if (s->v[i].p && !strcmp(s->v[i].name, name))
			return 1;
	return 0;
}
