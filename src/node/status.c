/* What this host says about itself. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "node/inner.h"

enum { NAME_MAX_BYTES = 64, ERROR_MAX_BYTES = 256 }; /* of proto/messages.def */

struct gw_kept_status *gw_status_keep(const struct gw_r_host_status *r)
{
	const struct gw_text *texts[] = {&r->name, &r->region, &r->island, &r->policy, &r->engine, &r->last_error};
	size_t count = sizeof texts / sizeof *texts, total = 0;
	struct gw_kept_status *k;
	char *at;

	for (size_t i = 0; i < count; i++)
		total += texts[i]->n;
	k = malloc(sizeof *k + total + 1);
	if (!k)
		return NULL;
	k->r = *r;
	at = (char *)(k + 1);
	for (size_t i = 0; i < count; i++) {
		struct gw_text *to[] = {&k->r.name,   &k->r.region, &k->r.island,
					&k->r.policy, &k->r.engine, &k->r.last_error};

		if (texts[i]->n)
			memcpy(at, texts[i]->p, texts[i]->n);
		to[i]->p = at;
		at += texts[i]->n;
	}
	return k;
}

int gw_status_texts(struct gw_r_host_status *r, struct gw_arena *a)
{
	struct gw_text *texts[] = {&r->name, &r->region, &r->island, &r->policy, &r->engine, &r->last_error};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		texts[i]->p = gw_arena_copy(a, texts[i]->p, texts[i]->n);
		if (!texts[i]->p)
			return GW_ENOMEM;
	}
	return 0;
}

static int same_text(struct gw_text a, struct gw_text b)
{
	return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n));
}

int gw_node_report(struct gw_node *n, const struct gw_r_host_status *status)
{
	struct gw_kept_status *k;
	size_t i = 0;

	if (status->policy.n > NAME_MAX_BYTES || status->engine.n > NAME_MAX_BYTES ||
	    status->last_error.n > ERROR_MAX_BYTES)
		return GW_ELIMIT;
	while (i < n->report_count && !same_text(n->reports[i]->r.policy, status->policy))
		i++;
	if (i == GW_NODE_POLICIES_MAX)
		return GW_ELIMIT;
	k = gw_status_keep(status);
	if (!k)
		return GW_ENOMEM;
	if (i == n->report_count)
		n->report_count++;
	else
		free(n->reports[i]);
	n->reports[i] = k;
	return 0;
}

static struct gw_text text(const char *p)
{
	return (struct gw_text){p, strlen(p)};
}

static int64_t version(uint64_t v)
{
	return v == GW_VERSION_NONE ? -1 : (int64_t)v;
}

static uint8_t state_of(const struct gw_r_host_status *r, const struct gw_board_policy *p)
{
	if (r->state == GW_HOST_POISONED || r->state == GW_HOST_SEEDING)
		return r->state;
	if (!p || !p->head)
		return GW_HOST_IDLE;
	if (r->served == r->head)
		return p->stale ? GW_HOST_STALE : GW_HOST_SERVING;
	if (r->fetched == r->head && r->served >= 0)
		return GW_HOST_STAGING;
	if (r->fetched == r->head)
		return p->stale ? GW_HOST_STALE : GW_HOST_IDLE;
	return GW_HOST_FETCHING;
}

/* What does not depend on the policy. */
static void fill_host(const struct gw_node *n, struct gw_r_host_status *r)
{
	const struct gw_member_record *self = gw_roster_at(gw_mesh_roster(n->mesh), GW_HOST_SELF)->record;
	struct gw_node_traffic border = gw_node_border(n), own = gw_node_traffic(n, 0);

	memcpy(r->identity, self->identity, sizeof r->identity);
	r->name = text(self->name);
	r->region = text(self->region);
	r->island = text(self->island);
	r->rx_bytes = own.rx_bytes + border.rx_bytes;
	r->tx_bytes = own.tx_bytes + border.tx_bytes;
	r->border_rx_bytes = border.rx_bytes;
	r->border_tx_bytes = border.tx_bytes;
}

static void fill_policy(struct gw_r_host_status *r, const struct gw_board_policy *p)
{
	r->head = r->served = r->fetched = -1;
	if (p) {
		r->policy = text(p->policy);
		memcpy(r->run, p->run, sizeof r->run);
		r->head = p->head ? (int64_t)p->head->newest : -1;
		r->served = version(p->served);
		r->fetched = version(p->fetched);
	}
	r->state = state_of(r, p);
}

static const struct gw_r_host_status *report_of(const struct gw_node *n, struct gw_text policy)
{
	for (size_t i = 0; i < n->report_count; i++)
		if (same_text(n->reports[i]->r.policy, policy))
			return &n->reports[i]->r;
	return NULL;
}

size_t gw_node_status(const struct gw_node *n, uint64_t wall_ns, struct gw_arena *a,
		      struct gw_r_host_status out[GW_NODE_POLICIES_MAX])
{
	static const struct gw_r_host_status nothing = {.staged = -1};
	size_t policies = gw_board_policy_count(n->board), count = 0;

	for (size_t i = 0; i < policies && count < GW_NODE_POLICIES_MAX; i++) {
		const struct gw_r_host_status *said;
		struct gw_board_policy p;

		gw_board_policy(n->board, i, wall_ns, &p);
		said = report_of(n, text(p.policy));
		out[count] = said ? *said : nothing;
		fill_host(n, &out[count]);
		fill_policy(&out[count], &p);
		count += !gw_status_texts(&out[count], a);
	}
	/* Reported, but the board knows nothing of it yet: the host shows all the same. */
	for (size_t i = 0; i < n->report_count && count < GW_NODE_POLICIES_MAX; i++) {
		int known = 0;

		for (size_t k = 0; k < count; k++)
			known |= same_text(out[k].policy, n->reports[i]->r.policy);
		if (known)
			continue;
		out[count] = n->reports[i]->r;
		fill_host(n, &out[count]);
		fill_policy(&out[count], NULL);
		count += !gw_status_texts(&out[count], a);
	}
	if (!count) {
		out[0] = nothing;
		fill_host(n, &out[0]);
		fill_policy(&out[0], NULL);
		count += !gw_status_texts(&out[0], a);
	}
	return count;
}
