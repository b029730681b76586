#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/il_filters.h"

#include <errno.h>
#include <string.h>

/* ---- the header ---- */

static int sections_at(const char *header, size_t body_bytes, uint32_t *ret)
{
    return clp_il_sections_at((const uint8_t *)header, body_bytes, ret);
}

static void header_of_a_body(void **state)
{
    (void)state;
    uint32_t at = 1;
    /* Tiny: six bytes of code. */
    assert_int_equal(sections_at("\x1a\0\0\0\0\0\0\0\0\0\0", 7, &at), 0);
    assert_int_equal(at, 0);
    /* Fat, five bytes of code, no sections. */
    assert_int_equal(sections_at("\x03\x30\x08\0\x05\0\0\0\0\0\0", 17, &at), 0);
    assert_int_equal(at, 0);
    /* The same with sections, which begin at a multiple of four. */
    assert_int_equal(sections_at("\x0b\x30\x08\0\x05\0\0\0\0\0\0", 40, &at), 0);
    assert_int_equal(at, 20);
}

static void broken_header(void **state)
{
    (void)state;
    uint32_t at;
    assert_int_equal(sections_at("\x0b\x30\x08\0\x05\0\0\0\0\0\0", 20, &at), -EBADMSG);
    assert_int_equal(sections_at("\x0b\x30\x08\0\xff\xff\xff\xff\0\0\0", 40, &at), -EBADMSG);
    assert_int_equal(sections_at("\x0b\x30\x08\0\x05\0\0\0\0\0\0", 7, &at), -EBADMSG);
    assert_int_equal(sections_at("\x0b\0\0\0\0\0\0\0\0\0\0", 1, &at), 0); /* not even flags */
}

/* ---- the sections ---- */

#define CATCH_SMALL "\0\0\x01\0\x02\x10\0\x05\x34\x12\0\x01"
#define FILTER_SMALL "\x01\0\x01\0\x02\x30\0\x05\x20\0\0\0"
#define FILTER_FAT "\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\x20\0\0\x05\0\0\0\x40\x1f\0\0"
#define FINALLY_FAT "\x02\0\0\0\x01\0\0\0\x02\0\0\0\0\x20\0\0\x05\0\0\0\0\0\0\0"

static int filters(const char *bytes, size_t len, struct clp_il_range ret[CLP_IL_FILTERS_MAX])
{
    return clp_il_filters(bytes, len, ret);
}
#define FILTERS(text, ret) filters(text, sizeof(text) - 1, ret)

static void small_section(void **state)
{
    (void)state;
    struct clp_il_range r[CLP_IL_FILTERS_MAX];
    assert_int_equal(FILTERS("\x01\x10\0\0" CATCH_SMALL, r), 0);
    assert_int_equal(FILTERS("\x01\x1c\0\0" CATCH_SMALL FILTER_SMALL, r), 1);
    assert_int_equal(r[0].start, 0x20);
    assert_int_equal(r[0].end, 0x30);
}

static void fat_section(void **state)
{
    (void)state;
    struct clp_il_range r[CLP_IL_FILTERS_MAX];
    assert_int_equal(FILTERS("\x41\x34\0\0" FINALLY_FAT FILTER_FAT, r), 1);
    assert_int_equal(r[0].start, 0x1f40);
    assert_int_equal(r[0].end, 0x2000);
}

static void several_sections(void **state)
{
    (void)state;
    struct clp_il_range r[CLP_IL_FILTERS_MAX];
    assert_int_equal(FILTERS("\x81\x10\0\0" FILTER_SMALL "\x41\x1c\0\0" FILTER_FAT, r), 2);
    assert_int_equal(r[1].start, 0x1f40);
    /* One of another kind before it. */
    assert_int_equal(FILTERS("\x80\x08\0\0"
                             "abcd"
                             "\x01\x10\0\0" FILTER_SMALL,
                             r),
                     1);
}

static void more_than_are_kept(void **state)
{
    (void)state;
    struct clp_il_range r[CLP_IL_FILTERS_MAX];
    uint8_t bytes[4 + 40 * 24] = {0x41, (4 + 40 * 24) & 0xff, (4 + 40 * 24) >> 8, 0};
    for (size_t i = 0; i < 40; i++)
        memcpy(bytes + 4 + i * 24, FILTER_FAT, 24);
    assert_int_equal(clp_il_filters(bytes, sizeof(bytes), r), 40);
}

static void broken_sections(void **state)
{
    (void)state;
    struct clp_il_range r[CLP_IL_FILTERS_MAX];
    assert_int_equal(FILTERS("\x01\x1c\0\0" CATCH_SMALL, r), -EBADMSG);
    assert_int_equal(FILTERS("\x81\x10\0\0" FILTER_SMALL, r), -EBADMSG);
    assert_int_equal(FILTERS("\x01", r), -EBADMSG);
    /* A filter behind its handler is none. */
    assert_int_equal(FILTERS("\x01\x10\0\0"
                             "\x01\0\x01\0\x02\x10\0\x05\x20\0\0\0",
                             r),
                     0);
}

/* ---- the map ---- */

#define PROLOG ((uint32_t)-2)
#define EPILOG ((uint32_t)-3)

/* As RyuJIT wrote it for a method with two filters and two handlers. */
static const struct clr_il_map map[] = {
    {PROLOG, 0x000, 0x032}, {PROLOG, 0x05a, 0x05b}, {PROLOG, 0x0ad, 0x0ae}, {PROLOG, 0x0c6, 0x0c7},
    {PROLOG, 0x119, 0x11a}, {0, 0x032, 0x03b},      {4, 0x03b, 0x04d},      {17, 0x05b, 0x086},
    {26, 0x086, 0x0a8},     {40, 0x0ae, 0x0b2},     {46, 0x0c7, 0x0f2},     {55, 0x0f2, 0x114},
    {69, 0x11a, 0x11e},     {70, 0x11e, 0x179},     {109, 0x04d, 0x051},    {EPILOG, 0x051, 0x05a},
    {EPILOG, 0x0a8, 0x0ad}, {EPILOG, 0x1b0, 0x1b5},
};
static const struct clp_il_range two_filters[] = {{17, 40}, {46, 69}};

static bool in_filter(uint32_t offset)
{
    return clp_il_in_filter(two_filters, 2, map, CLP_ARRAY_LEN(map), offset);
}

static void places_in_a_method(void **state)
{
    (void)state;
    assert_false(in_filter(0));
    assert_false(in_filter(0x59));
    assert_true(in_filter(0x5a)); /* its prologue */
    assert_true(in_filter(0x99));
    assert_true(in_filter(0xac)); /* its epilogue */
    assert_false(in_filter(0xad));
    assert_false(in_filter(0xc5));
    assert_true(in_filter(0xc6));
    assert_true(in_filter(0x118));
    assert_false(in_filter(0x119));
    assert_false(in_filter(0x1a0));
    assert_false(clp_il_in_filter(two_filters, 2, NULL, 0, 0x99));
    assert_false(clp_il_in_filter(two_filters, 0, map, CLP_ARRAY_LEN(map), 0x99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_of_a_body), cmocka_unit_test(broken_header),
        cmocka_unit_test(small_section),    cmocka_unit_test(fat_section),
        cmocka_unit_test(several_sections), cmocka_unit_test(more_than_are_kept),
        cmocka_unit_test(broken_sections),  cmocka_unit_test(places_in_a_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
