/*
 * The CUDA row as a whole against row 0, without CUDA: gpu/cuda.c over a driver made here, whose device memory is host
 * memory that ends at a page that faults, and which runs the kernels of gpu/overwrite.cu through gpu/emu.h.
 */
#include "gpu/overwrite.cu"

#include <map>
#include <string>

extern "C" {
#include "base/err.h"
#include "compare.h"
#include "gpu/cuda.h"
#include "lists.h"
}

static struct {
	std::map<uint64_t, size_t> allocated;
	std::map<void *, size_t> pinned;
	int contexts, depth, modules, streams;
	uint64_t seed;
	/* Faults: the driver says so from then on, or for allocations from that size on. */
	int fail_launch;
	size_t no_room_for = SIZE_MAX;
} fake;

enum { TEST_DEVICES = 2, INVALID = 1, LAUNCH_FAILED = 719 };

template <class T> static T argument(void **arguments, int i)
{
	T v;

	memcpy(&v, arguments[i], sizeof v);
	return v;
}

static int fake_init(unsigned)
{
	return 0;
}

static int fake_error_text(int error, const char **text)
{
	*text = error == GW_CU_OUT_OF_MEMORY ? "out of memory" : "made to fail";
	return 0;
}

static int fake_device_count(int *n)
{
	*n = TEST_DEVICES;
	return 0;
}

static int fake_device_get(int *device, int ordinal)
{
	*device = ordinal + 10;
	return 0;
}

static int fake_context_retain(gw_cu_context *context, int device)
{
	fake.contexts++;
	*context = (gw_cu_context)(uintptr_t)device;
	return device < 10;
}

static int fake_context_release(int)
{
	fake.contexts--;
	return 0;
}

static int fake_context_push(gw_cu_context context)
{
	fake.depth++;
	return !context;
}

static int fake_context_pop(gw_cu_context *)
{
	fake.depth--;
	return 0;
}

static int fake_module_load(gw_cu_module *module, const void *image)
{
	if (fake.depth != 1 || strcmp((const char *)image, "image"))
		return GW_CU_NO_BINARY;
	fake.modules++;
	*module = (gw_cu_module)&fake;
	return 0;
}

static int fake_module_unload(gw_cu_module)
{
	fake.modules--;
	return 0;
}

static int fake_module_function(gw_cu_function *f, gw_cu_module, const char *name)
{
	*f = (gw_cu_function)name;
	return strncmp(name, "gw_kernel_", 10) != 0;
}

static int fake_alloc(gw_cu_ptr *p, size_t bytes)
{
	/* What the driver aligns to 256 bytes is here aligned to 8, so that it ends at the page that faults. */
	size_t n = (bytes + 7) / 8 * 8;

	if (fake.depth != 1 || !bytes)
		return INVALID;
	if (bytes >= fake.no_room_for)
		return GW_CU_OUT_OF_MEMORY;
	*p = (gw_cu_ptr)lists_guarded(n);
	fake.allocated[*p] = n;
	return 0;
}

static int fake_release(gw_cu_ptr p)
{
	auto it = fake.allocated.find(p);

	if (fake.depth != 1 || it == fake.allocated.end())
		return INVALID;
	lists_guarded_free((uint8_t *)p, it->second);
	fake.allocated.erase(it);
	return 0;
}

static int fake_to_device(gw_cu_ptr to, const void *from, size_t bytes, gw_cu_stream)
{
	memcpy((void *)to, from, bytes);
	return 0;
}

static int fake_to_host(void *to, gw_cu_ptr from, size_t bytes, gw_cu_stream)
{
	memcpy(to, (const void *)from, bytes);
	return 0;
}

static int fake_host_register(void *p, size_t bytes, unsigned flags)
{
	fake.pinned[p] = bytes;
	return flags != GW_CU_REGISTER_DEVICEMAP;
}

static int fake_host_unregister(void *p)
{
	return fake.pinned.erase(p) != 1;
}

static int fake_host_pointer(gw_cu_ptr *device, void *host, unsigned)
{
	*device = (gw_cu_ptr)host;
	return !fake.pinned.count(host);
}

static int fake_stream_new(gw_cu_stream *stream, unsigned)
{
	fake.streams++;
	*stream = (gw_cu_stream)&fake;
	return 0;
}

static int fake_stream_free(gw_cu_stream)
{
	fake.streams--;
	return 0;
}

static int fake_stream_wait(gw_cu_stream)
{
	return fake.fail_launch > 1 ? LAUNCH_FAILED : 0;
}

static int fake_launch(gw_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		       unsigned shared, gw_cu_stream, void **arguments, void **extra)
{
	std::string name = (const char *)f;

	if (fake.depth != 1 || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || extra)
		return INVALID;
	if (fake.fail_launch)
		return fake.fail_launch == 1 ? LAUNCH_FAILED : 0;
	/* Kernels stride over what the grid does not cover. */
	unsigned grid = gx < 3 ? gx : 3;
	emu::launch(grid, bx, ++fake.seed, [&] {
		if (name == "gw_kernel_write")
			gw_kernel_write(argument<const uint8_t *>(arguments, 0), argument<uint64_t>(arguments, 1),
					argument<uint32_t>(arguments, 2), argument<const gw_dev_mem *>(arguments, 3),
					argument<int>(arguments, 4));
		else if (name == "gw_kernel_check")
			gw_kernel_check(argument<const uint8_t *>(arguments, 0), argument<uint64_t>(arguments, 1),
					argument<uint32_t>(arguments, 2), argument<const gw_dev_mem *>(arguments, 3),
					argument<gw_kernel_found *>(arguments, 4));
		else if (name == "gw_kernel_print")
			gw_kernel_print(argument<gw_kernel_window>(arguments, 0),
					argument<const uint64_t *>(arguments, 1),
					argument<unsigned long long *>(arguments, 2));
		else if (name == "gw_kernel_gather")
			gw_kernel_gather(argument<gw_kernel_window>(arguments, 0), argument<uint64_t>(arguments, 1),
					 argument<uint64_t>(arguments, 2), argument<uint8_t *>(arguments, 3));
		else
			abort();
	});
	return 0;
}

static struct gw_cu_driver fake_driver()
{
	struct gw_cu_driver d = {};

#define X(name, symbol, arguments) d.name = fake_##name;
	GW_CU_FUNCTIONS(X)
#undef X
	return d;
}

static uint64_t put(void *, const void *p, size_t n)
{
	uint8_t *copy = lists_guarded(n);

	memcpy(copy, p, n);
	return (uint64_t)(uintptr_t)copy;
}

static void get(void *, void *p, uint64_t at, size_t n)
{
	memcpy(p, (const void *)at, n);
}

static void drop(void *, uint64_t at, size_t n)
{
	lists_guarded_free((uint8_t *)at, n);
}

static const struct compare_memory memory = {nullptr, put, get, drop};

#define CHECK(truth)                                                                                                   \
	do {                                                                                                           \
		if (!(truth)) {                                                                                        \
			fprintf(stderr, "line %d: %s\n", __LINE__, #truth);                                            \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

static void ck_nothing_left()
{
	CHECK(fake.allocated.empty() && fake.pinned.empty());
	CHECK(!fake.contexts && !fake.depth && !fake.modules && !fake.streams);
}

static void agrees_with_row0(uint64_t seed)
{
	struct gw_cu_driver driver = fake_driver();
	struct gw_device dev;

	for (int i = 0; i < 4; i++) {
		CHECK(!gw_device_cuda_with(&dev, &driver, "image", i % TEST_DEVICES, nullptr));
		CHECK(!strcmp(dev.ops->name, "cuda"));
		/* The last round has room for small things only: the list is read over the bus, windows in pieces. */
		fake.no_room_for = i == 3 ? 4096 : SIZE_MAX;
		compare_with_row0(dev, &memory, seed + (uint64_t)i, i == 3 ? 1500 : 400 * (size_t)i, 12);
		CHECK(fake.pinned.size() == (i == 3));
		dev.ops->close(dev.dev);
		ck_nothing_left();
	}
	fake.no_room_for = SIZE_MAX;
}

static void failures_are_reported(uint64_t seed)
{
	struct gw_cu_driver driver = fake_driver();
	struct gw_device dev;
	struct gw_list_found found;
	struct gw_diag why = {""};
	struct lists l;

	CHECK(gw_device_cuda_with(&dev, &driver, "image", TEST_DEVICES, &why) == GW_EINVAL);
	CHECK(strstr(why.text, "device 2 of 2"));
	why.text[0] = 0;
	CHECK(gw_device_cuda_with(&dev, &driver, "for another machine", 0, &why) == GW_EUNSUP);
	CHECK(strstr(why.text, "loading the kernels"));
	fake.no_room_for = 1;
	CHECK(gw_device_cuda_with(&dev, &driver, "image", 0, nullptr) == GW_ENOMEM);
	fake.no_room_for = SIZE_MAX;
	ck_nothing_left();

	lists_make(&l, seed, 50);
	CHECK(!gw_device_cuda_with(&dev, &driver, "image", 0, nullptr));
	fake.fail_launch = 1; /* at once */
	CHECK(dev.ops->check(dev.dev, l.h, l.mem, LISTS_SEGMENTS, &found) == GW_EDEVICE);
	CHECK(dev.ops->write(dev.dev, l.h, l.mem, LISTS_SEGMENTS, 1) == GW_EDEVICE);
	fake.fail_launch = 2; /* later, seen by who waits */
	CHECK(!dev.ops->write(dev.dev, l.h, l.mem, LISTS_SEGMENTS, 1));
	CHECK(dev.ops->sync(dev.dev) == GW_EDEVICE);
	fake.fail_launch = 0;
	CHECK(!dev.ops->check(dev.dev, l.h, l.mem, LISTS_SEGMENTS, &found) && found.old_n == l.n);
	dev.ops->close(dev.dev);
	lists_free(&l);
	ck_nothing_left();
}

/* Without CUDA here the row declines, and says why. */
static void declines_cleanly()
{
	struct gw_device dev;
	struct gw_cu_driver d;
	struct gw_diag why = {""};
	int err = gw_device_cuda(&dev, 0, &why);

	if (!err)
		dev.ops->close(dev.dev);
	else
		CHECK(err == GW_EUNSUP && why.text[0]);
	why.text[0] = 0;
	CHECK(gw_cu_driver_load(&d, "libno-such-driver.so.1", &why) == GW_EUNSUP && strstr(why.text, "no driver"));
	why.text[0] = 0;
	CHECK(gw_cu_driver_load(&d, "libm.so.6", &why) == GW_EUNSUP && strstr(why.text, "has no cuInit"));
}

int main()
{
	const char *s = getenv("SEED");
	uint64_t seed = s ? strtoull(s, nullptr, 0) : 20260614;

	printf("SEED=%llu\n", (unsigned long long)seed);
	declines_cleanly();
	failures_are_reported(seed);
	agrees_with_row0(seed);
	printf("the CUDA row agrees with row 0 under emulation\n");
	return 0;
}
