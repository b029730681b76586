/* The library's life inside a runtime: activation, readers that join, detach to dormant, the end of
 * the process.  One activation at a time; a second one is turned away without touching the first.
 */
#ifndef CLP_SAMPLER_INPROC_RUNTIME_H
#define CLP_SAMPLER_INPROC_RUNTIME_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

#include <stdbool.h>

/* Callbacks are to be heeded. */
bool clp_runtime_active(void);
/* The profiling interface, or NULL when the runtime must not be called (any more). */
struct clr_info *clp_runtime_info(void);

/* The runtime has lost count of us (counted.h): it tells of nothing any more. The answer may be 100
 * ms old. Loop thread. */
bool clp_runtime_has_lost_count(void);

/* Initialize: loaded at start. Answers an HRESULT of the profiling API. */
clr_hresult clp_runtime_start(struct clr_object *info);
/* InitializeForAttach: answers enum clp_attach_result. */
clr_hresult clp_runtime_attach(struct clr_object *info, const void *data, uint32_t len);
/* ProfilerAttachComplete: what exists may be enumerated. */
void clp_runtime_attached(void);
/* A method was compiled: after a load at start the first one says the same. Cheap. */
void clp_runtime_compiled(void);
/* ProfilerDetachSucceeded: returns when the library is dormant. */
void clp_runtime_detached(void);
/* Shutdown. */
void clp_runtime_ends(void);

#endif
