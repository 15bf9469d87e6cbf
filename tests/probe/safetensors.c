/* Lists safetensors files as tests/py/safetensors_ref.py does: names in hexadecimal, "refused" for what is odd. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/os/fs_os.h"
#include "weights/safetensors.h"

static void put_hex(const char *p, size_t n)
{
	(void)printf(n ? " " : " -");
	for (size_t i = 0; i < n; i++)
		(void)printf("%02x", (unsigned char)p[i]);
}

static int put_pair(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	(void)ctx;
	(void)printf("metadata");
	put_hex(key, key_len);
	put_hex(value, value_len);
	(void)printf("\n");
	return 0;
}

static void put_tensor(const struct gw_safetensors_tensor *t)
{
	(void)printf("tensor");
	put_hex(t->name, t->name_len);
	(void)printf(" %s [", gw_dtype_name((enum gw_dtype)t->dtype));
	for (unsigned i = 0; i < t->rank; i++)
		(void)printf("%s%" PRIu64, i ? "," : "", t->shape[i]);
	(void)printf("] %" PRIu64 " %" PRIu64 "\n", t->begin, t->begin + t->bytes);
}

static int list(const struct gw_mapping *m)
{
	struct gw_safetensors *s;
	int err;

	if (gw_safetensors_open(&s, m->p, m->n, m->n, NULL)) {
		(void)printf("refused\n");
		return 0;
	}
	err = gw_safetensors_metadata(s, put_pair, NULL);
	for (uint32_t i = 0; i < gw_safetensors_count(s); i++)
		put_tensor(gw_safetensors_at(s, i));
	gw_safetensors_free(s);
	return err;
}

int main(int argc, char **argv)
{
	struct gw_fs *fs = gw_fs_os();

	for (int i = 1; i < argc; i++) {
		struct gw_file *f;
		struct gw_mapping m;
		int err = gw_fs_open(fs, argv[i], GW_OPEN_READ, &f);

		if (!err) {
			err = gw_fs_map(fs, f, &m);
			gw_fs_close(fs, f);
		}
		if (!err) {
			(void)printf("file %s\n", argv[i]);
			err = list(&m);
			(void)gw_fs_unmap(fs, &m);
		}
		if (err) {
			(void)fprintf(stderr, "%s: %s\n", argv[i], gw_err_text(err));
			return EXIT_FAILURE;
		}
	}
	return EXIT_SUCCESS;
}
