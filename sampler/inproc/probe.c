#include "sampler/inproc/probe.h"

#include "base/core/arena.h"
#include "base/core/proctext.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/procfile.h"
#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <linux/prctl.h>
#include <linux/wait.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#define CHILD_STACK_BYTES (32u << 10)
#define F_GET_SEALS_CODE 1034
#define ARCH_GET_FS_CODE 0x1003
#define CLOSE_RANGE_UNSHARE_FLAG 2
#define KERNEL_DUMPS_ONE_PROCESS 516 /* 5.16: see shield_from_core_dumps */

static struct {
    bool done;
    int result[CLP_PROBE_COUNT];
} state;

/* What the child tells: it shares our memory. */
struct report {
    _Atomic int next; /* the probe that runs; CLP_PROBE_COUNT at the end */
    _Atomic int result[CLP_PROBE_COUNT];
};

static int probe_timer(void)
{
    struct sigevent ev;
    for (size_t i = 0; i < sizeof(ev) / sizeof(long); i++)
        ((volatile long *)&ev)[i] = 0;
    int32_t id = -1, tid = (int32_t)clp_raw3(SYS_gettid, 0, 0, 0);
    ev.sigev_notify = SIGEV_THREAD_ID;
    ev.sigev_signo = 34; /* not SIGRTMIN, which calls into libc; never delivered */
    ev._sigev_un._tid = tid;
    clockid_t clock = clp_clock_thread_id(tid);
    struct timespec ts;
    long r = clp_raw3(SYS_clock_gettime, clock, (long)&ts, 0);
    if (r >= 0)
        r = clp_raw3(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&ts, 0);
    if (r >= 0)
        r = clp_raw3(SYS_timer_create, clock, (long)&ev, (long)&id);
    if (r < 0)
        return (int)r;
    struct itimerspec far = {.it_value = {3600, 0}};
    r = clp_raw4(SYS_timer_settime, id, 0, (long)&far, 0);
    (void)clp_raw3(SYS_timer_delete, id, 0, 0);
    return r < 0 ? (int)r : 0;
}

static int probe_vm_readv(void)
{
    uint64_t from = 0x1122334455667788ull, to = 0;
    struct iovec local = {&to, sizeof(to)}, remote = {&from, sizeof(from)};
    long r = clp_raw6(SYS_process_vm_readv, clp_raw3(SYS_getpid, 0, 0, 0), (long)&local, 1,
                      (long)&remote, 1, 0);
    if (r < 0)
        return (int)r;
    return r == sizeof(to) && *(volatile uint64_t *)&to == from ? 0 : -EIO;
}

/* A range above every descriptor: it unshares, and closes nothing. */
static int probe_unshare(void)
{
    long r = clp_raw3(SYS_close_range, ~0u, ~0u, CLOSE_RANGE_UNSHARE_FLAG);
    return r < 0 ? (int)r : 0;
}

static int probe_seals(void)
{
    long r = clp_raw3(SYS_fcntl, -1, F_GET_SEALS_CODE, 0);
    return r == -EBADF ? 0 : (int)r; /* the answer for no descriptor: the call itself is allowed */
}

static int probe_arch_prctl(void)
{
    uint64_t fs = 0;
    long r = clp_raw3(SYS_arch_prctl, ARCH_GET_FS_CODE, (long)&fs, 0);
    return r < 0 ? (int)r : 0;
}

static int probe_queue(void)
{
    long r = clp_raw4(SYS_rt_tgsigqueueinfo, 0, 0, 0, 0);
    return r == -EINVAL || r == -EFAULT ? 0 : (int)r;
}

static int run_one(int p)
{
    switch (p) {
    case CLP_PROBE_TIMER:
        return probe_timer();
    case CLP_PROBE_VM_READV:
        return probe_vm_readv();
    case CLP_PROBE_UNSHARE:
        return probe_unshare();
    case CLP_PROBE_SEALS:
        return probe_seals();
    case CLP_PROBE_ARCH_PRCTL:
        return probe_arch_prctl();
    default:
        return probe_queue();
    }
}

/* Runs on its own small stack in our memory, with the caller's thread pointer: raw calls only. */
static int child(void *arg)
{
    struct report *r = arg;
    for (int p = atomic_load(&r->next); p < CLP_PROBE_COUNT; p++) {
        atomic_store(&r->next, p);
        atomic_store(&r->result[p], run_one(p));
    }
    atomic_store(&r->next, CLP_PROBE_COUNT);
    return 0;
}

/* clone with CLONE_VFORK: the caller waits in the kernel until the child is gone, so libc's clone
 * wrapper and the shared thread pointer are never used by two at a time. Exit signal 0: the parent
 * gets no SIGCHLD, and only a wait with __WCLONE or __WALL sees the child. */
static bool run_child(struct report *report, uint8_t *stack)
{
    int saved = errno;
    int pid = clone(child, stack + CHILD_STACK_BYTES, CLONE_VM | CLONE_VFORK, report);
    if (pid < 0) {
        errno = saved;
        return false;
    }
    long r;
    do
        r = clp_raw4(SYS_wait4, pid, 0, (long)(__WCLONE | __WALL), 0);
    while (r == -EINTR);
    errno = saved;
    return true;
}

static void probe_in_children(struct report *report)
{
    uint8_t *stack = clp_pages_alloc(CHILD_STACK_BYTES);
    if (!stack)
        return;
    /* Each child that is killed costs one probe; at most as many children as probes. */
    for (int tries = 0; tries < CLP_PROBE_COUNT; tries++) {
        if (!run_child(report, stack) || atomic_load(&report->next) >= CLP_PROBE_COUNT)
            break;
        int killed = atomic_fetch_add(&report->next, 1);
        atomic_store(&report->result[killed], -EPERM);
    }
    clp_pages_free(stack, CHILD_STACK_BYTES);
}

static int kernel_version(void)
{
    struct utsname u;
    char *end;
    if (clp_raw3(SYS_uname, (long)&u, 0, 0) < 0)
        return 0;
    long major = strtol(u.release, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return (int)(major * 100 + CLP_MIN(minor, 99));
}

/* Before Linux 5.16 the core dump of one process (a filter's kill is one) ended every process that
 * shared its memory: it would take the target with it. An undumpable memory is not dumped; the flag
 * belongs to the memory, so it is set back at once. */
static bool shield_from_core_dumps(bool *ret_restore)
{
    *ret_restore = false;
    if (kernel_version() >= KERNEL_DUMPS_ONE_PROCESS)
        return true;
    long was = clp_raw3(SYS_prctl, PR_GET_DUMPABLE, 0, 0);
    if (was == 0)
        return true;
    if (was != 1) /* 2 cannot be set back: do without the calls */
        return false;
    *ret_restore = clp_raw3(SYS_prctl, PR_SET_DUMPABLE, 0, 0) == 0;
    return *ret_restore;
}

/* The child inherits the signal mask: no handler of the target may run on its stack. */
static void probe_shielded(struct report *report)
{
    uint64_t all = ~0ull, mask = 0;
    bool restore;
    if (clp_raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask, 8) < 0)
        return;
    if (shield_from_core_dumps(&restore))
        probe_in_children(report);
    if (restore)
        (void)clp_raw3(SYS_prctl, PR_SET_DUMPABLE, 1, 0);
    (void)clp_raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, 8);
}

static bool filtered(void)
{
    char text[4096];
    struct clp_proc_status status;
    int64_t n = clp_procfile_read("/proc/self/status", text, sizeof(text));
    return n <= 0 || clp_proctext_status(text, (size_t)n, &status) < 0 || status.seccomp != 0;
}

static void probe(bool in_child)
{
    struct report report;
    atomic_init(&report.next, 0);
    for (int p = 0; p < CLP_PROBE_COUNT; p++)
        atomic_init(&report.result[p], -EPERM);
    if (in_child)
        probe_shielded(&report);
    for (int p = 0; p < CLP_PROBE_COUNT && !in_child; p++)
        if (p == CLP_PROBE_UNSHARE) /* would take effect here; its user handles its failure */
            atomic_store(&report.result[p], 0);
        else
            atomic_store(&report.result[p], run_one(p));
    for (int p = 0; p < CLP_PROBE_COUNT; p++)
        state.result[p] = atomic_load(&report.result[p]);
    state.done = true;
}

void clp_probe_run(void)
{
    if (!state.done)
        probe(filtered());
}

void clp_probe_again(void)
{
    probe(true);
}

int clp_probe_result(enum clp_probe p)
{
    clp_probe_run();
    return state.result[p];
}
