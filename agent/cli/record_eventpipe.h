/* Part of `clrpulse record`; see record.c. */
#ifndef CLP_AGENT_CLI_RECORD_EVENTPIPE_H
#define CLP_AGENT_CLI_RECORD_EVENTPIPE_H

#include "agent/fault.h"
#include "agent/span_labels.h"
#include "pprof/profile.h"
#include "sampler/eventpipe/discover.h"

/* Records these types (0: all that events can tell) of a READY process until the duration is over,
 * `stop_fd` is readable or the process ends. 0 with the profile, the caller's, or a fault. */
int clp_record_eventpipe(const struct clp_dotnet *found, int stop_fd, uint32_t types,
                         enum clp_span_mode spans, uint64_t duration_ns, struct clp_profile **ret,
                         struct clp_fault *f) CLP_MUST_USE;

#endif
