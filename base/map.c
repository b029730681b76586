#include "base/map.h"
#include "base/hash.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX_BYTES (64u << 10)

struct clp_map_entry_ {
    uint64_t hash;
    union {
        uint8_t small[8];
        uint8_t *big; /* when len > 8 */
    } key;
    uint32_t len;
    union clp_map_value value;
};

struct key {
    const void *data;
    size_t len;
};

static const void *key_of(const struct clp_map_entry_ *e)
{
    return e->len > sizeof(e->key.small) ? e->key.big : e->key.small;
}

static bool equal(const void *table, uint32_t at, const void *key)
{
    const struct clp_map_entry_ *e = (const struct clp_map_entry_ *)table + at;
    const struct key *k = key;
    return e->len == k->len && (k->len == 0 || memcmp(key_of(e), k->data, k->len) == 0);
}

void clp_map_init(struct clp_map *m, uint32_t ceiling_entries)
{
    *m = (struct clp_map){.ceiling = ceiling_entries};
    clp_index_init(&m->index);
}

static void free_key(struct clp_map_entry_ *e)
{
    if (e->len > sizeof(e->key.small))
        free(e->key.big);
}

void clp_map_done(struct clp_map *m)
{
    for (uint32_t i = 0; i < m->len; i++)
        free_key(&m->entries[i]);
    free(m->entries);
    clp_index_done(&m->index);
    clp_map_init(m, m->ceiling);
}

static uint32_t find(const struct clp_map *m, const void *key, size_t len, uint64_t hash)
{
    struct key k = {key, len};
    return clp_index_find(&m->index, hash, equal, m->entries, &k);
}

union clp_map_value *clp_map_get(const struct clp_map *m, const void *key, size_t len)
{
    uint32_t at = find(m, key, len, clp_hash_bytes(key, len));
    return at == CLP_INDEX_NONE ? NULL : &m->entries[at].value;
}

static int store_key(struct clp_map_entry_ *e, const void *key, size_t len)
{
    e->len = (uint32_t)len;
    uint8_t *to = e->key.small;
    if (len > sizeof(e->key.small)) {
        to = malloc(len);
        if (!to)
            return -ENOMEM;
        e->key.big = to;
    }
    if (len)
        memcpy(to, key, len);
    return 0;
}

static int add(struct clp_map *m, uint64_t hash, const void *key, size_t len,
               union clp_map_value value)
{
    int r = CLP_VEC_GROW(m->entries, m->cap, m->len + 1, m->ceiling);
    if (r < 0)
        return r;
    r = clp_index_reserve(&m->index);
    if (r < 0)
        return r;
    struct clp_map_entry_ *e = &m->entries[m->len];
    *e = (struct clp_map_entry_){.hash = hash, .value = value};
    r = store_key(e, key, len);
    if (r < 0)
        return r;
    clp_index_add(&m->index, hash, m->len++);
    return 0;
}

int clp_map_put(struct clp_map *m, const void *key, size_t len, union clp_map_value value)
{
    if (len > KEY_MAX_BYTES)
        return -EMSGSIZE;
    uint64_t hash = clp_hash_bytes(key, len);
    uint32_t at = find(m, key, len, hash);
    if (at != CLP_INDEX_NONE) {
        m->entries[at].value = value;
        return 0;
    }
    int r = add(m, hash, key, len, value);
    if (r < 0)
        m->refused++;
    return r;
}

bool clp_map_remove(struct clp_map *m, const void *key, size_t len, union clp_map_value *ret_value)
{
    uint64_t hash = clp_hash_bytes(key, len);
    uint32_t at = find(m, key, len, hash);
    if (at == CLP_INDEX_NONE)
        return false;
    struct clp_map_entry_ *e = &m->entries[at];
    if (ret_value)
        *ret_value = e->value;
    free_key(e);
    clp_index_remove(&m->index, hash, at);
    uint32_t last = --m->len;
    if (at != last) {
        *e = m->entries[last];
        clp_index_move(&m->index, e->hash, last, at);
    }
    return true;
}

union clp_map_value *clp_map_get_u64(const struct clp_map *m, uint64_t key)
{
    return clp_map_get(m, &key, sizeof(key));
}

int clp_map_put_u64(struct clp_map *m, uint64_t key, union clp_map_value value)
{
    return clp_map_put(m, &key, sizeof(key), value);
}

bool clp_map_remove_u64(struct clp_map *m, uint64_t key, union clp_map_value *ret_value)
{
    return clp_map_remove(m, &key, sizeof(key), ret_value);
}

void *clp_map_get_ptr(const struct clp_map *m, const void *key, size_t len)
{
    union clp_map_value *v = clp_map_get(m, key, len);
    return v ? v->ptr : NULL;
}

void *clp_map_get_ptr_u64(const struct clp_map *m, uint64_t key)
{
    return clp_map_get_ptr(m, &key, sizeof(key));
}

uint32_t clp_map_begin(const struct clp_map *m)
{
    return m->len;
}

bool clp_map_next(const struct clp_map *m, uint32_t *cursor, struct clp_map_item *ret)
{
    if (*cursor == 0)
        return false;
    struct clp_map_entry_ *e = &m->entries[--*cursor];
    *ret = (struct clp_map_item){.key = key_of(e), .len = e->len, .value = &e->value};
    if (e->len == sizeof(ret->key_u64))
        memcpy(&ret->key_u64, e->key.small, sizeof(ret->key_u64));
    return true;
}
