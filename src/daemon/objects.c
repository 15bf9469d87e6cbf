#include "daemon/objects.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/map.h"
#include "base/num.h"
#include "io/os/clock.h"

#define SYNC_EVERY_NS 250000000ull
#define RETRY_NS 20000000ull
#define SAY_AGAIN_NS 10000000000ull

/* One object of the store, from OBJECT_OPEN to OBJECT_DROP. */
struct entry {
	struct gw_digest id;
	struct gw_object *object; /* NULL until open */
	unsigned jobs;            /* on workers, and borrowed by gw_objects_get */
	uint32_t told;            /* verified pieces that the node knows of */
	int opening;              /* by a worker */
	int dropped;              /* close and forget when the last job is done */
	int remove;               /* … and from the disk, once it is not being opened any more */
};

/* A piece on its way: the blocks that one host sent. */
struct gather {
	struct gather *next, *prev; /* in order of the last block */
	struct entry *e;
	uint32_t piece;
	gw_host host;
	uint64_t size;
	uint8_t *bytes;
};

struct gw_objects {
	struct gw_objects_config cfg;
	struct gw_map entries;   /* id -> entry */
	struct gw_map gathers;   /* key_of -> gather */
	struct gather oldest;    /* head of a ring */
	uint64_t gathered_bytes;
	struct job *waiting, **waiting_last; /* to be tried again when the timer fires */
	struct gw_timer wait_timer, sync_timer;
	int syncing;
	uint64_t sync_said_ns;    /* when its failure was last logged */
};

enum what { OPEN, CHECK, SEND, DROP, SYNC };

struct job {
	struct gw_job job;
	struct job *next; /* that waits */
	struct gw_objects *o;
	struct entry *e;
	enum what what;
	int read;         /* SEND: the block is in `bytes` and waits for room on the link */
	gw_host host;
	uint32_t piece;
	uint64_t offset;
	uint8_t *bytes; /* the signed manifest, the piece, or the block; owned */
	size_t n;
	struct gw_object *opened;
	struct gw_digest failed;
	struct gw_diag why;
};

/* --- events out --- */

static void put_event(struct gw_objects *o, struct gw_event *ev, const struct entry *e)
{
	ev->object = e->id;
	o->cfg.sink.put(o->cfg.sink.ctx, ev);
}

static void put_failed(struct gw_objects *o, const struct entry *e, int err)
{
	struct gw_event ev = {.kind = GW_EV_OBJECT_FAILED, .err = err};

	put_event(o, &ev, e);
}

static void put_piece(struct gw_objects *o, const struct job *j, enum gw_event_kind kind)
{
	struct gw_event ev = {.kind = kind, .piece = j->piece, .host = j->host};

	put_event(o, &ev, j->e);
}

static void put_open(struct gw_objects *o, struct entry *e)
{
	uint32_t pieces = gw_object_pieces(e->object);
	uint8_t *have = calloc(1, (size_t)pieces / 8 + 1);
	struct gw_event ev = {.kind = GW_EV_OBJECT_OPEN, .piece_count = pieces, .have = have};

	if (!have) {
		put_failed(o, e, GW_ENOMEM);
		return;
	}
	gw_object_have(e->object, have);
	e->told = 0;
	for (uint32_t i = 0; i < pieces; i++)
		e->told += have[i / 8] >> (i % 8) & 1;
	put_event(o, &ev, e);
	free(have);
}

/* err: it could not be read or sent. */
static void put_sent(struct gw_objects *o, const struct job *j, int err)
{
	struct gw_event ev = {.kind = GW_EV_BLOCK_SENT, .host = j->host, .piece = j->piece, .bytes = j->n, .err = err};

	put_event(o, &ev, j->e);
}

/* What the end of the process interrupted is no news. */
static void log_failure(const struct entry *e, const char *event, const struct gw_diag *why, int err)
{
	char id[65];

	if (err != GW_EINTR)
		GW_LOG(GW_LOG_WARN, event, "object", gw_hex(id, e->id.b, sizeof e->id.b), "error",
	       why->text[0] ? why->text : gw_err_text(err), NULL);
}

/* --- entries --- */

static struct entry *find(const struct gw_objects *o, const struct gw_digest *id)
{
	struct entry *e = gw_map_get(&o->entries, id->b, sizeof id->b);

	return e && !e->dropped ? e : NULL;
}

/* An entry that was dropped goes when nothing uses it any more. */
static void release(struct gw_objects *o, struct entry *e)
{
	if (e->jobs || !e->dropped)
		return;
	if (e->object)
		gw_object_close(e->object);
	(void)gw_map_del(&o->entries, e->id.b, sizeof e->id.b);
	free(e);
}

/* --- jobs --- */

static int work_open(struct job *j)
{
	struct gw_manifest m;
	int err = gw_root_open_manifest(j->o->cfg.root, j->bytes, j->n, &m, &j->why);

	return err ? err : gw_object_open(&j->opened, j->o->cfg.store, &m, j->bytes, j->n, &j->why);
}

static int work_check(struct job *j)
{
	int err = gw_object_write(j->e->object, j->piece, 0, j->bytes, j->n);

	return err ? err : gw_object_check(j->e->object, j->piece, gw_clock_mono_ns());
}

static int work(struct gw_job *job, unsigned worker)
{
	struct job *j = (struct job *)(void *)job;

	(void)worker;
	switch (j->what) {
	case OPEN:
		return work_open(j);
	case CHECK:
		return work_check(j);
	case SEND:
		return gw_object_read(j->e->object, j->piece, j->offset, j->bytes, j->n);
	case DROP:
		return gw_store_drop(j->o->cfg.store, &j->e->id, &j->why);
	case SYNC:
		return gw_store_sync(j->o->cfg.store, &j->failed, &j->why);
	}
	return GW_EINVAL;
}

static void submit(struct gw_objects *o, struct job *j);
static void done(struct gw_job *job, int err);

static void try_again(void *ctx)
{
	struct gw_objects *o = ctx;
	struct job *j = o->waiting, *next;

	o->waiting = NULL;
	o->waiting_last = &o->waiting;
	for (; j; j = next) {
		next = j->next;
		if (j->read)
			done(&j->job, 0);
		else
			submit(o, j);
	}
}

/* The job comes again a little later. 0, or an error where it cannot. */
static int wait_a_little(struct gw_objects *o, struct job *j)
{
	int err = o->waiting ? 0 : gw_timer_set(o->cfg.loop, &o->wait_timer, gw_loop_now_ns(o->cfg.loop) + RETRY_NS);

	if (err)
		return err;
	j->next = NULL;
	*o->waiting_last = j;
	o->waiting_last = &j->next;
	return 0;
}

static struct job *job_new(struct gw_objects *o, struct entry *e, enum what what);

/* Takes it off the disk, unless it is being opened: a worker that is about to make it would make it anew. */
static void remove_from_disk(struct gw_objects *o, struct entry *e)
{
	struct job *j = e->opening ? NULL : job_new(o, e, DROP);

	e->remove = e->opening;
	if (j)
		submit(o, j);
	else if (!e->opening)
		log_failure(e, "object cannot be removed", &(struct gw_diag){""}, GW_ENOMEM);
}

static void done_open(struct gw_objects *o, struct job *j, int err)
{
	if (!err && !j->e->object)
		j->e->object = j->opened;
	else if (j->opened)
		gw_object_close(j->opened);
	j->e->opening = 0;
	if (j->e->remove)
		remove_from_disk(o, j->e);
	if (j->e->dropped)
		return;
	if (err) {
		log_failure(j->e, "object cannot be opened", &j->why, err);
		j->e->dropped = 1; /* a later OBJECT_OPEN starts anew */
		put_failed(o, j->e, err);
		return;
	}
	put_open(o, j->e);
}

static void done_check(struct gw_objects *o, struct job *j, int err)
{
	if (j->e->dropped)
		return;
	if (!err || err == GW_EEXIST) {
		j->e->told++;
		put_piece(o, j, GW_EV_PIECE_OK);
	} else if (err == GW_EDIGEST) {
		put_piece(o, j, GW_EV_PIECE_BAD);
	} else {
		log_failure(j->e, "a piece cannot be kept", &j->why, err);
		put_failed(o, j->e, err);
	}
}

/* 1 where the link's queue is full: the block is kept and offered again. */
static int done_send(struct gw_objects *o, struct job *j, int err)
{
	if (err && err != GW_ENOENT)
		log_failure(j->e, "a piece cannot be read", &j->why, err);
	if (!err && j->e->dropped)
		err = GW_ENOENT;
	if (!err) {
		j->read = 1;
		err = o->cfg.send(o->cfg.send_ctx, j->host, &j->e->id, j->piece, j->offset, j->bytes, j->n);
	}
	if (err == GW_EAGAIN && !wait_a_little(o, j))
		return 1;
	put_sent(o, j, err);
	return 0;
}

/* After a sync that failed the store has forgotten pieces, of any object. Whose are fewer than the node was told is
 * taken from the swarm, which asks after a while what is left. */
static void done_sync(struct gw_objects *o, struct job *j, int err)
{
	struct entry failed = {.id = j->failed};
	uint64_t now = gw_loop_now_ns(o->cfg.loop);
	const struct gw_map_entry *m;
	size_t at = 0;

	o->syncing = 0;
	if (!err)
		return;
	if (!o->sync_said_ns || now - o->sync_said_ns >= SAY_AGAIN_NS) { /* a full disk fails four times a second */
		o->sync_said_ns = now;
		log_failure(&failed, "pieces cannot be made durable", &j->why, err);
	}
	while ((m = gw_map_next(&o->entries, &at)) != NULL) {
		struct entry *e = m->value;

		if (!e->object || e->dropped || gw_object_have_count(e->object) >= e->told)
			continue;
		e->told = gw_object_have_count(e->object);
		put_failed(o, e, err);
		at = 0; /* what came of it may have changed the table */
	}
}

static void finish(struct job *j)
{
	free(j->bytes);
	free(j);
}

static void done(struct gw_job *job, int err)
{
	struct job *j = (struct job *)(void *)job;
	struct gw_objects *o = j->o;

	/* The store asks to come again: its digest is being verified, or a block is being written, right now. */
	if (err == GW_EAGAIN && j->e && !j->e->dropped && !wait_a_little(o, j))
		return;
	switch (j->what) {
	case OPEN:
		done_open(o, j, err);
		break;
	case CHECK:
		done_check(o, j, err);
		break;
	case SEND:
		if (done_send(o, j, err))
			return;
		break;
	case DROP:
		if (err && err != GW_ENOENT)
			log_failure(j->e, "object cannot be removed", &j->why, err);
		break;
	case SYNC:
		done_sync(o, j, err);
		break;
	}
	if (j->e) {
		j->e->jobs--;
		release(o, j->e);
	}
	finish(j);
}

/* A full queue is no error: the job comes again a little later. */
static void submit(struct gw_objects *o, struct job *j)
{
	int err = gw_workers_submit(o->cfg.workers, &j->job);

	if (err == GW_EAGAIN && !wait_a_little(o, j))
		return;
	if (err)
		done(&j->job, err == GW_EAGAIN ? GW_ENOMEM : err);
}

static struct job *job_new(struct gw_objects *o, struct entry *e, enum what what)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		return NULL;
	j->job.work = work;
	j->job.done = done;
	j->o = o;
	j->e = e;
	j->what = what;
	if (e)
		e->jobs++;
	return j;
}

static void job_cancel(struct job *j)
{
	if (j->e)
		j->e->jobs--;
	finish(j);
}

/* --- gathering blocks --- */

enum { KEY_BYTES = 40 };

static void key_of(uint8_t key[KEY_BYTES], const struct gw_digest *id, uint32_t piece, gw_host host)
{
	memcpy(key, id->b, 32);
	gw_put_le32(key + 32, piece);
	gw_put_le32(key + 36, host);
}

static void gather_unlink(struct gather *g)
{
	g->next->prev = g->prev;
	g->prev->next = g->next;
}

static void gather_newest(struct gw_objects *o, struct gather *g)
{
	g->prev = o->oldest.prev;
	g->next = &o->oldest;
	g->prev->next = g;
	o->oldest.prev = g;
}

/* Out of the table; the bytes are the caller's. */
static uint8_t *gather_end(struct gw_objects *o, struct gather *g)
{
	uint8_t key[KEY_BYTES], *bytes = g->bytes;

	key_of(key, &g->e->id, g->piece, g->host);
	(void)gw_map_del(&o->gathers, key, sizeof key);
	gather_unlink(g);
	o->gathered_bytes -= g->size;
	g->e->jobs--;
	release(o, g->e);
	free(g);
	return bytes;
}

static struct gather *gather_new(struct gw_objects *o, struct entry *e, uint32_t piece, gw_host host)
{
	uint64_t size = gw_manifest_piece_size(gw_object_manifest(e->object), piece);
	struct gather *g = calloc(1, sizeof *g);
	uint8_t key[KEY_BYTES];

	while (o->gathered_bytes + size > o->cfg.gather_max_bytes && o->oldest.next != &o->oldest)
		free(gather_end(o, o->oldest.next));
	key_of(key, &e->id, piece, host);
	if (g)
		g->bytes = malloc(size ? size : 1);
	if (!g || !g->bytes || gw_map_put(&o->gathers, key, sizeof key, g, NULL)) {
		if (g)
			free(g->bytes);
		free(g);
		return NULL;
	}
	g->e = e;
	g->piece = piece;
	g->host = host;
	g->size = size;
	e->jobs++;
	o->gathered_bytes += size;
	gather_newest(o, g);
	return g;
}

static struct gather *gather_find(const struct gw_objects *o, const struct gw_action *act)
{
	uint8_t key[KEY_BYTES];

	key_of(key, &act->object, act->piece, act->host);
	return gw_map_get(&o->gathers, key, sizeof key);
}

static void block_store(struct gw_objects *o, const struct gw_action *act)
{
	struct entry *e = find(o, &act->object);
	struct gather *g = gather_find(o, act);

	if (!e || !e->object || act->piece >= gw_object_pieces(e->object))
		return;
	if (!g)
		g = gather_new(o, e, act->piece, act->host);
	if (!g) {
		put_failed(o, e, GW_ENOMEM);
		return;
	}
	if (act->offset > g->size || act->data.n > g->size - act->offset)
		return; /* the check will find the piece wrong, and its sender named */
	memcpy(g->bytes + act->offset, act->data.p, act->data.n);
	gather_unlink(g);
	gather_newest(o, g);
}

static void piece_check(struct gw_objects *o, const struct gw_action *act)
{
	struct gather *g = gather_find(o, act);
	struct entry *e = find(o, &act->object);
	struct job *j;

	if (!e || !e->object)
		return;
	if (!g) { /* let go for lack of memory: the piece is asked for again */
		put_failed(o, e, GW_ENOMEM);
		return;
	}
	j = job_new(o, e, CHECK);
	if (!j) {
		put_failed(o, e, GW_ENOMEM);
		return;
	}
	j->host = act->host;
	j->piece = act->piece;
	j->n = g->size;
	j->bytes = gather_end(o, g);
	submit(o, j);
}

/* --- the other actions --- */

static void object_open(struct gw_objects *o, const struct gw_action *act)
{
	struct entry *e = find(o, &act->object), *gone;
	struct job *j;

	if (e && e->object) {
		put_open(o, e);
		return;
	}
	if (e)
		return; /* under way */
	gone = gw_map_get(&o->entries, act->object.b, sizeof act->object.b);
	e = gone ? NULL : calloc(1, sizeof *e);
	if (gone || !e || gw_map_put(&o->entries, act->object.b, sizeof act->object.b, e, NULL)) {
		struct entry say = {.id = act->object};

		free(e);
		put_failed(o, &say, gone ? GW_EAGAIN : GW_ENOMEM);
		return;
	}
	e->id = act->object;
	j = job_new(o, e, OPEN);
	if (j)
		j->bytes = malloc(act->data.n ? act->data.n : 1);
	if (!j || !j->bytes) {
		if (j)
			job_cancel(j);
		e->dropped = 1;
		put_failed(o, e, GW_ENOMEM);
		release(o, e);
		return;
	}
	memcpy(j->bytes, act->data.p, act->data.n);
	j->n = act->data.n;
	e->opening = 1;
	submit(o, j);
}

/* The entry of what is to be removed, held by one more job: there may be none yet, for what lies on the disk since an
 * earlier start. NULL where it is being removed already, or without memory. */
static struct entry *entry_to_drop(struct gw_objects *o, const struct gw_digest *id)
{
	struct entry *e = gw_map_get(&o->entries, id->b, sizeof id->b);

	if (e && e->dropped)
		return NULL;
	if (!e) {
		e = calloc(1, sizeof *e);
		if (!e || gw_map_put(&o->entries, id->b, sizeof id->b, e, NULL)) {
			free(e);
			return NULL;
		}
		e->id = *id;
	}
	e->jobs++;
	e->dropped = 1;
	return e;
}

static void object_drop(struct gw_objects *o, const struct gw_action *act)
{
	struct entry *e = entry_to_drop(o, &act->object);

	if (!e)
		return;
	for (struct gather *g = o->oldest.next, *next; g != &o->oldest; g = next) {
		next = g->next;
		if (g->e == e)
			free(gather_end(o, g));
	}
	remove_from_disk(o, e);
	e->jobs--;
	release(o, e);
}

static void block_send(struct gw_objects *o, const struct gw_action *act)
{
	struct entry *e = find(o, &act->object);
	struct job *j = e && e->object && act->bytes <= GW_BLOCK_MAX ? job_new(o, e, SEND) : NULL;

	if (j)
		j->bytes = malloc(act->bytes ? act->bytes : 1);
	if (!j || !j->bytes) {
		struct entry say = {.id = act->object};
		struct job lost = {.e = &say, .host = act->host, .piece = act->piece, .n = act->bytes};

		if (j)
			job_cancel(j);
		put_sent(o, &lost, GW_EAGAIN);
		return;
	}
	j->host = act->host;
	j->piece = act->piece;
	j->offset = act->offset;
	j->n = act->bytes;
	submit(o, j);
}

void gw_objects_act(struct gw_objects *o, const struct gw_action *act)
{
	switch (act->kind) {
	case GW_ACT_OBJECT_OPEN:
		object_open(o, act);
		break;
	case GW_ACT_OBJECT_DROP:
		object_drop(o, act);
		break;
	case GW_ACT_BLOCK_STORE:
		block_store(o, act);
		break;
	case GW_ACT_PIECE_CHECK:
		piece_check(o, act);
		break;
	case GW_ACT_BLOCK_SEND:
		block_send(o, act);
		break;
	default:
		assert(0 && "not an action on objects");
	}
}

struct gw_object *gw_objects_get(struct gw_objects *o, const struct gw_digest *id)
{
	struct entry *e = find(o, id);

	if (!e || !e->object)
		return NULL;
	e->jobs++;
	return e->object;
}

void gw_objects_put(struct gw_objects *o, struct gw_object *object)
{
	struct entry *e = gw_map_get(&o->entries, gw_object_manifest(object)->id.b, 32);

	assert(e && e->object == object && e->jobs);
	e->jobs--;
	release(o, e);
}

/* --- life --- */

static void sync_tick(void *ctx)
{
	struct gw_objects *o = ctx;
	uint64_t now = gw_loop_now_ns(o->cfg.loop);
	struct job *j;

	if (!o->syncing && gw_store_sync_due(o->cfg.store, now) && (j = job_new(o, NULL, SYNC))) {
		o->syncing = 1;
		submit(o, j);
	}
	(void)gw_timer_set(o->cfg.loop, &o->sync_timer, now + SYNC_EVERY_NS);
}

int gw_objects_new(struct gw_objects **out, const struct gw_objects_config *cfg)
{
	struct gw_objects *o = calloc(1, sizeof *o);

	if (!o)
		return GW_ENOMEM;
	o->cfg = *cfg;
	gw_map_init(&o->entries, gw_clock_mono_ns());
	gw_map_init(&o->gathers, gw_clock_mono_ns());
	o->oldest.next = o->oldest.prev = &o->oldest;
	o->waiting_last = &o->waiting;
	o->wait_timer.fire = try_again;
	o->wait_timer.ctx = o;
	o->sync_timer.fire = sync_tick;
	o->sync_timer.ctx = o;
	sync_tick(o);
	*out = o;
	return 0;
}

void gw_objects_free(struct gw_objects *o)
{
	const struct gw_map_entry *m;
	struct job *j;
	size_t at = 0;

	if (!o)
		return;
	gw_timer_stop(o->cfg.loop, &o->sync_timer);
	gw_timer_stop(o->cfg.loop, &o->wait_timer);
	while ((j = o->waiting) != NULL) {
		o->waiting = j->next;
		finish(j);
	}
	while (o->oldest.next != &o->oldest)
		free(gather_end(o, o->oldest.next));
	while ((m = gw_map_next(&o->entries, &at)) != NULL) {
		struct entry *e = m->value;

		if (e->object)
			gw_object_close(e->object);
		free(e);
	}
	gw_map_free(&o->entries, NULL);
	gw_map_free(&o->gathers, NULL);
	free(o);
}
