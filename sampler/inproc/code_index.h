/* Which entry covers an address: a sorted index of address ranges.
 *
 * Blocks of up to 64 entries and a sorted directory of blocks: a lookup is two binary searches over
 * consecutive memory, an insertion moves at most one block and, when that is full, the directory.
 * Entries may have equal starts (memory that was used again).  Not thread-safe; not signal-safe. */
#ifndef CLP_SAMPLER_INPROC_CODE_INDEX_H
#define CLP_SAMPLER_INPROC_CODE_INDEX_H

#include "sampler/inproc/slots.h"

#include <stdbool.h>

struct clp_code_index {
    struct clp_slots blocks;
    uint64_t *first;  /* start of each block's first entry */
    uint32_t *number; /* its number in `blocks` */
    uint32_t count, cap;
};

/* A place in the index. */
struct clp_code_place {
    uint32_t block; /* position in the directory */
    uint32_t at;    /* in the block */
};

int clp_code_index_init(struct clp_code_index *x, uint32_t max_entries) CLP_MUST_USE;
void clp_code_index_done(struct clp_code_index *x);

/* 0 or -ENOMEM. */
int clp_code_index_add(struct clp_code_index *x, uint64_t start, uint32_t entry) CLP_MUST_USE;
void clp_code_index_remove(struct clp_code_index *x, uint64_t start, uint32_t entry);

/* The last entry with start <= address, or false. */
bool clp_code_index_find(const struct clp_code_index *x, uint64_t address,
                         struct clp_code_place *ret);
bool clp_code_index_before(const struct clp_code_index *x, struct clp_code_place *place);
bool clp_code_index_after(const struct clp_code_index *x, struct clp_code_place *place);
uint64_t clp_code_index_start(const struct clp_code_index *x, struct clp_code_place place);
uint32_t clp_code_index_entry(const struct clp_code_index *x, struct clp_code_place place);
size_t clp_code_index_bytes(const struct clp_code_index *x);

#endif
