/* Ends of epochs: what is in the ring when the memory of an epoch is used up. */
#include "sampler/inproc/events.h"

#include "sampler/inproc/event_member.h"
#include "sampler/inproc/event_sized.h"

#include "tests/unit/clp-cmocka.h"

#define EVENTS 200u
#define BYTES 1000u /* of each */
#define FIRST_NS 1000u

static double told_bytes;
static uint32_t told, told_stackless; /* the latter: no event's time, but the epoch's */

static void on_event(void *user, const struct clp_feed_event *e)
{
    (void)user;
    told++;
    told_bytes += e->value2;
    told_stackless += !(e->time_ns >= FIRST_NS && e->time_ns < FIRST_NS + EVENTS);
}

static void on_frames(void *user, const struct clp_thread *thread, const uint64_t *frames,
                      uint16_t count)
{
    (void)user;
    (void)thread;
    (void)frames;
    (void)count;
}

static const struct clp_events_sink sink = {.event = on_event, .define = on_frames};

/* As the callback does: all of them are kept, so few are there. */
static void allocate(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct clp_threshold_member m = clp_threshold_offer(&clp_event_allocs.threshold, 7,
                                                            CLP_THRESHOLD_COUNT_ONE, BYTES, 0, 0);
        struct clp_event *e = clp_event_reserve(false, 0, NULL, false);
        assert_non_null(e);
        *e = (struct clp_event){.bytes = e->bytes,
                                .type = CLP_EVENT_ALLOC,
                                .time_ns = FIRST_NS + i,
                                .value = 1 / m.chance,
                                .value2 = BYTES / m.chance};
        clp_event_sized_mark(e, &m);
        clp_event_commit(e);
    }
}

/* The runtime's event: z type | z message | u64 | u32 | u16 | u16. */
static void throw_one(uint16_t type)
{
    const struct {
        uint16_t type[2], message[2];
        uint8_t tail[16];
    } thrown = {.type = {type}, .message = u"m"};
    const struct clp_event_here h = {
        .time_ns = FIRST_NS, .data = (const uint8_t *)&thrown, .len = sizeof(thrown)};
    clp_event_exception(&h);
}

static void use_memory(size_t bytes)
{
    assert_non_null(clp_event_members_alloc(bytes));
}

static void settle(void)
{
    static uint64_t now_ns = 1;
    told = told_stackless = 0;
    told_bytes = 0;
    clp_events_drain(1, &sink);
    clp_events_settle(now_ns += CLP_NSEC_PER_SEC, 1, false, &sink);
}

static int set_up(void **state)
{
    (void)state;
    clp_events_begin(10);
    return clp_event_members_init() < 0 || clp_event_ring_init() < 0 ? -1 : 0;
}

/* Later they would be late: others, of the next epoch, would stand for them. */
static void events_in_the_ring_are_of_the_epoch_that_its_memory_ends(void **state)
{
    (void)state;
    use_memory(CLP_EVENT_MEMBERS_BYTES / 5 * 4);
    assert_true(clp_events_due(2));
    allocate(EVENTS);
    settle();
    assert_int_equal(told, EVENTS);
    assert_int_equal(told_stackless, 0);
    assert_true(told_bytes == EVENTS * BYTES);
    assert_int_equal(atomic_load(&clp_event_allocs.lost), 0);
}

/* Exceptions are not of an epoch: what finds no memory at all waits for the next one's. */
static void an_exception_for_which_there_is_no_memory_waits(void **state)
{
    (void)state;
    use_memory(CLP_EVENT_MEMBERS_BYTES - 1024);
    throw_one(u'T');
    settle();
    assert_int_equal(told, 0);
    assert_int_equal(clp_event_members_lost(), 0);
    settle();
    assert_int_equal(told, 1);
    assert_int_equal(told_stackless, 0);
}

/* Of their tables, which are large, few places touch a part only. */
static void exceptions_of_few_types_take_the_first_strata(void **state)
{
    uint32_t last = 0;
    (void)state;
    settle();
    for (uint16_t type = 1; type <= 200; type++) {
        throw_one(type);
        struct clp_event *e = clp_event_peek();
        assert_non_null(e);
        last = CLP_MAX(last, e->stratum);
        clp_event_release(e);
    }
    assert_true(last < 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_in_the_ring_are_of_the_epoch_that_its_memory_ends),
        cmocka_unit_test(an_exception_for_which_there_is_no_memory_waits),
        cmocka_unit_test(exceptions_of_few_types_take_the_first_strata),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
