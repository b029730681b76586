/* The signal path: what runs inside the target's threads while they are interrupted.
 *
 * Everything declared here under "handler" is async-signal-safe by construction: no malloc, no
 * lock, no TLS that could be allocated on first touch, no unwinder, no dl_*, no libc at all (system
 * calls are made in place, so errno is never touched), at most 512 bytes of stack. The ctest
 * "signal-path-symbols" compares the imported symbols of this object library with
 * tests/data/signal-path-symbols.txt, "signal-path-stack" adds up its stack use. */
#ifndef CLP_SAMPLER_INPROC_CAPTURE_H
#define CLP_SAMPLER_INPROC_CAPTURE_H

#include "base/core/core.h"
#include "sampler/inproc/clp_span.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#define CLP_CAPTURE_STACK_MAX (256u << 10)

enum {
    CLP_CAPTURE_SEGV_BLOCKED =
        1 << 0, /* SIGSEGV blocked in uc_sigmask: hardware exception handling */
    CLP_CAPTURE_OTHER_STACK = 1 << 1, /* SP outside the thread's own stack: registers only */
    CLP_CAPTURE_TOO_DEEP = 1 << 2,    /* stack larger than the limit: the leaf part is copied */
    CLP_CAPTURE_NO_BOUNDS = 1 << 3,   /* bounds not known yet: registers only, teaches the bounds;
                                       * stack_high then holds the thread's FS base, or 0 */
};

/* One thread as the handler sees it.  Lives in a static table of the library that is never freed;
 * slots are reused under a new `generation`.  The loop thread writes, the handler reads; a slot is
 * only changed while its timer is deleted, or field by field where marked atomic. */
struct clp_thread_slot {
    _Atomic uint32_t generation; /* odd while in use */
    int32_t tid;
    _Atomic uint64_t stack_low, stack_high; /* 0 = not known yet */
    _Atomic uint64_t thread_object;         /* ThreadID = Thread*, for the hijack pair; 0 = none */
    _Atomic(const struct clp_span_cell *) span; /* the thread's cell, or NULL; its memory stays */
    _Atomic uint32_t in_handler;                /* re-entry guard */
    _Atomic int32_t timer_id;                   /* kernel timer, -1 none */
    _Atomic uint32_t lost;     /* captures lost since the last one that found room; handler */
    uint64_t random;           /* xorshift state for the jitter; handler only */
    uint64_t ramp_ns;          /* a new thread's next mean interval, doubled by each sample until
                                * it reaches the usual one; 0 = none. Handler only */
    struct clp_thread *thread; /* loop thread's own record, threads.h */
};

/* An entry of the capture ring. */
struct clp_capture {
    _Atomic uint32_t state; /* 0 being written, 1 complete, 2 padding */
    uint32_t bytes;         /* whole entry, multiple of 64 */
    uint32_t slot;          /* index in the slot table */
    uint32_t generation;    /* of the slot at capture */
    uint64_t time_ns;       /* CLOCK_MONOTONIC */
    uint64_t thread_cpu_ns; /* the thread's own CPU clock */
    uint64_t rip, rsp, rbp, rbx, r12, r13, r14, r15, rax, r9, r10,
        r11;                                 /* what CFI rules may name */
    uint64_t stack_high;                     /* end of the thread's stack */
    uint64_t hijacked_return, hijacked_slot; /* two words of the Thread object, or 0 */
    struct clp_span span;                    /* the thread's; span_id 0 = none */
    uint32_t flags;
    uint32_t overrun;
    uint32_t stack_bytes;
    uint32_t lost;   /* captures of this thread that found the ring full since its previous one */
    uint8_t stack[]; /* from rsp upward */
};

/* ---- set-up, loop thread or callbacks; not signal-safe ---- */

/* Maps and pre-faults the ring (private memory, MADV_DONTFORK; rounded up to a power of two of at
 * least CLP_CAPTURE_RING_MIN) and maps the slot table (touched as threads come). Idempotent: the
 * sizes of the first call stay. -EINVAL, -ENOMEM. */
#define CLP_CAPTURE_RING_MIN (1u << 20)
#define CLP_CAPTURE_THREADS_MAX (1u << 16) /* what a tag can number */
int clp_capture_init(size_t ring_bytes, uint32_t max_threads) CLP_MUST_USE;
/* The oldest complete capture, or NULL. Stays valid until released. Loop thread only. */
const struct clp_capture *clp_capture_peek(void);
void clp_capture_release(const struct clp_capture *c);
size_t clp_capture_waiting(void); /* bytes of the ring that are taken */
/* Losses since start. Any thread. */
uint64_t clp_capture_lost_full(void);
uint64_t clp_capture_lost_reentry(void);
struct clp_thread_slot *clp_capture_slot(uint32_t index); /* NULL beyond the table */
size_t clp_capture_bytes(void);
/* True in a child that was forked without exec: ring, slots and every clp_arena are not mapped
 * there. Each entry of the library that runtime or libc may call in such a child (callbacks,
 * destructor) asks this first and returns. Any thread, signal-safe. */
bool clp_capture_forked(void);

/* Without the rdfsbase instruction the FS base of a thread of unknown bounds is asked by
 * arch_prctl; allowed once probe.h has shown that no seccomp filter kills for it. */
void clp_capture_allow_arch_prctl(void);

/* Mean interval of the jittered one-shot timers (interval/2 .. interval*3/2). 0 = do not re-arm. */
void clp_capture_set_interval(uint64_t mean_ns);
/* Offset of the hijack pair in the Thread object once learnt; 0 = do not copy. */
void clp_capture_set_hijack_offset(uint32_t offset);
uint32_t clp_capture_hijack_offset(void);

/* Shares the runtime's activation signal (SIGRTMIN): keeps its flags and mask, chains everything
 * that is not ours.  Returns 0; -EOPNOTSUPP when the runtime's SIGSEGV mask does not hold the
 * signal (sampling stays off: facts in docs/decisions.md). Idempotent. One thread at a time. */
int clp_signal_install(void) CLP_MUST_USE;
/* Restores the old action if ours is still the current one; else stays chained and inert. Also
 * stays when the old action is the default one, which would end the process on a late signal.
 * Delete the timers first. */
void clp_signal_uninstall(void);
/* The enable word: 0 in a forked child by MADV_WIPEONFORK. The handler does nothing unless it is
 * set. */
void clp_capture_enable(bool on);
bool clp_capture_enabled(void);

/* ---- handler ---- */
void clp_capture_handler(int sig, siginfo_t *info, void *ucontext);

/* Timer tag: sigev_value.sival_ptr of our timers is this value for a slot and its generation. */
uint64_t clp_capture_tag(uint32_t slot, uint32_t generation);

#endif
