/* Waits for locks. They begin and end with an event each; the stack is taken at the end, when it is
 * known how long it was, and which is the same one as at the beginning.
 *
 * A wait that is still open when a window ends is written up to then, and what is left of it when
 * it ends or when the next window does: a deadlock shows in every window. For that the low part of
 * the stack is copied when a wait begins: our own frames there will be overwritten, while
 * everything above stays as it is for as long as the thread waits. */
#include "sampler/inproc/event_sized.h"

#include "sampler/inproc/event_owner.h"

#include "base/core/arena.h"
#include "base/core/lock.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/images.h"

#include <string.h>

#define LOW_BYTES                                                                                  \
    6144u /* of the callback's own frames and those of the runtime that write events */
#define WAITS_MAX 1024u /* at a time, with a stack */
#define OPEN_MIN_NS (10 * CLP_NSEC_PER_MSEC)
#define LONG_NS (100 * CLP_NSEC_PER_MSEC) /* not lost to shorter ones */
#define COUNTED 1u                        /* in wait_since_ns: was written as a wait already */

struct clp_event_sized clp_event_locks;

/* A wait as it began. */
struct wait {
    struct clp_capture capture; /* registers */
    uint8_t low[LOW_BYTES];
};

static struct {
    struct clp_lock lock;
    struct wait *waits; /* mapped at the first wait that is kept */
    uint16_t free[WAITS_MAX];
    uint32_t free_count;
    _Atomic uint32_t used;
    /* Who waits in a place, and for what; 0: nobody. */
    struct {
        _Atomic uint64_t lock;
        _Atomic int32_t tid;
    } who[WAITS_MAX];
} W;

static struct wait *place(uint32_t number)
{
    return number && number <= WAITS_MAX ? &W.waits[number - 1] : NULL;
}

/* 0: none is left. */
static uint32_t take_place(void)
{
    uint32_t number = 0;
    clp_lock(&W.lock);
    if (!W.waits)
        W.waits = clp_pages_alloc(WAITS_MAX * sizeof(*W.waits));
    if (W.waits && W.free_count)
        number = W.free[--W.free_count];
    else if (W.waits && W.used < WAITS_MAX)
        number = ++W.used;
    clp_unlock(&W.lock);
    return number;
}

static void give_place(uint32_t number)
{
    if (!number)
        return;
    atomic_store(&W.who[number - 1].tid, 0);
    clp_lock(&W.lock);
    W.free[W.free_count++] = (uint16_t)number;
    clp_unlock(&W.lock);
}

/* ---- callback ---- */

/* u8 flags | u16 instance | u64 lock | u64 object | u64 owner's tid */
void clp_event_lock_start(const struct clp_event_here *h)
{
    struct clp_event_thread *t = h->thread;
    if (!t || h->version < 2 || h->len < 27 || atomic_load(&t->wait_since_ns))
        return;
    t->wait_lock = clp_event_u64(h, 3);
    t->wait_owner = clp_event_u64(h, 19);
    t->wait_place = take_place();
    t->wait_watch = clp_event_owner_begin(h, t->wait_lock, t->wait_owner);
    struct wait *w = place(t->wait_place);
    if (w) {
        atomic_store(&W.who[t->wait_place - 1].lock, t->wait_lock);
        atomic_store(&W.who[t->wait_place - 1].tid, atomic_load(&t->tid));
        clp_event_registers(&w->capture);
        bool own = w->capture.rsp >= t->stack_low && w->capture.rsp < t->stack_high;
        uint64_t n = own ? t->stack_high - w->capture.rsp : 0;
        w->capture.stack_bytes = (uint32_t)CLP_MIN(n, (uint64_t)LOW_BYTES);
        w->capture.stack_high = t->stack_high;
        w->capture.time_ns = h->time_ns;
        clp_event_thread_span(t, &w->capture.span);
        memcpy(w->low, (const void *)(uintptr_t)w->capture.rsp, w->capture.stack_bytes);
    }
    atomic_store(&t->wait_since_ns, h->time_ns & ~(uint64_t)COUNTED);
}

bool clp_event_lock_waits(uint64_t lock, int32_t tid)
{
    uint32_t used = atomic_load(&W.used), n = CLP_MIN(used, WAITS_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (atomic_load_explicit(&W.who[i].tid, memory_order_relaxed) == tid &&
            atomic_load(&W.who[i].lock) == lock)
            return true;
    return false;
}

static uint64_t length_of(const struct clp_event_here *h, uint64_t since)
{
    double told = 0;
    if (!(since & COUNTED) && h->len >= 11)
        memcpy(&told, h->data + 3, sizeof(told));
    if (told > 0 && told < 1e18)
        return (uint64_t)told;
    since &= ~(uint64_t)COUNTED;
    return h->time_ns > since ? h->time_ns - since : 0;
}

/* u8 flags | u16 instance | f64 nanoseconds */
void clp_event_lock_stop(const struct clp_event_here *h)
{
    struct clp_event_thread *t = h->thread;
    uint64_t since = t ? atomic_exchange(&t->wait_since_ns, 0) : 0;
    if (!since)
        return; /* began before we came */
    give_place(t->wait_place);
    t->wait_place = 0;
    uint64_t ns = length_of(h, since);
    uint64_t one = since & COUNTED ? 0 : CLP_THRESHOLD_COUNT_ONE;
    struct clp_threshold_member m =
        clp_event_sized_offer(&clp_event_locks, h, t->wait_lock, one, ns);
    clp_event_owner_took(t->wait_lock, atomic_load_explicit(&t->tid, memory_order_relaxed));
    if (m.chance <= 0) {
        clp_event_owner_end(t->wait_watch, h->time_ns, false);
        return;
    }
    struct clp_event_here here = *h;
    here.urgent = ns >= LONG_NS;
    struct clp_event *e = clp_event_take(&here, CLP_EVENT_LOCK, true, NULL);
    if (!e) {
        atomic_fetch_add(&clp_event_locks.lost, 1);
        clp_event_owner_end(t->wait_watch, h->time_ns, false);
        return;
    }
    e->number2 = t->wait_watch;
    clp_event_owner_end(t->wait_watch, h->time_ns, true);
    clp_event_sized_mark(e, &m);
    e->number = t->wait_owner;
    e->value = one ? 1 / m.chance : 0;
    e->value2 = (double)ns / m.chance;
    clp_event_commit(e);
}

/* ---- open waits; loop ---- */

/* What the thread's stack was when the wait began: its low part from the copy, the rest as it is
 * now. False when the wait is over. */
static bool rebuild(struct clp_event_thread *t, uint64_t since, struct clp_event *ret)
{
    struct clp_capture *c = clp_event_capture(ret);
    const struct wait *w = place(t->wait_place);
    if (!w || !w->capture.stack_bytes)
        return false;
    memcpy(c, &w->capture, sizeof(*c));
    uint64_t low = CLP_MIN(c->stack_bytes, LOW_BYTES);
    memcpy(c->stack, w->low, low);
    uint64_t from = c->rsp + low;
    uint64_t n = c->stack_high > from ? c->stack_high - from : 0;
    int64_t got = clp_images_read(from, c->stack + low,
                                  CLP_MIN(n, (uint64_t)CLP_CAPTURE_STACK_MAX - LOW_BYTES));
    c->stack_bytes = (uint32_t)(low + (got > 0 ? (uint64_t)got : 0));
    c->slot = t->slot;
    c->flags = 0;
    return atomic_load(&t->wait_since_ns) == since;
}

static void write_open(struct clp_event_thread *t, uint64_t now_ns, uint64_t pass,
                       const struct clp_events_sink *sink)
{
    static union {
        struct clp_event event;
        uint8_t
            bytes[sizeof(struct clp_event) + sizeof(struct clp_capture) + CLP_CAPTURE_STACK_MAX];
    } room;
    uint64_t since = atomic_load(&t->wait_since_ns), from = since & ~(uint64_t)COUNTED;
    if (!since || now_ns < from + OPEN_MIN_NS)
        return;
    memset(&room.event, 0, sizeof(room.event));
    room.event.type = CLP_EVENT_LOCK;
    room.event.tid = atomic_load(&t->tid);
    room.event.time_ns = now_ns;
    room.event.number = t->wait_owner;
    room.event.has_stack = rebuild(t, since, &room.event);
    struct clp_event_member *m = clp_event_member_make(&room.event, pass, sink);
    /* From here on the part up to now is ours to tell, unless the thread told it just now. */
    if (!m || !atomic_compare_exchange_strong(&t->wait_since_ns, &since, now_ns | COUNTED))
        return;
    double one = since & COUNTED ? 0 : 1, ns = (double)(now_ns - from);
    clp_event_owner_add(t->wait_watch, now_ns, m, sink);
    clp_event_member_write(m, CLP_SAMPLE_LOCK, one, ns, sink);
    clp_event_locks.accounted_count += one;
    clp_event_locks.accounted_sum += ns;
}

void clp_event_locks_open(uint64_t now_ns, uint64_t pass, const struct clp_events_sink *sink)
{
    struct clp_event_thread *t;
    for (uint32_t i = 0; (t = clp_event_thread_at(i)); i++)
        if (atomic_load_explicit(&t->wait_since_ns, memory_order_relaxed))
            write_open(t, now_ns, pass, sink);
}
