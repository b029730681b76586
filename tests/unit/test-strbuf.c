#include "tests/unit/clp-cmocka.h"

#include "base/cleanup.h"
#include "base/strbuf.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <string.h>

static void an_empty_one_is_a_text(void **state)
{
    (void)state;
    struct clp_strbuf b;
    clp_strbuf_init(&b, 10);
    assert_string_equal(clp_strbuf_text(&b), "");
    char *s = NULL;
    size_t len = 99;
    assert_int_equal(clp_strbuf_take(&b, &s, &len), 0);
    assert_string_equal(s, "");
    assert_int_equal(len, 0);
    free(s);
}

static void adds_up_to_the_ceiling(void **state)
{
    (void)state;
    struct clp_strbuf b;
    clp_strbuf_init(&b, 8);
    clp_strbuf_str(&b, "abc");
    clp_strbuf_printf(&b, "%d", 12345);
    assert_int_equal(clp_strbuf_error(&b), 0);
    assert_string_equal(clp_strbuf_text(&b), "abc12345");
    clp_strbuf_char(&b, 'x');
    assert_int_equal(clp_strbuf_error(&b), -ENOBUFS);
    assert_string_equal(clp_strbuf_text(&b), "abc12345");
    char *s = NULL;
    assert_int_equal(clp_strbuf_take(&b, &s, NULL), -ENOBUFS);
    assert_null(s);
    clp_strbuf_reset(&b);
    clp_strbuf_str(&b, "again");
    assert_int_equal(clp_strbuf_error(&b), 0);
    assert_string_equal(clp_strbuf_text(&b), "again");
    clp_strbuf_done(&b);
}

static void a_failure_sticks(void **state)
{
    (void)state;
    struct clp_strbuf b;
    clp_strbuf_init(&b, 4);
    clp_strbuf_str(&b, "12345");
    clp_strbuf_str(&b, "1");
    assert_int_equal(clp_strbuf_error(&b), -ENOBUFS);
    assert_string_equal(clp_strbuf_text(&b), "");
    clp_strbuf_done(&b);
}

static void keeps_nul_bytes(void **state)
{
    (void)state;
    struct clp_strbuf b;
    clp_strbuf_init(&b, 1000);
    for (int i = 0; i < 250; i++)
        clp_strbuf_add(&b, "a\0b", 3);
    char *s = NULL;
    size_t len = 0;
    assert_int_equal(clp_strbuf_take(&b, &s, &len), 0);
    assert_int_equal(len, 750);
    assert_memory_equal(s + 747, "a\0b", 4);
    free(s);
}

static void assert_json(const char *s, size_t len, const char *want)
{
    struct clp_strbuf b;
    clp_strbuf_init(&b, 1 << 16);
    clp_strbuf_json(&b, s, len);
    assert_string_equal(clp_strbuf_text(&b), want);
    clp_strbuf_done(&b);
}

static void quotes_json(void **state)
{
    (void)state;
    assert_json("", 0, "\"\"");
    assert_json("a\"b\\c\n\t\x01\x7f", 9, "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
    assert_json("x\0y", 3, "\"x\\u0000y\"");
    assert_json("\xc3\xa9\xff", 3, "\"\xc3\xa9\xef\xbf\xbd\"");
}

static void json_keeps_characters_whole_at_any_offset(void **state)
{
    (void)state;
    for (size_t pad = 250; pad < 260; pad++) {
        char in[300], want[310];
        memset(in, 'a', pad);
        memcpy(in + pad, "\xf0\x9f\x98\x80z", 5);
        want[0] = '"';
        memcpy(want + 1, in, pad + 5);
        memcpy(want + pad + 6, "\"", 2);
        assert_json(in, pad + 5, want);
    }
}

static void no_memory_is_an_error_that_sticks(void **state)
{
    (void)state;
    struct clp_strbuf b;
    clp_strbuf_init(&b, 1 << 20);
    clp_strbuf_str(&b, "kept");
    char big[500];
    memset(big, 'x', sizeof(big));
    alloc_fail_after(0, 0);
    clp_strbuf_add(&b, big, sizeof(big));
    assert_int_equal(alloc_fail_stop(), 1);
    assert_int_equal(clp_strbuf_error(&b), -ENOMEM);
    clp_strbuf_str(&b, "y");
    assert_string_equal(clp_strbuf_text(&b), "kept");
    clp_strbuf_done(&b);
}

static void take_hands_over_and_cleanup_frees_nothing(void **state)
{
    (void)state;
    char *out;
    {
        CLP_CLEANUP(clp_cleanup_free) char *p = strdup("mine");
        out = CLP_TAKE(p);
        assert_null(p);
    }
    assert_string_equal(out, "mine");
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_is_a_text),
        cmocka_unit_test(adds_up_to_the_ceiling),
        cmocka_unit_test(a_failure_sticks),
        cmocka_unit_test(keeps_nul_bytes),
        cmocka_unit_test(quotes_json),
        cmocka_unit_test(json_keeps_characters_whole_at_any_offset),
        cmocka_unit_test(no_memory_is_an_error_that_sticks),
        cmocka_unit_test(take_hands_over_and_cleanup_frees_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
