/* Where the library's test build takes part in its life: it asks the runtime for stacks of its own
 * and compares them with ours (tests/snapshot).  In the library that is shipped nothing stands
 * behind these. */
#ifndef CLP_SAMPLER_INPROC_HOOKS_H
#define CLP_SAMPLER_INPROC_HOOKS_H

#include <stdint.h>

#ifdef CLP_TEST_HOOKS

#define CLP_HOOKS_MASK_LOW 0x10000040u /* exceptions, stack snapshots */

/* ExceptionThrown, on the throwing thread. */
void clp_hooks_thrown(void);
/* EventPipeEventDelivered, on the thread of the event. */
void clp_hooks_event(uint32_t id);
/* JITCompilationFinished, before the method is made known. */
void clp_hooks_compiled(void);
/* Loop thread, when the capture ring was drained. */
void clp_hooks_drained(uint64_t pass);

#else

#define CLP_HOOKS_MASK_LOW 0u

static inline void clp_hooks_thrown(void)
{
}

static inline void clp_hooks_event(uint32_t id)
{
    (void)id;
}

static inline void clp_hooks_compiled(void)
{
}

static inline void clp_hooks_drained(uint64_t pass)
{
    (void)pass;
}

#endif

#endif
