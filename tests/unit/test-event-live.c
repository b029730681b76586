/* Which objects collections have looked at, also when the events of some were lost. */
#include "sampler/inproc/event_live.h"

#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/threads.h"

static uint32_t number; /* of the latest collection */
static double told;     /* bytes */
static bool any_without_value;

static void on_event(void *user, const struct clp_feed_event *e)
{
    (void)user;
    told += e->value2;
    any_without_value |= e->value == 0 && e->value2 == 0;
}

static double shown(void)
{
    static const struct clp_events_sink sink = {.event = on_event};
    told = 0;
    clp_event_live_write(1000, &sink);
    return told;
}

/* One of so many bytes, sampled for sure. */
static void allocate(enum clp_event_heap heap, double bytes)
{
    static const uint64_t frames[] = {1};
    struct clp_event e = {.chance = 1, .number2 = heap};
    struct clp_event_member m = {.value = 1, .value2 = bytes, .frames = frames, .count = 1};
    clp_event_live_take(1, &e, &m);
}

static uint32_t begins(uint32_t generation, bool background)
{
    clp_event_live_gc_begins(++number, generation, background);
    return number;
}

static void collect(uint32_t generation)
{
    clp_event_live_gc_ends(begins(generation, false));
}

/* Entries of the tests before are told as well. */
static double before;

static int set_up(void **state)
{
    (void)state;
    clp_event_live_want(true);
    collect(2);
    before = shown();
    return 0;
}

static void an_object_is_shown_when_a_collection_has_looked(void **state)
{
    (void)state;
    allocate(CLP_EVENT_HEAP_USUAL, 100);
    assert_true(shown() == before);
    uint32_t n = begins(0, false);
    assert_true(shown() == before);
    clp_event_live_gc_ends(n);
    assert_true(shown() == before + 100);
}

/* Their code may unload: a reader must not forget its names. */
static void what_is_not_shown_yet_is_told_without_a_value(void **state)
{
    (void)state;
    any_without_value = false;
    assert_true(shown() == before);
    assert_false(any_without_value);
    allocate(CLP_EVENT_HEAP_LARGE, 100);
    assert_true(shown() == before);
    assert_true(any_without_value);
    collect(2);
    any_without_value = false;
    assert_true(shown() == before + 100);
    assert_false(any_without_value);
}

static void a_large_one_when_all_of_the_heap_was_collected(void **state)
{
    (void)state;
    allocate(CLP_EVENT_HEAP_LARGE, 100);
    collect(1);
    assert_true(shown() == before);
    collect(2);
    assert_true(shown() == before + 100);
}

/* The ring was full when they came. */
static void lost_ends_do_not_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        (void)begins(i % 3, i % 5 == 0);
    allocate(CLP_EVENT_HEAP_USUAL, 100);
    collect(0);
    assert_true(shown() == before + 100);
}

static void a_collection_is_over_when_the_next_begins(void **state)
{
    (void)state;
    allocate(CLP_EVENT_HEAP_USUAL, 100);
    (void)begins(0, false);
    assert_true(shown() == before);
    (void)begins(0, false);
    assert_true(shown() == before + 100);
}

static void young_ones_come_amid_a_background_one(void **state)
{
    (void)state;
    allocate(CLP_EVENT_HEAP_LARGE, 100);
    (void)begins(2, true);
    collect(0);
    collect(1);
    assert_true(shown() == before);
    (void)begins(2, true);
    assert_true(shown() == before + 100);
    allocate(CLP_EVENT_HEAP_PINNED, 10);
    collect(2); /* ends it too, but it began before */
    assert_true(shown() == before + 110);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_object_is_shown_when_a_collection_has_looked, set_up),
        cmocka_unit_test_setup(what_is_not_shown_yet_is_told_without_a_value, set_up),
        cmocka_unit_test_setup(a_large_one_when_all_of_the_heap_was_collected, set_up),
        cmocka_unit_test_setup(lost_ends_do_not_add_up, set_up),
        cmocka_unit_test_setup(a_collection_is_over_when_the_next_begins, set_up),
        cmocka_unit_test_setup(young_ones_come_amid_a_background_one, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
