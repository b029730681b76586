#include "sampler/inproc/event_thread.h"

#include "base/core/arena.h"
#include "sampler/inproc/bounds.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/event_sized.h"
#include "sampler/inproc/rawcall.h"
#include "sampler/inproc/spans.h"
#include "sampler/inproc/thread_table.h"

#include <errno.h>

/* As long as threads are few they lie among the first entries, so that few pages are touched. */
#define ENTRIES 8192u
#define ENTRIES_FIRST 256u
static const struct part {
    uint32_t first, count, probes;
} parts[] = {{0, ENTRIES_FIRST, 8}, {ENTRIES_FIRST, ENTRIES - ENTRIES_FIRST, 32}};

static _Atomic(struct clp_event_thread *) table;
static uint64_t main_high; /* end of the main thread's stack; 0: unknown */
/* It grows: how far down it may be. Other mappings begin at least 128 MB below its end. */
#define MAIN_STACK_BYTES (64ull << 20)

int clp_event_threads_init(void)
{
    struct clp_bounds main_thread = {.main_thread = true};
    if (atomic_load(&table))
        return 0;
    struct clp_event_thread *t = clp_pages_alloc(ENTRIES * sizeof(*t));
    if (!t)
        return -ENOMEM;
    if (clp_bounds_find(&main_thread, 1) == 0)
        main_high = main_thread.high;
    atomic_store(&table, t);
    return 0;
}

struct clp_event_thread *clp_event_thread_at(uint32_t i)
{
    struct clp_event_thread *t = atomic_load(&table);
    return t && i < ENTRIES ? &t[i] : NULL;
}

/* On x86-64 the control block begins with its own address, on glibc and on musl. */
static uint64_t own_control_block(void)
{
    uint64_t block;
    __asm__("mov %%fs:0, %0" : "=r"(block));
    return block;
}

/* A thread that is gone, as far as the capture's table knows: its place may be taken. */
static bool is_abandoned(const struct clp_event_thread *t)
{
    const struct clp_thread_slot *s = clp_capture_slot(t->slot);
    return atomic_load(&t->tid) && s && atomic_load(&s->generation) != t->generation;
}

static struct clp_event_thread *take_in(struct clp_event_thread *all, const struct part *p,
                                        uint64_t block, bool abandoned)
{
    uint32_t hash = (uint32_t)((block >> 6) * 0x9e3779b97f4a7c15ull >> 40), at = hash % p->count;
    for (uint32_t i = 0; i < p->probes; i++, at = at + 1 < p->count ? at + 1 : 0) {
        struct clp_event_thread *t = &all[p->first + at];
        uint64_t key = atomic_load_explicit(&t->control_block, memory_order_acquire);
        if (key == block)
            return t;
        if ((abandoned ? !is_abandoned(t) : key != 0) ||
            !atomic_compare_exchange_strong(&t->control_block, &key, block))
            continue;
        if (abandoned)
            atomic_store(&t->tid, 0);
        return t;
    }
    return NULL;
}

static struct clp_event_thread *take(uint64_t block)
{
    struct clp_event_thread *t = NULL, *all = atomic_load_explicit(&table, memory_order_acquire);
    for (unsigned i = 0; all && !t && i < 2 * CLP_ARRAY_LEN(parts); i++)
        t = take_in(all, &parts[i % CLP_ARRAY_LEN(parts)], block, i >= CLP_ARRAY_LEN(parts));
    return t;
}

/* Bounds that the capture knows are the cheapest; pthread_getattr_np takes some microseconds, once
 * a thread. */
static void find_stack(struct clp_event_thread *t, const struct clp_thread_slot *s, int32_t tid)
{
    t->stack_low = t->stack_high = 0;
    if (tid == (int32_t)clp_raw3(SYS_getpid, 0, 0, 0)) {
        t->stack_high = main_high;
        t->stack_low = main_high ? main_high - MAIN_STACK_BYTES : 0;
    } else if (s && atomic_load(&s->stack_high) > 1) {
        t->stack_high = atomic_load(&s->stack_high);
        t->stack_low = atomic_load(&s->stack_low);
    } else if (!clp_bounds_own(&t->stack_low, &t->stack_high)) {
        t->stack_low = t->stack_high = 0;
    }
}

static void find_slot(struct clp_event_thread *t, int32_t tid)
{
    t->slot = UINT32_MAX;
    t->generation = 0;
    clp_lock(&clp_thread_table.lock);
    struct clp_record *r = clp_thread_table.records ? clp_table_by_tid(tid) : NULL;
    if (r) {
        t->slot = clp_table_index(r);
        t->generation = atomic_load(&clp_table_slot(r)->generation);
    }
    clp_unlock(&clp_thread_table.lock);
}

void clp_event_thread_look(struct clp_event_thread *t)
{
    const struct clp_thread_slot *s = clp_capture_slot(t->slot);
    if (!s || atomic_load_explicit(&s->generation, memory_order_relaxed) != t->generation)
        find_slot(t, atomic_load_explicit(&t->tid, memory_order_relaxed));
}

void clp_event_thread_span(const struct clp_event_thread *t, struct clp_span *ret)
{
    const struct clp_thread_slot *s = clp_capture_slot(t->slot);
    bool own = s && atomic_load_explicit(&s->generation, memory_order_relaxed) == t->generation;
    clp_span_read_own(own ? atomic_load_explicit(&s->span, memory_order_acquire) : NULL, ret);
    if (ret->local_root_span_id)
        clp_spans_saw_root(ret->local_root_span_id);
}

static void fill(struct clp_event_thread *t)
{
    int32_t tid = (int32_t)clp_raw3(SYS_gettid, 0, 0, 0);
    find_slot(t, tid);
    find_stack(t, clp_capture_slot(t->slot), tid);
    t->random = (clp_clock_monotonic_ns() ^ ((uint64_t)tid << 32)) * 0x9e3779b97f4a7c15ull | 1;
    t->path_hint = 0;
    atomic_store(&t->busy, 0);
    for (unsigned i = 0; i < CLP_EVENT_WAIT_KINDS; i++)
        clp_event_wait_forget(t, (enum clp_event_wait_kind)i);
    atomic_store(&t->tid, tid);
}

struct clp_event_thread *clp_event_thread_self(void)
{
    struct clp_event_thread *t = take(own_control_block());
    if (t && !atomic_load_explicit(&t->tid, memory_order_relaxed))
        fill(t);
    return t;
}

void clp_event_thread_begins(void)
{
    struct clp_event_thread *t = clp_capture_forked() ? NULL : take(own_control_block());
    if (t)
        atomic_store(&t->tid, 0);
}
