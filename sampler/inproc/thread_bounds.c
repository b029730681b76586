/* Which threads still lack their stack bounds, and asking for them. */
#include "sampler/inproc/thread_table.h"

#include "sampler/inproc/bounds.h"
#include "sampler/inproc/clock.h"

#define ASK_EVERY_NS (20 * CLP_NSEC_PER_MSEC)
#define ASK_AT_ONCE 64u

static void set_bounds(const struct clp_record *r, uint64_t low, uint64_t high)
{
    struct clp_thread_slot *s = clp_table_slot(r);
    if (atomic_load(&s->stack_high))
        return; /* told by the thread itself meanwhile */
    atomic_store(&s->stack_low, low);
    atomic_store_explicit(&s->stack_high, high, memory_order_release);
}

/* A stack that cannot be bounded lies nowhere: every SP is outside, samples have no stack. */
void clp_bounds_learn(uint64_t now_ns)
{
    static uint64_t asked_at_ns;
    struct clp_bounds b[ASK_AT_ONCE];
    struct clp_record *who[ASK_AT_ONCE];
    size_t n = 0;
    if (now_ns - asked_at_ns < ASK_EVERY_NS)
        return;
    for (uint32_t i = 0; i < clp_table_count() && n < ASK_AT_ONCE; i++) {
        struct clp_record *r = clp_table_at(i);
        if (!r || !r->bounds_wanted)
            continue;
        who[n] = r;
        b[n++] = (struct clp_bounds){.fs_base = r->fs_base,
                                     .main_thread = r->pub.tid == clp_threads_process()->tid};
    }
    if (!n)
        return;
    asked_at_ns = now_ns;
    if (clp_bounds_find(b, n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        who[i]->bounds_wanted = false;
        set_bounds(who[i], b[i].high ? b[i].low : 0, b[i].high ? b[i].high : 1);
    }
}

/* The thread runs, only its stack could not be copied: not the next sample's fault either. */
void clp_bounds_want(struct clp_record *r, const struct clp_capture *c)
{
    r->fs_base = c->stack_high;
    r->bounds_wanted = true;
    r->timed_from_ns = CLP_MAX(r->timed_from_ns, c->thread_cpu_ns);
    clp_bounds_learn(clp_clock_monotonic_ns());
}
