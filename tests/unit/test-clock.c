#include "tests/unit/clp-cmocka.h"

#include "base/clock.h"

#include <string.h>
#include <time.h>

static void monotonic_goes_forward(void **state)
{
    (void)state;
    uint64_t a = clp_clock_monotonic_ns();
    struct timespec t = {.tv_nsec = 2000000};
    (void)nanosleep(&t, NULL);
    uint64_t b = clp_clock_monotonic_ns();
    assert_true(b - a >= 2000000);
    assert_true(b - a < 30 * CLP_NSEC_PER_SEC);
}

static void realtime_is_unix_time(void **state)
{
    (void)state;
    uint64_t before = (uint64_t)time(NULL) - 1; /* time() may lag by a tick */
    uint64_t now = clp_clock_realtime_ns() / CLP_NSEC_PER_SEC;
    assert_true(now >= before && now <= before + 60);
}

static void utc_texts(void **state)
{
    (void)state;
    char buf[CLP_CLOCK_UTC_BYTES];
    uint64_t t = 951827696 * CLP_NSEC_PER_SEC + 7 * CLP_NSEC_PER_MSEC + 999999;
    assert_string_equal(clp_clock_utc(t, buf), "2000-02-29T12:34:56.007Z");
    assert_string_equal(clp_clock_utc_compact(t, buf), "20000229T123456Z");
    assert_string_equal(clp_clock_utc(0, buf), "1970-01-01T00:00:00.000Z");
    /* The largest value must fit as well. */
    assert_string_equal(clp_clock_utc(UINT64_MAX, buf), "2554-07-21T23:34:33.709Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monotonic_goes_forward),
        cmocka_unit_test(realtime_is_unix_time),
        cmocka_unit_test(utc_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
