/* The flags of a method that its name alone does not tell: overloads, and the kinds of state
 * machines. Calls the runtime's metadata: rules of names.h. */
#ifndef CLP_SAMPLER_INPROC_COMPILER_MADE_H
#define CLP_SAMPLER_INPROC_COMPILER_MADE_H

#include "base/core/core.h"
#include "sampler/inproc/type_names.h"

/* CLP_METHOD_OVERLOADED, _ASYNC and _ITERATOR of the wire for method `name` (ends in 0) of `type`.
 */
uint16_t clp_compiler_made_flags(const struct clp_metadata_scope *s, uint32_t type,
                                 const uint16_t *name);

/* The innermost M of `<M>d__1`, `<M>b__0_1`, `<<M>b__0>d`, `<I<T>.M>d__2`, in place: start and
 * length. Length 0 when `name` was not made by a compiler from a member. Pure. */
uint32_t clp_compiler_made_from(const uint16_t *name, uint32_t len, const uint16_t **ret_start);

#endif
