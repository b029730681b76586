/* C++ and Rust names for people, through libiberty, bounded.  Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_DEMANGLE_H
#define CLP_SAMPLER_SYMBOLS_DEMANGLE_H

#include "base/core/text.h"

/* Appends the demangled name, without parameters and return type. 1: done; 0: not a mangled name,
 * nothing appended; -E2BIG: it unfolds beyond all measure (substitutions make a short mangled name
 * exponentially long), nothing appended.  Not signal-safe; thread-safe. */
int clp_demangle(struct clp_text *out, const char *mangled);

#endif
