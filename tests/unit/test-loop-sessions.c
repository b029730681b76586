/* Which sessions of events run, while readers come and go. */
#include "sampler/inproc/events.h"
#include "sampler/inproc/loop.h"
#include "wire/message.h"

#include "tests/unit/capture-harness.h"
#include "tests/unit/clp-cmocka.h"
#include "tests/unit/loop-reader.h"
#include "tests/unit/managed-double.h"

#include <unistd.h>

#define LOCKS (1u << CLP_SAMPLE_LOCK)
#define EXCEPTIONS (1u << CLP_SAMPLE_EXCEPTION)
#define INTERVAL (5 * CLP_NSEC_PER_MSEC)
#define RING (1u << 20)

static _Atomic uint64_t started;
static _Atomic bool lost_count;
static _Atomic bool hold, held; /* the loop, between two rounds */

static clr_hresult start_session(struct clr_info *self, uint32_t count,
                                 const struct clr_event_provider *providers, int32_t rundown,
                                 uint64_t *ret)
{
    (void)self;
    (void)count;
    (void)providers;
    (void)rundown;
    *ret = ++started;
    return 0;
}

static clr_hresult stop_session(struct clr_info *self, uint64_t session)
{
    (void)self;
    (void)session;
    return 0;
}

static clr_hresult no_threshold(struct clr_info *self, uint32_t *ret)
{
    (void)self;
    (void)ret;
    return -1;
}

static bool has_lost_count(void)
{
    while (hold) {
        held = true;
        usleep(1000);
    }
    return lost_count;
}

static void lost_sight(void)
{
}

static void start_loop(void)
{
    static const struct clr_info_slots slots = {.event_pipe_start_session = start_session,
                                                .event_pipe_stop_session = stop_session,
                                                .get_loh_threshold = no_threshold};
    static struct clr_info info = {&slots};
    static const struct clp_loop_runtime runtime = {
        .has_lost_count = has_lost_count, .lost_sight = lost_sight, .major = 10, .attaching = true};
    managed_runtime = &info;
    harness_fake_runtime(true);
    assert_int_equal(clp_loop_start(&runtime), 0);
    clp_loop_runtime_ready();
}

static int stop_loop(void **state)
{
    (void)state;
    clp_loop_stop();
    started = 0;
    return 0;
}

static void greet_reader(struct loop_reader *r)
{
    loop_reader_announce(r);
    assert_true(loop_reader_accept(r, 10000));
}

/* A wait that is open then is no part of the new recording. Below, the new reader waits for a
 * runtime that can be asked. */
static void a_session_that_nobody_hears_ends_before_the_next_reader_listens(void **state)
{
    static struct loop_reader before, stays, next;
    struct clp_msg m;
    (void)state;
    start_loop();
    loop_reader_open(&before, RING, LOCKS, INTERVAL);
    loop_reader_open(&stays, RING, EXCEPTIONS, INTERVAL);
    loop_wait_until(clp_events_running() == (LOCKS | EXCEPTIONS));
    lost_count = true;
    assert_true(loop_reader_receive(&stays, &m, sizeof(m), 10000) > 0); /* it asks for help */
    greet_reader(&next);
    loop_reader_join(&next, RING, LOCKS, INTERVAL);
    loop_reader_close(&before);
    loop_wait_until(clp_events_running() == EXCEPTIONS);
    lost_count = false;
    loop_reader_wait_active(&next);
    loop_wait_until(clp_events_running() == (LOCKS | EXCEPTIONS));
    assert_int_equal(started, 3);
    loop_reader_close(&next);
    loop_reader_close(&stays);
}

static void the_same_where_one_leaves_and_one_comes_in_the_same_round(void **state)
{
    static struct loop_reader before, stays, next;
    (void)state;
    start_loop();
    loop_reader_open(&before, RING, LOCKS, INTERVAL);
    loop_reader_open(&stays, RING, EXCEPTIONS, INTERVAL);
    loop_wait_until(clp_events_running() == (LOCKS | EXCEPTIONS));
    greet_reader(&next);
    hold = true;
    loop_wait_until(held);
    loop_reader_join(&next, RING, LOCKS, INTERVAL);
    loop_reader_close(&before);
    hold = false;
    loop_reader_wait_active(&next);
    loop_wait_until(clp_events_running() == (LOCKS | EXCEPTIONS));
    assert_int_equal(started, 3);
    loop_reader_close(&next);
    loop_reader_close(&stays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_session_that_nobody_hears_ends_before_the_next_reader_listens,
                                  stop_loop),
        cmocka_unit_test_teardown(the_same_where_one_leaves_and_one_comes_in_the_same_round,
                                  stop_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
