/*
 * What every kernel includes first: CUDA, or its emulation on the CPU where GW_EMU is defined (gpu/emu.h). Kernels
 * touch memory, shared memory too, through gw_ld and gw_st alone; on a device these are plain loads and stores.
 */
#ifndef GW_GPU_DEVICE_H
#define GW_GPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef GW_EMU
#include "gpu/emu.h"
#define GW_DEVICE static inline
#else
#define GW_DEVICE static __device__ __forceinline__
#endif

template <class T> GW_DEVICE T gw_ld(const T *p)
{
#ifdef GW_EMU
	emu::touch(p, sizeof *p, emu::READ);
#endif
	return *p;
}

template <class T> GW_DEVICE void gw_st(T *p, T v)
{
#ifdef GW_EMU
	emu::touch(p, sizeof *p, emu::WRITE);
#endif
	*p = v;
}

#endif
