#include "patch/redo.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "patch/inside.h"
#include "patch/element.h"

enum {
	VERSION = 1,
	HEADER_BYTES = 44,
	BUFFER_BYTES = 1024 * 1024,
	WINDOW_BYTES = 1024 * 1024, /* of a file, rewritten at once */
	WINDOW_GAP = 64 * 1024,	    /* unchanged bytes that end a window */
};

#define MAGIC "GWREDO\0" /* and the literal's own NUL */

enum step { STEP_END = 0, STEP_WRITE = 1, STEP_MOVE = 2, STEP_REMOVE = 3 };
enum run { RUN_END = 0, RUN_CHANGES = 1, RUN_BYTES = 2 };

/* --- writing ---------------------------------------------------------------------------------- */

struct gw_redo_writer {
	struct gw_publish *p;
	uint64_t at; /* in the log, of the buffer's first byte */
	struct gw_wr buf;
	struct gw_hash hash;
	int in_file; /* a WRITE step is open */
};

static int flush(struct gw_redo_writer *w)
{
	int err = w->buf.err;

	if (!err && w->buf.n) {
		gw_hash_add(&w->hash, w->buf.p, w->buf.n);
		err = gw_fs_pwrite(w->p->fs, w->p->file, w->buf.p, w->buf.n, w->at);
		w->at += w->buf.n;
		w->buf.n = 0;
	}
	return err;
}

static int flush_if_full(struct gw_redo_writer *w)
{
	return w->buf.err || w->buf.n >= BUFFER_BYTES ? flush(w) : 0;
}

int gw_redo_begin(struct gw_redo_writer **out, struct gw_publish *p, const uint64_t from_print[2],
		  const uint64_t to_print[2])
{
	struct gw_redo_writer *w = calloc(1, sizeof *w);

	if (!w)
		return GW_ENOMEM;
	w->p = p;
	gw_wr_init(&w->buf, (size_t)64 * BUFFER_BYTES);
	gw_hash_begin(&w->hash);
	gw_wr_bytes(&w->buf, MAGIC, 8);
	gw_wr_u16(&w->buf, VERSION);
	gw_wr_u16(&w->buf, 0);
	for (int i = 0; i < 2; i++)
		gw_wr_u64(&w->buf, from_print[i]);
	for (int i = 0; i < 2; i++)
		gw_wr_u64(&w->buf, to_print[i]);
	*out = w;
	return 0;
}

static void put_name(struct gw_redo_writer *w, const char *name)
{
	size_t n = strlen(name);

	gw_wr_varint(&w->buf, n);
	gw_wr_bytes(&w->buf, name, n);
}

static void begin_step(struct gw_redo_writer *w, enum step step)
{
	if (w->in_file)
		gw_wr_u8(&w->buf, RUN_END);
	w->in_file = step == STEP_WRITE;
	gw_wr_u8(&w->buf, (uint8_t)step);
}

int gw_redo_write(struct gw_redo_writer *w, const char *file, uint64_t file_bytes)
{
	begin_step(w, STEP_WRITE);
	put_name(w, file);
	gw_wr_u64(&w->buf, file_bytes);
	return flush_if_full(w);
}

int gw_redo_changes(struct gw_redo_writer *w, uint64_t at, unsigned width, const struct gw_tile_changes *c)
{
	uint64_t next = 0;

	gw_wr_u8(&w->buf, RUN_CHANGES);
	gw_wr_u64(&w->buf, at);
	gw_wr_u8(&w->buf, (uint8_t)width);
	gw_wr_u32(&w->buf, (uint32_t)c->n);
	for (size_t i = 0; i < c->n; i++) {
		gw_wr_varint(&w->buf, c->at[i] - next);
		next = (uint64_t)c->at[i] + 1;
	}
	gw_wr_bytes(&w->buf, c->new_bits, c->n * width);
	return flush_if_full(w);
}

int gw_redo_bytes(struct gw_redo_writer *w, uint64_t at, const void *p, uint32_t n)
{
	gw_wr_u8(&w->buf, RUN_BYTES);
	gw_wr_u64(&w->buf, at);
	gw_wr_u32(&w->buf, n);
	gw_wr_bytes(&w->buf, p, n);
	return flush_if_full(w);
}

int gw_redo_move(struct gw_redo_writer *w, const char *temp, const char *file)
{
	begin_step(w, STEP_MOVE);
	put_name(w, temp);
	put_name(w, file);
	return flush_if_full(w);
}

int gw_redo_remove(struct gw_redo_writer *w, const char *file)
{
	begin_step(w, STEP_REMOVE);
	put_name(w, file);
	return flush_if_full(w);
}

int gw_redo_end(struct gw_redo_writer *w)
{
	uint8_t digest[GW_DIGEST_BYTES];
	int err;

	begin_step(w, STEP_END);
	err = flush(w);
	if (err)
		return err;
	gw_hash_end(&w->hash, digest);
	return gw_fs_pwrite(w->p->fs, w->p->file, digest, sizeof digest, w->at);
}

void gw_redo_free(struct gw_redo_writer *w)
{
	if (!w)
		return;
	gw_wr_free(&w->buf);
	free(w);
}

/* --- replaying -------------------------------------------------------------------------------- */

/* One walk over the log: first without a file system, as a check, then in earnest. */
struct replay {
	struct gw_fs *fs; /* NULL: check only */
	const char *folder;
	struct gw_rd r;
	struct gw_redo_info *info;
	uint8_t *window;
	struct gw_diag *why;
};

/* The file that a WRITE step changes, and the window of it in memory. */
struct target {
	struct gw_file *file;
	uint64_t bytes;
	uint64_t from, to; /* the window; empty where equal */
};

static const char *read_name(struct replay *y, char buf[GW_FILE_NAME_MAX + 1])
{
	uint64_t n = gw_rd_varint(&y->r);
	const uint8_t *p = n <= GW_FILE_NAME_MAX ? gw_rd_bytes(&y->r, n) : NULL;

	buf[0] = 0;
	if (p) {
		memcpy(buf, p, n);
		buf[n] = 0;
	}
	if (!p || strlen(buf) != n || !gw_path_is_plain(buf))
		gw_rd_fail(&y->r, GW_EMALFORMED);
	return buf;
}

static int end_window(struct replay *y, struct target *t)
{
	int err = t->to > t->from ? gw_fs_pwrite(y->fs, t->file, y->window, t->to - t->from, t->from) : 0;

	y->info->written_bytes += t->to - t->from;
	t->from = t->to = 0;
	return err;
}

/* Makes [at, at + n) part of the window: reads on, or begins a new one. */
static int reach(struct replay *y, struct target *t, uint64_t at, uint64_t n)
{
	int err = 0;

	if (t->to == t->from || at < t->from || at > t->to + WINDOW_GAP || at + n > t->from + WINDOW_BYTES) {
		err = end_window(y, t);
		t->from = t->to = at;
	}
	if (!err && at + n > t->to) {
		err = gw_fs_pread(y->fs, t->file, y->window + (t->to - t->from), at + n - t->to, t->to);
		t->to = err ? t->to : at + n;
	}
	return err;
}

static int replay_changes(struct replay *y, struct target *t)
{
	uint64_t at = gw_rd_u64(&y->r), width = gw_rd_u8(&y->r), n = gw_rd_u32(&y->r);
	struct gw_rd gaps = y->r;
	const uint8_t *bits;
	uint64_t place = 0;
	int err = 0;

	if ((width != 1 && width != 2 && width != 4 && width != 8) || at > t->bytes || n > gw_rd_left(&y->r))
		gw_rd_fail(&y->r, GW_EMALFORMED);
	for (uint64_t i = 0; i < n && !y->r.err; i++)
		(void)gw_rd_varint(&y->r);
	bits = y->r.err ? NULL : gw_rd_bytes(&y->r, n * width);
	for (uint64_t i = 0; bits && !err && i < n; i++, place++) {
		uint64_t gap = gw_rd_varint(&gaps);

		if (gap > (t->bytes - at) / width || (place + gap + 1) * width > t->bytes - at) {
			gw_rd_fail(&y->r, GW_EMALFORMED);
			break;
		}
		place += gap;
		if (!y->fs)
			continue;
		err = reach(y, t, at + place * width, width);
		if (!err)
			memcpy(y->window + (at + place * width - t->from), bits + i * width, width);
	}
	return err ? err : y->r.err;
}

static int replay_bytes(struct replay *y, struct target *t)
{
	uint64_t at = gw_rd_u64(&y->r), n = gw_rd_u32(&y->r);
	const uint8_t *p = gw_rd_bytes(&y->r, n);
	int err = 0;

	if (at > t->bytes || n > t->bytes - at)
		gw_rd_fail(&y->r, GW_EMALFORMED);
	if (y->r.err || !y->fs)
		return y->r.err;
	err = end_window(y, t);
	y->info->written_bytes += n;
	return err || !n ? err : gw_fs_pwrite(y->fs, t->file, p, n, at);
}

static int replay_runs(struct replay *y, struct target *t)
{
	int err = 0;

	while (!err) {
		uint8_t run = gw_rd_u8(&y->r);

		if (y->r.err || run == RUN_END)
			break;
		if (run == RUN_CHANGES)
			err = replay_changes(y, t);
		else if (run == RUN_BYTES)
			err = replay_bytes(y, t);
		else
			gw_rd_fail(&y->r, GW_EMALFORMED);
	}
	return err ? err : y->r.err;
}

static int open_target(struct replay *y, const char *name, struct target *t)
{
	char *path = gw_path_join(y->folder, name);
	struct gw_stat st;
	int err = path ? gw_fs_open(y->fs, path, GW_OPEN_READ | GW_OPEN_WRITE | GW_OPEN_NOFOLLOW, &t->file) : GW_ENOMEM;

	if (!err) {
		err = gw_fs_fstat(y->fs, t->file, &st);
		if (!err && st.size != t->bytes)
			err = gw_diag_set(y->why, GW_ESTATE, "%s: another size than when the change began", path);
		if (err)
			gw_fs_close(y->fs, t->file);
	}
	if (err)
		(void)gw_diag_set(y->why, err, "cannot change %s: %s", path ? path : name, gw_err_text(err));
	free(path);
	return err;
}

static int replay_write(struct replay *y)
{
	char name[GW_FILE_NAME_MAX + 1];
	struct target t = {0};
	int err;

	(void)read_name(y, name);
	t.bytes = gw_rd_u64(&y->r);
	if (y->r.err || !y->fs)
		return y->r.err ? y->r.err : replay_runs(y, &t);
	err = open_target(y, name, &t);
	if (err)
		return err;
	err = replay_runs(y, &t);
	if (!err)
		err = end_window(y, &t);
	if (err)
		(void)gw_diag_set(y->why, err, "cannot change %s/%s: %s", y->folder, name, gw_err_text(err));
	else
		err = gw_publish_sync(y->fs, t.file, y->why);
	gw_fs_close(y->fs, t.file);
	return err;
}

static int replay_move(struct replay *y)
{
	char temp[GW_FILE_NAME_MAX + 1], name[GW_FILE_NAME_MAX + 1], *from, *to;
	struct gw_stat st;
	int err;

	(void)read_name(y, temp);
	(void)read_name(y, name);
	if (y->r.err || !y->fs)
		return y->r.err;
	from = gw_path_join(y->folder, temp);
	to = gw_path_join(y->folder, name);
	err = from && to ? gw_publish_move(y->fs, from, to, y->why) : GW_ENOMEM;
	/* An earlier run moved it. */
	if (err == GW_ENOENT && to)
		err = gw_fs_stat(y->fs, to, &st);
	if (err)
		(void)gw_diag_set(y->why, err, "cannot write %s/%s: %s", y->folder, name, gw_err_text(err));
	free(from);
	free(to);
	return err;
}

static int replay_remove(struct replay *y)
{
	char name[GW_FILE_NAME_MAX + 1], *path;
	int err;

	(void)read_name(y, name);
	if (y->r.err || !y->fs)
		return y->r.err;
	path = gw_path_join(y->folder, name);
	err = path ? gw_fs_unlink(y->fs, path) : GW_ENOMEM;
	free(path);
	if (err == GW_ENOENT)
		err = 0;
	return err ? gw_diag_set(y->why, err, "cannot remove %s/%s: %s", y->folder, name, gw_err_text(err)) : 0;
}

static int walk(struct replay *y, struct gw_fs *fs, const void *p, size_t n)
{
	uint8_t magic[8];
	int err = 0;

	y->fs = fs;
	*y->info = (struct gw_redo_info){0};
	gw_rd_init(&y->r, p, n);
	gw_rd_copy(&y->r, magic, sizeof magic);
	if (memcmp(magic, MAGIC, sizeof magic) || gw_rd_u16(&y->r) != VERSION || gw_rd_u16(&y->r) != 0)
		return GW_EMALFORMED;
	for (int i = 0; i < 2; i++)
		y->info->from_print[i] = gw_rd_u64(&y->r);
	for (int i = 0; i < 2; i++)
		y->info->to_print[i] = gw_rd_u64(&y->r);
	while (!err) {
		uint8_t step = gw_rd_u8(&y->r);

		if (y->r.err || step == STEP_END)
			break;
		y->info->files++;
		err = step == STEP_WRITE    ? replay_write(y)
		      : step == STEP_MOVE   ? replay_move(y)
		      : step == STEP_REMOVE ? replay_remove(y)
					    : GW_EMALFORMED;
	}
	return err ? err : gw_rd_end(&y->r);
}

static int check_log(struct replay *y, const uint8_t *p, size_t n)
{
	uint8_t digest[GW_DIGEST_BYTES];

	if (n < HEADER_BYTES + 1 + sizeof digest)
		return GW_ETRUNC;
	gw_hash_of(p, n - sizeof digest, digest, sizeof digest);
	if (memcmp(digest, p + n - sizeof digest, sizeof digest))
		return GW_EDIGEST;
	return walk(y, NULL, p, n - sizeof digest);
}

int gw_redo_replay(struct gw_fs *fs, const char *folder, const void *p, size_t n, struct gw_redo_info *info,
		   struct gw_diag *why)
{
	struct replay y = {.folder = folder, .info = info, .why = why, .window = malloc(WINDOW_BYTES)};
	int err = y.window ? check_log(&y, p, n) : GW_ENOMEM;

	if (!err)
		err = walk(&y, fs, p, n - GW_DIGEST_BYTES);
	if (!err)
		err = gw_publish_sync_dir(fs, folder, why);
	free(y.window);
	return err;
}
