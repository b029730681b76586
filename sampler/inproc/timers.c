#include "sampler/inproc/timers.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/rawcall.h"

#include <signal.h>
#include <string.h>

/* Not libc's timer_create: it keeps a table with malloc and hides the kernel's id. */
int clp_timer_create(int32_t tid, uint64_t tag, int32_t *ret_id)
{
    struct sigevent ev;
    memset(&ev, 0, sizeof(ev));
    ev.sigev_notify = SIGEV_THREAD_ID;
    ev.sigev_signo = SIGRTMIN;
    ev.sigev_value.sival_ptr = (void *)(uintptr_t)tag;
    ev._sigev_un._tid = tid;
    int32_t id = -1;
    long r = clp_raw3(SYS_timer_create, clp_clock_thread_id(tid), (long)&ev, (long)&id);
    if (r < 0)
        return (int)r;
    *ret_id = id;
    return 0;
}

int clp_timer_arm(int32_t id, uint64_t ns)
{
    ns = CLP_MAX(ns, 1u);
    struct itimerspec when = {
        .it_value = {(time_t)(ns / CLP_NSEC_PER_SEC), (long)(ns % CLP_NSEC_PER_SEC)}};
    return (int)clp_raw4(SYS_timer_settime, id, 0, (long)&when, 0);
}

void clp_timer_delete(int32_t id)
{
    (void)clp_raw3(SYS_timer_delete, id, 0, 0);
}
