/* Two lanes store to one word; which of them stays is luck. */
#include "gpu/device.h"

extern "C" __global__ void write_race(uint32_t *out, int mended)
{
	unsigned t = threadIdx.x;

	gw_st(&out[mended ? t : t / 2], (uint32_t)t);
}
