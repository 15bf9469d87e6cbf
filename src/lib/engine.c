#include <assert.h>
#include <config.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/num.h"
#include "engine/map.h"
#include "engine/plan.h"
#include "io/os/clock.h"
#include "lib/object.h"

const char *godwit_strerror(int err)
{
	return gw_err_text(err);
}

const char *godwit_library_version(void)
{
	return PACKAGE_VERSION;
}

static void copy_text(char out[64], const char *text)
{
	strncpy(out, text ? text : "", 63);
	out[63] = 0;
}

static int is_zero(const uint8_t *p, size_t n)
{
	while (n-- > 0)
		if (*p++)
			return 0;
	return 1;
}

static int take_info(struct godwit_engine *e, const struct godwit_engine_info *info)
{
	if (info->size < sizeof *info)
		return GW_EVERSION;
	copy_text(e->engine, info->engine);
	copy_text(e->engine_version, info->engine_version);
	copy_text(e->quantisation, info->quantisation);
	copy_text(e->device, info->device ? info->device : "cpu");
	e->rank = info->rank;
	e->ranks = info->ranks ? info->ranks : 1;
	if (e->rank >= e->ranks || e->ranks > GW_PLAN_RANKS_MAX)
		return GW_EINVAL;
	e->in_process = info->in_process != 0;
	memcpy(e->instance, info->instance, sizeof e->instance);
	memcpy(e->run, info->run, sizeof e->run);
	e->version = info->version;
	if (!is_zero(e->instance, sizeof e->instance))
		return 0;
	if (e->ranks > 1) /* ranks that do not name their engine cannot be told from another engine's */
		return GW_EINVAL;
	return getrandom(e->instance, sizeof e->instance, 0) == sizeof e->instance ? 0 : GW_EIO;
}

int godwit_engine_new(struct godwit_engine **out, const char *socket_path, const struct godwit_engine_info *info)
{
	struct godwit_engine *e;
	int err = GW_ENOMEM;

	if (!out || !socket_path || !info)
		return GW_EINVAL;
	e = calloc(1, sizeof *e);
	if (!e)
		return GW_ENOMEM;
	e->magic = GW_LIB_MAGIC;
	e->path = strdup(socket_path);
	if (!e->path)
		goto err0;
	err = take_info(e, info);
	if (!err)
		err = gw_lib_link_init(e);
	if (err)
		goto err1;
	*out = e;
	return 0;
err1:
	free(e->path);
err0:
	free(e);
	return err;
}

void godwit_engine_free(struct godwit_engine *e)
{
	if (!e)
		return;
	assert(e->magic == GW_LIB_MAGIC);
	gw_lib_link_fini(e);
	gw_client_free(e->client);
	for (size_t i = 0; i < e->segment_n; i++) {
		gw_shm_unmap(&e->segments[i].shm);
		close(e->segments[i].fd);
	}
	for (size_t i = 0; i < e->tensor_n; i++)
		free(e->tensors[i].name);
	for (size_t i = 0; i < e->opaque_n; i++)
		free(e->opaques[i].name);
	free(e->segments);
	free(e->mem);
	free(e->tensors);
	free(e->maps);
	free(e->opaques);
	free(e->path);
	e->magic = 0;
	free(e);
}

/* --- declaring --- */

/* Room for one more entry while things may still be added. */
static int room(struct godwit_engine *e, void **v, size_t n, size_t *cap, size_t size, size_t limit)
{
	size_t more = *cap ? *cap * 2 : 16;
	void *p;

	if (e->client)
		return gw_diag_set(&e->why, GW_ESTATE, "nothing can be added after attach");
	if (n >= limit)
		return gw_diag_set(&e->why, GW_ELIMIT, "more than %zu of a kind", limit);
	if (n < *cap)
		return 0;
	p = reallocarray(*v, more, size);
	if (!p)
		return gw_diag_set(&e->why, GW_ENOMEM, "out of memory");
	*v = p;
	*cap = more;
	return 0;
}

static int add_mapped(struct godwit_engine *e, int fd, uint64_t bytes, void **memory, uint32_t *segment)
{
	struct gw_lib_segment s = {.fd = fd};
	int err = gw_shm_map(fd, bytes, 1, &s.shm);

	if (err)
		return gw_diag_set(&e->why, err, "segment: %s", gw_err_text(err));
	e->segments[e->segment_n] = s;
	e->mem[e->segment_n] = (struct gw_dev_mem){.addr = (uintptr_t)s.shm.p, .bytes = bytes};
	*memory = s.shm.p;
	*segment = (uint32_t)e->segment_n++;
	return 0;
}

static int segment_room(struct godwit_engine *e, uint64_t bytes)
{
	int err;

	e->why.text[0] = 0;
	if (bytes == 0 || bytes > SIZE_MAX / 2)
		return gw_diag_set(&e->why, GW_EINVAL, "a segment of %llu bytes", (unsigned long long)bytes);
	err = room(e, (void **)&e->segments, e->segment_n, &e->segment_cap, sizeof *e->segments, GW_PLAN_SEGMENTS_MAX);
	if (!err)
		err = room(e, (void **)&e->mem, e->segment_n, &e->mem_cap, sizeof *e->mem, GW_PLAN_SEGMENTS_MAX);
	return err;
}

int godwit_engine_add_segment(struct godwit_engine *e, uint64_t bytes, void **memory, uint32_t *segment)
{
	int fd, err = segment_room(e, bytes);

	if (err)
		return err;
	err = gw_memfd_new("godwit-weights", &fd);
	if (err)
		return gw_diag_set(&e->why, err, "segment: %s", gw_err_text(err));
	err = gw_memfd_resize(fd, bytes);
	if (!err)
		err = gw_memfd_seal(fd, GW_SEAL_SIZE);
	if (!err)
		err = add_mapped(e, fd, bytes, memory, segment);
	if (err) {
		close(fd);
		return gw_diag_set(&e->why, err, "segment of %llu bytes: %s", (unsigned long long)bytes, gw_err_text(err));
	}
	return 0;
}

int godwit_engine_take_segment(struct godwit_engine *e, int fd, uint64_t bytes, void **memory, uint32_t *segment)
{
	uint64_t have;
	int copy, err = segment_room(e, bytes);

	if (err)
		return err;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return gw_diag_set(&e->why, gw_err_from_errno(errno), "segment: descriptor %d: %s", fd, strerror(errno));
	/* The seals may be there already, and forbid further ones. */
	if (gw_memfd_check(copy, GW_SEAL_SIZE, UINT64_MAX, &have, NULL)) {
		err = gw_memfd_seal(copy, GW_SEAL_SIZE);
		if (!err)
			err = gw_memfd_check(copy, GW_SEAL_SIZE, UINT64_MAX, &have, &e->why);
	}
	if (!err && have < bytes)
		err = gw_diag_set(&e->why, GW_ETRUNC, "segment: the memfd has %llu bytes, not %llu", (unsigned long long)have,
				  (unsigned long long)bytes);
	if (!err)
		err = add_mapped(e, copy, bytes, memory, segment);
	if (err) {
		close(copy);
		return gw_diag_set(&e->why, err, "segment: descriptor %d is no memfd that can be sealed: %s", fd,
				   gw_err_text(err));
	}
	return 0;
}

int godwit_engine_add_tensor(struct godwit_engine *e, const char *name, const char *dtype, unsigned dims,
			     const uint64_t *shape, uint32_t *tensor)
{
	struct gw_lib_tensor t = {.dims = dims};
	enum gw_dtype dt = gw_dtype_parse(dtype, strlen(dtype));
	int err;

	e->why.text[0] = 0;
	err = room(e, (void **)&e->tensors, e->tensor_n, &e->tensor_cap, sizeof t, GW_PLAN_TENSORS_MAX);
	if (err)
		return err;
	if (!name[0] || strlen(name) > GW_TABLE_NAME_MAX || dims > GW_TABLE_DIMS_MAX)
		return gw_diag_set(&e->why, GW_EINVAL, "tensor %s: its name is empty or too long, or it has over %d dimensions",
				   name, GW_TABLE_DIMS_MAX);
	t.dtype = (uint16_t)dt;
	t.width = gw_dtype_width(dt);
	for (unsigned i = 0; i < dims; i++) {
		t.shape[i] = shape[i];
		gw_put_le64(t.shape_bytes + 8 * i, shape[i]);
	}
	err = t.width ? gw_table_elements(dt, dims, t.shape, &t.elements) : GW_EUNKNOWN;
	if (err)
		return gw_diag_set(&e->why, err, "tensor %s: dtype %s or its shape: %s", name, dtype, gw_err_text(err));
	t.name = strdup(name);
	if (!t.name)
		return gw_diag_set(&e->why, GW_ENOMEM, "out of memory");
	e->tensors[e->tensor_n] = t;
	*tensor = (uint32_t)e->tensor_n++;
	return 0;
}

int godwit_engine_add_window(struct godwit_engine *e, uint32_t tensor, const struct godwit_window *w)
{
	struct gw_dev_window check;
	int err;

	e->why.text[0] = 0;
	err = room(e, (void **)&e->maps, e->map_n, &e->map_cap, sizeof *e->maps, GW_PLAN_MAPS_MAX);
	if (err)
		return err;
	if (tensor >= e->tensor_n || w->segment >= e->segment_n)
		return gw_diag_set(&e->why, GW_EINVAL, "a window of tensor %u of %zu in segment %u of %zu", tensor, e->tensor_n,
				   w->segment, e->segment_n);
	check = (struct gw_dev_window){.segment = w->segment, .width = e->tensors[tensor].width, .base = w->base,
				       .row_pitch = w->row_pitch, .col_pitch = w->col_pitch, .rows = w->rows,
				       .cols = w->cols, .row0 = w->row0, .col0 = w->col0, .tensor_cols = w->tensor_cols};
	err = gw_window_check(&check, e->tensors[tensor].elements, e->mem[w->segment].bytes, &e->why);
	if (err)
		return gw_diag_wrap(&e->why, err, "tensor %s", e->tensors[tensor].name);
	e->maps[e->map_n++] = (struct gw_r_eng_map){.tensor = tensor, .segment = w->segment, .base = w->base,
						    .row_pitch = w->row_pitch, .col_pitch = w->col_pitch,
						    .rows = w->rows, .cols = w->cols, .row0 = w->row0, .col0 = w->col0,
						    .tensor_cols = w->tensor_cols};
	return 0;
}

int godwit_engine_add_whole(struct godwit_engine *e, uint32_t tensor, uint32_t segment, uint64_t base)
{
	struct godwit_window w = {.segment = segment, .base = base, .rows = 1};
	const struct gw_lib_tensor *t;

	e->why.text[0] = 0;
	if (tensor >= e->tensor_n)
		return gw_diag_set(&e->why, GW_EINVAL, "tensor %u of %zu", tensor, e->tensor_n);
	t = &e->tensors[tensor];
	if (t->elements == 0)
		return 0; /* nothing lies anywhere */
	/* Rows as the last axis has them, so that ranks which hold slices of it see the same rows. */
	w.tensor_cols = t->dims && gw_dtype_bits((enum gw_dtype)t->dtype) >= 8 ? t->shape[t->dims - 1] : t->elements;
	w.cols = w.tensor_cols;
	w.rows = t->elements / w.cols;
	w.col_pitch = t->width;
	w.row_pitch = w.cols * t->width;
	return godwit_engine_add_window(e, tensor, &w);
}

int godwit_engine_add_opaque(struct godwit_engine *e, const char *name, enum godwit_opaque why)
{
	struct gw_lib_opaque o = {.reason = (uint8_t)why};
	int err;

	e->why.text[0] = 0;
	err = room(e, (void **)&e->opaques, e->opaque_n, &e->opaque_cap, sizeof o, GW_PLAN_TENSORS_MAX);
	if (err)
		return err;
	if (!name[0] || strlen(name) > GW_TABLE_NAME_MAX || why < GODWIT_VALUES_CHANGE || why > GODWIT_UNUSED)
		return gw_diag_set(&e->why, GW_EINVAL, "opaque tensor %s: its name, or reason %d", name, (int)why);
	o.name = strdup(name);
	if (!o.name)
		return gw_diag_set(&e->why, GW_ENOMEM, "out of memory");
	e->opaques[e->opaque_n++] = o;
	return 0;
}

/* --- running --- */

static int make_client(struct godwit_engine *e)
{
	struct gw_client_config cfg = {.rank = e->rank, .ranks = e->ranks, .in_process = e->in_process,
				       .dev = gw_device_cpu(), .mem = e->mem, .segments = (uint32_t)e->segment_n,
				       .settle_ns = 30000000000, .doubt_ns = 60000000000};
	int err;

	if (e->client)
		return 0;
	err = gw_client_new(&e->client, &cfg);
	return err ? gw_diag_set(&e->why, err, "out of memory") : 0;
}

static int wait_ms(uint64_t until_ns)
{
	uint64_t now = gw_clock_mono_ns();

	if (until_ns == UINT64_MAX)
		return -1;
	return until_ns <= now ? 0 : (int)((until_ns - now + 999999) / 1000000);
}

static uint64_t deadline(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : gw_clock_mono_ns() + (uint64_t)timeout_ms * 1000000;
}

static void sleep_on(const struct godwit_engine *e, int ms)
{
	struct pollfd p = {.fd = e->epoll, .events = POLLIN};

	(void)poll(&p, 1, ms); /* woken early or by a signal: the caller looks again */
}

static int pop(struct godwit_engine *e, struct godwit_event *out)
{
	if (e->event_n == 0)
		return 0;
	*out = e->events[e->event_at];
	e->event_at = (e->event_at + 1) % GW_LIB_EVENTS;
	if (--e->event_n == 0) {
		uint64_t n;

		(void)!read(e->eventfd, &n, sizeof n);
	}
	return 1;
}

/* Weights of no known version are waited for, too: an anchor may come and make them one. */
static int while_attaching(struct godwit_engine *e, const struct godwit_event *ev)
{
	struct gw_client_event resumed = {.kind = GW_CE_RESUMED};

	if (ev->kind == GODWIT_ATTACHED || ev->kind == GODWIT_RESUME) {
		e->attached = 1;
		e->why.text[0] = 0;
		return ev->kind == GODWIT_RESUME ? gw_lib_link_step(e, &resumed) : 0;
	}
	if (ev->kind == GODWIT_REFUSED && !gw_err_retryable(ev->err)) {
		e->why.text[0] = 0;
		return gw_diag_set(&e->why, ev->err, "%s", ev->text);
	}
	if (ev->kind == GODWIT_POISONED)
		gw_diag_set(&e->why, GW_EPOISONED, "%s; waiting for an anchor", ev->text);
	return 0;
}

int godwit_engine_attach(struct godwit_engine *e, int timeout_ms)
{
	uint64_t until = deadline(timeout_ms);
	int err;

	e->why.text[0] = 0;
	if (e->attached)
		return gw_diag_set(&e->why, GW_ESTATE, "attached already");
	err = make_client(e);
	while (!err) {
		struct godwit_event ev;
		int ms = wait_ms(until);

		err = gw_lib_link_work(e);
		while (!err && pop(e, &ev)) {
			err = while_attaching(e, &ev);
			if (e->attached)
				return 0;
		}
		if (!err && ms == 0)
			return gw_diag_set(&e->why, GW_ETIMEOUT, "no daemon proved the weights in time (%s)", e->path);
		if (!err)
			sleep_on(e, ms < 0 || ms > 100 ? 100 : ms);
	}
	return err;
}

int godwit_engine_next(struct godwit_engine *e, struct godwit_event *event, int timeout_ms)
{
	uint64_t until = deadline(timeout_ms);

	e->why.text[0] = 0;
	if (!e->client)
		return gw_diag_set(&e->why, GW_ESTATE, "attach first");
	for (;;) {
		int err = gw_lib_link_work(e), ms;

		if (err)
			return err;
		if (pop(e, event))
			return 1;
		ms = wait_ms(until);
		if (ms == 0)
			return 0;
		sleep_on(e, ms);
	}
}

int godwit_engine_fd(const struct godwit_engine *e)
{
	return e->epoll;
}

static int tell(struct godwit_engine *e, enum gw_client_event_kind kind)
{
	struct gw_client_event ev = {.kind = kind};

	e->why.text[0] = 0;
	if (!e->client)
		return gw_diag_set(&e->why, GW_ESTATE, "attach first");
	return gw_lib_link_step(e, &ev);
}

int godwit_engine_paused(struct godwit_engine *e)
{
	return tell(e, GW_CE_PAUSED);
}

int godwit_engine_resumed(struct godwit_engine *e)
{
	return tell(e, GW_CE_RESUMED);
}

uint64_t godwit_engine_version(const struct godwit_engine *e)
{
	return e->client ? gw_client_version(e->client) : GODWIT_VERSION_UNKNOWN;
}

const char *godwit_engine_error(const struct godwit_engine *e)
{
	return e->why.text;
}
