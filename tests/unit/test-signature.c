#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/signature.h"

#include <errno.h>
#include <string.h>

static void token_name(void *user, uint32_t token, unsigned depth, struct clp_text *out)
{
    (void)user;
    (void)depth;
    clp_text_add(out, "T");
    clp_text_hex(out, token);
}

static void address_name(void *user, uint64_t type, unsigned depth, struct clp_text *out)
{
    (void)user;
    (void)depth;
    clp_text_add(out, "@");
    clp_text_hex(out, type);
}

static const struct clp_signature_names names = {.token = token_name, .address = address_name};

static int parse(const void *sig, size_t len, char *buf, size_t cap)
{
    struct clp_text out = clp_text_in(buf, cap);
    return clp_signature_params(sig, len, &names, &out);
}

#define EXPECT(text, ...)                                                                          \
    do {                                                                                           \
        const uint8_t sig[] = {__VA_ARGS__};                                                       \
        char buf[256];                                                                             \
        assert_int_equal(parse(sig, sizeof(sig), buf, sizeof(buf)), 0);                            \
        assert_string_equal(buf, text);                                                            \
        for (size_t n = 0; n < sizeof(sig); n++)                                                   \
            assert_int_equal(parse(sig, n, buf, sizeof(buf)), -EBADMSG);                           \
    } while (0)

static void simple_types(void **state)
{
    (void)state;
    EXPECT("", 0x00, 0, 0x01);
    EXPECT("System.Int32,System.String", 0x20, 2, 0x01, 0x08, 0x0e);
    EXPECT("System.Object,System.IntPtr,System.UIntPtr,System.TypedReference", 0x00, 4, 0x02, 0x1c,
           0x18, 0x19, 0x16);
    EXPECT("System.Byte&,System.Void*,System.Char[][]", 0x00, 3, 0x01, 0x10, 0x05, 0x0f, 0x01, 0x1d,
           0x1d, 0x03);
}

static void named_types(void **state)
{
    (void)state;
    EXPECT("T2000001,T1000002,T1b000003", 0x00, 3, 0x01, 0x12, 0x04, 0x11, 0x09, 0x12, 0x0e);
    /* two and four byte tokens */
    EXPECT("T2000020", 0x00, 1, 0x01, 0x12, 0x80, 0x80);
    EXPECT("T2001000", 0x00, 1, 0x01, 0x12, 0xc0, 0x00, 0x40, 0x00);
}

static void generics(void **state)
{
    (void)state;
    EXPECT("!0,!!1", 0x10, 2, 2, 0x01, 0x13, 0, 0x1e, 1);
    EXPECT("T2000001[System.Int32,T1000001[!0]]", 0x00, 1, 0x01, 0x15, 0x12, 0x04, 2, 0x08, 0x15,
           0x11, 0x05, 1, 0x13, 0);
}

static void arrays_with_bounds(void **state)
{
    (void)state;
    EXPECT("System.Int32[,,]", 0x00, 1, 0x01, 0x14, 0x08, 3, 2, 5, 6, 1, 0);
    EXPECT("System.Int32[*]", 0x00, 1, 0x01, 0x14, 0x08, 1, 0, 0);
}

static void modifiers_say_nothing(void **state)
{
    (void)state;
    EXPECT("System.Int32&", 0x00, 1, 0x1f, 0x05, 0x01, 0x20, 0x09, 0x10, 0x1f, 0x0d, 0x08);
    EXPECT("System.Int32,System.Double", 0x05, 2, 0x01, 0x08, 0x41, 0x0d);
}

static void function_pointers(void **state)
{
    (void)state;
    EXPECT("System.Int32(System.Byte,System.Char),System.Object", 0x00, 2, 0x01, 0x1b, 0x00, 2,
           0x08, 0x05, 0x03, 0x1c);
}

/* In signatures of dynamic methods and IL stubs. */
static void types_by_address(void **state)
{
    (void)state;
    EXPECT("@7f0011223344", 0x00, 1, 0x01, 0x21, 0x44, 0x33, 0x22, 0x11, 0x00, 0x7f, 0, 0);
    EXPECT("@1[System.Int32]", 0x00, 1, 0x01, 0x15, 0x21, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0x08);
    EXPECT("System.Int32", 0x00, 1, 0x01, 0x22, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0x08);
}

/* The result is skipped without asking for names, however it is made up. */
static void the_result_is_not_shown(void **state)
{
    (void)state;
    EXPECT("System.Int32", 0x00, 1, 0x15, 0x12, 0x04, 2, 0x08, 0x1d, 0x0e, 0x08);
}

static void refuses_what_is_no_method(void **state)
{
    (void)state;
    char buf[64];
    const uint8_t field[] = {0x06, 0x08}, bad_token[] = {0x00, 1, 0x01, 0x12, 0x07};
    const uint8_t bad_number[] = {0x00, 0xff, 0x01}, unknown[] = {0x00, 1, 0x01, 0x3f};
    const uint8_t no_rank[] = {0x00, 1, 0x01, 0x14, 0x08, 0, 0, 0};
    assert_int_equal(parse(field, sizeof(field), buf, sizeof(buf)), -EBADMSG);
    assert_int_equal(parse(bad_token, sizeof(bad_token), buf, sizeof(buf)), -EBADMSG);
    assert_int_equal(parse(bad_number, sizeof(bad_number), buf, sizeof(buf)), -EBADMSG);
    assert_int_equal(parse(unknown, sizeof(unknown), buf, sizeof(buf)), -EBADMSG);
    assert_int_equal(parse(no_rank, sizeof(no_rank), buf, sizeof(buf)), -EBADMSG);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    uint8_t sig[4000] = {0x00, 1, 0x01};
    char buf[64];
    memset(sig + 3, 0x1d, sizeof(sig) - 4);
    sig[sizeof(sig) - 1] = 0x08;
    assert_int_equal(parse(sig, sizeof(sig), buf, sizeof(buf)), -EBADMSG);
}

static void a_full_text_is_cut_and_ends_the_work(void **state)
{
    (void)state;
    uint8_t sig[4003] = {0x00, 0x8f, 0xa0, 0x01};
    char buf[40];
    memset(sig + 4, 0x0e, sizeof(sig) - 4);
    struct clp_text out = clp_text_in(buf, sizeof(buf));
    assert_int_equal(clp_signature_params(sig, sizeof(sig), &names, &out), 0);
    assert_true(out.cut);
    assert_int_equal(strlen(buf), sizeof(buf) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_types),
        cmocka_unit_test(named_types),
        cmocka_unit_test(generics),
        cmocka_unit_test(arrays_with_bounds),
        cmocka_unit_test(modifiers_say_nothing),
        cmocka_unit_test(function_pointers),
        cmocka_unit_test(types_by_address),
        cmocka_unit_test(the_result_is_not_shown),
        cmocka_unit_test(refuses_what_is_no_method),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(a_full_text_is_cut_and_ends_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
