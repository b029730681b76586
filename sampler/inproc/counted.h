/* Does the runtime still count us among its profilers?
 *
 * When a main profiler detaches, .NET 8 to 10 lower their count of notification-only profilers by
 * mistake.  At zero they call none of those any more, and RequestProfilerDetach of one of them ends
 * the process.  No call of the API tells; but DoStackSnapshot answers
 * CORPROF_E_INCONSISTENT_WITH_FLAGS unless some profiler *that is counted* has asked for stack
 * snapshots, so for the length of the question we ask for them. */
#ifndef CLP_SAMPLER_INPROC_COUNTED_H
#define CLP_SAMPLER_INPROC_COUNTED_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

#include <stdbool.h>

/* A clear no. (Neither is true while another profiler's flag answers for us, or while somebody else
 * asks.) `low`, `high`: our event mask, which is in force again afterwards. Up to
 * 50 us; any thread without a lock of ours. */
bool clp_counted_no(struct clr_info *info, uint32_t low, uint32_t high);
/* A clear yes. Other profilers' snapshots, where they rely on our flag, are refused for the
 * moment. */
bool clp_counted_yes(struct clr_info *info, uint32_t low, uint32_t high);

#endif
