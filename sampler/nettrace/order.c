/* Events are held until nothing older can come, then given out sorted.
 *
 * The writer gives runs of one thread each, in order inside a run. Where a run begins is noted when
 * an event comes, and the runs are merged two by two: what is in order already costs one comparison
 * an event, and no key is looked at only to find out. */
#include "sampler/nettrace/parts.h"

#include "base/vec.h"

#include <string.h>

/* Fewer left over than this are merged again at every release. */
#define SMALL_REST 4096u

/* Grown together; the places of events do not move, so those in use are all below held_cap. */
static int make_room(struct clp_nettrace *r)
{
    uint32_t need = r->held_count + 1;
    int e = CLP_VEC_GROW(r->held, r->held_cap, need, CLP_NETTRACE_HELD_MAX_EVENTS);
    if (e == 0)
        e = CLP_VEC_GROW(r->keys, r->key_cap, need, CLP_NETTRACE_HELD_MAX_EVENTS);
    if (e == 0)
        e = CLP_VEC_GROW(r->keys_to, r->key_to_cap, need, CLP_NETTRACE_HELD_MAX_EVENTS);
    if (e == 0)
        e = CLP_VEC_GROW(r->runs, r->run_cap, need, CLP_NETTRACE_HELD_MAX_EVENTS);
    return e;
}

/* ---- sorting ------------------------------------------------------------------------------- */

static void merge(const struct clp_nt_key *a, const struct clp_nt_key *a_end,
                  const struct clp_nt_key *b, const struct clp_nt_key *b_end, struct clp_nt_key *to)
{
    while (a < a_end && b < b_end) {
        bool second = b->ticks < a->ticks; /* equal: who came first stays first */
        *to++ = second ? *b : *a;
        b += second;
        a += !second;
    }
    memcpy(to, a, (size_t)(a_end - a) * sizeof(*a));
    to += a_end - a;
    memcpy(to, b, (size_t)(b_end - b) * sizeof(*b));
}

/* One pass: each two runs beside one another become one. */
static void merge_runs(struct clp_nettrace *r)
{
    const struct clp_nt_key *k = r->keys;
    uint32_t merged = 0;
    for (uint32_t i = 0; i < r->run_count; i += 2) {
        uint32_t at = r->runs[i];
        uint32_t middle = i + 1 < r->run_count ? r->runs[i + 1] : r->held_count;
        uint32_t end = i + 2 < r->run_count ? r->runs[i + 2] : r->held_count;
        merge(k + at, k + middle, k + middle, k + end, r->keys_to + at);
        r->runs[merged++] = at;
    }
    r->run_count = merged;
}

static void sort_keys(struct clp_nettrace *r)
{
    while (r->run_count > 1) {
        merge_runs(r);
        struct clp_nt_key *other = r->keys;
        uint32_t other_cap = r->key_cap;
        r->keys = r->keys_to;
        r->key_cap = r->key_to_cap;
        r->keys_to = other;
        r->key_to_cap = other_cap;
    }
}

/* ---- giving out ---------------------------------------------------------------------------- */

static const uint8_t nothing[CLP_NETTRACE_GUID_BYTES];

static void set_activity(const struct clp_nettrace *r, const struct clp_nt_held *h,
                         struct clp_nettrace_event *e)
{
    e->activity = e->related = nothing;
    if (r->info.version >= 6) {
        if (h->activity_at) {
            e->activity = r->labels[h->activity_at - 1].activity;
            e->related = r->labels[h->activity_at - 1].related;
        }
        return;
    }
    if (h->activity_at)
        e->activity = h->block->data + h->activity_at;
    if (h->related_at)
        e->related = h->block->data + h->related_at;
}

static void give_out(struct clp_nettrace *r, const struct clp_nt_held *h)
{
    struct clp_nettrace_event e = {
        .meta = h->meta,
        .ticks = h->ticks,
        .thread_id = h->thread_id,
        .capture_thread = r->threads[h->capture].os_tid,
        .sequence = h->sequence,
        .processor = h->processor,
        .payload_len = h->payload_len,
        .payload = h->block->data + h->payload_at,
    };
    if (h->stack) {
        const struct clp_nt_stack *s = &r->stacks[h->stack - 1];
        e.stack = s->len > 0 ? r->frames + s->first : NULL;
        e.stack_len = s->len;
    }
    set_activity(r, h, &e);
    if (h->ticks < r->given_ticks)
        r->counts.late++;
    else
        r->given_ticks = h->ticks;
    r->counts.events++;
    r->config.event(r->config.context, &e);
    if (--h->block->held == 0)
        clp_nt_block_release(r, h->block);
}

/* The places of those given out are free; the rest keeps its places. */
static void keep_rest(struct clp_nettrace *r, uint32_t given)
{
    uint32_t rest = r->held_count - given;
    if (rest == 0) {
        r->slot_used = 0;
        r->slot_free = 0;
    } else {
        for (uint32_t i = 0; i < given; i++) {
            uint32_t slot = (uint32_t)r->keys[i].at;
            r->held[slot].stack = r->slot_free;
            r->slot_free = slot + 1;
        }
        memmove(r->keys, r->keys + given, rest * sizeof(*r->keys));
    }
    r->held_count = rest;
    r->sorted_count = rest;
    r->run_count = rest > 0; /* and that one begins where the first did: at 0 */
}

static void release(struct clp_nettrace *r, uint64_t until_ticks, uint32_t at_most)
{
    uint32_t n = 0;
    sort_keys(r);
    for (; n < r->held_count && n < at_most && r->keys[n].ticks <= until_ticks; n++) {
        if (n + 4 < r->held_count)
            __builtin_prefetch(&r->held[r->keys[n + 4].at]);
        give_out(r, &r->held[r->keys[n].at]);
    }
    keep_rest(r, n);
}

/* Merging costs as much as all that is held, so a large rest waits until there is news in
 * proportion: a stream that lets go of one event at a time costs no more than another. */
void clp_nt_release_safe(struct clp_nettrace *r)
{
    uint32_t news = r->held_count - r->sorted_count;
    if (r->safe_ticks == 0 || r->held_count == 0)
        return;
    if (r->sorted_count > SMALL_REST && news < r->sorted_count / 16)
        return;
    release(r, r->safe_ticks, UINT32_MAX);
}

void clp_nt_release_all(struct clp_nettrace *r)
{
    release(r, UINT64_MAX, UINT32_MAX);
}

static void release_half(struct clp_nettrace *r)
{
    uint32_t half = (r->held_count + 1) / 2;
    r->counts.forced += half;
    release(r, UINT64_MAX, half);
}

/* ---- holding ------------------------------------------------------------------------------- */

static bool is_full(const struct clp_nettrace *r)
{
    return r->held_count >= CLP_NETTRACE_HELD_MAX_EVENTS;
}

struct clp_nt_held *clp_nt_held_next(struct clp_nettrace *r)
{
    if (is_full(r))
        clp_nt_release_safe(r);
    if (is_full(r))
        release_half(r);
    if (r->held_count >= r->held_cap && make_room(r) < 0)
        return NULL;
    if (!r->slot_free)
        return &r->held[r->slot_used];
    r->next_free = r->held[r->slot_free - 1].stack;
    return &r->held[r->slot_free - 1];
}

void clp_nt_hold(struct clp_nettrace *r)
{
    uint32_t slot = r->slot_used;
    struct clp_nt_held *h;
    if (r->slot_free) {
        slot = r->slot_free - 1;
        r->slot_free = r->next_free;
    } else {
        r->slot_used++;
    }
    h = &r->held[slot];
    h->block->held++;
    if (r->held_count == 0 || h->ticks < r->keys[r->held_count - 1].ticks)
        r->runs[r->run_count++] = r->held_count;
    r->keys[r->held_count++] = (struct clp_nt_key){.ticks = h->ticks, .at = slot};
}

/* Blocks are held whole: one event of each may keep much memory. */
void clp_nt_bound_held(struct clp_nettrace *r)
{
    while (r->block_bytes > CLP_NETTRACE_HELD_MAX_BYTES + CLP_NETTRACE_BLOCK_MAX_BYTES / 4 &&
           r->held_count > 0)
        release_half(r);
}
