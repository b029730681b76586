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

#endif
