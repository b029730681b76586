#include "tests/unit/clp-cmocka.h"

#include "base/map.h"
#include "base/vec.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static union clp_map_value number(uint64_t n)
{
    return (union clp_map_value){.u64 = n};
}

static void finds_what_was_put(void **state)
{
    (void)state;
    struct clp_map m;
    clp_map_init(&m, 100);
    assert_null(clp_map_get(&m, "a", 1));
    assert_int_equal(clp_map_put(&m, "a", 1, number(1)), 0);
    assert_int_equal(clp_map_put(&m, "a\0", 2, number(2)), 0);
    assert_int_equal(clp_map_put(&m, "", 0, number(3)), 0);
    assert_int_equal(clp_map_put(&m, "a longer key", 12, number(4)), 0);
    assert_int_equal(clp_map_get(&m, "a", 1)->u64, 1);
    assert_int_equal(clp_map_get(&m, "a\0", 2)->u64, 2);
    assert_int_equal(clp_map_get(&m, "", 0)->u64, 3);
    assert_int_equal(clp_map_get(&m, "a longer key", 12)->u64, 4);
    assert_null(clp_map_get(&m, "a longer kez", 12));
    assert_int_equal(clp_map_put(&m, "a longer key", 12, number(5)), 0);
    assert_int_equal(clp_map_get(&m, "a longer key", 12)->u64, 5);
    assert_int_equal(m.len, 4);
    clp_map_done(&m);
    assert_null(clp_map_get(&m, "a", 1));
}

static void refuses_beyond_the_ceiling(void **state)
{
    (void)state;
    struct clp_map m;
    clp_map_init(&m, 20);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(clp_map_put_u64(&m, i, number(i)), 0);
    assert_int_equal(clp_map_put_u64(&m, 20, number(0)), -ENOSPC);
    assert_int_equal(m.refused, 1);
    assert_int_equal(clp_map_put_u64(&m, 3, number(33)), 0);
    assert_true(clp_map_remove_u64(&m, 7, NULL));
    assert_int_equal(clp_map_put_u64(&m, 20, number(20)), 0);
    assert_int_equal(clp_map_get_u64(&m, 3)->u64, 33);
    static const char big[(64 << 10) + 1];
    assert_int_equal(clp_map_put(&m, big, sizeof(big), number(0)), -EMSGSIZE);
    clp_map_done(&m);
}

static void pointers(void **state)
{
    (void)state;
    struct clp_map m;
    clp_map_init(&m, 10);
    int x;
    assert_int_equal(clp_map_put_u64(&m, 42, (union clp_map_value){.ptr = &x}), 0);
    assert_int_equal(clp_map_put(&m, "name", 4, (union clp_map_value){.ptr = &m}), 0);
    assert_ptr_equal(clp_map_get_ptr_u64(&m, 42), &x);
    assert_null(clp_map_get_ptr_u64(&m, 43));
    assert_ptr_equal(clp_map_get_ptr(&m, "name", 4), &m);
    clp_map_done(&m);
}

/* The truth is a plain array: each key is in the map exactly when the array says so. */
static void agrees_with_an_array_over_random_steps(void **state)
{
    (void)state;
    enum { KEYS = 600, STEPS = 60000 };
    static uint64_t truth[KEYS];
    struct clp_map m;
    uint32_t count = 0;
    unsigned seed = 7;
    memset(truth, 0, sizeof(truth));
    clp_map_init(&m, KEYS);
    for (uint64_t step = 1; step <= STEPS; step++) {
        unsigned k = (unsigned)rand_r(&seed) % KEYS;
        char key[32];
        int len = snprintf(key, sizeof(key), "%skey %u", k % 2 ? "a rather long " : "", k);
        if (rand_r(&seed) % 5 < 3) {
            assert_int_equal(clp_map_put(&m, key, (size_t)len, number(step)), 0);
            count += truth[k] == 0;
            truth[k] = step;
        } else {
            union clp_map_value old = {0};
            assert_int_equal(clp_map_remove(&m, key, (size_t)len, &old), truth[k] != 0);
            assert_int_equal(old.u64, truth[k]);
            count -= truth[k] != 0;
            truth[k] = 0;
        }
        assert_int_equal(m.len, count);
    }
    for (unsigned k = 0; k < KEYS; k++) {
        char key[32];
        int len = snprintf(key, sizeof(key), "%skey %u", k % 2 ? "a rather long " : "", k);
        union clp_map_value *v = clp_map_get(&m, key, (size_t)len);
        assert_int_equal(v ? v->u64 : 0, truth[k]);
    }
    clp_map_done(&m);
}

static void walks_and_removes_on_the_way(void **state)
{
    (void)state;
    struct clp_map m;
    clp_map_init(&m, 1000);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(clp_map_put_u64(&m, i, number(i * 2)), 0);
    uint32_t cursor = clp_map_begin(&m);
    struct clp_map_item item;
    uint64_t seen = 0, sum = 0;
    while (clp_map_next(&m, &cursor, &item)) {
        seen++;
        sum += item.key_u64;
        assert_int_equal(item.value->u64, item.key_u64 * 2);
        if (item.key_u64 % 3 == 0)
            assert_true(clp_map_remove_u64(&m, item.key_u64, NULL));
    }
    assert_int_equal(seen, 1000);
    assert_int_equal(sum, 999 * 1000 / 2);
    assert_int_equal(m.len, 666);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(clp_map_get_u64(&m, i) != NULL, i % 3 != 0);
    clp_map_done(&m);
}

/* Whatever allocation fails, put says so and the map holds what it held. */
static void survives_every_failing_allocation(void **state)
{
    (void)state;
    uint64_t failures = 0;
    for (uint64_t allowed = 0; allowed < 300; allowed++) {
        struct clp_map m;
        uint32_t held = 0;
        clp_map_init(&m, 1000);
        alloc_fail_after(allowed, 0);
        for (uint64_t i = 0; i < 200; i++) {
            char key[40];
            int len = snprintf(key, sizeof(key), "this key needs memory %u", (unsigned)i);
            int r = clp_map_put(&m, key, (size_t)len, number(i));
            assert_true(r == 0 || r == -ENOMEM);
            held += r == 0;
            assert_int_equal(clp_map_get(&m, key, (size_t)len) != NULL, r == 0);
        }
        failures += alloc_fail_stop();
        assert_int_equal(m.len, held);
        assert_int_equal(m.refused, 200 - held);
        clp_map_done(&m);
    }
    assert_true(failures > 200);
}

static void vec_grows_to_its_ceiling(void **state)
{
    (void)state;
    uint32_t *v = NULL, cap = 0;
    assert_int_equal(CLP_VEC_GROW(v, cap, 1, 40), 0);
    assert_true(cap >= 1 && cap <= 40);
    v[0] = 17;
    assert_int_equal(CLP_VEC_GROW(v, cap, 40, 40), 0);
    assert_int_equal(cap, 40);
    assert_int_equal(v[0], 17);
    assert_int_equal(CLP_VEC_GROW(v, cap, 41, 40), -ENOSPC);
    alloc_fail_after(0, 0);
    assert_int_equal(CLP_VEC_GROW(v, cap, 41, 100), -ENOMEM);
    (void)alloc_fail_stop();
    assert_int_equal(cap, 40);
    assert_int_equal(v[0], 17);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_put),
        cmocka_unit_test(refuses_beyond_the_ceiling),
        cmocka_unit_test(pointers),
        cmocka_unit_test(agrees_with_an_array_over_random_steps),
        cmocka_unit_test(walks_and_removes_on_the_way),
        cmocka_unit_test(survives_every_failing_allocation),
        cmocka_unit_test(vec_grows_to_its_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
