/* One storage element of 1, 2, 4 or 8 bytes, little-endian, at any alignment. */
#ifndef GW_PATCH_ELEMENT_H
#define GW_PATCH_ELEMENT_H

#include <stdint.h>

#include "base/num.h"

static inline uint64_t gw_element_load(const void *p, unsigned width)
{
	switch (width) {
	case 1:
		return *(const uint8_t *)p;
	case 2:
		return gw_le16(p);
	case 4:
		return gw_le32(p);
	default:
		return gw_le64(p);
	}
}

static inline void gw_element_store(void *p, unsigned width, uint64_t v)
{
	switch (width) {
	case 1:
		*(uint8_t *)p = (uint8_t)v;
		break;
	case 2:
		gw_put_le16(p, (uint16_t)v);
		break;
	case 4:
		gw_put_le32(p, (uint32_t)v);
		break;
	default:
		gw_put_le64(p, v);
	}
}

#endif
