/* System calls that a seccomp filter might answer by killing: tried once in a child that shares
 * nothing but memory, before the target's own threads make them.
 *
 * Where no filter is active (Seccomp: 0 in /proc/self/status) nothing can kill and no child is
 * made. */
#ifndef CLP_SAMPLER_INPROC_PROBE_H
#define CLP_SAMPLER_INPROC_PROBE_H

#include "base/core/core.h"

enum clp_probe {
    CLP_PROBE_TIMER = 0,      /* timer_create on a thread's CPU clock, settime, delete; its clock */
    CLP_PROBE_VM_READV = 1,   /* process_vm_readv on oneself */
    CLP_PROBE_UNSHARE = 2,    /* close_range(.., CLOSE_RANGE_UNSHARE) */
    CLP_PROBE_SEALS = 3,      /* fcntl(F_GET_SEALS) */
    CLP_PROBE_ARCH_PRCTL = 4, /* arch_prctl(ARCH_GET_FS) */
    CLP_PROBE_QUEUE = 5,      /* rt_tgsigqueueinfo, of the test build's directed signals */
    CLP_PROBE_COUNT = 6,
};

/* Probes all of them; idempotent. The application sees no SIGCHLD and no child to wait for. Loop
 * thread; takes up to some milliseconds. Not in a signal handler. */
void clp_probe_run(void);

/* 0 = may be called; else why not: -ENOSYS, -EPERM (also when the filter kills), -EINVAL... Runs
 * the probes when they have not run. */
int clp_probe_result(enum clp_probe p) CLP_MUST_USE;

/* For tests: probes again, in a child even without a filter. */
void clp_probe_again(void);

#endif
