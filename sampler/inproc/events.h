/* Runtime events inside the process: exceptions, allocations, locks, collections.
 *
 * The runtime delivers the events of our own EventPipe sessions synchronously on the thread where
 * they happen (EventPipeEventDelivered). The callback counts each, keeps some by the rules of
 * estimator.h, and copies the stack of those; it never waits, allocates or asks the runtime. The
 * loop walks the copies, and at the end of each epoch writes what they stand for, so that the sums
 * are the exact totals. docs/events.md says what is counted and how. */
#ifndef CLP_SAMPLER_INPROC_EVENTS_H
#define CLP_SAMPLER_INPROC_EVENTS_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/inproc/event_ring.h"
#include "sampler/inproc/event_thread.h"
#include "sampler/inproc/feed.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* What an entry of the event ring is about. */
enum clp_event_type {
    CLP_EVENT_EXCEPTION = 1,
    CLP_EVENT_ALLOC,
    CLP_EVENT_LOCK,
    CLP_EVENT_HANDLE,
    CLP_EVENT_GC_TRIGGER,
    CLP_EVENT_GC_SUSPEND, /* number: reason */
    CLP_EVENT_GC_SUSPENDED,
    CLP_EVENT_GC_START, /* number: count | generation << 32; number2: reason | type << 32 */
    CLP_EVENT_GC_END,   /* number: count */
    CLP_EVENT_GC_RESTART,
};

/* Where an allocation lies: number2 of its entry. */
enum clp_event_heap {
    CLP_EVENT_HEAP_USUAL,
    CLP_EVENT_HEAP_LARGE,
    CLP_EVENT_HEAP_PINNED,
    CLP_EVENT_HEAPS
};

/* ---- callbacks, any thread ------------------------------------------------------------------- */

/* EventPipeEventDelivered. `provider` is the runtime's handle of who wrote it. */
void clp_events_delivered(uint64_t provider, uint32_t id, uint32_t version, const uint8_t *data,
                          uint32_t len);

/* One event as the handlers get it: inside the callback, on the thread where it happens. */
struct clp_event_here {
    struct clp_event_thread *thread; /* NULL: no place in the table */
    uint64_t base;                   /* frame address of clp_events_delivered */
    uint64_t time_ns;
    const uint8_t *data;
    uint32_t len;
    uint32_t version;
    bool urgent; /* no other event can stand for this one */
};
/* Little-endian numbers of the payload; 0 outside of it. */
static inline uint32_t clp_event_u32(const struct clp_event_here *h, size_t offset)
{
    uint32_t v = 0;
    if (offset + sizeof(v) <= h->len)
        memcpy(&v, h->data + offset, sizeof(v));
    return v;
}

static inline uint64_t clp_event_u64(const struct clp_event_here *h, size_t offset)
{
    uint64_t v = 0;
    if (offset + sizeof(v) <= h->len)
        memcpy(&v, h->data + offset, sizeof(v));
    return v;
}

void clp_event_exception(const struct clp_event_here *h);       /* 80 */
void clp_event_alloc_tick(const struct clp_event_here *h);      /* 10 */
void clp_event_alloc_sampled(const struct clp_event_here *h);   /* 303 */
void clp_event_lock_start(const struct clp_event_here *h);      /* 81 */
void clp_event_lock_stop(const struct clp_event_here *h);       /* 91 */
void clp_event_handle_start(const struct clp_event_here *h);    /* 301 */
void clp_event_handle_stop(const struct clp_event_here *h);     /* 302 */
void clp_event_gc(const struct clp_event_here *h, uint32_t id); /* 1, 2, 4, 7, 8, 9, 35 */

struct clp_event_words {
    const uint8_t *utf16;
    size_t units;
};
/* A ring entry for this event with the thread's stack from here on, or, without a thread or stack,
 * without; NULL when the ring is full. The caller fills in the rest and commits. `texts`:
 * CLP_EVENT_TEXTS of them, copied and cut to CLP_EVENT_TEXT_UNITS; NULL: none. */
struct clp_event *clp_event_take(const struct clp_event_here *h, enum clp_event_type type,
                                 bool with_stack, const struct clp_event_words *texts);
/* The calling function's registers, for a walk that begins in it: it must not return before the
 * stack has been copied. */
#define clp_event_registers(c)                                                                     \
    __asm__ volatile("lea 0(%%rip), %%rax\n\tmov %%rax, %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2\n\t"  \
                     "mov %%rbx, %3\n\tmov %%r12, %4\n\tmov %%r13, %5\n\tmov %%r14, %6\n\t"        \
                     "mov %%r15, %7"                                                               \
                     : "=m"((c)->rip), "=m"((c)->rsp), "=m"((c)->rbp), "=m"((c)->rbx),             \
                       "=m"((c)->r12), "=m"((c)->r13), "=m"((c)->r14), "=m"((c)->r15)              \
                     :                                                                             \
                     : "rax", "memory")
/* Objects from this size on lie on the large heap. Before the first allocation is heeded. */
void clp_event_alloc_large(uint32_t bytes);

/* ---- loop thread --------------------------------------------------------------------------- */

/* The thread that starts what starts sessions: before the loop's thread, and when it has ended. 0
 * or -EAGAIN: there will be no events. Any thread but the loop's. */
int clp_events_starter_begin(void) CLP_MUST_USE;
void clp_events_starter_end(void);
/* Before the first session; idempotent. */
void clp_events_begin(uint16_t runtime_major);

/* Starts and stops sessions for exactly these kinds (bits 1 << enum clp_sample_kind); may take some
 * rounds. `info` may be NULL when nothing is to be started. */
void clp_events_want(struct clr_info *info, uint32_t kinds, uint16_t runtime_major);
/* Are events of some of these kinds not delivered? */
bool clp_events_missing(uint32_t kinds);
/* All that can be delivered of these kinds is. After clp_events_want. */
bool clp_events_ready(uint32_t kinds);
/* Nothing is under way, and nothing runs that is not wanted. */
bool clp_events_settled(void);
uint32_t clp_events_running(void); /* kinds whose events come */
uint64_t clp_events_refused(void); /* sessions that the runtime did not start */

/* What goes to the readers. */
struct clp_events_sink {
    void *user;
    void (*event)(void *user, const struct clp_feed_event *e);
    /* Definitions of frames, at once: code may be gone when the epoch ends. */
    void (*define)(void *user, const struct clp_thread *thread, const uint64_t *frames,
                   uint16_t count);
};
/* Takes what the callbacks have left. `pass` as of clp_collect_walk. */
void clp_events_drain(uint64_t pass, const struct clp_events_sink *sink);
/* Throws away what the callbacks have left. No session runs. */
void clp_events_discard(void);
/* Ends the epoch: all that happened before this call has been written, waits that are still open
 * included when `flush`. Drain first. */
void clp_events_settle(uint64_t now_ns, uint64_t pass, bool flush,
                       const struct clp_events_sink *sink);
/* From time to time: what is kept follows how fast events come. */
void clp_events_follow(uint64_t now_ns);
/* Is an epoch due to end? */
bool clp_events_due(uint64_t now_ns);

#define CLP_EVENT_HEAP_PARTS 5

/* Exact totals since the library came. */
struct clp_event_totals {
    uint64_t exceptions, exceptions_rethrown;
    uint64_t alloc_objects, alloc_bytes;
    uint64_t alloc_counted; /* of alloc_bytes, what the runtime's own counters say; or 0 */
    uint64_t contentions, contention_ns;
    uint64_t collections[3], gc_pauses, gc_pause_ns, gc_suspension_ns;
    uint64_t gc_pause_of_ns[3]; /* by generation */
    uint64_t waits, wait_ns;
    /* a state: generations 0 to 2, large, pinned; 0 before the first collection that was seen */
    uint64_t heap_bytes[CLP_EVENT_HEAP_PARTS];
    uint64_t lost; /* kept events whose stack found the event ring full */
};
void clp_events_totals(struct clp_event_totals *ret);
size_t clp_events_bytes(void);

#endif
