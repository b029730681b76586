/* Which sample types make up one kind of profile, and its encoding. */
#ifndef CLP_AGENT_KINDS_H
#define CLP_AGENT_KINDS_H

#include "base/core/core.h"
#include "config/value.h"
#include "pprof/encode.h"

/* The kinds of samples that the library has to send for these types, bit (1 << enum
 * clp_sample_kind). */
uint32_t clp_kinds_wire(uint32_t types);

/* The profile of one kind, gzipped. -ENOENT when the model has none of its sample types; else as
 * clp_profile_encode. */
int clp_kind_encode(const struct clp_profile *p, enum clp_profile_type kind,
                    struct clp_encoded *ret) CLP_MUST_USE;

#endif
