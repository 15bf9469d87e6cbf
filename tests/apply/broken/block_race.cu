/* Two blocks count in one word without an atomic. */
#include "gpu/device.h"

extern "C" __global__ void block_race(uint32_t *out, int mended)
{
	if (threadIdx.x)
		return;
	if (mended)
		atomicAdd(out, 1u);
	else
		gw_st(out, gw_ld(out) + 1);
}
