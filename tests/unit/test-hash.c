#include "tests/unit/clp-cmocka.h"

#include "base/hash.h"

#include <string.h>

/* Python 3.11 and later hash bytes by SipHash-1-3; with PYTHONHASHSEED=0 its key is zero, which
 * makes PYTHONHASHSEED=0 python3 -c 'print(hex(hash(b"abc") & (2**64-1)))' an independent
 * implementation. */
static void agrees_with_another_implementation(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } vectors[] = {
        {"a", 0x407448d2b89b1813ull},
        {"abc", 0xc03bc3a0042630f2ull},
        {"sevenby", 0x86c012e2349440ceull},
        {"eightbyt", 0xe281285510e568f4ull},
        {"nine byte", 0xbf1900b61a2cf12cull},
        {"System.Collections.Generic.List`1[System.String]", 0x23fd7e95e06f2cf7ull},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(vectors); i++)
        assert_true(clp_hash_bytes_keyed(vectors[i].text, strlen(vectors[i].text), 0, 0) ==
                    vectors[i].want);
}

static void the_key_changes_everything(void **state)
{
    (void)state;
    uint64_t a = clp_hash_bytes_keyed("abc", 3, 1, 2);
    assert_true(a != clp_hash_bytes_keyed("abc", 3, 1, 3));
    assert_true(a != clp_hash_bytes_keyed("abc", 3, 2, 2));
    assert_true(clp_hash_bytes("abc", 3) != clp_hash_bytes_keyed("abc", 3, 0, 0));
}

static void is_the_same_throughout_the_process(void **state)
{
    (void)state;
    uint64_t v = 5;
    assert_true(clp_hash_u64(5) == clp_hash_bytes(&v, sizeof(v)));
    assert_true(clp_hash_u64(5) != clp_hash_u64(6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_another_implementation),
        cmocka_unit_test(the_key_changes_everything),
        cmocka_unit_test(is_the_same_throughout_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
