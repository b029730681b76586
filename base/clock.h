/* Clocks in nanoseconds.  Thread-safe and signal-safe, except clp_clock_utc. */
#ifndef CLP_BASE_CLOCK_H
#define CLP_BASE_CLOCK_H

#include "base/core/core.h"

/* For durations, deadlines and windows: never steps, stops while the machine is suspended. */
uint64_t clp_clock_monotonic_ns(void);
/* For stamps that people and intakes read: may step. Since 1970, UTC. */
uint64_t clp_clock_realtime_ns(void);

#define CLP_CLOCK_UTC_BYTES 32

/* "2026-11-29T20:19:07.123Z" (UTC, milliseconds) into `buf`; returns `buf`. */
const char *clp_clock_utc(uint64_t realtime_ns, char buf[CLP_CLOCK_UTC_BYTES]);
/* "20261129T201907Z": the same moment in the form that fits a file name. */
const char *clp_clock_utc_compact(uint64_t realtime_ns, char buf[CLP_CLOCK_UTC_BYTES]);

#endif
