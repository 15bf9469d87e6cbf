#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "wire/codec.h"

void sim_fail(const struct sim *s, const struct sim_host *h, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "SIMULATION FAILED: story %s, seed %llu, at %.6f s, event %llu", s->story ? s->story : "-",
		(unsigned long long)s->config.seed, (double)s->now_ns / 1e9, (unsigned long long)s->events);
	if (h)
		fprintf(stderr, ", host %d (region %d)", h->index, h->region);
	fprintf(stderr, ": ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

void sim_trace(struct sim *s, uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t v[5] = {s->trace, s->now_ns, a, b, c};

	s->trace = gw_siphash13(3, 4, v, sizeof v);
}

struct sim *sim_new(const struct sim_config *config)
{
	struct sim *s = calloc(1, sizeof *s);

	if (!s || config->hosts > SIM_HOSTS_MAX || config->regions > SIM_REGIONS_MAX)
		abort();
	s->config = *config;
	s->now_ns = SECOND; /* zero is "never" in places */
	s->head_version = -1;
	gw_rng_init(&s->rng, config->seed);
	gw_heap_init(&s->heap);
	gw_map_init(&s->links, 1);
	gw_map_init(&s->signed_records, 2);
	s->hosts = calloc((size_t)config->hosts, sizeof *s->hosts);
	s->group = calloc((size_t)config->hosts, sizeof *s->group);
	if (!s->hosts || !s->group)
		abort();
	for (int a = 0; a < config->regions; a++)
		for (int b = a; b < config->regions; b++)
			s->delay_ns[a][b] = s->delay_ns[b][a] =
				a == b ? MS / 4 : 10 * MS + gw_rng_below(&s->rng, 70 * MS);
	for (int i = 0; i < config->hosts; i++) {
		struct sim_host *h = &s->hosts[i];

		h->index = i;
		h->region = i % config->regions;
		h->served = -1;
		h->record = sim_record_new(s, i, EPOCH_NS);
		gw_actions_init(&h->actions);
	}
	return s;
}

static void later_free(void *p)
{
	struct sim_later *l = p;

	if (l->frame) {
		free(l->frame->bytes);
		free(l->frame);
	}
	if (l->kind == SIM_FEED && l->ev.record)
		gw_member_record_unref(l->ev.record);
	free(l);
}

/* --- members kept --- */

static size_t count_kinds(struct gw_mesh_kinds k)
{
	return k.in + k.dead + k.left;
}

static void know(struct sim_host *h, struct gw_member_record *const *v, struct gw_mesh_kinds k)
{
	struct gw_member_record **old = h->known;
	size_t n = count_kinds(k), old_n = count_kinds(h->known_of);

	h->known = calloc(n + 1, sizeof *h->known);
	if (!h->known)
		abort();
	for (size_t i = 0; i < n; i++)
		h->known[i] = gw_member_record_ref(v[i]);
	h->known_of = k;
	for (size_t i = 0; i < old_n; i++)
		gw_member_record_unref(old[i]);
	free(old);
	if (!v) {
		free(h->known);
		h->known = NULL;
	}
}

/* As daemon/members.h. */
static void keep_members(struct sim *s, struct sim_host *h)
{
	const struct gw_mesh *m = s->config.ops->mesh(h->machine);
	struct gw_member_record **v = calloc((size_t)s->config.hosts, sizeof *v);
	struct gw_mesh_kinds k;

	if (!v)
		abort();
	k = gw_mesh_known(m, v, (size_t)s->config.hosts);
	if (count_kinds(k))
		know(h, v, k);
	h->known_table = gw_mesh_roster(m)->digest;
	h->known_ns = s->now_ns;
	free(v);
}

/* At the first event when it is due: that is late rather than early. */
static void look_at_members(struct sim *s, struct sim_host *h)
{
	if (gw_mesh_roster(s->config.ops->mesh(h->machine))->digest != h->known_table &&
	    s->now_ns >= gw_mesh_keep_at(h->known_ns, count_kinds(h->known_of)))
		keep_members(s, h);
}

static void signed_free(void *p)
{
	struct gw_event *ev = p;

	free((void *)(uintptr_t)ev->raw.p);
	free((void *)(uintptr_t)ev->head);
	free(ev);
}

void sim_free(struct sim *s)
{
	while (gw_heap_top(&s->heap))
		later_free(gw_heap_pop(&s->heap).ptr);
	gw_heap_free(&s->heap);
	for (int i = 0; i < s->config.hosts; i++) {
		struct sim_host *h = &s->hosts[i];

		if (h->machine)
			s->config.ops->free(h->machine);
		gw_actions_free(&h->actions);
		gw_member_record_unref(h->record);
		for (int k = 0; k < SIM_SLOTS; k++)
			free(h->slots[k].p);
		sim_store_free(h);
		know(h, NULL, (struct gw_mesh_kinds){0, 0, 0});
	}
	sim_net_free(s);
	gw_map_free(&s->signed_records, signed_free);
	for (size_t i = 0; i < s->object_count; i++) {
		free(s->objects[i]->raw);
		free(s->objects[i]->digests);
		free(s->objects[i]);
	}
	free(s->objects);
	free(s->hosts);
	free(s->group);
	free(s);
}

int sim_index(const struct sim_host *h, const struct sim *s, gw_host handle)
{
	const struct gw_roster_entry *e = gw_roster_at(gw_mesh_roster(s->config.ops->mesh(h->machine)), handle);

	return e ? sim_identity_index(e->record->identity) : -1;
}

gw_host sim_handle(const struct sim *s, const struct sim_host *h, int index)
{
	const struct gw_roster_entry *e;

	if (!h->machine)
		return GW_HOST_NONE;
	e = gw_roster_find(gw_mesh_roster(s->config.ops->mesh(h->machine)), s->hosts[index].record->identity);
	return e ? e->host : GW_HOST_NONE;
}

struct sim_later *sim_at(struct sim *s, uint64_t at_ns, enum sim_kind kind, int host)
{
	struct sim_later *l = calloc(1, sizeof *l);

	if (!l || gw_heap_push(&s->heap, at_ns, 0, l))
		abort();
	l->kind = kind;
	l->host = host;
	l->life = host >= 0 ? s->hosts[host].life : 0;
	return l;
}

void sim_call_at(struct sim *s, uint64_t at_ns, void (*call)(struct sim *s, void *ctx), void *ctx)
{
	struct sim_later *l = sim_at(s, at_ns, SIM_CALL, -1);

	l->call = call;
	l->ctx = ctx;
}

void sim_feed_later(struct sim *s, int host, uint64_t delay_ns, const struct gw_event *ev)
{
	sim_at(s, s->now_ns + delay_ns, SIM_FEED, host)->ev = *ev;
}

/* --- actions --- */

static void persist(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	for (int i = 0; i < SIM_SLOTS; i++) {
		struct sim_slot *slot = &h->slots[i];

		if (slot->name && strcmp(slot->name, a->slot) != 0)
			continue;
		slot->name = a->slot;
		slot->p = realloc(slot->p, a->data.n + 1);
		if (!slot->p)
			abort();
		memcpy(slot->p, a->data.p, a->data.n);
		slot->n = a->data.n;
		return;
	}
	sim_fail(s, h, "more slots than a host has");
}

static void send_message(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	int to = sim_index(h, s, a->host), err;
	struct sim_frame *f;
	struct gw_wr w;

	if (to < 0)
		return;
	f = calloc(1, sizeof *f);
	gw_wr_init(&w, 256 * 1024);
	err = gw_msg_encode(a->msg, &w);
	SIM_CHECK(s, h, f && !err, "a message of type %s does not encode: %s", gw_msg_name(a->msg->type),
		  gw_err_text(err));
	gw_wr_take(&w, &f->bytes, &f->n);
	f->from = h->index;
	f->to = to;
	f->bulk = a->bulk;
	sim_trace(s, (uint64_t)h->index << 32 | (uint64_t)to, gw_siphash13(5, 6, f->bytes, f->n), f->n);
	sim_net_send(s, f);
}

static void health(struct sim_host *h, const struct gw_action *a)
{
	const struct gw_m_status_reply *r = &a->msg->u.status_reply;

	h->health_key = a->key;
	h->health_count = r->hosts.n;
	h->health_unreachable = h->health_serving = 0;
	for (size_t i = 0; i < r->hosts.n; i++) {
		h->health_unreachable += r->hosts.v[i].head < 0 && r->hosts.v[i].name.n > 0;
		h->health_serving += r->hosts.v[i].served >= 0;
	}
}

static void execute(struct sim *s, struct sim_host *h, const struct gw_action *a)
{
	struct sim_later *l;
	int to;

	sim_check_action(s, h, a);
	sim_trace(s, (uint64_t)a->kind, (uint64_t)h->index, a->at_ns ^ a->key);
	switch (a->kind) {
	case GW_ACT_TIMER:
		l = sim_at(s, gw_max_u64(a->at_ns, s->now_ns), SIM_FEED, h->index);
		l->ev.kind = GW_EV_TIMER;
		l->ev.key = a->key;
		break;
	case GW_ACT_SEND:
		send_message(s, h, a);
		break;
	case GW_ACT_CONNECT:
	case GW_ACT_DISCONNECT:
		to = sim_index(h, s, a->host);
		if (to >= 0)
			(a->kind == GW_ACT_CONNECT ? sim_net_connect : sim_net_disconnect)(s, h->index, to);
		break;
	case GW_ACT_PERSIST:
		persist(s, h, a);
		break;
	case GW_ACT_VERIFY_HEAD:
	case GW_ACT_VERIFY_MANIFEST:
	case GW_ACT_VERIFY_MEMBER:
		sim_verify(s, h, a);
		break;
	case GW_ACT_LOG:
		if (getenv("SIM_LOG"))
			fprintf(stderr, "%.3f host %d: %s (%d)\n", (double)s->now_ns / 1e9, h->index, a->text,
				a->host == GW_HOST_NONE ? -1 : sim_index(h, s, a->host));
		break;
	case GW_ACT_HEALTH:
		health(h, a);
		break;
	case GW_ACT_MEMBER:
	case GW_ACT_TELL:
		break; /* mesh alone: nobody to tell */
	default:
		sim_store_action(s, h, a);
		break;
	}
}

void sim_feed(struct sim *s, int host, struct gw_event *ev)
{
	struct sim_host *h = &s->hosts[host];
	int err;

	if (!h->running)
		return;
	if (ev->kind != GW_EV_START)
		look_at_members(s, h);
	ev->now_ns = s->now_ns;
	ev->wall_ns = EPOCH_NS + s->now_ns;
	s->events++;
	if (ev->kind != GW_EV_START)
		sim_store_event(s, h, ev);
	sim_trace(s, (uint64_t)ev->kind, (uint64_t)host, ev->key);
	gw_actions_reset(&h->actions);
	err = s->config.ops->step(h->machine, ev, &h->actions);
	SIM_CHECK(s, h, !err, "step says %s", gw_err_text(err));
	for (size_t i = 0; i < h->actions.n; i++)
		execute(s, h, &h->actions.v[i]);
	sim_check_host(s, h);
}

/* --- hosts --- */

static void start_host(struct sim *s, struct sim_host *h)
{
	struct gw_event ev = {.kind = GW_EV_START};

	h->life++;
	h->running = h->started = 1;
	h->left = 0;
	h->frozen_until_ns = 0;
	if (s->config.ops->make(s, h, &h->machine))
		sim_fail(s, h, "cannot make the machine");
	sim_feed(s, h->index, &ev);
	sim_store_event(s, h, &ev);
}

/* The records of all hosts that are there at first, in an order of this host's own: handles differ everywhere. */
static void start_knowing_all(struct sim *s, struct sim_host *h)
{
	struct gw_member_record **v = calloc((size_t)s->config.hosts, sizeof *v);
	size_t n = 0;

	for (int i = 0; i < s->config.hosts; i++)
		if (s->hosts[i].started || i < s->config.hosts - s->config.undialable - s->config.late ||
		    i >= s->config.hosts - s->config.undialable)
			v[n++] = s->hosts[i].record;
	for (size_t i = n; i > 1; i--) {
		size_t j = gw_rng_below(&s->rng, i);
		struct gw_member_record *t = v[i - 1];

		v[i - 1] = v[j];
		v[j] = t;
	}
	know(h, v, (struct gw_mesh_kinds){n, 0, 0});
	start_host(s, h);
	free(v);
}

struct boot {
	int host;
};

static void boot_one(struct sim *s, void *ctx)
{
	struct boot *b = ctx;

	start_knowing_all(s, &s->hosts[b->host]);
	free(b);
}

void sim_boot(struct sim *s)
{
	int dialable = s->config.hosts - s->config.undialable;

	for (int i = 0; i < s->config.hosts; i++) {
		struct boot *b;

		if (i >= dialable - s->config.late && i < dialable)
			continue;
		b = malloc(sizeof *b);
		if (!b)
			abort();
		b->host = i;
		sim_call_at(s, s->now_ns + gw_rng_below(&s->rng, SECOND), boot_one, b);
	}
	sim_run(s, SECOND);
}

void sim_join(struct sim *s, int host, int via)
{
	struct gw_event ev = {.kind = GW_EV_MEMBER_RECORD, .host = GW_HOST_NONE, .record = s->hosts[host].record};

	sim_feed(s, via, &ev);
	keep_members(s, &s->hosts[via]);
	know(&s->hosts[host], &s->hosts[via].record, (struct gw_mesh_kinds){1, 0, 0});
	start_host(s, &s->hosts[host]);
}

static void stop(struct sim *s, struct sim_host *h, int silent)
{
	sim_net_host_gone(s, h->index, silent);
	h->running = 0;
	h->life++;
	s->config.ops->free(h->machine);
	h->machine = NULL;
	sim_store_crash(h);
}

void sim_crash(struct sim *s, int host, int silent)
{
	stop(s, &s->hosts[host], silent);
	if (silent) {
		s->hosts[host].started = 0; /* dials are not even refused */
		s->hosts[host].served = -1; /* the engine went with it */
	}
}

void sim_restart(struct sim *s, int host)
{
	start_host(s, &s->hosts[host]);
}

static void stop_later(struct sim *s, void *ctx)
{
	struct sim_host *h = ctx;

	if (!h->running)
		return;
	keep_members(s, h);
	stop(s, h, 0);
}

void sim_leave(struct sim *s, int host)
{
	struct gw_event ev = {.kind = GW_EV_LEAVE};

	sim_feed(s, host, &ev);
	s->hosts[host].left = s->hosts[host].expected_dead = 1;
	sim_call_at(s, s->now_ns + SECOND / 2, stop_later, &s->hosts[host]);
}

void sim_freeze(struct sim *s, int host, uint64_t for_ns)
{
	s->hosts[host].frozen_until_ns = s->now_ns + for_ns;
}

void sim_partition(struct sim *s, int (*group)(const struct sim *s, int host))
{
	for (int i = 0; i < s->config.hosts; i++)
		s->group[i] = group(s, i);
	s->partitioned = 1;
	sim_net_cut(s);
}

void sim_heal(struct sim *s)
{
	s->partitioned = 0;
	sim_net_healed(s);
}

/* --- running --- */

static void happen(struct sim *s, struct sim_later *l)
{
	switch (l->kind) {
	case SIM_FEED:
		if (s->hosts[l->host].running && s->hosts[l->host].life == l->life)
			sim_feed(s, l->host, &l->ev);
		if (l->ev.record)
			gw_member_record_unref(l->ev.record);
		break;
	case SIM_FRAME:
		sim_net_frame(s, l->frame);
		break;
	case SIM_DIALED:
		sim_net_dialed(s, l);
		break;
	case SIM_LINK_TIMEOUT:
		sim_net_timeout(s, l);
		break;
	case SIM_CALL:
		l->call(s, l->ctx);
		break;
	}
	free(l);
}

static void advance(struct sim *s)
{
	struct gw_heap_item item = gw_heap_pop(&s->heap);
	struct sim_later *l = item.ptr;
	struct sim_host *h = l->host >= 0 ? &s->hosts[l->host] : NULL;

	s->now_ns = item.when_ns;
	/* Nothing reaches a host that does not run; it gets all of it, in order, when it does again. */
	if (h && h->frozen_until_ns > s->now_ns && (l->kind == SIM_FEED || l->kind == SIM_FRAME)) {
		if (gw_heap_push(&s->heap, h->frozen_until_ns, 0, l))
			abort();
		return;
	}
	happen(s, l);
}

void sim_run(struct sim *s, uint64_t for_ns)
{
	sim_run_until(s, for_ns, NULL, NULL);
}

int sim_run_until(struct sim *s, uint64_t for_ns, int (*done)(struct sim *s, void *ctx), void *ctx)
{
	uint64_t end = s->now_ns + for_ns, look = 0;

	while (gw_heap_top(&s->heap) && gw_heap_top(&s->heap)->when_ns <= end) {
		advance(s);
		if (done && s->now_ns >= look) {
			look = s->now_ns + SECOND / 10;
			if (done(s, ctx))
				return 0;
		}
	}
	s->now_ns = end;
	return done ? (done(s, ctx) ? 0 : -1) : 0;
}
