/* Pauses of collections, from the events of one session and of the next. */
#include "sampler/inproc/event_gc.h"

#include "tests/unit/clp-cmocka.h"

#include <string.h>

enum { FOR_GC = 1, BLOCKING = 0, BACKGROUND = 1 };

static double told_count, told_ns;

static void on_event(void *user, const struct clp_feed_event *e)
{
    (void)user;
    told_count += e->value;
    told_ns += e->value2;
}

static const struct clp_events_sink sink = {.event = on_event};

static void tell(enum clp_event_type type, uint64_t time_ns, uint64_t number, uint64_t number2)
{
    struct clp_event e = {
        .type = (uint16_t)type, .time_ns = time_ns, .number = number, .number2 = number2};
    clp_event_gc_take(&e, 1, &sink);
}

static void collect(uint64_t from_ns, uint64_t ns, uint32_t number, uint32_t type)
{
    tell(CLP_EVENT_GC_SUSPEND, from_ns, FOR_GC, 0);
    tell(CLP_EVENT_GC_SUSPENDED, from_ns + ns / 4, 0, 0);
    tell(CLP_EVENT_GC_START, from_ns + ns / 2, number, (uint64_t)type << 32);
    tell(CLP_EVENT_GC_RESTART, from_ns + ns, 0, 0);
}

static int nothing_is_told(void **state)
{
    (void)state;
    clp_event_gc_forget();
    told_count = told_ns = 0;
    return 0;
}

static void test_a_pause_is_from_suspension_to_restart(void **state)
{
    struct clp_event_totals before, after;
    (void)state;
    clp_event_gc_totals(&before);
    collect(1000, 400, 1, BLOCKING);
    clp_event_gc_totals(&after);
    assert_true(told_count == 1 && told_ns == 400);
    assert_int_equal(after.gc_pause_ns - before.gc_pause_ns, 400);
    assert_int_equal(after.gc_suspension_ns - before.gc_suspension_ns, 100);
    assert_int_equal(after.collections[0] - before.collections[0], 1);
}

/* The session ended within a pause: the next one's first pause does not begin there. */
static void test_a_pause_whose_end_was_not_seen(void **state)
{
    (void)state;
    tell(CLP_EVENT_GC_SUSPEND, 5000, FOR_GC, 0);
    tell(CLP_EVENT_GC_START, 5100, 2, 0);
    clp_event_gc_forget();
    collect(9000000, 400, 3, BLOCKING);
    assert_true(told_count == 1 && told_ns == 400);
}

/* Nor do later pauses belong to a background collection of that time. */
static void test_a_background_collection_whose_end_was_not_seen(void **state)
{
    (void)state;
    collect(20000000, 400, 4, BACKGROUND);
    tell(CLP_EVENT_GC_SUSPEND, 20001000, FOR_GC, 0);
    tell(CLP_EVENT_GC_RESTART, 20001100, 0, 0);
    assert_true(told_count == 1 && told_ns == 500);
    clp_event_gc_forget();
    tell(CLP_EVENT_GC_SUSPEND, 30000000, FOR_GC, 0);
    tell(CLP_EVENT_GC_RESTART, 30000400, 0, 0);
    assert_true(told_count == 1 && told_ns == 500);
}

#define WITH_NOTHING_TOLD(test) cmocka_unit_test_setup(test, nothing_is_told)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_NOTHING_TOLD(test_a_pause_is_from_suspension_to_restart),
        WITH_NOTHING_TOLD(test_a_pause_whose_end_was_not_seen),
        WITH_NOTHING_TOLD(test_a_background_collection_whose_end_was_not_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
