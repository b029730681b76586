/* What the runtime tells about code, turned into entries of the code table.  Any thread, unless
 * marked. All runtime calls are made before the leaf lock is taken. */
#ifndef CLP_SAMPLER_INPROC_CODE_EVENTS_H
#define CLP_SAMPLER_INPROC_CODE_EVENTS_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/unwind/code.h"

#include <stdbool.h>

void clp_code_jit_finished(clr_function_id function, uint64_t rejit);
void clp_code_dynamic_finished(clr_function_id function);
void clp_code_dynamic_unloaded(clr_function_id function);
void clp_code_module_loaded(clr_module_id module);
void clp_code_module_attached(clr_module_id module, clr_assembly_id assembly);
/* Of all modules of an assembly, or of one module; the other argument is 0. */
void clp_code_module_unload(clr_assembly_id assembly, clr_module_id module);
void clp_code_thread_destroyed(clr_thread_id thread);

/* Loop thread: the modules and threads that exist already. Safe beside all of the above. Methods
 * are not enumerated: the runtime would also list those whose context is just being torn down. They
 * are learnt when one is first seen in a sample (below). */
void clp_code_enumerate(void);

/* Loop thread: asks the runtime for the code at `ip`, which a sample saw running at `time_ns`, and
 * adds it to the table. Returns without asking when something that is not in the table has unloaded
 * since the sample: it could be that. 0, -EAGAIN (not asked), -ENOENT (no managed code). */
int clp_code_learn_at(uint64_t ip, uint64_t time_ns) CLP_MUST_USE;
/* Loop thread: the method that owns precompiled code at `ip`, added if new; 0 when the runtime does
 * not tell. */
uint32_t clp_code_method_at(uint64_t ip);
/* Loop thread: whether the code at `ip`, whose method is suspect, is what a sample saw at
 * `time_ns`. If not, the method is taken to have died when it became suspect. */
bool clp_code_confirm(uint32_t method, uint64_t ip, uint64_t time_ns);
/* Loop thread: names a method that is not named yet. */
void clp_code_name_method(uint32_t method);
/* The frame of a body whose code lies at `start`, from its first bytes. */
void clp_code_decode(uint64_t start, uint32_t code_bytes, struct clp_managed_frame *ret);
/* At activation. */
void clp_code_events_init(void);

#endif
