/* From what a compiler made back to the member that people wrote. Pure, signal-safe. */
#ifndef CLP_SAMPLER_INPROC_COMPILER_FROM_H
#define CLP_SAMPLER_INPROC_COMPILER_FROM_H

#include "base/core/core.h"

/* The innermost M of `<M>d__1`, `<M>b__0_1`, `<<M>b__0>d`, `<I<T>.M>d__2`, in place: start and
 * length. Length 0 when `name` was not made by a compiler from a member. */
uint32_t clp_compiler_made_from(const uint16_t *name, uint32_t len, const uint16_t **ret_start);

#endif
