/* `godwit health`: the whole mesh, as every host tells about itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hex.h"
#include "wire/host_state.h"
#include "tools/cmd.h"
#include "tools/control.h"

enum { ANSWER_MS = 15000, TEXT = 65, ERROR_TEXT = 257 };

/* A host, with its record of the policy asked for; or, without one, as a host that serves none. */
struct host {
	uint8_t identity[32];
	char name[TEXT], region[TEXT], island[TEXT], policy[TEXT], engine[TEXT], error[ERROR_TEXT];
	unsigned state;
	int64_t served, staged, fetched;
	uint32_t ranks;
	uint64_t rx_bytes, tx_bytes, border_rx_bytes, border_tx_bytes, last_apply_ns, last_pause_ns;
};

struct mesh {
	char policy[TEXT], run[33];
	int64_t head;             /* -1: none known */
	uint64_t created_ns, expires_ns, now_ns;
	int stale;
	struct host *hosts;
	size_t n, cap;
	uint32_t serving, stale_hosts, poisoned, unreachable;
};

static void copy_text(char *out, size_t cap, struct gw_text t)
{
	(void)snprintf(out, cap, "%.*s", (int)t.n, t.p);
}

/* --- asking --- */

static int add_host(struct mesh *m, const struct gw_r_host_status *s)
{
	int fits = s->policy.n == strlen(m->policy) && !memcmp(s->policy.p, m->policy, s->policy.n);
	struct host *h = NULL;

	for (size_t i = 0; i < m->n && !h; i++)
		if (!memcmp(m->hosts[i].identity, s->identity, 32))
			h = &m->hosts[i];
	if (h && !fits)
		return 0;
	if (!h && m->n == m->cap) {
		size_t cap = m->cap ? 2 * m->cap : 64;
		struct host *v = reallocarray(m->hosts, cap, sizeof *v);

		if (!v)
			return GW_ENOMEM;
		m->hosts = v;
		m->cap = cap;
	}
	if (!h)
		h = &m->hosts[m->n++];
	memset(h, 0, sizeof *h);
	memcpy(h->identity, s->identity, 32);
	copy_text(h->name, sizeof h->name, s->name);
	copy_text(h->region, sizeof h->region, s->region);
	h->served = h->staged = h->fetched = -1;
	h->state = fits || s->state == GW_HOST_UNREACHABLE || s->state == GW_HOST_SUSPECT ? s->state : GW_HOST_IDLE;
	h->rx_bytes = s->rx_bytes;
	h->tx_bytes = s->tx_bytes;
	h->border_rx_bytes = s->border_rx_bytes;
	h->border_tx_bytes = s->border_tx_bytes;
	if (!fits)
		return 0;
	copy_text(h->island, sizeof h->island, s->island);
	copy_text(h->policy, sizeof h->policy, s->policy);
	copy_text(h->engine, sizeof h->engine, s->engine);
	copy_text(h->error, sizeof h->error, s->last_error);
	h->served = s->served;
	h->staged = s->staged;
	h->fetched = s->fetched;
	h->ranks = s->ranks;
	h->last_apply_ns = s->last_apply_ns;
	h->last_pause_ns = s->last_pause_ns;
	return 0;
}

/* "a, b": as many as fit. */
static const char *names_of(char *buf, size_t cap, const struct gw_m_ctl_policy_states *p)
{
	size_t n = 0;

	buf[0] = 0;
	for (size_t i = 0; i < p->policies.n && n < cap; i++)
		n += (size_t)snprintf(buf + n, cap - n, "%s%.*s", i ? ", " : "", (int)p->policies.v[i].policy.n,
				      p->policies.v[i].policy.p);
	return buf;
}

/* The one that was asked for, or the only one; none before anything was published. */
static int choose_policy(const struct gw_m_ctl_policy_states *p, const char *asked, const struct gw_r_policy_state **out,
			 struct gw_diag *why)
{
	char names[300];

	*out = NULL;
	for (size_t i = 0; i < p->policies.n; i++) {
		const struct gw_r_policy_state *s = &p->policies.v[i];

		if (!asked || (s->policy.n == strlen(asked) && !memcmp(s->policy.p, asked, s->policy.n)))
			*out = s;
	}
	if (asked && !*out)
		return gw_diag_set(why, GW_ENOENT, "this host knows no policy %s%s%s", asked, p->policies.n ? "; it knows " : "",
				   names_of(names, sizeof names, p));
	if (!asked && p->policies.n > 1)
		return gw_diag_set(why, GW_EINVAL, "the mesh has several policies: name one with --policy; there are %s",
				   names_of(names, sizeof names, p));
	return 0;
}

static int take_policy(struct mesh *m, const struct gw_m_ctl_policy_states *p, struct args *a)
{
	const struct gw_r_policy_state *s;
	int err = choose_policy(p, arg_value(a, "policy"), &s, &a->why);

	if (err || !s)
		return err;
	copy_text(m->policy, sizeof m->policy, s->policy);
	(void)gw_hex(m->run, s->run, sizeof s->run);
	m->head = s->newest == UINT64_MAX ? -1 : (int64_t)s->newest;
	m->created_ns = s->created_ns;
	m->expires_ns = s->expires_ns;
	m->stale = s->stale;
	return 0;
}

static int by_place(const void *x, const void *y)
{
	const struct host *a = x, *b = y;
	int c = strcmp(a->region, b->region);

	if (!c)
		c = strcmp(a->island, b->island);
	if (!c)
		c = strcmp(a->name, b->name);
	return c ? c : memcmp(a->identity, b->identity, 32);
}

static void count(struct mesh *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct host *h = &m->hosts[i];

		m->serving += h->served >= 0 && h->served == m->head;
		m->stale_hosts += h->state == GW_HOST_STALE;
		m->poisoned += h->state == GW_HOST_POISONED;
		m->unreachable += h->state == GW_HOST_UNREACHABLE || h->state == GW_HOST_SUSPECT;
	}
}

static int ask(struct mesh *m, struct control *c, struct args *a)
{
	struct gw_msg q = {.type = GW_MSG_ctl_policies}, r;
	struct timespec now;
	int err;

	q.u.ctl_policies.policy = (struct gw_text){"", 0};
	err = control_ask(c, &q, GW_MSG_ctl_policy_states, ANSWER_MS, &r, &a->why);
	if (!err)
		err = take_policy(m, &r.u.ctl_policy_states, a);
	if (err)
		return err;
	memset(&q, 0, sizeof q);
	q.type = GW_MSG_ctl_mesh;
	q.u.ctl_mesh.policy = (struct gw_text){"", 0};
	err = control_send(c, &q, &a->why);
	do {
		if (!err)
			err = control_next(c, GW_MSG_ctl_hosts, ANSWER_MS, &r, &a->why);
		for (size_t i = 0; !err && i < r.u.ctl_hosts.hosts.n; i++)
			err = add_host(m, &r.u.ctl_hosts.hosts.v[i]);
	} while (!err && r.u.ctl_hosts.more);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	m->now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	if (m->n)
		qsort(m->hosts, m->n, sizeof m->hosts[0], by_place);
	count(m);
	return err;
}

/* --- showing --- */

static json_t *version(int64_t v)
{
	return v < 0 ? json_null() : json_integer((json_int_t)v);
}

static double seconds(uint64_t later, uint64_t earlier)
{
	return later >= earlier ? (double)(later - earlier) / 1e9 : -(double)(earlier - later) / 1e9;
}

static json_t *lag(const struct mesh *m, const struct host *h)
{
	return h->served < 0 || m->head < 0 ? json_null() : json_integer((json_int_t)(m->head - h->served));
}

static json_t *host_json(const struct mesh *m, const struct host *h)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:f, s:f, s:s}", "name", h->name, "state",
			 gw_host_state_name(h->state), "served", version(h->served), "staged", version(h->staged), "fetched",
			 version(h->fetched), "lag", lag(m, h), "engine", h->engine, "ranks", (json_int_t)h->ranks, "rx_bytes",
			 json_u64(h->rx_bytes), "tx_bytes", json_u64(h->tx_bytes), "border_rx_bytes",
			 json_u64(h->border_rx_bytes), "border_tx_bytes", json_u64(h->border_tx_bytes), "last_apply_ms",
			 (double)h->last_apply_ns / 1e6, "last_pause_ms", (double)h->last_pause_ns / 1e6, "last_error", h->error);
}

/* Regions of islands of hosts; the hosts are sorted by all three. */
static json_t *regions_json(const struct mesh *m)
{
	json_t *regions = json_array(), *islands = NULL, *hosts = NULL;

	for (size_t i = 0; i < m->n; i++) {
		const struct host *h = &m->hosts[i], *last = i ? h - 1 : NULL;
		int region = !last || strcmp(last->region, h->region), island = region || strcmp(last->island, h->island);

		if (region) {
			islands = json_array();
			json_array_append_new(regions, json_pack("{s:s, s:o}", "name", h->region, "islands", islands));
		}
		if (island) {
			hosts = json_array();
			json_array_append_new(islands, json_pack("{s:s, s:o}", "name", h->island, "hosts", hosts));
		}
		json_array_append_new(hosts, host_json(m, h));
	}
	return regions;
}

static json_t *mesh_json(const struct mesh *m)
{
	json_t *head = m->head < 0 ? json_null()
				   : json_pack("{s:I, s:f, s:f}", "version", (json_int_t)m->head, "age_s",
					       seconds(m->now_ns, m->created_ns), "expires_in_s", seconds(m->expires_ns, m->now_ns));

	return json_pack("{s:s, s:s, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:I}}", "policy", m->policy, "run", m->run, "head", head,
			 "regions", regions_json(m), "summary", "hosts", (json_int_t)m->n, "serving_head",
			 (json_int_t)m->serving, "stale", (json_int_t)m->stale_hosts, "poisoned", (json_int_t)m->poisoned,
			 "unreachable", (json_int_t)m->unreachable);
}

static void number(char *buf, size_t cap, int64_t v)
{
	if (v < 0)
		(void)snprintf(buf, cap, "-");
	else
		(void)snprintf(buf, cap, "%lld", (long long)v);
}

/* How wide the columns of names are. */
struct widths {
	int region, island, host;
};

static int wider(int width, const char *text)
{
	int n = (int)strlen(text);

	return n > width ? n : width;
}

static void host_row(const struct mesh *m, const struct host *h, const struct widths *w)
{
	char served[24], fetched[24], behind[24], rx[32], tx[32], brx[32], btx[32];

	number(served, sizeof served, h->served);
	number(fetched, sizeof fetched, h->fetched);
	number(behind, sizeof behind, h->served < 0 || m->head < 0 ? -1 : m->head - h->served);
	(void)printf("%-*s  %-*s  %-*s  %-11s %6s %7s %4s %9s %9s %9s %9s %8.1f %8.1f%s%s\n", w->region, h->region, w->island,
		     h->island[0] ? h->island : "-", w->host, h->name, gw_host_state_name(h->state), served, fetched, behind,
		     human_bytes(rx, h->rx_bytes), human_bytes(tx, h->tx_bytes), human_bytes(brx, h->border_rx_bytes),
		     human_bytes(btx, h->border_tx_bytes), (double)h->last_apply_ns / 1e6, (double)h->last_pause_ns / 1e6,
		     h->error[0] ? "  " : "", h->error);
}

static void head_line(const struct mesh *m)
{
	if (!m->policy[0])
		(void)printf("nothing is published yet, as far as this host knows\n");
	else if (m->head < 0)
		(void)printf("policy %s: no head is known yet\n", m->policy);
	else
		(void)printf("policy %s  run %.8s  head %lld, %.0f s old, %s\n", m->policy, m->run, (long long)m->head,
			     seconds(m->now_ns, m->created_ns), m->stale ? "EXPIRED" : "fresh");
}

static void mesh_table(const struct mesh *m)
{
	struct widths w = {6, 6, 4};

	head_line(m);
	for (size_t i = 0; i < m->n; i++) {
		w.region = wider(w.region, m->hosts[i].region);
		w.island = wider(w.island, m->hosts[i].island);
		w.host = wider(w.host, m->hosts[i].name);
	}
	(void)printf("%-*s  %-*s  %-*s  %-11s %6s %7s %4s %9s %9s %9s %9s %8s %8s  %s\n", w.region, "REGION", w.island, "ISLAND",
		     w.host, "HOST", "STATE", "SERVED", "FETCHED", "LAG", "RX", "TX", "BORDER-RX", "BORDER-TX", "APPLY-MS",
		     "PAUSE-MS", "TROUBLE");
	for (size_t i = 0; i < m->n; i++)
		host_row(m, &m->hosts[i], &w);
	(void)printf("%zu hosts: %u serve the head, %u stale, %u poisoned, %u unreachable\n", m->n, m->serving, m->stale_hosts,
		     m->poisoned, m->unreachable);
}

static int run(struct args *a)
{
	struct mesh m = {.head = -1};
	struct control c;
	int err = control_open(&c, arg_value(a, "run"), &a->why);

	if (err)
		return err;
	err = ask(&m, &c, a);
	control_close(&c);
	if (!err && arg_flag(a, "json"))
		err = print_json(mesh_json(&m), &a->why);
	else if (!err)
		mesh_table(&m);
	if (!err && (m.poisoned || m.unreachable || m.stale || m.stale_hosts))
		a->exit_code = 4;
	free(m.hosts);
	return err;
}

static const struct opt opts[] = {
	{"policy", "NAME", "which policy, where the mesh has several"},
	{"json", NULL, "as one JSON document"},
	CONTROL_OPTION_RUN,
	{NULL, NULL, NULL},
};

const struct cmd cmd_health = {
	"health", "", "the whole mesh: regions, islands, hosts, and what each serves", 0, 0, opts, run,
};
