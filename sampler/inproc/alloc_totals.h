/* How many bytes threads have allocated, exactly: what GC.GetAllocatedBytesForCurrentThread says,
 * read from outside in the runtime's own counters.
 *
 * Where they lie the runtime tells (contract.h; .NET 9 and newer). A thread's counters are in its
 * thread-local storage. All of it is read by copy, since both that and the Thread object may be
 * freed at any moment, and believed only if the object was the thread's before and after: the
 * runtime tells of a Thread's end before it frees it, and takes the pointer to the storage out of
 * it before the storage goes. Nothing is written, no code of the application runs.
 *
 * It takes it out before it tells of the end, too: what a thread has allocated since the last look
 * is then known by samples alone. So beside the bytes goes what samples said of the same threads in
 * the same time: the two are compared (control_total.h), the rest is an estimate as before.
 * Loop thread, but for clp_alloc_totals_met. */
#ifndef CLP_SAMPLER_INPROC_ALLOC_TOTALS_H
#define CLP_SAMPLER_INPROC_ALLOC_TOTALS_H

#include "base/core/core.h"

#include <stdbool.h>

/* Counts from now on, or no more; again and again the same is cheap. `runtime`: an address inside
 * the runtime's code, asked for its contract the first time. To be called only while all threads
 * are known (enumerated) and their ends are told. */
void clp_alloc_totals_want(bool on, uint64_t runtime);

struct clp_alloc_counted {
    uint64_t bytes; /* allocated since the last call, by threads that lived at both */
    uint64_t met;   /* what the samples of these threads stand for in that time */
};
/* False: nothing is known, for the runtime does not tell, or samples came that no thread is known
 * of. */
bool clp_alloc_totals_take(struct clp_alloc_counted *ret) CLP_MUST_USE;

struct clp_event_thread;
/* The calling thread, inside an event's callback (NULL: not known): a sample stands for `bytes`. */
void clp_alloc_totals_met(struct clp_event_thread *t, uint64_t bytes);

/* ---- for tests: a contract instead of the runtime's; NULL: asks the runtime again ---- */
struct clp_contract;
void clp_alloc_totals_use(const struct clp_contract *c);

#endif
