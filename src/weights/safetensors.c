#include "weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "weights/json.h"

enum { LENGTH_BYTES = 8, MESSAGE_NAME_MAX = 200 };

static const char metadata_key[] = "__metadata__";

struct gw_safetensors {
	const uint8_t *header;
	size_t header_bytes; /* length, JSON and padding */
	size_t metadata_at;  /* in header: where the value of __metadata__ begins; 0 where there is none */
	uint32_t count;
	struct gw_safetensors_tensor *tensors; /* data order; heads the one allocation that holds all */
	uint64_t *dims;
	uint32_t *by_name;
	char *names;
};

/* What the header needs: counted by the first pass, and not exceeded by the second. */
struct needs {
	size_t tensors, dims, name_bytes, pairs, key_bytes, metadata_at;
};

/* A pass over the header. In the first `s` holds no arrays. */
struct pass {
	struct gw_json j;
	struct gw_safetensors *s;
	struct needs room, used;
	struct gw_diag *why;
	char name[GW_SAFETENSORS_NAME_MAX + 1]; /* of the tensor being read, for messages */
};

static int fail(struct pass *p, int err, const char *what)
{
	return gw_json_fail(&p->j, err, what);
}

/* How much of a name a message shows. */
static int shown(size_t n)
{
	return n > MESSAGE_NAME_MAX ? MESSAGE_NAME_MAX : (int)n;
}

int gw_tensor_bytes(enum gw_dtype dtype, unsigned rank, const uint64_t *shape, uint64_t *bytes)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < rank; i++)
		if (gw_mul_u64(n, shape[i], &n))
			return GW_EOVERFLOW;
	if (gw_mul_u64(n, gw_dtype_bits(dtype), &n))
		return GW_EOVERFLOW;
	if (n % 8)
		return GW_EMALFORMED;
	*bytes = n / 8;
	return 0;
}

/* --- the fields of a tensor ------------------------------------------------------------------- */

enum field { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7 };

static enum field field_of(const char *key, size_t n)
{
	static const struct {
		const char *name;
		enum field field;
	} fields[] = {{"dtype", FIELD_DTYPE}, {"shape", FIELD_SHAPE}, {"data_offsets", FIELD_OFFSETS}};

	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		if (strlen(fields[i].name) == n && !memcmp(fields[i].name, key, n))
			return fields[i].field;
	return 0;
}

static void read_dtype(struct pass *p, struct gw_safetensors_tensor *t)
{
	char text[16];
	size_t n = gw_json_string(&p->j, text, sizeof text);
	enum gw_dtype dtype = n <= sizeof text ? gw_dtype_parse(text, n) : GW_DT_NONE;

	if (p->j.err)
		return;
	if (dtype == GW_DT_NONE && n == 7 && !memcmp(text, "F6_", 3))
		(void)fail(p, GW_EUNSUP, "6-bit dtypes are not supported: no engine serves them");
	else if (dtype == GW_DT_NONE)
		(void)fail(p, GW_EUNKNOWN, "unknown dtype");
	t->dtype = (uint8_t)dtype;
}

static void read_shape(struct pass *p, struct gw_safetensors_tensor *t, uint64_t shape[GW_RANK_MAX])
{
	unsigned rank = 0;

	gw_json_open(&p->j, '[');
	while (gw_json_more(&p->j, ']')) {
		uint64_t size = gw_json_u64(&p->j);

		if (rank == GW_RANK_MAX)
			(void)fail(p, GW_ELIMIT, "more than 32 dimensions");
		else
			shape[rank++] = size;
	}
	t->rank = (uint8_t)rank;
}

static void read_offsets(struct pass *p, struct gw_safetensors_tensor *t)
{
	uint64_t at[2] = {0, 0};
	unsigned n = 0;

	gw_json_open(&p->j, '[');
	while (gw_json_more(&p->j, ']')) {
		uint64_t v = gw_json_u64(&p->j);

		if (n < 2)
			at[n] = v;
		n++;
	}
	if (n != 2)
		(void)fail(p, GW_EMALFORMED, "data_offsets are two numbers");
	else if (at[1] < at[0])
		(void)fail(p, GW_EMALFORMED, "data_offsets end before they begin");
	t->begin = at[0];
	t->bytes = at[1] - at[0];
}

static void check_size(struct pass *p, const struct gw_safetensors_tensor *t, const uint64_t *shape)
{
	uint64_t need = 0;
	int err;

	if (p->j.err)
		return;
	err = gw_tensor_bytes((enum gw_dtype)t->dtype, t->rank, shape, &need);
	if (err == GW_EOVERFLOW)
		(void)fail(p, err, "the shape's size overflows");
	else if (err)
		(void)fail(p, err, "4-bit elements do not fill whole bytes");
	else if (need != t->bytes)
		(void)fail(p, GW_EMALFORMED, "data_offsets do not agree with dtype and shape");
}

/* In the second pass: copies the tensor behind those that are there. */
static void keep(struct pass *p, struct gw_safetensors_tensor *t, const uint64_t *shape)
{
	struct gw_safetensors *s = p->s;
	uint64_t *dims = s->dims + p->used.dims;
	char *name = s->names + p->used.name_bytes;

	if (p->used.tensors >= p->room.tensors || t->rank > p->room.dims - p->used.dims ||
	    (size_t)t->name_len + 1 > p->room.name_bytes - p->used.name_bytes) {
		(void)fail(p, GW_EMALFORMED, "the header changed while it was read");
		return;
	}
	memcpy(dims, shape, t->rank * sizeof *dims);
	memcpy(name, p->name, t->name_len);
	name[t->name_len] = 0;
	t->shape = dims;
	t->name = name;
	s->tensors[p->used.tensors] = *t;
}

static void read_tensor(struct pass *p, size_t name_len)
{
	struct gw_safetensors_tensor t = {.name_len = (uint32_t)name_len};
	uint64_t shape[GW_RANK_MAX];
	unsigned seen = 0;

	gw_json_open(&p->j, '{');
	while (gw_json_more(&p->j, '}')) {
		char key[16];
		size_t n = gw_json_key(&p->j, key, sizeof key);
		enum field f = n <= sizeof key ? field_of(key, n) : 0;

		if (p->j.err)
			return;
		if (!f || seen & f) {
			(void)fail(p, f ? GW_EDUPLICATE : GW_EUNKNOWN, f ? "a field occurs twice" : "unknown field");
			return;
		}
		seen |= f;
		if (f == FIELD_DTYPE)
			read_dtype(p, &t);
		else if (f == FIELD_SHAPE)
			read_shape(p, &t, shape);
		else
			read_offsets(p, &t);
	}
	if (!p->j.err && seen != FIELD_ALL)
		(void)fail(p, GW_EMALFORMED, "dtype, shape or data_offsets is missing");
	check_size(p, &t, shape);
	if (!p->j.err && p->s->tensors)
		keep(p, &t, shape);
	p->used.tensors++;
	p->used.dims += t.rank;
	p->used.name_bytes += name_len + 1;
	if (!p->j.err && p->used.tensors > GW_SAFETENSORS_TENSORS_MAX)
		(void)fail(p, GW_ELIMIT, "more than 1048576 tensors");
}

/* Counts the pairs; that no key occurs twice is checked afterwards. */
static void read_metadata(struct pass *p)
{
	if (p->used.metadata_at) {
		(void)fail(p, GW_EDUPLICATE, "__metadata__ occurs twice");
		return;
	}
	p->used.metadata_at = p->j.at;
	gw_json_open(&p->j, '{');
	while (gw_json_more(&p->j, '}')) {
		p->used.key_bytes += gw_json_key(&p->j, NULL, 0);
		(void)gw_json_string(&p->j, NULL, 0);
		if (++p->used.pairs > GW_SAFETENSORS_TENSORS_MAX)
			(void)fail(p, GW_ELIMIT, "more than 1048576 pairs of metadata");
	}
}

static void read_member(struct pass *p)
{
	size_t n = gw_json_key(&p->j, p->name, GW_SAFETENSORS_NAME_MAX);

	if (!p->j.err && n > GW_SAFETENSORS_NAME_MAX)
		(void)fail(p, GW_ELIMIT, "a name is longer than 4096 bytes");
	if (!p->j.err && p->j.control)
		(void)fail(p, GW_EMALFORMED, "a name holds a control character");
	p->name[p->j.err ? 0 : n] = 0;
	if (p->j.err)
		return;
	if (n == sizeof metadata_key - 1 && !memcmp(p->name, metadata_key, n))
		read_metadata(p);
	else
		read_tensor(p, n);
	if (!p->j.err)
		p->name[0] = 0;
}

/* One pass over the JSON. On failure the message says where. */
static int read_header(struct pass *p)
{
	struct gw_json *j = &p->j;

	gw_json_init(j, p->s->header + LENGTH_BYTES, p->s->header_bytes - LENGTH_BYTES);
	memset(&p->used, 0, sizeof p->used);
	p->name[0] = 0;
	if (j->n && j->p[0] != '{')
		(void)gw_json_fail(j, GW_EMALFORMED, "the header does not begin with '{'");
	gw_json_open(j, '{');
	while (gw_json_more(j, '}'))
		read_member(p);
	while (!j->err && j->at < j->n)
		if (j->p[j->at] == ' ')
			j->at++;
		else
			(void)gw_json_fail(j, GW_ETRAILING, "only spaces may follow the header's object");
	if (!j->err)
		return 0;
	return gw_diag_set(p->why, j->err, "header, byte %zu%s%.*s: %s", j->at + LENGTH_BYTES,
			   p->name[0] ? ", at tensor " : "", shown(strlen(p->name)), p->name, j->what);
}

/* --- after the passes -------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct gw_safetensors_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	/* Names lie in the header's order: several empty tensors at one place keep it. */
	return x->name < y->name ? -1 : x->name > y->name;
}

static int sort_by_place(struct gw_safetensors *s, uint64_t data_bytes, struct gw_diag *why)
{
	uint64_t at = 0;

	for (uint32_t i = 1; i < s->count; i++)
		if (by_place(&s->tensors[i - 1], &s->tensors[i]) > 0) {
			qsort(s->tensors, s->count, sizeof *s->tensors, by_place);
			break;
		}
	for (uint32_t i = 0; i < s->count; i++) {
		const struct gw_safetensors_tensor *t = &s->tensors[i];

		if (t->begin != at)
			return gw_diag_set(
				why, GW_EMALFORMED,
				"tensor %.*s %s: it begins at byte %llu of the data, the one before ends at %llu",
				shown(t->name_len), t->name, t->begin < at ? "overlaps another" : "follows a hole",
				(unsigned long long)t->begin, (unsigned long long)at);
		/* begin + bytes is data_offsets' end, so it cannot overflow. */
		at += t->bytes;
	}
	if (at > data_bytes)
		return gw_diag_set(why, GW_ETRUNC, "truncated: the tensors need %llu bytes of data, the file has %llu",
				   (unsigned long long)at, (unsigned long long)data_bytes);
	if (at < data_bytes)
		return gw_diag_set(why, GW_ETRAILING, "%llu bytes follow the last tensor",
				   (unsigned long long)(data_bytes - at));
	return 0;
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct gw_safetensors_tensor *tensors = ctx;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return strcmp(tensors[x].name, tensors[y].name);
}

static int sort_by_name(struct gw_safetensors *s, struct gw_diag *why)
{
	int sorted = 1;

	for (uint32_t i = 0; i < s->count; i++) {
		s->by_name[i] = i;
		sorted = sorted && (!i || strcmp(s->tensors[i - 1].name, s->tensors[i].name) < 0);
	}
	if (sorted)
		return 0;
	qsort_r(s->by_name, s->count, sizeof *s->by_name, by_name, s->tensors);
	for (uint32_t i = 1; i < s->count; i++) {
		const struct gw_safetensors_tensor *t = &s->tensors[s->by_name[i]];

		if (!strcmp(s->tensors[s->by_name[i - 1]].name, t->name))
			return gw_diag_set(why, GW_EDUPLICATE, "tensor %.*s occurs twice", shown(t->name_len), t->name);
	}
	return 0;
}

/* A metadata key among the others, while duplicates are looked for. */
struct key {
	uint32_t at, n;
};

static int by_key(const void *a, const void *b, void *ctx)
{
	const struct key *x = a, *y = b;
	const char *bytes = ctx;
	int c = memcmp(bytes + x->at, bytes + y->at, x->n < y->n ? x->n : y->n);

	return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* Fills keys and bytes from the header; 0 where it has changed since they were counted. */
static int collect_keys(const struct gw_safetensors *s, const struct needs *needs, struct key *keys, char *bytes)
{
	struct gw_json j;
	size_t n = 0, used = 0;

	gw_json_init(&j, s->header, s->header_bytes);
	j.at = s->metadata_at;
	gw_json_open(&j, '{');
	while (gw_json_more(&j, '}') && n < needs->pairs) {
		size_t len = gw_json_key(&j, bytes + used, needs->key_bytes - used);

		(void)gw_json_string(&j, NULL, 0);
		if (j.err || len > needs->key_bytes - used)
			return 0;
		keys[n++] = (struct key){(uint32_t)used, (uint32_t)len};
		used += len;
	}
	return n == needs->pairs && !j.err;
}

static int check_metadata(struct gw_safetensors *s, const struct needs *needs, struct gw_diag *why)
{
	struct key *keys;
	char *bytes;
	int err = 0;

	if (needs->pairs < 2)
		return 0;
	keys = malloc(needs->pairs * sizeof *keys + needs->key_bytes);
	if (!keys)
		return GW_ENOMEM;
	bytes = (char *)(keys + needs->pairs);
	if (!collect_keys(s, needs, keys, bytes))
		err = gw_diag_set(why, GW_EMALFORMED, "the header changed while it was read");
	else
		qsort_r(keys, needs->pairs, sizeof *keys, by_key, bytes);
	for (size_t i = 1; i < needs->pairs && !err; i++)
		if (!by_key(&keys[i - 1], &keys[i], bytes))
			err = gw_diag_set(why, GW_EDUPLICATE, "a key of __metadata__ occurs twice");
	free(keys);
	return err;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* The length in front; header and header_bytes are set on success. */
static int find_header(struct gw_safetensors *s, const uint8_t *p, size_t n, uint64_t file_bytes, struct gw_diag *why)
{
	uint64_t json;

	if (n < LENGTH_BYTES || file_bytes < LENGTH_BYTES)
		return gw_diag_set(why, GW_ETRUNC, "truncated: no room for the header's length");
	json = gw_le64(p);
	if (json > GW_SAFETENSORS_HEADER_MAX)
		return gw_diag_set(why, GW_ELIMIT, "the header claims %llu bytes; the limit is %d",
				   (unsigned long long)json, GW_SAFETENSORS_HEADER_MAX);
	if (json > n - LENGTH_BYTES || json > file_bytes - LENGTH_BYTES)
		return gw_diag_set(why, GW_ETRUNC, "truncated: the header claims %llu bytes, %llu are there",
				   (unsigned long long)json,
				   (unsigned long long)gw_min_u64(n - LENGTH_BYTES, file_bytes - LENGTH_BYTES));
	s->header = p;
	s->header_bytes = LENGTH_BYTES + (size_t)json;
	return 0;
}

/* One block for all arrays; its size is bounded by the header's. */
static int allocate(struct gw_safetensors *s, const struct needs *needs)
{
	size_t tensors = needs->tensors * sizeof *s->tensors, dims = needs->dims * sizeof *s->dims;
	size_t order = needs->tensors * sizeof *s->by_name;
	char *p = malloc(tensors + dims + order + needs->name_bytes + 1);

	if (!p)
		return GW_ENOMEM;
	s->tensors = (void *)p;
	s->dims = (void *)(p + tensors);
	s->by_name = (void *)(p + tensors + dims);
	s->names = p + tensors + dims + order;
	return 0;
}

static int read_passes(struct pass *p, uint64_t data_bytes)
{
	struct gw_safetensors *s = p->s;
	int err = read_header(p);

	if (err)
		return err;
	p->room = p->used;
	err = allocate(s, &p->room);
	if (!err)
		err = read_header(p);
	if (!err && memcmp(&p->room, &p->used, sizeof p->room) != 0)
		err = gw_diag_set(p->why, GW_EMALFORMED, "the header changed while it was read");
	if (err)
		return err;
	s->count = (uint32_t)p->used.tensors;
	s->metadata_at = p->used.metadata_at ? p->used.metadata_at + LENGTH_BYTES : 0;
	err = sort_by_place(s, data_bytes, p->why);
	if (!err)
		err = sort_by_name(s, p->why);
	return err ? err : check_metadata(s, &p->used, p->why);
}

int gw_safetensors_open(struct gw_safetensors **out, const void *p, size_t n, uint64_t file_bytes, struct gw_diag *why)
{
	struct pass pass = {.s = calloc(1, sizeof *pass.s), .why = why};
	int err;

	*out = NULL;
	if (!pass.s)
		return GW_ENOMEM;
	err = find_header(pass.s, p, n, file_bytes, why);
	if (!err)
		err = read_passes(&pass, file_bytes - pass.s->header_bytes);
	if (err) {
		gw_safetensors_free(pass.s);
		return gw_diag_set(why, err, "%s", gw_err_text(err));
	}
	*out = pass.s;
	return 0;
}

void gw_safetensors_free(struct gw_safetensors *s)
{
	if (!s)
		return;
	free(s->tensors);
	free(s);
}

uint32_t gw_safetensors_count(const struct gw_safetensors *s)
{
	return s->count;
}

const struct gw_safetensors_tensor *gw_safetensors_at(const struct gw_safetensors *s, uint32_t i)
{
	return i < s->count ? &s->tensors[i] : NULL;
}

const struct gw_safetensors_tensor *gw_safetensors_by_name(const struct gw_safetensors *s, uint32_t i)
{
	return i < s->count ? &s->tensors[s->by_name[i]] : NULL;
}

const struct gw_safetensors_tensor *gw_safetensors_find(const struct gw_safetensors *s, const char *name)
{
	uint32_t low = 0, high = s->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct gw_safetensors_tensor *t = &s->tensors[s->by_name[mid]];
		int c = strcmp(t->name, name);

		if (!c)
			return t;
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

const uint8_t *gw_safetensors_header(const struct gw_safetensors *s, size_t *n)
{
	*n = s->header_bytes;
	return s->header;
}

int gw_safetensors_metadata(const struct gw_safetensors *s,
			    int (*each)(void *ctx, const char *key, size_t key_len, const char *value,
					size_t value_len),
			    void *ctx)
{
	struct gw_json j;
	/* Decoded strings are never longer than their text. */
	char *text = s->metadata_at ? malloc(s->header_bytes) : NULL;
	int ret = 0;

	if (!s->metadata_at)
		return 0;
	if (!text)
		return GW_ENOMEM;
	gw_json_init(&j, s->header, s->header_bytes);
	j.at = s->metadata_at;
	gw_json_open(&j, '{');
	while (!ret && gw_json_more(&j, '}')) {
		size_t key = gw_json_key(&j, text, s->header_bytes);
		size_t value = key <= s->header_bytes ? gw_json_string(&j, text + key, s->header_bytes - key) : 0;

		ret = j.err ? j.err : each(ctx, text, key, text + key, value);
	}
	free(text);
	return ret;
}
