/* The thread that an event happens on, found without thread-local storage: by the address of its
 * control block (FS base), which costs a few instructions.
 *
 * An entry is only written by its own thread. A thread that ended leaves its entry behind; one that
 * gets the same control block later forgets it first (clp_event_thread_begins). */
#ifndef CLP_SAMPLER_INPROC_EVENT_THREAD_H
#define CLP_SAMPLER_INPROC_EVENT_THREAD_H

#include "base/core/core.h"
#include "base/core/random.h"
#include "sampler/inproc/clp_span.h"

#include <stdbool.h>
#include <stdatomic.h>

/* A lock that a thread waits for, or a handle; on .NET 9 the second comes inside of the first.
 * event_wait.c. */
enum clp_event_wait_kind { CLP_EVENT_WAIT_LOCK, CLP_EVENT_WAIT_HANDLE, CLP_EVENT_WAIT_KINDS };
struct clp_event_wait {
    _Atomic uint64_t since_ns; /* 0: none */
    uint64_t lock, owner;
    uint32_t place;
    uint32_t watch; /* of event_owner.h */
};

struct clp_event_thread {
    _Atomic uint64_t control_block; /* 0: free */
    _Atomic int32_t tid;            /* 0: not asked yet */
    uint32_t slot;                  /* in the capture's table, UINT32_MAX: none */
    uint32_t generation;
    _Atomic uint32_t busy; /* inside one of our callbacks */
    uint32_t path_hint;    /* of event_path.h */
    /* Of the thread's own stack; high 0: unknown. It may run on another one. */
    uint64_t stack_low, stack_high;
    uint64_t random;
    struct clp_event_wait waits[CLP_EVENT_WAIT_KINDS];
};

/* The calling thread's entry; NULL when the table is full. */
struct clp_event_thread *clp_event_thread_self(void);
/* Finds the calling thread's slot in the capture's table where it has none or another one by now.
 */
void clp_event_thread_look(struct clp_event_thread *t);
/* The span that the calling thread is in (span_id 0: none), which a sample was taken in now. */
void clp_event_thread_span(const struct clp_event_thread *t, struct clp_span *ret);
/* On a new thread, before its first event. Harmless in a forked child. */
void clp_event_thread_begins(void);
/* Loop thread: maps the table and learns the main thread's stack. Idempotent. 0 or -ENOMEM. */
int clp_event_threads_init(void) CLP_MUST_USE;
/* Entries by number, for the loop; NULL beyond the table. */
struct clp_event_thread *clp_event_thread_at(uint32_t i);

/* Uniform in [0, 1). */
static inline double clp_event_random(struct clp_event_thread *t)
{
    return clp_random_unit(&t->random);
}

#endif
