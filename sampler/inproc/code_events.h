/* What the runtime tells about code, turned into entries of the code table.  Any thread, unless
 * marked. All runtime calls are made before the leaf lock is taken. */
#ifndef CLP_SAMPLER_INPROC_CODE_EVENTS_H
#define CLP_SAMPLER_INPROC_CODE_EVENTS_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

void clp_code_jit_started(clr_function_id function);
void clp_code_jit_finished(clr_function_id function, uint64_t rejit);
void clp_code_dynamic_finished(clr_function_id function);
void clp_code_dynamic_unloaded(clr_function_id function);
void clp_code_module_loaded(clr_module_id module);
void clp_code_module_attached(clr_module_id module, clr_assembly_id assembly);
/* Of all modules of an assembly, or of one module; the other argument is 0. */
void clp_code_module_unload(clr_assembly_id assembly, clr_module_id module);

/* Unloads may have gone untold up to now: whatever may unload is given up, and learnt again where
 * it is seen. Loop thread. */
void clp_code_lost_sight(void);

/* At activation. */
void clp_code_events_init(void);
/* When something unloaded last of which not all code was in the table; 0 = never. */
uint64_t clp_code_unknown_unload_ns(void);

#endif
