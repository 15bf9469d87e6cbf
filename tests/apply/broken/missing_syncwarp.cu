/* Lanes read each other's words of shared memory with no barrier behind the writes. */
#include "gpu/device.h"

extern "C" __global__ void missing_syncwarp(uint32_t *out, int mended)
{
	__shared__ uint32_t words[64];
	unsigned t = threadIdx.x;

	gw_st(&words[t], (uint32_t)(3 * t));
	if (mended)
		__syncwarp();
	gw_st(&out[t], gw_ld(&words[t ^ 1]));
}
