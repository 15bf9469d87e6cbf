#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/publish.h"
#include "io/os/store_impl.h"

static const char magic[8] = "GWHAVE1";

static size_t file_bytes(uint32_t pieces)
{
	return sizeof magic + 32 + 4 + gw_bitmap_bytes(pieces) + 32;
}

int gw_have_save(struct gw_fs *fs, const char *folder, const struct gw_digest *id, uint32_t pieces,
		 const uint8_t *bitmap, struct gw_diag *why)
{
	struct gw_digest check;
	struct gw_wr w;
	char *path = gw_path_join(folder, "have");
	int err;

	gw_wr_init(&w, file_bytes(pieces));
	gw_wr_bytes(&w, magic, sizeof magic);
	gw_wr_bytes(&w, id->b, sizeof id->b);
	gw_wr_u32(&w, pieces);
	gw_wr_bytes(&w, bitmap, gw_bitmap_bytes(pieces));
	gw_digest_of(w.p, w.n, &check);
	gw_wr_bytes(&w, check.b, sizeof check.b);
	err = path ? w.err : GW_ENOMEM;
	if (!err)
		err = gw_publish_bytes(fs, path, GW_PUBLISH_REPLACE, w.p, w.n, why);
	gw_wr_free(&w);
	free(path);
	return err;
}

static int parse(const uint8_t *p, size_t n, const struct gw_digest *id, uint32_t pieces, uint8_t *bitmap)
{
	size_t body = file_bytes(pieces) - 32;
	struct gw_digest check;

	if (n != body + 32 || memcmp(p, magic, sizeof magic) || memcmp(p + sizeof magic, id->b, sizeof id->b))
		return GW_EMALFORMED;
	gw_digest_of(p, body, &check);
	if (memcmp(check.b, p + body, 32))
		return GW_EDIGEST;
	memcpy(bitmap, p + sizeof magic + 32 + 4, gw_bitmap_bytes(pieces));
	/* Bits behind the last piece mean nothing; the digest says that we wrote them. */
	if (pieces % 8)
		bitmap[pieces / 8] &= (uint8_t)((1u << pieces % 8) - 1);
	return 0;
}

int gw_have_load(struct gw_fs *fs, const char *folder, const struct gw_digest *id, uint32_t pieces, uint8_t *bitmap)
{
	char *path = gw_path_join(folder, "have");
	uint8_t *p = NULL;
	size_t n = 0;
	int err = path ? gw_store_read_file(fs, path, file_bytes(pieces), &p, &n) : GW_ENOMEM;

	if (!err)
		err = parse(p, n, id, pieces, bitmap);
	free(p);
	free(path);
	return err;
}
