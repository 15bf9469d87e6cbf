#include "daemon/requests.h"

#include <stdlib.h>
#include <string.h>

#include "board/board.h"
#include "daemon/core.h"
#include "swarm/swarm.h"
#include "io/os/clock.h"

enum { HOSTS_A_MESSAGE = 32, OBJECTS_A_MESSAGE = 128, POLICIES_MAX = 64 };

struct gw_requests {
	struct gw_core *core;
	struct gw_control *control;
	struct ask *asks; /* under way */
};

/* A request that is answered later. */
struct ask {
	struct ask *next;
	struct gw_requests *r;
	uint64_t who;
	char policy[GW_POLICY_NAME_MAX + 1];
};

static struct ask *ask_new(struct gw_requests *r, uint64_t who, struct gw_text policy)
{
	struct ask *a = calloc(1, sizeof *a);

	if (!a)
		return NULL;
	a->r = r;
	a->who = who;
	(void)snprintf(a->policy, sizeof a->policy, "%.*s", (int)policy.n, policy.p);
	a->next = r->asks;
	r->asks = a;
	return a;
}

static void ask_end(struct ask *a)
{
	struct ask **at = &a->r->asks;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	free(a);
}

static struct gw_text text(const char *s)
{
	return (struct gw_text){s, strlen(s)};
}

static int wants(const char *policy, struct gw_text asked)
{
	return !asked.n || (strlen(policy) == asked.n && !memcmp(policy, asked.p, asked.n));
}

/* --- publishing --- */

static void published(void *ctx, const struct gw_publish_result *res)
{
	struct ask *a = ctx;
	struct gw_msg m = {.type = GW_MSG_ctl_published};
	struct gw_m_ctl_published *p = &m.u.ctl_published;

	if (res->err) {
		gw_control_reply(a->r->control, a->who, res->err, res->why.text[0] ? res->why.text : gw_err_text(res->err));
		ask_end(a);
		return;
	}
	p->policy = text(a->policy);
	memcpy(p->run, res->run, sizeof p->run);
	p->from = res->from;
	p->version = res->version;
	p->anchor = (uint8_t)res->anchor;
	p->already = (uint8_t)res->already;
	memcpy(p->manifest, res->manifest.b, sizeof p->manifest);
	p->patch_bytes = res->patch_bytes;
	p->object_bytes = res->object_bytes;
	p->full_bytes = res->full_bytes;
	p->changed = res->changed;
	p->elements = res->elements;
	p->pieces = res->pieces;
	p->took_ns = res->took_ns;
	gw_control_send(a->r->control, a->who, &m);
	ask_end(a);
}

static void publish(struct gw_requests *r, uint64_t who, const struct gw_m_ctl_publish *m)
{
	char policy[GW_POLICY_NAME_MAX + 1], path[1025];
	struct gw_publish_request req = {.path = path, .has_version = m->has_version, .version = m->version,
					 .anchor = m->anchor};
	struct gw_publisher *p;
	struct ask *a;
	int err;

	(void)snprintf(policy, sizeof policy, "%.*s", (int)m->policy.n, m->policy.p);
	(void)snprintf(path, sizeof path, "%.*s", (int)m->path.n, m->path.p);
	if (path[0] != '/') { /* this process has another working directory than who asks */
		gw_control_reply(r->control, who, GW_EINVAL, "the path of the checkpoint must be absolute");
		return;
	}
	p = gw_core_publisher(r->core, policy);
	if (!p) {
		gw_control_reply(r->control, who, GW_EINVAL, policy[0] ? "this host does not publish that policy (publish.policy)"
								       : "this host publishes several policies, or none: name one");
		return;
	}
	a = ask_new(r, who, text(gw_publisher_policy(p)));
	err = a ? gw_publisher_publish(p, &req, published, a) : GW_ENOMEM;
	if (!err)
		return;
	if (a)
		ask_end(a);
	gw_control_reply(r->control, who, err, err == GW_EAGAIN ? "a publication of this policy is under way" : gw_err_text(err));
}

/* --- the whole mesh --- */

static void mesh_answer(void *ctx, const struct gw_m_status_reply *reply)
{
	struct ask *a = ctx;
	struct gw_msg m = {.type = GW_MSG_ctl_hosts};
	struct gw_r_host_status batch[HOSTS_A_MESSAGE];
	struct gw_text asked = text(a->policy);

	m.u.ctl_hosts.hosts.v = batch;
	for (size_t i = 0; reply && i < reply->hosts.n; i++) {
		const struct gw_r_host_status *s = &reply->hosts.v[i];

		/* A host that serves nothing has a record without a policy: it belongs to every answer. */
		if (asked.n && s->policy.n && (s->policy.n != asked.n || memcmp(s->policy.p, asked.p, asked.n)))
			continue;
		if (m.u.ctl_hosts.hosts.n == HOSTS_A_MESSAGE) {
			m.u.ctl_hosts.more = 1;
			gw_control_send(a->r->control, a->who, &m);
			m.u.ctl_hosts.hosts.n = 0;
			m.u.ctl_hosts.more = 0;
		}
		batch[m.u.ctl_hosts.hosts.n++] = *s;
	}
	gw_control_send(a->r->control, a->who, &m);
	ask_end(a);
}

static void mesh(struct gw_requests *r, uint64_t who, const struct gw_m_ctl_mesh *m)
{
	struct ask *a = ask_new(r, who, m->policy);
	int err = a ? gw_core_health(r->core, mesh_answer, a) : GW_ENOMEM;

	if (!err)
		return;
	if (a)
		ask_end(a);
	gw_control_reply(r->control, who, err, err == GW_EAGAIN ? "too many health queries are under way" : gw_err_text(err));
}

/* --- policies and objects, as this host has them --- */

static void fill_policy(struct gw_requests *r, const struct gw_board_policy *b, struct gw_r_policy_state *s)
{
	memset(s, 0, sizeof *s);
	s->policy = text(b->policy);
	memcpy(s->run, b->run, sizeof s->run);
	s->newest = b->head ? b->head->newest : GW_VERSION_NONE;
	s->sequence = b->head ? b->head->sequence : 0;
	s->created_ns = b->head ? b->head->created_ns : 0;
	s->expires_ns = b->head ? b->head->expires_ns : 0;
	s->stale = (uint8_t)(b->stale != 0);
	s->served = b->served;
	s->fetched = b->fetched;
	s->steps = b->steps;
	s->path_bytes = b->path_bytes;
	s->no_path = (uint8_t)(b->no_path != 0);
	s->publishes = gw_core_publisher(r->core, b->policy) != NULL;
}

static void policies(struct gw_requests *r, uint64_t who, const struct gw_m_ctl_policies *m)
{
	const struct gw_board *board = gw_node_board(r->core->node);
	struct gw_msg out = {.type = GW_MSG_ctl_policy_states};
	struct gw_r_policy_state list[POLICIES_MAX];
	size_t n = gw_board_policy_count(board);

	out.u.ctl_policy_states.policies.v = list;
	for (size_t i = 0; i < n && out.u.ctl_policy_states.policies.n < POLICIES_MAX; i++) {
		struct gw_board_policy b;

		gw_board_policy(board, i, gw_clock_wall_ns(), &b);
		if (wants(b.policy, m->policy))
			fill_policy(r, &b, &list[out.u.ctl_policy_states.policies.n++]);
	}
	gw_control_send(r->control, who, &out);
}

static void fill_object(const struct gw_swarm *swarm, const struct gw_manifest *m, struct gw_r_object_state *s)
{
	struct gw_swarm_object o = {0};

	(void)gw_swarm_object(swarm, &m->id, &o); /* not known to the swarm: nothing of it is here */
	memset(s, 0, sizeof *s);
	memcpy(s->manifest, m->id.b, sizeof s->manifest);
	s->policy = text(m->policy);
	s->kind = m->kind;
	s->from = m->from;
	s->to = m->to;
	s->bytes = m->object_bytes;
	s->pieces = gw_manifest_pieces(m);
	s->have = o.have;
	s->rx_bytes = o.rx_bytes;
	s->border_rx_bytes = o.border_rx_bytes;
	s->duplicate_bytes = o.duplicate_bytes;
	s->bad_bytes = o.bad_bytes;
	s->tx_bytes = o.tx_bytes;
	s->border_tx_bytes = o.border_tx_bytes;
}

static void objects(struct gw_requests *r, uint64_t who, const struct gw_m_ctl_objects *m)
{
	const struct gw_board *board = gw_node_board(r->core->node);
	struct gw_msg out = {.type = GW_MSG_ctl_object_states};
	struct gw_r_object_state list[OBJECTS_A_MESSAGE];
	const struct gw_manifest *manifest;
	size_t at = 0;

	out.u.ctl_object_states.objects.v = list;
	while ((manifest = gw_board_next(board, &at, NULL)) != NULL) {
		if (!wants(manifest->policy, m->policy))
			continue;
		if (out.u.ctl_object_states.objects.n == OBJECTS_A_MESSAGE) {
			out.u.ctl_object_states.more = 1;
			gw_control_send(r->control, who, &out);
			out.u.ctl_object_states.objects.n = 0;
			out.u.ctl_object_states.more = 0;
		}
		fill_object(gw_node_swarm(r->core->node), manifest, &list[out.u.ctl_object_states.objects.n++]);
	}
	gw_control_send(r->control, who, &out);
}

/* --- life --- */

int gw_requests_handle(struct gw_requests *r, uint64_t who, const struct gw_msg *m)
{
	switch (m->type) {
	case GW_MSG_ctl_publish:
		publish(r, who, &m->u.ctl_publish);
		return 0;
	case GW_MSG_ctl_mesh:
		mesh(r, who, &m->u.ctl_mesh);
		return 0;
	case GW_MSG_ctl_policies:
		policies(r, who, &m->u.ctl_policies);
		return 0;
	case GW_MSG_ctl_objects:
		objects(r, who, &m->u.ctl_objects);
		return 0;
	default:
		return GW_EUNKNOWN;
	}
}

int gw_requests_new(struct gw_requests **out, struct gw_core *core)
{
	struct gw_requests *r = calloc(1, sizeof *r);

	if (!r)
		return GW_ENOMEM;
	r->core = core;
	*out = r;
	return 0;
}

void gw_requests_join(struct gw_requests *r, struct gw_control *control)
{
	r->control = control;
}

void gw_requests_free(struct gw_requests *r)
{
	if (!r)
		return;
	while (r->asks) {
		gw_core_health_cancel(r->core, r->asks);
		ask_end(r->asks);
	}
	free(r);
}
