#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static _Atomic bool passed;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};
    nanosleep(&t, NULL);
}

static void *wait_for_modules(void *arg)
{
    (void)arg;
    clp_gate_wait(CLP_GATE_MODULES);
    atomic_store(&passed, true);
    return NULL;
}

static void open_gates_hold_nobody(void **state)
{
    (void)state;
    clp_gate_wait(CLP_GATE_MODULES | CLP_GATE_DYNAMIC | CLP_GATE_THREADS);
    clp_gate_enter(CLP_GATE_DYNAMIC);
    clp_gate_wait(CLP_GATE_MODULES);
    clp_gate_leave();
    clp_gate_wait(CLP_GATE_DYNAMIC);
}

static void a_section_holds_its_kind_until_it_ends(void **state)
{
    (void)state;
    pthread_t t;
    atomic_store(&passed, false);
    clp_gate_enter(CLP_GATE_MODULES | CLP_GATE_DYNAMIC);
    assert_int_equal(pthread_create(&t, NULL, wait_for_modules, NULL), 0);
    sleep_ms(100);
    assert_false(atomic_load(&passed));
    clp_gate_leave();
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(atomic_load(&passed));
}

/* Whoever waits for one section is not held by the next. */
static void the_next_section_does_not_hold_the_waiter(void **state)
{
    (void)state;
    pthread_t t;
    clp_gate_enter(CLP_GATE_MODULES);
    assert_int_equal(pthread_create(&t, NULL, wait_for_modules, NULL), 0);
    sleep_ms(50);
    uint64_t from = now_ns();
    clp_gate_leave();
    clp_gate_enter(CLP_GATE_MODULES);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(now_ns() - from < CLP_GATE_WAIT_MAX_NS / 2);
    clp_gate_leave();
}

/* A circle through a lock of the runtime is broken by the bound. */
static void nobody_waits_for_ever(void **state)
{
    (void)state;
    uint64_t from = now_ns();
    clp_gate_enter(CLP_GATE_MODULES);
    clp_gate_wait(CLP_GATE_MODULES);
    assert_in_range(now_ns() - from, CLP_GATE_WAIT_MAX_NS - CLP_NSEC_PER_SEC,
                    CLP_GATE_WAIT_MAX_NS + 5 * CLP_NSEC_PER_SEC);
    clp_gate_leave();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_gates_hold_nobody),
        cmocka_unit_test(a_section_holds_its_kind_until_it_ends),
        cmocka_unit_test(the_next_section_does_not_hold_the_waiter),
        cmocka_unit_test(nobody_waits_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
