/* Looks for new targets again and again, at little cost: a process that is no target is looked at
 * more and more rarely, unless it runs another program now; one that the owner holds is left alone.
 *
 * A round costs one small file of /proc (the number that the kernel gave out last), one or a few of
 * each process whose number is new, and the same of those that are due. A new thread's number leads
 * to its process: a program that becomes a .NET one by exec starts threads. Where too many numbers
 * are new or none is told, and every ten seconds, /proc is listed. clp_scan_pause_ns keeps all that
 * below half a hundredth of a core, as long as one round a second is no more than that. One thread.
 */
#ifndef CLP_AGENT_SCAN_H
#define CLP_AGENT_SCAN_H

#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"

#define CLP_SCAN_EVERY_NS (250 * CLP_NSEC_PER_MSEC) /* at best */
#define CLP_SCAN_LATEST_NS CLP_NSEC_PER_SEC
#define CLP_SCAN_AT_ONCE 64u /* new .NET processes in one scan; the rest come with the next */

struct clp_scan;

/* 0 or -ENOMEM. */
int clp_scan_new(const struct clp_discover_roots *roots, struct clp_scan **ret) CLP_MUST_USE;
struct clp_scan *clp_scan_free(struct clp_scan *s); /* NULL is fine; returns NULL */

/* One round over /proc. `found` gets every .NET process that is not held, at most CLP_SCAN_AT_ONCE,
 * asked with CLP_DISCOVER_ASK_NS: READY, or why not; one that is stopped was not asked (PORT). Its
 * fds are closed after the call. 0 or -errno of /proc. */
int clp_scan_round(struct clp_scan *s, uint64_t now_ns,
                   void (*found)(void *context, struct clp_dotnet *d), void *context) CLP_MUST_USE;
/* Leaves a process alone until then (a target that is being profiled: UINT64_MAX), or until its pid
 * is another process. */
void clp_scan_hold(struct clp_scan *s, int32_t pid, uint64_t until_ns);
/* The next round looks at everything that is not held: something is known to have started. */
void clp_scan_hurry(struct clp_scan *s);
/* Every hold ends with the next round, except those without an end: the settings have changed. */
void clp_scan_release(struct clp_scan *s);
/* How long to wait before the next round, when the last one took `cost_ns`. */
uint64_t clp_scan_pause_ns(uint64_t cost_ns);

#endif
