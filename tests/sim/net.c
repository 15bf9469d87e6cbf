/* Links and what travels over them. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "sim.h"
#include "wire/codec.h"

#define LINK_TIMEOUT (15 * SECOND) /* heartbeats of io/zmq */
#define DIAL_TIMEOUT (3 * SECOND)

static struct sim_link *link_of(struct sim *s, int a, int b)
{
	int key[2] = {a < b ? a : b, a < b ? b : a};
	struct sim_link *l = gw_map_get(&s->links, key, sizeof key);

	if (l)
		return l;
	l = calloc(1, sizeof *l);
	if (!l || gw_map_put(&s->links, key, sizeof key, l, NULL))
		abort();
	l->end[0] = key[0];
	l->end[1] = key[1];
	l->held_tail = &l->held;
	return l;
}

static int side(const struct sim_link *l, int host)
{
	return l->end[1] == host;
}

static int cut(const struct sim *s, int a, int b)
{
	return s->partitioned && s->group[a] != s->group[b];
}

static uint64_t one_way(struct sim *s, int a, int b)
{
	uint64_t d = s->delay_ns[s->hosts[a].region][s->hosts[b].region];

	return d + gw_rng_below(&s->rng, d / 10 + 1);
}

static void drop_held(struct sim_link *l)
{
	while (l->held) {
		struct sim_frame *f = l->held;

		l->held = f->next;
		free(f->bytes);
		free(f);
	}
	l->held_tail = &l->held;
}

static void link_event(struct sim *s, int host, int peer, enum gw_event_kind kind, uint64_t delay_ns)
{
	struct gw_event ev = {.kind = kind, .host = sim_handle(s, &s->hosts[host], peer)};

	if (s->hosts[host].running && ev.host != GW_HOST_NONE)
		sim_feed_later(s, host, delay_ns, &ev);
}

static void go_down(struct sim *s, struct sim_link *l, uint64_t delay0, uint64_t delay1)
{
	l->up = l->ghost = 0;
	l->epoch++;
	l->ask[0] = l->ask[1] = 0;
	drop_held(l);
	link_event(s, l->end[0], l->end[1], GW_EV_LINK_DOWN, delay0);
	link_event(s, l->end[1], l->end[0], GW_EV_LINK_DOWN, delay1);
}

void sim_net_connect(struct sim *s, int a, int b)
{
	struct sim_link *l = link_of(s, a, b);
	int i = side(l, a), there = s->hosts[b].started && !cut(s, a, b);
	struct sim_later *later;

	l->ask[i] = 1;
	if ((l->up && !l->ghost) || l->dialing[i])
		return;
	l->dialing[i] = 1;
	later = sim_at(s, s->now_ns + (there ? 3 * one_way(s, a, b) : DIAL_TIMEOUT), SIM_DIALED, a);
	later->other = b;
}

void sim_net_dialed(struct sim *s, const struct sim_later *d)
{
	int a = d->host, b = d->other;
	struct sim_link *l = link_of(s, a, b);
	int i = side(l, a);
	struct sim_host *to = &s->hosts[b];

	l->dialing[i] = 0;
	if (!l->ask[i] || (l->up && !l->ghost) || s->hosts[a].life != d->life)
		return;
	if (!to->running || cut(s, a, b) || !to->record->dial || sim_handle(s, to, a) == GW_HOST_NONE) {
		l->ask[i] = 0;
		link_event(s, a, b, GW_EV_LINK_DOWN, 0);
		return;
	}
	if (l->ghost) { /* the new connection takes the place of the dead one */
		drop_held(l);
		l->ghost = 0;
		l->ask[!i] = 0;
		link_event(s, b, a, GW_EV_LINK_DOWN, 0);
	}
	l->up = 1;
	l->epoch++;
	l->fifo_ns[0][0] = l->fifo_ns[0][1] = l->fifo_ns[1][0] = l->fifo_ns[1][1] = s->now_ns;
	link_event(s, a, b, GW_EV_LINK_UP, 0);
	link_event(s, b, a, GW_EV_LINK_UP, 0);
}

void sim_net_disconnect(struct sim *s, int a, int b)
{
	struct sim_link *l = link_of(s, a, b);
	int i = side(l, a);

	l->ask[i] = 0;
	if (l->up && !l->ask[!i])
		go_down(s, l, i ? one_way(s, a, b) : 0, i ? 0 : one_way(s, a, b));
}

int sim_net_linked(const struct sim *s, int a, int b)
{
	int key[2] = {a < b ? a : b, a < b ? b : a};
	const struct sim_link *l = gw_map_get(&s->links, key, sizeof key);

	return l && l->up;
}

static void occupy(uint64_t *busy, uint64_t *at, size_t bytes, uint64_t rate)
{
	if (!rate)
		return;
	if (*busy < *at)
		*busy = *at;
	*busy += bytes * SECOND / rate;
	*at = *busy;
}

static void dispatch(struct sim *s, struct sim_link *l, struct sim_frame *f)
{
	struct sim_host *a = &s->hosts[f->from], *b = &s->hosts[f->to];
	uint64_t at = s->now_ns;
	int border = a->region != b->region;
	uint64_t *fifo = &l->fifo_ns[side(l, f->from)][f->bulk];

	if (f->bulk) {
		occupy(&a->nic_out_ns, &at, f->size, s->config.nic_bytes_per_s);
		if (border) {
			occupy(&s->border_out_ns[a->region], &at, f->size, s->config.border_bytes_per_s);
			occupy(&s->border_in_ns[b->region], &at, f->size, s->config.border_bytes_per_s);
		}
		occupy(&b->nic_in_ns, &at, f->size, s->config.nic_bytes_per_s);
		if (!f->bytes) {
			struct gw_event sent = {.kind = GW_EV_BLOCK_SENT,
						.host = sim_handle(s, a, f->to),
						.object = f->object,
						.piece = f->piece,
						.bytes = f->n};

			if (sent.host != GW_HOST_NONE)
				sim_feed_later(s, f->from, at - s->now_ns, &sent);
		}
	}
	at += one_way(s, f->from, f->to);
	for (uint64_t again = 200 * MS; gw_rng_unit(&s->rng) < s->config.loss && again < 2 * SECOND; again *= 2)
		at += again;
	if (at < *fifo)
		at = *fifo;
	*fifo = at;
	f->epoch = l->epoch;
	f->life = b->life;
	sim_at(s, at, SIM_FRAME, f->to)->frame = f;
}

void sim_net_send(struct sim *s, struct sim_frame *f)
{
	struct sim_link *l = link_of(s, f->from, f->to);

	f->size = f->n + SIM_FRAMING;
	s->hosts[f->from].sent_messages++;
	s->hosts[f->from].sent_bytes += f->size;
	if (!l->up || (s->config.drop > 0 && gw_rng_unit(&s->rng) < s->config.drop)) {
		/* io says that a block left whether or not it arrives */
		if (!f->bytes) {
			struct gw_event sent = {.kind = GW_EV_BLOCK_SENT,
						.object = f->object,
						.piece = f->piece,
						.bytes = f->n,
						.host = sim_handle(s, &s->hosts[f->from], f->to)};

			sim_feed_later(s, f->from, MS, &sent);
		}
		free(f->bytes);
		free(f);
		return;
	}
	f->next = NULL;
	if (cut(s, f->from, f->to)) { /* TCP keeps it and tries again */
		*l->held_tail = f;
		l->held_tail = &f->next;
		return;
	}
	dispatch(s, l, f);
}

void sim_net_frame(struct sim *s, struct sim_frame *f)
{
	static const uint8_t content[GW_BLOCK_MAX];
	struct sim_link *l = link_of(s, f->from, f->to);
	struct sim_host *h = &s->hosts[f->to];
	struct gw_msg msg = {.type = GW_MSG_NONE};
	struct gw_event ev = {.kind = GW_EV_MSG, .msg = &msg, .bytes = f->n};
	struct gw_arena arena;
	int err;

	gw_arena_init(&arena, 4 << 20);
	ev.host = h->running ? sim_handle(s, h, f->from) : GW_HOST_NONE;
	if (ev.host == GW_HOST_NONE || f->epoch != l->epoch || f->life != h->life)
		goto out;
	if (f->bytes) {
		err = gw_msg_decode(f->bytes, f->n, &arena, &msg);
		SIM_CHECK(s, h, !err, "a frame from host %d does not decode: %s", f->from, gw_err_text(err));
	} else {
		struct gw_m_block *b = &msg.u.block;
		struct sim_object *o = sim_object(s, &f->object);

		msg.type = GW_MSG_block;
		memcpy(b->object, f->object.b, 32);
		b->piece = f->piece;
		b->offset = f->offset;
		b->data = (struct gw_bytes){content + f->bad, f->n}; /* the tag is where it points */
		if (s->hosts[f->from].region != h->region) {
			o->border_rx[h->region] += f->n;
			h->rx_border += f->n;
		}
	}
	sim_feed(s, f->to, &ev);
out:
	gw_arena_reset(&arena);
	free(f->bytes);
	free(f);
}

void sim_net_host_gone(struct sim *s, int host, int silent)
{
	const struct gw_map_entry *e;

	for (size_t at = 0; (e = gw_map_next(&s->links, &at));) {
		struct sim_link *l = e->value;
		int i = side(l, host), peer = l->end[!i];

		if (l->end[0] != host && l->end[1] != host)
			continue;
		l->ask[i] = 0;
		if (!l->up)
			continue;
		if (silent) {
			l->epoch++; /* nothing more arrives; the other end learns it late */
			l->ghost = 1;
			sim_at(s, s->now_ns + LINK_TIMEOUT, SIM_LINK_TIMEOUT, peer)->other = host;
		} else {
			go_down(s, l, one_way(s, host, peer), one_way(s, host, peer));
		}
	}
}

void sim_net_cut(struct sim *s)
{
	const struct gw_map_entry *e;

	for (size_t at = 0; (e = gw_map_next(&s->links, &at));) {
		struct sim_link *l = e->value;
		struct sim_later *t;

		if (!l->up || !cut(s, l->end[0], l->end[1]))
			continue;
		t = sim_at(s, s->now_ns + LINK_TIMEOUT, SIM_LINK_TIMEOUT, l->end[0]);
		t->other = l->end[1];
		t->epoch = l->epoch;
	}
}

/* Heartbeats stayed out. */
void sim_net_timeout(struct sim *s, const struct sim_later *t)
{
	struct sim_link *l = link_of(s, t->host, t->other);

	if (!l->up)
		return;
	if (t->epoch ? t->epoch == l->epoch && cut(s, t->host, t->other) : l->ghost)
		go_down(s, l, 0, 0);
}

void sim_net_healed(struct sim *s)
{
	const struct gw_map_entry *e;

	for (size_t at = 0; (e = gw_map_next(&s->links, &at));) {
		struct sim_link *l = e->value;
		struct sim_frame *f = l->held;

		l->held = NULL;
		l->held_tail = &l->held;
		while (f) {
			struct sim_frame *next = f->next;

			dispatch(s, l, f);
			f = next;
		}
	}
}

static void free_link(void *p)
{
	drop_held(p);
	free(p);
}

void sim_net_free(struct sim *s)
{
	gw_map_free(&s->links, free_link);
}
