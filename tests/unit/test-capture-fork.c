#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/timers.h"
#include "tests/unit/capture-harness.h"

#include "base/core/core.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that forked without exec has the library's code and data, but neither ring nor tables. */

static int exit_code_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("the child died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void strike_in_place(void)
{
    siginfo_t info = {.si_code = SI_TIMER};
    ucontext_t uc;
    memset(&uc, 0, sizeof(uc));
    info.si_value.sival_ptr = (void *)(uintptr_t)clp_capture_tag(0, 1);
    clp_capture_handler(SIGRTMIN, &info, &uc);
}

static bool unmapped(const void *p)
{
    unsigned char vec;
    return mincore((void *)((uintptr_t)p & ~4095ul), 4096, &vec) < 0;
}

/* What each entry of the library answers in a child. */
static int child_body(void)
{
    const uint16_t name[] = {'x'};
    if (!clp_capture_forked())
        return 1;
    if (clp_capture_enabled())
        return 2;
    if (!unmapped(clp_capture_slot(0)))
        return 3;
    strike_in_place();
    clp_capture_enable(true);
    if (clp_capture_enabled())
        return 4;
    strike_in_place();
    clp_threads_assigned(0x9999, harness_tid());
    clp_threads_named(0x9999, name, 1);
    clp_threads_destroyed(0x9999);
    clp_threads_start(CLP_NSEC_PER_MSEC, false);
    clp_threads_flush(clp_clock_monotonic_ns());
    (void)clp_threads_scan(clp_clock_monotonic_ns());
    clp_threads_stop();
    /* The runtime's own signal still arrives where it belongs. */
    harness_chained = 0;
    if (pthread_kill(pthread_self(), SIGRTMIN) != 0 || harness_chained != 1)
        return 5;
    /* A timer of the child with our tag: swallowed. */
    int32_t id;
    if (clp_timer_create(harness_tid(), clp_capture_tag(0, 1), &id) < 0)
        return 6;
    clp_timer_arm(id, 1);
    harness_spin(20 * CLP_NSEC_PER_MSEC);
    return harness_chained == 1 ? 0 : 7;
}

static void a_child_is_inert(void **state)
{
    (void)state;
    static struct harness_burner b;
    harness_start(CLP_NSEC_PER_MSEC, false);
    harness_burn_start(&b, 0x100);
    harness_loop(100 * CLP_NSEC_PER_MSEC);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child_body());
        assert_int_equal(exit_code_of(pid), 0);
        harness_loop(5 * CLP_NSEC_PER_MSEC);
    }
    assert_false(clp_capture_forked());
    assert_true(clp_capture_enabled());
    const struct harness_sum *s = harness_by_tid(b.tid);
    assert_non_null(s);
    uint32_t samples = s->samples;
    harness_loop_cpu(&b, 1, 200 * CLP_NSEC_PER_MSEC);
    assert_true(s->samples > samples); /* sampling went on in the parent */
    harness_stop();
    harness_burn_stop(&b);
}

/* The library may be needed again in a child of a child, and never is. */
static void a_grandchild_is_inert(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(child_body());
        int status;
        waitpid(grandchild, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    assert_int_equal(exit_code_of(pid), 0);
}

/* Kernels without MADV_WIPEONFORK: the process id tells. */
static void a_child_is_inert_without_a_wiped_page(void **state)
{
    (void)state;
    assert_true(clp_capture_state.page_wipes);
    clp_capture_state.page_wipes = false;
    clp_capture_enable(true);
    assert_false(clp_capture_forked());
    assert_true(clp_capture_enabled());
    pid_t pid = fork();
    if (pid == 0) {
        atomic_store(&clp_capture_state.page->intact, 1); /* as the page would have come along */
        atomic_store(&clp_capture_state.page->enabled, 1);
        _exit(child_body());
    }
    assert_int_equal(exit_code_of(pid), 0);
    clp_capture_state.page_wipes = true;
    clp_capture_enable(false);
}

/* fork in the middle of sampling, in the sampled thread itself. */
static void *fork_in_a_loop(void *arg)
{
    struct harness_burner *b = arg;
    b->tid = harness_tid();
    clp_threads_assigned(b->clr, b->tid);
    while (!b->stop) {
        harness_spin(200 * CLP_NSEC_PER_USEC);
        pid_t pid = fork();
        if (pid == 0) {
            harness_spin(2 * CLP_NSEC_PER_MSEC);
            _exit(clp_capture_forked() ? 0 : 1);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        b->cpu_ns += status != 0;
        b->on_ns++;
    }
    clp_threads_destroyed(b->clr);
    return NULL;
}

static void forking_under_timers_is_safe(void **state)
{
    (void)state;
    static struct harness_burner b[2] = {{.clr = 0x200}, {.clr = 0x300}};
    harness_start(CLP_NSEC_PER_MSEC, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&b[i].thread, NULL, fork_in_a_loop, &b[i]), 0);
    while (!b[0].tid || !b[1].tid)
        harness_loop(10 * CLP_NSEC_PER_MSEC);
    harness_loop_cpu(b, 2, 150 * CLP_NSEC_PER_MSEC);
    for (int i = 0; i < 2; i++) {
        harness_burn_stop(&b[i]);
        assert_int_equal(b[i].cpu_ns, 0); /* no child failed */
        assert_true(b[i].on_ns > 5);
        const struct harness_sum *s = harness_by_tid(b[i].tid);
        assert_non_null(s);
        assert_true(s->samples > 0);
    }
    harness_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_inert),
        cmocka_unit_test(a_grandchild_is_inert),
        cmocka_unit_test(a_child_is_inert_without_a_wiped_page),
        cmocka_unit_test(forking_under_timers_is_safe),
    };
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
