/* Does the runtime still count us among its profilers?
 *
 * When a main profiler detaches, the runtime (8, 9 and 10:
 * ProfControlBlock::DeRegisterProfilerInfo) also lowers its count of notification-only profilers.
 * At zero it looks at none of them any more: no callback arrives, and a RequestProfilerDetach of
 * theirs reads through a NULL pointer and kills the process.  No call tells; a callback does.  So a
 * thread of ours becomes known to the runtime, and the runtime either announces it to us or has
 * forgotten us. */
#ifndef CLP_SAMPLER_INPROC_REGISTERED_H
#define CLP_SAMPLER_INPROC_REGISTERED_H

#include "sampler/inproc/clr.h"

#include <stdbool.h>

/* Asks, within a second; in doubt (no thread, no answer) false. Any native thread, not two at a
 * time; makes a short-lived thread. The mask must hold THREADS. */
bool clp_registered(struct clr_info *info);
/* ThreadAssignedToOSThread, on that thread. Cheap. */
void clp_registered_heard(int32_t tid);

#endif
