/* Clocks of this process, past libc: a preloaded library (libfaketime) cannot shift one against the
 * other, and the handler and the loop read the same time. */
#ifndef CLP_SAMPLER_INPROC_CLOCK_H
#define CLP_SAMPLER_INPROC_CLOCK_H

#include "base/core/core.h"

#include <time.h>

/* The vdso's clock_gettime, found in its symbol table; NULL when there is none. Any thread. */
int (*clp_clock_vdso(void))(clockid_t, struct timespec *);

uint64_t clp_clock_monotonic_ns(void);
uint64_t clp_clock_process_ns(void); /* CPU time of the whole process */
uint64_t clp_clock_self_ns(void);    /* CPU time of the calling thread */
/* CPU time of another thread of this process. 0, or -EINVAL / -ESRCH when it is gone. About 1 us.
 */
int clp_clock_thread_ns(int32_t tid, uint64_t *ret) CLP_MUST_USE;
/* The clock id of a thread's CPU clock, as the kernel encodes it. */
clockid_t clp_clock_thread_id(int32_t tid);
/* Length of the kernel's tick, on which CPU timers expire: 1 ms .. 10 ms. */
uint64_t clp_clock_tick_ns(void);

#endif
