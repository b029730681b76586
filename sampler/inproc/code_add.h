/* Into the code table with what the runtime says about a function.  Any thread; the function must
 * not go away meanwhile: inside a callback about it, or inside a gate section (gate.h). */
#ifndef CLP_SAMPLER_INPROC_CODE_ADD_H
#define CLP_SAMPLER_INPROC_CODE_ADD_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/unwind/code.h"

#include <stdbool.h>

/* The method of a function id, added if new; 0 when the runtime does not know it, or at the
 * ceiling. `immortal`: its code was seen in an image that cannot unload. */
uint32_t clp_code_find_or_add(clr_function_id function, bool immortal);
/* All compiled versions of it that are not in the table yet. */
void clp_code_add_versions(struct clr_info *info, uint32_t method, clr_function_id function,
                           uint64_t rejit, uint64_t birth_ns);
/* Versions that were compiled before the library came, of a method that is about to get another. */
void clp_code_add_older_versions(struct clr_info *info, clr_function_id function,
                                 uint64_t birth_ns);
/* A dynamic method or IL stub with its code. 0, -ENOENT when it is none, -ENODATA when it was never
 * compiled, -ENOMEM; may be ignored: what is not in the table counts as unknown when it unloads. */
int clp_code_add_dynamic(struct clr_info *info, clr_function_id function, uint64_t birth_ns,
                         bool with_signature);

/* Whether a number that was found a moment ago still stands for the function. */
bool clp_code_is_method_locked(uint32_t method, clr_function_id function);
/* The frame of a body whose code lies at `start`, from its first bytes. */
void clp_code_decode(uint64_t start, uint32_t code_bytes, struct clp_managed_frame *ret);

#endif
