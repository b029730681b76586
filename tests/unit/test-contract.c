#include "sampler/inproc/contract.h"

#include "tests/unit/clp-cmocka.h"

#include <errno.h>
#include <string.h>

/* The parts that matter of what .NET 9.0.20 and 10.0.12 say, as they say it. */
#define HEAD "{\"version\":0,\"baseline\":\"empty\",\"types\":{"
#define THREAD                                                                                     \
    "\"Thread\":{\"Id\":16,\"OSId\":296,\"RuntimeThreadLocals\":32,\"GCHandle\":[304,"             \
    "\"GCHandle\"]"                                                                                \
    ",\"LinkNext\":[112,\"pointer\"]},"
#define CONTEXT "\"GCAllocContext\":{\"Pointer\":0,\"Limit\":8}"
#define TAIL                                                                                       \
    "},\"globals\":{\"AppDomain\":[[1],\"pointer\"],\"text\":[\"}\\\"]\",\"string\"]},"            \
    "\"contracts\":{\"Loader\":1,\"Thread\":1}}"

static const char net9[] =
    HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":[0,\"AllocContext\"]}," CONTEXT TAIL;
static const char net10[] =
    HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":0},"
                "\"EEAllocContext\":{\"GCAllocationContext\":8}," CONTEXT TAIL;

static int parse(const char *json, struct clp_contract *ret)
{
    *ret = (struct clp_contract){1, 2, 3};
    return clp_contract_parse(json, strlen(json), ret);
}

static void test_of_9_and_10(void **state)
{
    struct clp_contract c;
    (void)state;
    assert_int_equal(parse(net9, &c), 0);
    assert_int_equal(c.os_id, 296);
    assert_int_equal(c.locals, 32);
    assert_int_equal(c.context, 0);
    assert_int_equal(parse(net10, &c), 0);
    assert_int_equal(c.os_id, 296);
    assert_int_equal(c.locals, 32);
    assert_int_equal(c.context, 8);
}

static void test_white_space_and_order_do_not_matter(void **state)
{
    static const char json[] =
        " { \"contracts\" : { \"Thread\" : 1 } ,\n\t\"types\": { \"GCAllocContext\" : {\"Limit\": "
        "24 , \"Pointer\":16 }, \"RuntimeThreadLocals\":{ \"AllocContext\" : [ 40 , \"x\" ] },"
        "\"Thread\":{\"RuntimeThreadLocals\":1,\"OSId\" : 2 }}, \"baseline\":\"empty\", "
        "\"version\": 0 } ";
    struct clp_contract c;
    (void)state;
    assert_int_equal(parse(json, &c), 0);
    assert_int_equal(c.os_id, 2);
    assert_int_equal(c.locals, 1);
    assert_int_equal(c.context, 56);
}

static void test_what_is_not_known_is_refused(void **state)
{
    static const char *const others[] = {
        "{}",
        "{\"version\":0}",
        "{\"version\":1,\"baseline\":\"empty\",\"types\":{" THREAD
        "\"RuntimeThreadLocals\":{\"AllocContext\":0}," CONTEXT TAIL,
        "{\"version\":0,\"baseline\":\"net10\",\"types\":{" THREAD
        "\"RuntimeThreadLocals\":{\"AllocContext\":0}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":-8}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":99999999999}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":\"8\"}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":8.5}," CONTEXT TAIL,
        HEAD THREAD
        "\"RuntimeThreadLocals\":{\"AllocContext\":0},\"EEAllocContext\":{}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":0},"
                    "\"GCAllocContext\":{\"Pointer\":0,\"Limit\":16}" TAIL,
        HEAD "\"RuntimeThreadLocals\":{\"AllocContext\":0}," CONTEXT TAIL,
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":0}," CONTEXT
                    "},\"contracts\":{\"Thread\":2}}",
        HEAD THREAD "\"RuntimeThreadLocals\":{\"AllocContext\":0}," CONTEXT "}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct clp_contract c;
        assert_int_equal(parse(others[i], &c), -ENOTSUP);
        assert_int_equal(c.os_id, 1);
        assert_int_equal(c.context, 3);
    }
}

/* Each cut text is refused, and nothing behind the cut is looked at. */
static void test_cut_text(void **state)
{
    struct clp_contract c;
    (void)state;
    for (size_t len = 0; len + 1 < sizeof(net10); len++) {
        char *exact = test_malloc(len ? len : 1);
        memcpy(exact, net10, len);
        assert_int_equal(clp_contract_parse(exact, len, &c), -EBADMSG);
        test_free(exact);
    }
}

static void test_header(void **state)
{
    uint8_t h[CLP_CONTRACT_HEADER_BYTES] = "DNCCDAC";
    uint64_t at = 0x7f0012345678, address = 0;
    uint32_t flags = 1, len = 10563, bytes = 0;
    (void)state;
    memcpy(h + 8, &flags, 4);
    memcpy(h + 12, &len, 4);
    memcpy(h + 16, &at, 8);
    assert_int_equal(clp_contract_header(h, &address, &bytes), 0);
    assert_true(address == at && bytes == len);
    for (unsigned i = 0; i < 16; i++) {
        uint8_t other[CLP_CONTRACT_HEADER_BYTES];
        memcpy(other, h, sizeof(h));
        other[i] ^= 0x82; /* the magic; four-byte pointers; a length beyond the ceiling */
        if (i == 9 || i == 10 || i == 11 || i == 12 || i == 13)
            continue; /* flags that nobody knows, other lengths */
        assert_int_equal(clp_contract_header(other, &address, &bytes), -EBADMSG);
    }
    memset(h + 16, 0, 8);
    assert_int_equal(clp_contract_header(h, &address, &bytes), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_9_and_10),
        cmocka_unit_test(test_white_space_and_order_do_not_matter),
        cmocka_unit_test(test_what_is_not_known_is_refused),
        cmocka_unit_test(test_cut_text),
        cmocka_unit_test(test_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
