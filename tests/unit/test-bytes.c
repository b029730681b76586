#include "tests/unit/clp-cmocka.h"

#include "base/core/bytes.h"

static void numbers_are_little_endian(void **state)
{
    (void)state;
    const uint8_t raw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct clp_bytes b = clp_bytes_of(raw, sizeof(raw));
    assert_int_equal(clp_bytes_u8(&b), 1);
    assert_int_equal(clp_bytes_u16(&b), 0x0302);
    assert_int_equal(clp_bytes_u32(&b), 0x07060504);
    assert_true(clp_bytes_u64(&b) == 0x0f0e0d0c0b0a0908ull);
    assert_int_equal(clp_bytes_left(&b), 0);
    assert_false(b.bad);
}

static void reading_past_the_end_is_sticky(void **state)
{
    (void)state;
    const uint8_t raw[] = {1, 2, 3};
    struct clp_bytes b = clp_bytes_of(raw, sizeof(raw));
    assert_int_equal(clp_bytes_u32(&b), 0);
    assert_true(b.bad);
    assert_int_equal(clp_bytes_u8(&b), 0);
    assert_null(clp_bytes_take(&b, 0));
}

static void varints(void **state)
{
    (void)state;
    const uint8_t raw[] = {0xe5, 0x8e, 0x26, 0x7f, 0x80, 0x7f, 0xff, 0x00};
    struct clp_bytes b = clp_bytes_of(raw, sizeof(raw));
    assert_int_equal(clp_bytes_uleb(&b), 624485);
    assert_int_equal(clp_bytes_sleb(&b), -1);
    assert_int_equal(clp_bytes_sleb(&b), -128);
    assert_int_equal(clp_bytes_sleb(&b), 127);
    assert_false(b.bad);

    const uint8_t longest[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    b = clp_bytes_of(longest, sizeof(longest));
    assert_true(clp_bytes_uleb(&b) == UINT64_MAX);
    const uint8_t endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};
    b = clp_bytes_of(endless, sizeof(endless));
    assert_int_equal(clp_bytes_uleb(&b), 0);
    assert_true(b.bad);
}

static void strings_must_end(void **state)
{
    (void)state;
    const uint8_t raw[] = {'a', 'b', 0, 'c'};
    struct clp_bytes b = clp_bytes_of(raw, sizeof(raw));
    assert_string_equal(clp_bytes_cstr(&b), "ab");
    assert_null(clp_bytes_cstr(&b));
    assert_true(b.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(reading_past_the_end_is_sticky),
        cmocka_unit_test(varints),
        cmocka_unit_test(strings_must_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
