#include "sampler/inproc/events.h"

#include "sampler/inproc/alloc_totals.h"
#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/event_exception.h"
#include "sampler/inproc/event_gc.h"
#include "sampler/inproc/event_live.h"
#include "sampler/inproc/event_names.h"
#include "sampler/inproc/event_owner.h"
#include "sampler/inproc/event_path.h"
#include "sampler/inproc/event_sized.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/loop.h"
#include "sampler/inproc/runtime.h"

#include <string.h>

#define EPOCH_NS (5 * CLP_NSEC_PER_SEC)
#define FOLLOW_NS (250 * CLP_NSEC_PER_MSEC)
#define EPOCH_SHARE_MIN 0.01        /* flushes may come one after the other */
#define UNBOUNDED_BYTES (64u << 10) /* of a stack whose end is not known */
#define ALLOCS_KEPT 1600u           /* in an epoch */
#define LOCKS_KEPT 600u
#define WAITS_KEPT 600u
#define DRAIN_MAX 4096u
#define FLUSH_EPOCHS 4u

static const uint16_t runtime_provider[] = u"Microsoft-Windows-DotNETRuntime";

static _Atomic uint64_t known_provider; /* the runtime's handle for it, once seen */
static uint64_t epoch_begin_ns;
static uint64_t followed_ns; /* in it */

/* ---- callback ---- */

static bool is_runtime(uint64_t provider)
{
    uint16_t name[64];
    uint32_t len = 0;
    if (atomic_load_explicit(&known_provider, memory_order_relaxed) == provider)
        return true;
    struct clr_info *info = clp_runtime_info();
    if (!info || !CLR_OK(info->slots->event_pipe_get_provider_info(
                     info, provider, CLP_ARRAY_LEN(name), &len, name)))
        return false;
    if (memcmp(name, runtime_provider, sizeof(runtime_provider)) != 0)
        return false;
    atomic_store(&known_provider, provider);
    return true;
}

/* Which of our kinds an event belongs to; 0: none. */
static uint32_t kind_of(uint32_t id)
{
    switch (id) {
    case 80:
        return CLP_SAMPLE_EXCEPTION;
    case 10:
    case 303:
        return CLP_SAMPLE_ALLOC;
    case 81:
    case 91:
        return CLP_SAMPLE_LOCK;
    case 301:
    case 302:
        return CLP_SAMPLE_WAIT;
    case 1:
    case 2:
    case 4:
    case 7:
    case 8:
    case 9:
    case 35:
        return CLP_SAMPLE_GC;
    default:
        return 0;
    }
}

static void handle(const struct clp_event_here *h, uint32_t id)
{
    switch (id) {
    case 80:
        clp_event_exception(h);
        break;
    case 10:
        clp_event_alloc_tick(h);
        break;
    case 303:
        clp_event_alloc_sampled(h);
        break;
    case 81:
        clp_event_lock_start(h);
        break;
    case 91:
        clp_event_lock_stop(h);
        break;
    case 301:
        clp_event_handle_start(h);
        break;
    case 302:
        clp_event_handle_stop(h);
        break;
    default:
        clp_event_gc(h, id);
    }
}

/* Not inlined: its frame is what paths are measured from. What follows the call keeps it on the
 * stack meanwhile. */
__attribute__((noinline)) void clp_events_delivered(uint64_t provider, uint32_t id,
                                                    uint32_t version, const uint8_t *data,
                                                    uint32_t len)
{
    uint32_t kind = kind_of(id);
    if (!kind || !(clp_events_running() & 1u << kind) || !is_runtime(provider))
        return;
    struct clp_event_here h = {
        .thread = clp_event_thread_self(),
        .base = (uint64_t)(uintptr_t)__builtin_frame_address(0),
        .time_ns = clp_clock_monotonic_ns(),
        .data = data,
        .len = len,
        .version = version,
        .urgent = kind == CLP_SAMPLE_GC,
    };
    if (h.thread && atomic_exchange_explicit(&h.thread->busy, 1, memory_order_acquire))
        return; /* an event of our own making */
    handle(&h, id);
    if (h.thread)
        atomic_store_explicit(&h.thread->busy, 0, memory_order_release);
}

static void copy_hijack_pair(struct clp_capture *c, const struct clp_thread_slot *s)
{
    uint32_t offset = atomic_load_explicit(&clp_capture_state.hijack_offset, memory_order_relaxed);
    uint64_t object = s ? atomic_load_explicit(&s->thread_object, memory_order_seq_cst) : 0;
    c->hijacked_return = c->hijacked_slot = 0;
    if (!offset || !object)
        return;
    memcpy(&c->hijacked_return, (const void *)(uintptr_t)(object + offset), 8);
    memcpy(&c->hijacked_slot, (const void *)(uintptr_t)(object + offset + 8), 8);
}

/* Not known where the stack ends: as much as there is. */
static uint32_t copy_unbounded(struct clp_capture *c)
{
    int64_t n = clp_images_read(c->rsp, c->stack, UNBOUNDED_BYTES);
    c->stack_high = c->rsp + (n > 0 ? (uint64_t)n : 0);
    return n > 0 ? (uint32_t)n : 0;
}

/* The walk begins in this function, so it copies while it is on the stack. */
static __attribute__((noinline)) void copy_stack(const struct clp_event_here *h,
                                                 struct clp_capture *c, uint64_t room)
{
    const struct clp_event_thread *t = h->thread;
    memset(c, 0, sizeof(*c));
    clp_event_registers(c);
    clp_event_thread_look(h->thread);
    c->slot = t->slot;
    c->generation = t->generation;
    c->time_ns = h->time_ns;
    c->stack_high = t->stack_high;
    clp_event_thread_span(t, &c->span);
    copy_hijack_pair(c, clp_capture_slot(t->slot));
    if (!c->stack_high) {
        c->stack_bytes = copy_unbounded(c);
        return;
    }
    c->stack_bytes = (uint32_t)CLP_MIN(c->stack_high - c->rsp, room);
    memcpy(c->stack, (const void *)(uintptr_t)c->rsp, c->stack_bytes);
}

static void fill(struct clp_event *e, const struct clp_event_here *h, enum clp_event_type type,
                 const struct clp_event_words *texts)
{
    const struct clp_event_thread *t = h->thread;
    e->type = (uint16_t)type;
    e->tid = t ? atomic_load_explicit(&t->tid, memory_order_relaxed) : 0;
    e->time_ns = h->time_ns;
    e->base = h->base;
    e->value = e->value2 = 0;
    e->number = e->number2 = 0;
    e->stratum = e->epoch = 0;
    e->certain = false;
    e->chance = 1;
    for (unsigned i = 0; texts && i < CLP_EVENT_TEXTS; i++)
        if (e->text_len[i])
            memcpy(clp_event_text(e, i), texts[i].utf16, e->text_len[i] * sizeof(uint16_t));
}

struct clp_event *clp_event_take(const struct clp_event_here *h, enum clp_event_type type,
                                 bool with_stack, const struct clp_event_words *texts)
{
    uint16_t text_len[CLP_EVENT_TEXTS] = {0};
    uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0), room = UNBOUNDED_BYTES;
    const struct clp_event_thread *t = h->thread;
    if (with_stack && t && here >= t->stack_low && here < t->stack_high)
        room = CLP_MIN(t->stack_high - here + 1024, (uint64_t)CLP_CAPTURE_STACK_MAX);
    else if (!t || t->stack_high)
        with_stack = false; /* not on the thread's own stack */
    for (unsigned i = 0; texts && i < CLP_EVENT_TEXTS; i++)
        text_len[i] = (uint16_t)CLP_MIN(texts[i].units, (size_t)CLP_EVENT_TEXT_UNITS);
    struct clp_event *e = clp_event_reserve(with_stack, room, text_len, h->urgent);
    if (clp_event_ring_presses())
        clp_loop_wake();
    if (!e)
        return NULL;
    fill(e, h, type, texts);
    if (with_stack)
        copy_stack(h, clp_event_capture(e), room);
    return e;
}

/* ---- loop ---- */

/* The handle is no number for anybody else. */
static void take_alloc(struct clp_event *e, uint64_t pass, const struct clp_events_sink *sink)
{
    uint64_t handle = e->number;
    e->number = 0;
    clp_event_live_take(handle, e, clp_event_sized_take(&clp_event_allocs, e, pass, sink));
}

static void take_lock(struct clp_event *e, uint64_t pass, const struct clp_events_sink *sink)
{
    uint32_t watch = (uint32_t)e->number2;
    struct clp_event_member *m = clp_event_sized_take(&clp_event_locks, e, pass, sink);
    if (m)
        clp_event_owner_add(watch, e->time_ns, m, sink);
    clp_event_owner_release(watch);
}

static void take_one(struct clp_event *e, uint64_t pass, const struct clp_events_sink *sink)
{
    switch (e->type) {
    case CLP_EVENT_EXCEPTION:
        clp_event_exception_take(e, pass, sink);
        break;
    case CLP_EVENT_ALLOC:
        take_alloc(e, pass, sink);
        break;
    case CLP_EVENT_LOCK:
        take_lock(e, pass, sink);
        break;
    case CLP_EVENT_HANDLE:
        (void)clp_event_sized_take(&clp_event_handles, e, pass, sink);
        break;
    default:
        clp_event_gc_take(e, pass, sink);
    }
}

/* An event of an epoch that has begun already is left for it: its members have other memory. */
static bool is_early(const struct clp_event *e)
{
    return (e->type == CLP_EVENT_ALLOC && clp_event_sized_is_early(&clp_event_allocs, e)) ||
           (e->type == CLP_EVENT_LOCK && clp_event_sized_is_early(&clp_event_locks, e)) ||
           (e->type == CLP_EVENT_HANDLE && clp_event_sized_is_early(&clp_event_handles, e));
}

static void drain(uint64_t pass, bool (*enough)(void), const struct clp_events_sink *sink)
{
    struct clp_event *e;
    for (uint32_t n = 0; n < DRAIN_MAX && !enough(); n++) {
        if (!(e = clp_event_peek()) || is_early(e))
            return;
        take_one(e, pass, sink);
        clp_event_release(e);
    }
}

/* Not beyond the memory of an epoch: the rest waits in the ring, which makes chances smaller. */
void clp_events_drain(uint64_t pass, const struct clp_events_sink *sink)
{
    drain(pass, clp_event_members_crowded, sink);
}

void clp_events_discard(void)
{
    struct clp_event *e;
    clp_event_path_forget();
    while ((e = clp_event_peek())) {
        if (e->type == CLP_EVENT_ALLOC)
            clp_event_live_take(e->number, e, NULL);
        if (e->type == CLP_EVENT_LOCK)
            clp_event_owner_release((uint32_t)e->number2);
        clp_event_release(e);
    }
}

/* Allocations alone: waits are scaled to the exact totals of their locks. */
void clp_events_follow(uint64_t now_ns)
{
    if (now_ns < followed_ns + FOLLOW_NS)
        return;
    double share = (double)(now_ns - followed_ns) / EPOCH_NS;
    clp_event_sized_follow(&clp_event_allocs, CLP_MIN(share, 1.0));
    followed_ns = now_ns;
}

bool clp_events_due(uint64_t now_ns)
{
    return now_ns >= epoch_begin_ns + EPOCH_NS || clp_event_members_crowded();
}

static void end_epoch(uint64_t now_ns, uint64_t pass, bool flush,
                      const struct clp_events_sink *sink)
{
    double share = (double)(now_ns - epoch_begin_ns) / EPOCH_NS;
    struct clp_alloc_counted counted = {0};
    share = share < EPOCH_SHARE_MIN ? EPOCH_SHARE_MIN : CLP_MIN(share, 1.0);
    clp_event_sized_turn(&clp_event_allocs);
    clp_event_sized_turn(&clp_event_locks);
    clp_event_sized_turn(&clp_event_handles);
    /* What is in the ring belongs to this epoch and would be late for the next one. */
    drain(pass, clp_event_members_full, sink);
    clp_event_exception_settle(now_ns, flush, sink);
    bool known = clp_alloc_totals_take(&counted);
    struct clp_control_total total = {(double)counted.bytes, (double)counted.met};
    clp_event_sized_settle(&clp_event_allocs, now_ns, share, flush, known ? &total : NULL, sink);
    clp_event_live_epoch(clp_event_allocs.each);
    clp_event_sized_settle(&clp_event_locks, now_ns, share, flush, NULL, sink);
    clp_event_sized_settle(&clp_event_handles, now_ns, share, flush, NULL, sink);
    if (flush && clp_events_running() & 1u << CLP_SAMPLE_LOCK)
        clp_event_waits_open(CLP_EVENT_WAIT_LOCK, now_ns, pass, sink);
    if (flush && clp_events_running() & 1u << CLP_SAMPLE_WAIT)
        clp_event_waits_open(CLP_EVENT_WAIT_HANDLE, now_ns, pass, sink);
    clp_event_members_reset();
    clp_event_names_sweep();
    epoch_begin_ns = followed_ns = now_ns;
}

/* The ring may hold more than one epoch has memory for. */
void clp_events_settle(uint64_t now_ns, uint64_t pass, bool flush,
                       const struct clp_events_sink *sink)
{
    for (unsigned i = 0; flush && i < FLUSH_EPOCHS; i++) {
        clp_events_drain(pass, sink);
        if (!clp_event_members_crowded())
            break;
        end_epoch(now_ns, pass, false, sink);
    }
    end_epoch(now_ns, pass, flush, sink);
}

void clp_events_begin(uint16_t runtime_major)
{
    clp_event_alloc_begin(runtime_major);
    clp_event_sized_init(&clp_event_allocs, CLP_SAMPLE_ALLOC, ALLOCS_KEPT, false);
    clp_event_sized_init(&clp_event_locks, CLP_SAMPLE_LOCK, LOCKS_KEPT, true);
    clp_event_sized_init(&clp_event_handles, CLP_SAMPLE_WAIT, WAITS_KEPT, true);
}

void clp_events_totals(struct clp_event_totals *ret)
{
    memset(ret, 0, sizeof(*ret));
    clp_event_exception_totals(ret);
    clp_event_gc_totals(ret);
    ret->alloc_objects = (uint64_t)(clp_event_allocs.accounted_count + 0.5);
    ret->alloc_bytes = (uint64_t)(clp_event_allocs.accounted_sum + 0.5);
    ret->alloc_counted = (uint64_t)(clp_event_allocs.control.counted + 0.5);
    ret->contentions = (uint64_t)(clp_event_locks.accounted_count + 0.5);
    ret->contention_ns = (uint64_t)(clp_event_locks.accounted_sum + 0.5);
    ret->waits = (uint64_t)(clp_event_handles.accounted_count + 0.5);
    ret->wait_ns = (uint64_t)(clp_event_handles.accounted_sum + 0.5);
    ret->lost = clp_event_ring_lost() + clp_event_members_lost();
}

size_t clp_events_bytes(void)
{
    return clp_event_ring_bytes() + clp_event_members_bytes() + clp_event_live_bytes() +
           clp_event_waits_bytes() + clp_event_names_bytes();
}
