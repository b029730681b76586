/* Each thread has an entry of its own, as long as it lives. */
#include "sampler/inproc/event_thread.h"

#include "tests/unit/capture-harness.h"
#include "tests/unit/clp-cmocka.h"

#include <stdlib.h>

#define FEW 64u
#define MANY 600u /* more than the entries that are tried first */
#define FIRST_ENTRIES 256

static pthread_barrier_t met;
static struct clp_event_thread *entries[MANY];

static void *live(void *entry)
{
    struct clp_event_thread **mine = entry;
    clp_event_thread_begins();
    *mine = clp_event_thread_self();
    (void)pthread_barrier_wait(&met);
    if (clp_event_thread_self() != *mine || !*mine || atomic_load(&(*mine)->tid) != harness_tid())
        *mine = NULL;
    (void)pthread_barrier_wait(&met); /* all of them live until here */
    return NULL;
}

/* So many at a time. */
static void live_together(uint32_t n)
{
    pthread_t threads[MANY];
    pthread_attr_t small;
    assert_int_equal(pthread_barrier_init(&met, NULL, n), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 128u << 10), 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], &small, live, &entries[i]), 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(pthread_attr_destroy(&small), 0);
    assert_int_equal(pthread_barrier_destroy(&met), 0);
}

static int by_address(const void *a, const void *b)
{
    const struct clp_event_thread *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

static void assert_own_entries(uint32_t n)
{
    qsort(entries, n, sizeof(entries[0]), by_address);
    assert_non_null(entries[0]);
    for (uint32_t i = 1; i < n; i++)
        assert_ptr_not_equal(entries[i - 1], entries[i]);
}

/* What lies beyond is memory that they need not touch. */
static void few_threads_take_the_first_entries(void **state)
{
    uint32_t beyond = 0;
    (void)state;
    live_together(FEW);
    assert_own_entries(FEW);
    for (uint32_t i = 0; i < FEW; i++)
        beyond += entries[i] - clp_event_thread_at(0) >= FIRST_ENTRIES;
    assert_true(beyond < FEW / 4);
}

static void many_threads_have_their_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) { /* others with the same control blocks, most likely */
        live_together(MANY);
        assert_own_entries(MANY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_threads_take_the_first_entries),
        cmocka_unit_test(many_threads_have_their_own),
    };
    harness_init();
    return clp_event_threads_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
