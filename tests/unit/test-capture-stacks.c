#include "tests/unit/clp-cmocka.h"

#include "tests/unit/capture-harness.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

/* Threads that run elsewhere than on their own stack, or very deep in it, under real timers. */

static _Atomic bool stop;
static _Atomic int32_t tid;

static void spin_on_this_stack(int sig)
{
    (void)sig;
    while (!stop)
        harness_spin(CLP_NSEC_PER_MSEC);
}

static void *on_an_alternate_stack(void *arg)
{
    stack_t alternate = {.ss_sp = arg, .ss_size = 256 << 10};
    struct sigaction a = {.sa_handler = spin_on_this_stack, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &a, NULL);
    tid = harness_tid();
    clp_threads_assigned(0x700, tid);
    raise(SIGUSR1);
    clp_threads_destroyed(0x700);
    stack_t off = {.ss_flags = SS_DISABLE};
    sigaltstack(&off, NULL);
    return NULL;
}

static void *on_an_alternate_stack_within(void *arg)
{
    (void)arg;
    char room[256 << 10]; /* on the thread's own stack: its bounds alone do not tell */
    return on_an_alternate_stack(room);
}

static ucontext_t home, away;
static void in_a_fiber(void)
{
    spin_on_this_stack(0);
}

static void *on_a_fiber(void *arg)
{
    tid = harness_tid();
    clp_threads_assigned(0x700, tid);
    getcontext(&away);
    away.uc_stack.ss_sp = arg;
    away.uc_stack.ss_size = 256 << 10;
    away.uc_link = &home;
    makecontext(&away, in_a_fiber, 0);
    swapcontext(&home, &away);
    clp_threads_destroyed(0x700);
    return NULL;
}

static bool seen_elsewhere(void)
{
    const struct harness_sum *s = harness_by_tid(tid);
    return s && s->other_stack > 3;
}

/* A busy machine may give the thread little of a half second. */
static void run_elsewhere(void *(*body)(void *), void *stack)
{
    pthread_t t;
    stop = false;
    harness_reset_sums();
    harness_start(2 * CLP_NSEC_PER_MSEC, false);
    assert_int_equal(pthread_create(&t, NULL, body, stack), 0);
    for (int i = 0; i < 20 && !seen_elsewhere(); i++)
        harness_loop(500 * CLP_NSEC_PER_MSEC);
    stop = true;
    pthread_join(t, NULL);
    harness_stop();
    assert_true(seen_elsewhere());
    const struct harness_sum *s = harness_by_tid(tid);
    assert_true(s->other_stack >= s->samples - 2); /* start and end on its own */
    assert_true(s->stacks_ns > 0);                 /* their time is kept */
}

static void other_stacks_are_recognised(void **state)
{
    (void)state;
    void *stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(stack, MAP_FAILED);
    run_elsewhere(on_an_alternate_stack, stack);
    run_elsewhere(on_an_alternate_stack_within, NULL);
    run_elsewhere(on_a_fiber, stack);
    munmap(stack, 256 << 10);
}

static __attribute__((noinline)) uint64_t recurse(unsigned depth)
{
    volatile char frame[1024];
    frame[depth % sizeof(frame)] = 1;
    if (depth == 0)
        while (!stop)
            harness_spin(CLP_NSEC_PER_MSEC);
    else
        (void)recurse(depth - 1);
    return (uint64_t)frame[0];
}

static void *deep(void *arg)
{
    (void)arg;
    tid = harness_tid();
    clp_threads_assigned(0x800, tid);
    (void)recurse(400); /* more than 256 KB */
    clp_threads_destroyed(0x800);
    return NULL;
}

static void too_deep_stacks_are_cut(void **state)
{
    (void)state;
    pthread_t t;
    stop = false;
    harness_reset_sums();
    harness_start(2 * CLP_NSEC_PER_MSEC, false);
    assert_int_equal(pthread_create(&t, NULL, deep, NULL), 0);
    harness_loop(300 * CLP_NSEC_PER_MSEC);
    stop = true;
    pthread_join(t, NULL);
    harness_stop();
    const struct harness_sum *s = harness_by_tid(tid);
    assert_non_null(s);
    assert_true(s->too_deep > 0);
    assert_true(s->stack_bytes >= (uint64_t)s->too_deep * CLP_CAPTURE_STACK_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_stacks_are_recognised),
        cmocka_unit_test(too_deep_stacks_are_cut),
    };
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
