#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ITEMS 16u

int clp_vec_grow(void *items, uint32_t *cap, uint32_t need, size_t item_bytes, uint32_t ceiling)
{
    if (need > ceiling)
        return -ENOSPC;
    if (need <= *cap)
        return 0;
    uint64_t room = CLP_MAX((uint64_t)*cap * 2, (uint64_t)FIRST_ITEMS);
    room = CLP_MIN(CLP_MAX(room, (uint64_t)need), (uint64_t)ceiling);
    /* The array is reached through memcpy: the caller's pointer has a type of its own. */
    void *old;
    memcpy(&old, items, sizeof(old));
    void *grown = reallocarray(old, room, item_bytes);
    if (!grown)
        return -ENOMEM;
    memcpy(items, &grown, sizeof(grown));
    *cap = (uint32_t)room;
    return 0;
}
