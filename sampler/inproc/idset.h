/* A set of small numbers that are handed out one after the other: what a reader already knows.
 * Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_IDSET_H
#define CLP_SAMPLER_INPROC_IDSET_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_IDSET_MAX (1u << 24) /* 2 MB of bits; numbers beyond are never remembered */

struct clp_idset {
    uint64_t *words; /* pages of its own */
    uint32_t ids;    /* room, in numbers */
};

bool clp_idset_has(const struct clp_idset *s, uint32_t id);
/* Best effort: a number that cannot be remembered is simply told again. */
void clp_idset_add(struct clp_idset *s, uint32_t id);
/* The first number from `from` on that is in the set and not in `without`; 0: there is none. */
uint32_t clp_idset_next(const struct clp_idset *s, const struct clp_idset *without, uint32_t from);
void clp_idset_done(struct clp_idset *s);
size_t clp_idset_bytes(const struct clp_idset *s);

#endif
