#include "tests/unit/clp-cmocka.h"

#include "agent/waits.h"

#include <string.h>
#include <sys/syscall.h>

static enum clp_wait wait_of(const char *const *names, int call, bool native)
{
    struct clp_wait_frame frames[8];
    size_t n = 0;
    for (; names[n]; n++) {
        const char *dot = strrchr(names[n], '!');
        frames[n] = (struct clp_wait_frame){.type = names[n],
                                            .name = dot + 1,
                                            .type_len = (size_t)(dot - names[n]),
                                            .name_len = strlen(dot + 1)};
    }
    return clp_wait_of(frames, n, call, native);
}

static void by_methods(void **state)
{
    (void)state;
    static const struct {
        const char *names[6];
        enum clp_wait wait;
    } cases[] = {
        {{"System.Threading.Monitor!Wait", "App.Queue!Take"}, CLP_WAIT_EVENT},
        {{"System.Threading.Monitor!Enter_Slowpath", "App.Queue!Take"}, CLP_WAIT_LOCK},
        {{"System.Threading.Monitor!Wait", "System.Threading.ManualResetEventSlim!Wait",
          "System.Threading.Tasks.Task!SpinThenBlockingWait", "App.A!B"},
         CLP_WAIT_TASK},
        {{"System.Threading.Monitor!Wait", "System.Threading.SemaphoreSlim!Wait", "App.A!B"},
         CLP_WAIT_EVENT},
        {{"System.Threading.Monitor!Wait", "System.Threading.ManualResetEventSlim!Wait",
          "System.Net.Sockets.SocketAsyncContext!PerformSyncOperation", "App.A!B"},
         CLP_WAIT_IO},
        {{"Interop+Sys!Read", "System.IO.RandomAccess!ReadAtOffset", "App.A!B"}, CLP_WAIT_IO},
        {{"Interop+Sys!WaitForSocketEvents", "System.Net.Sockets.SocketAsyncEngine!EventLoop"},
         CLP_WAIT_IDLE},
        {{"System.Threading.LowLevelLifoSemaphore!WaitForSignal",
          "System.Threading.PortableThreadPool+WorkerThread!WorkerThreadStart"},
         CLP_WAIT_IDLE},
        {{"System.Threading.Thread!Sleep", "App.A!B"}, CLP_WAIT_SLEEP},
        {{"System.Threading.WaitHandle!WaitOneNoCheck",
          "System.Diagnostics.Process!WaitForExitCore", "App.A!B"},
         CLP_WAIT_PROCESS},
        {{"System.Threading.ReaderWriterLockSlim!WaitOnEvent", "App.A!B"}, CLP_WAIT_LOCK},
        {{"!IL_STUB_PInvoke", "System.Threading.Thread!Join", "App.A!B"}, CLP_WAIT_EVENT},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++)
        assert_string_equal(clp_wait_text(wait_of(cases[i].names, SYS_futex, false)),
                            clp_wait_text(cases[i].wait));
}

/* What waits is nearest to the leaf: a task that runs the application's code inline is not what
 * that code waits for, nor is a pool's worker that runs it idle. */
static void the_application_ends_the_search(void **state)
{
    (void)state;
    static const char *const names[] = {"System.Threading.Thread!Sleep",
                                        "App.Work!Step",
                                        "System.Threading.Tasks.Task!InternalWait",
                                        "App.Work!Run",
                                        "System.Threading.PortableThreadPool+WaitThread!Run",
                                        NULL};
    assert_int_equal(wait_of(names, SYS_futex, false), CLP_WAIT_SLEEP);
    static const char *const own[] = {"App.Native!poll", "System.Threading.Thread!Sleep", NULL};
    assert_int_equal(wait_of(own, SYS_poll, false), CLP_WAIT_IO);
}

static void by_calls(void **state)
{
    (void)state;
    static const char *const own[] = {"App.Native!call", NULL}, *const none[] = {NULL};
    static const struct {
        int call;
        enum clp_wait wait;
    } cases[] = {
        {SYS_futex, CLP_WAIT_LOCK},    {SYS_poll, CLP_WAIT_IO},
        {SYS_recvfrom, CLP_WAIT_IO},   {SYS_nanosleep, CLP_WAIT_SLEEP},
        {SYS_pause, CLP_WAIT_EVENT},   {SYS_wait4, CLP_WAIT_PROCESS},
        {SYS_flock, CLP_WAIT_LOCK},    {SYS_clock_nanosleep, CLP_WAIT_SLEEP},
        {SYS_epoll_wait, CLP_WAIT_IO}, {SYS_mmap, CLP_WAIT_NONE},
        {SYS_close, CLP_WAIT_NONE},    {SYS_getitimer, CLP_WAIT_NONE},
        {-1, CLP_WAIT_NONE},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++)
        assert_int_equal(wait_of(own, cases[i].call, false), cases[i].wait);
    assert_int_equal(wait_of(none, SYS_futex, false), CLP_WAIT_IDLE);
    assert_int_equal(wait_of(none, SYS_futex, true), CLP_WAIT_EVENT);
    assert_int_equal(wait_of(none, SYS_read, true), CLP_WAIT_IO);
    assert_null(clp_wait_text(CLP_WAIT_NONE));
    for (int w = CLP_WAIT_NONE + 1; w < CLP_WAIT_COUNT; w++)
        assert_non_null(clp_wait_text((enum clp_wait)w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_methods),
        cmocka_unit_test(the_application_ends_the_search),
        cmocka_unit_test(by_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
