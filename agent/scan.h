/* Looks for new targets again and again, at little cost: a process that is no target is looked at
 * more and more rarely, one that failed is left alone for a while. One thread. */
#ifndef CLP_AGENT_SCAN_H
#define CLP_AGENT_SCAN_H

#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"

#define CLP_SCAN_EVERY_NS CLP_NSEC_PER_SEC
#define CLP_SCAN_AT_ONCE 64u /* new .NET processes in one scan; the rest come with the next */

struct clp_scan;

/* 0 or -ENOMEM. */
int clp_scan_new(const struct clp_discover_roots *roots, struct clp_scan **ret) CLP_MUST_USE;
struct clp_scan *clp_scan_free(struct clp_scan *s); /* NULL is fine; returns NULL */

/* One round over /proc: processes that are READY and were not taken before, at most
 * CLP_SCAN_AT_ONCE, each asked with CLP_DISCOVER_ASK_NS. `found` gets each one; its fds are closed
 * after the call. 0 or -errno of /proc. */
int clp_scan_round(struct clp_scan *s, uint64_t now_ns,
                   void (*found)(void *context, struct clp_dotnet *d), void *context) CLP_MUST_USE;
/* Leaves a process alone until then (a target that is being profiled: UINT64_MAX). */
void clp_scan_hold(struct clp_scan *s, int32_t pid, uint64_t until_ns);

#endif
