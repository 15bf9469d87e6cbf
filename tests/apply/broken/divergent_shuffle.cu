/* A shuffle under a full mask inside a branch that only some lanes take. */
#include "gpu/device.h"

extern "C" __global__ void divergent_shuffle(uint32_t *out, int mended)
{
	unsigned lane = threadIdx.x % 32;
	uint32_t v = (uint32_t)lane;

	if (lane < 20 || mended)
		v = __shfl_sync(0xffffffffu, v, 0);
	gw_st(&out[threadIdx.x], v);
}
