#include "tests/unit/clp-cmocka.h"

#include "pprof/gzip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* `len` bytes that neither repeat nor resist compression altogether. */
static uint8_t *make_bytes(size_t len)
{
    uint8_t *b = malloc(len);
    unsigned seed = 1;
    assert_non_null(b);
    for (size_t i = 0; i < len; i++)
        b[i] = (uint8_t)(rand_r(&seed) % 40);
    return b;
}

static struct clp_strbuf compressed(const uint8_t *data, size_t len)
{
    struct clp_strbuf out;
    struct clp_gzip *z = NULL;
    clp_strbuf_init(&out, 1 << 24);
    assert_int_equal(clp_gzip_new(&out, &z), 0);
    for (size_t at = 0; at < len; at += 1000)
        assert_int_equal(clp_gzip_add(z, data + at, CLP_MIN(len - at, (size_t)1000)), 0);
    assert_int_equal(clp_gzip_finish(z), 0);
    clp_gzip_free(z);
    return out;
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    for (size_t len = 0; len < 300000; len = len * 3 + 1) {
        uint8_t *data = make_bytes(len ? len : 1);
        struct clp_strbuf z = compressed(data, len);
        uint8_t *back = NULL;
        size_t back_len = 0;
        assert_true(clp_gzip_is(z.buf, z.len));
        assert_int_equal(clp_gunzip(z.buf, z.len, len, &back, &back_len), 0);
        assert_int_equal(back_len, len);
        assert_memory_equal(back, data, len);
        free(back);
        if (len > 0) {
            assert_int_equal(clp_gunzip(z.buf, z.len, len - 1, &back, &back_len), -EFBIG);
        }
        clp_strbuf_done(&z);
        free(data);
    }
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    uint8_t *data = make_bytes(500);
    struct clp_strbuf z = compressed(data, 500);
    for (size_t len = 0; len < z.len; len++) {
        uint8_t *back = NULL;
        size_t back_len;
        assert_int_equal(clp_gunzip(z.buf, len, 1 << 20, &back, &back_len), -EBADMSG);
        assert_null(back);
    }
    clp_strbuf_done(&z);
    free(data);
}

static void damage_is_noticed(void **state)
{
    (void)state;
    uint8_t *data = make_bytes(500);
    struct clp_strbuf z = compressed(data, 500);
    uint8_t *back = NULL;
    size_t back_len;
    z.buf[z.len - 6] ^= 1; /* the checksum */
    assert_int_equal(clp_gunzip(z.buf, z.len, 1 << 20, &back, &back_len), -EBADMSG);
    z.buf[z.len - 6] ^= 1;
    z.buf[z.len / 2] ^= 0x55;
    assert_int_equal(clp_gunzip(z.buf, z.len, 1 << 20, &back, &back_len), -EBADMSG);
    assert_int_equal(clp_gunzip("no gzip at all", 14, 1 << 20, &back, &back_len), -EBADMSG);
    assert_false(clp_gzip_is("no", 2));
    clp_strbuf_done(&z);
    free(data);
}

static void members_are_joined_and_a_bomb_is_bounded(void **state)
{
    (void)state;
    static uint8_t zeros[1 << 20];
    struct clp_strbuf z = compressed(zeros, sizeof(zeros));
    uint8_t *back = NULL;
    size_t back_len;
    assert_true(z.len < 4000);
    assert_int_equal(clp_gunzip(z.buf, z.len, 100000, &back, &back_len), -EFBIG);
    size_t one = z.len;
    for (int i = 0; i < 2; i++) {
        char copy[4096];
        memcpy(copy, z.buf, one);
        clp_strbuf_add(&z, copy, one);
    }
    assert_int_equal(clp_gunzip(z.buf, z.len, 3 << 20, &back, &back_len), 0);
    assert_int_equal(back_len, 3 << 20);
    free(back);
    clp_strbuf_done(&z);
}

static void a_full_buffer_is_an_error(void **state)
{
    (void)state;
    uint8_t *data = make_bytes(100000);
    struct clp_strbuf out;
    struct clp_gzip *z = NULL;
    clp_strbuf_init(&out, 1000);
    assert_int_equal(clp_gzip_new(&out, &z), 0);
    int r = clp_gzip_add(z, data, 100000);
    assert_int_equal(r == 0 ? clp_gzip_finish(z) : r, -ENOBUFS);
    clp_gzip_freep(&z);
    assert_null(z);
    clp_strbuf_done(&out);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(members_are_joined_and_a_bomb_is_bounded),
        cmocka_unit_test(a_full_buffer_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
