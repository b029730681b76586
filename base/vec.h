/* Growth of the caller's own array: doubles its room up to a ceiling, moves nothing on failure. */
#ifndef CLP_BASE_VEC_H
#define CLP_BASE_VEC_H

#include "base/core/core.h"

/* Makes room for `need` items of `item_bytes` in the array `*items` (a pointer from malloc, or
 * NULL) that has room for *cap. 0, -ENOSPC when `need` is over `ceiling`, -ENOMEM; the array is
 * unchanged then. Use CLP_VEC_GROW, which knows the size. */
int clp_vec_grow(void *items, uint32_t *cap, uint32_t need, size_t item_bytes,
                 uint32_t ceiling) CLP_MUST_USE;

#define CLP_VEC_GROW(items, cap, need, ceiling)                                                    \
    clp_vec_grow(&(items), &(cap), (need), sizeof(*(items)), (ceiling))

#endif
