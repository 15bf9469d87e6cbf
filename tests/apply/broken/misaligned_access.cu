/* A wide store to an address that is no multiple of its size: hardware faults. */
#include "gpu/device.h"

extern "C" __global__ void misaligned_access(uint32_t *out, int mended)
{
	if (threadIdx.x == 0)
		gw_st((uint64_t *)(out + (mended ? 2 : 1)), (uint64_t)1);
}
