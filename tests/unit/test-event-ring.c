/* The ring between event callbacks and the loop: what goes in comes out, once, in order per thread.
 */
#include "sampler/inproc/event_ring.h"

#include "tests/unit/clp-cmocka.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define WRITERS 4u
#define EVENTS 20000u

static int open_ring(void **state)
{
    (void)state;
    return clp_event_ring_init();
}

static void test_a_stack_comes_out_as_it_went_in(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3000; round++) {
        uint32_t bytes = round * 37 % 5000;
        struct clp_event *e = clp_event_reserve(true, bytes, NULL, false);
        assert_non_null(e);
        struct clp_capture *c = clp_event_capture(e);
        c->stack_bytes = bytes;
        memset(c->stack, (int)round, bytes);
        assert_null(clp_event_peek()); /* not yet committed */
        clp_event_commit(e);
        struct clp_event *got = clp_event_peek();
        assert_ptr_equal(got, e);
        assert_int_equal(clp_event_capture(got)->stack_bytes, bytes);
        for (uint32_t i = 0; i < bytes; i++)
            assert_int_equal(clp_event_capture(got)->stack[i], round & 0xff);
        clp_event_release(got);
    }
    assert_null(clp_event_peek());
}

static void test_full_is_counted_and_recovers(void **state)
{
    uint64_t before = clp_event_ring_lost(), n = 0;
    struct clp_event *e;
    (void)state;
    while ((e = clp_event_reserve(true, 8000, NULL, true))) {
        clp_event_commit(e);
        n++;
    }
    assert_true(n > CLP_EVENT_RING_BYTES / 12000 && n < CLP_EVENT_RING_BYTES / 8000);
    assert_int_equal(clp_event_ring_lost(), before + 1);
    for (; n > 0; n--) {
        e = clp_event_peek();
        assert_non_null(e);
        clp_event_release(e);
    }
    assert_null(clp_event_peek());
    assert_null(clp_event_reserve(true, CLP_EVENT_RING_BYTES, NULL, true)); /* never fits */
    e = clp_event_reserve(false, 0, NULL, false);
    assert_non_null(e);
    clp_event_commit(e);
    clp_event_release(clp_event_peek());
}

static void test_the_last_quarter_is_for_urgent_ones(void **state)
{
    unsigned usual = 0, urgent = 0;
    struct clp_event *e;
    (void)state;
    assert_false(clp_event_ring_presses());
    while ((e = clp_event_reserve(true, 4000, NULL, false))) {
        clp_event_commit(e);
        usual++;
    }
    assert_true(clp_event_ring_presses());
    assert_false(clp_event_ring_presses()); /* told once */
    while ((e = clp_event_reserve(true, 4000, NULL, true))) {
        clp_event_commit(e);
        urgent++;
    }
    assert_true(urgent >= usual / 4 && urgent <= usual / 2);
    while ((e = clp_event_peek()))
        clp_event_release(e);
    assert_false(clp_event_ring_presses());
}

/* The loop comes before the event that woke it is written, and can take only those before it: what
 * comes after that one must wake it again, for it fills the ring. */
static void test_it_presses_again_behind_one_that_is_written_still(void **state)
{
    struct clp_event *e, *last;
    unsigned taken = 0;
    (void)state;
    do {
        last = clp_event_reserve(true, 8000, NULL, false);
        assert_non_null(last);
        if (clp_event_ring_presses())
            break;
        clp_event_commit(last);
    } while (true);
    for (; (e = clp_event_peek()); taken++)
        clp_event_release(e);
    assert_true(taken > 10);
    clp_event_commit(last);
    bool again = false;
    for (unsigned i = 0; i < 2 * taken && !again; i++) {
        e = clp_event_reserve(true, 8000, NULL, false);
        assert_non_null(e);
        again = clp_event_ring_presses();
        clp_event_commit(e);
    }
    assert_true(again);
    while ((e = clp_event_peek()))
        clp_event_release(e);
}

static void test_pressure_grows_as_it_fills(void **state)
{
    unsigned last = clp_event_ring_pressure(), grown = 0;
    struct clp_event *e;
    (void)state;
    assert_int_equal(last, 0);
    while ((e = clp_event_reserve(true, 8000, NULL, false))) {
        clp_event_commit(e);
        unsigned now = clp_event_ring_pressure();
        assert_true(now >= last && now <= last + 1);
        grown += now > last;
        last = now;
    }
    assert_true(grown >= 14 && grown <= 17); /* three eighths of the ring, in parts of 3/128 */
    while ((e = clp_event_peek()))
        clp_event_release(e);
    assert_int_equal(clp_event_ring_pressure(), 0);
}

static void test_texts_lie_between_event_and_stack(void **state)
{
    const uint16_t len[2] = {3, 5};
    (void)state;
    struct clp_event *e = clp_event_reserve(true, 16, len, false);
    assert_non_null(e);
    memcpy(clp_event_text(e, 0), u"abc", 6);
    memcpy(clp_event_text(e, 1), u"defgh", 10);
    memset(clp_event_capture(e)->stack, 0xff, 16);
    assert_int_equal((uintptr_t)clp_event_capture(e) % _Alignof(struct clp_capture), 0);
    assert_memory_equal(clp_event_text(e, 0), u"abcdefgh", 16);
    clp_event_commit(e);
    clp_event_release(clp_event_peek());
}

static void *write_many(void *arg)
{
    for (uint64_t i = 1; i <= EVENTS; i++) {
        struct clp_event *e;
        while (!(e = clp_event_reserve(i % 3 == 0, i % 700, NULL, false)))
            sched_yield();
        e->number = (uint64_t)(uintptr_t)arg;
        e->number2 = i;
        clp_event_commit(e);
    }
    return NULL;
}

static void test_many_writers(void **state)
{
    pthread_t threads[WRITERS];
    uint64_t last[WRITERS] = {0}, got = 0;
    (void)state;
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, (void *)i), 0);
    while (got < (uint64_t)WRITERS * EVENTS) {
        struct clp_event *e = clp_event_peek();
        if (!e) {
            sched_yield();
            continue;
        }
        assert_true(e->number < WRITERS);
        assert_int_equal(e->number2, ++last[e->number]);
        clp_event_release(e);
        got++;
    }
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(clp_event_peek());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stack_comes_out_as_it_went_in),
        cmocka_unit_test(test_full_is_counted_and_recovers),
        cmocka_unit_test(test_the_last_quarter_is_for_urgent_ones),
        cmocka_unit_test(test_it_presses_again_behind_one_that_is_written_still),
        cmocka_unit_test(test_pressure_grows_as_it_fills),
        cmocka_unit_test(test_texts_lie_between_event_and_stack),
        cmocka_unit_test(test_many_writers),
    };
    return cmocka_run_group_tests(tests, open_ring, NULL);
}
