#include "sampler/inproc/idset.h"

#include "base/core/arena.h"

#include <string.h>

#define FIRST_IDS 32768u /* one page */

bool clp_idset_has(const struct clp_idset *s, uint32_t id)
{
    return id < s->ids && (s->words[id / 64] >> (id % 64) & 1);
}

static bool grow(struct clp_idset *s, uint32_t id)
{
    uint32_t ids = s->ids ? s->ids : FIRST_IDS;
    while (ids <= id)
        ids *= 2;
    uint64_t *words = clp_pages_alloc(ids / 8);
    if (!words)
        return false;
    if (s->words)
        memcpy(words, s->words, s->ids / 8);
    clp_idset_done(s);
    *s = (struct clp_idset){words, ids};
    return true;
}

void clp_idset_add(struct clp_idset *s, uint32_t id)
{
    if (id >= CLP_IDSET_MAX || (id >= s->ids && !grow(s, id)))
        return;
    s->words[id / 64] |= 1ull << (id % 64);
}

uint32_t clp_idset_next(const struct clp_idset *s, const struct clp_idset *without, uint32_t from)
{
    for (uint32_t id = from; id < s->ids; id = (id / 64 + 1) * 64) {
        uint64_t left = s->words[id / 64] >> (id % 64) << (id % 64);
        if (id < without->ids)
            left &= ~without->words[id / 64];
        if (left)
            return id / 64 * 64 + (uint32_t)__builtin_ctzll(left);
    }
    return 0;
}

void clp_idset_done(struct clp_idset *s)
{
    clp_pages_free(s->words, s->ids / 8);
    *s = (struct clp_idset){0};
}

size_t clp_idset_bytes(const struct clp_idset *s)
{
    return s->ids / 8;
}
