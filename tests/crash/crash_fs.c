#include "crash_fs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { SECTOR = 512, NODES = 256, ENTRIES = 64, CHANGES = 256 };

/* A file or a folder. */
struct node {
	int used, is_dir;
	unsigned opened;
	/* file */
	uint8_t *seen, *disk, *dirty; /* dirty: a byte a sector of `seen` */
	uint64_t seen_size, disk_size, cap;
	int size_dirty;
	/* folder: entries as seen, and as on the disk */
	struct entry {
		char name[100];
		int node; /* index, -1 free */
	} seen_at[ENTRIES], disk_at[ENTRIES];
};

/* A change of folders that is not yet on the disk: name -> node, and for a rename the name that goes. */
struct change {
	int dir, node; /* node -1: the name goes */
	char name[100];
	int from_dir; /* of a rename, else -1 */
	char from[100];
};

struct gw_file {
	int node;
	unsigned flags;
};

struct crash_fs {
	struct gw_fs fs;
	struct node nodes[NODES]; /* 0 is "/" */
	struct change changes[CHANGES];
	size_t change_count;
	struct gw_rng rng;
	uint64_t ops, die_at, fail_at;
	int fail_err, full_err, dead;
};

static struct crash_fs *of(struct gw_fs *fs)
{
	return (struct crash_fs *)fs;
}

static uint64_t sectors(uint64_t bytes)
{
	return (bytes + SECTOR - 1) / SECTOR;
}

/* --- folders --- */

static int look_in(struct entry *at, const char *name, size_t n)
{
	for (int i = 0; i < ENTRIES; i++) {
		if (at[i].node >= 0 && strlen(at[i].name) == n && !memcmp(at[i].name, name, n))
			return i;
	}
	return -1;
}

static void set_entry(struct entry *at, const char *name, int node)
{
	int i = look_in(at, name, strlen(name));

	if (node < 0) {
		if (i >= 0)
			at[i].node = -1;
		return;
	}
	for (int k = 0; i < 0 && k < ENTRIES; k++) {
		if (at[k].node < 0)
			i = k;
	}
	assert(i >= 0 && strlen(name) < sizeof at[i].name);
	(void)strcpy(at[i].name, name);
	at[i].node = node;
}

/* Resolves all but the last component. */
static int walk(struct crash_fs *c, const char *path, int *dir, const char **last)
{
	int at = 0;

	while (*path == '/')
		path++;
	for (;;) {
		const char *slash = strchr(path, '/');
		int i;

		if (!slash)
			break;
		i = look_in(c->nodes[at].seen_at, path, (size_t)(slash - path));
		if (i < 0 || !c->nodes[c->nodes[at].seen_at[i].node].is_dir)
			return GW_ENOENT;
		at = c->nodes[at].seen_at[i].node;
		path = slash + 1;
	}
	*dir = at;
	*last = path;
	return 0;
}

static int find(struct crash_fs *c, const char *path, int *node)
{
	const char *last;
	int dir, i, err = walk(c, path, &dir, &last);

	if (err)
		return err;
	if (!*last) {
		*node = dir;
		return 0;
	}
	i = look_in(c->nodes[dir].seen_at, last, strlen(last));
	if (i < 0)
		return GW_ENOENT;
	*node = c->nodes[dir].seen_at[i].node;
	return 0;
}

static int new_node(struct crash_fs *c, int is_dir)
{
	struct node *n;
	int i = 1;

	while (i < NODES && c->nodes[i].used)
		i++;
	assert(i < NODES);
	n = &c->nodes[i];
	memset(n, 0, sizeof *n);
	n->used = 1;
	n->is_dir = is_dir;
	for (int k = 0; k < ENTRIES; k++)
		n->seen_at[k].node = n->disk_at[k].node = -1;
	return i;
}

static void change(struct crash_fs *c, int dir, const char *name, int node, int from_dir, const char *from)
{
	struct change *ch;

	assert(c->change_count < CHANGES);
	ch = &c->changes[c->change_count++];
	ch->dir = dir;
	ch->node = node;
	ch->from_dir = from_dir;
	(void)strcpy(ch->name, name);
	(void)strcpy(ch->from, from);
	if (from_dir >= 0)
		set_entry(c->nodes[from_dir].seen_at, from, -1);
	set_entry(c->nodes[dir].seen_at, name, node);
}

static void apply_to_disk(struct crash_fs *c, const struct change *ch)
{
	/* A rename whose source was never written cannot have been written either. */
	if (ch->from_dir >= 0) {
		if (look_in(c->nodes[ch->from_dir].disk_at, ch->from, strlen(ch->from)) < 0)
			set_entry(c->nodes[ch->from_dir].disk_at, ch->from, ch->node);
		set_entry(c->nodes[ch->from_dir].disk_at, ch->from, -1);
	}
	set_entry(c->nodes[ch->dir].disk_at, ch->name, ch->node);
}

/* --- dying --- */

enum verdict { DO_IT, DO_HALF, DO_NOTHING };

/* Counts an operation; says how much of it happens. *err is what the caller returns after that. */
static enum verdict operation(struct crash_fs *c, int *err)
{
	*err = 0;
	if (c->dead) {
		*err = GW_EIO;
		return DO_NOTHING;
	}
	c->ops++;
	if (c->ops == c->die_at) {
		c->dead = 1;
		*err = GW_EIO;
		return (enum verdict)gw_rng_below(&c->rng, 3);
	}
	if (c->ops == c->fail_at) {
		*err = c->fail_err;
		return DO_HALF;
	}
	return DO_IT;
}

/* --- files --- */

static void grow(struct node *n, uint64_t size)
{
	uint64_t cap = sectors(size) * SECTOR;

	if (cap <= n->cap)
		return;
	n->seen = realloc(n->seen, cap);
	n->disk = realloc(n->disk, cap);
	n->dirty = realloc(n->dirty, sectors(cap));
	assert(n->seen && n->disk && n->dirty);
	memset(n->seen + n->cap, 0, cap - n->cap);
	memset(n->disk + n->cap, 0, cap - n->cap);
	memset(n->dirty + sectors(n->cap), 0, sectors(cap) - sectors(n->cap));
	n->cap = cap;
}

static int c_open(struct gw_fs *fs, const char *path, unsigned flags, struct gw_file **out)
{
	struct crash_fs *c = of(fs);
	struct gw_file *f;
	const char *last;
	int node, dir, err;

	if (c->dead)
		return GW_EIO;
	err = find(c, path, &node);
	if (!err && flags & GW_OPEN_CREATE && flags & GW_OPEN_EXCL)
		return GW_EEXIST;
	if (err == GW_ENOENT && flags & GW_OPEN_CREATE) {
		err = walk(c, path, &dir, &last);
		if (err)
			return err;
		if (c->full_err)
			return c->full_err;
		if (operation(c, &err) == DO_IT || (c->dead && err)) {
			node = new_node(c, 0);
			change(c, dir, last, node, -1, "");
		}
	}
	if (err)
		return err;
	f = malloc(sizeof *f);
	assert(f);
	f->node = node;
	f->flags = flags;
	c->nodes[node].opened++;
	*out = f;
	return 0;
}

static void c_close(struct gw_fs *fs, struct gw_file *f)
{
	of(fs)->nodes[f->node].opened--;
	free(f);
}

static int c_pread(struct gw_fs *fs, struct gw_file *f, void *p, size_t n, uint64_t at)
{
	struct node *node = &of(fs)->nodes[f->node];

	if (of(fs)->dead)
		return GW_EIO;
	if (node->is_dir)
		return GW_EINVAL;
	if (at > node->seen_size || n > node->seen_size - at)
		return GW_ETRUNC;
	memcpy(p, node->seen + at, n);
	return 0;
}

static int c_pwrite(struct gw_fs *fs, struct gw_file *f, const void *p, size_t n, uint64_t at)
{
	struct crash_fs *c = of(fs);
	struct node *node = &c->nodes[f->node];
	enum verdict v;
	int err;

	assert(f->flags & GW_OPEN_WRITE);
	if (c->full_err && !c->dead)
		return c->full_err;
	v = operation(c, &err);
	if (v == DO_NOTHING)
		return err;
	if (v == DO_HALF)
		n /= 2;
	if (!n)
		return err;
	grow(node, at + n);
	memcpy(node->seen + at, p, n);
	memset(node->dirty + at / SECTOR, 1, sectors(at + n) - at / SECTOR);
	if (at + n > node->seen_size) {
		node->seen_size = at + n;
		node->size_dirty = 1;
	}
	return err;
}

static int c_resize(struct gw_fs *fs, struct gw_file *f, uint64_t size)
{
	struct crash_fs *c = of(fs);
	struct node *node = &c->nodes[f->node];
	int err;

	if (operation(c, &err) != DO_IT)
		return err;
	grow(node, size);
	if (size < node->seen_size) {
		memset(node->seen + size, 0, node->seen_size - size);
		memset(node->dirty + size / SECTOR, 1, sectors(node->seen_size) - size / SECTOR);
	}
	node->seen_size = size;
	node->size_dirty = 1;
	return 0;
}

/* All, or where the process dies in it or it fails, some. */
static int c_sync(struct gw_fs *fs, struct gw_file *f)
{
	struct crash_fs *c = of(fs);
	struct node *node = &c->nodes[f->node];
	int err;
	enum verdict v = operation(c, &err);
	int lost = err && !c->dead;

	if (v == DO_NOTHING)
		return err;
	for (uint64_t i = 0; i < sectors(node->cap); i++) {
		if (!node->dirty[i])
			continue;
		if (v == DO_IT || gw_rng_below(&c->rng, 2))
			memcpy(node->disk + i * SECTOR, node->seen + i * SECTOR, SECTOR);
		else if (!lost)
			continue;
		node->dirty[i] = 0;
	}
	if (v == DO_IT) {
		node->disk_size = node->seen_size;
		node->size_dirty = 0;
	}
	return err;
}

static void fill(const struct node *n, struct gw_stat *st)
{
	memset(st, 0, sizeof *st);
	st->type = n->is_dir ? GW_FILE_DIR : GW_FILE_REGULAR;
	st->size = n->seen_size;
	st->mode = 0644;
}

static int c_fstat(struct gw_fs *fs, struct gw_file *f, struct gw_stat *st)
{
	fill(&of(fs)->nodes[f->node], st);
	return of(fs)->dead ? GW_EIO : 0;
}

static int c_stat(struct gw_fs *fs, const char *path, struct gw_stat *st)
{
	int node, err = of(fs)->dead ? GW_EIO : find(of(fs), path, &node);

	if (!err)
		fill(&of(fs)->nodes[node], st);
	return err;
}

static int c_map(struct gw_fs *fs, struct gw_file *f, struct gw_mapping *m)
{
	struct node *node = &of(fs)->nodes[f->node];
	uint8_t *copy = malloc(node->seen_size + 1);

	assert(copy);
	memcpy(copy, node->seen, node->seen_size);
	*m = (struct gw_mapping){copy, node->seen_size, copy};
	return of(fs)->dead ? (free(copy), GW_EIO) : 0;
}

static int c_mapping_check(struct gw_fs *fs, const struct gw_mapping *m)
{
	(void)fs;
	(void)m;
	return 0;
}

static int c_unmap(struct gw_fs *fs, struct gw_mapping *m)
{
	(void)fs;
	free(m->priv);
	memset(m, 0, sizeof *m);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int c_list(struct gw_fs *fs, const char *path, int (*each)(void *ctx, const char *name), void *ctx)
{
	struct crash_fs *c = of(fs);
	char names[ENTRIES][100];
	size_t n = 0;
	int node, r = c->dead ? GW_EIO : find(c, path, &node);

	if (r)
		return r;
	for (int i = 0; i < ENTRIES; i++) {
		if (c->nodes[node].seen_at[i].node >= 0)
			(void)strcpy(names[n++], c->nodes[node].seen_at[i].name);
	}
	qsort(names, n, sizeof names[0], by_name);
	for (size_t i = 0; !r && i < n; i++)
		r = each(ctx, names[i]);
	return r;
}

static int c_mkdir(struct gw_fs *fs, const char *path)
{
	struct crash_fs *c = of(fs);
	const char *last;
	int node, dir, err;

	if (c->dead)
		return GW_EIO;
	if (!find(c, path, &node))
		return GW_EEXIST;
	err = walk(c, path, &dir, &last);
	if (err)
		return err;
	if (c->full_err)
		return c->full_err;
	if (operation(c, &err) == DO_IT)
		change(c, dir, last, new_node(c, 1), -1, "");
	return err;
}

static int is_empty(const struct node *n)
{
	for (int i = 0; i < ENTRIES; i++) {
		if (n->seen_at[i].node >= 0)
			return 0;
	}
	return 1;
}

static int c_unlink(struct gw_fs *fs, const char *path)
{
	struct crash_fs *c = of(fs);
	const char *last;
	int node, dir, err;

	if (c->dead)
		return GW_EIO;
	err = find(c, path, &node);
	if (err)
		return err;
	if (c->nodes[node].is_dir && !is_empty(&c->nodes[node]))
		return GW_EEXIST;
	(void)walk(c, path, &dir, &last);
	if (operation(c, &err) == DO_IT)
		change(c, dir, last, -1, -1, "");
	return err;
}

static int c_rename(struct gw_fs *fs, const char *from, const char *to)
{
	struct crash_fs *c = of(fs);
	const char *from_last, *to_last;
	int node, there, from_dir, to_dir, err;

	if (c->dead)
		return GW_EIO;
	err = find(c, from, &node);
	if (!err)
		err = walk(c, to, &to_dir, &to_last);
	if (err)
		return err;
	if (!find(c, to, &there) && c->nodes[there].is_dir && !is_empty(&c->nodes[there]))
		return GW_EEXIST;
	(void)walk(c, from, &from_dir, &from_last);
	if (operation(c, &err) == DO_IT)
		change(c, to_dir, to_last, node, from_dir, from_last);
	return err;
}

static int c_symlink(struct gw_fs *fs, const char *target, const char *path)
{
	(void)fs;
	(void)target;
	(void)path;
	return GW_EUNSUP;
}

static int c_sync_dir(struct gw_fs *fs, const char *path)
{
	struct crash_fs *c = of(fs);
	size_t kept = 0;
	int node, err = c->dead ? GW_EIO : find(c, path, &node);

	if (err)
		return err;
	if (operation(c, &err) != DO_IT)
		return err;
	for (size_t i = 0; i < c->change_count; i++) {
		if (c->changes[i].dir == node || c->changes[i].from_dir == node)
			apply_to_disk(c, &c->changes[i]);
		else
			c->changes[kept++] = c->changes[i];
	}
	c->change_count = kept;
	return 0;
}

static uint64_t c_nonce(struct gw_fs *fs)
{
	return gw_rng_u64(&of(fs)->rng);
}

/* --- the test's side --- */

struct crash_fs *crash_fs_new(uint64_t seed)
{
	static const struct gw_fs_ops ops = {
		c_open, c_close,	 c_pread, c_pwrite, c_resize, c_sync,	c_fstat,   c_map,      c_mapping_check,
		c_unmap, c_stat,	 c_list,  c_mkdir,  c_unlink, c_rename, c_symlink, c_sync_dir, c_nonce,
	};
	struct crash_fs *c = calloc(1, sizeof *c);

	assert(c);
	c->fs.ops = &ops;
	gw_rng_init(&c->rng, seed);
	c->nodes[0].used = c->nodes[0].is_dir = 1;
	for (int k = 0; k < ENTRIES; k++)
		c->nodes[0].seen_at[k].node = c->nodes[0].disk_at[k].node = -1;
	return c;
}

void crash_fs_free(struct crash_fs *c)
{
	for (int i = 0; i < NODES; i++) {
		free(c->nodes[i].seen);
		free(c->nodes[i].disk);
		free(c->nodes[i].dirty);
	}
	free(c);
}

struct gw_fs *crash_fs_table(struct crash_fs *c)
{
	return &c->fs;
}

uint64_t crash_fs_ops(const struct crash_fs *c)
{
	return c->ops;
}

void crash_fs_die_at(struct crash_fs *c, uint64_t op)
{
	c->die_at = op ? c->ops + op : 0;
}

int crash_fs_dead(const struct crash_fs *c)
{
	return c->dead;
}

void crash_fs_fail_at(struct crash_fs *c, uint64_t op, int err)
{
	c->fail_at = c->ops + op;
	c->fail_err = err;
}

void crash_fs_full(struct crash_fs *c, int err)
{
	c->full_err = err;
}

/* Chance writes each dirty sector, and the length, or does not; then the disk is what is seen. */
static void cut_file(struct crash_fs *c, struct node *n)
{
	for (uint64_t i = 0; i < sectors(n->cap); i++) {
		if (n->dirty[i] && gw_rng_below(&c->rng, 2))
			memcpy(n->disk + i * SECTOR, n->seen + i * SECTOR, SECTOR);
	}
	if (n->size_dirty && gw_rng_below(&c->rng, 2))
		n->disk_size = n->seen_size;
	if (n->disk_size < n->cap)
		memset(n->disk + n->disk_size, 0, n->cap - n->disk_size);
}

void crash_fs_reboot(struct crash_fs *c, int power_cut)
{
	for (size_t i = 0; power_cut && i < c->change_count; i++) {
		if (gw_rng_below(&c->rng, 2))
			apply_to_disk(c, &c->changes[i]);
	}
	for (int i = 0; i < NODES; i++) {
		struct node *n = &c->nodes[i];

		assert(!n->opened);
		if (!power_cut || !n->used)
			continue;
		cut_file(c, n);
		if (n->cap) {
			memcpy(n->seen, n->disk, n->cap);
			memset(n->dirty, 0, sectors(n->cap));
		}
		n->seen_size = n->disk_size;
		n->size_dirty = 0;
		memcpy(n->seen_at, n->disk_at, sizeof n->seen_at);
	}
	if (power_cut)
		c->change_count = 0;
	c->ops = c->die_at = c->fail_at = 0;
	c->dead = c->full_err = 0;
}

void crash_fs_damage(struct crash_fs *c, const char *path, uint64_t byte)
{
	int node, err = find(c, path, &node);

	assert(!err && byte < c->nodes[node].seen_size);
	c->nodes[node].seen[byte] ^= 1;
	c->nodes[node].disk[byte] ^= 1;
}
