#include "tests/unit/clp-cmocka.h"

#include "base/core/text.h"

#include <string.h>

static void cuts_on_a_character_boundary(void **state)
{
    (void)state;
    char buf[6];
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    clp_text_add(&t, "abc\xc3\xa9\xc3\xa9");
    assert_true(t.cut);
    assert_string_equal(buf, "abc\xc3\xa9");
    clp_text_char(&t, 'x');
    assert_string_equal(buf, "abc\xc3\xa9");
    assert_int_equal(clp_text_whole("abc\xc3\xa9\xc3\xa9", 6), 5);
    assert_int_equal(clp_text_whole("abc\xc3\xa9", 5), 5);
    assert_int_equal(clp_text_whole("\xc3\xa9", 1), 0);
    assert_int_equal(clp_text_whole("", 0), 0);
}

static void numbers(void **state)
{
    (void)state;
    char buf[64];
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    clp_text_dec(&t, 0);
    clp_text_char(&t, ' ');
    clp_text_dec(&t, UINT64_MAX);
    clp_text_char(&t, ' ');
    clp_text_hex(&t, 0xdeadbeef);
    assert_string_equal(buf, "0 18446744073709551615 deadbeef");
}

static void utf16_with_lone_surrogates(void **state)
{
    (void)state;
    const uint16_t units[] = {'a', 0xd83d, 0xde00, 0xd83d, 'b', 0xdc00};
    char buf[64];
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    clp_text_utf16(&t, units, 6);
    assert_string_equal(buf, "a\xf0\x9f\x98\x80\xef\xbf\xbd"
                             "b\xef\xbf\xbd");
}

static void invalid_utf8_is_replaced(void **state)
{
    (void)state;
    char buf[64];
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    const char bad[] = "x\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80y\xc3";
    clp_text_utf8_clean(&t, bad, sizeof(bad) - 1);
    const char *r = "\xef\xbf\xbd";
    char want[64] = "x";
    for (int i = 0; i < 9; i++)
        strcat(want, r);
    strcat(want, "y");
    strcat(want, r);
    assert_string_equal(buf, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_on_a_character_boundary),
        cmocka_unit_test(numbers),
        cmocka_unit_test(utf16_with_lone_surrogates),
        cmocka_unit_test(invalid_utf8_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
