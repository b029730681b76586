/* Where a thread's own stack ends, found from outside for threads that were there before us.
 *
 * The top is exact: the thread control block (FS base), which glibc and musl put above the stack.
 * The bottom is the start of the mapping that holds it, or the highest guard page below the top
 * where the guard is a mark in the page table (glibc 2.42 on kernel 6.13) and does not split the
 * mapping. */
#ifndef CLP_SAMPLER_INPROC_BOUNDS_H
#define CLP_SAMPLER_INPROC_BOUNDS_H

#include "base/core/core.h"

#include <stdbool.h>

struct clp_bounds {
    uint64_t fs_base;   /* in: of the thread; ignored for the main thread */
    bool main_thread;   /* in: its stack is the kernel's, "[stack]" */
    uint64_t low, high; /* out: 0, 0 when it has no stack that we know how to bound */
};

/* Answers all of them in one reading of /proc/self/maps (0.1 - 2 ms). 0 or -errno with all of them
 * unanswered. Loop thread. */
int clp_bounds_find(struct clp_bounds *b, size_t n) CLP_MUST_USE;

/* The calling thread's own bounds, without /proc: false for the main thread and where libc does not
 * know. May allocate from libc's heap (pthread_getattr_np); never in a handler. About 3 us. */
bool clp_bounds_own(uint64_t *ret_low, uint64_t *ret_high);

#endif
