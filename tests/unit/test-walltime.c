/* Stamps of windows under simulated clocks. */
#include "tests/unit/clp-cmocka.h"

#include "agent/walltime.h"

#include <stdlib.h>

#define SECOND ((int64_t)CLP_NSEC_PER_SEC)
#define HOUR (3600 * SECOND)
#define PERIOD (2 * SECOND)
#define START_MONO (1000 * SECOND)
#define START_REAL (1700000000 * SECOND)

struct stamp {
    int64_t start, end;
};

/* The wall clock at each window's start, as an offset from a steady one; windows as target.c makes
 * them: the next one begins where the last one ended, unless the clock has stepped. */
static size_t play(const int64_t *steps, size_t count, struct stamp *ret, unsigned *followed,
                   unsigned *held)
{
    struct clp_walltime w;
    int64_t mono = START_MONO, offset = 0, start, step;
    clp_walltime_init(&w, (uint64_t)mono, START_REAL);
    start = (int64_t)clp_walltime_of(&w, (uint64_t)mono);
    uint64_t era = w.era;
    *followed = *held = 0;
    for (size_t i = 0; i < count; i++) {
        offset += steps[i];
        enum clp_walltime_step r =
            clp_walltime_check(&w, (uint64_t)(mono + SECOND),
                               (uint64_t)(START_REAL + mono + SECOND - START_MONO + offset), &step);
        *followed += r == CLP_WALLTIME_FOLLOWED;
        *held += r == CLP_WALLTIME_HELD;
        if (r != CLP_WALLTIME_STEADY)
            assert_true(llabs(step - steps[i]) <
                        (int64_t)CLP_WALLTIME_NOISE_NS); /* and noise before */
        ret[i] = (struct stamp){start, start + PERIOD};
        mono += PERIOD;
        start += PERIOD;
        if (era != w.era) {
            era = w.era;
            start = (int64_t)clp_walltime_of(&w, (uint64_t)mono);
        }
    }
    return count;
}

static void assert_no_overlap(const struct stamp *s, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++)
            assert_true(s[i].end <= s[j].start || s[j].end <= s[i].start);
}

#define COUNT 40

static void steady_windows_abut(void **state)
{
    (void)state;
    int64_t steps[COUNT] = {0};
    struct stamp s[COUNT];
    unsigned followed, held;
    play(steps, COUNT, s, &followed, &held);
    for (size_t i = 1; i < COUNT; i++)
        assert_int_equal(s[i].start, s[i - 1].end);
    assert_int_equal(followed + held, 0);
}

/* Two clocks are never read at quite the same moment. */
static void less_than_a_tenth_of_a_second_is_no_step(void **state)
{
    (void)state;
    int64_t steps[COUNT];
    struct stamp s[COUNT];
    unsigned followed, held;
    for (size_t i = 0; i < COUNT; i++)
        steps[i] = 0;
    steps[3] = 60 * (int64_t)CLP_NSEC_PER_MSEC;
    play(steps, COUNT, s, &followed, &held);
    assert_int_equal(followed + held, 0);
    assert_int_equal(s[20].start, s[19].end);
}

static void an_hour_forth_and_back(void **state)
{
    (void)state;
    int64_t steps[COUNT] = {[5] = HOUR, [20] = -HOUR};
    struct stamp s[COUNT];
    unsigned followed, held;
    play(steps, COUNT, s, &followed, &held);
    assert_int_equal(followed, 2);
    assert_no_overlap(s, COUNT);
    assert_int_equal(s[6].start - s[5].end, HOUR);
    assert_int_equal(s[21].start, START_REAL + 21 * PERIOD); /* right again */
}

static void an_hour_back_and_forth(void **state)
{
    (void)state;
    int64_t steps[COUNT] = {[5] = -HOUR, [20] = HOUR};
    struct stamp s[COUNT];
    unsigned followed, held;
    play(steps, COUNT, s, &followed, &held);
    assert_int_equal(followed, 2);
    assert_no_overlap(s, COUNT);
    assert_int_equal(s[21].start, START_REAL + 21 * PERIOD);
}

/* A small step back would give two windows the same time: stamps stay ahead, told once. */
static void a_small_step_back_is_held(void **state)
{
    (void)state;
    int64_t steps[COUNT] = {[5] = -3 * SECOND};
    struct stamp s[COUNT];
    unsigned followed, held;
    play(steps, COUNT, s, &followed, &held);
    assert_int_equal(followed, 0);
    assert_int_equal(held, 1);
    for (size_t i = 1; i < COUNT; i++)
        assert_int_equal(s[i].start, s[i - 1].end);
}

/* And when the clock catches up, nothing moves. */
static void a_held_step_that_is_taken_back(void **state)
{
    (void)state;
    int64_t steps[COUNT] = {[5] = -3 * SECOND, [20] = 3 * SECOND + 20000000};
    struct stamp s[COUNT];
    unsigned followed, held;
    play(steps, COUNT, s, &followed, &held);
    assert_int_equal(held, 1);
    assert_no_overlap(s, COUNT);
    for (size_t i = 1; i < COUNT; i++)
        assert_int_equal(s[i].start, s[i - 1].end);
}

static void many_steps_never_overlap_within_the_hour(void **state)
{
    (void)state;
    int64_t steps[COUNT];
    struct stamp s[COUNT];
    unsigned followed, held, seed = 1;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            seed = seed * 1103515245 + 12345;
            /* Small ones, which are held or followed forth, at one window in four. */
            steps[i] = seed >> 30 ? 0 : (int64_t)(seed >> 8 & 0xffff) * 4000000 - 100 * SECOND;
        }
        play(steps, COUNT, s, &followed, &held);
        for (size_t i = 1; i < COUNT; i++)
            assert_true(s[i].start >= s[i - 1].end);
    }
}

static void before_1970_is_1970(void **state)
{
    (void)state;
    struct clp_walltime w;
    clp_walltime_init(&w, 100 * CLP_NSEC_PER_SEC, 50 * CLP_NSEC_PER_SEC);
    assert_int_equal(clp_walltime_of(&w, 10 * CLP_NSEC_PER_SEC), 0);
    assert_int_equal(clp_walltime_of(&w, 101 * CLP_NSEC_PER_SEC), 51 * CLP_NSEC_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_windows_abut),
        cmocka_unit_test(less_than_a_tenth_of_a_second_is_no_step),
        cmocka_unit_test(an_hour_forth_and_back),
        cmocka_unit_test(an_hour_back_and_forth),
        cmocka_unit_test(a_small_step_back_is_held),
        cmocka_unit_test(a_held_step_that_is_taken_back),
        cmocka_unit_test(many_steps_never_overlap_within_the_hour),
        cmocka_unit_test(before_1970_is_1970),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
