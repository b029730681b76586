#include "sampler/inproc/code_index.h"

#include "base/core/arena.h"

#include <errno.h>
#include <string.h>

#define BLOCK_ENTRIES 64u

struct block {
    uint32_t count;
    uint32_t entry[BLOCK_ENTRIES];
    uint64_t start[BLOCK_ENTRIES];
};

static struct block *block_at(const struct clp_code_index *x, uint32_t position)
{
    return clp_slots_at(&x->blocks, x->number[position]);
}

static size_t directory_bytes(uint32_t cap)
{
    return (size_t)cap * (sizeof(uint64_t) + sizeof(uint32_t));
}

/* Both columns of the directory lie in one mapping, the wide one first. */
static int grow_directory(struct clp_code_index *x, uint32_t cap)
{
    uint64_t *first = clp_pages_alloc(directory_bytes(cap));
    if (!first)
        return -ENOMEM;
    uint32_t *number = (uint32_t *)(first + cap);
    if (x->count) {
        memcpy(first, x->first, x->count * sizeof(*first));
        memcpy(number, x->number, x->count * sizeof(*number));
    }
    clp_pages_free(x->first, directory_bytes(x->cap));
    x->first = first;
    x->number = number;
    x->cap = cap;
    return 0;
}

int clp_code_index_init(struct clp_code_index *x, uint32_t max_entries)
{
    memset(x, 0, sizeof(*x));
    /* Split blocks are half full, and every one may be. */
    clp_slots_init(&x->blocks, sizeof(struct block), 64, max_entries / (BLOCK_ENTRIES / 2) + 2);
    return grow_directory(x, 1024);
}

void clp_code_index_done(struct clp_code_index *x)
{
    clp_pages_free(x->first, directory_bytes(x->cap));
    clp_slots_done(&x->blocks);
    memset(x, 0, sizeof(*x));
}

/* How many of the sorted starts are <= address. */
static uint32_t count_up_to(const uint64_t *starts, uint32_t n, uint64_t address)
{
    uint32_t low = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        bool right = starts[low + half] <= address;
        low = right ? low + half + 1 : low;
        n = right ? n - half - 1 : half;
    }
    return low;
}

bool clp_code_index_find(const struct clp_code_index *x, uint64_t address,
                         struct clp_code_place *ret)
{
    uint32_t blocks = count_up_to(x->first, x->count, address);
    if (blocks == 0)
        return false;
    const struct block *b = block_at(x, blocks - 1);
    *ret = (struct clp_code_place){.block = blocks - 1,
                                   .at = count_up_to(b->start, b->count, address) - 1};
    return true;
}

bool clp_code_index_before(const struct clp_code_index *x, struct clp_code_place *place)
{
    if (place->at > 0) {
        place->at--;
        return true;
    }
    if (place->block == 0)
        return false;
    place->block--;
    place->at = block_at(x, place->block)->count - 1;
    return true;
}

bool clp_code_index_after(const struct clp_code_index *x, struct clp_code_place *place)
{
    if (place->at + 1 < block_at(x, place->block)->count) {
        place->at++;
        return true;
    }
    if (place->block + 1 >= x->count)
        return false;
    place->block++;
    place->at = 0;
    return true;
}

uint64_t clp_code_index_start(const struct clp_code_index *x, struct clp_code_place place)
{
    return block_at(x, place.block)->start[place.at];
}

uint32_t clp_code_index_entry(const struct clp_code_index *x, struct clp_code_place place)
{
    return block_at(x, place.block)->entry[place.at];
}

/* ---- insertion ----------------------------------------------------------------------------- */

static int insert_block(struct clp_code_index *x, uint32_t position)
{
    if (x->count == x->cap && grow_directory(x, x->cap * 2) < 0)
        return -ENOMEM;
    uint32_t number = clp_slots_take(&x->blocks);
    if (!number)
        return -ENOMEM;
    size_t behind = x->count - position;
    memmove(x->first + position + 1, x->first + position, behind * sizeof(*x->first));
    memmove(x->number + position + 1, x->number + position, behind * sizeof(*x->number));
    x->number[position] = number;
    x->count++;
    return 0;
}

/* Moves the upper half to a new block behind.  Code heaps mostly grow upward: at the very end the
 * new block starts empty, so the old one stays full. */
static int split_block(struct clp_code_index *x, uint32_t position, bool at_end)
{
    int r = insert_block(x, position + 1);
    if (r < 0)
        return r;
    struct block *low = block_at(x, position), *high = block_at(x, position + 1);
    uint32_t keep = at_end ? BLOCK_ENTRIES : BLOCK_ENTRIES / 2;
    high->count = low->count - keep;
    memcpy(high->start, low->start + keep, high->count * sizeof(*high->start));
    memcpy(high->entry, low->entry + keep, high->count * sizeof(*high->entry));
    low->count = keep;
    x->first[position + 1] = at_end ? UINT64_MAX : high->start[0];
    return 0;
}

static void insert_entry(struct clp_code_index *x, struct clp_code_place p, uint64_t start,
                         uint32_t entry)
{
    struct block *b = block_at(x, p.block);
    size_t behind = b->count - p.at;
    memmove(b->start + p.at + 1, b->start + p.at, behind * sizeof(*b->start));
    memmove(b->entry + p.at + 1, b->entry + p.at, behind * sizeof(*b->entry));
    b->start[p.at] = start;
    b->entry[p.at] = entry;
    b->count++;
    x->first[p.block] = b->start[0];
}

int clp_code_index_add(struct clp_code_index *x, uint64_t start, uint32_t entry)
{
    struct clp_code_place p = {0};
    if (x->count == 0) {
        int r = insert_block(x, 0);
        if (r < 0)
            return r;
    } else if (clp_code_index_find(x, start, &p)) {
        p.at++;
    }
    if (block_at(x, p.block)->count == BLOCK_ENTRIES) {
        bool at_end = p.block + 1 == x->count && p.at == BLOCK_ENTRIES;
        int r = split_block(x, p.block, at_end);
        if (r < 0)
            return r;
        uint32_t kept = block_at(x, p.block)->count;
        if (at_end || p.at > kept)
            p = (struct clp_code_place){.block = p.block + 1, .at = p.at - kept};
    }
    insert_entry(x, p, start, entry);
    return 0;
}

/* ---- removal ------------------------------------------------------------------------------- */

static bool find_entry(const struct clp_code_index *x, uint64_t start, uint32_t entry,
                       struct clp_code_place *ret)
{
    bool more = clp_code_index_find(x, start, ret);
    while (more && clp_code_index_start(x, *ret) == start) {
        if (clp_code_index_entry(x, *ret) == entry)
            return true;
        more = clp_code_index_before(x, ret);
    }
    return false;
}

static void remove_block(struct clp_code_index *x, uint32_t position)
{
    clp_slots_give(&x->blocks, x->number[position]);
    size_t behind = x->count - position - 1;
    memmove(x->first + position, x->first + position + 1, behind * sizeof(*x->first));
    memmove(x->number + position, x->number + position + 1, behind * sizeof(*x->number));
    x->count--;
}

void clp_code_index_remove(struct clp_code_index *x, uint64_t start, uint32_t entry)
{
    struct clp_code_place p;
    if (!find_entry(x, start, entry, &p))
        return;
    struct block *b = block_at(x, p.block);
    size_t behind = b->count - p.at - 1;
    memmove(b->start + p.at, b->start + p.at + 1, behind * sizeof(*b->start));
    memmove(b->entry + p.at, b->entry + p.at + 1, behind * sizeof(*b->entry));
    if (--b->count == 0)
        remove_block(x, p.block);
    else
        x->first[p.block] = b->start[0];
}

size_t clp_code_index_bytes(const struct clp_code_index *x)
{
    return clp_slots_bytes(&x->blocks) + (x->first ? directory_bytes(x->cap) : 0);
}
