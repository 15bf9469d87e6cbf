/* Half of the block takes another way and never comes to the barrier. */
#include "gpu/device.h"

extern "C" __global__ void divergent_barrier(uint32_t *out, int mended)
{
	unsigned t = threadIdx.x;

	if (t < blockDim.x / 2 || mended)
		__syncthreads();
	gw_st(&out[t], (uint32_t)t);
}
