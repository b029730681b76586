#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/slots.h"

#include <string.h>

struct item {
    uint32_t link;
    uint32_t value;
    uint64_t more;
};

static void numbers_from_one_and_keeps_addresses(void **state)
{
    (void)state;
    static struct clp_slots s;
    struct item *seen[5000];
    clp_slots_init(&s, sizeof(struct item), 64, 5000);
    for (uint32_t i = 1; i <= 5000; i++) {
        assert_int_equal(clp_slots_take(&s), i);
        seen[i - 1] = clp_slots_at(&s, i);
        assert_int_equal(seen[i - 1]->value, 0);
        seen[i - 1]->value = i;
    }
    for (uint32_t i = 1; i <= 5000; i++) {
        assert_ptr_equal(clp_slots_at(&s, i), seen[i - 1]);
        assert_int_equal(seen[i - 1]->value, i);
    }
    assert_true(clp_slots_bytes(&s) >= 5000 * sizeof(struct item));
    clp_slots_done(&s);
    assert_int_equal(clp_slots_bytes(&s), 0);
}

static void uses_freed_entries_again_zeroed(void **state)
{
    (void)state;
    static struct clp_slots s;
    clp_slots_init(&s, sizeof(struct item), 64, 1000);
    for (uint32_t i = 1; i <= 100; i++)
        memset(clp_slots_at(&s, clp_slots_take(&s)), 0xff, sizeof(struct item));
    clp_slots_give(&s, 40);
    clp_slots_give(&s, 60);
    struct item *gone = clp_slots_at(&s, 60);
    assert_int_equal(gone->value, 0);
    assert_int_equal(gone->more, 0);
    assert_int_equal(s.used, 98);
    assert_int_equal(clp_slots_take(&s), 60);
    assert_int_equal(clp_slots_take(&s), 40);
    struct item *again = clp_slots_at(&s, 40);
    assert_int_equal(again->link, 0);
    assert_int_equal(again->more, 0);
    assert_int_equal(clp_slots_take(&s), 101);
    clp_slots_done(&s);
}

static void refuses_at_the_ceiling_and_counts(void **state)
{
    (void)state;
    static struct clp_slots s;
    clp_slots_init(&s, sizeof(struct item), 16, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_not_equal(clp_slots_take(&s), 0);
    assert_int_equal(clp_slots_take(&s), 0);
    assert_int_equal(clp_slots_take(&s), 0);
    assert_int_equal(s.refused, 2);
    clp_slots_give(&s, 7);
    assert_int_equal(clp_slots_take(&s), 7);
    clp_slots_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_from_one_and_keeps_addresses),
        cmocka_unit_test(uses_freed_entries_again_zeroed),
        cmocka_unit_test(refuses_at_the_ceiling_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
