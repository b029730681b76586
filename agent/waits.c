#include "agent/waits.h"

#include <string.h>
#include <sys/syscall.h>

const char *clp_wait_text(enum clp_wait wait)
{
    static const char *const texts[CLP_WAIT_COUNT] = {
        [CLP_WAIT_LOCK] = "lock", [CLP_WAIT_EVENT] = "event", [CLP_WAIT_TASK] = "task",
        [CLP_WAIT_IO] = "io",     [CLP_WAIT_SLEEP] = "sleep", [CLP_WAIT_PROCESS] = "process",
        [CLP_WAIT_IDLE] = "idle", [CLP_WAIT_GC] = "gc",       [CLP_WAIT_CPU] = "cpu-wait",
    };
    return wait < CLP_WAIT_COUNT ? texts[wait] : NULL;
}

/* Methods that wait, in .NET 8 to 10.  One wait is built on another (a socket on an event, a task
 * on a monitor): of all that are found between the leaf and the first method of the application,
 * the first row of this table counts.  A `*` at the end stands for any rest. */
static const struct {
    const char *type, *name;
    enum clp_wait wait;
} methods[] = {
    {"System.Threading.LowLevelLifoSemaphore*", "*", CLP_WAIT_IDLE},
    {"System.Threading.PortableThreadPool+GateThread*", "*", CLP_WAIT_IDLE},
    {"System.Threading.PortableThreadPool+WaitThread", "*", CLP_WAIT_IDLE},
    {"System.Threading.PortableThreadPool+IOCompletionPoller", "*", CLP_WAIT_IDLE},
    {"System.Threading.TimerQueue", "TimerThread", CLP_WAIT_IDLE},
    {"System.Net.Sockets.SocketAsyncEngine", "EventLoop", CLP_WAIT_IDLE},
    {"System.Diagnostics.ProcessWaitState", "*", CLP_WAIT_PROCESS},
    {"System.Diagnostics.ProcessWaitHandle", "*", CLP_WAIT_PROCESS},
    {"System.Diagnostics.Process", "WaitForExit*", CLP_WAIT_PROCESS},
    {"Interop+Sys", "WaitPid*", CLP_WAIT_PROCESS},
    {"Interop+Sys", "LowLevelMonitor_*", CLP_WAIT_EVENT},
    {"System.Net.*", "*", CLP_WAIT_IO},
    {"System.IO.*", "*", CLP_WAIT_IO},
    {"System.Console*", "*", CLP_WAIT_IO},
    {"Microsoft.Win32.SafeHandles.*", "*", CLP_WAIT_IO},
    {"Interop+*", "*", CLP_WAIT_IO},
    {"System.Threading.Tasks.Task*", "Wait*", CLP_WAIT_TASK},
    {"System.Threading.Tasks.Task*", "InternalWait*", CLP_WAIT_TASK},
    {"System.Threading.Tasks.Task*", "SpinThenBlockingWait", CLP_WAIT_TASK},
    {"System.Runtime.CompilerServices.TaskAwaiter*", "*", CLP_WAIT_TASK},
    {"System.Runtime.CompilerServices.ConfiguredTaskAwaitable*", "*", CLP_WAIT_TASK},
    {"System.Threading.Lock", "*", CLP_WAIT_LOCK},
    {"System.Threading.ReaderWriterLock*", "*", CLP_WAIT_LOCK},
    {"System.Threading.Monitor", "Wait", CLP_WAIT_EVENT},
    {"System.Threading.Monitor", "ObjWait", CLP_WAIT_EVENT},
    {"System.Threading.Monitor", "*", CLP_WAIT_LOCK},
    {"System.Threading.SpinLock", "*", CLP_WAIT_LOCK},
    {"System.Threading.WaitHandle", "*", CLP_WAIT_EVENT},
    {"System.Threading.ManualResetEventSlim", "*", CLP_WAIT_EVENT},
    {"System.Threading.SemaphoreSlim", "*", CLP_WAIT_EVENT},
    {"System.Threading.CountdownEvent", "*", CLP_WAIT_EVENT},
    {"System.Threading.Barrier", "*", CLP_WAIT_EVENT},
    {"System.Threading.LowLevelMonitor", "*", CLP_WAIT_EVENT},
    {"System.Threading.Thread", "Join*", CLP_WAIT_EVENT},
    {"System.Threading.Thread", "Sleep*", CLP_WAIT_SLEEP},
    {"System.Threading.Thread", "UninterruptibleSleep*", CLP_WAIT_SLEEP},
};

/* What is left without such a method: the application's own native code, and the runtime's. */
static const struct {
    int first, last;
    enum clp_wait wait;
} calls[] = {
    {SYS_read, SYS_open, CLP_WAIT_IO}, /* and write */
    {SYS_poll, SYS_poll, CLP_WAIT_IO},
    {SYS_ioctl, SYS_writev, CLP_WAIT_IO}, /* and pread64, pwrite64, readv */
    {SYS_select, SYS_select, CLP_WAIT_IO},
    {SYS_pause, SYS_pause, CLP_WAIT_EVENT},
    {SYS_nanosleep, SYS_nanosleep, CLP_WAIT_SLEEP},
    {SYS_sendfile, SYS_sendfile, CLP_WAIT_IO},
    {SYS_connect, SYS_recvmsg, CLP_WAIT_IO}, /* and accept, sendto, recvfrom, sendmsg */
    {SYS_wait4, SYS_wait4, CLP_WAIT_PROCESS},
    {SYS_semop, SYS_semop, CLP_WAIT_EVENT},
    {SYS_msgsnd, SYS_msgrcv, CLP_WAIT_IO},
    {SYS_fcntl, SYS_flock, CLP_WAIT_LOCK},
    {SYS_fsync, SYS_fdatasync, CLP_WAIT_IO},
    {SYS_rt_sigtimedwait, SYS_rt_sigtimedwait, CLP_WAIT_EVENT},
    {SYS_rt_sigsuspend, SYS_rt_sigsuspend, CLP_WAIT_EVENT},
    {SYS_io_getevents, SYS_io_getevents, CLP_WAIT_IO},
    {SYS_semtimedop, SYS_semtimedop, CLP_WAIT_EVENT},
    {SYS_clock_nanosleep, SYS_clock_nanosleep, CLP_WAIT_SLEEP},
    {SYS_epoll_wait, SYS_epoll_wait, CLP_WAIT_IO},
    {SYS_mq_timedsend, SYS_mq_timedreceive, CLP_WAIT_IO},
    {SYS_waitid, SYS_waitid, CLP_WAIT_PROCESS},
    {SYS_openat, SYS_openat, CLP_WAIT_IO},
    {SYS_pselect6, SYS_ppoll, CLP_WAIT_IO},
    {SYS_splice, SYS_splice, CLP_WAIT_IO},
    {SYS_epoll_pwait, SYS_epoll_pwait, CLP_WAIT_IO},
    {SYS_accept4, SYS_accept4, CLP_WAIT_IO},
    {SYS_preadv, SYS_pwritev, CLP_WAIT_IO},
    {SYS_recvmmsg, SYS_recvmmsg, CLP_WAIT_IO},
    {SYS_sendmmsg, SYS_sendmmsg, CLP_WAIT_IO},
    {426 /* io_uring_enter */, 426, CLP_WAIT_IO},
    {441 /* epoll_pwait2 */, 441, CLP_WAIT_IO},
};

static bool matches(const char *pattern, const char *text, size_t len)
{
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '*')
        return len >= n - 1 && memcmp(pattern, text, n - 1) == 0;
    return len == n && memcmp(pattern, text, n) == 0;
}

/* Code that belongs to the framework. What has no type is a stub of the runtime's. */
static bool is_framework(const struct clp_wait_frame *f)
{
    static const char *const ours[] = {"System.*", "Interop*", "Internal.*", "Microsoft.Win32.*"};
    bool yes = f->type_len == 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(ours); i++)
        yes |= matches(ours[i], f->type, f->type_len);
    return yes;
}

static enum clp_wait by_method(const struct clp_wait_frame *frames, size_t count)
{
    size_t best = CLP_ARRAY_LEN(methods);
    for (size_t i = 0; i < count && is_framework(&frames[i]); i++)
        for (size_t m = 0; m < best; m++)
            if (matches(methods[m].type, frames[i].type, frames[i].type_len) &&
                matches(methods[m].name, frames[i].name, frames[i].name_len))
                best = m;
    return best < CLP_ARRAY_LEN(methods) ? methods[best].wait : CLP_WAIT_NONE;
}

static enum clp_wait by_call(int call)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(calls); i++)
        if (call >= calls[i].first && call <= calls[i].last)
            return calls[i].wait;
    return CLP_WAIT_NONE;
}

enum clp_wait clp_wait_of(const struct clp_wait_frame *frames, size_t count, int call,
                          bool native_thread)
{
    enum clp_wait w = by_method(frames, count);
    if (w != CLP_WAIT_NONE)
        return w;
    if (count == 0 && !native_thread)
        return CLP_WAIT_IDLE; /* the finalizer, the collector's threads, the diagnostics server */
    if (call == SYS_futex)    /* .NET 8 and 9 enter a monitor without a method of their own */
        return native_thread ? CLP_WAIT_EVENT : CLP_WAIT_LOCK;
    return by_call(call);
}
