/* Waits for locks, and for handles and monitors. They begin and end with an event each; the stack
 * is taken at the end, when it is known how long it was, and which is the same one as at the
 * beginning.
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
#define COUNTED 1u                        /* in since_ns: was written as a wait already */

struct clp_event_sized clp_event_locks, clp_event_handles;

static const struct {
    struct clp_event_sized *sized;
    enum clp_event_type type;
} kinds[CLP_EVENT_WAIT_KINDS] = {
    [CLP_EVENT_WAIT_LOCK] = {&clp_event_locks, CLP_EVENT_LOCK},
    [CLP_EVENT_WAIT_HANDLE] = {&clp_event_handles, CLP_EVENT_HANDLE},
};

/* A wait as it began. */
struct wait {
    uint8_t low[LOW_BYTES];
    struct clp_capture capture; /* registers */
};

static struct {
    struct clp_lock lock;
    struct wait *waits; /* mapped at the first wait that is kept */
    uint16_t free[WAITS_MAX];
    uint32_t free_count;
    _Atomic uint32_t used;
    /* Who waits in a place, and for which lock; 0: nobody. */
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

/* From here on the thread waits. The stack's low part is copied while this function is on it. */
static __attribute__((noinline)) void begin(const struct clp_event_here *h,
                                            struct clp_event_wait *at)
{
    const struct clp_event_thread *t = h->thread;
    struct wait *w = place(at->place);
    if (w) {
        clp_event_registers(&w->capture);
        bool own = w->capture.rsp >= t->stack_low && w->capture.rsp < t->stack_high;
        uint64_t n = own ? t->stack_high - w->capture.rsp : 0;
        w->capture.stack_bytes = (uint32_t)CLP_MIN(n, (uint64_t)LOW_BYTES);
        w->capture.stack_high = t->stack_high;
        w->capture.time_ns = h->time_ns;
        clp_event_thread_span(t, &w->capture.span);
        memcpy(w->low, (const void *)(uintptr_t)w->capture.rsp, w->capture.stack_bytes);
    }
    atomic_store(&at->since_ns, h->time_ns & ~(uint64_t)COUNTED);
}

/* The wait that is to begin; NULL: one is under way, or the thread has no place. */
static struct clp_event_wait *idle(const struct clp_event_here *h, enum clp_event_wait_kind kind)
{
    struct clp_event_wait *at = h->thread ? &h->thread->waits[kind] : NULL;
    return at && !atomic_load(&at->since_ns) ? at : NULL;
}

/* u8 flags | u16 instance | u64 lock | u64 object | u64 owner's tid */
void clp_event_lock_start(const struct clp_event_here *h)
{
    struct clp_event_wait *at = idle(h, CLP_EVENT_WAIT_LOCK);
    if (!at || h->version < 2 || h->len < 27)
        return;
    at->lock = clp_event_u64(h, 3);
    at->owner = clp_event_u64(h, 19);
    at->place = take_place();
    at->watch = clp_event_owner_begin(h, at->lock, at->owner);
    if (at->place) {
        atomic_store(&W.who[at->place - 1].lock, at->lock);
        atomic_store(&W.who[at->place - 1].tid, atomic_load(&h->thread->tid));
    }
    begin(h, at);
}

/* u8 source | u64 object | u16 instance. Objects move, so that their addresses tell nothing: all
 * waits of a source make one stratum. */
void clp_event_handle_start(const struct clp_event_here *h)
{
    struct clp_event_wait *at = idle(h, CLP_EVENT_WAIT_HANDLE);
    if (!at || h->len < 1)
        return;
    at->lock = 1 + h->data[0];
    at->owner = 0;
    at->place = take_place();
    at->watch = 0;
    begin(h, at);
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

/* By our clock, where the runtime does not tell. */
static uint64_t length_of(const struct clp_event_here *h, uint64_t since, double told)
{
    if (!(since & COUNTED) && told > 0 && told < 1e18)
        return (uint64_t)told;
    since &= ~(uint64_t)COUNTED;
    return h->time_ns > since ? h->time_ns - since : 0;
}

/* The wait under way is over, and gives its place back; 0: there is none. */
static uint64_t take(struct clp_event_wait *at)
{
    if (!atomic_load(&at->since_ns))
        return 0; /* pages of threads that never waited stay untouched */
    uint64_t since = atomic_exchange(&at->since_ns, 0);
    if (since) {
        give_place(at->place);
        at->place = 0;
    }
    return since;
}

static void end(const struct clp_event_here *h, enum clp_event_wait_kind kind, double told)
{
    struct clp_event_wait *at = h->thread ? &h->thread->waits[kind] : NULL;
    uint64_t since = at ? take(at) : 0;
    if (!since)
        return; /* began before we came */
    uint64_t ns = length_of(h, since, told);
    uint64_t one = since & COUNTED ? 0 : CLP_THRESHOLD_COUNT_ONE;
    struct clp_event_sized *sized = kinds[kind].sized;
    struct clp_threshold_member m = clp_event_sized_offer(sized, h, at->lock, one, ns);
    if (kind == CLP_EVENT_WAIT_LOCK)
        clp_event_owner_took(at->lock, atomic_load_explicit(&h->thread->tid, memory_order_relaxed));
    if (m.chance <= 0) {
        clp_event_owner_end(at->watch, h->time_ns, false);
        return;
    }
    struct clp_event_here here = *h;
    here.urgent = ns >= LONG_NS;
    struct clp_event *e = clp_event_take(&here, kinds[kind].type, true, NULL);
    if (!e) {
        atomic_fetch_add(&sized->lost, 1);
        clp_event_owner_end(at->watch, h->time_ns, false);
        return;
    }
    e->number2 = at->watch;
    clp_event_owner_end(at->watch, h->time_ns, true);
    clp_event_sized_mark(e, &m);
    e->number = at->owner;
    e->value = one ? 1 / m.chance : 0;
    e->value2 = (double)ns / m.chance;
    clp_event_commit(e);
}

/* u8 flags | u16 instance | f64 nanoseconds */
void clp_event_lock_stop(const struct clp_event_here *h)
{
    double told = 0;
    if (h->len >= 11)
        memcpy(&told, h->data + 3, sizeof(told));
    end(h, CLP_EVENT_WAIT_LOCK, told);
}

void clp_event_handle_stop(const struct clp_event_here *h)
{
    end(h, CLP_EVENT_WAIT_HANDLE, 0);
}

void clp_event_wait_forget(struct clp_event_thread *t, enum clp_event_wait_kind kind)
{
    struct clp_event_wait *at = &t->waits[kind];
    if (take(at))
        clp_event_owner_end(at->watch, clp_clock_monotonic_ns(), false);
}

void clp_event_waits_forget(enum clp_event_wait_kind kind)
{
    struct clp_event_thread *t;
    for (uint32_t i = 0; (t = clp_event_thread_at(i)); i++)
        clp_event_wait_forget(t, kind);
}

/* ---- open waits; loop ---- */

/* What the thread's stack was when the wait began: its low part from the copy, the rest as it is
 * now. False when the wait is over. */
static bool rebuild(const struct clp_event_thread *t, struct clp_event_wait *at, uint64_t since,
                    struct clp_event *ret)
{
    struct clp_capture *c = clp_event_capture(ret);
    const struct wait *w = place(at->place);
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
    return atomic_load(&at->since_ns) == since;
}

static void write_open(struct clp_event_thread *t, enum clp_event_wait_kind kind, uint64_t now_ns,
                       uint64_t pass, const struct clp_events_sink *sink)
{
    static union {
        struct clp_event event;
        uint8_t
            bytes[sizeof(struct clp_event) + sizeof(struct clp_capture) + CLP_CAPTURE_STACK_MAX];
    } room;
    struct clp_event_wait *at = &t->waits[kind];
    struct clp_event_sized *sized = kinds[kind].sized;
    uint64_t since = atomic_load(&at->since_ns), from = since & ~(uint64_t)COUNTED;
    if (!since || now_ns < from + OPEN_MIN_NS)
        return;
    memset(&room.event, 0, sizeof(room.event));
    room.event.type = (uint16_t)kinds[kind].type;
    room.event.tid = atomic_load(&t->tid);
    room.event.time_ns = now_ns;
    room.event.number = at->owner;
    room.event.has_stack = rebuild(t, at, since, &room.event);
    struct clp_event_member *m = clp_event_member_make(&room.event, pass, sink);
    /* From here on the part up to now is ours to tell, unless the thread told it just now. */
    if (!m || !atomic_compare_exchange_strong(&at->since_ns, &since, now_ns | COUNTED))
        return;
    double one = since & COUNTED ? 0 : 1, ns = (double)(now_ns - from);
    clp_event_owner_add(at->watch, now_ns, m, sink);
    clp_event_member_write(m, sized->kind, one, ns, sink);
    sized->accounted_count += one;
    sized->accounted_sum += ns;
}

/* Each is written before the next one is made, so that thousands with deep stacks need no more
 * memory than a few. */
void clp_event_waits_open(enum clp_event_wait_kind kind, uint64_t now_ns, uint64_t pass,
                          const struct clp_events_sink *sink)
{
    struct clp_event_thread *t;
    for (uint32_t i = 0; (t = clp_event_thread_at(i)); i++) {
        if (!atomic_load_explicit(&t->waits[kind].since_ns, memory_order_relaxed))
            continue;
        if (clp_event_members_crowded())
            clp_event_members_reset();
        write_open(t, kind, now_ns, pass, sink);
    }
}

size_t clp_event_waits_bytes(void)
{
    return atomic_load(&W.used) * sizeof(*W.waits); /* the others were never touched */
}
