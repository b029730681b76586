#include "tests/unit/clp-cmocka.h"

#include "base/core/arena.h"
#include "base/core/lock.h"

#include <pthread.h>
#include <string.h>

static void gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    struct clp_arena a;
    clp_arena_init(&a, 1 << 20);
    for (size_t n = 1; n < 3000; n += 7) {
        uint8_t *p = clp_arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    clp_arena_done(&a);
    assert_int_equal(a.mapped_bytes, 0);
}

static void stops_at_its_ceiling(void **state)
{
    (void)state;
    struct clp_arena a;
    clp_arena_init(&a, 256 << 10);
    unsigned got = 0;
    while (clp_arena_alloc(&a, 1024))
        got++;
    assert_in_range(got, 200, 256);
    assert_int_equal(a.refused, 1);
    assert_null(clp_arena_alloc(&a, SIZE_MAX));
    assert_int_equal(a.refused, 2);
    clp_arena_done(&a);
    assert_non_null(clp_arena_alloc(&a, 100));
    clp_arena_done(&a);
}

static struct clp_lock lock;
static unsigned counter;

static void *count(void *arg)
{
    for (int i = 0; i < 100000; i++) {
        clp_lock(&lock);
        counter++;
        clp_unlock(&lock);
    }
    return arg;
}

static void the_lock_excludes(void **state)
{
    (void)state;
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, count, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(counter, 400000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_aligned_memory),
        cmocka_unit_test(stops_at_its_ceiling),
        cmocka_unit_test(the_lock_excludes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
