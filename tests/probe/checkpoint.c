/* Lists checkpoints as tests/py/checkpoint_ref.py does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/os/fs_os.h"
#include "weights/checkpoint.h"

static void put_tensor(const struct gw_checkpoint *c, const char *what, const struct gw_tensor *t)
{
	(void)printf("%s %s %s [", what, t->name, gw_dtype_name((enum gw_dtype)t->dtype));
	for (unsigned i = 0; i < t->rank; i++)
		(void)printf("%s%" PRIu64, i ? "," : "", t->shape[i]);
	(void)printf("] %s %" PRIu64 " %" PRIu64 "\n", gw_checkpoint_shard(c, t->shard)->name, t->offset, t->bytes);
}

static void list(const struct gw_checkpoint *c)
{
	for (uint32_t i = 0; i < gw_checkpoint_tensors(c); i++)
		put_tensor(c, "tensor", gw_checkpoint_tensor(c, i));
	for (uint32_t i = 0; i < gw_checkpoint_shards(c); i++) {
		const struct gw_shard *s = gw_checkpoint_shard(c, i);

		for (uint32_t k = 0; k < s->carried_count; k++)
			put_tensor(c, "carried", &s->carried[k]);
	}
	for (uint32_t i = 0; i < gw_checkpoint_others(c); i++)
		(void)printf("other %s %" PRIu64 "\n", gw_checkpoint_other(c, i)->name,
			     gw_checkpoint_other(c, i)->bytes);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct gw_diag why = {""};
		struct gw_checkpoint *c;

		(void)printf("checkpoint %s\n", argv[i]);
		if (gw_checkpoint_open(&c, gw_fs_os(), argv[i], &why)) {
			(void)printf("refused\n");
			(void)fprintf(stderr, "%s\n", why.text);
		} else {
			list(c);
		}
		gw_checkpoint_close(c);
	}
	return EXIT_SUCCESS;
}
