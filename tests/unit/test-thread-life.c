#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/clock.h"
#include "tests/unit/capture-harness.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define INTERVAL (10 * CLP_NSEC_PER_MSEC)

static int set_up(void **state)
{
    (void)state;
    harness_reset_sums();
    return 0;
}

static void assert_share(uint64_t part, uint64_t whole, double low, double high)
{
    if ((double)part >= (double)whole * low && (double)part <= (double)whole * high)
        return;
    harness_print();
    fail_msg("%.3f ms of %.3f ms, expected %.1f to %.1f %%", (double)part / 1e6,
             (double)whole / 1e6, low * 100, high * 100);
}

/* ---- churn ---- */

static _Atomic uint64_t next_clr = 0x10000;
static _Atomic uint64_t told_cpu_ns;

static void *short_life(void *arg)
{
    bool managed = arg;
    uint64_t clr = next_clr++;
    if (managed)
        clp_threads_assigned(clr, harness_tid());
    harness_spin(4 * CLP_NSEC_PER_MSEC);
    told_cpu_ns += clp_clock_self_ns();
    if (managed)
        clp_threads_destroyed(clr);
    return NULL;
}

struct churn {
    pthread_t thread;
    _Atomic bool stop;
    bool managed;
    _Atomic uint32_t started;
};

static void *churn(void *arg)
{
    struct churn *c = arg;
    const struct timespec pause = {0, 5 * 1000 * 1000}; /* at most 200 starts a second */
    while (!c->stop) {
        pthread_t t;
        if (pthread_create(&t, NULL, short_life, c->managed ? c : NULL) == 0) {
            pthread_join(t, NULL);
            c->started++;
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static uint64_t run_churn(bool managed, uint64_t *ret_process)
{
    struct churn c = {.managed = managed};
    told_cpu_ns = 0;
    harness_start(INTERVAL, false);
    uint64_t p0 = clp_clock_process_ns();
    assert_int_equal(pthread_create(&c.thread, NULL, churn, &c), 0);
    for (int i = 0; i < 200 && (i < 15 || c.started < 60); i++)
        harness_loop(100 * CLP_NSEC_PER_MSEC);
    c.stop = true;
    pthread_join(c.thread, NULL);
    harness_flush();
    *ret_process = clp_clock_process_ns() - p0;
    harness_stop();
    assert_true(c.started >= 60);
    return c.started;
}

static void managed_churn_is_counted_and_sampled(void **state)
{
    (void)state;
    uint64_t process;
    (void)run_churn(true, &process);
    assert_share(harness_all(), process, 0.98, 1.02);
    /* Timers are armed as the threads start: many live long enough for a sample. Each thread's time
     * up to its end is its own, not that of nobody. */
    assert_true(harness_samples_of_all() > 5);
    const struct harness_sum *rest = harness_by_kind(CLP_THREAD_PROCESS);
    assert_share(harness_total(rest), process, 0, 0.30);
    assert_share(harness_all() - harness_total(rest), told_cpu_ns, 1.0, 2.0);
    assert_int_equal(clp_threads_timers(), 0);
}

static void unseen_threads_are_short_lived(void **state)
{
    (void)state;
    uint64_t process;
    (void)run_churn(false, &process);
    assert_share(harness_all(), process, 0.98, 1.02);
    /* 4 ms threads between passes of 100 ms: nearly all end unseen. */
    const struct harness_sum *rest = harness_by_kind(CLP_THREAD_PROCESS);
    assert_share(harness_total(rest) + harness_special_of_all(CLP_SPECIAL_NATIVE_THREAD), process,
                 0.9, 1.02);
    assert_true(harness_total(rest) > told_cpu_ns / 2);
}

/* The table holds no more after the second round than after the first. */
static void nothing_grows(void **state)
{
    (void)state;
    size_t bytes = 0;
    uint32_t count = 0;
    for (int round = 0; round < 3; round++) {
        harness_reset_sums();
        harness_start(INTERVAL, false);
        struct churn c = {.managed = true};
        assert_int_equal(pthread_create(&c.thread, NULL, churn, &c), 0);
        harness_loop(300 * CLP_NSEC_PER_MSEC);
        c.stop = true;
        pthread_join(c.thread, NULL);
        harness_stop();
        if (round == 1) {
            bytes = clp_threads_bytes();
            count = clp_threads_count();
        }
    }
    assert_int_equal(clp_threads_count(), count);
    assert_true(clp_threads_bytes() <= bytes + 64 * 512);
    assert_int_equal(clp_threads_table_refused(), 0);
}

/* ---- names ---- */

static const char *name_of(int32_t tid)
{
    const struct harness_sum *s = harness_by_tid(tid);
    assert_non_null(s);
    return s->name;
}

static void check_name(uint64_t clr, const uint16_t *units, size_t n, const char *want)
{
    static struct harness_burner b;
    harness_reset_sums();
    harness_start(INTERVAL, false);
    harness_burn_start(&b, clr);
    clp_threads_named(clr, units, n);
    harness_loop(250 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_string_equal(name_of(b.tid), want);
    harness_stop();
    harness_burn_stop(&b);
}

static void names_are_whole_characters(void **state)
{
    (void)state;
    uint16_t letters[400];
    char want[CLP_THREAD_NAME_BYTES] = "";
    for (int i = 0; i < 400; i++)
        letters[i] = 'a';
    memset(want, 'a', 300);
    check_name(0x21, letters, 300, want); /* whole */
    memset(want, 'a', sizeof(want) - 1);
    check_name(0x24, letters, 400, want);

    memset(want, 0, sizeof(want));
    for (int i = 0; i < 400; i++)
        letters[i] = 0x20ac; /* three bytes each: 106 of them fit into 319 */
    for (int i = 0; i < 106; i++)
        memcpy(want + 3 * i, "\xe2\x82\xac", 3);
    check_name(0x22, letters, 400, want);

    const uint16_t emoji[] = {'w', 0xd83d, 0xde00, 0xd800, 'x'}; /* the last surrogate is alone */
    check_name(0x23, emoji, 5, "w\xf0\x9f\x98\x80\xef\xbf\xbdx");
}

static void a_name_taken_away_gives_the_kernels(void **state)
{
    (void)state;
    const uint16_t name[] = {'o', 'n', 'e'};
    static struct harness_burner b;
    harness_start(INTERVAL, false);
    prctl(PR_SET_NAME, "kernel-name", 0, 0, 0);
    harness_burn_start(&b, 0x31);
    prctl(PR_SET_NAME, "test-life", 0, 0, 0);
    clp_threads_named(0x31, name, 3);
    harness_loop(200 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_string_equal(name_of(b.tid), "one");
    clp_threads_named(0x31, NULL, 0);
    harness_loop(300 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_string_equal(name_of(b.tid), "kernel-name");
    harness_stop();
    /* Named while nobody samples. */
    clp_threads_named(0x31, name, 2);
    harness_reset_sums();
    harness_start(INTERVAL, false);
    harness_loop(200 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_string_equal(name_of(b.tid), "on");
    harness_stop();
    harness_burn_stop(&b);
}

static void a_name_may_come_before_the_thread(void **state)
{
    (void)state;
    const uint16_t early[] = {'e', 'a', 'r', 'l', 'y'}, gone[] = {'g', 'o', 'n', 'e'};
    clp_threads_named(0x41, early, 5);
    check_name(0x42, gone, 4, "gone");
    static struct harness_burner b;
    harness_reset_sums();
    harness_start(INTERVAL, false);
    harness_burn_start(&b, 0x41);
    harness_loop(150 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_string_equal(name_of(b.tid), "early");
    harness_stop();
    harness_burn_stop(&b);
    /* The address of a Thread object that died is used again: not with the old name. */
    clp_threads_named(0x43, gone, 4);
    clp_threads_destroyed(0x43);
    harness_reset_sums();
    harness_start(INTERVAL, false);
    harness_burn_start(&b, 0x43);
    harness_loop(150 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_string_not_equal(name_of(b.tid), "gone");
    harness_stop();
    harness_burn_stop(&b);
}

static void more_names_than_room_are_harmless(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 10000; i++) {
        const uint16_t units[] = {'n', (uint16_t)('0' + i % 10)};
        clp_threads_named(0x100000 + i, units, 2);
    }
    check_name(0x51, (const uint16_t[]){'z'}, 1, "z");
}

/* ---- kinds ---- */

static void *named_spin(void *arg)
{
    struct harness_burner *b = arg;
    prctl(PR_SET_NAME, (const char *)b->clr, 0, 0, 0);
    b->tid = harness_tid();
    while (!b->stop)
        harness_spin(CLP_NSEC_PER_MSEC);
    return NULL;
}

static void the_runtimes_own_threads_are_sampled(void **state)
{
    (void)state;
    const struct {
        const char *comm;
        uint32_t kind;
    } cases[] = {{".NET Server GC", CLP_THREAD_RUNTIME},
                 {".NET BGC", CLP_THREAD_RUNTIME},
                 {".NET Tiered Com", CLP_THREAD_RUNTIME},
                 {".NET TP Worker", CLP_THREAD_NATIVE}, /* a foreign thread that inherited it */
                 {"iou-wrk-77", CLP_THREAD_NATIVE}};
    static struct harness_burner b[CLP_ARRAY_LEN(cases)];
    harness_start(INTERVAL, false);
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        b[i].clr = (uint64_t)(uintptr_t)cases[i].comm;
        assert_int_equal(pthread_create(&b[i].thread, NULL, named_spin, &b[i]), 0);
    }
    harness_loop(1200 * CLP_NSEC_PER_MSEC); /* names are read again once a second */
    harness_loop_cpu(b, CLP_ARRAY_LEN(cases), 200 * CLP_NSEC_PER_MSEC);
    harness_flush();
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        const struct harness_sum *s = harness_by_tid(b[i].tid);
        assert_non_null(s);
        assert_string_equal(s->name, cases[i].comm);
        assert_int_equal(s->kind, cases[i].kind);
        if (cases[i].kind == CLP_THREAD_RUNTIME)
            assert_true(s->samples > 3);
        else
            assert_int_equal(s->samples, 0);
    }
    harness_stop();
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++)
        harness_burn_stop(&b[i]);
}

/* ---- a native thread enters the runtime, leaves it, enters again ---- */

static void a_thread_may_become_managed(void **state)
{
    (void)state;
    static struct harness_burner b;
    harness_start(INTERVAL, false);
    uint64_t from;
    harness_burn_start(&b, 0);
    assert_int_equal(clp_clock_thread_ns(b.tid, &from), 0);
    harness_loop_cpu(&b, 1, 100 * CLP_NSEC_PER_MSEC);
    clp_threads_assigned(0x61, b.tid);
    harness_loop_cpu(&b, 1, 100 * CLP_NSEC_PER_MSEC);
    clp_threads_destroyed(0x61);
    harness_loop_cpu(&b, 1, 100 * CLP_NSEC_PER_MSEC);
    clp_threads_assigned(0x62, b.tid);
    harness_loop_cpu(&b, 1, 200 * CLP_NSEC_PER_MSEC);
    harness_flush();
    uint64_t to;
    assert_int_equal(clp_clock_thread_ns(b.tid, &to), 0);
    harness_stop();
    const struct harness_sum *s = harness_by_tid(b.tid);
    assert_non_null(s);
    assert_int_equal(s->kind, CLP_THREAD_MANAGED);
    assert_true(s->samples > 3);
    assert_share(harness_total(s), to, 0.985,
                 1.015); /* one thread all the time, none of it twice */
    clp_threads_destroyed(0x62);
    harness_burn_stop(&b);
}

/* ---- bursts ---- */

/* Sleeps 1.5 s, burns 50 ms, again and again: must not stay unsampled. */
static void a_bursty_thread_is_sampled(void **state)
{
    (void)state;
    static struct harness_burner b = {.on_ns = 50 * CLP_NSEC_PER_MSEC,
                                      .off_ns = 1500 * CLP_NSEC_PER_MSEC};
    harness_start(INTERVAL, false);
    harness_burn_start(&b, 0x71);
    uint64_t from, to;
    assert_int_equal(clp_clock_thread_ns(b.tid, &from), 0);
    harness_loop_cpu(&b, 1, 200 * CLP_NSEC_PER_MSEC);
    harness_flush();
    assert_int_equal(clp_clock_thread_ns(b.tid, &to), 0);
    harness_stop();
    const struct harness_sum *s = harness_by_tid(b.tid);
    assert_non_null(s);
    assert_true(s->samples >= 4);
    assert_share(harness_total(s), to - from, 0.97, 1.03);
    assert_share(s->special_ns[CLP_SPECIAL_SIGNALS_BLOCKED] + s->special_ns[CLP_SPECIAL_UNSAMPLED],
                 to - from, 0, 0.1);
    harness_burn_stop(&b);
}

/* Sleepers cost one clock reading each: a pass stays cheap, and is done less often when it is not.
 */
static void *sleeper(void *arg)
{
    struct harness_burner *b = arg;
    b->tid = harness_tid();
    while (!b->stop)
        usleep(100000);
    return NULL;
}

static void passes_keep_to_their_budget(void **state)
{
    (void)state;
    static struct harness_burner b[300];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    memset(b, 0, sizeof(b));
    for (size_t i = 0; i < CLP_ARRAY_LEN(b); i++)
        assert_int_equal(pthread_create(&b[i].thread, &attr, sleeper, &b[i]), 0);
    harness_start(INTERVAL, false);
    uint64_t from = clp_clock_self_ns();
    uint64_t pause = clp_threads_scan(clp_clock_monotonic_ns());
    uint64_t cost = clp_clock_self_ns() - from;
    assert_true(clp_threads_count() > CLP_ARRAY_LEN(b));
    assert_true(pause >= 100 * CLP_NSEC_PER_MSEC);
    assert_true((double)pause >= (double)cost * 1000 * 0.8 || pause >= 5 * CLP_NSEC_PER_SEC);
    harness_stop();
    for (size_t i = 0; i < CLP_ARRAY_LEN(b); i++)
        b[i].stop = true; /* all of them, before the first is waited for */
    for (size_t i = 0; i < CLP_ARRAY_LEN(b); i++)
        harness_burn_stop(&b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(managed_churn_is_counted_and_sampled, set_up),
        cmocka_unit_test_setup(unseen_threads_are_short_lived, set_up),
        cmocka_unit_test_setup(nothing_grows, set_up),
        cmocka_unit_test_setup(names_are_whole_characters, set_up),
        cmocka_unit_test_setup(a_name_taken_away_gives_the_kernels, set_up),
        cmocka_unit_test_setup(a_name_may_come_before_the_thread, set_up),
        cmocka_unit_test_setup(more_names_than_room_are_harmless, set_up),
        cmocka_unit_test_setup(the_runtimes_own_threads_are_sampled, set_up),
        cmocka_unit_test_setup(a_thread_may_become_managed, set_up),
        cmocka_unit_test_setup(a_bursty_thread_is_sampled, set_up),
        cmocka_unit_test_setup(passes_keep_to_their_budget, set_up),
    };
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
