/* What the library may cost, against clocks that the test invents. */
#include "sampler/inproc/budget.h"

#include "tests/unit/clp-cmocka.h"

#define SEC CLP_NSEC_PER_SEC
#define MS CLP_NSEC_PER_MSEC

/* Ten seconds in which the library used `own_ms` and the process `process_ms`. */
static bool window(struct clp_budget *b, uint64_t own_ms, uint64_t process_ms)
{
    return clp_budget_check(b, b->wall_ns + 10 * SEC, b->own_ns + own_ms * MS,
                            b->process_ns + process_ms * MS);
}

static void test_nothing_happens_within_a_window(void **state)
{
    struct clp_budget b = {0};
    (void)state;
    clp_budget_begin(&b, 5 * SEC, SEC, 7 * SEC);
    assert_false(clp_budget_due(&b, 14 * SEC));
    assert_false(clp_budget_check(&b, 14 * SEC, 9 * SEC, 20 * SEC));
    assert_true(clp_budget_due(&b, 15 * SEC));
    assert_true(clp_budget_check(&b, 15 * SEC, 9 * SEC, 20 * SEC));
}

static void test_two_percent_of_a_core(void **state)
{
    struct clp_budget b = {0};
    (void)state;
    clp_budget_begin(&b, 0, 0, 0);
    assert_false(window(&b, 200, 1000));
    assert_true(window(&b, 201, 1000));
    assert_int_equal(b.doublings, 1);
    assert_true(window(&b, 500, 1000));
    assert_int_equal(b.doublings, 2);
    assert_int_equal(b.slowdowns, 2);
}

/* 64 busy cores give more samples than one: the share is of what the process used. */
static void test_one_percent_of_a_large_process(void **state)
{
    struct clp_budget b = {0};
    (void)state;
    clp_budget_begin(&b, 0, 0, 0);
    assert_false(window(&b, 6000, 640000));
    assert_true(window(&b, 6500, 640000));
}

static void test_comes_back_when_it_is_cheap_again(void **state)
{
    struct clp_budget b = {0};
    (void)state;
    clp_budget_begin(&b, 0, 0, 0);
    for (int i = 0; i < 20; i++)
        (void)window(&b, 1000, 1000);
    assert_int_equal(b.doublings, CLP_BUDGET_DOUBLINGS_MAX);
    assert_false(window(&b, 100, 1000)); /* between a quarter and the whole: stays */
    for (unsigned i = CLP_BUDGET_DOUBLINGS_MAX; i > 0; i--) {
        assert_true(window(&b, 10, 1000));
        assert_int_equal(b.doublings, i - 1);
    }
    assert_false(window(&b, 10, 1000));
    assert_int_equal(b.slowdowns, CLP_BUDGET_DOUBLINGS_MAX);
    clp_budget_begin(&b, 0, 0, 0);
    assert_int_equal(b.slowdowns, CLP_BUDGET_DOUBLINGS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_happens_within_a_window),
        cmocka_unit_test(test_two_percent_of_a_core),
        cmocka_unit_test(test_one_percent_of_a_large_process),
        cmocka_unit_test(test_comes_back_when_it_is_cheap_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
