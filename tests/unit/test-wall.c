/* When threads are looked at. The clock is the test's; the threads are nobody's, and idle. */
#include "sampler/inproc/wall.h"

#include "sampler/inproc/clock.h"
#include "tests/unit/capture-harness.h"
#include "tests/unit/clp-cmocka.h"

#define BUDGET 5000u /* millionths of a core */
#define SMALL_BUDGET 100u
#define LONG_NS (20 * CLP_NSEC_PER_SEC)   /* every thread is due within it */
#define SOON_NS (100 * CLP_NSEC_PER_MSEC) /* one that is new is */
#define SAVING_NS CLP_NSEC_PER_SEC        /* for a round: 0.1 s with the one, 5 s with the other */
#define NEW 40u

static uint64_t now_ns;

static bool on_stack(void *user, const struct clp_feed_sample *s)
{
    (void)user;
    (void)s;
    return true;
}

static void on_wait(void *user, const struct clp_thread *t, const struct clp_feed_waiting *w)
{
    (void)user;
    (void)t;
    (void)w;
}

static void start(uint32_t budget_ppm)
{
    static const struct clp_wall_sink sink = {.stack = on_stack, .wait = on_wait};
    assert_int_equal(clp_wall_start(now_ns, budget_ppm, false, &sink), 0);
}

static void add_thread(void)
{
    static int32_t tid = 1 << 30;
    tid++;
    clp_threads_assigned((uint64_t)tid, tid);
}

/* Looks that the loop makes when it is awake so much later. */
static uint64_t looks_after(uint64_t ns)
{
    uint64_t before = clp_wall_totals().visits;
    now_ns += ns;
    (void)clp_wall_round(now_ns, 1);
    return clp_wall_totals().visits - before;
}

static int set_up(void **state)
{
    (void)state;
    now_ns = clp_clock_monotonic_ns();
    add_thread();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clp_wall_stop();
    return 0;
}

/* Else what it does when it begins would be seen too often. */
static void a_new_thread_is_not_looked_at_because_it_is_met(void **state)
{
    (void)state;
    start(BUDGET);
    (void)looks_after(0);
    for (uint32_t i = 0; i < NEW; i++) {
        (void)looks_after(LONG_NS);
        assert_true(looks_after(0) == 0);
        add_thread();
        assert_true(looks_after(SOON_NS) == 0);
        assert_true(looks_after(0) == 0);
        assert_int_equal(looks_after(SOON_NS), 1);
    }
}

/* A new reader has no stacks yet: are looks made for it? */
static bool looks_within(uint64_t ns, uint32_t budget_ppm)
{
    start(budget_ppm);
    (void)looks_after(0);
    return looks_after(ns) > 0;
}

static void a_larger_budget_holds_at_once(void **state)
{
    uint32_t rounds = 0;
    (void)state;
    start(SMALL_BUDGET);
    while (looks_within(SOON_NS, SMALL_BUDGET))
        assert_true(++rounds < 5000);
    assert_true(rounds > 0);
    assert_false(looks_within(SAVING_NS, SMALL_BUDGET));
    assert_true(looks_within(SAVING_NS, BUDGET));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_thread_is_not_looked_at_because_it_is_met, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_larger_budget_holds_at_once, set_up, tear_down),
    };
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
