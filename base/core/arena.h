/* Memory taken straight from the kernel, for code that must not touch the target's heap.
 *
 * An arena grows by mmap in chunks up to a ceiling that is set once; beyond it an allocation
 * answers NULL and counts.  Nothing is freed one by one.  Not thread-safe; not signal-safe (mmap).
 * Chunks are MADV_DONTFORK: a forked child does not inherit them. */
#ifndef CLP_BASE_CORE_ARENA_H
#define CLP_BASE_CORE_ARENA_H

#include "base/core/core.h"

struct clp_arena_chunk;

struct clp_arena {
    struct clp_arena_chunk *chunks;
    size_t ceiling_bytes;
    size_t mapped_bytes;
    uint64_t refused; /* allocations that the ceiling or the kernel refused */
};

void clp_arena_init(struct clp_arena *a, size_t ceiling_bytes);
/* Zeroed memory, aligned to 16; NULL at the ceiling. */
void *clp_arena_alloc(struct clp_arena *a, size_t bytes) CLP_MUST_USE;
/* Unmaps everything; the arena may be used again with the same ceiling. */
void clp_arena_done(struct clp_arena *a);

/* One private mapping of its own (tables that are replaced when they grow). NULL when refused. */
void *clp_pages_alloc(size_t bytes) CLP_MUST_USE;
void clp_pages_free(void *p, size_t bytes);

#endif
