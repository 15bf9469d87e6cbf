#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "io/os/clock.h"
#include "io/os/seqpacket.h"
#include "lib/object.h"
#include "wire/codec.h"

enum {
	FRAME_MAX = 64 * 1024,
	ROWS_BYTES = 32 * 1024,      /* of declaration in one message, as estimated */
	SEND_MS = 10000,
	TICK_NS = 2000000,           /* while settling */
};

/* While there is no daemon; and after a refusal, which a daemon does not give for nothing: twice as long each time. */
static const uint64_t retry_ns = 200000000, refused_ns = 1000000000, refused_max_ns = 60000000000, pause_tick_ns = 500000000;

/* --- the descriptors behind godwit_engine_fd --- */

static int watch(struct godwit_engine *e, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &ev) ? gw_err_from_errno(errno) : 0;
}

int gw_lib_link_init(struct godwit_engine *e)
{
	int err;

	e->sock = -1;
	e->retry_ns = retry_ns;
	gw_arena_init(&e->arena, 4 << 20);
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	e->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	e->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->epoll >= 0 && e->timer >= 0 && e->eventfd >= 0) {
		err = watch(e, e->timer);
		if (!err)
			err = watch(e, e->eventfd);
		if (!err)
			return 0;
	} else {
		err = gw_err_from_errno(errno);
	}
	close(e->epoll);
	close(e->timer);
	close(e->eventfd);
	return err;
}

/* When godwit_engine_fd wakes the engine although no message came. */
static void set_timer(struct godwit_engine *e)
{
	uint64_t ns = 0;
	struct itimerspec t = {0};

	if (gw_client_state(e->client) == GW_CLIENT_SETTLING)
		ns = TICK_NS;
	else if (e->sock < 0)
		ns = e->retry_ns;
	else if (gw_client_state(e->client) == GW_CLIENT_PAUSED)
		ns = pause_tick_ns;
	if (ns == e->timer_ns)
		return; /* it runs; setting it again would put it off */
	e->timer_ns = ns;
	t.it_value.tv_sec = (time_t)(ns / 1000000000);
	t.it_value.tv_nsec = (long)(ns % 1000000000);
	t.it_interval = t.it_value;
	(void)timerfd_settime(e->timer, 0, &t, NULL);
}

static struct godwit_event *push(struct godwit_engine *e, enum godwit_event_kind kind)
{
	struct godwit_event *ev;
	uint64_t one = 1;

	/* The engine that reads no events at all misses the oldest notices, never a pause or resume: those come
	 * one at a time, each answered before the next. */
	if (e->event_n == GW_LIB_EVENTS) {
		e->event_at = (e->event_at + 1) % GW_LIB_EVENTS;
		e->event_n--;
	}
	ev = &e->events[(e->event_at + e->event_n++) % GW_LIB_EVENTS];
	memset(ev, 0, sizeof *ev);
	ev->kind = kind;
	(void)!write(e->eventfd, &one, sizeof one);
	return ev;
}

/* --- out --- */

static int send_msg(struct godwit_engine *e, const struct gw_msg *m, const int *fds, size_t nfds)
{
	struct gw_wr w;
	int err;

	if (e->sock < 0)
		return GW_ECLOSED;
	gw_wr_init(&w, FRAME_MAX);
	err = gw_msg_encode(m, &w);
	while (!err) {
		err = gw_seq_send(e->sock, w.p, w.n, fds, nfds);
		if (err != GW_EAGAIN)
			break;
		err = gw_seq_wait(e->sock, 1, SEND_MS);
	}
	gw_wr_free(&w);
	return err;
}

static struct gw_text text_of(const char *s)
{
	return (struct gw_text){.p = s, .n = strlen(s)};
}

/* Field 22 of /proc/self/stat: the name before it is in parentheses and may hold anything. */
static uint64_t start_ticks(void)
{
	char buf[1024], *p;
	unsigned long long ticks = 0;
	FILE *f = fopen("/proc/self/stat", "re");
	size_t n;

	if (!f)
		return 0;
	n = fread(buf, 1, sizeof buf - 1, f);
	fclose(f);
	buf[n] = 0;
	p = strrchr(buf, ')');
	for (int i = 0; p && i < 20; i++)
		p = strchr(p + 1, ' ');
	if (p)
		ticks = strtoull(p, NULL, 10);
	return ticks;
}

static int send_hello(struct godwit_engine *e)
{
	struct gw_msg m = {.type = GW_MSG_eng_hello};
	struct gw_m_eng_hello *h = &m.u.eng_hello;

	h->protocol = 1;
	h->engine = text_of(e->engine);
	h->engine_version = text_of(e->engine_version);
	h->quantisation = text_of(e->quantisation);
	h->device = text_of(e->device);
	h->pid = (uint32_t)getpid();
	h->start_ticks = start_ticks();
	memcpy(h->instance, e->instance, sizeof h->instance);
	h->rank = e->rank;
	h->ranks = e->ranks;
	h->apply = e->in_process ? 2 : 1;
	memcpy(h->run, e->attached ? gw_client_run(e->client) : e->run, sizeof h->run);
	h->version = e->attached ? gw_client_version(e->client) : e->version;
	return send_msg(e, &m, NULL, 0);
}

static int send_segments(struct godwit_engine *e)
{
	for (size_t i = 0; i < e->segment_n; i++) {
		struct gw_msg m = {.type = GW_MSG_eng_segment};
		int err;

		m.u.eng_segment = (struct gw_m_eng_segment){.id = (uint32_t)i, .kind = 1, .bytes = e->mem[i].bytes};
		err = send_msg(e, &m, &e->segments[i].fd, 1);
		if (err)
			return err;
	}
	return 0;
}

static int send_tensors(struct godwit_engine *e)
{
	struct gw_r_eng_tensor rows[256];
	struct gw_msg m = {.type = GW_MSG_eng_tensors};
	size_t bytes = 0, n = 0;
	int err = 0;

	for (size_t i = 0; !err && i < e->tensor_n; i++) {
		const struct gw_lib_tensor *t = &e->tensors[i];

		rows[n++] = (struct gw_r_eng_tensor){.name = text_of(t->name), .dtype = t->dtype,
						     .shape = {.p = t->shape_bytes, .n = 8 * t->dims}};
		bytes += strlen(t->name) + 96;
		if (n < 256 && bytes < ROWS_BYTES && i + 1 < e->tensor_n)
			continue;
		m.u.eng_tensors.rows.v = rows;
		m.u.eng_tensors.rows.n = n;
		err = send_msg(e, &m, NULL, 0);
		n = bytes = 0;
	}
	return err;
}

static int send_maps(struct godwit_engine *e)
{
	struct gw_msg m = {.type = GW_MSG_eng_maps};
	int err = 0;

	for (size_t i = 0; !err && i < e->map_n; i += 256) {
		m.u.eng_maps.rows.v = e->maps + i;
		m.u.eng_maps.rows.n = e->map_n - i < 256 ? e->map_n - i : 256;
		err = send_msg(e, &m, NULL, 0);
	}
	return err;
}

static int send_opaques(struct godwit_engine *e)
{
	struct gw_r_eng_opaque rows[256];
	struct gw_msg m = {.type = GW_MSG_eng_opaques};
	size_t bytes = 0, n = 0;
	int err = 0;

	for (size_t i = 0; !err && i < e->opaque_n; i++) {
		rows[n++] = (struct gw_r_eng_opaque){.name = text_of(e->opaques[i].name), .reason = e->opaques[i].reason};
		bytes += strlen(e->opaques[i].name) + 16;
		if (n < 256 && bytes < ROWS_BYTES && i + 1 < e->opaque_n)
			continue;
		m.u.eng_opaques.rows.v = rows;
		m.u.eng_opaques.rows.n = n;
		err = send_msg(e, &m, NULL, 0);
		n = bytes = 0;
	}
	return err;
}

static int declare(struct godwit_engine *e)
{
	struct gw_msg m = {.type = GW_MSG_eng_attach};
	int err = send_hello(e);

	if (!err)
		err = send_segments(e);
	if (!err)
		err = send_tensors(e);
	if (!err)
		err = send_maps(e);
	if (!err)
		err = send_opaques(e);
	m.u.eng_attach = (struct gw_m_eng_attach){.segments = (uint32_t)e->segment_n, .tensors = (uint32_t)e->tensor_n,
						  .maps = (uint32_t)e->map_n, .opaques = (uint32_t)e->opaque_n};
	return err ? err : send_msg(e, &m, NULL, 0);
}

/* --- the connection --- */

static void hang_up(struct godwit_engine *e)
{
	if (e->sock >= 0)
		close(e->sock); /* which also ends its watch */
	e->sock = -1;
}

static int lost(struct godwit_engine *e)
{
	struct gw_client_event ev = {.kind = GW_CE_LOST};

	if (e->sock < 0)
		return 0;
	hang_up(e);
	push(e, GODWIT_LOST);
	return gw_lib_link_step(e, &ev);
}

int gw_lib_link_open(struct godwit_engine *e)
{
	int err = gw_seq_connect(e->path, &e->sock, NULL);

	if (err) {
		e->sock = -1;
		return err;
	}
	err = watch(e, e->sock);
	if (!err)
		err = declare(e);
	/* A daemon that refuses closes before all is read; its answer is there to be received all the same. */
	if (err && err != GW_ECLOSED)
		hang_up(e);
	return err == GW_ECLOSED ? 0 : err;
}

void gw_lib_link_fini(struct godwit_engine *e)
{
	if (e->sock >= 0) {
		struct gw_msg m = {.type = GW_MSG_eng_bye};

		m.u.eng_bye.text = text_of("the engine ends");
		(void)send_msg(e, &m, NULL, 0);
	}
	hang_up(e);
	for (int i = 0; i < GW_LIB_PAIRS; i++) {
		gw_shm_unmap(&e->pairs[i].list);
		gw_shm_unmap(&e->pairs[i].page);
	}
	close(e->epoll);
	close(e->timer);
	close(e->eventfd);
	gw_arena_reset(&e->arena);
}

/* --- in --- */

/* Maps what came with eng_stage; a pair that cannot be mapped is left out, and the machine says so to the daemon. */
static void map_pair(struct godwit_engine *e, const int *fds, size_t n, struct gw_client_event *ev)
{
	struct gw_lib_pair *p = NULL;
	uint64_t list_n, page_n;

	for (int i = 0; i < GW_LIB_PAIRS && !p; i++)
		if (!e->pairs[i].list.p)
			p = &e->pairs[i];
	if (!p || n != 2 || gw_memfd_check(fds[0], GW_SEAL_SIZE, SIZE_MAX / 2, &list_n, NULL) ||
	    gw_memfd_check(fds[1], GW_SEAL_SIZE, SIZE_MAX / 2, &page_n, NULL) || list_n == 0 || page_n == 0)
		return;
	if (gw_shm_map(fds[0], list_n, 1, &p->list))
		return;
	if (gw_shm_map(fds[1], page_n, 1, &p->page)) {
		gw_shm_unmap(&p->list);
		memset(&p->list, 0, sizeof p->list);
		return;
	}
	ev->list = p->list.p;
	ev->list_n = list_n;
	ev->page = p->page.p;
	ev->page_n = page_n;
}

static void unmap_pair(struct godwit_engine *e, const void *list)
{
	for (int i = 0; i < GW_LIB_PAIRS; i++)
		if (e->pairs[i].list.p && e->pairs[i].list.p == list) {
			gw_shm_unmap(&e->pairs[i].list);
			gw_shm_unmap(&e->pairs[i].page);
			memset(&e->pairs[i], 0, sizeof e->pairs[i]);
		}
}

static void push_refused(struct godwit_engine *e, const struct gw_m_eng_refused *m)
{
	struct godwit_event *ev = push(e, GODWIT_REFUSED);

	ev->err = m->err < 0 && m->err > -1000 ? (int)m->err : GW_EACCESS;
	if (!gw_err_retryable(ev->err))
		e->retry_ns = e->retry_ns < refused_ns ? refused_ns :
			      e->retry_ns < refused_max_ns / 2 ? e->retry_ns * 2 : refused_max_ns;
	if (m->element == UINT64_MAX)
		snprintf(ev->text, sizeof ev->text, "%.*s", (int)m->text.n, m->text.p);
	else
		snprintf(ev->text, sizeof ev->text, "%.*s; first at element %llu: expected bits 0x%llx, found 0x%llx",
			 (int)m->text.n, m->text.p, (unsigned long long)m->element, (unsigned long long)m->expected,
			 (unsigned long long)m->found);
}

static int do_action(struct godwit_engine *e, const struct gw_client_action *a, const struct gw_msg *in, int *close_it)
{
	struct godwit_event *ev;

	switch (a->kind) {
	case GW_CA_SEND:
		if (send_msg(e, &a->msg, NULL, 0))
			*close_it = 1;
		break;
	case GW_CA_DROP_LIST:
		unmap_pair(e, a->list);
		break;
	case GW_CA_ATTACHED:
		e->retry_ns = retry_ns;
		ev = push(e, GODWIT_ATTACHED);
		ev->version = a->version;
		memcpy(ev->run, gw_client_run(e->client), sizeof ev->run);
		break;
	case GW_CA_REFUSED:
		push_refused(e, &in->u.eng_refused);
		break;
	case GW_CA_PAUSE:
		push(e, GODWIT_PAUSE)->version = a->version;
		break;
	case GW_CA_RESUME:
		ev = push(e, GODWIT_RESUME);
		ev->version = a->version;
		memcpy(ev->run, gw_client_run(e->client), sizeof ev->run);
		break;
	case GW_CA_POISONED:
		memcpy(push(e, GODWIT_POISONED)->text, a->text, sizeof a->text);
		break;
	case GW_CA_CLOSE:
		*close_it = 1;
		break;
	}
	return 0;
}

int gw_lib_link_step(struct godwit_engine *e, struct gw_client_event *ev)
{
	struct gw_client_actions out;
	int err = 0, close_it = 0;

	ev->now_ns = gw_clock_mono_ns();
	gw_client_step(e->client, ev, &out);
	for (size_t i = 0; i < out.n && !err; i++)
		err = do_action(e, &out.v[i], ev->msg, &close_it);
	set_timer(e);
	if (!err && close_it)
		err = lost(e);
	return err;
}

static int receive(struct godwit_engine *e)
{
	static const size_t fds_max = 2;
	uint8_t *frame = malloc(FRAME_MAX);
	int err = frame ? 0 : GW_ENOMEM;

	while (!err && e->sock >= 0) {
		struct gw_client_event ev = {.kind = GW_CE_MSG};
		struct gw_msg m;
		int fds[2];
		size_t n, nfds = 0;

		err = gw_seq_recv(e->sock, frame, FRAME_MAX, &n, fds, fds_max, &nfds);
		if (err == GW_EAGAIN) {
			err = 0;
			break;
		}
		if (!err)
			err = gw_msg_decode(frame, n, &e->arena, &m);
		if (err == GW_EUNKNOWN) {
			err = 0; /* a newer daemon may say more */
		} else if (err) {
			err = lost(e);
		} else {
			if (m.type == GW_MSG_eng_stage)
				map_pair(e, fds, nfds, &ev);
			ev.msg = &m;
			err = gw_lib_link_step(e, &ev);
		}
		gw_seq_close_fds(fds, nfds);
		gw_arena_reset(&e->arena);
	}
	free(frame);
	return err;
}

int gw_lib_link_work(struct godwit_engine *e)
{
	struct gw_client_event tick = {.kind = GW_CE_TICK};
	uint64_t n;
	int due = read(e->timer, &n, sizeof n) == sizeof n, err;

	if (e->sock < 0 && gw_client_state(e->client) != GW_CLIENT_SETTLING) {
		/* At once at first, then at the timer's pace. */
		if (due || e->timer_ns == 0)
			(void)gw_lib_link_open(e);
		set_timer(e);
	}
	err = receive(e);
	if (!err && due)
		err = gw_lib_link_step(e, &tick);
	return err;
}
