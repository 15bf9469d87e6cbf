/* One thread too many stores. */
#include "gpu/device.h"

extern "C" __global__ void overrun(uint32_t *out, int mended)
{
	unsigned t = threadIdx.x;

	gw_st(&out[mended ? t : t + 1], (uint32_t)t);
}
