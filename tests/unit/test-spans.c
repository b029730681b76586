/* Cells of threads, names of endpoints, ended roots; and what the handler copies of them. */
#include "tests/unit/clp-cmocka.h"

#include "base/core/core.h"
#include "sampler/inproc/spans.h"
#include "sampler/inproc/threads.h"
#include "tests/unit/capture-harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct clp_span span_of(uint64_t n)
{
    return (struct clp_span){.trace_high = n,
                             .trace_low = ~n,
                             .span_id = n,
                             .local_root_span_id = n ^ 0x5555,
                             .endpoint = (uint32_t)n};
}

/* All fields were made from one number. */
static bool is_whole(const struct clp_span *s)
{
    struct clp_span same = span_of(s->span_id);
    return s->span_id == 0 || memcmp(s, &same, sizeof(same)) == 0;
}

static void *end_at_once(void *ret)
{
    struct clp_span s = span_of(7);
    struct clp_span_cell **cell = ret;
    *cell = clp_span_cell(CLP_SPAN_ABI);
    return clp_span_set(&s) == 0 ? cell : NULL;
}

static void test_set_and_clear(void **state)
{
    (void)state;
    struct clp_span s = span_of(3), seen, no_trace = {.span_id = 4};
    assert_null(clp_span_cell(CLP_SPAN_ABI + 1));
    assert_int_equal(clp_span_set(&(struct clp_span){.trace_low = 1}), -EINVAL);
    assert_int_equal(clp_span_set(&no_trace), -EINVAL);
    assert_int_equal(clp_span_set(&s), 0);
    struct clp_span_cell *cell = clp_span_cell(CLP_SPAN_ABI);
    assert_non_null(cell);
    assert_ptr_equal(clp_spans_cell_of((int32_t)syscall(SYS_gettid)), cell);
    assert_true(clp_span_read(cell, &seen));
    assert_memory_equal(&seen, &s, sizeof(s));
    clp_span_clear();
    clp_span_read_own(cell, &seen);
    assert_int_equal(seen.span_id, 0);
}

static void test_cells_are_used_again(void **state)
{
    (void)state;
    struct clp_span_cell *first, *other;
    struct clp_span seen;
    void *ok;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, end_at_once, &first), 0);
    assert_int_equal(pthread_join(t, &ok), 0);
    assert_non_null(ok);
    assert_true(clp_span_read(first, &seen)); /* its memory stays, and says nothing */
    assert_int_equal(seen.span_id, 0);
    size_t bytes = clp_spans_bytes();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pthread_create(&t, NULL, end_at_once, &other), 0);
        assert_int_equal(pthread_join(t, &ok), 0);
        assert_ptr_equal(other, first);
    }
    assert_int_equal(clp_spans_bytes(), bytes);
}

static struct clp_span_cell *shared_cell;
static _Atomic bool stop;

static void *write_on(void *unused)
{
    (void)unused;
    __atomic_store_n(&shared_cell, clp_span_cell(CLP_SPAN_ABI), __ATOMIC_RELEASE);
    for (uint64_t n = 1; !atomic_load(&stop); n++) {
        struct clp_span s = span_of(n);
        if (clp_span_set(&s) < 0)
            return NULL;
    }
    return &stop;
}

/* ---- more threads than cells ---- */

/* A sanitizer's threads are too heavy, or too few. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define CROWD (CLP_SPAN_CELLS_MAX + 20)

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held until all are there */
static _Atomic uint32_t crowd_there, crowd_set, crowd_refused, crowd_other;

static void *be_one_of_many(void *arg)
{
    struct clp_span s = span_of((uintptr_t)arg), seen;
    int r = clp_span_set(&s);
    crowd_there++;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    clp_span_read_own(clp_spans_cell_of((int32_t)syscall(SYS_gettid)), &seen);
    if (r == 0 && seen.span_id == s.span_id)
        crowd_set++;
    else if (r == -ENOMEM && seen.span_id == 0)
        crowd_refused++;
    else
        crowd_other++;
    clp_span_clear();
    return NULL;
}

/* Those beyond the ceiling have no span, and never another's; later threads have cells again. */
static void test_more_threads_than_cells(void **state)
{
    (void)state;
    static pthread_t threads[CROWD];
    pthread_attr_t attr;
    uint64_t refused = clp_spans_refused();
    struct clp_span_cell *cell;
    pthread_t t;
    void *ok;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    pthread_mutex_lock(&gate);
    uintptr_t made = 0;
    while (made < CROWD &&
           pthread_create(&threads[made], &attr, be_one_of_many, (void *)(made + 1)) == 0)
        made++;
    while (crowd_there < made)
        usleep(1000);
    pthread_mutex_unlock(&gate);
    for (size_t i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attr);
    assert_int_equal(crowd_other, 0);
    if (made < CROWD)
        skip(); /* the machine allows fewer */
    assert_int_equal(crowd_set + crowd_refused, CROWD);
    assert_in_range(crowd_refused, 20, 30); /* this thread and others' leftovers have cells, too */
    assert_int_equal(clp_spans_refused() - refused, crowd_refused);
    assert_int_equal(pthread_create(&t, NULL, end_at_once, &cell), 0);
    assert_int_equal(pthread_join(t, &ok), 0);
    assert_non_null(ok);
}
#endif

static void test_never_half_from_outside(void **state)
{
    (void)state;
    pthread_t t;
    void *ok;
    uint32_t whole = 0, given_up = 0, last_moved = 0;
    uint64_t last = 0;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&t, NULL, write_on, NULL), 0);
    while (!__atomic_load_n(&shared_cell, __ATOMIC_ACQUIRE))
        ;
    time_t until = time(NULL) + 10;
    /* On few processors the two take turns of milliseconds. */
    for (int i = 0; i < 2000000 || (last_moved < 100 && time(NULL) < until); i++) {
        struct clp_span s;
        if (!clp_span_read(shared_cell, &s)) {
            given_up++;
            continue;
        }
        if (!is_whole(&s))
            fail_msg("half a span: %llx with root %llx", (unsigned long long)s.span_id,
                     (unsigned long long)s.local_root_span_id);
        whole++;
        last_moved += s.span_id != last;
        last = s.span_id;
    }
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(t, &ok), 0);
    assert_non_null(ok);
    assert_in_range(whole, 1, UINT32_MAX);
    assert_in_range(last_moved, 100, UINT32_MAX); /* it was written meanwhile */
    print_message("%u whole, %u given up\n", whole, given_up);
}

static const struct clp_span_cell *interrupted;
static _Atomic uint32_t signals, halves;

static void look(int sig)
{
    struct clp_span s;
    (void)sig;
    clp_span_read_own(interrupted, &s);
    atomic_fetch_add(&signals, 1);
    atomic_fetch_add(&halves, !is_whole(&s));
}

static void test_never_half_in_a_handler(void **state)
{
    (void)state;
    const struct sigaction act = {.sa_handler = look};
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    interrupted = clp_span_cell(CLP_SPAN_ABI);
    assert_int_equal(sigaction(SIGVTALRM, &act, NULL), 0);
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &often, NULL), 0);
    for (uint64_t n = 1; atomic_load(&signals) < 100 && n < 2000000000; n++) {
        struct clp_span s = span_of(n);
        assert_int_equal(clp_span_set(&s), 0);
    }
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &never, NULL), 0);
    assert_in_range(atomic_load(&signals), 100, UINT32_MAX);
    assert_int_equal(atomic_load(&halves), 0);
    clp_span_clear();
}

static void test_generation(void **state)
{
    (void)state;
    const uint32_t *word = clp_span_generation();
    uint32_t before = *word;
    assert_int_equal(before & 1, 0);
    clp_spans_live(true);
    clp_spans_live(true);
    assert_int_equal(*word, before + 1);
    clp_spans_live(false);
    assert_int_equal(*word, before + 2);
}

static void test_endpoints(void **state)
{
    (void)state;
    char name[CLP_SPAN_NAME_MAX_BYTES + 1], text[300];
    uint32_t a = clp_span_endpoint("GET /a", 6), b = clp_span_endpoint("GET /b", 6);
    assert_true(a > CLP_SPAN_ENDPOINT_OTHER && b > CLP_SPAN_ENDPOINT_OTHER && a != b);
    assert_int_equal(clp_span_endpoint("GET /a", 6), a);
    assert_int_equal(clp_spans_endpoint_name(a, name), 0);
    assert_string_equal(name, "GET /a");
    assert_int_equal(clp_spans_endpoint_name(CLP_SPAN_ENDPOINT_OTHER, name), -ENOENT);
    assert_int_equal(clp_spans_endpoint_name(b + 1, name), -ENOENT);
    assert_int_equal(clp_span_endpoint("", 0), CLP_SPAN_ENDPOINT_NONE);
    assert_int_equal(clp_span_endpoint(NULL, 5), CLP_SPAN_ENDPOINT_NONE);
    memset(text, 'x', sizeof(text));
    memcpy(text + CLP_SPAN_NAME_MAX_BYTES - 1, "\xc3\xa4", 2); /* does not fit whole */
    assert_int_equal(clp_spans_endpoint_name(clp_span_endpoint(text, sizeof(text)), name), 0);
    assert_int_equal(strlen(name), CLP_SPAN_NAME_MAX_BYTES - 1);
}

static void test_endpoints_are_bounded(void **state)
{
    (void)state;
    char text[32];
    uint32_t others = 0;
    for (uint32_t i = 0; i < 2 * CLP_SPAN_ENDPOINTS_MAX; i++) {
        int n = snprintf(text, sizeof(text), "/users/%u", i);
        others += clp_span_endpoint(text, (size_t)n) == CLP_SPAN_ENDPOINT_OTHER;
    }
    assert_in_range(others, CLP_SPAN_ENDPOINTS_MAX, CLP_SPAN_ENDPOINTS_MAX + 5);
    assert_true(clp_span_endpoint("GET /a", 6) > CLP_SPAN_ENDPOINT_OTHER); /* was there before */
}

static void test_requests_are_counted(void **state)
{
    (void)state;
    uint32_t at = 0, endpoint, ended, a = clp_span_endpoint("GET /a", 6);
    assert_false(clp_spans_next_count(&at, &endpoint, &ended));
    clp_span_request_ended(CLP_SPAN_ENDPOINT_NONE);
    clp_span_request_ended(a);
    clp_span_request_ended(a);
    clp_span_request_ended(CLP_SPAN_ENDPOINT_OTHER);
    at = 0;
    assert_true(clp_spans_next_count(&at, &endpoint, &ended));
    assert_int_equal(endpoint, CLP_SPAN_ENDPOINT_OTHER);
    assert_int_equal(ended, 1);
    assert_true(clp_spans_next_count(&at, &endpoint, &ended));
    assert_int_equal(endpoint, a);
    assert_int_equal(ended, 2);
    assert_false(clp_spans_next_count(&at, &endpoint, &ended));
    at = 0;
    assert_false(clp_spans_next_count(&at, &endpoint, &ended));
}

static void test_ended_roots(void **state)
{
    (void)state;
    uint64_t root;
    uint32_t endpoint;
    assert_false(clp_spans_next_ended(&root, &endpoint));
    assert_false(clp_span_root_sampled(77));
    clp_spans_saw_root(77);
    assert_true(clp_span_root_sampled(77));
    assert_false(clp_span_root_sampled(78));
    assert_false(clp_span_root_sampled(0));
    clp_span_root_ended(0, "GET /a", 6);
    clp_span_root_ended(77, "", 0);
    assert_false(clp_spans_next_ended(&root, &endpoint));
    for (uint32_t i = 1; i <= CLP_SPAN_ROOTS_ENDED_MAX + 5; i++)
        clp_span_root_ended(i, "GET /a", 6);
    uint32_t n = 0;
    for (uint64_t expected = 6; clp_spans_next_ended(&root, &endpoint); expected++, n++) {
        assert_int_equal(root, expected);
        assert_int_equal(endpoint, clp_span_endpoint("GET /a", 6));
    }
    assert_int_equal(n, CLP_SPAN_ROOTS_ENDED_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_clear),
        cmocka_unit_test(test_cells_are_used_again),
        cmocka_unit_test(test_never_half_from_outside),
        cmocka_unit_test(test_never_half_in_a_handler),
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_endpoints_are_bounded),
        cmocka_unit_test(test_requests_are_counted),
        cmocka_unit_test(test_ended_roots),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_more_threads_than_cells),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
