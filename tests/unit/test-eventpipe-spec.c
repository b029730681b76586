#include "tests/unit/clp-cmocka.h"

#include "agent/eventpipe_spec.h"

#include <errno.h>
#include <string.h>

static struct clp_spec spec;
static struct clp_fault fault;

static void what_dotnet_trace_takes(void **state)
{
    (void)state;
    assert_int_equal(
        clp_spec_parse("A,B:0x8000:2,C:ff:Verbose:x=1;y=\"a,b;c:d\",D::critical,E:::k=v", &spec,
                       &fault),
        0);
    assert_int_equal(spec.count, 5);
    assert_string_equal(spec.providers[0].name, "A");
    assert_true(spec.providers[0].keywords == UINT64_MAX);
    assert_int_equal(spec.providers[0].level, 5);
    assert_null(spec.providers[0].arguments);
    assert_int_equal(spec.providers[1].keywords, 0x8000);
    assert_int_equal(spec.providers[1].level, 2);
    assert_int_equal(spec.providers[2].keywords, 0xff);
    assert_int_equal(spec.providers[2].level, 5);
    assert_string_equal(spec.providers[2].arguments, "x=1;y=\"a,b;c:d\"");
    assert_int_equal(spec.providers[3].level, 1);
    assert_string_equal(spec.providers[4].arguments, "k=v");
    assert_int_equal(spec.providers[4].level, 5);
}

static void what_is_wrong_is_said(void **state)
{
    static char longer[CLP_SPEC_BYTES + 1], many[200];
    static const struct {
        const char *list, *word;
    } bad[] = {
        {"", "without a name"},   {"A,,B", "without a name"},
        {":1", "without a name"}, {"A:xyz", "xyz"},
        {"A:0x", "0x"},           {"A:1:9", "'9' is no level"},
        {"A:1:loud", "'loud'"},   {"A:11112222333344445", "hexadecimal"},
    };
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(bad); i++) {
        assert_int_equal(clp_spec_parse(bad[i].list, &spec, &fault), -EINVAL);
        assert_non_null(strstr(fault.text, bad[i].word));
    }
    memset(longer, 'x', sizeof(longer) - 1);
    assert_int_equal(clp_spec_parse(longer, &spec, &fault), -EINVAL);
    for (size_t i = 0; i + 1 < 2 * (CLP_IPC_PROVIDERS_MAX + 1); i++)
        many[i] = i % 2 ? ',' : 'P';
    assert_int_equal(clp_spec_parse(many, &spec, &fault), -EINVAL);
    assert_non_null(strstr(fault.text, "more than 32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_dotnet_trace_takes),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
