#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/wall_account.h"

#define MS 1000000ull

static void nothing_is_lost_or_told_twice(void **state)
{
    (void)state;
    struct clp_wall_account a;
    struct clp_wall_split s;
    uint64_t now = 5000 * MS, cpu = 70 * MS, told = 0, x = 88172645463325252ull;
    clp_wall_account_begin(&a, now, cpu);
    for (unsigned i = 0; i < 10000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t step = x % (20 * MS), ran = x >> 32 & 1 ? (x >> 40) % (step + 1) : 0;
        now += step;
        cpu += ran;
        if (ran == 0 && x & 2)
            clp_wall_account_sure(&a, now, cpu);
        else if (x & 4)
            told += clp_wall_account_take(&a, now, cpu, x % (30 * MS));
        else {
            clp_wall_account_split(&a, now, cpu, (x >> 20) % (5 * MS), &s);
            told += s.old_ns + s.new_ns + s.cpu_wait_ns;
            assert_int_equal(clp_wall_account_owed(&a, now, cpu), 0);
        }
        assert_int_equal(told, a.told_ns);
        assert_true(told <= (now - 5000 * MS) - (cpu - 70 * MS));
    }
    clp_wall_account_split(&a, now, cpu, 0, &s);
    told += s.old_ns + s.new_ns;
    assert_int_equal(told, (now - 5000 * MS) - (cpu - 70 * MS));
}

static void what_was_seen_is_the_old_stack_s(void **state)
{
    (void)state;
    struct clp_wall_account a;
    struct clp_wall_split s;
    clp_wall_account_begin(&a, 0, 0);
    clp_wall_account_sure(&a, 100 * MS, 0);
    /* The clock moved by 2 ms in the 12 ms after: of the other 10, 4 on the run queue. */
    clp_wall_account_split(&a, 112 * MS, 2 * MS, 4 * MS, &s);
    assert_int_equal(s.cpu_wait_ns, 4 * MS);
    assert_int_equal(s.old_ns, 103 * MS);
    assert_int_equal(s.new_ns, 3 * MS);
}

/* It was woken at once after the sure look, or before it: the wait for a CPU is the kernel's word.
 */
static void runnable_time_may_have_looked_asleep(void **state)
{
    (void)state;
    struct clp_wall_account a;
    struct clp_wall_split s;
    clp_wall_account_begin(&a, 0, 0);
    clp_wall_account_sure(&a, 100 * MS, 0);
    clp_wall_account_split(&a, 103 * MS, 1 * MS, 12 * MS, &s);
    assert_int_equal(s.cpu_wait_ns, 12 * MS);
    assert_int_equal(s.old_ns, 90 * MS);
    assert_int_equal(s.new_ns, 0);
}

static void no_more_is_runnable_than_was_waited(void **state)
{
    (void)state;
    struct clp_wall_account a;
    struct clp_wall_split s;
    clp_wall_account_begin(&a, 0, 0);
    clp_wall_account_split(&a, 10 * MS, 4 * MS, 100 * MS, &s);
    assert_int_equal(s.cpu_wait_ns, 6 * MS);
    assert_int_equal(s.old_ns + s.new_ns, 0);
}

/* The clocks are read one after the other: a busy thread may run for longer than it lived. */
static void a_clock_ahead_takes_nothing_back(void **state)
{
    (void)state;
    struct clp_wall_account a;
    struct clp_wall_split s;
    clp_wall_account_begin(&a, 1000, 50);
    clp_wall_account_split(&a, 1100, 120, 0, &s);
    assert_int_equal(s.old_ns + s.new_ns, 30);
    assert_int_equal(clp_wall_account_owed(&a, 1110, 200), 0);
    assert_int_equal(clp_wall_account_owed(&a, 1300, 250), 70);
    assert_int_equal(clp_wall_account_owed(&a, 900, 250), 0); /* before it began */
}

static void time_that_was_taken_is_not_the_stack_s(void **state)
{
    (void)state;
    struct clp_wall_account a;
    struct clp_wall_split s;
    clp_wall_account_begin(&a, 0, 0);
    clp_wall_account_sure(&a, 10 * MS, 0);
    assert_int_equal(clp_wall_account_take(&a, 2010 * MS, 0, 2000 * MS), 2000 * MS);
    clp_wall_account_sure(&a, 2020 * MS, 0);
    clp_wall_account_split(&a, 2020 * MS, 0, 0, &s);
    assert_int_equal(s.old_ns, 20 * MS);
    assert_int_equal(clp_wall_account_take(&a, 2020 * MS, 0, 5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_or_told_twice),
        cmocka_unit_test(what_was_seen_is_the_old_stack_s),
        cmocka_unit_test(runnable_time_may_have_looked_asleep),
        cmocka_unit_test(no_more_is_runnable_than_was_waited),
        cmocka_unit_test(a_clock_ahead_takes_nothing_back),
        cmocka_unit_test(time_that_was_taken_is_not_the_stack_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
