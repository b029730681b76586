#include "tests/unit/clp-cmocka.h"

#include "base/core/core.h"
#include "tests/snapshot/compare.h"

#include <string.h>

static void expect(const uint32_t *truth, uint32_t n, const uint32_t *ours, uint32_t m,
                   uint32_t missing, uint32_t invented)
{
    struct clp_comparison c = clp_compare(truth, n, ours, m);
    assert_int_equal(c.missing, missing);
    assert_int_equal(c.invented, invented);
}

static void equal_lists(void **state)
{
    (void)state;
    const uint32_t list[] = {7, 8, 7, 9};
    expect(list, 4, list, 4, 0, 0);
    expect(list, 0, list, 0, 0, 0);
    expect(list, 1, list, 1, 0, 0);
}

static void one_frame_wrong(void **state)
{
    (void)state;
    const uint32_t truth[] = {1, 2, 3, 4, 5};
    const uint32_t missing[] = {1, 2, 4, 5}, invented[] = {1, 2, 9, 3, 4, 5};
    const uint32_t other[] = {1, 2, 9, 4, 5}, swapped[] = {1, 3, 2, 4, 5};
    expect(truth, 5, missing, 4, 1, 0);
    expect(truth, 5, invented, 6, 0, 1);
    expect(truth, 5, other, 5, 1, 1);
    expect(truth, 5, swapped, 5, 1, 1);
}

static void ends_are_lost(void **state)
{
    (void)state;
    const uint32_t truth[] = {1, 2, 3, 4, 5};
    expect(truth, 5, truth, 2, 3, 0);
    expect(truth, 5, truth + 3, 2, 3, 0);
    expect(truth, 5, truth, 0, 5, 0);
    expect(truth, 0, truth, 5, 0, 5);
}

/* A recursion that is one short must not be found whole. */
static void recursion(void **state)
{
    (void)state;
    uint32_t truth[902], ours[901];
    for (uint32_t i = 0; i < CLP_ARRAY_LEN(truth); i++)
        truth[i] = i == 0 || i == 901 ? i + 10 : 1;
    memcpy(ours, truth, 900 * sizeof(*ours));
    ours[900] = truth[901];
    expect(truth, 902, ours, 901, 1, 0);
    expect(ours, 901, truth, 902, 0, 1);
}

static void folding(void **state)
{
    (void)state;
    uint32_t list[] = {1, 1, 2, 1, 3, 3, 3};
    const uint32_t want[] = {1, 2, 1, 3};
    assert_int_equal(clp_compare_fold(list, 7), 4);
    assert_memory_equal(list, want, sizeof(want));
    assert_int_equal(clp_compare_fold(list, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_lists),   cmocka_unit_test(one_frame_wrong),
        cmocka_unit_test(ends_are_lost), cmocka_unit_test(recursion),
        cmocka_unit_test(folding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
