#include "gpu/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "gpu/kernels.h"
#include "patch/fingerprint.h"

_Static_assert((int)GW_KERNEL_BLOCK == (int)GW_PRINT_BLOCK, "kernels know the fingerprint's block");

enum {
	BLOCKS_MAX = 4096,		 /* of a launch; kernels stride over the rest */
	GATHER_BYTES = 32 * 1024 * 1024, /* of a window at a time */
	GATHER_LEAST = 256,              /* elements */
};

enum { WRITE, CHECK, PRINT, GATHER, KERNELS };
static const char *const kernel_names[KERNELS] = {"gw_kernel_write", "gw_kernel_check", "gw_kernel_print",
						  "gw_kernel_gather"};

/* The list that is on the device. */
struct resident {
	const struct gw_list_header *list; /* NULL for none */
	uint64_t bytes, check[2];
	struct gw_dev_mem *mem; /* the segments it was checked against */
	uint32_t segments;
	gw_cu_ptr at, mem_at;
	int pinned; /* at is a view of host memory */
};

struct cuda {
	struct gw_cu_driver driver;
	int owns_driver, device;
	gw_cu_context context;
	gw_cu_module module;
	gw_cu_function kernels[KERNELS];
	gw_cu_stream stream;
	gw_cu_ptr keys;	   /* offset keys of both lanes */
	gw_cu_ptr results; /* struct gw_kernel_found, or two lanes */
	struct resident resident;
};

static int failed(int result)
{
	return !result ? 0 : result == GW_CU_OUT_OF_MEMORY ? GW_ENOMEM : GW_EDEVICE;
}

static int enter(struct cuda *c)
{
	return failed(c->driver.context_push(c->context));
}

static void leave(struct cuda *c)
{
	gw_cu_context was;

	(void)c->driver.context_pop(&was);
}

static int wait_for_all(struct cuda *c)
{
	return failed(c->driver.stream_wait(c->stream));
}

/* Enough blocks for `warps` warps, or for that many times 32 threads. */
static int launch(struct cuda *c, int kernel, uint64_t warps, void **arguments)
{
	uint64_t blocks = gw_div_up(warps, GW_KERNEL_THREADS / 32);

	if (!blocks)
		return 0;
	return failed(c->driver.launch(c->kernels[kernel], (unsigned)gw_min_u64(blocks, BLOCKS_MAX), 1, 1,
				       GW_KERNEL_THREADS, 1, 1, 0, c->stream, arguments, NULL));
}

static void forget(struct cuda *c)
{
	struct resident *r = &c->resident;

	if (!r->list)
		return;
	(void)wait_for_all(c);
	if (r->pinned)
		(void)c->driver.host_unregister((void *)(uintptr_t)r->list);
	else
		(void)c->driver.release(r->at);
	(void)c->driver.release(r->mem_at);
	free(r->mem);
	*r = (struct resident){0};
}

static int is_resident(const struct resident *r, const struct gw_list_header *list, const struct gw_dev_mem *mem,
		       uint32_t segments)
{
	return r->list == list && r->bytes == list->bytes && !memcmp(r->check, list->check, sizeof r->check) &&
	       r->segments == segments && !memcmp(r->mem, mem, segments * sizeof *mem);
}

/* The list on the device, or else pinned and seen from there. */
static int place_list(struct cuda *c, const struct gw_list_header *list, struct resident *r)
{
	void *host = (void *)(uintptr_t)list;
	int err = failed(c->driver.alloc(&r->at, list->bytes));

	if (!err) {
		err = failed(c->driver.to_device(r->at, list, list->bytes, c->stream));
		if (err)
			(void)c->driver.release(r->at);
		return err;
	}
	if (err != GW_ENOMEM)
		return err;
	err = failed(c->driver.host_register(host, list->bytes, GW_CU_REGISTER_DEVICEMAP));
	if (err)
		return err;
	err = failed(c->driver.host_pointer(&r->at, host, 0));
	if (err)
		(void)c->driver.host_unregister(host);
	r->pinned = !err;
	return err;
}

static int make_resident(struct cuda *c, const struct gw_list_header *list, const struct gw_dev_mem *mem,
			 uint32_t segments)
{
	size_t table = segments * sizeof *mem;
	struct resident r = {.bytes = list->bytes, .segments = segments};
	int err;

	if (c->resident.list && is_resident(&c->resident, list, mem, segments))
		return 0;
	forget(c);
	err = gw_list_bounds(list, mem, segments);
	if (err)
		return err;
	memcpy(r.check, list->check, sizeof r.check);
	r.mem = malloc(table ? table : 1);
	if (!r.mem)
		return GW_ENOMEM;
	memcpy(r.mem, mem, table);
	err = failed(c->driver.alloc(&r.mem_at, table ? table : 1));
	if (err)
		goto err0;
	err = failed(c->driver.to_device(r.mem_at, r.mem, table, c->stream));
	if (!err)
		err = place_list(c, list, &r);
	if (err)
		goto err1;
	r.list = list;
	c->resident = r;
	return 0;

err1:
	(void)wait_for_all(c);
	(void)c->driver.release(r.mem_at);
err0:
	free(r.mem);
	return err;
}

/* Where the record is that a check kernel found: run << 16 | index. */
static void name_bad(const struct gw_list_header *list, uint64_t bad, struct gw_list_found *found)
{
	struct gw_list_part part;

	if (gw_list_part(list, (uint32_t)(bad >> 16), &part) || (bad & 0xffff) >= part.count)
		return;
	found->bad_segment = part.segment;
	found->bad_at = part.base;
	for (uint64_t i = 0; i <= (bad & 0xffff); i++)
		found->bad_at += (uint64_t)gw_le16(part.gaps + 2 * i) * part.width;
}

static int check_inside(struct cuda *c, const struct gw_list_header *list, const struct gw_dev_mem *mem,
			uint32_t segments, struct gw_list_found *found)
{
	struct gw_kernel_found k = {.bad = ~0ull};
	uint64_t runs_at = list->runs_at;
	uint32_t runs = list->run_count;
	void *arguments[] = {&c->resident.at, &runs_at, &runs, &c->resident.mem_at, &c->results};
	int err = make_resident(c, list, mem, segments);

	if (!err)
		err = failed(c->driver.to_device(c->results, &k, sizeof k, c->stream));
	if (!err)
		err = launch(c, CHECK, runs, arguments);
	if (!err)
		err = failed(c->driver.to_host(&k, c->results, sizeof k, c->stream));
	if (!err)
		err = wait_for_all(c);
	if (err)
		return err;
	*found = (struct gw_list_found){.old_n = k.old_n, .new_n = k.new_n, .neither_n = k.neither_n};
	if (k.neither_n)
		name_bad(list, k.bad, found);
	return 0;
}

static int cuda_check(void *dev, const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments,
		      struct gw_list_found *found)
{
	struct cuda *c = dev;
	int err = enter(c);

	if (err)
		return err;
	err = check_inside(c, list, mem, segments, found);
	leave(c);
	return err;
}

static int cuda_write(void *dev, const struct gw_list_header *list, const struct gw_dev_mem *mem, uint32_t segments,
		      int to_new)
{
	struct cuda *c = dev;
	uint64_t runs_at = list->runs_at;
	uint32_t runs = list->run_count;
	void *arguments[] = {&c->resident.at, &runs_at, &runs, &c->resident.mem_at, &to_new};
	int err = enter(c);

	if (err)
		return err;
	err = make_resident(c, list, mem, segments);
	if (!err)
		err = launch(c, WRITE, runs, arguments);
	leave(c);
	return err;
}

/* The number of a row's first unit and so on, as kernels want them. */
static struct gw_kernel_window kernel_window(const struct gw_dev_window *w, const struct gw_dev_mem *mem)
{
	uint32_t units = w->width == 8 ? 2 : 1;

	return (struct gw_kernel_window){
		.addr = mem[w->segment].addr + w->base,
		.rows = w->rows,
		.cols = w->cols,
		.row_pitch = w->row_pitch,
		.col_pitch = w->col_pitch,
		.first = (w->row0 * w->tensor_cols + w->col0) * units,
		.row_units = w->tensor_cols * units,
		.block_seed = {gw_print_block_seed(0), gw_print_block_seed(1)},
		.unit_width = w->width / units,
		.units = units,
	};
}

static int cuda_print(void *dev, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments,
		      uint64_t lane[2])
{
	struct cuda *c = dev;
	struct gw_kernel_window k;
	uint64_t sum[2] = {0, 0};
	void *arguments[] = {&k, &c->keys, &c->results};
	int err = gw_dev_window_check(w, mem, segments);

	if (err || !w->rows || !w->cols)
		return err;
	k = kernel_window(w, mem);
	err = enter(c);
	if (err)
		return err;
	err = failed(c->driver.to_device(c->results, sum, sizeof sum, c->stream));
	if (!err)
		err = launch(c, PRINT, gw_min_u64(w->rows * (k.units * w->cols / GW_KERNEL_BLOCK + 2), UINT32_MAX),
			     arguments);
	if (!err)
		err = failed(c->driver.to_host(sum, c->results, sizeof sum, c->stream));
	if (!err)
		err = wait_for_all(c);
	leave(c);
	if (err)
		return err;
	lane[0] += sum[0];
	lane[1] += sum[1];
	return 0;
}

/* Through a buffer on the device, a smaller one where there is little room. */
static int gather_pieces(struct cuda *c, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint8_t *out)
{
	struct gw_kernel_window k = kernel_window(w, mem);
	uint64_t all = w->rows * w->cols, piece = gw_min_u64(all, GATHER_BYTES / w->width), from, n;
	gw_cu_ptr buffer;
	void *arguments[] = {&k, &from, &n, &buffer};
	int err = failed(c->driver.alloc(&buffer, piece * w->width));

	while (err == GW_ENOMEM && piece > GATHER_LEAST) {
		piece /= 2;
		err = failed(c->driver.alloc(&buffer, piece * w->width));
	}
	if (err)
		return err;
	for (from = 0; !err && from < all; from += n) {
		n = gw_min_u64(piece, all - from);
		err = launch(c, GATHER, gw_div_up(n, 32), arguments);
		if (!err)
			err = failed(c->driver.to_host(out + from * w->width, buffer, n * w->width, c->stream));
		if (!err)
			err = wait_for_all(c);
	}
	(void)wait_for_all(c);
	(void)c->driver.release(buffer);
	return err;
}

static int cuda_gather(void *dev, const struct gw_dev_window *w, const struct gw_dev_mem *mem, uint32_t segments,
		       void *out)
{
	struct cuda *c = dev;
	int err = gw_dev_window_check(w, mem, segments);

	if (err || !w->rows || !w->cols)
		return err;
	err = enter(c);
	if (err)
		return err;
	err = gather_pieces(c, w, mem, out);
	leave(c);
	return err;
}

static int cuda_sync(void *dev)
{
	struct cuda *c = dev;
	int err = enter(c);

	if (err)
		return err;
	err = wait_for_all(c);
	leave(c);
	return err;
}

/* Frees what open_inside made, in whatever state. The context is current. */
static void close_inside(struct cuda *c)
{
	forget(c);
	if (c->results)
		(void)c->driver.release(c->results);
	if (c->keys)
		(void)c->driver.release(c->keys);
	if (c->stream)
		(void)c->driver.stream_free(c->stream);
	if (c->module)
		(void)c->driver.module_unload(c->module);
}

static void cuda_close(void *dev)
{
	struct cuda *c = dev;

	if (!enter(c)) {
		close_inside(c);
		leave(c);
	}
	(void)c->driver.context_release(c->device);
	if (c->owns_driver)
		gw_cu_driver_unload(&c->driver);
	free(c);
}

static const struct gw_device_ops cuda_ops = {"cuda",	   cuda_check, cuda_write, cuda_print,
					      cuda_gather, cuda_sync,  cuda_close};

static int said(const struct cuda *c, int result, const char *what, struct gw_diag *why)
{
	const char *text = NULL;
	int err = result == GW_CU_NO_DEVICE || result == GW_CU_NO_BINARY || result == GW_CU_UNSUPPORTED_PTX
			  ? GW_EUNSUP
			  : failed(result);

	if (!err)
		return 0;
	(void)c->driver.error_text(result, &text);
	return gw_diag_set(why, err, "CUDA: %s failed: %s (%d)", what, text ? text : "unknown error", result);
}

static int copy_keys(struct cuda *c)
{
	size_t bytes = GW_PRINT_BLOCK * sizeof(uint64_t);
	int result = c->driver.alloc(&c->keys, 2 * bytes);

	for (unsigned l = 0; l < 2 && !result; l++)
		result = c->driver.to_device(c->keys + l * bytes, gw_print_offset_keys(l), bytes, c->stream);
	return result ? result : c->driver.stream_wait(c->stream);
}

static int open_inside(struct cuda *c, const void *image, struct gw_diag *why)
{
	int err = said(c, c->driver.module_load(&c->module, image), "loading the kernels", why);

	for (int i = 0; i < KERNELS && !err; i++)
		err = said(c, c->driver.module_function(&c->kernels[i], c->module, kernel_names[i]), kernel_names[i],
			   why);
	if (!err)
		err = said(c, c->driver.stream_new(&c->stream, 1 /* does not wait for the default stream */),
			   "making a stream", why);
	if (!err)
		err = said(c, c->driver.alloc(&c->results, sizeof(struct gw_kernel_found)), "allocating", why);
	return err ? err : said(c, copy_keys(c), "copying keys", why);
}

static int open_device(struct cuda *c, int ordinal, struct gw_diag *why)
{
	int n = 0, err = said(c, c->driver.init(0), "starting the driver", why);

	if (!err)
		err = said(c, c->driver.device_count(&n), "counting devices", why);
	if (err)
		return err;
	if (!n)
		return gw_diag_set(why, GW_EUNSUP, "CUDA: the driver sees no device");
	if (ordinal < 0 || ordinal >= n)
		return gw_diag_set(why, GW_EINVAL, "CUDA: device %d of %d", ordinal, n);
	err = said(c, c->driver.device_get(&c->device, ordinal), "opening the device", why);
	return err ? err : said(c, c->driver.context_retain(&c->context, c->device), "opening its context", why);
}

int gw_device_cuda_with(struct gw_device *out, const struct gw_cu_driver *driver, const void *image, int ordinal,
			struct gw_diag *why)
{
	struct cuda *c = calloc(1, sizeof *c);
	int err;

	if (!c)
		return GW_ENOMEM;
	c->driver = *driver;
	err = open_device(c, ordinal, why);
	if (err)
		goto err0;
	err = said(c, c->driver.context_push(c->context), "entering its context", why);
	if (err)
		goto err1;
	err = open_inside(c, image, why);
	if (err)
		close_inside(c);
	leave(c);
	if (err)
		goto err1;
	*out = (struct gw_device){&cuda_ops, c};
	return 0;

err1:
	(void)c->driver.context_release(c->device);
err0:
	free(c);
	return err;
}

int gw_device_cuda(struct gw_device *out, int ordinal, struct gw_diag *why)
{
	struct gw_cu_driver driver;
	int err;

	if (!gw_gpu_image_bytes)
		return gw_diag_set(why, GW_EUNSUP, "CUDA: this build has no kernels (configure found no nvcc)");
	err = gw_cu_driver_load(&driver, "libcuda.so.1", why);
	if (err)
		return err;
	err = gw_device_cuda_with(out, &driver, gw_gpu_image, ordinal, why);
	if (err)
		gw_cu_driver_unload(&driver);
	else
		((struct cuda *)out->dev)->owns_driver = 1;
	return err;
}
