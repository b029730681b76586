/* A table of equal entries that are found by number: stable addresses, numbers from 1, freed
 * entries are used again.  Chunks of entries come straight from the kernel and are never moved, so
 * the table grows without a copy.  Not thread-safe; not signal-safe (mmap). */
#ifndef CLP_SAMPLER_INPROC_SLOTS_H
#define CLP_SAMPLER_INPROC_SLOTS_H

#include "base/core/core.h"

#define CLP_SLOTS_CHUNKS_MAX 1024u

struct clp_slots {
    uint8_t *chunks[CLP_SLOTS_CHUNKS_MAX];
    uint32_t item_bytes;
    uint32_t per_chunk;
    uint32_t max;     /* ceiling in entries */
    uint32_t high;    /* entries that were ever taken */
    uint32_t used;    /* entries in use now */
    uint32_t free;    /* head of the free list, 0 = empty; the link is the entry's first word */
    uint64_t refused; /* beyond the ceiling, or no memory */
};

/* `item_bytes` at least 4; `max` is lowered to `per_chunk` * CLP_SLOTS_CHUNKS_MAX. */
void clp_slots_init(struct clp_slots *s, uint32_t item_bytes, uint32_t per_chunk, uint32_t max);
/* Unmaps all; init is needed again. */
void clp_slots_done(struct clp_slots *s);

/* A zeroed entry; 0 at the ceiling (counted). */
uint32_t clp_slots_take(struct clp_slots *s) CLP_MUST_USE;
/* The entry is zeroed but for its first word, so a stale reference to it finds nothing. */
void clp_slots_give(struct clp_slots *s, uint32_t number);
/* The entry of a number that was taken. */
void *clp_slots_at(const struct clp_slots *s, uint32_t number);
size_t clp_slots_bytes(const struct clp_slots *s);

#endif
