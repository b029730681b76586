#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/strings.h"

#include <stdio.h>
#include <string.h>

static int set_up(void **state)
{
    static struct clp_strings s;
    *state = &s;
    return clp_strings_init(&s, 1 << 20);
}

static int tear_down(void **state)
{
    clp_strings_done(*state);
    return 0;
}

static struct clp_string *take(struct clp_strings *s, const char *text)
{
    return clp_strings_take(s, text, strlen(text));
}

static void keeps_each_text_once(void **state)
{
    struct clp_strings *s = *state;
    struct clp_string *a = take(s, "System.String"), *b = take(s, "System.String");
    assert_ptr_equal(a, b);
    assert_int_equal(a->uses, 2);
    assert_int_equal(s->count, 1);
    assert_memory_equal(a->text, "System.String", a->len);
    assert_ptr_not_equal(take(s, "System.Strin"), a);
    clp_strings_give(s, a);
    assert_ptr_equal(take(s, "System.String"), a);
}

static void texts_with_nul_are_told_apart(void **state)
{
    struct clp_strings *s = *state;
    assert_ptr_not_equal(clp_strings_take(s, "a\0b", 3), clp_strings_take(s, "a\0c", 3));
}

static void the_empty_text_is_nothing(void **state)
{
    struct clp_strings *s = *state;
    static char big[CLP_STRING_MAX_BYTES + 1];
    assert_null(take(s, ""));
    assert_null(clp_strings_take(s, big, sizeof(big)));
    assert_non_null(clp_strings_take(s, big, CLP_STRING_MAX_BYTES));
    assert_null(clp_strings_again(NULL));
    clp_strings_give(s, NULL);
}

/* Numbered names come and go for ever: the memory of the dead has to serve the living. */
static void memory_does_not_grow_with_churn(void **state)
{
    struct clp_strings *s = *state;
    struct clp_string *held[100] = {0};
    size_t after_first = 0;
    char text[400];
    for (unsigned i = 0; i < 100000; i++) {
        int n = snprintf(text, sizeof(text), "lambda_method%u%*s", i, (int)(i * 7 % 300), "");
        struct clp_string *e = clp_strings_take(s, text, (size_t)n);
        assert_non_null(e);
        clp_strings_give(s, held[i % 100]);
        held[i % 100] = e;
        if (i == 5000)
            after_first = clp_strings_bytes(s);
    }
    assert_int_equal(clp_strings_bytes(s), after_first);
    assert_int_equal(s->count, 100);
}

static void stops_at_its_ceiling_and_counts(void **state)
{
    struct clp_strings *s = *state;
    char text[64];
    unsigned i = 0;
    for (; i < 1000000; i++) {
        int n = snprintf(text, sizeof(text), "name %u", i);
        if (!clp_strings_take(s, text, (size_t)n))
            break;
    }
    assert_in_range(i, 10000, 40000);
    assert_true(s->arena.refused > 0);
    struct clp_string *known = take(s, "name 17");
    assert_non_null(known);
    assert_int_equal(known->uses, 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keeps_each_text_once),
        TEST(texts_with_nul_are_told_apart),
        TEST(the_empty_text_is_nothing),
        TEST(memory_does_not_grow_with_churn),
        TEST(stops_at_its_ceiling_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
