/* The two clocks. State machines never see them: events carry both readings. */
#ifndef GW_IO_OS_CLOCK_H
#define GW_IO_OS_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC: for timers and durations; never jumps. */
uint64_t gw_clock_mono_ns(void);
/* Since the epoch: for expiries and people; may jump. */
uint64_t gw_clock_wall_ns(void);

#endif
