/* A hash map from bytes or numbers to one 64-bit value or pointer.
 *
 * Keys are copied (up to 8 bytes inside the entry). A number is its 8 bytes, so one map holds
 * either bytes or numbers, not both.  The map never owns what a pointer value points to. Iteration
 * order is insertion order as long as nothing is removed. Not thread-safe. */
#ifndef CLP_BASE_MAP_H
#define CLP_BASE_MAP_H

#include "base/core/core.h"
#include "base/index.h"

#include <stdbool.h>

union clp_map_value {
    uint64_t u64;
    void *ptr;
};

struct clp_map_entry_;

struct clp_map {
    struct clp_map_entry_ *entries;
    uint32_t len; /* entries in use */
    uint32_t cap;
    uint32_t ceiling; /* entries; beyond it put answers -ENOSPC */
    uint64_t refused; /* puts that the ceiling or the memory refused */
    struct clp_index index;
};

void clp_map_init(struct clp_map *m, uint32_t ceiling_entries);
/* Frees all keys and the table; the map may be used again with the same ceiling. */
void clp_map_done(struct clp_map *m);

/* The value's place, or NULL. Valid until the next put or remove. */
union clp_map_value *clp_map_get(const struct clp_map *m, const void *key, size_t len);
/* Adds or replaces. 0, -ENOSPC at the ceiling, -ENOMEM, -EMSGSIZE (key over 64 KiB); the map is
 * unchanged then. */
int clp_map_put(struct clp_map *m, const void *key, size_t len,
                union clp_map_value value) CLP_MUST_USE;
/* Whether there was such a key. The old value goes to *ret_value when that is not NULL. */
bool clp_map_remove(struct clp_map *m, const void *key, size_t len, union clp_map_value *ret_value);

/* The same for numbers. */
union clp_map_value *clp_map_get_u64(const struct clp_map *m, uint64_t key);
int clp_map_put_u64(struct clp_map *m, uint64_t key, union clp_map_value value) CLP_MUST_USE;
bool clp_map_remove_u64(struct clp_map *m, uint64_t key, union clp_map_value *ret_value);

/* Most users keep pointers. */
void *clp_map_get_ptr(const struct clp_map *m, const void *key, size_t len);
void *clp_map_get_ptr_u64(const struct clp_map *m, uint64_t key);

struct clp_map_item {
    const void *key; /* owned by the map, valid until the next put or remove */
    size_t len;
    uint64_t key_u64; /* the key as a number, 0 when it is not 8 bytes long */
    union clp_map_value *value;
};

/* Walks all entries, newest first. Start with *cursor = clp_map_begin(m); false at the end. The
 * entry that was just given out may be removed during the walk; nothing else may change. */
uint32_t clp_map_begin(const struct clp_map *m);
bool clp_map_next(const struct clp_map *m, uint32_t *cursor, struct clp_map_item *ret);

#endif
