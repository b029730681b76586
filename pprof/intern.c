#include "pprof/intern.h"
#include "base/hash.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- items of one size ---------------------------------------------------------------------- */

void clp_rows_init(struct clp_rows *t, size_t item_bytes, uint32_t ceiling)
{
    *t = (struct clp_rows){.item_bytes = (uint32_t)item_bytes, .ceiling = ceiling};
    clp_index_init(&t->index);
}

void clp_rows_done(struct clp_rows *t)
{
    free(t->items);
    clp_index_done(&t->index);
    clp_rows_init(t, t->item_bytes, t->ceiling);
}

const void *clp_rows_get(const struct clp_rows *t, uint32_t at)
{
    return (const uint8_t *)t->items + (size_t)at * t->item_bytes;
}

static bool row_equal(const void *table, uint32_t at, const void *key)
{
    const struct clp_rows *t = table;
    return memcmp(clp_rows_get(t, at), key, t->item_bytes) == 0;
}

int64_t clp_rows_find(const struct clp_rows *t, const void *item)
{
    uint64_t hash = clp_hash_bytes(item, t->item_bytes);
    uint32_t at = clp_index_find(&t->index, hash, row_equal, t, item);
    return at == CLP_INDEX_NONE ? -ENOENT : (int64_t)at;
}

int64_t clp_rows_intern(struct clp_rows *t, const void *item)
{
    uint64_t hash = clp_hash_bytes(item, t->item_bytes);
    uint32_t at = clp_index_find(&t->index, hash, row_equal, t, item);
    if (at != CLP_INDEX_NONE)
        return at;
    int r = clp_vec_grow(&t->items, &t->cap, t->len + 1, t->item_bytes, t->ceiling);
    if (r == 0)
        r = clp_index_reserve(&t->index);
    if (r < 0)
        return r;
    memcpy((uint8_t *)t->items + (size_t)t->len * t->item_bytes, item, t->item_bytes);
    clp_index_add(&t->index, hash, t->len);
    return t->len++;
}

/* ---- sequences ------------------------------------------------------------------------------ */

void clp_seqs_init(struct clp_seqs *t, size_t item_bytes, uint32_t ceiling, uint32_t pool_ceiling)
{
    *t = (struct clp_seqs){
        .item_bytes = (uint32_t)item_bytes, .ceiling = ceiling, .pool_ceiling = pool_ceiling};
    clp_index_init(&t->index);
}

void clp_seqs_done(struct clp_seqs *t)
{
    free(t->seqs);
    free(t->pool);
    clp_index_done(&t->index);
    clp_seqs_init(t, t->item_bytes, t->ceiling, t->pool_ceiling);
}

const void *clp_seqs_get(const struct clp_seqs *t, uint32_t at, uint32_t *ret_len)
{
    *ret_len = t->seqs[at].len;
    if (!t->pool) /* nothing but empty ones so far */
        return NULL;
    return (const uint8_t *)t->pool + (size_t)t->seqs[at].start * t->item_bytes;
}

struct seq_key {
    const void *items;
    uint32_t len;
};

static bool seq_equal(const void *table, uint32_t at, const void *key)
{
    const struct clp_seqs *t = table;
    const struct seq_key *k = key;
    uint32_t len;
    const void *items = clp_seqs_get(t, at, &len);
    return len == k->len && (len == 0 || memcmp(items, k->items, (size_t)len * t->item_bytes) == 0);
}

static uint32_t seq_lookup(const struct clp_seqs *t, const void *items, uint32_t len, uint64_t hash)
{
    struct seq_key key = {items, len};
    return clp_index_find(&t->index, hash, seq_equal, t, &key);
}

int64_t clp_seqs_find(const struct clp_seqs *t, const void *items, uint32_t len)
{
    uint32_t at = seq_lookup(t, items, len, clp_hash_bytes(items, (size_t)len * t->item_bytes));
    return at == CLP_INDEX_NONE ? -ENOENT : (int64_t)at;
}

static int make_room(struct clp_seqs *t, uint32_t len)
{
    if (len > t->pool_ceiling - t->pool_len)
        return -ENOSPC;
    int r = clp_vec_grow(&t->pool, &t->pool_cap, t->pool_len + len, t->item_bytes, t->pool_ceiling);
    if (r == 0)
        r = CLP_VEC_GROW(t->seqs, t->cap, t->len + 1, t->ceiling);
    return r < 0 ? r : clp_index_reserve(&t->index);
}

int64_t clp_seqs_intern(struct clp_seqs *t, const void *items, uint32_t len)
{
    uint64_t hash = clp_hash_bytes(items, (size_t)len * t->item_bytes);
    uint32_t at = seq_lookup(t, items, len, hash);
    if (at != CLP_INDEX_NONE)
        return at;
    int r = make_room(t, len);
    if (r < 0)
        return r;
    if (len)
        memcpy((uint8_t *)t->pool + (size_t)t->pool_len * t->item_bytes, items,
               (size_t)len * t->item_bytes);
    t->seqs[t->len] = (struct clp_seq){.start = t->pool_len, .len = len};
    t->pool_len += len;
    clp_index_add(&t->index, hash, t->len);
    return t->len++;
}
