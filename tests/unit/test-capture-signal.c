#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/timers.h"
#include "tests/unit/capture-harness.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sigaction current(void)
{
    struct sigaction a;
    assert_int_equal(sigaction(SIGRTMIN, NULL, &a), 0);
    return a;
}

static void set_action(void (*handler)(int), int flags)
{
    struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&a.sa_mask);
    assert_int_equal(sigaction(SIGRTMIN, &a, NULL), 0);
}

/* In the test, not in a fixture: cmocka has its own SIGSEGV action around each of them. */
static void begin(void)
{
    clp_signal_uninstall();
    harness_fake_runtime(true);
    harness_chained = 0;
}

static void needs_the_mask_of_the_runtime(void **state)
{
    (void)state;
    begin();
    harness_fake_runtime(false);
    struct sigaction before = current();
    assert_int_equal(clp_signal_install(), -EOPNOTSUPP);
    struct sigaction after = current();
    assert_memory_equal(&before.sa_sigaction, &after.sa_sigaction, sizeof(void *));
    assert_int_equal(before.sa_flags, after.sa_flags);
}

static void keeps_flags_and_mask(void **state)
{
    (void)state;
    begin();
    struct sigaction a = current();
    a.sa_flags |= SA_ONSTACK | SA_NODEFER;
    sigaddset(&a.sa_mask, SIGUSR2);
    assert_int_equal(sigaction(SIGRTMIN, &a, NULL), 0);
    assert_int_equal(clp_signal_install(), 0);
    struct sigaction ours = current();
    assert_ptr_equal(ours.sa_sigaction, clp_capture_handler);
    assert_int_equal(ours.sa_flags, a.sa_flags);
    assert_int_equal(sigismember(&ours.sa_mask, SIGUSR2), 1);
    assert_int_equal(sigismember(&ours.sa_mask, SIGUSR1), 0);
    assert_int_equal(clp_signal_install(), 0); /* again: nothing changes */
    clp_signal_uninstall();
    struct sigaction restored = current();
    assert_ptr_equal(restored.sa_sigaction, a.sa_sigaction);
    assert_int_equal(restored.sa_flags, a.sa_flags);
    assert_int_equal(sigismember(&restored.sa_mask, SIGUSR2), 1);
}

static void chains_what_is_not_ours(void **state)
{
    (void)state;
    begin();
    assert_int_equal(clp_signal_install(), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
    assert_int_equal(harness_chained, 1);
    assert_int_equal(harness_chained_code, SI_TKILL);
    /* A timer of the application on the same signal, and a queued value without our tag. */
    union sigval v = {.sival_ptr = (void *)(uintptr_t)0x1234};
    assert_int_equal(sigqueue(getpid(), SIGRTMIN, v), 0);
    assert_int_equal(harness_chained, 2);
    int32_t id;
    assert_int_equal(clp_timer_create(harness_tid(), 0x5555, &id), 0);
    assert_int_equal(clp_timer_arm(id, 1), 0);
    for (int i = 0; i < 200 && harness_chained < 3; i++)
        harness_spin(CLP_NSEC_PER_MSEC);
    clp_timer_delete(id);
    assert_int_equal(harness_chained, 3);
    assert_int_equal(harness_chained_code, SI_TIMER);
    clp_signal_uninstall();
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
    assert_int_equal(harness_chained, 4);
}

static int plain_calls;
static void plain_handler(int sig)
{
    plain_calls += sig == SIGRTMIN;
}

static void chains_a_handler_of_one_argument(void **state)
{
    (void)state;
    begin();
    set_action(plain_handler, SA_RESTART);
    assert_int_equal(clp_signal_install(), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
    assert_int_equal(plain_calls, 1);
    clp_signal_uninstall();
    assert_ptr_equal(current().sa_handler, plain_handler);
    assert_int_equal(current().sa_flags & SA_SIGINFO, 0);
}

static void ignores_where_it_was_ignored(void **state)
{
    (void)state;
    begin();
    set_action(SIG_IGN, 0);
    assert_int_equal(clp_signal_install(), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0); /* nothing happens */
    clp_signal_uninstall();
    assert_ptr_equal(current().sa_handler, SIG_IGN);
}

/* With the default action a foreign signal ends the process, as without us; ours never does, also
 * not after the end of sampling. */
static void keeps_the_default_action(void **state)
{
    (void)state;
    begin();
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        set_action(SIG_DFL, 0);
        if (clp_signal_install() < 0)
            _exit(1);
        clp_signal_uninstall(); /* stays: the default would end the process on a late signal */
        int32_t id;
        if (clp_timer_create(harness_tid(), clp_capture_tag(3, 1), &id) < 0)
            _exit(2);
        clp_timer_arm(id, 1);
        harness_spin(50 * CLP_NSEC_PER_MSEC);
        pthread_kill(pthread_self(), SIGRTMIN);
        _exit(3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGRTMIN);
}

static void refuses_a_one_time_action(void **state)
{
    (void)state;
    begin();
    set_action(plain_handler, SA_RESETHAND);
    assert_int_equal(clp_signal_install(), -EOPNOTSUPP);
    assert_ptr_equal(current().sa_handler, plain_handler);
}

/* ---- another library that shares the signal after us ---- */

static struct sigaction saved_by_other;
static unsigned other_calls;

static void other_handler(int sig, siginfo_t *info, void *uc)
{
    other_calls++;
    saved_by_other.sa_sigaction(sig, info, uc);
}

static void other_installs(void)
{
    struct sigaction a = {.sa_sigaction = other_handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&a.sa_mask);
    assert_int_equal(sigaction(SIGRTMIN, &a, &saved_by_other), 0);
}

static void stays_chained_below_another(void **state)
{
    (void)state;
    begin();
    assert_int_equal(clp_signal_install(), 0);
    other_installs();
    clp_signal_uninstall(); /* not ours to restore any more */
    assert_ptr_equal(current().sa_sigaction, other_handler);
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
    assert_int_equal(harness_chained, 1);
    /* A second attach: no circle. */
    assert_int_equal(clp_signal_install(), 0);
    assert_ptr_equal(current().sa_sigaction, other_handler);
    other_calls = 0;
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
    assert_int_equal(other_calls, 1);
    assert_int_equal(harness_chained, 2);
    /* The other one goes and puts back what it found: us. */
    assert_int_equal(sigaction(SIGRTMIN, &saved_by_other, NULL), 0);
    assert_int_equal(clp_signal_install(), 0);
    assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
    assert_int_equal(harness_chained, 3);
    clp_signal_uninstall();
    assert_true(current().sa_sigaction != clp_capture_handler);
}

static void installs_again_and_again(void **state)
{
    (void)state;
    begin();
    struct sigaction before = current();
    for (int i = 0; i < 50; i++) {
        assert_int_equal(clp_signal_install(), 0);
        assert_int_equal(pthread_kill(pthread_self(), SIGRTMIN), 0);
        clp_signal_uninstall();
        assert_ptr_equal(current().sa_sigaction, before.sa_sigaction);
        assert_int_equal(current().sa_flags, before.sa_flags);
    }
    assert_int_equal(harness_chained, 50);
}

/* A signal that was pending when sampling ended. */
static void a_late_signal_is_harmless(void **state)
{
    (void)state;
    begin();
    sigset_t set;
    int32_t id;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    assert_int_equal(clp_signal_install(), 0);
    clp_capture_enable(true);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    assert_int_equal(clp_timer_create(harness_tid(), clp_capture_tag(5, 77), &id), 0);
    assert_int_equal(clp_timer_arm(id, 1), 0);
    harness_spin(20 * CLP_NSEC_PER_MSEC);
    clp_capture_enable(false);
    /* While ours: neither a capture nor passed on. */
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
    assert_null(clp_capture_peek());
    assert_int_equal(harness_chained, 0);
    /* After the old action came back the runtime's handler sees it: as something not its own. */
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    assert_int_equal(clp_timer_arm(id, 1), 0);
    harness_spin(20 * CLP_NSEC_PER_MSEC);
    clp_timer_delete(id);
    clp_signal_uninstall();
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
    assert_in_range(harness_chained, 0, 1); /* 0 where the kernel drops a deleted timer's signal */
    if (harness_chained)
        assert_int_equal(harness_chained_code, SI_TIMER);
}

static void *touch_errno(void *arg)
{
    struct harness_burner *b = arg;
    b->tid = harness_tid();
    clp_threads_assigned(b->clr, b->tid);
    uint64_t wrong = 0;
    while (!b->stop) {
        errno = 4711;
        for (volatile int i = 0; i < 1000; i++)
            ;
        wrong += errno != 4711;
    }
    b->cpu_ns = wrong;
    clp_threads_destroyed(b->clr);
    return NULL;
}

static void keeps_errno(void **state)
{
    (void)state;
    begin();
    static struct harness_burner b = {.clr = 0x100};
    assert_int_equal(clp_signal_install(), 0);
    harness_start(CLP_NSEC_PER_MSEC, false);
    assert_int_equal(pthread_create(&b.thread, NULL, touch_errno, &b), 0);
    harness_loop(100 * CLP_NSEC_PER_MSEC);
    harness_loop_cpu(&b, 1, 150 * CLP_NSEC_PER_MSEC);
    harness_stop();
    harness_burn_stop(&b);
    const struct harness_sum *s = harness_by_tid(b.tid);
    assert_non_null(s);
    assert_true(s->samples > 3);
    assert_int_equal(b.cpu_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needs_the_mask_of_the_runtime),
        cmocka_unit_test(keeps_flags_and_mask),
        cmocka_unit_test(chains_what_is_not_ours),
        cmocka_unit_test(chains_a_handler_of_one_argument),
        cmocka_unit_test(ignores_where_it_was_ignored),
        cmocka_unit_test(keeps_the_default_action),
        cmocka_unit_test(refuses_a_one_time_action),
        cmocka_unit_test(stays_chained_below_another),
        cmocka_unit_test(installs_again_and_again),
        cmocka_unit_test(a_late_signal_is_harmless),
        cmocka_unit_test(keeps_errno),
    };
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
