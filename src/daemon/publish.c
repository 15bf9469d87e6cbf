#include "daemon/publish.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/log.h"
#include "base/map.h"
#include "base/publish.h"
#include "daemon/publish_job.h"
#include "io/os/clock.h"

#define NO_VERSION UINT64_MAX

/* The head's sequence is made durable in strides, ahead of use: a renewal every few seconds costs no sync. */
enum { SEQUENCE_STRIDE = 1024, RECORD_MAX = 4096 };

/* The one before stays listed until the newest is spread. */
enum { ANCHORS_KEPT = 2 };

static const char record_magic[8] = "GWPUBL1";

/* What is published, as in slot "publish-POLICY". */
struct record {
	uint8_t run[GW_RUN_BYTES];
	uint64_t newest;          /* NO_VERSION before the first */
	struct gw_digest manifest;
	uint64_t sequence_limit;  /* no head had a sequence at or above */
	uint32_t anchor_count;
	struct gw_head_entry anchors[GW_HEAD_LIST_MAX]; /* newest last */
};

struct gw_publisher {
	struct gw_publisher_config cfg;
	char *policy, *dir;
	char slot[GW_POLICY_NAME_MAX + 16];
	struct record rec;
	uint64_t sequence;        /* of the last head */
	struct gw_timer renew;
	struct task *task;        /* under way */
	int in_doubt;             /* the disk may hold another record than `rec`: */
	struct gw_head_entry doubtful; /* … with this as the newest */
};

/* A folder that nobody needs any more, on its way off the disk. */
struct removal {
	struct gw_job job;
	struct gw_fs *fs;
	char path[];
};

struct task {
	struct gw_job job;
	struct gw_publisher *p;
	struct gw_publish_job work;
	char *source, *base;
	void (*done)(void *ctx, const struct gw_publish_result *res);
	void *ctx;
};

/* --- the record --- */

static void record_write(const struct record *r, struct gw_wr *w)
{
	gw_wr_bytes(w, record_magic, sizeof record_magic);
	gw_wr_bytes(w, r->run, sizeof r->run);
	gw_wr_u64(w, r->newest);
	gw_wr_bytes(w, r->manifest.b, sizeof r->manifest.b);
	gw_wr_u64(w, r->sequence_limit);
	gw_wr_u32(w, r->anchor_count);
	for (uint32_t i = 0; i < r->anchor_count; i++) {
		gw_wr_bytes(w, r->anchors[i].manifest.b, 32);
		gw_wr_u64(w, r->anchors[i].to);
	}
}

static int record_read(struct record *r, const uint8_t *p, size_t n)
{
	uint8_t magic[sizeof record_magic];
	struct gw_rd rd;

	memset(r, 0, sizeof *r);
	gw_rd_init(&rd, p, n);
	gw_rd_copy(&rd, magic, sizeof magic);
	gw_rd_copy(&rd, r->run, sizeof r->run);
	r->newest = gw_rd_u64(&rd);
	gw_rd_copy(&rd, r->manifest.b, sizeof r->manifest.b);
	r->sequence_limit = gw_rd_u64(&rd);
	r->anchor_count = gw_rd_u32(&rd);
	if (memcmp(magic, record_magic, sizeof magic) || r->anchor_count > GW_HEAD_LIST_MAX)
		gw_rd_fail(&rd, GW_EMALFORMED);
	for (uint32_t i = 0; !rd.err && i < r->anchor_count; i++) {
		gw_rd_copy(&rd, r->anchors[i].manifest.b, 32);
		r->anchors[i].from = r->anchors[i].to = gw_rd_u64(&rd);
	}
	return gw_rd_end(&rd);
}

static int record_store(struct gw_publisher *p, const struct record *r, struct gw_diag *why)
{
	struct gw_wr w;
	int err;

	gw_wr_init(&w, RECORD_MAX);
	record_write(r, &w);
	err = w.err ? w.err : gw_store_put(p->cfg.store, p->slot, w.p, w.n, why);
	gw_wr_free(&w);
	return err;
}

static int record_load(struct gw_publisher *p, struct gw_diag *why)
{
	uint8_t *bytes = NULL;
	size_t n;
	int err = gw_store_get(p->cfg.store, p->slot, &bytes, &n, why);

	if (err == GW_ENOENT) {
		memset(&p->rec, 0, sizeof p->rec);
		p->rec.newest = NO_VERSION;
		p->rec.sequence_limit = p->sequence = gw_clock_wall_ns() / 1000;
		randombytes_buf(p->rec.run, sizeof p->rec.run);
		return record_store(p, &p->rec, why);
	}
	if (!err)
		err = record_read(&p->rec, bytes, n);
	free(bytes);
	if (err)
		return gw_diag_set(why, err, "the record of what policy %s published is damaged (slot %s): restore the "
				   "state folder, or remove the slot to begin a new run", p->cfg.policy, p->slot);
	p->sequence = p->rec.sequence_limit;
	return 0;
}

/* --- heads --- */

static int next_sequence(struct gw_publisher *p, struct gw_diag *why)
{
	struct record r = p->rec;
	int err;

	if (p->sequence + 1 < r.sequence_limit) {
		p->sequence++;
		return 0;
	}
	r.sequence_limit = p->sequence + SEQUENCE_STRIDE;
	err = record_store(p, &r, why);
	if (err)
		return err;
	p->rec = r;
	p->sequence++;
	return 0;
}

static int sign_head(struct gw_publisher *p, struct gw_head *h, uint8_t **bytes, size_t *n)
{
	memset(h, 0, sizeof *h);
	(void)snprintf(h->policy, sizeof h->policy, "%s", p->cfg.policy);
	memcpy(h->run, p->rec.run, sizeof h->run);
	h->root_epoch = p->cfg.root->epoch;
	h->sequence = p->sequence;
	h->newest = p->rec.newest;
	h->manifest = p->rec.manifest;
	h->created_ns = gw_clock_wall_ns();
	h->expires_ns = h->created_ns + p->cfg.head_expiry_ns;
	h->anchor_count = p->rec.anchor_count;
	memcpy(h->anchors, p->rec.anchors, sizeof h->anchors);
	return gw_head_sign(h, p->cfg.release->sk, bytes, n);
}

static void announce(struct gw_publisher *p)
{
	struct gw_head h;
	struct gw_diag why = {""};
	uint8_t *bytes = NULL;
	size_t n;
	int err;

	if (p->rec.newest == NO_VERSION)
		return;
	err = gw_root_allows_release(p->cfg.root, p->cfg.policy, p->cfg.release->pk, gw_clock_wall_ns(), &why);
	if (!err)
		err = next_sequence(p, &why);
	if (!err)
		err = sign_head(p, &h, &bytes, &n);
	if (err) {
		GW_LOG(GW_LOG_ERR, "the head cannot be renewed", "policy", p->cfg.policy, "error",
		       why.text[0] ? why.text : gw_err_text(err), NULL);
	} else {
		struct gw_event ev = {.kind = GW_EV_HEAD, .host = GW_HOST_SELF, .head = &h, .raw = {bytes, n}};

		p->cfg.sink.put(p->cfg.sink.ctx, &ev);
	}
	free(bytes);
}

static void renew(void *ctx)
{
	struct gw_publisher *p = ctx;

	announce(p);
	(void)gw_timer_set(p->cfg.loop, &p->renew, gw_loop_now_ns(p->cfg.loop) + p->cfg.head_renew_ns);
}

/* --- publishing --- */

static void remember_anchor(struct record *r)
{
	while (r->anchor_count >= ANCHORS_KEPT)
		memmove(&r->anchors[0], &r->anchors[1], --r->anchor_count * sizeof r->anchors[0]);
	r->anchors[r->anchor_count].manifest = r->manifest;
	r->anchors[r->anchor_count].from = r->anchors[r->anchor_count].to = r->newest;
	r->anchor_count++;
}

static void tell_node(struct gw_publisher *p, const struct gw_publish_job *j)
{
	struct gw_manifest m;
	struct gw_event ev = {.kind = GW_EV_MANIFEST, .host = GW_HOST_SELF, .manifest = &m,
			      .raw = {j->signed_bytes, j->signed_n}};

	if (gw_root_open_manifest(p->cfg.root, j->signed_bytes, j->signed_n, &m, NULL))
		return; /* new() refuses a release key that the root does not allow */
	p->cfg.sink.put(p->cfg.sink.ctx, &ev);
	announce(p);
}

static int removal_work(struct gw_job *job, unsigned worker)
{
	const struct removal *r = (struct removal *)(void *)job;

	(void)worker;
	return gw_publish_remove(r->fs, r->path);
}

static void removal_done(struct gw_job *job, int err)
{
	(void)err; /* the next start sweeps it */
	free(job);
}

/* Many files of many gigabytes: not on the loop. */
static void remove_later(struct gw_publisher *p, const char *path)
{
	size_t n = strlen(path) + 1;
	struct removal *r = calloc(1, sizeof *r + n);

	if (!r)
		return;
	r->job.work = removal_work;
	r->job.done = removal_done;
	r->fs = p->cfg.fs;
	memcpy(r->path, path, n);
	if (gw_workers_submit(p->cfg.workers, &r->job))
		free(r);
}

/* What was made and not published. */
static void discard(struct gw_publisher *p, const struct gw_digest *object, uint64_t version)
{
	char *base = gw_publish_base_path(p->dir, version);

	(void)gw_store_drop(p->cfg.store, object, NULL);
	if (base)
		(void)gw_publish_remove(p->cfg.fs, base);
	free(base);
}

/* The record of a new version was refused, perhaps after it had reached the disk. */
static void take_back(struct gw_publisher *p, const struct gw_digest *object, uint64_t version)
{
	if (record_store(p, &p->rec, NULL)) {
		p->in_doubt = 1;
		p->doubtful = (struct gw_head_entry){*object, version, version};
	} else {
		discard(p, object, version);
	}
}

static int end_doubt(struct gw_publisher *p, struct gw_diag *why)
{
	int err = p->in_doubt ? record_store(p, &p->rec, why) : 0;

	if (err)
		return gw_diag_wrap(why, err, "the record of what policy %s published cannot be written", p->cfg.policy);
	if (p->in_doubt)
		discard(p, &p->doubtful.manifest, p->doubtful.to);
	p->in_doubt = 0;
	return 0;
}

/* The record makes the version published; the old base goes after it. */
static int settle(struct gw_publisher *p, struct task *t)
{
	struct record r = p->rec;
	int err;

	r.newest = t->work.to;
	r.manifest = t->work.result.manifest;
	if (t->work.anchor)
		remember_anchor(&r);
	err = record_store(p, &r, &t->work.result.why);
	if (err) {
		take_back(p, &t->work.result.manifest, t->work.to);
		return err;
	}
	p->rec = r;
	if (t->base)
		remove_later(p, t->base);
	tell_node(p, &t->work);
	return 0;
}

static int task_work(struct gw_job *job, unsigned worker)
{
	struct task *t = (struct task *)(void *)job;

	(void)worker;
	return gw_publish_job_run(&t->work);
}

/* Who asked is told too; this is for whoever reads the log later. */
static void log_result(const struct gw_publisher *p, const struct gw_publish_result *r)
{
	char version[24], bytes[24];

	(void)snprintf(version, sizeof version, "%llu", (unsigned long long)r->version);
	(void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)r->object_bytes);
	if (r->err)
		GW_LOG(GW_LOG_ERR, "not published", "policy", p->cfg.policy, "error",
		       r->why.text[0] ? r->why.text : gw_err_text(r->err), NULL);
	else if (!r->already)
		GW_LOG(GW_LOG_NOTICE, r->anchor ? "an anchor is published" : "a version is published", "policy", p->cfg.policy,
		       "version", version, "bytes", bytes, NULL);
}

static void task_done(struct gw_job *job, int err)
{
	struct task *t = (struct task *)(void *)job;
	struct gw_publisher *p = t->p;

	p->task = NULL;
	if (!err && !t->work.result.already)
		err = settle(p, t);
	if (t->work.result.already)
		t->work.result.version = p->rec.newest;
	t->work.result.err = err;
	log_result(p, &t->work.result);
	t->done(t->ctx, &t->work.result);
	free(t->work.signed_bytes);
	free(t->source);
	free(t->base);
	free(t);
}

static int plan(struct gw_publisher *p, const struct gw_publish_request *req, struct task *t)
{
	struct gw_publish_job *j = &t->work;
	int first = p->rec.newest == NO_VERSION, err;

	err = gw_root_allows_release(p->cfg.root, p->cfg.policy, p->cfg.release->pk, gw_clock_wall_ns(), &j->result.why);
	if (!err)
		err = end_doubt(p, &j->result.why);
	if (err)
		return err;
	j->policy = p->cfg.policy;
	j->dir = p->dir;
	j->fs = p->cfg.fs;
	j->pool = p->cfg.pool;
	j->store = p->cfg.store;
	j->root = p->cfg.root;
	j->release = p->cfg.release;
	j->anchor = first || req->anchor;
	memcpy(j->run, p->rec.run, sizeof j->run);
	j->from = first ? 0 : p->rec.newest;
	j->to = req->has_version ? req->version : first ? 0 : p->rec.newest + 1;
	j->previous = p->rec.manifest;
	t->source = strdup(req->path);
	t->base = first ? NULL : gw_publish_base_path(p->dir, p->rec.newest);
	if (!t->source || (!first && !t->base))
		return GW_ENOMEM;
	j->source = t->source;
	j->base = t->base;
	j->same_only = !first && j->to == p->rec.newest;
	if (j->same_only)
		j->anchor = 0;
	if (j->to == NO_VERSION || (!first && j->to < p->rec.newest))
		return gw_diag_set(&j->result.why, GW_EINVAL, "version %llu is not above %llu, the newest of policy %s: a "
				   "run never rewinds; publish an older state as a new version", (unsigned long long)j->to,
				   (unsigned long long)p->rec.newest, p->cfg.policy);
	return 0;
}

int gw_publisher_publish(struct gw_publisher *p, const struct gw_publish_request *req,
			 void (*done)(void *ctx, const struct gw_publish_result *res), void *ctx)
{
	struct task *t;
	int err;

	if (p->task)
		return GW_EAGAIN;
	t = calloc(1, sizeof *t);
	if (!t)
		return GW_ENOMEM;
	t->job.work = task_work;
	t->job.done = task_done;
	t->p = p;
	t->done = done;
	t->ctx = ctx;
	p->task = t;
	err = plan(p, req, t);
	if (!err)
		err = gw_workers_submit(p->cfg.workers, &t->job);
	if (err)
		task_done(&t->job, err);
	return 0;
}

/* --- life --- */

/* What of this run is in the store, against what was published. */
struct sweep {
	struct gw_publisher *p;
	struct gw_diag *why;
	struct gw_map published; /* ids */
	uint64_t lowest;         /* version down to which all are known */
};

/* 0 and the manifest without its digests. */
static int read_manifest(struct gw_publisher *p, const struct gw_digest *id, struct gw_manifest *m)
{
	uint8_t *bytes;
	size_t n;
	int err = gw_store_manifest(p->cfg.store, id, &bytes, &n);

	if (err)
		return err;
	err = gw_root_open_manifest(p->cfg.root, bytes, n, m, NULL);
	m->digests = NULL;
	free(bytes);
	return err;
}

static int note_published(struct sweep *s, const struct gw_digest *id)
{
	return gw_map_put(&s->published, id->b, sizeof id->b, s, NULL);
}

/* From the newest back, each names the one before it, as far as they are kept. */
static int walk_back(struct sweep *s)
{
	const struct record *r = &s->p->rec;
	struct gw_digest at = r->manifest;
	struct gw_manifest m;
	int err = 0;

	s->lowest = r->newest == NO_VERSION ? 0 : r->newest + 1;
	for (uint32_t i = 0; !err && i < r->anchor_count; i++)
		err = note_published(s, &r->anchors[i].manifest);
	while (!err && r->newest != NO_VERSION && gw_map_count(&s->published) < GW_STORE_OBJECTS_MAX &&
	       !read_manifest(s->p, &at, &m)) {
		err = note_published(s, &at);
		s->lowest = m.to;
		at = m.previous;
	}
	return err;
}

/* What a killed or failed publication left: its place was, or will be, taken by another manifest. */
static int sweep_object(void *ctx, const struct gw_digest *id)
{
	struct sweep *s = ctx;
	struct gw_manifest m;

	if (read_manifest(s->p, id, &m) || memcmp(m.run, s->p->rec.run, sizeof m.run) || m.to < s->lowest ||
	    gw_map_get(&s->published, id->b, sizeof id->b))
		return 0; /* damaged ones too: opening them will say so */
	return gw_store_drop(s->p->cfg.store, id, s->why);
}

static int sweep_store(struct gw_publisher *p, struct gw_diag *why)
{
	struct sweep s = {.p = p, .why = why};
	int err;

	gw_map_init(&s.published, gw_fs_nonce(p->cfg.fs));
	err = walk_back(&s);
	if (!err)
		err = gw_store_list(p->cfg.store, sweep_object, &s);
	gw_map_free(&s.published, NULL);
	return err;
}

static int sweep_base(void *ctx, const char *name)
{
	struct gw_publisher *p = ctx;
	char *keep = p->rec.newest == NO_VERSION ? NULL : gw_publish_base_path(p->dir, p->rec.newest);
	char *path = gw_path_join(p->dir, name);
	int ours = !strncmp(name, "base-", 5) || !strcmp(name, GW_PUBLISH_PATCH_NAME);

	if (path && ours && (!keep || strcmp(path, keep)))
		(void)gw_publish_remove(p->cfg.fs, path);
	free(keep);
	free(path);
	return 0;
}

/* A folder that stays when the power fails, whoever made it and was killed before that. */
static int make_in(struct gw_fs *fs, const char *parent, const char *name, char **path)
{
	int err;

	*path = gw_path_join(parent, name);
	err = *path ? gw_fs_mkdir(fs, *path) : GW_ENOMEM;
	return err && err != GW_EEXIST ? err : gw_publish_sync_dir(fs, parent, NULL);
}

static int make_dir(struct gw_publisher *p, struct gw_diag *why)
{
	char *parent = NULL;
	int err = make_in(p->cfg.fs, p->cfg.state, "publish", &parent);

	if (!err)
		err = make_in(p->cfg.fs, parent, p->cfg.policy, &p->dir);
	free(parent);
	if (err)
		return gw_diag_set(why, err, "cannot make %s/publish/%s: %s", p->cfg.state, p->cfg.policy, gw_err_text(err));
	(void)gw_publish_sweep(p->cfg.fs, p->dir);
	return 0;
}

int gw_publisher_new(struct gw_publisher **out, const struct gw_publisher_config *cfg, struct gw_diag *why)
{
	struct gw_publisher *p = calloc(1, sizeof *p);
	int err;

	if (!p)
		return GW_ENOMEM;
	p->cfg = *cfg;
	p->renew.fire = renew;
	p->renew.ctx = p;
	p->cfg.policy = p->policy = strdup(cfg->policy);
	if (!p->policy) {
		gw_publisher_free(p);
		return GW_ENOMEM;
	}
	(void)snprintf(p->slot, sizeof p->slot, "publish-%s", cfg->policy);
	err = gw_path_is_plain(cfg->policy) && strlen(cfg->policy) <= GW_POLICY_NAME_MAX
		      ? 0
		      : gw_diag_set(why, GW_ECONFIG, "publish.policy: %.80s is not a name for a policy", cfg->policy);
	if (!err)
		err = gw_root_allows_release(cfg->root, cfg->policy, cfg->release->pk, gw_clock_wall_ns(), why);
	if (!err)
		err = make_dir(p, why);
	if (!err)
		err = record_load(p, why);
	if (!err)
		err = sweep_store(p, why);
	if (!err)
		err = gw_fs_list(cfg->fs, p->dir, sweep_base, p);
	if (err) {
		gw_publisher_free(p);
		return err;
	}
	*out = p;
	return 0;
}

void gw_publisher_free(struct gw_publisher *p)
{
	if (!p)
		return;
	gw_timer_stop(p->cfg.loop, &p->renew);
	free(p->policy);
	free(p->dir);
	free(p);
}

void gw_publisher_start(struct gw_publisher *p)
{
	renew(p);
}

void gw_publisher_pace(struct gw_publisher *p, uint64_t head_expiry_ns, uint64_t head_renew_ns)
{
	p->cfg.head_expiry_ns = head_expiry_ns;
	p->cfg.head_renew_ns = head_renew_ns;
}

const char *gw_publisher_policy(const struct gw_publisher *p)
{
	return p->cfg.policy;
}

uint64_t gw_publisher_newest(const struct gw_publisher *p)
{
	return p->rec.newest;
}

const uint8_t *gw_publisher_run(const struct gw_publisher *p)
{
	return p->rec.run;
}
