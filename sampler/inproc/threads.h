/* Threads of the process: who they are, their CPU clocks, their timers.
 *
 * Managed threads are told by callbacks, the runtime's own and foreign threads are found in
 * /proc/self/task.  All functions run on the loop thread unless marked.  Accounting: `accounted_ns`
 * is the part of a thread's CPU clock that has been emitted to the readers; the sum over all
 * threads plus [short-lived threads] equals the process clock. */
#ifndef CLP_SAMPLER_INPROC_THREADS_H
#define CLP_SAMPLER_INPROC_THREADS_H

#include "base/core/core.h"
#include "sampler/inproc/capture.h"
#include "wire/wire.h"

#define CLP_THREAD_NAME_BYTES 320u /* 300 letters and some */

struct clp_thread {
    uint32_t thread_id; /* wire number, never reused */
    uint32_t slot;      /* index in the slot table */
    int32_t tid;
    uint32_t kind;         /* enum clp_thread_kind */
    uint64_t clr_thread;   /* ThreadID or 0 */
    uint64_t accounted_ns; /* CPU clock up to which samples were emitted */
    uint64_t seen_ns;      /* CPU clock at the last scan */
    uint64_t moved_at_ns;  /* CLOCK_MONOTONIC when the clock last moved */
    uint32_t name_version; /* bumped when the name changes; readers re-send the THREAD record */
    bool alive;
    char name[CLP_THREAD_NAME_BYTES]; /* UTF-8, cut on a character boundary; full managed name, else
                                         comm */
};

/* What a scan or an accounting step finds; implemented by the loop (readers.c), which turns it into
 * wire samples. `special` NONE means: weight for the stack of the thread's last sample (only used
 * for threads that had one). Which special stands for which time is said in docs/capture.md. */
struct clp_threads_sink {
    void *user;
    void (*time)(void *user, const struct clp_thread *t, enum clp_special special, uint64_t cpu_ns,
                 uint64_t time_ns);
};

/* After clp_capture_init, with at most its max_threads. `sink` is copied. Idempotent. */
int clp_threads_init(uint32_t max_threads, const struct clp_threads_sink *sink) CLP_MUST_USE;

/* From runtime callbacks, any thread. Never block beyond a leaf lock; no runtime call inside.
 * Harmless before the init and in a forked child. */
void clp_threads_assigned(uint64_t clr_thread,
                          int32_t tid); /* on the thread itself, or at enumeration */
/* After its return no handler reads the Thread object any more. */
void clp_threads_destroyed(uint64_t clr_thread);
/* NULL or 0 units: the name is taken away, the kernel's comes back. May come before `assigned`. */
void clp_threads_named(uint64_t clr_thread, const uint16_t *utf16, size_t units);

/* The span cell of a live thread, made or (NULL) given back. Any thread, as above. */
void clp_threads_span(int32_t tid, const struct clp_span_cell *cell);

/* Sampling on: timers for active threads with this mean interval (0: none, only clocks), baseline
 * of all clocks = now. Called again while on it only changes the two settings; from an interval of
 * 0 on there is a new baseline. The caller enables the capture before it
 * (clp_capture_enable) and installs the signal; without timers (clp_probe_result) it still
 * accounts. Off: all timers deleted; flush first. */
void clp_threads_start(uint64_t interval_ns, bool native_stacks);
void clp_threads_stop(void);

/* One pass over /proc/self/task: new and ended threads, clocks, timers within the budget of the
 * signal quota, CPU of threads without timers, [short-lived threads]. Returns ns until the next
 * pass is due. Drain the capture ring before it: an ended thread's captures are accepted until the
 * next pass. */
uint64_t clp_threads_scan(uint64_t now_ns);

/* CPU time since the last sample of the capture's thread, split: *ret_value for its stack; the part
 * beyond three intervals goes to the sink as SIGNALS_BLOCKED if the thread kept the signal blocked.
 * NULL when the thread is unknown (slot reused). Also teaches the stack bounds for
 * CLP_CAPTURE_NO_BOUNDS (then *ret_value = 0: not a sample, the time stays with the next one). */
struct clp_thread *clp_threads_account(const struct clp_capture *c, uint64_t *ret_value);

/* Emits what every thread has used since its last sample, so that all sums equal the clocks now,
 * and those that have ended altogether. Drain the capture ring before it, as before a pass. */
void clp_threads_flush(uint64_t now_ns);

struct clp_thread *clp_threads_by_slot(uint32_t slot); /* NULL when the slot is free */
/* Stands for the process ([short-lived threads]); always there, thread_id 1. */
const struct clp_thread *clp_threads_process(void);
uint32_t clp_threads_count(void);
/* Managed threads as of the last scan, and those of them that are workers of the runtime's pool. */
uint32_t clp_threads_managed(uint32_t *ret_pool);
uint32_t clp_threads_timers(void);
uint64_t clp_threads_quota_refused(void); /* how often a thread was left without a timer */
uint64_t clp_threads_table_refused(void); /* threads beyond the table's ceiling */
size_t clp_threads_bytes(void);           /* touched, not reserved */

#endif
