#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/clock.h"
#include "tests/unit/capture-harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Callbacks on many threads against the loop. Without timers (no signal quota), so that it also
 * runs under ThreadSanitizer, which holds signals back. */

#define WORKERS 4

static _Atomic uint64_t next_object = 1000;
static _Atomic uint64_t spent_ns;
static _Atomic bool stop;

static void *life(void *arg)
{
    (void)arg;
    uint16_t name[] = {'t', '0', '0'};
    uint64_t object = next_object++ * 64;
    name[2] = (uint16_t)('0' + object / 64 % 10);
    if (object % 3 == 0)
        clp_threads_named(object, name, 3);
    clp_threads_assigned(object, harness_tid());
    harness_spin(200 * CLP_NSEC_PER_USEC);
    clp_threads_named(object, name, 2);
    if (object % 5 == 0) {
        clp_threads_destroyed(object); /* leaves the runtime and comes back */
        object = next_object++ * 64;
        clp_threads_assigned(object, harness_tid());
    }
    harness_spin(200 * CLP_NSEC_PER_USEC);
    spent_ns += clp_clock_self_ns();
    clp_threads_destroyed(object);
    return NULL;
}

static void *start_lives(void *arg)
{
    (void)arg;
    const struct timespec pause = {0, 2 * 1000 * 1000};
    while (!stop) {
        pthread_t t;
        if (pthread_create(&t, NULL, life, NULL) == 0)
            pthread_join(t, NULL);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void *destroy_strangers(void *arg)
{
    (void)arg;
    const struct timespec pause = {0, 1000 * 1000};
    while (!stop) {
        clp_threads_destroyed(next_object * 64 - 64); /* as the finalizer thread may */
        clp_threads_destroyed(7);                     /* never heard of */
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void callbacks_and_loop_agree(void **state)
{
    (void)state;
    pthread_t t[WORKERS], d;
    stop = false;
    harness_reset_sums();
    harness_start(10 * CLP_NSEC_PER_MSEC, false);
    uint64_t from = clp_clock_process_ns();
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, start_lives, NULL), 0);
    assert_int_equal(pthread_create(&d, NULL, destroy_strangers, NULL), 0);
    for (int i = 0; i < 60; i++) {
        (void)clp_threads_scan(clp_clock_monotonic_ns());
        if (i % 10 == 0)
            harness_flush();
        harness_loop(10 * CLP_NSEC_PER_MSEC);
    }
    stop = true;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(t[i], NULL);
    pthread_join(d, NULL);
    harness_flush();
    uint64_t process = clp_clock_process_ns() - from;
    harness_stop();
    assert_true(spent_ns > 0);
    double off = (double)harness_all() / (double)process;
    assert_true(off > 0.98 && off < 1.02);
    assert_int_equal(clp_threads_timers(), 0);
}

/* Starting and stopping while threads come and go: nothing is left behind. */
static void starts_and_stops_in_between(void **state)
{
    (void)state;
    pthread_t t[WORKERS];
    stop = false;
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, start_lives, NULL), 0);
    for (int i = 0; i < 20; i++) {
        harness_reset_sums();
        harness_start(10 * CLP_NSEC_PER_MSEC, i % 2);
        harness_loop(15 * CLP_NSEC_PER_MSEC);
        harness_stop();
        usleep(5000);
    }
    stop = true;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(t[i], NULL);
    harness_start(10 * CLP_NSEC_PER_MSEC, false);
    harness_stop();
    assert_int_equal(clp_threads_count(), 0); /* all managed ones were told to be gone */
}

/* Beyond the ceiling threads are counted, not kept, and there is room again afterwards. */
static void the_ceiling_holds(void **state)
{
    (void)state;
    assert_int_equal(clp_threads_table_refused(), 0);
    for (int i = 0; i < 5000; i++)
        clp_threads_assigned(0x1000000 + (uint64_t)i, 4000000 + i); /* tids that do not exist */
    assert_int_equal(clp_threads_count(), 4096);
    assert_int_equal(clp_threads_table_refused(), 5000 - 4096);
    for (int i = 0; i < 5000; i++)
        clp_threads_destroyed(0x1000000 + (uint64_t)i);
    assert_int_equal(clp_threads_count(), 0);
    clp_threads_assigned(0x2000000, harness_tid());
    assert_int_equal(clp_threads_count(), 1);
    clp_threads_destroyed(0x2000000);
    assert_int_equal(clp_threads_count(), 0);
}

static void odd_arguments_are_harmless(void **state)
{
    (void)state;
    const uint16_t nul[] = {0, 'x', 0};
    clp_threads_assigned(0, 1);
    clp_threads_assigned(5, 0);
    clp_threads_assigned(5, -1);
    clp_threads_destroyed(0);
    clp_threads_named(0, nul, 3);
    clp_threads_named(99, NULL, 17);
    clp_threads_named(99, nul, 0);
    clp_threads_named(99, nul, 3);
    clp_threads_destroyed(99);
    assert_int_equal(clp_threads_count(), 0);
    assert_null(clp_threads_by_slot(0));
    assert_null(clp_threads_by_slot(UINT32_MAX));
    struct clp_capture c = {.slot = 0, .generation = 12345};
    uint64_t value;
    assert_null(clp_threads_account(&c, &value));
    c.slot = 1u << 30;
    assert_null(clp_threads_account(&c, &value));
    assert_int_equal(clp_threads_process()->kind, CLP_THREAD_PROCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_arguments_are_harmless),
        cmocka_unit_test(callbacks_and_loop_agree),
        cmocka_unit_test(starts_and_stops_in_between),
        cmocka_unit_test(the_ceiling_holds),
    };
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_SIGPENDING, &none) < 0)
        return 1;
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
