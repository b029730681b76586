#include "tests/unit/clp-cmocka.h"

#include "base/core/proctext.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/procfile.h"
#include "sampler/inproc/quota.h"
#include "sampler/inproc/timers.h"
#include "tests/unit/capture-harness.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define INTERVAL (10 * CLP_NSEC_PER_MSEC)
#define MANY 12

static void takes_a_quarter_of_what_is_free(void **state)
{
    (void)state;
    assert_int_equal(clp_quota_share(0, 0, 0), 0);
    assert_int_equal(clp_quota_share(0, 3, 0), 0);
    assert_int_equal(clp_quota_share(0, 4, 0), 1);
    assert_int_equal(clp_quota_share(0, 96365, 0), 24091);
    assert_int_equal(clp_quota_share(50000, 96365, 0), 11591);
    /* Our own timers are among the used ones; they do not lessen our share. */
    assert_int_equal(clp_quota_share(100, 200, 100), 50);
    assert_int_equal(clp_quota_share(120, 200, 20), 25);
    /* Others use all of it, or more (the limit was lowered). */
    assert_int_equal(clp_quota_share(200, 200, 0), 0);
    assert_int_equal(clp_quota_share(300, 200, 10), 0);
    assert_int_equal(clp_quota_share(5, 200, 10), 50); /* another thread just freed some */
    assert_int_equal(clp_quota_share(0, UINT64_MAX, 0), UINT32_MAX);
}

static uint64_t signals_used(void)
{
    char text[4096];
    struct clp_proc_status s;
    int64_t n = clp_procfile_read("/proc/self/status", text, sizeof(text));
    assert_true(n > 0);
    assert_int_equal(clp_proctext_status(text, (size_t)n, &s), 0);
    return s.sigq_used;
}

static void limit_free_signals(uint64_t n)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_SIGPENDING, &r), 0);
    r.rlim_cur = signals_used() + n;
    assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &r), 0);
}

static uint64_t total_cpu(const struct harness_burner *b, int n)
{
    uint64_t sum = 0, clock;
    for (int i = 0; i < n; i++) {
        assert_int_equal(clp_clock_thread_ns(b[i].tid, &clock), 0);
        sum += clock;
    }
    return sum;
}

/* Twelve busy threads, about three timers: each gets its turn, every nanosecond is told. */
static void timers_go_round(void **state)
{
    (void)state;
    static struct harness_burner b[MANY];
    struct rlimit saved;
    assert_int_equal(getrlimit(RLIMIT_SIGPENDING, &saved), 0);
    memset(b, 0, sizeof(b));
    harness_reset_sums();
    for (int i = 0; i < MANY; i++)
        harness_burn_start(&b[i], 0x900 + (uint64_t)i);
    limit_free_signals(15);
    uint64_t refused = clp_threads_quota_refused(), most = 0;
    harness_start(INTERVAL, false);
    uint64_t before = total_cpu(b, MANY);
    for (int i = 0; i < 60; i++) {
        harness_loop(100 * CLP_NSEC_PER_MSEC);
        uint32_t timers = clp_threads_timers();
        most = CLP_MAX(most, timers);
    }
    assert_in_range(most, 2, 3);
    assert_true(clp_threads_quota_refused() > refused);
    harness_flush();
    uint64_t used = total_cpu(b, MANY) - before, told = 0, no_timer = 0;
    int sampled = 0;
    for (int i = 0; i < MANY; i++) {
        const struct harness_sum *s = harness_by_tid(b[i].tid);
        assert_non_null(s);
        told += harness_total(s);
        no_timer += s->special_ns[CLP_SPECIAL_NO_TIMER];
        sampled += s->samples > 0;
    }
    double off = (double)told / (double)used;
    assert_true(off > 0.985 && off < 1.015);
    assert_true(sampled >= MANY * 2 / 3); /* in 6 s most had their turn */
    assert_true(no_timer < used);
    harness_stop();
    assert_int_equal(clp_threads_timers(), 0);
    assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &saved), 0);
    for (int i = 0; i < MANY; i++)
        harness_burn_stop(&b[i]);
}

/* Nothing free at all: no timer, no stack, but the time and the reason. */
static void without_quota_the_time_is_still_told(void **state)
{
    (void)state;
    static struct harness_burner b;
    struct rlimit saved, none;
    assert_int_equal(getrlimit(RLIMIT_SIGPENDING, &saved), 0);
    none = saved;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &none), 0);
    int32_t id = -1;
    assert_int_equal(clp_timer_create(harness_tid(), 1, &id), -EAGAIN);
    assert_int_equal(id, -1);

    harness_reset_sums();
    harness_start(INTERVAL, false);
    harness_burn_start(&b, 0xa00);
    harness_loop(500 * CLP_NSEC_PER_MSEC);
    assert_int_equal(clp_threads_timers(), 0);
    harness_flush();
    uint64_t used;
    assert_int_equal(clp_clock_thread_ns(b.tid, &used), 0);
    const struct harness_sum *s = harness_by_tid(b.tid);
    assert_non_null(s);
    assert_int_equal(s->samples, 0);
    assert_true(s->special_ns[CLP_SPECIAL_NO_TIMER] > used * 9 / 10);
    /* The limit is raised: sampling begins within seconds, by itself. */
    assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &saved), 0);
    harness_loop(1500 * CLP_NSEC_PER_MSEC);
    harness_loop_cpu(&b, 1, 300 * CLP_NSEC_PER_MSEC);
    assert_true(s->samples > 3);
    harness_stop();
    harness_burn_stop(&b);
}

/* An idle thread does not keep a slot for ever, and none is left after the end. */
static void every_slot_comes_back(void **state)
{
    (void)state;
    uint64_t before = signals_used();
    for (int round = 0; round < 3; round++) {
        static struct harness_burner b[4];
        harness_start(INTERVAL, false);
        for (int i = 0; i < 4; i++)
            harness_burn_start(&b[i], 0xb00 + (uint64_t)i);
        assert_int_equal(clp_threads_timers(), 4); /* armed by the threads themselves */
        harness_loop(200 * CLP_NSEC_PER_MSEC);
        for (int i = 0; i < 4; i++)
            harness_burn_stop(&b[i]);
        harness_loop(400 * CLP_NSEC_PER_MSEC);
        assert_int_equal(clp_threads_timers(), 0);
        harness_stop();
    }
    assert_int_equal(signals_used(), before);
}

/* The quota is one count for all processes of a user: a user of our own keeps others out of it. */
static int be_nobody_else(void)
{
    uid_t uid = 100000 + (uid_t)getpid();
    if (geteuid() == 0 && (setresuid(uid, uid, uid) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0))
        return -errno;
    return geteuid() == uid || unshare(CLONE_NEWUSER) == 0 ? 0 : -errno;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_quarter_of_what_is_free),
        cmocka_unit_test(timers_go_round),
        cmocka_unit_test(without_quota_the_time_is_still_told),
        cmocka_unit_test(every_slot_comes_back),
    };
    if (be_nobody_else() < 0)
        fprintf(stderr, "# the quota is shared with other processes of this user\n");
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
