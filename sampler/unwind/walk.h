/* The stack walk over a captured copy: native and managed frames in their true order.
 *
 * Exact, or says that it is not: a walk that cannot go on ends with INCOMPLETE; it never guesses a
 * caller.  Order of the rules per frame: see docs/unwinding.md. */
#ifndef CLP_SAMPLER_UNWIND_WALK_H
#define CLP_SAMPLER_UNWIND_WALK_H

#include "sampler/unwind/code.h"
#include "sampler/unwind/native.h"
#include "sampler/unwind/rule.h"

#define CLP_WALK_FRAMES_MAX 2048

struct clp_walk_input {
    struct clp_regs regs;        /* rip and rsp at least; the rest may be marked unknown */
    struct clp_stack_view stack; /* copy of [rsp, rsp+n) */
    uint64_t stack_top;          /* end of the thread's stack; the copy may end before it */
    uint64_t time_ns;            /* CLOCK_MONOTONIC of the capture, to choose the code body */
    /* The thread's hijack pair, copied at capture: true return address, and the stack slot that it
     * was taken from; both 0 when unknown or not hijacked. */
    uint64_t hijacked_return, hijacked_slot;
    bool leaf_is_caller; /* rip is a return address (signal-free captures) */
};

enum clp_walk_kind {
    CLP_WALK_MANAGED = 1,
    CLP_WALK_NATIVE = 2,
    CLP_WALK_STUB = 3,
    CLP_WALK_UNKNOWN = 4,
    CLP_WALK_HIJACKED_CALLER = 5, /* the frame behind a hijacked return address is not known */
};

struct clp_walk_frame {
    uint64_t address; /* to look up: rip for leaves, return address - 1 for callers */
    uint64_t cfa;     /* stack pointer after return, for comparison and the next frame; 0 unknown */
    uint32_t id;      /* body or image id */
    uint8_t kind;     /* enum clp_walk_kind */
    uint64_t base;    /* body start, or image bias: address - base = offset */
};

enum {
    CLP_WALK_INCOMPLETE = 1 << 0, /* ended before the root */
    CLP_WALK_TRUNCATED = 1 << 1, /* more frames than asked for, or the copy ended before the root */
    CLP_WALK_REPAIRED = 1 << 2,  /* a hijacked return address was repaired */
    CLP_WALK_GC_WAIT = 1 << 3,   /* the thread waits inside a GC suspension */
    CLP_WALK_OSR = 1 << 4,
};

struct clp_walk_result {
    uint32_t count;
    uint32_t flags;
};

/* What walks remember of each other. One per process that is walked, zeroed before the first use,
 * used by one thread; about 100 KB, so not for the stack of a small thread.  The caches hold facts
 * about bytes that do not change as long as body and image ids are not reused and native tables are
 * not freed. */
#define CLP_WALK_CACHE_SLOTS 1024u /* a power of two */

struct clp_walk_cached_rule {
    uint64_t address; /* looked up */
    const struct clp_native_table *table;
    const struct clp_rule *rule;
};

struct clp_walk_cached_leaf { /* an interrupted instruction of a managed body */
    uint64_t address;
    uint32_t id;
    uint32_t answer; /* enum in step-managed.c; 0: empty */
    struct clp_rule rule;
};

struct clp_walk_cached_call { /* does a call instruction end here? is this in a filter? */
    uint64_t address;
    uint32_t id;
    uint32_t answer; /* 0: empty */
};

struct clp_walk_cached_frame { /* how far below its rbp native code stands at a call */
    uint64_t address;
    const struct clp_native_table *table;
    uint32_t answer; /* enum in recover.c */
    uint32_t below;
};

#define CLP_WALK_FORWARD_MAX 3u
struct clp_walk_cached_forward { /* where code without tables finds its return address */
    uint64_t address;
    uint32_t id;
    uint8_t count;
    bool overflow; /* more answers than fit */
    struct clp_rule rule[CLP_WALK_FORWARD_MAX];
};

struct clp_walk_state {
    /* The runtime's hijack stub (OnHijackTripThread), learnt once: 0 = not seen yet. */
    uint64_t hijack_stub;
    struct clp_walk_cached_rule rules[CLP_WALK_CACHE_SLOTS];
    struct clp_walk_cached_leaf leaves[CLP_WALK_CACHE_SLOTS / 2];
    struct clp_walk_cached_call calls[CLP_WALK_CACHE_SLOTS / 4];
    struct clp_walk_cached_call filters[CLP_WALK_CACHE_SLOTS / 16];
    struct clp_walk_cached_frame frames[CLP_WALK_CACHE_SLOTS / 8];
    struct clp_walk_cached_forward forwards[CLP_WALK_CACHE_SLOTS / 2];
};

/* Walks and fills frames[0..cap), leaf first. Adjacent OSR/Tier-0 frames of one method are one. */
void clp_walk(const struct clp_code_source *code, struct clp_walk_state *state,
              const struct clp_walk_input *in, struct clp_walk_frame *frames, uint32_t cap,
              struct clp_walk_result *ret);

#endif
