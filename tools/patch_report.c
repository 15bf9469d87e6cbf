#include "tools/patch_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "patch/fingerprint.h"
#include "trust/signed.h"
#include "trust/tensor_table.h"

static int starts_with(const struct gw_mapping *map, const char *magic)
{
	return map->n >= GW_MAGIC_BYTES && !memcmp(map->p, magic, GW_MAGIC_BYTES);
}

int patch_file_open(struct patch_file *f, struct gw_fs *fs, const char *path, struct gw_diag *why)
{
	struct gw_file *file;
	size_t skip = 0;
	int err;

	*f = (struct patch_file){.fs = fs};
	err = gw_fs_open(fs, path, GW_OPEN_READ, &file);
	if (!err) {
		err = gw_fs_map(fs, file, &f->map);
		gw_fs_close(fs, file);
	}
	if (err)
		return gw_diag_set(why, err, "cannot read %s: %s", path, gw_err_text(err));
	if (starts_with(&f->map, GW_MAGIC_TENSORS))
		err = gw_tensor_table_measure(f->map.p, f->map.n, &skip, why);
	if (!err)
		err = gw_patch_open(&f->pt, f->map.p + skip, f->map.n - skip, why);
	if (err) {
		(void)gw_fs_unmap(fs, &f->map);
		return gw_diag_wrap(why, err, "%s", path);
	}
	return 0;
}

int patch_file_close(struct patch_file *f, const char *path, struct gw_diag *why)
{
	int err;

	gw_patch_close(f->pt);
	err = gw_fs_unmap(f->fs, &f->map);
	return err ? gw_diag_set(why, err, "%s: %s", path, gw_err_text(err)) : 0;
}

struct gw_pool *patch_pool(struct args *a)
{
	enum { MOST = 16, MOST_ASKED = 256 };
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t threads = cores < 1 ? 1 : cores > MOST ? MOST : (uint64_t)cores;

	return arg_u64(a, "threads", 1, MOST_ASKED, &threads) ? NULL : cmd_pool(a, (unsigned)threads);
}

static const char *kind_name(enum gw_patch_tensor_kind kind)
{
	return kind == GW_TENSOR_CHANGED ? "changed" : kind == GW_TENSOR_WHOLE ? "whole" : "removed";
}

static double bits_per_change(uint64_t bytes, uint64_t changed)
{
	return changed ? 8.0 * (double)bytes / (double)changed : 0.0;
}

static void count_modes(const struct gw_patch *pt, const struct gw_patch_tensor *t, uint32_t count[GW_MODE_COUNT])
{
	memset(count, 0, GW_MODE_COUNT * sizeof *count);
	for (uint32_t i = 0; i < t->tiles; i++) {
		enum gw_patch_mode m = gw_tile_mode(pt, t, i);

		if ((unsigned)m < GW_MODE_COUNT)
			count[m]++;
	}
}

static json_t *print_json_of(const uint64_t lane[2])
{
	char text[GW_PRINT_TEXT];

	gw_print_text(text, lane);
	return json_string(text);
}

static json_t *tensor_json(const struct gw_patch *pt, const struct gw_patch_tensor *t)
{
	json_t *o = json_object(), *shape = json_array(), *modes = json_object();
	uint32_t count[GW_MODE_COUNT];
	int bad;

	for (unsigned i = 0; i < t->rank; i++)
		(void)json_array_append_new(shape, json_u64(t->shape[i]));
	count_modes(pt, t, count);
	for (unsigned m = 0; m < GW_MODE_COUNT; m++)
		if (count[m])
			(void)json_object_set_new(modes, gw_patch_mode_name((enum gw_patch_mode)m), json_u64(count[m]));
	bad = json_object_set_new(o, "name", json_string(t->name)) |
	      json_object_set_new(o, "kind", json_string(kind_name(t->kind))) |
	      json_object_set_new(o, "dtype", json_string(gw_dtype_name(t->dtype))) |
	      json_object_set_new(o, "shape", shape) |
	      json_object_set_new(o, "axis", json_integer((json_int_t)t->axis)) |
	      json_object_set_new(o, "elements", json_u64(t->elements)) |
	      json_object_set_new(o, "changed", json_u64(t->changed)) |
	      json_object_set_new(o, "bytes", json_u64(t->coded_bytes)) | json_object_set_new(o, "tiles", modes) |
	      json_object_set_new(o, "before", t->kind == GW_TENSOR_WHOLE ? json_null() : print_json_of(t->print_old)) |
	      json_object_set_new(o, "after", t->kind == GW_TENSOR_REMOVED ? json_null() : print_json_of(t->print_new));
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static json_t *file_json(const struct gw_patch_file *f)
{
	static const char *const kinds[] = {"", "shard", "other", "gone"};
	json_t *name = json_string(f->name);

	/* A file's name need not be UTF-8. */
	return json_pack("{s:o, s:s, s:b, s:o}", "name", name ? name : json_null(), "kind", kinds[f->kind], "fresh",
			 f->fresh, "bytes", json_u64(f->kind == GW_PATCH_SHARD ? f->bytes + f->data_bytes : f->bytes));
}

json_t *patch_json(const struct gw_patch *pt)
{
	json_t *o = json_object(), *tensors = json_array(), *files = json_array();
	struct gw_patch_info info;
	int bad = 0;

	gw_patch_info(pt, &info);
	for (uint32_t i = 0; i < info.tensors; i++)
		bad |= json_array_append_new(tensors, tensor_json(pt, gw_patch_tensor(pt, i)));
	for (uint32_t i = 0; i < info.files; i++)
		bad |= json_array_append_new(files, file_json(gw_patch_file(pt, i)));
	bad |= json_object_set_new(o, "format", json_string("patch")) |
	       json_object_set_new(o, "from_nothing", json_boolean(info.anchor)) |
	       json_object_set_new(o, "before", info.anchor ? json_null() : print_json_of(info.from_print)) |
	       json_object_set_new(o, "after", print_json_of(info.to_print)) |
	       json_object_set_new(o, "elements", json_u64(info.elements)) |
	       json_object_set_new(o, "changed", json_u64(info.changed)) |
	       json_object_set_new(o, "patch_bytes", json_u64(info.file_bytes)) |
	       json_object_set_new(o, "bits_per_change",
				   info.changed ? json_real(bits_per_change(info.file_bytes, info.changed))
						: json_null()) |
	       json_object_set_new(o, "raw_bytes", json_u64(info.bytes)) | json_object_set_new(o, "tensors", tensors) |
	       json_object_set_new(o, "files", files);
	if (bad) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static void shape_text(char *buf, size_t cap, const struct gw_patch_tensor *t)
{
	size_t n = 0;

	buf[0] = 0;
	for (unsigned i = 0; i < t->rank && n < cap; i++)
		n += (size_t)snprintf(buf + n, cap - n, "%s%" PRIu64, i ? "x" : "", t->shape[i]);
}

/* "coded 12, raw 1"; tiles without change are left out. */
static void modes_text(char *buf, size_t cap, const struct gw_patch *pt, const struct gw_patch_tensor *t)
{
	uint32_t count[GW_MODE_COUNT];
	size_t n = 0;

	(void)snprintf(buf, cap, "%s", t->kind == GW_TENSOR_CHANGED ? "" : kind_name(t->kind));
	count_modes(pt, t, count);
	for (unsigned m = GW_MODE_NONE + 1; m < GW_MODE_COUNT && n < cap; m++)
		if (count[m])
			n += (size_t)snprintf(buf + n, cap - n, "%s%s %u", n ? ", " : "",
					      gw_patch_mode_name((enum gw_patch_mode)m), count[m]);
}

void patch_table(const struct gw_patch *pt)
{
	struct gw_patch_info info;
	int width = 6;

	gw_patch_info(pt, &info);
	for (uint32_t i = 0; i < info.tensors; i++) {
		int n = (int)strlen(gw_patch_tensor(pt, i)->name);

		width = n > width ? n < 60 ? n : 60 : width;
	}
	if (info.tensors)
		(void)printf("%-*s  %-8s  %-14s  %12s  %12s  %8s  %10s  %7s  %s\n", width, "tensor", "dtype", "shape",
			     "elements", "changed", "%", "bytes", "bits/ch", "tiles");
	for (uint32_t i = 0; i < info.tensors; i++) {
		const struct gw_patch_tensor *t = gw_patch_tensor(pt, i);
		char shape[128], modes[96];

		shape_text(shape, sizeof shape, t);
		modes_text(modes, sizeof modes, pt, t);
		(void)printf("%-*s  %-8s  %-14s  %12" PRIu64 "  %12" PRIu64 "  %8.4f  %10" PRIu64 "  %7.2f  %s\n",
			     width, t->name, gw_dtype_name(t->dtype), shape, t->elements, t->changed,
			     t->elements ? 100.0 * (double)t->changed / (double)t->elements : 0.0, t->coded_bytes,
			     bits_per_change(t->coded_bytes, t->changed), modes);
	}
}

void patch_summary(const struct gw_patch *pt)
{
	struct gw_patch_info info;
	char size[32], raw[32];

	gw_patch_info(pt, &info);
	(void)human_bytes(size, info.file_bytes);
	(void)human_bytes(raw, info.bytes);
	if (info.anchor)
		(void)printf("a whole version of %s in %s (%.1f %%): %u tensors, %u files\n", raw, size,
			     info.bytes ? 100.0 * (double)info.file_bytes / (double)info.bytes : 0.0, info.tensors,
			     info.files);
	else
		(void)printf("%" PRIu64 " of %" PRIu64
			     " elements changed (%.4f %%): %s, %.2f bits a change, %.3g %% of %s\n",
			     info.changed, info.elements,
			     info.elements ? 100.0 * (double)info.changed / (double)info.elements : 0.0, size,
			     bits_per_change(info.file_bytes, info.changed),
			     info.bytes ? 100.0 * (double)info.file_bytes / (double)info.bytes : 0.0, raw);
}

int patch_told(struct args *a, const char *path)
{
	struct patch_file f;
	int err = patch_file_open(&f, a->fs, path, &a->why), closed;

	if (err)
		return err;
	if (arg_flag(a, "json"))
		err = print_json(patch_json(f.pt), &a->why);
	else
		patch_summary(f.pt);
	closed = patch_file_close(&f, path, &a->why);
	return err ? err : closed;
}
