/* What the handler shares with its set-up and with the consumer; private to the capture files. */
#ifndef CLP_SAMPLER_INPROC_CAPTURE_STATE_H
#define CLP_SAMPLER_INPROC_CAPTURE_STATE_H

#include "sampler/inproc/capture.h"
#include "sampler/inproc/spans.h"

#include <stdalign.h>
#include <time.h>

enum {
    CLP_ENTRY_WRITING = 0, /* also what the consumer leaves behind, on every line of 64 bytes */
    CLP_ENTRY_COMPLETE = 1,
    CLP_ENTRY_PADDING = 2,
};
#define CLP_ENTRY_ALIGN 64u

/* How the handler may learn the FS base of a thread whose stack bounds are not known. */
enum clp_fs_way {
    CLP_FS_NONE = 0,
    CLP_FS_INSTRUCTION = 1, /* rdfsbase, allowed by the kernel (AT_HWCAP2) */
    CLP_FS_SYSCALL = 2,     /* arch_prctl */
};

/* One page that reads as zeros in a forked child (MADV_WIPEONFORK). */
struct clp_fork_page {
    _Atomic uint32_t intact; /* 1 in the process that mapped it */
    _Atomic uint32_t enabled;
};

/* The action that was there before ours. */
struct clp_old_action {
    void (*handler)(int, siginfo_t *, void *); /* SIG_DFL and SIG_IGN as libc spells them */
    bool siginfo;                              /* SA_SIGINFO: takes three arguments */
};

typedef int (*clp_clock_gettime_fn)(clockid_t, struct timespec *);

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): two lines of their own, below */
struct clp_capture_state {
    struct clp_fork_page *page; /* NULL before the set-up */
    bool page_wipes;            /* false: the kernel lacks MADV_WIPEONFORK, compare `pid` instead */
    int32_t pid;
    uint8_t *ring;
    uint64_t ring_bytes; /* power of two */
    struct clp_thread_slot *slots;
    uint32_t slot_count;
    enum clp_fs_way fs_way;
    clp_clock_gettime_fn vdso_clock; /* NULL: system call */
    _Atomic uint64_t interval_ns;
    _Atomic uint32_t hijack_offset;
    _Atomic(const struct clp_old_action *) old_action;
    _Atomic uint64_t lost_full, lost_reentry;
    _Atomic uint64_t roots_seen[CLP_SPAN_ROOTS_SEEN]; /* spans.h; 32 KB, touched only by spans */
    _Atomic uint8_t root_tags[CLP_SPAN_ROOTS_SEEN];   /* of the root of the same place; 0 none */
    /* Positions count up for ever; p lies at p & (ring_bytes - 1). Own lines: every handler writes
     * `head`, only the consumer writes `tail`. */
    alignas(64) _Atomic uint64_t head;
    alignas(64) _Atomic uint64_t tail;
};

extern struct clp_capture_state clp_capture_state;

/* Notes that a sample was taken under this root, which is not 0. Signal-safe. */
static inline void clp_capture_saw_root(uint64_t root)
{
    uint32_t place = clp_span_root_place(root);
    atomic_store_explicit(&clp_capture_state.roots_seen[place], root, memory_order_relaxed);
    atomic_store_explicit(&clp_capture_state.root_tags[place], clp_span_root_tag(root),
                          memory_order_relaxed);
}

#endif
