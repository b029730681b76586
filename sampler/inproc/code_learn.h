/* Questions to the runtime about code that a sample has seen.  Loop thread only.
 *
 * In general such questions crash: code may unload while it is asked about.  Each function says why
 * its own is safe. */
#ifndef CLP_SAMPLER_INPROC_CODE_LEARN_H
#define CLP_SAMPLER_INPROC_CODE_LEARN_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

#include <stdbool.h>

/* Asks the runtime for the code at `ip`, which a sample saw running at `time_ns`, and
 * adds it to the table. Returns without asking when something that is not in the table has unloaded
 * since the sample: it could be that. 0, -EAGAIN (not asked), -ENOENT (no managed code). */
int clp_code_learn_at(uint64_t ip, uint64_t time_ns) CLP_MUST_USE;
/* The method that owns precompiled code at `ip`, added if new, with its function id; 0 when the
 * runtime does not tell. */
uint32_t clp_code_method_at(uint64_t ip, clr_function_id *ret_function);
/* Whether the code at `ip`, whose method is suspect, is what a sample saw at
 * `time_ns`. If not, the method is taken to have died when it became suspect. */
bool clp_code_confirm(uint32_t method, uint64_t ip, uint64_t time_ns);
/* Names a method that is not named yet. */
void clp_code_name_method(uint32_t method);

#endif
