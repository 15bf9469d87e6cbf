/* Reading a patch's tables: proto/PATCH.md, "Tables". All lengths and counts are checked here, once. */
#include <string.h>

#include "base/err.h"
#include "base/publish.h"
#include "patch/inside.h"

enum {
	TENSOR_ROW_MIN = 2 + 1 + 4 + 16, /* bytes that the smallest row takes */
	FILE_ROW_MIN = 2 + 1 + 1,
	CARRIED_ROW_MIN = 1 + 1 + 1 + 1 + GW_FILE_DIGEST_BYTES,
	MODEL_ROW_MIN = 1 + 1 + 2 + 8 + 18, /* with all its tables empty */
};

/* As safetensors counts, in bits: nothing overflows later. */
#define BYTES_MAX (UINT64_MAX / 16)

/* Where reading is. `at`: where the next body begins; a body ends at `bodies_end` at the latest. */
struct reading {
	struct gw_patch *pt;
	struct gw_rd r;
	uint64_t at, bodies_end;
	const char *table; /* for messages */
	const char *name;  /* of the row, or NULL */
	struct gw_diag *why;
};

static int odd(struct reading *g, int err, const char *what)
{
	if (g->name)
		return gw_diag_set(g->why, err, "patch file: %s %s: %s", g->table, g->name, what);
	return gw_diag_set(g->why, err, "patch file: its table of %ss: %s", g->table, what);
}

/* The reader's error, as a message. */
static int reader_error(struct reading *g)
{
	return g->r.err ? odd(g, g->r.err, gw_err_text(g->r.err)) : 0;
}

static void *take(struct reading *g, size_t count, size_t size)
{
	void *p = gw_arena_array(&g->pt->arena, count, size);

	if (!p)
		gw_rd_fail(&g->r, GW_ENOMEM);
	return p;
}

/* Room for a table of so many rows, refused where its rows could not fit into what is left. */
static void *rows(struct reading *g, uint64_t count, size_t row_min, size_t size)
{
	if (count > gw_rd_left(&g->r) / row_min)
		gw_rd_fail(&g->r, GW_ETRUNC);
	return g->r.err ? NULL : take(g, count, size);
}

/* Strict UTF-8 (RFC 3629) without NUL: names become C strings and JSON. */
static int is_text(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		unsigned more = p[i] < 0x80 ? 0 : p[i] >> 5 == 6 ? 1 : p[i] >> 4 == 14 ? 2 : p[i] >> 3 == 30 ? 3 : 9;
		static const uint32_t least[] = {1, 0x80, 0x800, 0x10000};
		uint32_t c = more ? p[i] & (0x3fu >> more) : p[i];

		if (more > 3 || more >= n - i)
			return 0;
		for (unsigned k = 1; k <= more; k++) {
			if (p[i + k] >> 6 != 2)
				return 0;
			c = c << 6 | (p[i + k] & 0x3f);
		}
		if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
			return 0;
		i += more + 1;
	}
	return 1;
}

/* The front-coded name of a row; `last` is the row's before, NULL in the first. */
static const char *read_name(struct reading *g, const char *last, size_t max)
{
	size_t last_n = last ? strlen(last) : 0;
	uint64_t shared = gw_rd_varint(&g->r), more = gw_rd_varint(&g->r);
	const uint8_t *tail;
	char *name;

	g->name = NULL;
	if (!g->r.err && (shared > last_n || more > max || shared + more > max || !more))
		gw_rd_fail(&g->r, GW_EMALFORMED);
	tail = gw_rd_bytes(&g->r, more);
	/* A name has one form: it shares all it can. */
	if (tail && shared < last_n && tail[0] == (uint8_t)last[shared])
		gw_rd_fail(&g->r, GW_EMALFORMED);
	name = tail && !g->r.err ? take(g, shared + more + 1, 1) : NULL;
	if (!name)
		return NULL;
	if (shared)
		memcpy(name, last, shared);
	memcpy(name + shared, tail, more);
	if (!is_text((const uint8_t *)name, shared + more) || (last && strcmp(last, name) >= 0)) {
		gw_rd_fail(&g->r, GW_EMALFORMED);
		return NULL;
	}
	g->name = name;
	return name;
}

/* A body's length: its offset is where the one before ends. raw: bytes that it stands for. */
static uint64_t read_length(struct reading *g, uint64_t raw, int may_be_none)
{
	uint64_t n = gw_rd_varint(&g->r);

	if (n ? n <= GW_BODY_EXTRA || n > raw + GW_BODY_EXTRA : !may_be_none)
		gw_rd_fail(&g->r, GW_EMALFORMED);
	if (n > g->bodies_end - g->at)
		gw_rd_fail(&g->r, GW_ETRUNC);
	if (!g->r.err)
		g->at += n;
	return g->at;
}

static void read_blob(struct reading *g, struct gw_patch_blob *b, uint64_t bytes, unsigned width)
{
	uint64_t chunks = gw_patch_chunks(bytes), *at;

	b->bytes = bytes;
	b->width = (uint8_t)width;
	at = chunks < UINT32_MAX ? rows(g, chunks, 1, 0) : NULL; /* each length has a byte at least */
	at = at ? take(g, chunks + 1, sizeof *at) : NULL;
	if (!at) {
		gw_rd_fail(&g->r, GW_ELIMIT);
		return;
	}
	at[0] = g->at;
	for (uint64_t i = 0; i < chunks && !g->r.err; i++)
		at[i + 1] = read_length(g, gw_patch_chunk_bytes(bytes, i), 0);
	b->chunks = (uint32_t)chunks;
	b->at = at;
}

static void read_tiles(struct reading *g, struct gw_patch_tensor *t)
{
	uint64_t *at = rows(g, t->tiling.count, 1, 0);

	at = at ? take(g, (size_t)t->tiling.count + 1, sizeof *at) : NULL;
	if (!at)
		return;
	at[0] = g->at;
	for (uint32_t i = 0; i < t->tiling.count && !g->r.err; i++) {
		struct gw_tile_rect r;

		gw_tiling_rect(&t->tiling, i, &r);
		at[i + 1] = read_length(g, r.rows * r.cols * t->width, 1);
	}
	t->tiles = t->tiling.count;
	t->tile_at = at;
}

static void read_print(struct reading *g, uint64_t lane[2])
{
	lane[0] = gw_rd_u64(&g->r);
	lane[1] = gw_rd_u64(&g->r);
}

/* dtype, rank, axis, shape, and what follows from them. */
static int read_shape(struct reading *g, struct gw_patch_tensor *t)
{
	uint64_t *shape;
	int err = 0;

	t->dtype = (enum gw_dtype)gw_rd_u8(&g->r);
	t->rank = gw_rd_u8(&g->r);
	t->axis = gw_rd_u8(&g->r);
	t->width = gw_dtype_width(t->dtype);
	if (!g->r.err && (!t->width || t->rank > GW_PATCH_RANK_MAX))
		return odd(g, GW_EMALFORMED, "unknown dtype, or too many dimensions");
	shape = take(g, t->rank, sizeof *shape);
	for (unsigned i = 0; shape && i < t->rank; i++)
		shape[i] = gw_rd_varint(&g->r);
	if (g->r.err)
		return reader_error(g);
	t->shape = shape;
	err = gw_tiling_init(&t->tiling, t->dtype, t->rank, shape, t->axis);
	if (err)
		return odd(g, err == GW_EINVAL ? GW_EMALFORMED : err, "an impossible shape or axis");
	t->elements = t->tiling.rows * t->tiling.cols;
	err = gw_mul_u64(t->elements, t->width, &t->bytes);
	if (!err && t->bytes > BYTES_MAX)
		err = GW_EOVERFLOW;
	return err ? odd(g, err, "more bytes than can be") : 0;
}

static int read_tensor(struct reading *g, struct gw_patch_tensor *t, const char *last, uint8_t *rule)
{
	uint64_t before = g->at;
	uint8_t kind;
	int err;

	t->name = read_name(g, last, GW_PATCH_NAME_MAX);
	kind = gw_rd_u8(&g->r);
	t->kind = (enum gw_patch_tensor_kind)(kind & 15);
	*rule = kind >> 4;
	err = g->r.err ? reader_error(g) : read_shape(g, t);
	if (err)
		return err;
	switch (t->kind) {
	case GW_TENSOR_CHANGED:
		read_print(g, t->print_old);
		read_print(g, t->print_new);
		t->changed = gw_rd_varint(&g->r);
		if (!g->r.err && (!t->changed || t->changed > t->elements))
			return odd(g, GW_EMALFORMED, "an impossible count of changes");
		read_tiles(g, t);
		break;
	case GW_TENSOR_WHOLE:
		read_print(g, t->print_new);
		t->changed = t->elements;
		read_blob(g, &t->blob, t->bytes, t->width);
		break;
	case GW_TENSOR_REMOVED:
		read_print(g, t->print_old);
		break;
	default:
		return odd(g, GW_EMALFORMED, "unknown kind");
	}
	if (*rule && t->kind != GW_TENSOR_CHANGED)
		return odd(g, GW_EMALFORMED, "a companion of what is not changed");
	if (g->pt->info.anchor && t->kind != GW_TENSOR_WHOLE)
		return odd(g, GW_EMALFORMED, "a change in a patch from nothing");
	t->coded_bytes = g->at - before;
	return reader_error(g);
}

/* fresh, size, digest, blob: what a file and a carried tensor have alike. */
static int read_stored(struct reading *g, int *fresh, uint64_t *bytes, uint64_t max, uint8_t *digest,
		       struct gw_patch_blob *blob)
{
	uint8_t flag = gw_rd_u8(&g->r);

	*bytes = gw_rd_varint(&g->r);
	gw_rd_copy(&g->r, digest, GW_FILE_DIGEST_BYTES);
	if (!g->r.err && (flag > 1 || *bytes > max || (g->pt->info.anchor && !flag)))
		return odd(g, GW_EMALFORMED, "an impossible size, or bytes of a base that is none");
	*fresh = flag;
	if (flag)
		read_blob(g, blob, *bytes, 1);
	return reader_error(g);
}

static int read_carried(struct reading *g, struct gw_patch_file *f)
{
	uint64_t count;
	struct gw_patch_carried *c;
	int err = 0;

	f->data_bytes = gw_rd_varint(&g->r);
	if (f->data_bytes > BYTES_MAX)
		return odd(g, GW_EOVERFLOW, "more bytes than can be");
	count = gw_rd_varint(&g->r);
	c = rows(g, count, CARRIED_ROW_MIN, sizeof *c);
	for (uint64_t i = 0; c && !err && i < count; i++) {
		size_t n = gw_rd_varint(&g->r);
		const uint8_t *p = n && n <= GW_PATCH_NAME_MAX ? gw_rd_bytes(&g->r, n) : NULL;

		if (!p || !is_text(p, n))
			gw_rd_fail(&g->r, GW_EMALFORMED);
		c[i].name = g->r.err ? NULL : gw_arena_copy(&g->pt->arena, p, n);
		if (!c[i].name || (i && strcmp(c[i - 1].name, c[i].name) >= 0))
			gw_rd_fail(&g->r, GW_EMALFORMED);
		err = reader_error(g);
		if (!err)
			err = read_stored(g, &c[i].fresh, &c[i].bytes, BYTES_MAX, c[i].digest, &c[i].blob);
	}
	f->carried = c;
	f->carried_count = (uint32_t)count;
	return err ? err : reader_error(g);
}

static int read_file(struct reading *g, struct gw_patch_file *f, const char *last)
{
	int err;

	f->name = read_name(g, last, GW_FILE_NAME_MAX);
	f->kind = (enum gw_patch_file_kind)gw_rd_u8(&g->r);
	if (g->r.err)
		return reader_error(g);
	if (!gw_path_is_plain(f->name))
		return odd(g, GW_EMALFORMED, "not a plain name");
	switch (f->kind) {
	case GW_PATCH_SHARD:
		err = read_stored(g, &f->fresh, &f->bytes, GW_PATCH_SHARD_HEADER_MAX, f->digest, &f->blob);
		return err ? err : read_carried(g, f);
	case GW_PATCH_OTHER:
		return read_stored(g, &f->fresh, &f->bytes, GW_PATCH_OTHER_MAX, f->digest, &f->blob);
	case GW_PATCH_GONE:
		return g->pt->info.anchor ? odd(g, GW_EMALFORMED, "gone from a base that is none") : 0;
	default:
		return odd(g, GW_EMALFORMED, "unknown kind");
	}
}

static int read_models(struct reading *g, uint32_t count)
{
	unsigned last = 0;
	int err = 0;

	g->table = "model";
	(void)rows(g, count, MODEL_ROW_MIN, 0);
	for (uint32_t i = 0; i < count && !err && !g->r.err; i++) {
		unsigned dtype = gw_rd_u8(&g->r);

		if (dtype <= last || dtype >= GW_PATCH_DTYPES || !gw_dtype_width((enum gw_dtype)dtype))
			return odd(g, GW_EMALFORMED, "unknown dtype, or out of order");
		err = gw_model_read(&g->pt->model[dtype], (enum gw_dtype)dtype, &g->r);
		last = dtype;
	}
	if (err)
		return odd(g, err, "no model");
	return reader_error(g);
}

/* Companions, once all rows are there. */
static int find_companion(struct reading *g, struct gw_patch_tensor *t, unsigned rule)
{
	char name[GW_COMPANION_NAME_MAX];
	const struct gw_patch_tensor *c;

	if (!rule)
		return 0;
	g->name = t->name;
	c = gw_companion_name(rule, t->name, name) ? NULL : gw_patch_find(g->pt, name);
	if (!c || c->kind != GW_TENSOR_CHANGED || gw_companion_fits(t->dtype, t->elements, c->elements))
		return odd(g, GW_EMALFORMED, "no such companion");
	t->companion = c;
	return 0;
}

static int read_tensors(struct reading *g, uint32_t count)
{
	struct gw_patch_info *info = &g->pt->info;
	struct gw_patch_tensor *t;
	uint8_t *rules;
	int err = 0;

	g->table = "tensor";
	t = g->pt->tensors = rows(g, count, TENSOR_ROW_MIN, sizeof *t);
	rules = t ? take(g, count, sizeof *rules) : NULL;
	for (uint32_t i = 0; rules && !err && i < count; i++) {
		err = read_tensor(g, &t[i], i ? t[i - 1].name : NULL, &rules[i]);
		if (err)
			break;
		if (gw_add_u64(info->changed, t[i].changed, &info->changed) ||
		    gw_add_u64(info->named_elements, t[i].kind == GW_TENSOR_REMOVED ? 0 : t[i].elements,
			       &info->named_elements))
			err = odd(g, GW_EOVERFLOW, "more elements than can be counted");
		info->tensors = i + 1;
	}
	for (uint32_t i = 0; rules && !err && !g->r.err && i < count; i++)
		err = find_companion(g, &t[i], rules[i]);
	/* No companion has one itself: its tiles can be decoded first. */
	for (uint32_t i = 0; rules && !err && !g->r.err && i < count; i++)
		if (t[i].companion && t[i].companion->companion)
			err = odd(g, GW_EMALFORMED, "a companion that has one itself");
	g->name = NULL;
	return err ? err : reader_error(g);
}

static int read_files(struct reading *g, uint32_t count)
{
	struct gw_patch_file *f;
	int err = 0;

	g->table = "file";
	f = g->pt->files = rows(g, count, FILE_ROW_MIN, sizeof *f);
	for (uint32_t i = 0; f && !err && i < count; i++) {
		err = read_file(g, &f[i], i ? f[i - 1].name : NULL);
		g->pt->info.files = i + 1;
	}
	g->name = NULL;
	return err ? err : reader_error(g);
}

int gw_patch_read_tables(struct gw_patch *pt, const struct gw_patch_counts *counts, uint64_t tables_at,
			 struct gw_diag *why)
{
	struct reading g = {.pt = pt, .at = GW_PATCH_HEADER, .bodies_end = tables_at, .why = why};
	int err;

	gw_rd_init(&g.r, pt->p + tables_at, pt->n - tables_at);
	err = read_models(&g, counts->models);
	if (!err)
		err = read_tensors(&g, counts->tensors);
	if (!err)
		err = read_files(&g, counts->files);
	if (err)
		return err;
	err = gw_rd_end(&g.r);
	if (err)
		return odd(&g, err, gw_err_text(err));
	if (g.at != g.bodies_end)
		return gw_diag_set(why, GW_EMALFORMED, "patch file: bodies that no table names");
	if (pt->info.changed != counts->changed || pt->info.elements < pt->info.named_elements)
		return gw_diag_set(why, GW_EMALFORMED, "patch file: counts of header and tables differ");
	return 0;
}
