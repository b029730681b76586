/* Which thread holds one of the few timers. */
#include "sampler/inproc/thread_table.h"

#include "sampler/inproc/quota.h"
#include "sampler/inproc/timers.h"

#include <errno.h>

#define ROTATE_EVERY_NS (500 * CLP_NSEC_PER_MSEC)
#define ROTATE_AT_MOST 64u /* timers moved at a time: each costs two system calls */

bool clp_record_has_timer(const struct clp_record *r)
{
    return atomic_load(&clp_table_slot(r)->timer_id) >= 0;
}

bool clp_record_wants_stacks(const struct clp_record *r)
{
    if (r->unsignalled || !clp_thread_table.interval_ns)
        return false;
    return r->pub.kind == CLP_THREAD_MANAGED || r->pub.kind == CLP_THREAD_RUNTIME ||
           (r->pub.kind == CLP_THREAD_NATIVE && clp_thread_table.native_stacks);
}

uint64_t clp_record_first_expiry(struct clp_record *r)
{
    /* Not the slot's random state: that is the handler's. */
    uint64_t x = clp_table_slot(r)->random * 0x9e3779b97f4a7c15ull ^ r->pub.thread_id;
    x *= 0xd1342543de82ef95ull;
    return 1 + ((x >> 32) * clp_thread_table.interval_ns >> 32);
}

/* Counts the timer before it is made: callbacks on several threads may ask at a time. */
static bool claim(void)
{
    struct clp_thread_table *t = &clp_thread_table;
    if (atomic_fetch_add(&t->timers, 1) < atomic_load(&t->timers_allowed))
        return true;
    atomic_fetch_sub(&t->timers, 1);
    return false;
}

static int make_timer(struct clp_record *r, uint64_t ns)
{
    struct clp_thread_slot *s = clp_table_slot(r);
    uint64_t tag = clp_capture_tag(clp_table_index(r), atomic_load(&s->generation));
    int32_t id;
    if (!claim())
        return -EAGAIN;
    int err = clp_timer_create(s->tid, tag, &id);
    if (err == 0) {
        atomic_store(&s->timer_id, id); /* before it can fire: the handler re-arms by it */
        err = clp_timer_arm(id, ns);
        if (err == 0)
            return 0;
        atomic_store(&s->timer_id, -1);
        clp_timer_delete(id);
    }
    atomic_fetch_sub(&clp_thread_table.timers, 1);
    if (err == -EAGAIN) /* somebody else took what was free: ask again after the next look */
        atomic_store(&clp_thread_table.timers_allowed, atomic_load(&clp_thread_table.timers));
    return err;
}

void clp_table_arm_new(struct clp_record *r)
{
    /* At the next tick, whose distance is random: a thread that uses a tick's length of CPU time is
     * sampled, at a random point of it. The loop sees by itself whether there was a timer left. */
    clp_table_slot(r)->ramp_ns = clp_thread_table.tick_ns;
    (void)make_timer(r, 1);
}

bool clp_record_give_timer(struct clp_record *r, uint64_t clock_ns, uint64_t now_ns, uint64_t ns)
{
    r->timed_from_ns = clock_ns;
    r->rearmed_ns = r->counted_at_ns = now_ns;
    int err = make_timer(r, ns);
    r->waits_for_timer = err == -EAGAIN;
    return err != -EAGAIN;
}

void clp_record_take_timer(struct clp_record *r, uint64_t now_ns)
{
    int32_t id = atomic_exchange(&clp_table_slot(r)->timer_id, -1);
    if (id < 0)
        return;
    clp_timer_delete(id);
    atomic_fetch_sub(&clp_thread_table.timers, 1);
    r->timer_lost_ns = now_ns;
}

bool clp_timers_plentiful(void)
{
    return atomic_load(&clp_thread_table.timers) <
           atomic_load(&clp_thread_table.timers_allowed) / 2;
}

static struct clp_record *record_at(uint64_t position)
{
    uint32_t n = atomic_load(&clp_thread_table.high_water);
    struct clp_record *r = &clp_thread_table.records[position % n];
    return atomic_load_explicit(&r->state, memory_order_acquire) == CLP_RECORD_LIVE ? r : NULL;
}

static uint32_t waiting(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < atomic_load(&clp_thread_table.high_water); i++) {
        const struct clp_record *r = record_at(i);
        n += r && r->waits_for_timer;
    }
    return n;
}

/* Two cursors go round the table: one takes, the other gives. In the long run every active thread
 * holds a timer for the same share of the time, timers / active threads. No weight is needed: a
 * sample's value is the thread's clock since its last one, the time without a timer included. */
void clp_timers_rotate(uint64_t now_ns)
{
    static uint64_t last_ns, take_at, give_at;
    uint32_t n = atomic_load(&clp_thread_table.high_water), moved = 0;
    if (now_ns - last_ns < ROTATE_EVERY_NS || !n)
        return;
    last_ns = now_ns;
    uint32_t wait = waiting(), most = CLP_MIN(wait, ROTATE_AT_MOST);
    for (uint32_t i = 0; i < n && moved < most; i++) {
        struct clp_record *r = record_at(take_at++);
        if (r && clp_record_has_timer(r) && now_ns - r->rearmed_ns >= ROTATE_EVERY_NS) {
            clp_record_take_timer(r, now_ns);
            r->waits_for_timer = true;
            moved++;
        }
    }
    for (uint32_t i = 0; i < n && moved; i++) {
        struct clp_record *r = record_at(give_at++);
        if (!r || !r->waits_for_timer || r->timer_lost_ns == now_ns || !clp_record_wants_stacks(r))
            continue;
        (void)clp_record_give_timer(r, r->pub.seen_ns, now_ns, clp_record_first_expiry(r));
        moved--;
    }
}
