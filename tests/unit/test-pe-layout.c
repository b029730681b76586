#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/pe_layout.h"

#include <errno.h>
#include <string.h>

#define BASE 0x7f1200000000ull
#define LFANEW 0x80u
#define CLR_RVA 0x2000u
#define R2R_RVA 0x2800u

struct image {
    uint8_t bytes[0x3000];
    size_t readable;
    int error;
};

static int64_t read_image(void *user, uint64_t address, void *buf, size_t len)
{
    const struct image *i = user;
    if (i->error)
        return i->error;
    if (address < BASE || address - BASE >= i->readable)
        return -EFAULT;
    size_t n = CLP_MIN(len, i->readable - (size_t)(address - BASE));
    memcpy(buf, i->bytes + (address - BASE), n);
    return (int64_t)n;
}

static void put(struct image *i, size_t at, uint32_t value)
{
    for (unsigned k = 0; k < 4; k++)
        i->bytes[at + k] = (uint8_t)(value >> (8 * k));
}

/* The least that is a PE32+ image with precompiled code. */
static void make(struct image *i)
{
    memset(i, 0, sizeof(*i));
    i->readable = sizeof(i->bytes);
    memcpy(i->bytes, "MZ", 2);
    put(i, 0x3c, LFANEW);
    memcpy(i->bytes + LFANEW, "PE\0\0", 4);
    put(i, LFANEW + 8, 0x11223344);   /* TimeDateStamp */
    put(i, LFANEW + 24, 0x20b);       /* PE32+ */
    put(i, LFANEW + 24 + 56, 0x3000); /* SizeOfImage */
    put(i, LFANEW + 24 + 108, 16);    /* directories */
    put(i, LFANEW + 24 + 112 + 14 * 8, CLR_RVA);
    put(i, CLR_RVA + 64, R2R_RVA); /* ManagedNativeHeader */
    put(i, R2R_RVA, 0x00525452);
    put(i, R2R_RVA + 8, 0x3);
}

static void reads_size_stamp_and_native_code(void **state)
{
    (void)state;
    static struct image i;
    struct clp_pe_layout l;
    make(&i);
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_int_equal(l.image_bytes, 0x3000);
    assert_int_equal(l.time_stamp, 0x11223344);
    assert_true(l.native_code);
    assert_false(l.component);
    put(&i, R2R_RVA + 8, 0x23);
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_true(l.native_code && l.component);
    put(&i, R2R_RVA, 0x4e475243); /* some other native header */
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_false(l.native_code || l.component);
    make(&i);
    put(&i, CLR_RVA + 64, 0);
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_false(l.native_code);
}

static void an_image_without_clr_header_has_no_native_code(void **state)
{
    (void)state;
    static struct image i;
    struct clp_pe_layout l;
    make(&i);
    put(&i, LFANEW + 24 + 108, 14);
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_false(l.native_code);
    make(&i);
    put(&i, LFANEW + 24 + 112 + 14 * 8, 0x3000); /* outside of the image */
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_false(l.native_code);
    make(&i);
    i.readable = CLR_RVA + 10; /* header cut off */
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), 0);
    assert_false(l.native_code);
}

static void refuses_what_is_no_image(void **state)
{
    (void)state;
    static struct image i;
    struct clp_pe_layout l = {.image_bytes = 7};
    make(&i);
    i.bytes[0] = 'X';
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), -EBADMSG);
    make(&i);
    i.bytes[LFANEW] = 'X';
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), -EBADMSG);
    make(&i);
    put(&i, LFANEW + 24, 0x10b); /* 32 bit */
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), -EBADMSG);
    make(&i);
    put(&i, 0x3c, 0xfffffff0);
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), -EBADMSG);
    make(&i);
    i.readable = 0x90;
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), -EBADMSG);
    assert_int_equal(l.image_bytes, 7);
}

static void hands_on_the_error_of_a_read(void **state)
{
    (void)state;
    static struct image i;
    struct clp_pe_layout l;
    make(&i);
    i.error = -EFAULT;
    assert_int_equal(clp_pe_layout(BASE, read_image, &i, &l), -EFAULT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_size_stamp_and_native_code),
        cmocka_unit_test(an_image_without_clr_header_has_no_native_code),
        cmocka_unit_test(refuses_what_is_no_image),
        cmocka_unit_test(hands_on_the_error_of_a_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
