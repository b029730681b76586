/* Layouts of the runtime's own events, which carry no description in the stream: one table, from
 * the runtime's manifest (dotnet/runtime, ClrEtwAll.man). Later versions of an event only append
 * fields, so the newest layout reads them all. Thread-safe. */
#ifndef CLP_SAMPLER_NETTRACE_CLR_H
#define CLP_SAMPLER_NETTRACE_CLR_H

#include "sampler/nettrace/nettrace.h"

/* Stands for all events of a provider that the stream does not describe. */
#define CLP_CLR_ANY_ID UINT32_MAX

struct clp_clr_event {
    enum clp_nettrace_provider provider;
    uint32_t id;
    const char *name;
    const char *layout; /* "Field:type ...", see clr_events.def */
};

/* NULL when the table does not have it. */
const struct clp_clr_event *clp_clr_event(enum clp_nettrace_provider provider, uint32_t id);

/* Ids that the product itself reads. */
enum clp_clr_id {
    CLP_CLR_GC_START = 1,
    CLP_CLR_GC_END = 2,
    CLP_CLR_GC_RESTART_END = 3,
    CLP_CLR_GC_HEAP_STATS = 4,
    CLP_CLR_GC_SUSPEND_BEGIN = 9,
    CLP_CLR_ALLOCATION_TICK = 10,
    CLP_CLR_EXCEPTION = 80,
    CLP_CLR_CONTENTION_START = 81,
    CLP_CLR_THREAD_CREATED = 85,
    CLP_CLR_CONTENTION_STOP = 91,
    CLP_CLR_METHOD_LOAD = 143,
    CLP_CLR_METHOD_UNLOAD = 144, /* at RUNDOWN: MethodDCEnd, same layout */
    CLP_CLR_MODULE_LOAD = 152,
    CLP_CLR_RUNDOWN_MODULE = 154,
    CLP_CLR_RUNDOWN_COMPLETE = 146,
    CLP_CLR_ALLOCATION_SAMPLED = 303,
};

#endif
