#include "sampler/inproc/wall_account.h"

void clp_wall_account_begin(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns)
{
    *a = (struct clp_wall_account){.from_ns = now_ns, .cpu_from_ns = cpu_ns};
}

/* The two clocks are not read at the same instant: a busy thread may seem to run for longer than
 * it lives, by microseconds. What was told once is never taken back. */
uint64_t clp_wall_account_waited(const struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns)
{
    uint64_t lived = now_ns > a->from_ns ? now_ns - a->from_ns : 0;
    uint64_t ran = cpu_ns > a->cpu_from_ns ? cpu_ns - a->cpu_from_ns : 0;
    return lived > ran ? CLP_MAX(lived - ran, a->told_ns) : a->told_ns;
}

uint64_t clp_wall_account_owed(const struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns)
{
    return clp_wall_account_waited(a, now_ns, cpu_ns) - a->told_ns;
}

void clp_wall_account_sure(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns)
{
    a->sure_ns = clp_wall_account_waited(a, now_ns, cpu_ns);
}

void clp_wall_account_split(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns,
                            uint64_t cpu_wait_ns, struct clp_wall_split *ret)
{
    uint64_t owed = clp_wall_account_owed(a, now_ns, cpu_ns);
    uint64_t sure = a->sure_ns > a->told_ns ? CLP_MIN(a->sure_ns - a->told_ns, owed) : 0;
    uint64_t cpu_wait = CLP_MIN(cpu_wait_ns, owed);
    /* A thread that was woken and has not run yet still has its old stack: then it was sure too. */
    sure = CLP_MIN(sure, owed - cpu_wait);
    uint64_t open = owed - sure - cpu_wait;
    *ret = (struct clp_wall_split){
        .old_ns = sure + open / 2, .new_ns = open - open / 2, .cpu_wait_ns = cpu_wait};
    a->told_ns += owed;
    a->sure_ns = a->told_ns;
}

uint64_t clp_wall_account_take(struct clp_wall_account *a, uint64_t now_ns, uint64_t cpu_ns,
                               uint64_t ns)
{
    uint64_t owed = clp_wall_account_owed(a, now_ns, cpu_ns), taken = CLP_MIN(ns, owed);
    a->told_ns += taken;
    a->sure_ns += taken;
    return taken;
}
