#include "weights/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/publish.h"
#include "weights/checkpoint.h"
#include "weights/json.h"

enum { FILE_NAME_MAX = 255 };

struct parse {
	struct gw_json j;
	struct gw_index *x;
	struct gw_map ids;  /* file name to its number + 1 */
	struct gw_wr names; /* of tensors, each with its NUL */
	size_t *at;	    /* entry i's name in names, which moves while it grows */
	size_t cap;
};

static int add_file(struct parse *s, const char *file, size_t n, uint32_t *id)
{
	struct gw_index *x = s->x;
	void *known = gw_map_get(&s->ids, file, n);
	char **grown;

	if (known) {
		*id = (uint32_t)((uintptr_t)known - 1);
		return 0;
	}
	if (x->file_count == GW_CHECKPOINT_SHARDS_MAX)
		return gw_json_fail(&s->j, GW_ELIMIT, "weight_map names more than 1024 files");
	grown = realloc(x->files, (x->file_count + 1) * sizeof *grown);
	if (!grown)
		return gw_json_fail(&s->j, GW_ENOMEM, "out of memory");
	x->files = grown;
	grown[x->file_count] = strdup(file);
	if (!grown[x->file_count])
		return gw_json_fail(&s->j, GW_ENOMEM, "out of memory");
	*id = x->file_count++;
	return gw_map_put(&s->ids, file, n, (void *)((uintptr_t)*id + 1), NULL)
		       ? gw_json_fail(&s->j, GW_ENOMEM, "out of memory")
		       : 0;
}

static int reserve_entry(struct parse *s)
{
	size_t cap = s->cap ? 2 * s->cap : 256;
	struct gw_index_entry *entries;
	size_t *at;

	if (s->x->count == GW_SAFETENSORS_TENSORS_MAX)
		return gw_json_fail(&s->j, GW_ELIMIT, "more than 1048576 tensors");
	if (s->x->count < s->cap)
		return 0;
	entries = realloc(s->x->entries, cap * sizeof *entries);
	if (entries)
		s->x->entries = entries;
	at = entries ? realloc(s->at, cap * sizeof *at) : NULL;
	if (!at)
		return gw_json_fail(&s->j, GW_ENOMEM, "out of memory");
	s->at = at;
	s->cap = cap;
	return 0;
}

/* One pair of weight_map. */
static void read_pair(struct parse *s)
{
	char tensor[GW_SAFETENSORS_NAME_MAX + 1], file[FILE_NAME_MAX + 1];
	size_t n = gw_json_key(&s->j, tensor, GW_SAFETENSORS_NAME_MAX), m;
	int control = s->j.control;
	uint32_t id = 0;

	if (!s->j.err && n > GW_SAFETENSORS_NAME_MAX)
		(void)gw_json_fail(&s->j, GW_ELIMIT, "a tensor's name is longer than 4096 bytes");
	m = gw_json_string(&s->j, file, FILE_NAME_MAX);
	if (s->j.err)
		return;
	tensor[n] = 0;
	file[m > FILE_NAME_MAX ? 0 : m] = 0;
	if (control || s->j.control)
		(void)gw_json_fail(&s->j, GW_EMALFORMED, "a name holds a control character");
	else if (!gw_path_is_plain(file))
		(void)gw_json_fail(&s->j, GW_EMALFORMED, "a file of weight_map is not a plain base name");
	if (s->j.err || reserve_entry(s) || add_file(s, file, m, &id))
		return;
	s->at[s->x->count] = s->names.n;
	s->x->entries[s->x->count++].file = id;
	gw_wr_bytes(&s->names, tensor, n + 1);
}

static int is(const char *key, size_t n, const char *what)
{
	return n == strlen(what) && !memcmp(key, what, n);
}

static void read_object(struct parse *s)
{
	int seen = 0;

	gw_json_open(&s->j, '{');
	while (gw_json_more(&s->j, '}')) {
		char key[16];
		size_t n = gw_json_key(&s->j, key, sizeof key);

		if (n > sizeof key || !is(key, n, "weight_map")) {
			gw_json_skip(&s->j);
			continue;
		}
		if (seen++)
			(void)gw_json_fail(&s->j, GW_EDUPLICATE, "weight_map occurs twice");
		gw_json_open(&s->j, '{');
		while (gw_json_more(&s->j, '}'))
			read_pair(s);
	}
	if (gw_json_peek(&s->j) >= 0)
		(void)gw_json_fail(&s->j, GW_ETRAILING, "something follows the object");
	if (!seen)
		(void)gw_json_fail(&s->j, GW_EMALFORMED, "weight_map is missing");
	if (s->names.err)
		(void)gw_json_fail(&s->j, s->names.err, "out of memory");
}

static int by_tensor(const void *a, const void *b)
{
	return strcmp(((const struct gw_index_entry *)a)->tensor, ((const struct gw_index_entry *)b)->tensor);
}

/* Entries get their names, their order, and no name twice. */
static int finish(struct parse *s, struct gw_diag *why)
{
	struct gw_index *x = s->x;
	uint8_t *names;
	size_t bytes;
	int err = gw_wr_take(&s->names, &names, &bytes);

	if (err)
		return err;
	x->names = (char *)names;
	for (size_t i = 0; i < x->count; i++)
		x->entries[i].tensor = x->names + s->at[i];
	if (x->count)
		qsort(x->entries, x->count, sizeof *x->entries, by_tensor);
	for (size_t i = 1; i < x->count; i++)
		if (!by_tensor(&x->entries[i - 1], &x->entries[i]))
			return gw_diag_set(why, GW_EDUPLICATE, "tensor %.200s occurs twice in weight_map",
					   x->entries[i].tensor);
	return 0;
}

int gw_index_parse(struct gw_index *out, const void *p, size_t n, struct gw_diag *why)
{
	struct parse s = {.x = out};
	int err;

	memset(out, 0, sizeof *out);
	gw_json_init(&s.j, p, n);
	/* Seeded by where it lies: who crafts names does not know that. */
	gw_map_init(&s.ids, (uintptr_t)&s ^ (uintptr_t)p);
	gw_wr_init(&s.names, n + 1);
	read_object(&s);
	err = s.j.err ? gw_diag_set(why, s.j.err, "byte %zu: %s", s.j.at, s.j.what) : finish(&s, why);
	gw_map_free(&s.ids, NULL);
	gw_wr_free(&s.names);
	free(s.at);
	if (err)
		gw_index_free(out);
	return err;
}

void gw_index_free(struct gw_index *x)
{
	for (uint32_t i = 0; i < x->file_count; i++)
		free(x->files[i]);
	free(x->files);
	free(x->entries);
	free(x->names);
	memset(x, 0, sizeof *x);
}
