#include "sampler/inproc/slots.h"

#include "base/core/arena.h"

#include <string.h>

static size_t chunk_bytes(const struct clp_slots *s)
{
    return (size_t)s->item_bytes * s->per_chunk;
}

void clp_slots_init(struct clp_slots *s, uint32_t item_bytes, uint32_t per_chunk, uint32_t max)
{
    memset(s, 0, sizeof(*s));
    s->item_bytes = item_bytes;
    s->per_chunk = per_chunk;
    s->max = CLP_MIN(max, per_chunk * CLP_SLOTS_CHUNKS_MAX);
}

void clp_slots_done(struct clp_slots *s)
{
    for (uint32_t i = 0; i < CLP_SLOTS_CHUNKS_MAX && s->chunks[i]; i++)
        clp_pages_free(s->chunks[i], chunk_bytes(s));
    memset(s, 0, sizeof(*s));
}

static uint8_t *entry_at(const struct clp_slots *s, uint32_t number)
{
    uint32_t i = number - 1;
    return s->chunks[i / s->per_chunk] + (size_t)(i % s->per_chunk) * s->item_bytes;
}

static uint32_t take_fresh(struct clp_slots *s)
{
    if (s->high >= s->max)
        return 0;
    uint8_t **chunk = &s->chunks[s->high / s->per_chunk];
    if (!*chunk)
        *chunk = clp_pages_alloc(chunk_bytes(s));
    return *chunk ? ++s->high : 0;
}

uint32_t clp_slots_take(struct clp_slots *s)
{
    uint32_t number = s->free;
    if (number) {
        uint8_t *e = entry_at(s, number);
        memcpy(&s->free, e, sizeof(s->free));
        memset(e, 0, sizeof(s->free));
    } else {
        number = take_fresh(s);
    }
    if (number)
        s->used++;
    else
        s->refused++;
    return number;
}

void clp_slots_give(struct clp_slots *s, uint32_t number)
{
    uint8_t *e = entry_at(s, number);
    memset(e, 0, s->item_bytes);
    memcpy(e, &s->free, sizeof(s->free));
    s->free = number;
    s->used--;
}

void *clp_slots_at(const struct clp_slots *s, uint32_t number)
{
    return entry_at(s, number);
}

size_t clp_slots_bytes(const struct clp_slots *s)
{
    if (!s->per_chunk)
        return 0;
    size_t chunks = (s->high + s->per_chunk - 1) / s->per_chunk;
    return chunks * chunk_bytes(s);
}
