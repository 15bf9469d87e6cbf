#include "daemon/versions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/num.h"
#include "base/publish.h"
#include "patch/fingerprint.h"
#include "weights/checkpoint.h"

enum { SCAN_BYTES = 8 << 20, FILES_MAX = 1024 };

struct pin {
	uint8_t run[16];
	uint64_t version;
};

struct gw_versions {
	pthread_mutex_t lock;
	struct gw_fs *fs;
	char *dir;
	struct gw_table **tables; /* the one kept last, last */
	uint32_t n, cap;
	struct pin pins[GW_VERSIONS_PINS_MAX]; /* the first pinned, first */
	uint32_t pin_n;
};

static int same(const struct gw_table *a, const struct gw_table *b)
{
	return gw_table_version(a) == gw_table_version(b) && memcmp(gw_table_run(a), gw_table_run(b), 16) == 0;
}

static char *file_of(const struct gw_versions *v, const struct gw_table *t)
{
	char run[33], name[96];

	gw_hex(run, gw_table_run(t), 16);
	snprintf(name, sizeof name, "%s-%llu.table", run, (unsigned long long)gw_table_version(t));
	return gw_path_join(v->dir, name);
}

/* Takes over the caller's hold. */
static int remember(struct gw_versions *v, struct gw_table *t)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (same(v->tables[i], t)) {
			gw_table_free(v->tables[i]);
			memmove(v->tables + i, v->tables + i + 1, (v->n - i - 1) * sizeof(*v->tables));
			v->n--;
			break;
		}
	if (v->n == v->cap) {
		uint32_t cap = v->cap ? v->cap * 2 : 16;
		struct gw_table **p = reallocarray(v->tables, cap, sizeof(*p));

		if (!p) {
			gw_table_free(t);
			return GW_ENOMEM;
		}
		v->tables = p;
		v->cap = cap;
	}
	v->tables[v->n++] = t;
	return 0;
}

static int read_file(struct gw_fs *fs, const char *path, struct gw_table **out, struct gw_diag *why)
{
	struct gw_mapping m;
	struct gw_file *f;
	int err = gw_fs_open(fs, path, GW_OPEN_READ | GW_OPEN_NOFOLLOW, &f), shrunk;

	if (err)
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	err = gw_fs_map(fs, f, &m);
	gw_fs_close(fs, f);
	if (err)
		return gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	err = gw_table_read(m.p, m.n, out, why);
	shrunk = gw_fs_unmap(fs, &m);
	if (!err && shrunk) {
		gw_table_free(*out);
		err = shrunk;
	}
	return err ? gw_diag_wrap(why, err, "%s", path) : 0;
}

struct found {
	char *path;
	uint64_t mtime_ns, version;
};

struct listing {
	struct gw_versions *v;
	struct found files[FILES_MAX];
	size_t n;
};

static int note_file(void *ctx, const char *name)
{
	struct listing *l = ctx;
	size_t n = strlen(name);
	struct gw_stat st;
	char *path;

	if (n < 7 || name[0] == '.' || strcmp(name + n - 6, ".table") != 0)
		return 0;
	if (l->n == FILES_MAX)
		return 0; /* more than are ever kept: somebody else's */
	path = gw_path_join(l->v->dir, name);
	if (!path)
		return GW_ENOMEM;
	if (gw_fs_stat(l->v->fs, path, &st) || st.type != GW_FILE_REGULAR) {
		free(path);
		return 0;
	}
	l->files[l->n++] = (struct found){.path = path, .mtime_ns = st.mtime_ns,
					  .version = strtoull(strchr(name, '-') ? strchr(name, '-') + 1 : "", NULL, 10)};
	return 0;
}

/* File systems count time in steps of some milliseconds. */
static int by_age(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->mtime_ns != y->mtime_ns)
		return x->mtime_ns < y->mtime_ns ? -1 : 1;
	return x->version < y->version ? -1 : x->version > y->version;
}

static int read_all(struct gw_versions *v, struct gw_diag *why)
{
	struct listing *l = calloc(1, sizeof *l);
	int err;

	if (!l)
		return GW_ENOMEM;
	l->v = v;
	err = gw_fs_list(v->fs, v->dir, note_file, l);
	if (err)
		gw_diag_set(why, err, "%s: %s", v->dir, gw_err_text(err));
	qsort(l->files, l->n, sizeof l->files[0], by_age);
	for (size_t i = 0; i < l->n; i++) {
		struct gw_diag d = {""};
		struct gw_table *t;

		if (!err && read_file(v->fs, l->files[i].path, &t, &d))
			GW_LOG(GW_LOG_WARN, "version table skipped", "why", d.text, NULL);
		else if (!err)
			err = remember(v, t);
		free(l->files[i].path);
	}
	free(l);
	return err;
}

int gw_versions_open(struct gw_versions **out, struct gw_fs *fs, const char *state, struct gw_diag *why)
{
	struct gw_versions *v = calloc(1, sizeof *v);
	int err = GW_ENOMEM;

	if (!v)
		return GW_ENOMEM;
	v->fs = fs;
	v->dir = gw_path_join(state, "versions");
	if (!v->dir)
		goto err0;
	err = gw_fs_mkdir(fs, v->dir);
	if (err && err != GW_EEXIST) {
		gw_diag_set(why, err, "%s: %s", v->dir, gw_err_text(err));
		goto err1;
	}
	pthread_mutex_init(&v->lock, NULL);
	(void)gw_publish_sweep(fs, v->dir); /* leftovers do no harm */
	err = read_all(v, why);
	if (err) {
		gw_versions_free(v);
		return err;
	}
	*out = v;
	return 0;
err1:
	free(v->dir);
err0:
	free(v);
	return err;
}

void gw_versions_free(struct gw_versions *v)
{
	if (!v)
		return;
	for (uint32_t i = 0; i < v->n; i++)
		gw_table_free(v->tables[i]);
	free(v->tables);
	free(v->dir);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

static uint32_t pin_of(const struct gw_versions *v, const uint8_t run[16], uint64_t version)
{
	uint32_t i = 0;

	while (i < v->pin_n && (v->pins[i].version != version || memcmp(v->pins[i].run, run, 16)))
		i++;
	return i;
}

static int is_pinned(const struct gw_versions *v, const struct gw_table *t)
{
	return pin_of(v, gw_table_run(t), gw_table_version(t)) < v->pin_n;
}

static void forget(struct gw_versions *v, uint32_t at)
{
	char *path = file_of(v, v->tables[at]);

	if (path)
		(void)gw_fs_unlink(v->fs, path);
	free(path);
	gw_table_free(v->tables[at]);
	memmove(v->tables + at, v->tables + at + 1, (v->n - at - 1) * sizeof(*v->tables));
	v->n--;
}

/* The oldest of that run, or of any (NULL), where there are more than `most` that are not pinned. */
static void forget_old(struct gw_versions *v, const uint8_t *run, uint32_t most)
{
	uint32_t n = 0, oldest = 0;

	for (uint32_t i = v->n; i > 0; i--)
		if (!is_pinned(v, v->tables[i - 1]) && (!run || !memcmp(gw_table_run(v->tables[i - 1]), run, 16))) {
			n++;
			oldest = i - 1;
		}
	if (n > most)
		forget(v, oldest);
}

static void unpin(struct gw_versions *v, uint32_t i)
{
	memmove(v->pins + i, v->pins + i + 1, (v->pin_n - i - 1) * sizeof v->pins[0]);
	v->pin_n--;
}

void gw_versions_pin(struct gw_versions *v, const uint8_t run[16], uint64_t version)
{
	pthread_mutex_lock(&v->lock);
	if (pin_of(v, run, version) == v->pin_n) {
		if (v->pin_n == GW_VERSIONS_PINS_MAX)
			unpin(v, 0);
		v->pins[v->pin_n].version = version;
		memcpy(v->pins[v->pin_n++].run, run, 16);
	}
	pthread_mutex_unlock(&v->lock);
}

void gw_versions_unpin(struct gw_versions *v, const uint8_t run[16], uint64_t version)
{
	uint32_t i;

	pthread_mutex_lock(&v->lock);
	i = pin_of(v, run, version);
	if (i < v->pin_n)
		unpin(v, i);
	pthread_mutex_unlock(&v->lock);
}

int gw_versions_keep(struct gw_versions *v, struct gw_table *t, struct gw_diag *why)
{
	char *path = file_of(v, t);
	struct gw_wr w;
	int err;

	if (!path)
		return GW_ENOMEM;
	gw_wr_init(&w, SIZE_MAX);
	gw_table_write(t, &w);
	err = w.err;
	if (!err)
		err = gw_publish_bytes(v->fs, path, GW_PUBLISH_REPLACE, w.p, w.n, why);
	else
		gw_diag_set(why, err, "%s: %s", path, gw_err_text(err));
	gw_wr_free(&w);
	free(path);
	if (err)
		return err;
	pthread_mutex_lock(&v->lock);
	err = remember(v, gw_table_hold(t));
	if (!err) {
		forget_old(v, gw_table_run(t), GW_VERSIONS_KEPT);
		forget_old(v, NULL, GW_VERSIONS_MAX);
	}
	pthread_mutex_unlock(&v->lock);
	return err;
}

struct gw_table *gw_versions_find(struct gw_versions *v, const uint8_t run[16], uint64_t version)
{
	struct gw_table *t = NULL;

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = v->n; i > 0 && !t; i--)
		if (gw_table_version(v->tables[i - 1]) == version &&
		    (!run || memcmp(gw_table_run(v->tables[i - 1]), run, 16) == 0))
			t = gw_table_hold(v->tables[i - 1]);
	pthread_mutex_unlock(&v->lock);
	return t;
}

struct gw_table *gw_versions_at(struct gw_versions *v, uint32_t i)
{
	struct gw_table *t = NULL;

	pthread_mutex_lock(&v->lock);
	if (i < v->n)
		t = gw_table_hold(v->tables[v->n - 1 - i]);
	pthread_mutex_unlock(&v->lock);
	return t;
}

/* --- a checkpoint --- */

struct piece {
	const struct gw_tensor *t;
	uint32_t index;
	uint64_t first, n; /* elements */
	uint64_t lane[2];
};

static int sum_piece(void *arg, size_t i, unsigned worker)
{
	struct piece *p = (struct piece *)arg + i;
	unsigned width = gw_dtype_width((enum gw_dtype)p->t->dtype);

	(void)worker;
	gw_print_run(p->lane, width, p->first, p->t->p + p->first * width, p->n);
	return 0;
}

static size_t cut(const struct gw_checkpoint *c, struct piece *out)
{
	size_t n = 0;

	for (uint32_t i = 0; i < gw_checkpoint_tensors(c); i++) {
		const struct gw_tensor *t = gw_checkpoint_tensor(c, i);
		unsigned width = gw_dtype_width((enum gw_dtype)t->dtype);
		uint64_t elements = t->bytes / width, step = SCAN_BYTES / width;

		for (uint64_t at = 0; at < elements; at += step, n++)
			if (out)
				out[n] = (struct piece){.t = t, .index = i, .first = at, .n = gw_min_u64(step, elements - at)};
	}
	return n;
}

static int scan(const struct gw_checkpoint *c, struct gw_pool *pool, struct gw_table *t, struct gw_diag *why)
{
	size_t n = cut(c, NULL), k = 0;
	struct piece *pieces = calloc(n ? n : 1, sizeof *pieces);
	int err;

	if (!pieces)
		return GW_ENOMEM;
	cut(c, pieces);
	err = pool->run(pool, n, sum_piece, pieces);
	for (uint32_t i = 0; !err && i < gw_checkpoint_tensors(c); i++) {
		const struct gw_tensor *ct = gw_checkpoint_tensor(c, i);
		uint64_t lane[2] = {0, 0};

		for (; k < n && pieces[k].index == i; k++) {
			lane[0] += pieces[k].lane[0];
			lane[1] += pieces[k].lane[1];
		}
		err = gw_table_add(t, ct->name, (enum gw_dtype)ct->dtype, ct->rank, ct->shape, lane);
		if (err)
			gw_diag_set(why, err, "tensor %s: %s", ct->name, gw_err_text(err));
	}
	free(pieces);
	return err;
}

int gw_versions_scan(struct gw_fs *fs, const char *checkpoint, const uint8_t run[16], uint64_t version,
		     struct gw_pool *pool, struct gw_table **out, struct gw_diag *why)
{
	struct gw_checkpoint *c;
	struct gw_table *t = NULL;
	int err = gw_checkpoint_open(&c, fs, checkpoint, why);

	if (err)
		return err;
	err = gw_table_new(&t, run, version);
	if (!err)
		err = scan(c, pool, t, why);
	if (!err)
		err = gw_checkpoint_check(c, why);
	gw_checkpoint_close(c);
	if (err) {
		gw_table_free(t);
		return err;
	}
	*out = t;
	return 0;
}
