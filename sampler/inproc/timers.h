/* One CPU-clock timer of the kernel that signals the thread whose clock it follows.
 *
 * Any thread of the process; not used by the handler, which re-arms in place. Each timer holds one
 * slot of RLIMIT_SIGPENDING (quota.h). */
#ifndef CLP_SAMPLER_INPROC_TIMERS_H
#define CLP_SAMPLER_INPROC_TIMERS_H

#include "base/core/core.h"

/* A disarmed timer. 0; -EAGAIN when the signal quota is used up, -EINVAL for a thread that is gone.
 */
int clp_timer_create(int32_t tid, uint64_t tag, int32_t *ret_id) CLP_MUST_USE;
/* Expires once, `ns` of the thread's CPU time from now (at least 1). Never signals a thread that
 * sleeps: its clock stands. */
int clp_timer_arm(int32_t id, uint64_t ns);
void clp_timer_delete(int32_t id);

#endif
