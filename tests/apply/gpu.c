/*
 * The CUDA row against row 0 on a real device. Skips, and says why, where there is none.
 */
#include <stdio.h>
#include <stdlib.h>

#include "compare.h"
#include "gpu/cuda.h"

/* The context in which `put` allocates: the primary one, as the device's. */
static struct gw_cu_driver driver;

static void must(int result, const char *what)
{
	if (!result)
		return;
	(void)fprintf(stderr, "%s failed: %d\n", what, result);
	exit(1);
}

static uint64_t put(void *ctx, const void *p, size_t n)
{
	gw_cu_ptr at;

	must(driver.alloc(&at, n), "alloc");
	must(driver.to_device(at, p, n, ctx), "copy to the device");
	must(driver.stream_wait(ctx), "wait");
	return at;
}

static void get(void *ctx, void *p, uint64_t at, size_t n)
{
	must(driver.to_host(p, at, n, ctx), "copy from the device");
	must(driver.stream_wait(ctx), "wait");
}

static void drop(void *ctx, uint64_t at, size_t n)
{
	(void)ctx, (void)n;
	must(driver.release(at), "release");
}

int main(void)
{
	struct compare_memory memory = {NULL, put, get, drop};
	const char *s = getenv("SEED");
	uint64_t seed = s ? strtoull(s, NULL, 0) : 20260614;
	struct gw_diag why = {""};
	struct gw_device dev;
	gw_cu_context context;
	gw_cu_stream stream;
	int err = gw_device_cuda(&dev, 0, &why), device;

	if (err == GW_EUNSUP) {
		printf("skipped, no GPU: %s\n", why.text);
		return 77;
	}
	if (err || gw_cu_driver_load(&driver, "libcuda.so.1", &why)) {
		(void)fprintf(stderr, "%s\n", why.text);
		return 1;
	}
	printf("SEED=%llu\n", (unsigned long long)seed);
	must(driver.device_get(&device, 0), "device");
	must(driver.context_retain(&context, device), "context");
	must(driver.context_push(context), "context");
	must(driver.stream_new(&stream, 1), "stream");
	memory.ctx = stream;
	for (unsigned i = 0; i < 8; i++)
		compare_with_row0(dev, &memory, seed + i, 100u << i, 50);
	must(driver.stream_free(stream), "stream");
	dev.ops->close(dev.dev);
	must(driver.context_release(device), "context");
	gw_cu_driver_unload(&driver);
	printf("the CUDA row agrees with row 0\n");
	return 0;
}
