/* `godwit verify DIR`: a checkpoint against the fingerprints that a manifest signs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patch/disk.h"
#include "patch/fingerprint.h"
#include "tools/verify.h"

/* Which tensors differ from the table, to stderr; the first goes into the message too. */
static int compare_tensors(struct verify *v, const struct gw_checkpoint *c, uint64_t (*lanes)[2], struct gw_tensor_table *t)
{
	struct gw_tensor_row row;
	uint32_t i = 0, count = gw_checkpoint_tensors(c), bad = 0;

	while (gw_tensor_table_next(t, &row)) {
		const struct gw_tensor *x = NULL;
		const char *what = NULL;

		/* Both are in rising order of names. */
		while (i < count) {
			const char *name = gw_checkpoint_tensor(c, i)->name;
			size_t n = strlen(name);
			int cmp = memcmp(name, row.name, n < row.name_bytes ? n : row.name_bytes);

			if (!cmp && n == row.name_bytes)
				x = gw_checkpoint_tensor(c, i);
			if (x || cmp > 0 || (!cmp && n > row.name_bytes))
				break;
			i++;
		}
		if (!x)
			what = "is missing";
		else if (x->dtype != row.dtype || x->rank != row.rank ||
			 (row.rank && memcmp(x->shape, row.shape, row.rank * sizeof row.shape[0]) != 0))
			what = "has another dtype or shape";
		else if (lanes[i][0] != row.print[0] || lanes[i][1] != row.print[1])
			what = "has other bits";
		if (!what)
			continue;
		if (bad++ < 20)
			(void)fprintf(stderr, "tensor %.*s %s\n", (int)row.name_bytes, row.name, what);
		(void)gw_diag_set(&v->a->why, GW_EFINGERPRINT, "tensor %.*s %s", (int)row.name_bytes, row.name, what);
	}
	return bad ? GW_EFINGERPRINT : 0;
}

static int compare_with_table(struct verify *v, const struct gw_checkpoint *c, uint64_t (*lanes)[2])
{
	const char *path = arg_value(v->a, "table");
	struct gw_tensor_table t;
	uint8_t *p = NULL;
	size_t n = 0;
	int err;

	if (!path)
		return 0;
	err = record_read(v->a, path, SIZE_MAX / 2, &p, &n);
	if (!err) {
		err = verify_open_table(v, p, n, &t);
		if (err)
			err = gw_diag_wrap(&v->a->why, err, "%s", path);
	}
	if (!err)
		err = compare_tensors(v, c, lanes, &t);
	free(p);
	return err;
}

static int compare_model(struct verify *v, const char *path, const uint64_t model[2])
{
	const struct gw_manifest *m = &v->manifest;
	char is[GW_PRINT_TEXT], should[GW_PRINT_TEXT], text[160];

	gw_print_text(is, model);
	gw_print_text(should, m->after.lane);
	if (strcmp(is, should) != 0)
		return gw_diag_set(&v->a->why, GW_EFINGERPRINT,
				   "not version %llu of policy %s: its fingerprint is %s, signed is %s%s", (unsigned long long)m->to,
				   m->policy, is, should, arg_value(v->a, "table") ? "" : "; --table FILE would name the tensors");
	(void)snprintf(text, sizeof text, "is version %llu of policy %s, fingerprint %s; good", (unsigned long long)m->to,
		       m->policy, is);
	verify_tell(v, path, "checkpoint",
	     json_pack("{s:s, s:o, s:s}", "policy", m->policy, "version", json_u64(m->to), "fingerprint", is), text);
	return 0;
}

int verify_checkpoint(struct verify *v, const char *path)
{
	struct gw_checkpoint *c = NULL;
	struct gw_pool *pool = NULL;
	struct gw_progress *watch;
	uint64_t (*lanes)[2] = NULL, model[2] = {0, 0};
	int err = verify_need_manifest(v, "checkpoint");

	if (!err)
		err = gw_checkpoint_open(&c, v->a->fs, path, &v->a->why);
	if (err)
		return err;
	pool = cmd_pool(v->a, 0);
	lanes = calloc(gw_checkpoint_tensors(c) + 1, sizeof *lanes);
	watch = progress_bar("verify");
	gw_progress_expect(watch, gw_disk_bytes(c));
	err = !pool || !lanes ? GW_ENOMEM : gw_disk_prints(c, pool, watch, lanes, model, &v->a->why);
	progress_end();
	if (!err)
		err = compare_with_table(v, c, lanes);
	if (!err)
		err = compare_model(v, path, model);
	free(lanes);
	gw_checkpoint_close(c);
	return err;
}
