/* Capture threads, their sequence numbers and what is missing of them. */
#include "sampler/nettrace/parts.h"

#include "base/core/text.h"
#include "base/vec.h"

#include <errno.h>
#include <string.h>

static struct clp_nt_thread *cached(const struct clp_nettrace *r, uint64_t index)
{
    size_t slot = index % CLP_NT_THREAD_CACHE;
    if (r->thread_cache[slot].at_plus_1 && r->thread_cache[slot].index == index)
        return &r->threads[r->thread_cache[slot].at_plus_1 - 1];
    return NULL;
}

static void note_cache(struct clp_nettrace *r, uint64_t index, uint32_t at)
{
    size_t slot = index % CLP_NT_THREAD_CACHE;
    r->thread_cache[slot].index = index;
    r->thread_cache[slot].at_plus_1 = at + 1;
}

struct clp_nt_thread *clp_nt_find_thread(const struct clp_nettrace *r, uint64_t index)
{
    struct clp_nt_thread *t = cached(r, index);
    if (t)
        return t;
    const union clp_map_value *v = clp_map_get_u64(&r->thread_map, index);
    return v ? &r->threads[v->u64] : NULL;
}

/* Beyond the ceiling the first place stands for all others: it is never looked at for gaps. */
static uint32_t overflow_thread(struct clp_nettrace *r)
{
    r->counts.threads_refused++;
    return r->thread_count > 0 ? r->thread_count - 1 : UINT32_MAX;
}

static uint32_t new_thread(struct clp_nettrace *r, uint64_t index)
{
    uint32_t at = r->thread_free ? r->thread_free - 1 : r->thread_count;
    if (CLP_VEC_GROW(r->threads, r->thread_cap, at + 1, CLP_NETTRACE_THREADS_MAX) < 0 ||
        clp_map_put_u64(&r->thread_map, index, (union clp_map_value){.u64 = at}) < 0)
        return overflow_thread(r);
    if (r->thread_free)
        r->thread_free = (uint32_t)r->threads[at].lost; /* the chain of free places */
    else
        r->thread_count++;
    r->threads[at] = (struct clp_nt_thread){.index = index, .os_tid = index};
    if (r->info.version >= 6)
        r->threads[at].os_tid = 0; /* until a thread block says it */
    return at;
}

uint32_t clp_nt_thread(struct clp_nettrace *r, uint64_t index)
{
    const struct clp_nt_thread *t = clp_nt_find_thread(r, index);
    uint32_t at = t ? (uint32_t)(t - r->threads) : new_thread(r, index);
    if (at != UINT32_MAX && r->threads[at].index == index)
        note_cache(r, index, at);
    return at;
}

/* ---- gaps ---------------------------------------------------------------------------------- */

static void lose(struct clp_nettrace *r, struct clp_nt_thread *t, uint32_t lost)
{
    t->lost += lost;
    r->counts.lost += lost;
    if (r->config.gap)
        r->config.gap(r->config.context, t->os_tid, lost);
}

/* Numbers begin at 1. Before V6 a new thread may have the number of one that ended: it begins
 * again, which looks like a step back. */
void clp_nt_note_sequence(struct clp_nettrace *r, uint32_t thread, uint32_t sequence)
{
    struct clp_nt_thread *t = &r->threads[thread];
    uint32_t ahead = sequence - t->sequence;
    if (t->seen && (ahead == 0 || ahead > INT32_MAX))
        ahead = sequence <= INT32_MAX ? sequence : 1;
    t->sequence = sequence;
    t->seen = true;
    if (ahead > 1)
        lose(r, t, ahead - 1);
}

/* A lower bound of the thread's last number. */
static void check_thread(struct clp_nettrace *r, uint64_t index, uint32_t sequence)
{
    uint32_t at = clp_nt_thread(r, index);
    if (at == UINT32_MAX || r->threads[at].index != index)
        return;
    struct clp_nt_thread *t = &r->threads[at];
    uint32_t ahead = sequence - t->sequence;
    if (ahead == 0 || ahead > INT32_MAX)
        return;
    t->sequence = sequence;
    t->seen = true;
    lose(r, t, ahead);
}

/* ---- blocks -------------------------------------------------------------------------------- */

static void remove_thread(struct clp_nettrace *r, uint64_t index)
{
    union clp_map_value v;
    if (!clp_map_remove_u64(&r->thread_map, index, &v))
        return;
    r->thread_cache[index % CLP_NT_THREAD_CACHE].at_plus_1 = 0;
    r->threads[v.u64].lost = r->thread_free;
    r->thread_free = (uint32_t)v.u64 + 1;
}

static void forget_threads(struct clp_nettrace *r)
{
    clp_map_done(&r->thread_map);
    memset(r->thread_cache, 0, sizeof(r->thread_cache));
    r->thread_count = r->thread_free = 0;
}

#define FLUSH_THREADS 1u
#define FLUSH_METADATA 2u

int clp_nt_read_sequence_point(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    bool v6 = r->info.version >= 6;
    clp_nt_release_all(r);
    clp_nt_forget_stacks(r);
    (void)clp_bytes_u64(&c); /* time */
    uint32_t flags = v6 ? clp_bytes_u32(&c) : 0;
    uint32_t count = clp_bytes_u32(&c);
    for (uint32_t i = 0; i < count && !c.bad; i++) {
        uint64_t index = v6 ? clp_bytes_uleb(&c) : clp_bytes_u64(&c);
        uint32_t sequence = v6 ? (uint32_t)clp_bytes_uleb(&c) : clp_bytes_u32(&c);
        if (!c.bad)
            check_thread(r, index, sequence);
    }
    if (flags & FLUSH_THREADS)
        forget_threads(r);
    if (flags & FLUSH_METADATA)
        clp_nt_forget_metadata(r);
    return c.bad ? -EPROTO : 0;
}

enum { THREAD_NAME = 1, THREAD_OS_PROCESS, THREAD_OS_THREAD, THREAD_KEY_VALUE };

static struct clp_bytes take_text(struct clp_bytes *c)
{
    uint64_t n = clp_bytes_uleb(c);
    const uint8_t *p = clp_bytes_take(c, n > SIZE_MAX ? SIZE_MAX : (size_t)n);
    return clp_bytes_of(p, p ? (size_t)n : 0);
}

static void read_thread(struct clp_nettrace *r, struct clp_bytes *c)
{
    uint32_t at = clp_nt_thread(r, clp_bytes_uleb(c));
    struct clp_nt_thread unused, *t = at == UINT32_MAX ? &unused : &r->threads[at];
    while (clp_bytes_left(c) > 0 && !c->bad) {
        struct clp_bytes text;
        struct clp_text name = clp_text_in(t->name, sizeof(t->name));
        switch (clp_bytes_u8(c)) {
        case THREAD_NAME:
            text = take_text(c);
            clp_text_utf8_clean(&name, (const char *)text.at, clp_bytes_left(&text));
            break;
        case THREAD_OS_PROCESS:
            (void)clp_bytes_uleb(c);
            break;
        case THREAD_OS_THREAD:
            t->os_tid = clp_bytes_uleb(c);
            break;
        case THREAD_KEY_VALUE:
            (void)take_text(c);
            (void)take_text(c);
            break;
        default:
            return; /* of a later version: the row's size says where the next begins */
        }
    }
}

int clp_nt_read_threads(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    while (clp_bytes_left(&c) > 0) {
        uint16_t size = clp_bytes_u16(&c);
        const uint8_t *p = clp_bytes_take(&c, size);
        if (!p)
            return -EPROTO;
        struct clp_bytes row = clp_bytes_of(p, size);
        read_thread(r, &row);
    }
    return 0;
}

/* Events of such a thread may still be held: they keep its place until then. */
int clp_nt_read_threads_gone(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    clp_nt_release_all(r);
    while (clp_bytes_left(&c) > 0) {
        uint64_t index = clp_bytes_uleb(&c);
        uint32_t sequence = (uint32_t)clp_bytes_uleb(&c);
        if (c.bad)
            return -EPROTO;
        check_thread(r, index, sequence);
        remove_thread(r, index);
    }
    return 0;
}

uint64_t clp_nettrace_thread_lost(const struct clp_nettrace *r, uint64_t capture_thread)
{
    uint64_t lost = 0;
    for (uint32_t i = 0; i < r->thread_count; i++)
        if (r->threads[i].os_tid == capture_thread)
            lost += r->threads[i].lost;
    return lost;
}

const char *clp_nettrace_thread_name(const struct clp_nettrace *r, uint64_t capture_thread)
{
    for (uint32_t i = 0; i < r->thread_count; i++)
        if (r->threads[i].os_tid == capture_thread && *r->threads[i].name)
            return r->threads[i].name;
    return "";
}
