/* Which types are told by name: the heaviest, whenever they came, with their exact counts. */
#include "agent/type_counts.h"

#include "tests/unit/alloc-fail.h"
#include "tests/unit/clp-cmocka.h"

#include <stdio.h>
#include <string.h>

static void add_many(struct clp_type_counts *c, unsigned types, double n)
{
    for (unsigned i = 0; i < types; i++) {
        char name[32];
        snprintf(name, sizeof(name), "System.Early%04uException", i);
        clp_type_counts_add(c, name, n);
    }
}

static double sum(const struct clp_type_counts_top *t)
{
    double all = t->others;
    for (size_t i = 0; i < t->count; i++)
        all += t->of[i].n;
    return all;
}

static void a_heavy_type_that_comes_late(void **state)
{
    (void)state;
    struct clp_type_counts c = {0};
    struct clp_type_counts_top top;
    add_many(&c, 200, 2);
    for (unsigned i = 0; i < 50; i++)
        clp_type_counts_add(&c, "LateException", 1);
    clp_type_counts_top(&c, &top);
    assert_int_equal(top.count, CLP_TYPE_COUNTS_SHOWN);
    assert_string_equal(top.of[0].name, "LateException");
    assert_true(top.of[0].n == 50);
    assert_string_equal(top.of[1].name, "System.Early0000Exception");
    assert_string_equal(top.of[23].name, "System.Early0022Exception");
    assert_true(top.others == 2 * (200 - 23));
    clp_type_counts_done(&c);
}

static void what_grows_overtakes(void **state)
{
    (void)state;
    struct clp_type_counts c = {0};
    struct clp_type_counts_top top;
    clp_type_counts_add(&c, "A", 3);
    clp_type_counts_add(&c, "B", 2);
    clp_type_counts_add(&c, "B", 2);
    clp_type_counts_top(&c, &top);
    assert_int_equal(top.count, 2);
    assert_string_equal(top.of[0].name, "B");
    assert_string_equal(top.of[1].name, "A");
    assert_true(top.of[0].n == 4 && top.of[1].n == 3 && top.others == 0);
    clp_type_counts_done(&c);
}

static void windows_add_up(void **state)
{
    (void)state;
    struct clp_type_counts all = {0};
    struct clp_type_counts_top top;
    for (unsigned window = 0; window < 3; window++) {
        struct clp_type_counts c = {0};
        add_many(&c, 100, 1);
        clp_type_counts_add(&c, window == 2 ? "LateException" : "", 1000);
        clp_type_counts_add_all(&all, &c);
        clp_type_counts_done(&c);
    }
    clp_type_counts_top(&all, &top);
    assert_string_equal(top.of[0].name, "LateException");
    assert_true(top.of[1].n == 3);
    assert_true(top.others == 2000 + 3 * (100 - 23));
    clp_type_counts_done(&all);
    clp_type_counts_top(&all, &top);
    assert_true(top.count == 0 && top.others == 0);
}

static void nothing_is_lost_beyond_the_ceiling(void **state)
{
    (void)state;
    struct clp_type_counts c = {0};
    struct clp_type_counts_top top;
    add_many(&c, CLP_TYPE_COUNTS_MAX + 10, 1);
    clp_type_counts_add(&c, "System.Early0001Exception", 5);
    clp_type_counts_top(&c, &top);
    assert_true(top.of[0].n == 6);
    assert_true(sum(&top) == CLP_TYPE_COUNTS_MAX + 15);
    clp_type_counts_done(&c);
}

/* Many targets share the agent's memory: each keeps fewer names, and what it has already. */
static void a_share_has_room_for_fewer_types(void **state)
{
    (void)state;
    struct clp_type_counts c = {0};
    struct clp_type_counts_top top;
    clp_type_counts_set_share(&c, 64);
    add_many(&c, 1000, 1);
    assert_int_equal(c.by_name.len, CLP_TYPE_COUNTS_MAX / 64);
    clp_type_counts_set_share(&c, 1000);
    clp_type_counts_add(&c, "System.Early0001Exception", 5);
    clp_type_counts_add(&c, "LateException", 7);
    assert_int_equal(c.by_name.len, CLP_TYPE_COUNTS_MAX / 64);
    clp_type_counts_top(&c, &top);
    assert_true(top.of[0].n == 6);
    assert_true(sum(&top) == 1012);
    clp_type_counts_done(&c);
    clp_type_counts_set_share(&c, 1000);
    add_many(&c, 1000, 1);
    assert_int_equal(c.by_name.len, CLP_TYPE_COUNTS_SHOWN);
    clp_type_counts_done(&c);
}

static void nothing_is_lost_without_memory(void **state)
{
    (void)state;
    for (unsigned allowed = 0; allowed < 40; allowed++) {
        struct clp_type_counts c = {0};
        struct clp_type_counts_top top;
        alloc_fail_after(allowed, allowed % 2);
        add_many(&c, 20, 1);
        uint64_t failed = alloc_fail_stop();
        clp_type_counts_top(&c, &top);
        assert_true(sum(&top) == 20);
        assert_true(allowed > 0 || failed > 0);
        clp_type_counts_done(&c);
    }
}

static void long_names_are_cut_where_a_character_ends(void **state)
{
    (void)state;
    struct clp_type_counts c = {0};
    struct clp_type_counts_top top;
    char name[300];
    for (unsigned i = 0; i < sizeof(name) - 2; i += 2)
        memcpy(name + i, "\xd0\x96", 3);
    clp_type_counts_add(&c, name, 1);
    clp_type_counts_top(&c, &top);
    assert_int_equal(strlen(top.of[0].name), 118);
    clp_type_counts_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heavy_type_that_comes_late),
        cmocka_unit_test(what_grows_overtakes),
        cmocka_unit_test(windows_add_up),
        cmocka_unit_test(nothing_is_lost_beyond_the_ceiling),
        cmocka_unit_test(a_share_has_room_for_fewer_types),
        cmocka_unit_test(nothing_is_lost_without_memory),
        cmocka_unit_test(long_names_are_cut_where_a_character_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
