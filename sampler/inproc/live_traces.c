#include "sampler/inproc/live_traces.h"

#include "base/core/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define COMPACT_BYTES (128u << 10)        /* so many are not worth the work */
#define BUCKETS (2 * CLP_LIVE_TRACES_MAX) /* a power of two */

static struct {
    uint8_t *data;
    size_t used, most; /* `most`: ever; what lies beyond was never touched */
    size_t dead;       /* bytes of traces without a reference */
    /* By number: where it lies; UINT32_MAX: nowhere any more. */
    uint32_t offset[CLP_LIVE_TRACES_MAX];
    uint32_t taken; /* numbers that were given at some time; those beyond touch no memory */
    uint32_t free[CLP_LIVE_TRACES_MAX], free_count;
    uint32_t bucket[BUCKETS]; /* number + 1; 0: empty */
} T;

int clp_live_traces_init(void)
{
    if (T.data)
        return 0;
    T.data = clp_pages_alloc(CLP_LIVE_TRACES_BYTES);
    return T.data ? 0 : -ENOMEM;
}

static struct clp_live_trace *at(uint32_t number)
{
    return (struct clp_live_trace *)(void *)(T.data + T.offset[number]);
}

const struct clp_live_trace *clp_live_traces_at(uint32_t number)
{
    return at(number);
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xd6e8feb86659fd93ull;
    return h ^ h >> 32;
}

static uint64_t hash_of(const uint64_t *frames, uint16_t count, uint16_t flags, const char *text,
                        uint16_t text_len)
{
    uint64_t h = mix(0x9e3779b97f4a7c15ull, (uint64_t)count << 32 | (uint64_t)flags << 16);
    for (uint16_t i = 0; i < count; i++)
        h = mix(h, frames[i]);
    for (uint16_t i = 0; i < text_len; i++)
        h = mix(h, (uint8_t)text[i]);
    return h;
}

static void enter(uint32_t number)
{
    uint64_t i = at(number)->hash;
    while (T.bucket[i & (BUCKETS - 1)])
        i++;
    T.bucket[i & (BUCKETS - 1)] = number + 1;
}

/* Moves what lives together, in its order, and forgets the rest. */
static void compact(void)
{
    size_t to = 0;
    memset(T.bucket, 0, sizeof(T.bucket));
    for (size_t from = 0; from < T.used;) {
        struct clp_live_trace *t = (struct clp_live_trace *)(void *)(T.data + from);
        uint32_t size = t->size, number = t->number;
        if (t->refs == 0) {
            T.offset[number] = UINT32_MAX;
            T.free[T.free_count++] = number;
        } else {
            memmove(T.data + to, t, size);
            T.offset[number] = (uint32_t)to;
            to += size;
            enter(number);
        }
        from += size;
    }
    T.used = to;
    T.dead = 0;
}

static uint32_t find(uint64_t hash, const uint64_t *frames, uint16_t count, uint16_t flags,
                     const char *text, uint16_t text_len)
{
    for (uint64_t i = hash; T.bucket[i & (BUCKETS - 1)]; i++) {
        const struct clp_live_trace *t = at(T.bucket[i & (BUCKETS - 1)] - 1);
        if (t->hash == hash && t->count == count && t->flags == flags && t->text_len == text_len &&
            memcmp(t->frames, frames, count * sizeof(*frames)) == 0 &&
            (!text_len || memcmp(clp_live_trace_text(t), text, text_len) == 0))
            return t->number;
    }
    return CLP_LIVE_TRACE_NONE;
}

static bool has_room(size_t size)
{
    return (T.free_count || T.taken < CLP_LIVE_TRACES_MAX) &&
           size <= CLP_LIVE_TRACES_BYTES - T.used;
}

uint32_t clp_live_traces_take(const uint64_t *frames, uint16_t count, uint16_t flags,
                              const char *text, uint16_t text_len)
{
    uint64_t hash = hash_of(frames, count, flags, text, text_len);
    uint32_t number = find(hash, frames, count, flags, text, text_len);
    if (number != CLP_LIVE_TRACE_NONE) {
        struct clp_live_trace *t = at(number);
        T.dead -= t->refs == 0 ? t->size : 0;
        t->refs++;
        return number;
    }
    size_t size =
        CLP_ALIGN_UP(sizeof(struct clp_live_trace) + count * sizeof(*frames) + text_len, 8);
    if ((!has_room(size) && T.dead > 0) || (T.dead > T.used / 2 && T.used >= COMPACT_BYTES))
        compact();
    if (!has_room(size))
        return CLP_LIVE_TRACE_NONE;
    number = T.free_count ? T.free[--T.free_count] : T.taken++;
    T.offset[number] = (uint32_t)T.used;
    T.used += size;
    T.most = CLP_MAX(T.most, T.used);
    struct clp_live_trace *t = at(number);
    *t = (struct clp_live_trace){.hash = hash,
                                 .number = number,
                                 .refs = 1,
                                 .size = (uint32_t)size,
                                 .count = count,
                                 .flags = flags,
                                 .text_len = text_len};
    memcpy(t->frames, frames, count * sizeof(*frames));
    if (text_len)
        memcpy(t->frames + count, text, text_len);
    enter(number);
    return number;
}

void clp_live_traces_drop(uint32_t number)
{
    struct clp_live_trace *t = at(number);
    if (--t->refs == 0)
        T.dead += t->size;
}

size_t clp_live_traces_bytes(void)
{
    return T.data ? T.most + sizeof(T) : 0;
}
