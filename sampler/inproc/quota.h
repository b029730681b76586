/* How many timers we may hold: RLIMIT_SIGPENDING is one count per user, shared by all its processes
 * and containers, and the runtime's own suspension signals fail when it is used up. */
#ifndef CLP_SAMPLER_INPROC_QUOTA_H
#define CLP_SAMPLER_INPROC_QUOTA_H

#include "base/core/core.h"

/* A quarter of what would be free without our own timers; pure. `used` counts ours. */
uint32_t clp_quota_share(uint64_t used, uint64_t limit, uint32_t ours);
/* The same with SigQ of /proc/self/status; 0 when it cannot be read. About 20 us. */
uint32_t clp_quota_read(uint32_t ours);

#endif
