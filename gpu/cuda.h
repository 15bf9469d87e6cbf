/*
 * The CUDA row of the device table (patch/apply.h). Optional: built where nvcc is, used where a driver and a device
 * are; elsewhere it declines with GW_EUNSUP and a reason, and the caller goes on with row 0 or refuses the engine.
 *
 * A device runs in the process's primary context, which PyTorch uses too, on a stream of its own; the context that was
 * current stays current. Segment addresses are device pointers valid in that context. `write` only enqueues: sync
 * reports how it went. One thread at a time.
 *
 * A list lies in host memory. The first operation on it checks its bounds and copies it to the device, where it stays
 * until another list comes, so a check while staging makes the write in the pause short. Where device memory does not
 * suffice, the list is pinned and read over the bus. The list and the table of segments must not change or move until
 * another list came or the device is closed.
 */
#ifndef GW_GPU_CUDA_H
#define GW_GPU_CUDA_H

#include <stddef.h>

#include "base/err.h"
#include "gpu/driver.h"
#include "patch/apply.h"

/* Device number `ordinal` of this process. GW_EUNSUP where there is no CUDA here, GW_EINVAL for a number that
 * no device has, GW_EDEVICE where one fails. out->ops->close frees all. */
int gw_device_cuda(struct gw_device *out, int ordinal, struct gw_diag *why);

/* The same over a driver of the caller's (which must outlive the device; its library is not unloaded) and a module
 * image. */
int gw_device_cuda_with(struct gw_device *out, const struct gw_cu_driver *driver, const void *image, int ordinal,
			struct gw_diag *why);

/* The compiled kernels; 0 bytes where nvcc was not there. */
extern const unsigned char gw_gpu_image[];
extern const size_t gw_gpu_image_bytes;

#endif
