/*
 * The part of the CUDA driver's interface that Godwit uses, found in libcuda.so.1 at run time: nothing is linked and
 * no CUDA header is needed. Names and meanings as in the CUDA Driver API reference; tests put their own functions here.
 */
#ifndef GW_GPU_DRIVER_H
#define GW_GPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef void *gw_cu_context;
typedef void *gw_cu_module;
typedef void *gw_cu_function;
typedef void *gw_cu_stream;
typedef uint64_t gw_cu_ptr; /* CUdeviceptr */

enum { GW_CU_OUT_OF_MEMORY = 2, GW_CU_NO_DEVICE = 100, GW_CU_NO_BINARY = 209, GW_CU_UNSUPPORTED_PTX = 222 };
enum { GW_CU_REGISTER_DEVICEMAP = 2 };

/* name, the driver's symbol, arguments; all return CUresult, 0 for success */
#define GW_CU_FUNCTIONS(X)                                                                                             \
	X(init, "cuInit", (unsigned flags))                                                                            \
	X(error_text, "cuGetErrorString", (int error, const char **text))                                              \
	X(device_count, "cuDeviceGetCount", (int *n))                                                                  \
	X(device_get, "cuDeviceGet", (int *device, int ordinal))                                                       \
	X(context_retain, "cuDevicePrimaryCtxRetain", (gw_cu_context * context, int device))                           \
	X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                               \
	X(context_push, "cuCtxPushCurrent_v2", (gw_cu_context context))                                                \
	X(context_pop, "cuCtxPopCurrent_v2", (gw_cu_context * context))                                                \
	X(module_load, "cuModuleLoadData", (gw_cu_module * module, const void *image))                                 \
	X(module_unload, "cuModuleUnload", (gw_cu_module module))                                                      \
	X(module_function, "cuModuleGetFunction", (gw_cu_function * f, gw_cu_module module, const char *name))         \
	X(alloc, "cuMemAlloc_v2", (gw_cu_ptr * p, size_t bytes))                                                       \
	X(release, "cuMemFree_v2", (gw_cu_ptr p))                                                                      \
	X(to_device, "cuMemcpyHtoDAsync_v2", (gw_cu_ptr to, const void *from, size_t bytes, gw_cu_stream stream))      \
	X(to_host, "cuMemcpyDtoHAsync_v2", (void *to, gw_cu_ptr from, size_t bytes, gw_cu_stream stream))              \
	X(host_register, "cuMemHostRegister_v2", (void *p, size_t bytes, unsigned flags))                              \
	X(host_unregister, "cuMemHostUnregister", (void *p))                                                           \
	X(host_pointer, "cuMemHostGetDevicePointer_v2", (gw_cu_ptr * device, void *host, unsigned flags))              \
	X(stream_new, "cuStreamCreate", (gw_cu_stream * stream, unsigned flags))                                       \
	X(stream_free, "cuStreamDestroy_v2", (gw_cu_stream stream))                                                    \
	X(stream_wait, "cuStreamSynchronize", (gw_cu_stream stream))                                                   \
	X(launch, "cuLaunchKernel",                                                                                    \
	  (gw_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
	   unsigned shared_bytes, gw_cu_stream stream, void **arguments, void **extra))

struct gw_cu_driver {
#define X(name, symbol, arguments) int(*name) arguments;
	GW_CU_FUNCTIONS(X)
#undef X
	void *library; /* dlopen's, or NULL */
};

/* GW_EUNSUP, and why, where there is no driver or it lacks a function. The library stays loaded until unload. */
int gw_cu_driver_load(struct gw_cu_driver *d, const char *soname, struct gw_diag *why);
void gw_cu_driver_unload(struct gw_cu_driver *d);

#endif
