/* How a thread's waiting time is given out.
 *
 * A thread waits while it lives and its CPU clock stands still: waiting time = time - CPU time.  It
 * is given out in pieces, each once, so that the pieces and the CPU time add up to the time that
 * the thread lived.  What a visit finds decides where a piece goes. Pure; loop thread. */
#ifndef CLP_SAMPLER_INPROC_WALL_ACCOUNT_H
#define CLP_SAMPLER_INPROC_WALL_ACCOUNT_H

#include "base/core/core.h"

struct clp_wall_account {
    uint64_t from_ns;     /* CLOCK_MONOTONIC from which on it is accounted for */
    uint64_t cpu_from_ns; /* its CPU clock then */
    uint64_t told_ns;     /* waiting time since, given out */
    uint64_t sure_ns;     /* waiting time up to the last visit that found the stack unchanged */
};

struct clp_wall_split {
    uint64_t old_ns;      /* of the stack that was known before */
    uint64_t new_ns;      /* of the stack that was found now */
    uint64_t cpu_wait_ns; /* runnable, without a CPU */
};

void clp_wall_account_begin(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns);
/* All waiting time up to now. Never less than what was told. */
uint64_t clp_wall_account_waited(const struct clp_wall_account *a, uint64_t now_ns,
                                 uint64_t cpu_ns);
/* Waiting time that is not given out yet. */
uint64_t clp_wall_account_owed(const struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns);

/* The CPU clock has not moved since the stack was taken: up to now all was that stack's. */
void clp_wall_account_sure(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns);
/* The clock has moved: gives out all that is owed.  Up to the last sure visit it is the old
 * stack's, but for `cpu_wait_ns`, as the kernel counted it; of the rest nobody knows when the one
 * stack ended and the other began: half each, which is right on average. */
void clp_wall_account_split(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns,
                            uint64_t cpu_wait_ns, struct clp_wall_split *ret);
/* Takes up to `ns` out for a reason of its own (the process was stopped): how much that was. */
uint64_t clp_wall_account_take(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns,
                               uint64_t ns);

#endif
