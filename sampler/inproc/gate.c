#include "sampler/inproc/gate.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Low bits: what the open section is about, 0 = none open; above: a count of sections. */
#define KIND_BITS 3u
#define KIND_MASK ((1u << KIND_BITS) - 1)

static _Atomic uint32_t word;
static _Atomic uint32_t waiters;

void clp_gate_enter(uint32_t what)
{
    uint32_t section = (atomic_load(&word) & ~KIND_MASK) + (1u << KIND_BITS);
    atomic_store(&word, section | what);
}

void clp_gate_leave(void)
{
    atomic_fetch_and(&word, ~KIND_MASK);
    if (atomic_load(&waiters) > 0)
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void clp_gate_wait(uint32_t what)
{
    uint32_t seen = atomic_load(&word);
    struct timespec until;
    if (!(seen & what))
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLP_GATE_WAIT_MAX_NS / CLP_NSEC_PER_SEC;
    atomic_fetch_add(&waiters, 1);
    long r = 0;
    while (atomic_load(&word) == seen && r == 0)
        r = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, seen, &until, NULL,
                    FUTEX_BITSET_MATCH_ANY);
    atomic_fetch_sub(&waiters, 1);
}
