#include "tools/cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "patch/disk.h"
#include "patch/fingerprint.h"
#include "tools/patch_report.h"

static json_t *as_json(const struct gw_checkpoint *c, uint64_t (*lanes)[2], const uint64_t model[2])
{
	json_t *o = json_object(), *rows = json_array();
	char text[GW_PRINT_TEXT];
	int bad = 0;

	for (uint32_t i = 0; i < gw_checkpoint_tensors(c); i++) {
		const struct gw_tensor *t = gw_checkpoint_tensor(c, i);
		json_t *shape = json_array();

		for (unsigned k = 0; k < t->rank; k++)
			(void)json_array_append_new(shape, json_u64(t->shape[k]));
		gw_print_text(text, lanes[i]);
		bad |= json_array_append_new(rows, json_pack("{s:s, s:s, s:o, s:o, s:s}", "name", t->name, "dtype",
							     gw_dtype_name((enum gw_dtype)t->dtype), "shape", shape,
							     "bytes", json_u64(t->bytes), "fingerprint", text));
	}
	gw_print_text(text, model);
	bad |= json_object_set_new(o, "fingerprint", json_string(text)) | json_object_set_new(o, "tensors", rows);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static void as_table(const struct gw_checkpoint *c, uint64_t (*lanes)[2], const uint64_t model[2])
{
	char text[GW_PRINT_TEXT];

	for (uint32_t i = 0; i < gw_checkpoint_tensors(c); i++) {
		const struct gw_tensor *t = gw_checkpoint_tensor(c, i);

		gw_print_text(text, lanes[i]);
		(void)printf("%s  %-8s  %12" PRIu64 "  %s\n", text, gw_dtype_name((enum gw_dtype)t->dtype), t->bytes,
			     t->name);
	}
	gw_print_text(text, model);
	(void)printf("%s  the whole: %u tensors\n", text, gw_checkpoint_tensors(c));
}

static int run(struct args *a)
{
	struct gw_checkpoint *c;
	uint64_t(*lanes)[2], model[2];
	struct gw_pool *pool = patch_pool(a);
	struct gw_progress *watch;
	int err;

	if (!pool)
		return a->why.text[0] ? GW_EINVAL : GW_ENOMEM;
	err = gw_checkpoint_open(&c, a->fs, a->pos[0], &a->why);
	if (err)
		return err;
	lanes = calloc((size_t)gw_checkpoint_tensors(c) + 1, sizeof *lanes);
	watch = progress_bar("fingerprint");
	gw_progress_expect(watch, gw_disk_bytes(c));
	err = lanes ? gw_disk_prints(c, pool, watch, lanes, model, &a->why) : GW_ENOMEM;
	progress_end();
	if (!err && arg_flag(a, "json"))
		err = print_json(as_json(c, lanes, model), &a->why);
	else if (!err)
		as_table(c, lanes, model);
	free(lanes);
	gw_checkpoint_close(c);
	return err;
}

static const struct opt opts[] = {
	{"threads", "N", "at most so many at once (default: one a core, up to 16)"},
	{"json", NULL, "as one JSON document"},
	{NULL, NULL, NULL},
};

const struct cmd cmd_fingerprint = {
	"fingerprint", "DIR", "of each tensor of a checkpoint, and of the whole", 1, 1, opts, run,
};
