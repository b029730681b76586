#include "tests/unit/profile-fixture.h"

#include "pprof/top.h"

#include <errno.h>

static void assert_row(const struct clp_top *t, size_t at, const char *name, int64_t flat,
                       int64_t cum)
{
    assert_true(at < t->count);
    assert_string_equal(t->rows[at].name, name);
    assert_int_equal(t->rows[at].flat, flat);
    assert_int_equal(t->rows[at].cum, cum);
}

static void flat_is_the_leaf_and_cum_counts_once(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    struct clp_top t;
    add_cpu(p, "Work;Main", 10);
    add_cpu(p, "Work;Work;Work;Main", 5);
    add_cpu(p, "Idle;Main", 2);
    add_cpu(p, "Main", 2);
    add_cpu(p, "Nothing;Main", 0);
    assert_int_equal(clp_top_make(p, 0, &t), 0);
    assert_int_equal(t.total, 19);
    assert_string_equal(t.type, "cpu");
    assert_string_equal(t.unit, "nanoseconds");
    assert_int_equal(t.count, 3);
    assert_row(&t, 0, "Work", 15, 15);
    assert_row(&t, 1, "Main", 2, 19);
    assert_row(&t, 2, "Idle", 2, 2);
    clp_top_done(&t);
    assert_int_equal(clp_top_make(p, 1, &t), -EINVAL);
    clp_profile_free(p);
}

static void inlined_lines_and_equal_names(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    struct clp_top t;
    struct clp_profile_line lines[] = {
        {clp_profile_function(p, &(struct clp_profile_function){.name = "F", .filename = "a"}), 1},
        {clp_profile_function(p, &(struct clp_profile_function){.name = "G"}), 2}};
    uint32_t l = clp_profile_location(p, &(struct clp_profile_location){0, 0, lines, 2});
    clp_profile_add(p, clp_profile_stack(p, &l, 1), 0, (double[]){3});
    add_cpu(p, "F", 4);
    assert_int_equal(clp_top_make(p, 0, &t), 0);
    assert_int_equal(t.count, 2);
    assert_row(&t, 0, "F", 7, 7);
    assert_row(&t, 1, "G", 0, 3);
    clp_top_done(&t);
    clp_profile_free(p);
}

static void idle_threads_are_left_out(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    struct clp_top t;
    struct clp_profile_label wait = {.key = "wait", .str = "idle"};
    uint32_t idle = clp_profile_labels(p, &wait, 1);
    wait.str = "lock";
    uint32_t lock = clp_profile_labels(p, &wait, 1);
    clp_profile_add(p, stack_of(p, "Wait;Worker"), idle, (double[]){900});
    clp_profile_add(p, stack_of(p, "Wait;Main"), lock, (double[]){40});
    add_cpu(p, "Work;Main", 10);
    assert_int_equal(clp_top_make(p, 0, &t), 0);
    assert_int_equal(t.count, 3);
    assert_row(&t, 0, "Wait", 40, 40);
    assert_int_equal(t.total, 50);
    assert_int_equal(t.idle, 900);
    clp_top_done(&t);
    assert_int_equal(clp_top_make_all(p, 0, &t), 0);
    assert_row(&t, 0, "Wait", 940, 940);
    assert_int_equal(t.total, 950);
    assert_int_equal(t.idle, 0);
    clp_top_done(&t);
    clp_profile_free(p);
}

static void prints_readable_units(void **state)
{
    (void)state;
    struct clp_profile *p = wide_profile();
    struct clp_top t;
    char *out = NULL;
    size_t len = 0;
    clp_profile_add(p, stack_of(p, "Ns.A\x1b[2J;Main"), 0, (double[]){7, 3 << 20, 1500000000});
    clp_profile_add(p, stack_of(p, "B;Main"), 0, (double[]){1, 100, 500000000});
    for (size_t value = 0; value < 3; value++) {
        FILE *f = open_memstream(&out, &len);
        assert_int_equal(clp_top_make(p, value, &t), 0);
        assert_int_equal(clp_top_print(&t, f, 2), 0);
        (void)fclose(f);
        const char *want[] = {
            "alloc_objects:           8 in all\n"
            "       flat   flat%         cum    cum%  function\n"
            "          7  87.50%           7  87.50%  Ns.A?[2J\n"
            "          1  12.50%           1  12.50%  B\n",
            "alloc_space:     3.00MiB in all\n"
            "       flat   flat%         cum    cum%  function\n"
            "    3.00MiB 100.00%     3.00MiB 100.00%  Ns.A?[2J\n"
            "        100   0.00%         100   0.00%  B\n",
            "cpu:       2.00s in all\n"
            "       flat   flat%         cum    cum%  function\n"
            "      1.50s  75.00%       1.50s  75.00%  Ns.A?[2J\n"
            "   500.00ms  25.00%    500.00ms  25.00%  B\n",
        };
        assert_string_equal(out, want[value]);
        free(out);
        clp_top_done(&t);
    }
    FILE *full = fopen("/dev/full", "w");
    assert_int_equal(clp_top_make(p, 0, &t), 0);
    assert_int_equal(clp_top_print(&t, full, 5), -EIO);
    (void)fclose(full);
    clp_top_done(&t);
    clp_profile_free(p);
}

static void an_empty_profile_has_an_empty_table(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    struct clp_top t;
    assert_int_equal(clp_top_make(p, 0, &t), 0);
    assert_int_equal(t.count, 0);
    assert_int_equal(t.total, 0);
    clp_top_done(&t);
    clp_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_is_the_leaf_and_cum_counts_once),
        cmocka_unit_test(inlined_lines_and_equal_names),
        cmocka_unit_test(idle_threads_are_left_out),
        cmocka_unit_test(prints_readable_units),
        cmocka_unit_test(an_empty_profile_has_an_empty_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
