/* Inside the scan: what it needs from an instruction set. Only scan*.c include this. */
#ifndef GW_PATCH_SCAN_IMPL_H
#define GW_PATCH_SCAN_IMPL_H

#include "patch/scan.h"

/* As gw_scan_run. May write up to GW_SCAN_SLACK bytes behind what it appends to each column. */
typedef size_t gw_scan_fn(struct gw_changes_buf *b, size_t count, const uint8_t *old, const uint8_t *new_bits, size_t n,
			  unsigned width, uint32_t base);

enum { GW_SCAN_SLACK = 64 };

/* Element by element; also for what vectors leave over. */
gw_scan_fn gw_scan_scalar;

/* NULL where the machine or the build has not got it. */
gw_scan_fn *gw_scan_avx2(void);
gw_scan_fn *gw_scan_avx512(void);

#endif
