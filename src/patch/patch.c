#include "patch/patch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "patch/inside.h"

static int check_digest(const struct gw_patch *pt, uint64_t tables_at, struct gw_diag *why)
{
	uint8_t d[GW_DIGEST_BYTES];
	struct gw_hash h;

	gw_hash_begin(&h);
	gw_hash_add(&h, pt->p, GW_PATCH_DIGESTED);
	gw_hash_add(&h, pt->p + tables_at, pt->n - tables_at);
	gw_hash_end(&h, d);
	if (memcmp(d, pt->p + GW_PATCH_DIGESTED, sizeof d))
		return gw_diag_set(why, GW_EDIGEST,
				   "patch file: header or tables are damaged: their digest does not match");
	return 0;
}

static int read_header(struct gw_patch *pt, struct gw_patch_counts *counts, uint64_t *tables_at, struct gw_diag *why)
{
	struct gw_patch_info *info = &pt->info;
	uint8_t magic[8];
	uint16_t version, flags;
	struct gw_rd r;

	gw_rd_init(&r, pt->p, pt->n);
	gw_rd_copy(&r, magic, sizeof magic);
	version = gw_rd_u16(&r);
	flags = gw_rd_u16(&r);
	counts->tensors = gw_rd_u32(&r);
	counts->files = gw_rd_u32(&r);
	counts->models = gw_rd_u32(&r);
	info->file_bytes = gw_rd_u64(&r);
	*tables_at = gw_rd_u64(&r);
	for (int i = 0; i < 2; i++)
		info->from_print[i] = gw_rd_u64(&r);
	for (int i = 0; i < 2; i++)
		info->to_print[i] = gw_rd_u64(&r);
	counts->changed = gw_rd_u64(&r);
	info->elements = gw_rd_u64(&r);
	info->bytes = gw_rd_u64(&r);
	(void)gw_rd_bytes(&r, GW_DIGEST_BYTES);
	if (pt->n >= sizeof magic && memcmp(magic, GW_PATCH_MAGIC, sizeof magic))
		return gw_diag_set(why, GW_EMALFORMED, "not a patch file");
	if (r.err)
		return gw_diag_set(why, r.err, "patch file: ends inside its header, at %zu bytes", pt->n);
	if (version != GW_PATCH_VERSION)
		return gw_diag_set(why, GW_EVERSION, "patch file: format version %u; this program knows %d", version,
				   GW_PATCH_VERSION);
	if (info->file_bytes > pt->n)
		return gw_diag_set(why, GW_ETRUNC, "patch file: ends at %zu of %llu bytes", pt->n,
				   (unsigned long long)info->file_bytes);
	if (info->file_bytes < pt->n)
		return gw_diag_set(why, GW_ETRAILING, "patch file: %llu bytes behind its end",
				   (unsigned long long)(pt->n - info->file_bytes));
	if (*tables_at < GW_PATCH_HEADER || *tables_at > pt->n)
		return gw_diag_set(why, GW_EMALFORMED, "patch file: its tables lie outside the file");
	if (pt->n - *tables_at > GW_PATCH_TABLES_MAX)
		return gw_diag_set(why, GW_ELIMIT, "patch file: tables of more than %d bytes", GW_PATCH_TABLES_MAX);
	info->anchor = flags & GW_PATCH_FROM_NOTHING;
	if (flags & ~GW_PATCH_FROM_NOTHING || (info->anchor && (info->from_print[0] | info->from_print[1])))
		return gw_diag_set(why, GW_EMALFORMED, "patch file: unknown flags in its header");
	return check_digest(pt, *tables_at, why);
}

int gw_patch_open(struct gw_patch **out, const void *p, size_t n, struct gw_diag *why)
{
	struct gw_patch_counts counts;
	struct gw_patch *pt = calloc(1, sizeof *pt);
	uint64_t tables_at;
	int err;

	if (!pt)
		return GW_ENOMEM;
	pt->p = p;
	pt->n = n;
	err = read_header(pt, &counts, &tables_at, why);
	if (!err) {
		/* The largest growth is that of the smallest rows; nothing here multiplies further. */
		gw_arena_init(&pt->arena, (n - (size_t)tables_at) * 64 + (1024 * 1024));
		err = gw_patch_read_tables(pt, &counts, tables_at, why);
	}
	if (err) {
		gw_patch_close(pt);
		return gw_diag_set(why, err, "patch file: %s", gw_err_text(err));
	}
	*out = pt;
	return 0;
}

void gw_patch_close(struct gw_patch *pt)
{
	if (!pt)
		return;
	for (unsigned i = 0; i < GW_PATCH_DTYPES; i++)
		gw_model_free(pt->model[i]);
	gw_arena_reset(&pt->arena);
	free(pt);
}

void gw_patch_info(const struct gw_patch *pt, struct gw_patch_info *info)
{
	*info = pt->info;
}

const struct gw_patch_tensor *gw_patch_tensor(const struct gw_patch *pt, uint32_t i)
{
	assert(i < pt->info.tensors);
	return &pt->tensors[i];
}

const struct gw_patch_file *gw_patch_file(const struct gw_patch *pt, uint32_t i)
{
	assert(i < pt->info.files);
	return &pt->files[i];
}

static int by_tensor_name(const void *name, const void *row)
{
	return strcmp(name, ((const struct gw_patch_tensor *)row)->name);
}

static int by_file_name(const void *name, const void *row)
{
	return strcmp(name, ((const struct gw_patch_file *)row)->name);
}

const struct gw_patch_tensor *gw_patch_find(const struct gw_patch *pt, const char *name)
{
	return pt->info.tensors ? bsearch(name, pt->tensors, pt->info.tensors, sizeof *pt->tensors, by_tensor_name)
				: NULL;
}

const struct gw_patch_file *gw_patch_find_file(const struct gw_patch *pt, const char *name)
{
	return pt->info.files ? bsearch(name, pt->files, pt->info.files, sizeof *pt->files, by_file_name) : NULL;
}
