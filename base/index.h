/* The hash half of a table: finds the position of a key in an array that the caller owns.
 *
 * For interning: the keys lie in the caller's array only, the index keeps 8 bytes a slot.  Open
 * addressing, linear probing, at most 3/4 full, no tombstones. It grows with the caller's array, so
 * the caller's ceiling is its ceiling. Not thread-safe. */
#ifndef CLP_BASE_INDEX_H
#define CLP_BASE_INDEX_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_INDEX_NONE UINT32_MAX

struct clp_index {
    uint64_t *slots; /* hash's upper half << 32 | position + 1; 0 = free */
    uint32_t cap;    /* power of two, or 0 */
    uint32_t used;
};

/* Whether the caller's item at position `at` has the key `key`. */
typedef bool (*clp_index_equal)(const void *table, uint32_t at, const void *key);

void clp_index_init(struct clp_index *x);
void clp_index_done(struct clp_index *x);
/* Forgets all positions, keeps the memory. */
void clp_index_clear(struct clp_index *x);

/* The position of `key`, whose hash (base/hash.h) is `hash`, or CLP_INDEX_NONE. */
uint32_t clp_index_find(const struct clp_index *x, uint64_t hash, clp_index_equal equal,
                        const void *table, const void *key);
/* Makes room for one more, so that the next clp_index_add cannot fail. 0, -ENOMEM, or -ENOSPC
 * beyond 2^28 items. */
int clp_index_reserve(struct clp_index *x) CLP_MUST_USE;
/* Notes that an item with `hash` lies at `at`; the key must not be there already. Needs the room
 * that clp_index_reserve made. */
void clp_index_add(struct clp_index *x, uint64_t hash, uint32_t at);
/* Forgets the item with `hash` at `at`. */
void clp_index_remove(struct clp_index *x, uint64_t hash, uint32_t at);
/* The item with `hash` moved from `from` to `to`. */
void clp_index_move(struct clp_index *x, uint64_t hash, uint32_t from, uint32_t to);

#endif
