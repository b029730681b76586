#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/compiler_from.h"

#include <string.h>

static void expect(const char *name, const char *member)
{
    uint16_t units[128];
    char got[128];
    uint32_t len = (uint32_t)strlen(name);
    const uint16_t *from;
    for (uint32_t i = 0; i < len; i++)
        units[i] = (uint8_t)name[i];
    uint32_t n = clp_compiler_made_from(units, len, &from);
    assert_in_range(n, 0, len);
    for (uint32_t i = 0; i < n; i++)
        got[i] = (char)from[i];
    got[n] = '\0';
    assert_string_equal(got, member);
}

static void finds_the_member(void **state)
{
    (void)state;
    expect("<Run>d__12", "Run");
    expect("<Run>b__0_1", "Run");
    expect("<Run>g__Local|3_0", "Run");
    expect("<<Run>b__0_0>d", "Run");
    expect("<<<Run>g__L|0_0>b__1>d", "Run");
    expect("<System.Collections.Generic.IEnumerable<T>.GetEnumerator>d__2",
           "System.Collections.Generic.IEnumerable<T>.GetEnumerator");
    expect("<Main>$", "Main");
}

static void leaves_the_rest_alone(void **state)
{
    (void)state;
    expect("Run", "");
    expect("", "");
    expect("<>c", "");
    expect("<>c__DisplayClass1_0", "");
    expect("<Run", "");
    expect("<", "");
    expect("<<Run>", "");
    expect(".ctor", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_member),
        cmocka_unit_test(leaves_the_rest_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
