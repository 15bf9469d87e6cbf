/* What must hold after every event, and at the end. */
#include <string.h>

#include "sim.h"

static int known_host(const struct sim *s, const struct sim_host *h, gw_host host)
{
	return host != GW_HOST_SELF && sim_index(h, s, host) >= 0;
}

/* Every action is well-formed. */
void sim_check_action(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	switch (a->kind) {
	case GW_ACT_SEND:
		SIM_CHECK(s, h, a->msg && a->msg->type, "SEND without a message");
		/* fall through */
	case GW_ACT_CONNECT:
	case GW_ACT_DISCONNECT:
	case GW_ACT_BLOCK_SEND:
		SIM_CHECK(s, h, known_host(s, h, a->host), "action %d for host %u, which is itself or unknown",
			  (int)a->kind, a->host);
		break;
	case GW_ACT_TIMER:
		SIM_CHECK(s, h, a->at_ns < s->now_ns + 3600 * SECOND, "a timer an hour away");
		SIM_CHECK(s, h, GW_KEY_MACHINE(a->key) >= GW_KEY_MESH && GW_KEY_MACHINE(a->key) <= GW_KEY_NODE,
			  "a timer of no machine");
		break;
	case GW_ACT_PERSIST:
		SIM_CHECK(s, h, a->slot && a->data.n && a->data.n <= 64 * 1024, "PERSIST of nothing or too much");
		break;
	case GW_ACT_VERIFY_HEAD:
	case GW_ACT_VERIFY_MANIFEST:
	case GW_ACT_VERIFY_MEMBER:
		SIM_CHECK(s, h, a->data.p && a->data.n, "VERIFY of nothing");
		SIM_CHECK(s, h, GW_KEY_MACHINE(a->key) >= GW_KEY_MESH && GW_KEY_MACHINE(a->key) <= GW_KEY_NODE,
			  "a verification of no machine");
		break;
	case GW_ACT_LOG:
		SIM_CHECK(s, h, a->text && a->level >= 3 && a->level <= 7, "LOG without text or level");
		break;
	default:
		break;
	}
}

static void check_death(struct sim *s, struct sim_host *h, const struct gw_roster_entry *e)
{
	const struct sim_host *subject = &s->hosts[sim_identity_index(e->record->identity)];

	/* Those out of reach, crashed, gone, or starved for long may be held dead. */
	if (!subject->running || subject->expected_dead || h->expected_dead || s->partitioned)
		return;
	s->deaths++;
	if (!s->quiet)
		sim_fail(s, h, "holds host %d dead, which lives", subject->index);
}

void sim_check_host(struct sim *s, struct sim_host *h)
{
	const struct gw_roster *r;

	if (!h->machine)
		return;
	SIM_CHECK(s, h, h->actions.n <= 100000, "%zu actions from one step", h->actions.n);
	r = gw_mesh_roster(s->config.ops->mesh(h->machine));
	SIM_CHECK(s, h, gw_roster_count(r) <= GW_MEMBERS_MAX && gw_roster_count(r) <= (size_t)s->config.hosts,
		  "%zu members", gw_roster_count(r));
	/* News is in order of change: the last one is all that this step can have changed. */
	for (const struct gw_roster_entry *e = r->newest; e && e->changed_ns == s->now_ns; e = e->older)
		if (e->state == GW_MEMBER_DEAD)
			check_death(s, h, e);
	if (s->config.ops->check)
		s->config.ops->check(s, h);
}

int sim_tables_agree(struct sim *s, void *ctx)
{
	(void)ctx;
	for (int i = 0; i < s->config.hosts; i++) {
		struct sim_host *h = &s->hosts[i];
		const struct gw_roster *r;

		if (!h->running || h->left)
			continue;
		r = gw_mesh_roster(s->config.ops->mesh(h->machine));
		for (int j = 0; j < s->config.hosts; j++) {
			const struct gw_roster_entry *e = gw_roster_find(r, s->hosts[j].record->identity);
			int in = e && gw_roster_is_in(e);

			if (in != (s->hosts[j].running && !s->hosts[j].left))
				return 0;
		}
	}
	return 1;
}
