#include "base/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 16u
#define MAX_ITEMS (1u << 28)

void clp_index_init(struct clp_index *x)
{
    *x = (struct clp_index){0};
}

void clp_index_done(struct clp_index *x)
{
    free(x->slots);
    clp_index_init(x);
}

void clp_index_clear(struct clp_index *x)
{
    if (x->slots)
        memset(x->slots, 0, (size_t)x->cap * sizeof(*x->slots));
    x->used = 0;
}

static uint64_t slot_of(uint64_t hash, uint32_t at)
{
    return (hash & 0xffffffff00000000ull) | ((uint64_t)at + 1);
}

/* Where an item would lie if nothing were in its way. Uses the half of the hash that slots keep. */
static uint32_t home_of(const struct clp_index *x, uint64_t slot_or_hash)
{
    return (uint32_t)(slot_or_hash >> 32) & (x->cap - 1);
}

uint32_t clp_index_find(const struct clp_index *x, uint64_t hash, clp_index_equal equal,
                        const void *table, const void *key)
{
    if (!x->cap)
        return CLP_INDEX_NONE;
    for (uint32_t i = home_of(x, hash); x->slots[i]; i = (i + 1) & (x->cap - 1)) {
        uint64_t slot = x->slots[i];
        uint32_t at = (uint32_t)slot - 1;
        if (slot >> 32 == hash >> 32 && equal(table, at, key))
            return at;
    }
    return CLP_INDEX_NONE;
}

static void place(struct clp_index *x, uint64_t slot)
{
    uint32_t i = home_of(x, slot);
    while (x->slots[i])
        i = (i + 1) & (x->cap - 1);
    x->slots[i] = slot;
}

int clp_index_reserve(struct clp_index *x)
{
    if (x->used >= MAX_ITEMS)
        return -ENOSPC;
    if (x->used + 1 <= x->cap / 4 * 3)
        return 0;
    struct clp_index grown = {.cap = x->cap ? x->cap * 2 : FIRST_SLOTS, .used = x->used};
    grown.slots = calloc(grown.cap, sizeof(*grown.slots));
    if (!grown.slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < x->cap; i++)
        if (x->slots[i])
            place(&grown, x->slots[i]);
    free(x->slots);
    *x = grown;
    return 0;
}

void clp_index_add(struct clp_index *x, uint64_t hash, uint32_t at)
{
    place(x, slot_of(hash, at));
    x->used++;
}

/* The slot that holds exactly this item, or CLP_INDEX_NONE. */
static uint32_t slot_position(const struct clp_index *x, uint64_t hash, uint32_t at)
{
    if (!x->cap)
        return CLP_INDEX_NONE;
    uint64_t want = slot_of(hash, at);
    for (uint32_t i = home_of(x, hash); x->slots[i]; i = (i + 1) & (x->cap - 1))
        if (x->slots[i] == want)
            return i;
    return CLP_INDEX_NONE;
}

void clp_index_remove(struct clp_index *x, uint64_t hash, uint32_t at)
{
    uint32_t hole = slot_position(x, hash, at);
    if (hole == CLP_INDEX_NONE)
        return;
    uint32_t mask = x->cap - 1;
    /* Moves back what probed past the hole, so that every run stays without a gap. */
    for (uint32_t i = (hole + 1) & mask; x->slots[i]; i = (i + 1) & mask) {
        uint32_t home = home_of(x, x->slots[i]);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            x->slots[hole] = x->slots[i];
            hole = i;
        }
    }
    x->slots[hole] = 0;
    x->used--;
}

void clp_index_move(struct clp_index *x, uint64_t hash, uint32_t from, uint32_t to)
{
    uint32_t i = slot_position(x, hash, from);
    if (i != CLP_INDEX_NONE)
        x->slots[i] = slot_of(hash, to);
}
